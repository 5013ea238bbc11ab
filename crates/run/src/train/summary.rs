//! Summary of a session when it ends, as text and as JSON.

use megabatch_trainer::{End, Outcome};
use serde_json::json;

use super::watch::Waited;
use crate::command_report::CommandReport;
use crate::error::Kind;
use crate::evaluate::Evaluation;
use crate::plan::Plan;
use crate::run_folder::RunFolder;
use crate::setup::TrainingSetup;
use crate::setup::settings::loss_name;
use crate::text::number::significant;
use crate::text::{bytes, shown};
use crate::usage::peak_rss_bytes;

/// Time of a session, in seconds.
#[derive(Clone, Copy)]
pub(super) struct Times {
    /// Time of steps and of the checkpoints between them.
    pub(super) training_s: f64,
    pub(super) validation_s: f64,
    /// Time to evaluate the best weights of a finished run.
    pub(super) evaluation_s: Option<f64>,
    /// Time for predictions and charts of the report.
    pub(super) report_s: Option<f64>,
    /// The report included.
    pub(super) all_s: f64,
}

impl Times {
    /// Text after "in": `80.1 s, beside 12.0 s of validation, 3.0 s of evaluation and 1.0 s of
    /// report`.
    fn sentence(&self) -> String {
        let other_phases = [
            ("validation", Some(self.validation_s)),
            ("evaluation", self.evaluation_s),
            ("report", self.report_s.filter(|&seconds| seconds >= 0.05)),
        ];
        let other_phases: Vec<String> = other_phases
            .into_iter()
            .filter_map(|(what, seconds)| Some(format!("{:.1} s of {what}", seconds.filter(|&s| s > 0.0)?)))
            .collect();
        let other_phases = match other_phases.as_slice() {
            [] => String::new(),
            [one] => format!(", beside {one}"),
            [first @ .., last] => format!(", beside {} and {last}", first.join(", ")),
        };
        format!("{:.1} s{other_phases}", self.training_s)
    }
}

/// Facts of a session that has ended.
pub(super) struct Summary<'a> {
    pub(super) setup: &'a TrainingSetup,
    pub(super) plan: &'a Plan,
    pub(super) folder: &'a RunFolder,
    pub(super) outcome: Outcome,
    pub(super) times: Times,
    pub(super) waited: Waited,
    pub(super) evaluation: Option<&'a Evaluation>,
    /// Peak bytes of training, of the memory that the plan counts.
    pub(super) peak_bytes: usize,
    /// Peak bytes of training of the process that took most of its GPU; 0 on the CPU.
    pub(super) gpu_peak_bytes: usize,
    pub(super) warning: Option<&'a str>,
}

impl Summary<'_> {
    pub(super) fn report(self) -> CommandReport {
        let Summary { setup, plan, folder, outcome, times, waited, evaluation, peak_bytes, gpu_peak_bytes, warning } =
            self;
        let took = times.sentence();
        let Outcome { steps, end, rollbacks, .. } = outcome;
        let mut text = match end {
            End::Finished if steps > plan.steps => format!("nothing to do: {steps} steps are done already"),
            End::Finished => format!("trained: {steps} of {} steps in {took}", plan.steps),
            End::StoppedEarly => format!(
                "ended early after {steps} of {} steps in {took}: the validation loss no longer improved",
                plan.steps
            ),
            End::Stopped if steps >= plan.steps => {
                format!("stopped before the evaluation was done, after {steps} steps in {took}; --resume goes on")
            }
            End::Stopped => {
                format!("stopped after {steps} of {} steps in {took}; --resume goes on", plan.steps)
            }
        };
        text.extend(waited.sentence(times.training_s).map(|sentence| format!("\n{sentence}")));
        if rollbacks > 0 {
            text.push_str(&format!("\nrollbacks: {rollbacks}; metrics.jsonl says when and why"));
        }
        if let Some(best) = outcome.best {
            let (name, loss) = (loss_name(&setup.training), significant(best.loss, 4));
            text.push_str(&format!("\nbest validation {name} {loss} at step {}", best.step));
        }
        if let Some(evaluation) = evaluation {
            text.push_str(&format!("\n{}: {}", evaluation.split.name(), evaluation.verdict()));
        }
        let (planned, resident) = (plan.memory.total_bytes, peak_rss_bytes());
        let process_text =
            resident.map_or(String::new(), |resident| format!("; {} of the whole process", bytes(resident as usize)));
        text.push_str(&format!(
            "\npeak memory: {} allocated, {} planned{process_text}",
            bytes(peak_bytes),
            bytes(planned)
        ));
        let gpu_bytes = plan.gpu.as_ref().zip(setup.gpu.as_ref());
        let gpu_bytes =
            gpu_bytes.map(|(plan, gpu)| (plan.total_bytes, gpu.usage().allocated_bytes_peak.max(gpu_peak_bytes)));
        if let Some((planned, measured)) = gpu_bytes {
            let (measured, planned) = (bytes(measured), bytes(planned));
            text.push_str(&format!("\npeak memory of the GPU: {measured} allocated, {planned} planned"));
        }
        text.extend(plan.warnings.iter().map(|warning| format!("\nwarning: {warning}")));
        text.extend(plan.notes.iter().map(|note| format!("\nnote: {note}")));
        text.extend(warning.iter().map(|warning| format!("\nwarning: {warning}")));
        text.extend(plan.uses.iter().map(|line| format!("\nuse: {line}")));
        text.push_str(&format!("\nreport: {}", folder.report_file().display()));
        let json = json!({
            "run": shown(folder.root()),
            "finished": outcome.end != End::Stopped,
            "ended_early": outcome.end == End::StoppedEarly,
            "steps": outcome.steps,
            "rollbacks": rollbacks,
            "seconds": times.all_s,
            "training_s": times.training_s,
            "validation_s": times.validation_s,
            "evaluation_s": times.evaluation_s,
            "report_s": times.report_s,
            "data_wait_s": waited.seconds,
            "data_waits": waited.causes,
            "best_validation": outcome.best.map(|best| json!({ "step": best.step, "loss": best.loss })),
            "evaluation": evaluation,
            "memory": { "planned_bytes": planned, "peak_bytes": peak_bytes, "peak_rss_bytes": resident },
            "gpu_memory": gpu_bytes.map(|(planned, peak)| json!({ "planned_bytes": planned, "peak_bytes": peak })),
            "warnings": plan.warnings,
            "notes": plan.notes,
            "uses": plan.uses,
            "warning": warning,
            "report": shown(&folder.report_file()),
        });
        let report = CommandReport::new(text, &json);
        if outcome.end == End::Stopped { report.with_verdict(Kind::Cancelled) } else { report }
    }
}

/// Share of the training time above which waiting is reported.
const WAITING_SHARE_MIN: f64 = 0.05;

impl Waited {
    /// `waited for data: 12.3 s, 62 % of the training: 12.1 s for the disk (600.0 MB read), …`;
    /// `None` below [`WAITING_SHARE_MIN`].
    fn sentence(&self, training_s: f64) -> Option<String> {
        let share = self.seconds / training_s;
        if share < WAITING_SHARE_MIN || share.is_nan() {
            return None;
        }
        let all = format!("waited for data: {:.1} s, {:.0} % of the training", self.seconds, 100.0 * share);
        let Some(waits) = &self.causes else { return Some(all) };
        let read = bytes(usize::try_from(waits.bytes_read).unwrap_or(usize::MAX));
        let [disk, decode, copy] = [waits.disk, waits.decode, waits.copy].map(|time| time.as_secs_f64());
        Some(format!(
            "{all}: {disk:.1} s for the disk ({read} read), {decode:.1} s for decoding, {copy:.1} s for moving values"
        ))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use megabatch_trainer::Waits;

    use super::*;

    #[test]
    fn waiting_is_told_with_its_causes_where_it_is_a_part_of_the_training() {
        let ms = Duration::from_millis;
        let waits = Waits { disk: ms(12_100), decode: ms(150), copy: ms(50), bytes_read: 605_000_000 };
        let waited = Waited { seconds: 12.3, causes: Some(waits) };
        assert_eq!(
            waited.sentence(20.0).unwrap(),
            "waited for data: 12.3 s, 62 % of the training: 12.1 s for the disk (605 MB read), 0.1 s for decoding, 0.1 s for moving values"
        );
        assert_eq!(waited.sentence(300.0), None);
        assert_eq!(Waited::default().sentence(0.0), None);
        let gathered = Waited { seconds: 2.0, causes: None };
        assert_eq!(gathered.sentence(4.0).unwrap(), "waited for data: 2.0 s, 50 % of the training");
    }
}
