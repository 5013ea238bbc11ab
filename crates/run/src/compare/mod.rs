//! Runs side by side: differing settings, and results.

mod errors;
mod page;
mod rows;
mod samples;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use megabatch_atomic_file as atomic_file;
use serde_json::{Value, json};

use crate::adapters::fold_plan::FoldPlan;
use crate::command_report::CommandReport;
use crate::config::training;
use crate::error::{Error, Result};
use crate::host::Host;
use crate::output;
use crate::report::learning::points;
use crate::report::time::{PHASES, Times, times};
use crate::run_folder::RunFolder;
use crate::text::number::{grouped, percent, significant};
use crate::text::{shown, utc};
use errors::Errors;
use samples::{RunSamples, SampleMatch};

/// Puts runs side by side: settings that differ, best validation loss, errors beside baselines,
/// speed and time by phase, peaks of memory. Runs that have not ended are shown as far as they got.
/// Runs on different samples get different letters. `page` is an HTML file with all of it and the
/// learning curves. A data file is read where one run had it with a mark of verification and
/// another without.
///
/// # Errors
/// A usage error for fewer than two runs, or a folder that holds none; a cancelled failure where
/// the host ends the reading.
pub fn compare(runs: &[PathBuf], page: Option<&Path>, host: &Host<'_>) -> Result<CommandReport> {
    if runs.len() < 2 {
        return Err(Error::usage("compare needs two runs or more; `megabatch monitor RUN` shows one"));
    }
    if let Some(out) = page {
        output::require_ending(out, &["html"])?;
        output::check(out, &[])?;
    }
    let comparison = Comparison::open(runs, host)?;
    let (mut text, mut json) = (comparison.to_text(), comparison.to_json());
    if let Some(out) = page {
        atomic_file::write(out, comparison.to_html().as_bytes())?;
        text.push_str(&format!("\npage: {}", out.display()));
        json["page"] = json!(out);
    }
    Ok(CommandReport::new(text, &json))
}

/// Settings that always differ and do not affect training.
const PLACES: [&str; 1] = ["output.dir"];

/// A run as far as it got.
pub(crate) struct Side {
    folder: PathBuf,
    /// Distinguishing part of the folder's name.
    label: String,
    /// Letter of the samples it is evaluated on. Runs with the same letter have the same samples.
    samples: char,
    settings: BTreeMap<&'static str, String>,
    plan: Value,
    /// The lines of metrics.jsonl.
    metrics: Vec<Value>,
    /// evaluation.json, null for a run that has not ended; of a run of several folds that has
    /// ended, that of each.
    evaluations: Vec<Value>,
    /// Number of folds, and the optimizer steps of all of them, for a run of several.
    folds: Option<FoldsDone>,
}

/// Progress of a run of several folds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FoldsDone {
    folds: usize,
    steps: u64,
}

/// Runs to be compared, in the order in which they were named.
#[derive(Default)]
pub(crate) struct Comparison {
    sides: Vec<Side>,
    /// Letters of samples that cannot be told apart.
    unclear: Vec<[char; 2]>,
}

/// A setting that is not the same in all runs.
struct Difference {
    key: &'static str,
    /// One for each run; `None` where the key has no value.
    values: Vec<Option<String>>,
}

impl Comparison {
    /// Reads the runs in `folders`.
    ///
    /// # Errors
    /// A usage failure for a folder that holds no run; a cancelled failure where the host ends it.
    pub(crate) fn open(folders: &[PathBuf], host: &Host<'_>) -> Result<Self> {
        let labels = labels(folders);
        let sides = folders.iter().zip(labels).map(|(folder, label)| Side::open(folder, label));
        let mut comparison = Comparison { sides: sides.collect::<Result<_>>()?, unclear: Vec::new() };
        let mut groups: Vec<RunSamples> = Vec::new();
        for side in &mut comparison.sides {
            let mut own = RunSamples::from_side(side);
            let (mut same, mut unclear) = (None, Vec::new());
            for (place, group) in groups.iter_mut().enumerate() {
                match group.compare(&mut own, host)? {
                    SampleMatch::Same => same = same.or(Some(place)),
                    SampleMatch::Unknown => unclear.push(letter(place)),
                    SampleMatch::Different => {}
                }
            }
            side.samples = letter(same.unwrap_or(groups.len()));
            match same {
                Some(place) => groups[place].extend(own),
                None => {
                    comparison.unclear.extend(unclear.into_iter().map(|earlier| [earlier, side.samples]));
                    groups.push(own);
                }
            }
        }
        Ok(comparison)
    }

    /// The runs by the samples that they have in common, each with its place among all.
    fn groups(&self) -> BTreeMap<char, Vec<(usize, &Side)>> {
        let mut groups: BTreeMap<char, Vec<(usize, &Side)>> = BTreeMap::new();
        for (place, side) in self.sides.iter().enumerate() {
            groups.entry(side.samples).or_default().push((place, side));
        }
        groups
    }

    fn differences(&self) -> Vec<Difference> {
        let keys: BTreeMap<&'static str, ()> =
            self.sides.iter().flat_map(|side| side.settings.keys()).map(|&key| (key, ())).collect();
        let keys = keys.into_keys().filter(|key| !PLACES.contains(key));
        let difference =
            |key| Difference { key, values: self.sides.iter().map(|side| side.settings.get(key).cloned()).collect() };
        keys.map(difference)
            .filter(|difference| difference.values.iter().any(|value| *value != difference.values[0]))
            .collect()
    }

    /// Conclusions on the whole comparison, in sentences: which runs have the same samples, and
    /// which of those is ahead.
    fn sentences(&self) -> Vec<String> {
        let groups = self.groups();
        let mut sentences: Vec<String> =
            groups.iter().map(|(samples, sides)| samples_sentence(*samples, sides)).collect();
        sentences.extend(self.unclear.iter().map(|[one, other]| {
            format!(
                "{one} and {other} may be the same samples: one was recorded with a mark of verification and the other without, and neither file is there as it was."
            )
        }));
        if groups.len() > 1 {
            sentences.push("Errors and losses compare among runs with the same letter only.".to_owned());
        }
        let firsts: Vec<&Side> = groups.values().map(|sides| sides[0].1).collect();
        for (k, one) in firsts.iter().enumerate() {
            sentences.extend(firsts[k + 1..].iter().filter_map(|other| units_sentence(one, other)));
        }
        sentences.extend(groups.iter().filter_map(|(samples, sides)| ahead(*samples, sides)));
        sentences
    }

    /// Text for a terminal: the sentences, the settings that differ, and the result of each run.
    pub(crate) fn to_text(&self) -> String {
        let sentences = self.sentences().join("\n");
        let tables = [self.settings_table(), self.results_table()];
        let tables = tables.iter().filter(|table| !table.rows.is_empty()).map(rows::to_text);
        format!("{sentences}\n\n{}", tables.collect::<Vec<_>>().join("\n"))
    }

    /// JSON for programs.
    pub(crate) fn to_json(&self) -> Value {
        let differences =
            self.differences().into_iter().map(|Difference { key, values }| json!({ "key": key, "values": values }));
        let groups = self.groups().len();
        // Unknown where nothing tells any two of them apart.
        let same_samples = (groups == 1 || 2 * self.unclear.len() < groups * (groups - 1)).then_some(groups == 1);
        json!({
            "runs": self.sides.iter().map(Side::to_json).collect::<Vec<_>>(),
            "differences": differences.collect::<Vec<_>>(),
            "same_samples": same_samples,
            "samples_unknown": self.unclear,
        })
    }
}

impl Side {
    fn open(folder: &Path, label: String) -> Result<Self> {
        let run = RunFolder::open(folder)?;
        let config = run.config(&[])?;
        let plan = FoldPlan::begun_in(&run, &config)?;
        let mut settings: BTreeMap<&'static str, String> =
            config.settings().map(|(key, text)| (key.path, text.to_owned())).collect();
        // The folds of a run have the loss that `auto` stands for.
        if plan.is_some() {
            let fold = run.fold(0).config(&[])?;
            settings.insert(training::LOSS.key.path, fold.text(&training::LOSS.key).to_owned());
        }
        let (evaluations, folds) = match plan {
            Some(plan) => {
                let summary = read_json(&plan.file(&run));
                let done = summary["folds"].as_array().cloned().unwrap_or_default();
                let steps = done.iter().filter_map(|fold| fold["steps"].as_u64()).sum();
                let evaluations = done.iter().map(|fold| fold["evaluation"].clone()).collect();
                (evaluations, Some(FoldsDone { folds: plan.folds, steps }))
            }
            None => (vec![read_json(&run.evaluation_file())], None),
        };
        Ok(Side {
            folder: folder.to_owned(),
            label,
            samples: 'A',
            settings,
            plan: run.saved_plan(),
            metrics: run.metrics()?,
            evaluations,
            folds,
        })
    }

    fn steps_done(&self) -> u64 {
        if let Some(folds) = self.folds {
            return folds.steps;
        }
        self.metrics.iter().rev().find_map(|metric| metric["step"].as_u64()).unwrap_or(0)
    }

    /// Step and loss of the lowest validation loss.
    fn best_validation(&self) -> Option<(u64, f64)> {
        let validations = points(&self.metrics, "validation", "loss").into_iter();
        validations.min_by(|a, b| a.1.total_cmp(&b.1)).map(|(step, loss)| (step as u64, loss))
    }

    fn times(&self) -> Times {
        times(&self.metrics)
    }

    /// Samples over the time of steps alone.
    fn samples_per_s(&self) -> Option<f64> {
        Some(self.times().samples_per_s()).filter(|rate| rate.is_finite())
    }

    /// The largest of a number that lines of the log hold.
    fn largest(&self, key: &str) -> Option<usize> {
        self.metrics.iter().filter_map(|metric| metric[key].as_u64()).max().map(|size| size as usize)
    }

    fn to_json(&self) -> Value {
        let seconds: serde_json::Map<String, Value> = PHASES
            .iter()
            .zip(self.times().phases)
            .map(|(phase, duration_s)| ((*phase).to_owned(), json!(duration_s)))
            .collect();
        json!({
            "run": shown(&self.folder),
            "label": self.label,
            "samples": self.samples,
            "data": self.plan["data"]["path"],
            "steps": self.steps_done(),
            "folds": self.folds.map(|folds| folds.folds),
            "steps_planned": self.plan["steps"],
            "parameters": self.plan["parameters"],
            "best_validation": self.best_validation().map(|(step, loss)| json!({ "step": step, "loss": loss })),
            "evaluation": Errors::from_side(self).map(|errors| errors.to_json()),
            "samples_per_s": self.samples_per_s(),
            "seconds": seconds,
            "planned_bytes": self.plan["memory"]["total_bytes"],
            "allocated_bytes_peak": self.largest("allocated_bytes_peak"),
            "reserved_bytes_peak": self.largest("reserved_bytes_peak"),
        })
    }
}

/// Letter of samples by their place among all.
fn letter(place: usize) -> char {
    (b'A' + place.min(25) as u8) as char
}

/// Content of a JSON file; null if it is absent or no JSON.
fn read_json(file: &Path) -> Value {
    serde_json::from_str(&fs::read_to_string(file).unwrap_or_default()).unwrap_or_default()
}

/// Which samples some runs have in common.
fn samples_sentence(samples: char, sides: &[(usize, &Side)]) -> String {
    let plan = &sides[0].1.plan;
    let names: Vec<&str> = sides.iter().map(|(_, side)| side.label.as_str()).collect();
    let count = |key: &str| plan["split"][key].as_u64().map_or("?".to_owned(), grouped);
    let mut trained: Vec<Option<u64>> = sides.iter().map(|(_, side)| side.plan["split"]["train"].as_u64()).collect();
    trained.sort_unstable();
    trained.dedup();
    let trained: Vec<String> = trained.into_iter().map(|count| count.map_or("?".to_owned(), grouped)).collect();
    let validated = plan["validation_samples"].as_u64().filter(|&taken| plan["split"]["validation"] != taken);
    let validated = validated.map_or(String::new(), |taken| format!(" ({} of them taken)", grouped(taken)));
    let folds = sides[0].1.folds.map_or(String::new(), |folds| format!(" in the last of {} folds", folds.folds));
    format!(
        "{samples}: {}: {}, {} to train on, {} to validate{validated}, {} to test{folds}.",
        names.join(", "),
        plan["data"]["path"].as_str().unwrap_or("unknown data"),
        trained.join(" or "),
        count("validation"),
        count("test"),
    )
}

/// Tests of two runs on one file, of which one takes samples by themselves and the other those of
/// one time together, as a model with a graph does. `None` for other runs, and where their tests
/// may be the same and may not: before both were tested, and of estimates and folds.
fn units_sentence(one: &Side, other: &Side) -> Option<String> {
    let [data, other_data] = [one, other].map(|side| &side.plan["data"]);
    let file = &data["files"][0]["fingerprint"];
    if data["unit"] == other_data["unit"] || file.is_null() || *file != other_data["files"][0]["fingerprint"] {
        return None;
    }
    let by_unit = |side: &Side| Some(format!("{} by {}s", side.samples, side.plan["data"]["unit"].as_str()?));
    let units = format!("{} and {}: one file, and", by_unit(one)?, by_unit(other)?);
    let begin = |side: &Side| side.plan["split"]["test_start_ns"].as_i64().filter(|_| side.folds.is_none());
    let (own_begin, other_begin) = (begin(one)?, begin(other)?);
    let tested = |side: &Side| {
        let errors = Errors::from_side(side).filter(|errors| errors.split() == "test")?;
        errors.are_of_whole_parts().then(|| errors.samples())
    };
    let (own, others) = (tested(one), tested(other));
    if own_begin == other_begin && own? == others? {
        return Some(format!(
            "{units} the same test, {} samples from the same time on: their errors compare too, and their losses do not.",
            grouped(own?)
        ));
    }
    let test = |side: &Side, samples: Option<u64>, begin: i64| {
        let samples = samples.map_or(String::new(), |samples| format!(" of {} samples", grouped(samples)));
        format!("that of {}{samples} from {} on", side.samples, utc(begin))
    };
    Some(format!("{units} not the same test: {}, {}.", test(one, own, own_begin), test(other, others, other_begin)))
}

/// Which of several runs with the same samples and the same loss has the lowest validation loss.
fn ahead(samples: char, sides: &[(usize, &Side)]) -> Option<String> {
    // A loss, and the setting that decides it.
    let decided_by: [(Option<&str>, &str); 8] = [
        (None, "training.loss"),
        (None, "training.target_scaling"),
        (None, "training.tasks"),
        (Some("huber"), "training.huber_delta"),
        (Some("quantile"), "training.quantile"),
        (Some("cross_entropy"), "training.classes"),
        (Some("cross_entropy"), "training.thresholds"),
        (Some("rank_listwise"), "training.rank_temperature"),
    ];
    let has_loss = |loss: Option<&str>| {
        let own = |(_, side): &(usize, &Side)| side.settings.get("training.loss").map(String::as_str) == loss;
        loss.is_none() || sides.iter().any(own)
    };
    for (_, key) in decided_by.into_iter().filter(|(loss, _)| has_loss(*loss)) {
        let value = |side: &Side| side.settings.get(key).cloned();
        if sides.iter().any(|(_, side)| value(side) != value(sides[0].1)) {
            return Some(format!(
                "{samples}: their losses are not the same ({key}): validation losses do not compare."
            ));
        }
    }
    let mut validated: Vec<(&Side, (u64, f64))> =
        sides.iter().filter_map(|(_, side)| Some((*side, side.best_validation()?))).collect();
    validated.sort_by(|a, b| a.1.1.total_cmp(&b.1.1));
    let [(best, (step, loss)), (next, (next_step, next_loss)), ..] = validated[..] else { return None };
    let (best, next) = (&best.label, &next.label);
    let loss_text = significant(loss, 4);
    if next_loss == loss {
        return Some(format!(
            "{samples}: {best} and {next} have the same lowest validation loss, {loss_text}, {best} at step {} and {next} at step {}.",
            grouped(step),
            grouped(next_step)
        ));
    }
    Some(format!(
        "{samples}: {best} has the lowest validation loss, {loss_text} at step {}; that of {next}, the next one, is {} higher.",
        grouped(step),
        percent(next_loss / loss - 1.0)
    ))
}

/// The paths without the folders that all of them begin with.
fn labels(folders: &[PathBuf]) -> Vec<String> {
    let parts: Vec<Vec<_>> = folders.iter().map(|folder| folder.components().collect()).collect();
    let shortest = parts.iter().map(Vec::len).min().unwrap_or(0);
    let is_common = |k: usize| parts.iter().all(|part| part[k] == parts[0][k]);
    // The last part of a path stays, be it the same in all.
    let common = (0..shortest.saturating_sub(1)).take_while(|&k| is_common(k)).count();
    parts.iter().map(|part| part[common..].iter().collect::<PathBuf>().display().to_string()).collect()
}

#[cfg(test)]
mod tests;
