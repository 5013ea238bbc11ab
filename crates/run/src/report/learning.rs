//! Training curves: loss by step and by epoch, learning rate, norm of the gradients.

use std::collections::BTreeMap;

use serde_json::Value;

use super::chart::{Axis, Chart, Mark, Series, Size, Words};
use super::html::{Section, paragraph, side_by_side};
use crate::text::number::{plural, significant};

/// Share of a new loss in the smoothed line.
const SMOOTHING: f64 = 0.05;

/// Section on learning, from the run's log. `loss_name` is that of its losses, `clip_norm` the
/// configuration's.
pub(crate) fn section(metrics: &[Value], loss_name: &str, clip_norm: Option<f64>) -> Section {
    let mut body = paragraph(&story(metrics));
    let norms = gradients(metrics, clip_norm).to_html_above(&clipping(metrics, clip_norm));
    let charts = [by_step(metrics, loss_name), by_epoch(metrics, loss_name), learning_rate(metrics)]
        .map(|chart| chart.to_html());
    body.push_str(&side_by_side(&[&charts[..], &[norms]].concat()));
    Section { id: "loss", title: "Loss", body }
}

/// A sentence on the validation loss.
fn story(metrics: &[Value]) -> String {
    let validations = points(metrics, "validation", "loss");
    let best = validations.iter().copied().min_by(|a, b| a.1.total_cmp(&b.1));
    let (Some(&first), Some(best)) = (validations.first(), best) else { return "Nothing was validated.".to_owned() };
    let times = plural(validations.len(), "time");
    let at = |(step, loss): (f64, f64)| format!("{} at step {step}", significant(loss, 4));
    match validations.len() {
        1 => format!("Validated once. The validation loss was {}.", at(first)),
        _ if best == first => format!("Validated {times}. The validation loss was best at first, {}.", at(first)),
        _ => format!("Validated {times}. The validation loss went from {} to its best, {}.", at(first), at(best)),
    }
}

/// `key` of each `event`, over the steps.
pub(crate) fn points(metrics: &[Value], event: &str, key: &str) -> Vec<(f64, f64)> {
    let events = metrics.iter().filter(|metric| metric["event"] == event);
    events.filter_map(|metric| Some((metric["step"].as_f64()?, metric[key].as_f64()?))).collect()
}

fn by_step(metrics: &[Value], loss_name: &str) -> Chart {
    let raw = points(metrics, "step", "loss");
    let smoothed = smooth(&raw);
    Chart {
        words: Words::new("Loss by step", "Training loss of every step, smoothed and as it was, and validation loss."),
        size: Size::Half,
        x: Axis::count("optimizer step"),
        y: Axis::number(loss_name),
        series: vec![
            Series::new("training, each step", Mark::Faint, 0, raw),
            Series::new("training, smoothed", Mark::Line, 0, smoothed),
            Series::new("validation", Mark::Dots, 1, points(metrics, "validation", "loss")),
        ],
    }
}

fn by_epoch(metrics: &[Value], loss_name: &str) -> Chart {
    let epoch = |metric: &Value| Some(metric["epoch"].as_u64()? + 1);
    let mut training: BTreeMap<u64, (f64, f64)> = BTreeMap::new();
    for metric in metrics.iter().filter(|metric| metric["event"] == "step") {
        if let (Some(epoch), Some(loss)) = (epoch(metric), metric["loss"].as_f64()) {
            let samples = metric["samples"].as_f64().unwrap_or(1.0);
            let (sum, count) = training.entry(epoch).or_default();
            (*sum, *count) = (*sum + loss * samples, *count + samples);
        }
    }
    // The last validation of an epoch is the one at its end.
    let validation: BTreeMap<u64, f64> = metrics
        .iter()
        .filter(|metric| metric["event"] == "validation")
        .filter_map(|metric| Some((epoch(metric)?, metric["loss"].as_f64()?)))
        .collect();
    Chart {
        words: Words::new("Loss by epoch", "Mean training loss of each epoch, and validation loss at its end."),
        size: Size::Half,
        x: Axis::count("epoch"),
        y: Axis::number(loss_name),
        series: vec![
            Series::new(
                "training, mean of the epoch",
                Mark::Dots,
                0,
                training.into_iter().map(|(epoch, (sum, count))| (epoch as f64, sum / count)).collect(),
            ),
            Series::new(
                "validation, at its end",
                Mark::Dots,
                1,
                validation.into_iter().map(|(epoch, loss)| (epoch as f64, loss)).collect(),
            ),
        ],
    }
}

fn learning_rate(metrics: &[Value]) -> Chart {
    Chart {
        words: Words::new("Learning rate", "Learning rate of every step."),
        size: Size::Half,
        x: Axis::count("optimizer step"),
        y: Axis::number("learning rate").with_zero(),
        series: vec![Series::new("learning rate", Mark::Line, 2, points(metrics, "step", "lr"))],
    }
}

fn gradients(metrics: &[Value], clip_norm: Option<f64>) -> Chart {
    let norms = points(metrics, "step", "grad_norm");
    let ends = norms.first().zip(norms.last());
    let limit = clip_norm.zip(ends).map(|(norm, (first, last))| vec![(first.0, norm), (last.0, norm)]);
    Chart {
        words: Words::new(
            "Norm of the gradients",
            "Global norm of the gradients before clipping, smoothed and as it was.",
        ),
        size: Size::Half,
        x: Axis::count("optimizer step"),
        y: Axis::number("norm before clipping").with_zero(),
        series: vec![
            Series::new("smoothed", Mark::Line, 3, smooth(&norms)),
            Series::new("each step", Mark::Faint, 3, norms),
            Series::new("", Mark::Guide, 6, limit.unwrap_or_default()),
        ],
    }
}

/// Sentence on the steps whose gradients were scaled down; empty for a run without such a limit.
fn clipping(metrics: &[Value], clip_norm: Option<f64>) -> String {
    let Some(limit) = clip_norm else { return String::new() };
    let norms = points(metrics, "step", "grad_norm");
    // The smoothed norms decide the range.
    let dashed = if smooth(&norms).iter().any(|point| point.1 >= limit) { ", the dashed line," } else { "" };
    let above = match norms.iter().filter(|point| point.1 > limit).count() {
        0 => "No step was".to_owned(),
        1 => "One step was".to_owned(),
        count => format!("{} were", plural(count, "step")),
    };
    format!(
        "Gradients with a norm above {}{dashed} are scaled down to it (training.clip_norm). {above} above it.",
        significant(limit, 3)
    )
}

/// The exponential moving average of a line, free of the bias towards its start (Kingma and Ba,
/// 2015, section 3).
pub(crate) fn smooth(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let (mut average, mut weight) = (0.0, 0.0);
    let smoothed = points.iter().map(|&(x, y)| {
        average += SMOOTHING * (y - average);
        weight += SMOOTHING * (1.0 - weight);
        (x, average / weight)
    });
    smoothed.collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn smoothing_starts_at_the_first_value_and_follows_a_level() {
        let flat: Vec<(f64, f64)> = (0..50).map(|x| (f64::from(x), 3.0)).collect();
        assert!(smooth(&flat).iter().all(|&(_, y)| (y - 3.0).abs() < 1e-12));
        assert!(smooth(&[]).is_empty());
    }

    /// The legend said "clipped to", and nothing said what that is.
    #[test]
    fn a_limit_of_the_gradients_is_told_below_the_picture() {
        let norms = [0.5, 2.0, 3.0].into_iter().enumerate();
        let steps: Vec<Value> = norms
            .map(|(k, norm)| json!({ "event": "step", "step": k + 1, "loss": 1.0, "lr": 0.1, "grad_norm": norm }))
            .collect();
        let html = section(&steps, "loss", Some(1.0)).body;
        assert!(html.contains("(training.clip_norm). 2 steps were above it.</p><details>"), "{html}");
        assert!(!html.contains("clipped to"), "{html}");
        assert_eq!(clipping(&steps, None), "");
        assert!(clipping(&steps, Some(1.0)).starts_with("Gradients with a norm above 1.00, the dashed line, are"));
        let none = clipping(&steps, Some(9.0));
        assert!(
            none.starts_with("Gradients with a norm above 9.00 are") && none.ends_with("No step was above it."),
            "{none}"
        );
    }

    #[test]
    fn steps_have_whole_numbers_at_their_ticks() {
        let step = |step: u64| json!({ "event": "step", "step": step, "loss": 1.0, "lr": 0.1, "grad_norm": 1.0 });
        let html = by_step(&[step(1), step(3)], "loss").to_html();
        let ticks = html.split("<g class=\"tick\">").nth(1).unwrap().split("</g>").next().unwrap();
        let x = ticks.split("text-anchor=\"middle\">").skip(1).map(|rest| rest.split('<').next().unwrap());
        assert_eq!(x.collect::<Vec<_>>(), ["1", "2", "3"]);
    }

    #[test]
    fn an_epoch_is_the_mean_over_its_samples_and_its_last_validation() {
        let metrics = [
            json!({ "event": "step", "step": 1, "epoch": 0, "samples": 3, "loss": 4.0 }),
            json!({ "event": "validation", "step": 1, "epoch": 0, "loss": 9.0 }),
            json!({ "event": "step", "step": 2, "epoch": 0, "samples": 1, "loss": 8.0 }),
            json!({ "event": "validation", "step": 2, "epoch": 0, "loss": 7.0 }),
            json!({ "event": "step", "step": 3, "epoch": 1, "samples": 1, "loss": 1.0 }),
        ];
        let chart = by_epoch(&metrics, "loss (scaled)");
        assert_eq!(chart.series[0].points, [(1.0, 5.0), (2.0, 1.0)]);
        assert_eq!(chart.series[1].points, [(1.0, 7.0)]);
        assert_eq!(
            story(&metrics),
            "Validated 2 times. The validation loss went from 9.000 at step 1 to its best, 7.000 at step 2."
        );
        assert_eq!(story(&metrics[..2]), "Validated once. The validation loss was 9.000 at step 1.");
        let worse = [metrics[3].clone(), metrics[1].clone()];
        assert_eq!(story(&worse), "Validated 2 times. The validation loss was best at first, 7.000 at step 2.");
    }
}
