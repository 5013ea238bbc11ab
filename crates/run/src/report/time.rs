//! Time of a run, measured: by phase and by epoch.

use std::collections::BTreeMap;

use serde_json::Value;

use super::chart::{Axis, Columns, Layer, Words};
use super::html::{Section, Table, paragraph};
use crate::text::bytes;
use crate::text::number::{fixed, percent, plural, seconds};

/// Phases of a run's time.
pub(crate) const PHASES: [&str; 7] =
    ["forward", "backward", "optimizer", "waiting for data", "rest of the step", "validation", "saving"];

/// Seconds of each phase, and the samples trained on meanwhile.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Times {
    pub(crate) phases: [f64; PHASES.len()],
    samples: f64,
}

/// More columns than these are too narrow to be told apart.
const COLUMNS_MAX: usize = 60;

pub(crate) fn section(metrics: &[Value]) -> Section {
    let (first_epoch, epochs) = by_epoch(metrics);
    let mut body = String::new();
    if epochs.is_empty() {
        body.push_str(&paragraph("No step was recorded."));
    } else {
        let total = times(metrics);
        body.push_str(&paragraph(&format!(
            "{} in {}, as measured. The rest of a step is what is left of its whole time: packing weights for the kernels, adding up the threads' gradients, \
             checking them. Steps repeated after an interruption count once.",
            seconds(total.sum()),
            plural(epochs.len(), "epoch"),
        )));
        body.push_str(&waiting(metrics));
        body.push_str(&columns(first_epoch, &epochs));
        body.push_str(&table(first_epoch, &epochs, &total));
        body.push_str(&layers(metrics));
    }
    Section { id: "time", title: "Time by phase", body }
}

/// Causes of waiting for data that passed through memory.
fn waiting(metrics: &[Value]) -> String {
    let steps = || metrics.iter().filter(|metric| metric["data_disk_s"].is_number());
    if steps().next().is_none() {
        return String::new();
    }
    let sum = |key: &str| steps().filter_map(|metric| metric[key].as_f64()).sum::<f64>();
    paragraph(&format!(
        "The data passed through memory in chunks, {} read in all. Of the waiting for them, {} were for the file to be read, {} for its \
         filters to be undone and {} for values to be moved to their place.",
        bytes(sum("data_bytes_read") as usize),
        seconds(sum("data_disk_s")),
        seconds(sum("data_decode_s")),
        seconds(sum("data_copy_s")),
    ))
}

/// Parts of the layers' times: the name in the log, and for readers.
const WORK: [(&str, &str); 4] = [
    ("projection_s", "projection"),
    ("recurrence_s", "recurrence"),
    ("backward_s", "backward"),
    ("weight_gradients_s", "weight gradients"),
];

/// The times of all layers, of a run that measured them.
fn layers(metrics: &[Value]) -> String {
    let mut sums: BTreeMap<(usize, String), [f64; 4]> = BTreeMap::new();
    for profile in metrics.iter().map(|metric| &metric["profile"]).filter(|profile| profile.is_object()) {
        for (place, layer) in profile["layers"].as_array().into_iter().flatten().enumerate() {
            let name = format!("{} layer {}", layer["timeframe"].as_str().unwrap_or_default(), layer["layer"]);
            let sums = sums.entry((place, name)).or_default();
            sums.iter_mut().zip(WORK).for_each(|(sum, (key, _))| *sum += layer[key].as_f64().unwrap_or(0.0));
        }
    }
    if sums.is_empty() {
        return String::new();
    }
    let all: f64 = sums.values().flatten().sum();
    let row = |((_, name), times): (&(usize, String), &[f64; 4])| {
        let whole: f64 = times.iter().sum();
        let cells = times.iter().map(|&time| seconds(time));
        let share = if all > 0.0 { percent(whole / all) } else { "-".to_owned() };
        std::iter::once(name.clone()).chain(cells).chain([seconds(whole), share]).collect()
    };
    let head = std::iter::once("layer").chain(WORK.map(|(_, name)| name)).chain(["total", "share"]);
    Table::new("Time by layer, of all threads together", head, sums.iter().map(row)).to_html()
}

/// The times of the whole run.
pub(crate) fn times(metrics: &[Value]) -> Times {
    by_epoch(metrics).1.iter().fold(Times::default(), Times::plus)
}

/// The times of consecutive epochs, and the number of the first, from 1.
fn by_epoch(metrics: &[Value]) -> (usize, Vec<Times>) {
    let mut epochs: BTreeMap<usize, Times> = BTreeMap::new();
    let mut epoch = 0;
    for metric in metrics {
        let number = |key: &str| metric[key].as_f64().unwrap_or(0.0);
        // Checkpoints do not say their epoch: it is that of the step before them.
        epoch = metric["epoch"].as_u64().map_or(epoch, |epoch| epoch as usize);
        let times = epochs.entry(epoch).or_default();
        match metric["event"].as_str() {
            Some("step") => {
                let known = ["forward_s", "backward_s", "optimizer_s", "data_wait_s"].map(number);
                let whole =
                    if number("samples_per_s") > 0.0 { number("samples") / number("samples_per_s") } else { 0.0 };
                let rest = (whole - known.iter().sum::<f64>()).max(0.0);
                times.phases.iter_mut().zip(known.into_iter().chain([rest])).for_each(|(sum, part)| *sum += part);
                times.samples += number("samples");
            }
            Some("validation") => times.phases[5] += number("validation_s"),
            Some("checkpoint") => times.phases[6] += number("save_s"),
            _ => {}
        }
    }
    let first = epochs.keys().next().map_or(1, |epoch| epoch + 1);
    (first, epochs.into_values().collect())
}

impl Times {
    fn plus(self, other: &Times) -> Times {
        let mut sum = self;
        sum.phases.iter_mut().zip(other.phases).for_each(|(sum, part)| *sum += part);
        sum.samples += other.samples;
        sum
    }

    pub(crate) fn sum(&self) -> f64 {
        self.phases.iter().sum()
    }

    /// Samples over the time of steps alone.
    pub(crate) fn samples_per_s(&self) -> f64 {
        self.samples / self.phases[..5].iter().sum::<f64>()
    }

    fn cells(&self, name: String) -> Vec<String> {
        let phases = self.phases.iter().map(|&duration_s| seconds(duration_s));
        let rate = self.samples_per_s();
        let rate = if rate.is_finite() { fixed(rate, 0) } else { "-".to_owned() };
        std::iter::once(name).chain(phases).chain([seconds(self.sum()), rate]).collect()
    }
}

/// A column an epoch; neighbours are put together where they are many.
fn columns(first_epoch: usize, epochs: &[Times]) -> String {
    let together = epochs.len().div_ceil(COLUMNS_MAX);
    let grouped: Vec<Times> =
        epochs.chunks(together).map(|group| group.iter().fold(Times::default(), Times::plus)).collect();
    let name = |k: usize| match together {
        1 => format!("epoch {}", first_epoch + k),
        _ => format!(
            "epochs {} to {}",
            first_epoch + k * together,
            (first_epoch + (k + 1) * together - 1).min(first_epoch + epochs.len() - 1)
        ),
    };
    let layer = |(phase, phase_name): (usize, &&str)| Layer {
        name: (*phase_name).to_owned(),
        heights: grouped.iter().map(|times| times.phases[phase]).collect(),
        texts: grouped
            .iter()
            .enumerate()
            .map(|(k, times)| format!("{}, {phase_name}: {}", name(k), seconds(times.phases[phase])))
            .collect(),
    };
    Columns {
        words: Words::new("Time of each epoch by phase", "Stacked columns, one an epoch."),
        x: Axis::count("epoch"),
        y: Axis::number("seconds"),
        first: first_epoch as f64 + (together - 1) as f64 / 2.0,
        step: together as f64,
        layers: PHASES.iter().enumerate().map(layer).collect(),
    }
    .to_html()
}

fn table(first_epoch: usize, epochs: &[Times], total: &Times) -> String {
    let head = std::iter::once("epoch").chain(PHASES).chain(["total", "samples/s in steps"]);
    let share = |part: f64| if total.sum() > 0.0 { percent(part / total.sum()) } else { "-".to_owned() };
    let shares = std::iter::once("share".to_owned())
        .chain(total.phases.iter().map(|&part| share(part)))
        .chain(["100.0 %".to_owned(), String::new()]);
    let rows = [total.cells("all".to_owned()), shares.collect()];
    let each = epochs.iter().enumerate().map(|(k, times)| times.cells((first_epoch + k).to_string()));
    Table::new("Time by phase", head, rows.into_iter().chain(each)).to_html()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn step(epoch: u64, samples_per_s: f64) -> Value {
        json!({
            "event": "step", "step": 1, "epoch": epoch, "samples": 10, "samples_per_s": samples_per_s,
            "forward_s": 1.0, "backward_s": 2.0, "optimizer_s": 0.5, "data_wait_s": 0.25,
        })
    }

    #[test]
    fn phases_are_added_up_by_epoch_and_the_rest_is_what_is_left() {
        let metrics = [
            step(0, 2.0),
            step(0, 2.5),
            json!({ "event": "validation", "epoch": 0, "validation_s": 3.0 }),
            json!({ "event": "checkpoint", "save_s": 0.5 }),
            step(1, 2.0),
            json!({ "event": "checkpoint", "save_s": 0.25 }),
        ];
        let (first, epochs) = by_epoch(&metrics);
        assert_eq!((first, epochs.len()), (1, 2));
        assert_eq!(epochs[0].phases, [2.0, 4.0, 1.0, 0.5, 1.5, 3.0, 0.5]);
        assert_eq!(epochs[1].phases, [1.0, 2.0, 0.5, 0.25, 1.25, 0.0, 0.25]);
        assert_eq!(epochs[1].samples_per_s(), 2.0);
        let body = section(&metrics).body;
        for part in ["Time of each epoch by phase", "waiting for data", "17.8 s", "epoch 2, backward: 2.00 s"] {
            assert!(body.contains(part), "{part}: {body}");
        }
    }

    #[test]
    fn waiting_for_data_that_passed_through_memory_is_told_by_cause() {
        let mut passing = step(0, 2.0);
        for (key, value) in
            [("data_disk_s", 0.5), ("data_decode_s", 0.25), ("data_copy_s", 2.0), ("data_bytes_read", 1.5e6)]
        {
            passing[key] = json!(value);
        }
        let body = section(&[step(0, 2.0), passing.clone(), passing]).body;
        for part in ["3.00 MB read in all", "1.00 s were for the file", "500 ms for its filters", "4.00 s for values"] {
            assert!(body.contains(part), "{part}: {body}");
        }
        assert!(!section(&[step(0, 2.0)]).body.contains("passed through memory"));
    }

    #[test]
    fn a_run_without_steps_and_one_of_many_epochs_are_told() {
        assert!(section(&[]).body.contains("No step"));
        let many: Vec<Value> = (0..1000).map(|epoch| step(epoch, 2.0)).collect();
        let body = section(&many).body;
        assert!(body.contains("epochs 1 to 17, forward: 17.0 s") && body.contains("epochs 987 to 1000"), "{body}");
        assert!(body.len() < 600_000, "{}", body.len());
    }
}
