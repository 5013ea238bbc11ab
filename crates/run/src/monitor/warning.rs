//! Warnings in lines of the log, in a sentence.

use serde_json::Value;

use crate::run_folder::SessionEnd;
use crate::text::bytes;
use crate::text::number::{percent, significant};

/// The sentence for a line that is a warning; `None` for other lines.
pub(super) fn sentence(line: &Value) -> Option<String> {
    let number = |key: &str| line[key].as_f64().unwrap_or(f64::NAN);
    let text = |key: &str| line[key].as_str().unwrap_or("unknown").to_owned();
    Some(match line["event"].as_str()? {
        "waiting" => {
            let (share, cause_share) = (percent(number("share")), percent(number("cause_share")));
            format!("steps wait for data for {share} of their time, {cause_share} for {}", text("cause"))
        }
        "lost_time" => format!("{} of the time is lost to {}", percent(number("share")), lost_to(&text("cause"))),
        "gpu_idle" => format!(
            "the GPU is busy for {} of the time; {} goes to {}",
            percent(number("busy")),
            percent(number("cause_share")),
            lost_to(&text("cause"))
        ),
        "leak" => {
            let owners = line["owners"].as_array().into_iter().flatten().filter_map(|grown| grown["owner"].as_str());
            let owners = owners.collect::<Vec<_>>().join(", ");
            format!("memory grows from epoch to epoch, {} so far: {owners}", bytes(number("growth_bytes") as usize))
        }
        "loss_scale" => format!(
            "the loss scale does not hold: {} of the last {} steps changed nothing, now at {}",
            number("overflows"),
            number("of_steps"),
            number("loss_scale")
        ),
        "shortage" => format!(
            "memory ran short ({}); on with {} at once of each batch of {}",
            text("cause"),
            number("batch_size"),
            number("planned_batch_size")
        ),
        "rollback" => format!(
            "{}; back from step {} to {}, and on with {} of the learning rate",
            text("cause"),
            number("failed_step"),
            number("step"),
            significant(number("rate_factor"), 2)
        ),
        _ if SessionEnd::from_metric(line) == Some(SessionEnd::Failed) => {
            format!("the session failed: {}", text("error"))
        }
        _ => return None,
    })
}

/// Cause of lost time, by its name in the log.
fn lost_to(cause: &str) -> &str {
    match cause {
        "data" => "waiting for data",
        "saving" => "saving checkpoints",
        "host" => "work of the host",
        "threads" => "idle threads",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_warning_has_a_sentence_and_other_lines_have_none() {
        for (line, expected) in [
            (
                json!({ "event": "waiting", "share": 0.67, "cause": "decode", "cause_share": 0.61 }),
                "steps wait for data for 67.0 % of their time, 61.0 % for decode",
            ),
            (
                json!({ "event": "lost_time", "share": 0.45, "cause": "validation" }),
                "45.0 % of the time is lost to validation",
            ),
            (
                json!({ "event": "gpu_idle", "busy": 0.4, "cause": "data", "cause_share": 0.5 }),
                "the GPU is busy for 40.0 % of the time; 50.0 % goes to waiting for data",
            ),
            (
                json!({ "event": "leak", "growth_bytes": 2_000_000, "owners": [{ "owner": "batches" }, { "owner": "x" }] }),
                "memory grows from epoch to epoch, 2.00 MB so far: batches, x",
            ),
            (
                json!({ "event": "loss_scale", "loss_scale": 0.5, "overflows": 26, "of_steps": 100 }),
                "the loss scale does not hold: 26 of the last 100 steps changed nothing, now at 0.5",
            ),
            (
                json!({ "event": "shortage", "cause": "no room", "batch_size": 8, "planned_batch_size": 64 }),
                "memory ran short (no room); on with 8 at once of each batch of 64",
            ),
            (
                json!({ "event": "rollback", "step": 9, "failed_step": 12, "cause": "the loss is NaN", "rate_factor": 0.5 }),
                "the loss is NaN; back from step 12 to 9, and on with 0.50 of the learning rate",
            ),
            (
                json!({ "event": "end", "step": 9, "how": "failed", "error": "the loss is NaN" }),
                "the session failed: the loss is NaN",
            ),
        ] {
            assert_eq!(sentence(&line).as_deref(), Some(expected));
        }
        assert_eq!(sentence(&json!({ "event": "step", "step": 1 })), None);
        assert_eq!(sentence(&json!({ "event": "end", "step": 1, "how": "stopped" })), None);
        assert_eq!(sentence(&json!(3)), None);
    }
}
