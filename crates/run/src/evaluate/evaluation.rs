//! A model's errors by horizon, beside those of baselines.

mod information;
mod instruments;
mod text;

use std::borrow::Cow;
use std::collections::BTreeMap;

use megabatch_nn::loss::Loss;
use megabatch_trainer as trainer;
use megabatch_trainer::{
    ClassErrors, DrawnSamples, GraphCorrelations, InstrumentEvaluation, Metrics, SampleRanges, Split, StandardErrors,
    TaskEvaluation,
};
use serde::Serialize;

use crate::adapters::data::Data;
use crate::text::number::{grouped, plural, significant};
use crate::unit_names::{TargetKind, UnitNames, target_names};

pub(crate) use instruments::{BASELINES_ARE_OF_ALL, InstrumentColumn};

/// A part of the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Part {
    /// Samples that the model was trained on.
    Train,
    /// Samples that chose the best checkpoint.
    Validation,
    /// Samples that influenced no choice.
    Test,
    /// Every sample of the file, including purged ones.
    All,
}

impl Part {
    /// The part that says most about a model: the test split, or validation where it is empty, or
    /// all.
    pub(crate) fn unseen(split: &Split) -> Self {
        match (split.test.is_empty(), split.validation.is_empty()) {
            (false, _) => Part::Test,
            (true, false) => Part::Validation,
            (true, true) => Part::All,
        }
    }

    /// The samples of this part of a file that has `len`.
    pub(crate) fn indices(self, split: &Split, len: usize) -> Cow<'_, SampleRanges> {
        match self {
            Part::Train => Cow::Borrowed(&split.train),
            Part::Validation => Cow::Borrowed(&split.validation),
            Part::Test => Cow::Borrowed(&split.test),
            Part::All => Cow::Owned(SampleRanges::from(0..len)),
        }
    }

    /// The part's name in a sentence.
    pub fn name(self) -> &'static str {
        match self {
            Part::Train => "train",
            Part::Validation => "validation",
            Part::Test => "test",
            Part::All => "all",
        }
    }
}

/// Errors of the model and of the baselines on the same samples.
#[derive(Clone, Debug, Serialize)]
pub struct Evaluation {
    /// Which samples were predicted.
    pub split: Part,
    /// Number of them.
    pub samples: usize,
    /// Samples of the part, or graphs, if only some of them were predicted, evenly spaced.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drawn_from: Option<usize>,
    /// How many they are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drawn: Option<usize>,
    /// Standard errors of the estimates, for a model of one loss.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub standard_errors: Option<StandardErrors>,
    /// The checkpoint's step.
    pub step: u64,
    /// True for a model of ranks. Its outputs have no unit, and their errors mean nothing.
    #[serde(rename = "ranks_only", skip_serializing_if = "std::ops::Not::not")]
    pub(crate) ranks: bool,
    /// True for instruments of a series that stays in its file, which have no correlations.
    #[serde(skip)]
    pub(crate) is_streamed_universe: bool,
    /// Names of samples and targets, for tables and sentences.
    #[serde(skip)]
    pub(crate) unit_names: UnitNames,
    /// Names of the targets in tables; empty where they have numbers alone.
    #[serde(skip)]
    pub(crate) target_names: Vec<String>,
    /// The model's metrics; in JSON they stand at the top level.
    #[serde(flatten)]
    pub model: Metrics,
    /// Metrics of each baseline, fitted on the training split of the data.
    pub baselines: BTreeMap<&'static str, Metrics>,
    /// Each task by itself, for a model of several. The lists above have their horizons too, in the
    /// order of the targets.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tasks: Vec<TaskEvaluation>,
    /// Errors on each instrument's samples, by name, if the data have several. The baselines are
    /// fitted on all.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub instruments: BTreeMap<String, InstrumentEvaluation>,
    /// Rank correlations of each graph's nodes, for a model over graphs that predicts numbers for
    /// their nodes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub graphs: Vec<GraphCorrelations>,
}

impl Evaluation {
    /// The errors of the checkpoint of `step`, trained with `loss`, on `split` of `data`. Targets
    /// that are no price moves have neither directions nor the baseline of no change.
    pub(crate) fn new(split: Part, step: u64, loss: Loss, errors: trainer::Evaluation, data: &Data) -> Self {
        let trainer::Evaluation { samples, mut metrics, mut baselines, standard_errors, .. } = errors;
        let trainer::Evaluation { tasks, instruments, graphs, .. } = errors;
        let (unit_names, times) = (UnitNames::for_data(data).with(loss), data.graph_times());
        if unit_names.targets == TargetKind::Quantities {
            baselines.remove("no_change");
            let all = baselines.values_mut().chain([&mut metrics]);
            all.for_each(|metrics| metrics.direction_accuracy.fill(None));
        }
        let with_time = |correlations: GraphCorrelations| GraphCorrelations {
            time_ns: correlations.time_ns.or_else(|| times.map(|times| times[correlations.graph])),
            ..correlations
        };
        let graphs = graphs.into_iter().map(with_time).collect();
        let ranks = loss.ranks();
        // Several tasks have no correlations anywhere.
        let is_streamed_universe =
            tasks.is_empty() && matches!(data, Data::Samples(samples) if samples.is_streamed_universe());
        Evaluation {
            split,
            samples,
            drawn_from: None,
            drawn: None,
            standard_errors,
            step,
            ranks,
            is_streamed_universe,
            unit_names,
            target_names: target_names(data),
            model: metrics,
            baselines,
            tasks,
            instruments,
            graphs,
        }
    }

    /// The errors on the samples, or graphs, that were drawn from the part.
    pub(crate) fn with_draw(self, drawn: &DrawnSamples<'_>) -> Self {
        let (all, taken) = (drawn.part_len(), drawn.samples.len());
        let is_estimate = drawn.is_estimate();
        Evaluation { drawn_from: is_estimate.then_some(all), drawn: is_estimate.then_some(taken), ..self }
    }

    /// Number of samples, or graphs, out of their part, if not all were taken: `20,000 of 55,823`.
    pub(crate) fn draw(&self) -> Option<String> {
        Some(format!("{} of {}", grouped(self.drawn? as u64), grouped(self.drawn_from? as u64)))
    }

    /// The part, such as `test`, with the number of samples if not all were taken.
    pub(crate) fn part(&self) -> String {
        let drawn = self.draw().map_or(String::new(), |draw| {
            format!(", an estimate from {draw} {}s, evenly spaced", self.unit_names.unit)
        });
        format!("{}{drawn}", self.split.name())
    }

    /// A sentence after a blank if the errors are estimates, else empty.
    fn estimate_sentence(&self) -> String {
        let has_errors = self.standard_errors.is_some() || self.tasks.iter().any(|task| task.standard_errors.is_some());
        let plus_minus = if has_errors && !self.ranks { "; ± is one standard error" } else { "" };
        let sentence = |draw| format!(" An estimate from {draw} {}s{plus_minus}.", self.unit_names.unit);
        self.draw().map_or(String::new(), sentence)
    }

    /// ` ± 0.021` of an estimate of the RMSE.
    pub(crate) fn rmse_error(&self) -> String {
        let error = self.standard_errors.as_ref().map(|errors| errors.rmse);
        error.map_or(String::new(), |error| format!(" ± {}", significant(error, 2)))
    }

    /// ` ± 0.21` of an estimate of the accuracy in percent.
    pub(crate) fn accuracy_error(&self) -> String {
        let error = self.standard_errors.as_ref().and_then(|errors| errors.accuracy);
        error.map_or(String::new(), |error| format!(" ± {}", significant(100.0 * error, 2)))
    }

    /// Each task with its name, as an evaluation of its own; none for a model of one loss.
    pub(crate) fn by_task(&self) -> impl Iterator<Item = (String, Evaluation)> {
        self.tasks.iter().map(|task| {
            let TaskEvaluation { targets: [start, end], objective, weight, .. } = task;
            let (weight, loss) = (significant(*weight, 3), significant(task.loss, 4));
            let name = format!("targets {start}..{end}, {objective}, weight {weight}, loss {loss}");
            let (model, baselines) = (task.metrics.clone(), task.baselines.clone());
            let (tasks, instruments, graphs) = (Vec::new(), BTreeMap::new(), Vec::new());
            let standard_errors = task.standard_errors.clone();
            let target_names = self.target_names.get(*start..*end).unwrap_or_default().to_vec();
            (name, Evaluation { target_names, model, baselines, standard_errors, tasks, instruments, graphs, ..*self })
        })
    }

    /// The target at place `k` in tables of the report: its `number`, which charts have too, and
    /// its name if it has one.
    pub(crate) fn target_cell(&self, k: usize, number: usize) -> String {
        match self.target_names.get(k).filter(|_| self.target_names.len() == self.model.rmse.len()) {
            Some(name) => format!("{number} {name}"),
            None => number.to_string(),
        }
    }

    /// The model, then the baselines by name.
    pub(crate) fn contenders(&self) -> impl Iterator<Item = (&'static str, &Metrics)> {
        contenders(&self.model, &self.baselines)
    }

    /// One sentence, or one a task: how the model stands against the best baseline, by RMSE
    /// averaged over the horizons; of a classification, its accuracy; and of cross-sections, how
    /// well it ranks them, which is all that is said of a model of ranks: its outputs have no unit.
    pub fn verdict(&self) -> String {
        self.verdict_on_samples() + &self.estimate_sentence()
    }

    /// The verdict, without the note on estimates.
    fn verdict_on_samples(&self) -> String {
        if !self.tasks.is_empty() {
            let verdict_line = |(name, task): (String, Evaluation)| format!("{name}: {}", task.verdict_on_samples());
            return self.by_task().map(verdict_line).collect::<Vec<_>>().join("\n");
        }
        if let Some(accuracy) = self.model.accuracy {
            return self.accuracy_verdict(accuracy);
        }
        if let Some(classes) = &self.model.classes {
            return self.class_verdict(classes);
        }
        if self.ranks {
            return self.information_verdict();
        }
        let information = self.information_verdict();
        let blank = if information.is_empty() { "" } else { " " };
        self.error_verdict() + blank + &information
    }

    /// The accuracy of a model that predicts one class a row, beside that of the baselines.
    fn accuracy_verdict(&self, accuracy: f64) -> String {
        let baselines = self.baselines.iter().filter_map(|(name, metrics)| Some((name, metrics.accuracy?)));
        let baselines_text: String = baselines
            .map(|(name, share)| format!("; {}: {} %", name.replace('_', " "), significant(100.0 * share, 3)))
            .collect();
        let (accuracy, error) = (significant(100.0 * accuracy, 3), self.accuracy_error());
        format!("Accuracy {accuracy}{error} % of {}{baselines_text}.", plural(self.samples, self.unit_names.row))
    }

    fn class_verdict(&self, classes: &ClassErrors) -> String {
        let facts = |classes: &ClassErrors, error: &str| {
            let percent = |shares: &[f64]| significant(100.0 * mean(shares), 3);
            let (accuracy, balanced) = (percent(&classes.accuracy), percent(&classes.balanced_accuracy));
            let cross_entropy = significant(mean(&classes.cross_entropy), 3);
            format!("{accuracy}{error} % (balanced {balanced} %), cross entropy {cross_entropy}")
        };
        let baselines = self.baselines.iter().filter_map(|(name, metrics)| Some((name, metrics.classes.as_ref()?)));
        let baselines_text: String =
            baselines.map(|(name, classes)| format!("; {}: {}", name.replace('_', " "), facts(classes, ""))).collect();
        let own = facts(classes, &self.accuracy_error());
        format!("Accuracy {own}, averaged over the {}s{baselines_text}.", self.unit_names.target)
    }

    fn error_verdict(&self) -> String {
        let model = mean(&self.model.rmse);
        let each = self.baselines.iter().map(|(name, metrics)| (name, mean(&metrics.rmse)));
        let best = each.min_by(|a, b| a.1.total_cmp(&b.1));
        let (rmse, targets) = (format!("RMSE {}{}", significant(model, 3), self.rmse_error()), self.unit_names.target);
        let Some((name, best)) = best else {
            return format!("{rmse}, averaged over the {targets}s.");
        };
        let share = 100.0 * (model / best - 1.0);
        let error = self.standard_errors.as_ref().and_then(|errors| errors.rmse_ratio.get(name));
        let error = error.map_or(String::new(), |error| format!(" ± {}", significant(100.0 * error, 2)));
        let stand = match share {
            share if share <= -0.05 => format!("{}{error} % better than", significant(-share, 3)),
            share if share < 0.05 => "level with".to_owned(),
            share if share >= 1000.0 => format!("{} times as large as", significant(model / best, 3)),
            share => format!("{}{error} % worse than", significant(share, 3)),
        };
        let (name, best) = (name.replace('_', " "), significant(best, 3));
        format!("{rmse}, averaged over the {targets}s: {stand} the best baseline ({name}, {best}).")
            + &self.deciding_instruments_sentence()
    }
}

fn contenders<'a>(
    model: &'a Metrics,
    baselines: &'a BTreeMap<&'static str, Metrics>,
) -> impl Iterator<Item = (&'static str, &'a Metrics)> {
    std::iter::once(("model", model)).chain(baselines.iter().map(|(name, metrics)| (*name, metrics)))
}

/// Mean over the values that are numbers.
pub(crate) fn mean(values: &[f64]) -> f64 {
    let known = || values.iter().filter(|value| !value.is_nan());
    known().sum::<f64>() / known().count() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Evaluation {
        /// A synthetic evaluation with one horizon: the first contender is the model.
        pub(crate) fn with_one_horizon<const N: usize>(rmse: [(&'static str, f64); N]) -> Self {
            let metrics = |rmse| Metrics {
                rmse: vec![rmse],
                mae: vec![rmse],
                direction_accuracy: vec![Some(0.5)],
                ..Metrics::default()
            };
            let baselines = rmse[1..].iter().map(|&(name, rmse)| (name, metrics(rmse))).collect();
            let model = metrics(rmse[0].1);
            let (tasks, instruments, graphs) = (Vec::new(), BTreeMap::new(), Vec::new());
            let (split, ranks, unit_names) = (Part::Test, false, UnitNames::SAMPLES);
            Evaluation {
                split,
                samples: 10,
                drawn_from: None,
                drawn: None,
                standard_errors: None,
                step: 3,
                ranks,
                is_streamed_universe: false,
                unit_names,
                target_names: Vec::new(),
                model,
                baselines,
                tasks,
                instruments,
                graphs,
            }
        }

        /// The same with its samples divided between EURUSD and USDJPY, of which the second has
        /// twice the errors.
        pub(crate) fn with_two_instruments(mut self) -> Self {
            for (name, samples, factor) in [("EURUSD", 6, 1.0), ("USDJPY", 4, 2.0)] {
                let times = |metrics: &Metrics| Metrics {
                    rmse: metrics.rmse.iter().map(|rmse| rmse * factor).collect(),
                    ..metrics.clone()
                };
                let baselines = self.baselines.iter().map(|(name, metrics)| (*name, times(metrics))).collect();
                let errors = InstrumentEvaluation { samples, metrics: times(&self.model), baselines };
                self.instruments.insert(name.to_owned(), errors);
            }
            self
        }
    }

    #[test]
    fn the_verdict_names_the_best_baseline_and_hides_nothing() {
        let verdict = |model, other| {
            Evaluation::with_one_horizon([("model", model), ("mean", other), ("no_change", 9.0)]).verdict()
        };
        assert!(verdict(1.0, 2.0).contains("50.0 % better than the best baseline (mean, 2.00)"));
        assert!(verdict(2.0, 1.0).contains("100 % worse than the best baseline (mean"));
        assert!(verdict(1.0, 1.0002).contains("level with the best baseline (mean"));
    }

    /// A model of 4,110 molecules was said to have an "Accuracy 80.05 % of 411", beside nothing.
    #[test]
    fn accuracy_stands_beside_that_of_the_most_frequent_class() {
        let mut evaluation = Evaluation::with_one_horizon([("model", 0.2), ("most_frequent", 0.3)]);
        evaluation.unit_names = UnitNames { row: "graph", ..UnitNames::SAMPLES.with(Loss::CrossEntropy) };
        evaluation.model.accuracy = Some(0.8);
        evaluation.baselines.get_mut("most_frequent").unwrap().accuracy = Some(0.5);
        assert_eq!(evaluation.verdict(), "Accuracy 80.0 % of 10 graphs; most frequent: 50.0 %.");
        let text = evaluation.to_text();
        assert!(text.starts_with("10 graphs (test), checkpoint of step 3\n"), "{text}");
        assert!(text.contains("model  most frequent") && !text.contains("horizon"), "{text}");
    }

    #[test]
    fn targets_with_names_are_named_in_tables() {
        let mut evaluation = Evaluation::with_one_horizon([("model", 0.2), ("mean", 0.3)]);
        evaluation.unit_names = UnitNames { target: "target", ..UnitNames::SAMPLES };
        assert!(evaluation.to_text().contains("\n       1  "), "{}", evaluation.to_text());
        evaluation.target_names = vec!["forward_3".to_owned()];
        let text = evaluation.to_text();
        assert!(text.contains("\n   target  ") && text.contains("\nforward_3  "), "{text}");
        // Names of other targets are none of these.
        evaluation.target_names.push("forward_5".to_owned());
        assert!(evaluation.to_text().contains("\n       1  "), "{}", evaluation.to_text());
    }

    #[test]
    fn ranks_are_not_held_to_errors() {
        let evaluation = Evaluation { ranks: true, ..Evaluation::with_one_horizon([("model", 9.0), ("mean", 1.0)]) };
        assert!(!evaluation.verdict().contains("RMSE"), "{}", evaluation.verdict());
    }

    #[test]
    fn json_has_the_metrics_by_name_and_the_baselines_below() {
        let json = serde_json::to_value(Evaluation::with_one_horizon([("model", 1.0), ("mean", 2.0)])).unwrap();
        assert_eq!(json["rmse"][0], 1.0);
        assert_eq!(json["baselines"]["mean"]["direction_accuracy"][0], 0.5);
    }

    /// Fields of an instrument's row in the text of an evaluation.
    fn instrument_row(evaluation: &Evaluation, name: &str) -> Vec<String> {
        let text = evaluation.to_text();
        let line = text.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("{name}: {text}"));
        line.split_whitespace().map(str::to_owned).collect()
    }

    /// `eval` of a classifier over two symbols printed the RMSE of its probabilities by symbol.
    #[test]
    fn classes_by_instrument_have_accuracies_and_ranks_have_nothing() {
        let mut classes =
            Evaluation::with_one_horizon([("model", 777.0), ("most_frequent", 777.0)]).with_two_instruments();
        let errors = |accuracy: f64| {
            let (accuracy, balanced_accuracy, cross_entropy) = (vec![accuracy], vec![accuracy / 2.0], vec![0.75]);
            Some(Box::new(ClassErrors { accuracy, balanced_accuracy, cross_entropy, confusion: Vec::new() }))
        };
        classes.model.classes = errors(0.5);
        for own in classes.instruments.values_mut() {
            own.metrics.classes = errors(0.25);
            own.baselines.get_mut("most_frequent").unwrap().classes = errors(0.125);
        }
        let expected = ["USDJPY", "4", "0.2500", "0.1250", "0.1250", "0.06250", "0.7500", "0.7500"];
        assert_eq!(instrument_row(&classes, "USDJPY"), expected);
        assert!(!classes.to_text().contains("777"), "{}", classes.to_text());
        let ranks =
            Evaluation { ranks: true, ..Evaluation::with_one_horizon([("model", 777.0)]).with_two_instruments() };
        assert!(!ranks.to_text().contains("by instrument"), "{}", ranks.to_text());
        assert_eq!(serde_json::to_value(&ranks).unwrap()["ranks_only"], true);
    }

    /// EURUSD, XAUUSD and BTCUSD in pips: the verdict was that on BTCUSD.
    #[test]
    fn instruments_that_decide_the_error_over_all_are_named() {
        let mut evaluation = Evaluation::with_one_horizon([("model", 1.0), ("mean", 2.0)]).with_two_instruments();
        assert!(!evaluation.verdict().contains("squared errors"), "{}", evaluation.verdict());
        evaluation.instruments.get_mut("USDJPY").unwrap().metrics.rmse = vec![100.0];
        let expected = " 100 % of the squared errors are of USDJPY: they decide the RMSE over all 2 instruments, each of which has a \
                        row of its own.";
        assert!(evaluation.verdict().ends_with(expected), "{}", evaluation.verdict());
        // Of eight, two.
        for (k, rmse) in [1.0, 1.0, 1.0, 90.0, 1.0, 1.0].into_iter().enumerate() {
            let mut own = evaluation.instruments["EURUSD"].clone();
            own.metrics.rmse = vec![rmse];
            evaluation.instruments.insert(format!("S{k}"), own);
        }
        assert!(
            evaluation.verdict().contains("errors are of S3, USDJPY: they decide the RMSE over all 8"),
            "{}",
            evaluation.verdict()
        );
        evaluation.instruments.get_mut("S0").unwrap().metrics.rmse = vec![80.0];
        assert!(!evaluation.verdict().contains("squared errors"), "{}", evaluation.verdict());
    }

    #[test]
    fn several_instruments_have_a_row_each_and_one_has_none() {
        let one = Evaluation::with_one_horizon([("model", 1.0), ("mean", 2.0)]);
        assert!(!one.to_text().contains("by instrument"));
        assert_eq!(serde_json::to_value(&one).unwrap().get("instruments"), None);

        let two = one.with_two_instruments();
        assert_eq!(instrument_row(&two, "EURUSD"), ["EURUSD", "6", "1.000", "2.000", "1.000", "0.5000"]);
        assert_eq!(instrument_row(&two, "USDJPY"), ["USDJPY", "4", "2.000", "4.000", "1.000", "0.5000"]);
        assert!(two.to_text().contains("fitted on all instruments together"), "{}", two.to_text());
        let json = serde_json::to_value(&two).unwrap();
        assert_eq!(json["instruments"]["USDJPY"]["samples"], 4);
        assert_eq!(json["instruments"]["USDJPY"]["baselines"]["mean"]["rmse"][0], 4.0);
    }
}
