//! Runs of several folds, and the summary of their errors.

mod columns;

use std::path::{Path, PathBuf};

use megabatch_trainer::t_statistic;
use serde::Serialize;
use serde_json::{Value, json};

use crate::adapters::fold_plan::{FoldKind, FoldPlan};
use crate::config::Config;
use crate::error::{Error, Result};
use crate::evaluate::{Evaluation, GraphCorrelations, Part};
use crate::plan::SplitPlan;
use crate::run_folder::RunFolder;
use crate::text::utc;

pub(crate) use columns::{FoldColumn, columns};

impl FoldPlan {
    /// The folds of the run in `folder`; `None` for a run of one model, and where no fold has
    /// begun.
    ///
    /// # Errors
    /// As [`FoldPlan::from_config`].
    pub(crate) fn from_run(folder: &RunFolder) -> Result<Option<Self>> {
        FoldPlan::begun_in(folder, &folder.config(&[])?)
    }

    /// As [`FoldPlan::from_run`], of the run's `config`.
    ///
    /// # Errors
    /// As [`FoldPlan::from_config`].
    pub(crate) fn begun_in(folder: &RunFolder, config: &Config) -> Result<Option<Self>> {
        Ok(FoldPlan::from_config(config)?.filter(|_| folder.fold(0).has_begun()))
    }

    /// The folder of each fold of the run in `folder`.
    ///
    /// # Errors
    /// A usage failure that names the first fold that has not been trained.
    pub(crate) fn trained_folders(self, folder: &RunFolder) -> Result<Vec<RunFolder>> {
        let trained = |fold: usize| {
            let own = folder.fold(fold);
            if own.has_begun() {
                return Ok(own);
            }
            let (root, number, folds) = (folder.root().display(), fold + 1, self.folds);
            Err(Error::usage(format!(
                "{root}: fold {number} of {folds} has not been trained; `megabatch train --out {root} --resume` goes on with it"
            )))
        };
        (0..self.folds).map(trained).collect()
    }

    /// The file of the errors of all folds of the run in `folder`.
    pub(crate) fn file(self, folder: &RunFolder) -> PathBuf {
        match self.kind {
            FoldKind::WalkForward => folder.walk_forward_file(),
            FoldKind::CrossValidation => folder.cross_validation_file(),
        }
    }
}

/// One fold that is done.
#[derive(Serialize)]
pub(crate) struct Fold {
    /// Its number, from 1.
    pub(crate) fold: usize,
    pub(crate) run: PathBuf,
    pub(crate) steps: u64,
    pub(crate) split: SplitPlan,
    pub(crate) evaluation: Evaluation,
}

impl Fold {
    /// Number of evaluated samples, or graphs, and their total if not all were taken.
    pub(crate) fn judged(&self) -> String {
        let own = match self.evaluation.split {
            Part::Train => self.split.train,
            Part::Validation => self.split.validation,
            Part::Test => self.split.test,
            Part::All => self.evaluation.samples,
        };
        self.evaluation.draw().unwrap_or_else(|| own.to_string())
    }
}

/// True if all folds of a run are done.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Progress {
    Finished,
    Stopped,
}

/// The folds of a run that are done.
pub(crate) struct Folds<'a> {
    pub(crate) plan: FoldPlan,
    /// The run's folder.
    pub(crate) run: &'a Path,
    pub(crate) done: &'a [Fold],
}

/// Mean and sample standard deviation over folds; `None` for the deviation of a single fold.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Spread {
    pub(crate) mean: f64,
    pub(crate) deviation: Option<f64>,
}

impl Spread {
    pub(crate) fn from_values(numbers: &[f64]) -> Self {
        let count = numbers.len() as f64;
        let mean = numbers.iter().sum::<f64>() / count;
        let squares = numbers.iter().map(|x| (x - mean).powi(2)).sum::<f64>();
        Spread { mean, deviation: (numbers.len() > 1).then(|| (squares / (count - 1.0)).sqrt()) }
    }
}

/// A correlation over the days of all tests together.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct OverDays {
    pub(crate) ic: Option<f64>,
    pub(crate) ic_t: Option<f64>,
    pub(crate) rank_ic: Option<f64>,
    pub(crate) rank_ic_t: Option<f64>,
    /// Lag of the t-statistics.
    pub(crate) lag: usize,
}

impl Folds<'_> {
    /// The folds, and the mean and standard deviation over folds of each number.
    pub(crate) fn to_json(&self, progress: Progress) -> Value {
        let evaluations: Vec<Value> = self.done.iter().map(|fold| json!(fold.evaluation)).collect();
        let spread = |value: &dyn Fn(&Value) -> Value| {
            let values: Vec<Value> = evaluations.iter().map(value).collect();
            over_folds(&values.iter().collect::<Vec<_>>())
        };
        let metrics = |evaluation: &Value| {
            let mut metrics = evaluation.as_object().cloned().unwrap_or_default();
            [
                "split",
                "samples",
                "drawn",
                "drawn_from",
                "standard_errors",
                "step",
                "ranks_only",
                "baselines",
                "instruments",
                "graphs",
            ]
            .iter()
            .for_each(|key| drop(metrics.remove(*key)));
            Value::Object(metrics)
        };
        let horizons = self.horizons();
        let t = |t_value: fn(&Evaluation, usize) -> Option<f64>| -> Vec<Option<f64>> {
            (0..horizons).map(|k| self.t_over_folds(|evaluation| t_value(evaluation, k))).collect()
        };
        let mut json = json!({
            "run": self.run,
            "finished": progress == Progress::Finished,
            "kind": self.plan.kind,
            "folds": self.done,
            "model": spread(&metrics),
            "baselines": spread(&|evaluation| evaluation["baselines"].clone()),
        });
        if horizons > 0 {
            json["t_over_folds"] = json!({ "ic": t(columns::ic), "rank_ic": t(columns::rank_ic) });
        }
        if let Some(over_days) = self.over_days() {
            json["over_days"] = json!(over_days);
        }
        json
    }

    /// The table, and a sentence on all folds.
    pub(crate) fn to_text(&self) -> String {
        let Some(first) = self.done.first() else { return String::new() };
        let has_times = first.split.test_start_ns.is_some();
        let mut text = format!("{:>9}", "fold");
        if has_times {
            text.push_str(&format!("  {:<16}", "test begins"));
        }
        let judged_width = self.done.iter().map(|fold| fold.judged().len()).max().unwrap_or(0).max(8);
        text.push_str(&format!("  {:>8}  {:>judged_width$}", "train", first.evaluation.split.name()));
        let columns = columns(&first.evaluation);
        columns.iter().for_each(|column| text.push_str(&format!("  {:>w$}", column.name, w = column.width())));
        text.push('\n');
        for fold in self.done {
            text.push_str(&format!("{:>9}", fold.fold));
            if has_times {
                let begins = fold.split.test_start_ns.map_or("-".to_owned(), |time| utc(time).replace(" UTC", ""));
                text.push_str(&format!("  {begins:<16}"));
            }
            text.push_str(&format!("  {:>8}  {:>judged_width$}", fold.split.train, fold.judged()));
            for column in &columns {
                text.push_str(&format!("  {:>w$}", column.cell(column.value(&fold.evaluation)), w = column.width()));
            }
            text.push('\n');
        }
        for (name, values) in self.summary_rows(&columns) {
            let blank = if has_times { 16 + 2 } else { 0 } + 2 + 8 + 2 + judged_width;
            text.push_str(&format!("{name:>9}{:blank$}", ""));
            for (column, value) in columns.iter().zip(values) {
                text.push_str(&format!("  {:>w$}", value, w = column.width()));
            }
            text.push('\n');
        }
        text + "\n" + &self.verdict() + "\n"
    }

    /// Rows below the folds: mean, deviation and, of the model's correlations, the t-statistic over
    /// the days of all tests. One over a few folds would be large by chance.
    pub(crate) fn summary_rows(&self, columns: &[FoldColumn]) -> Vec<(&'static str, Vec<String>)> {
        let spreads: Vec<Option<Spread>> = columns.iter().map(|column| self.spread(column)).collect();
        let cells = |number: &dyn Fn(&Spread) -> Option<f64>| -> Vec<String> {
            columns.iter().zip(&spreads).map(|(column, spread)| column.cell(spread.as_ref().and_then(number))).collect()
        };
        let mut rows =
            vec![("mean", cells(&|spread| Some(spread.mean))), ("deviation", cells(&|spread| spread.deviation))];
        if let Some(OverDays { ic_t, rank_ic_t, .. }) = self.over_days().and_then(|all| all.first().copied()) {
            let t = |column: &FoldColumn| column.own_t(ic_t, rank_ic_t).map_or("-".to_owned(), |t| format!("{t:.2}"));
            rows.push(("t", columns.iter().map(t).collect()));
        }
        rows
    }

    /// One sentence: the measures that count, mean ± deviation over folds, and of cross-sections
    /// the correlation over all days.
    pub(crate) fn verdict(&self) -> String {
        let Some(first) = self.done.first() else { return String::new() };
        let columns = columns(&first.evaluation);
        let leading = columns.iter().filter(|column| column.leads).filter_map(|column| {
            let Spread { mean, deviation } = self.spread(column)?;
            let deviation = deviation.map_or(String::new(), |deviation| format!(" ± {}", column.cell(Some(deviation))));
            Some(format!("{} {}{deviation}", column.name, column.cell(Some(mean))))
        });
        let leading: Vec<String> = leading.collect();
        let folds = match self.done.len() {
            1 => "1 fold".to_owned(),
            folds => format!("{folds} folds"),
        };
        let mut text = format!("{}: mean ± deviation over {folds}.", leading.join("; "));
        if let Some(OverDays { rank_ic: Some(rank_ic), rank_ic_t, .. }) =
            self.over_days().and_then(|all| all.first().copied())
        {
            let t = rank_ic_t.map_or(String::new(), |t| format!(" (t = {t:.2})"));
            text.push_str(&format!(" Over the days of all tests: rank IC {rank_ic:.4}{t} at the first horizon."));
        }
        if self.done.iter().any(|fold| fold.evaluation.drawn.is_some()) {
            text.push_str(" Estimates: of some folds only a part of the samples was taken, as the table says.");
        }
        text
    }

    /// Mean and deviation of a column that means something over folds, where all folds have it.
    pub(crate) fn spread(&self, column: &FoldColumn) -> Option<Spread> {
        let values = self.done.iter().map(|fold| column.value(&fold.evaluation)).collect::<Option<Vec<f64>>>()?;
        Some(Spread::from_values(&values)).filter(|_| column.is_summarised() && !values.is_empty())
    }

    /// True if the folds were evaluated on their tests: other parts of theirs share samples.
    fn are_tests(&self) -> bool {
        self.done.iter().all(|fold| fold.evaluation.split == Part::Test)
    }

    fn t_over_folds(&self, value: impl Fn(&Evaluation) -> Option<f64>) -> Option<f64> {
        if !self.are_tests() {
            return None;
        }
        let values: Vec<Option<f64>> = self.done.iter().map(|fold| value(&fold.evaluation)).collect();
        t_statistic(&values, self.plan.overlap)
    }

    /// Horizons of which there are correlations.
    fn horizons(&self) -> usize {
        let horizons = |fold: &Fold| fold.evaluation.model.information.as_ref().map_or(0, |all| all.ic.len());
        self.done.iter().map(horizons).max().unwrap_or(0)
    }

    /// The days of all tests in order of time; none where days are tested twice or have no time.
    pub(crate) fn days(&self) -> Vec<&GraphCorrelations> {
        let mut days: Vec<&GraphCorrelations> = self.done.iter().flat_map(|fold| &fold.evaluation.graphs).collect();
        if self.plan.overlap > 0 || !self.are_tests() || days.iter().any(|day| day.time_ns.is_none()) {
            return Vec::new();
        }
        days.sort_by_key(|day| day.time_ns);
        days
    }

    /// Correlations over the days of all tests, by horizon.
    pub(crate) fn over_days(&self) -> Option<Vec<OverDays>> {
        let days = self.days();
        let horizon_mean = |k: usize| {
            let lags = self.done.iter().filter_map(|fold| fold.evaluation.model.information.as_ref()?.ic_lags.get(k));
            let lag = lags.copied().max().unwrap_or(0);
            let values = |values: fn(&GraphCorrelations) -> &[Option<f64>]| -> Vec<Option<f64>> {
                days.iter().map(|day| values(day).get(k).copied().flatten()).collect()
            };
            let mean = |values: &[Option<f64>]| {
                let known: Vec<f64> = values.iter().copied().flatten().collect();
                (!known.is_empty()).then(|| Spread::from_values(&known).mean)
            };
            let ic = values(|day| &day.ic);
            let rank_ic = values(|day| &day.rank_ic);
            OverDays {
                ic: mean(&ic),
                ic_t: t_statistic(&ic, lag),
                rank_ic: mean(&rank_ic),
                rank_ic_t: t_statistic(&rank_ic, lag),
                lag,
            }
        };
        (!days.is_empty()).then(|| (0..self.horizons()).map(horizon_mean).collect())
    }
}

/// `mean` and `deviation`, over folds, of each number that all have in the same place; a number
/// that some fold does not have is null.
fn over_folds(values: &[&Value]) -> Value {
    match values {
        [Value::Object(first), ..] => first
            .keys()
            .map(|key| (key.clone(), over_folds(&values.iter().map(|value| &value[key]).collect::<Vec<_>>())))
            .collect(),
        [Value::Array(first), ..] => (0..first.len())
            .map(|k| over_folds(&values.iter().map(|value| value.get(k).unwrap_or(&Value::Null)).collect::<Vec<_>>()))
            .collect(),
        _ => match values.iter().map(|value| value.as_f64()).collect::<Option<Vec<f64>>>() {
            Some(numbers) if !numbers.is_empty() => {
                let Spread { mean, deviation } = Spread::from_values(&numbers);
                json!({ "mean": mean, "deviation": deviation })
            }
            _ => Value::Null,
        },
    }
}

#[cfg(test)]
mod tests {
    use megabatch_trainer::InformationCoefficients;

    use super::*;

    #[test]
    fn numbers_are_taken_together_place_by_place() {
        let (a, b) =
            (json!({ "rmse": [1.0, 4.0], "share": [null, 0.5] }), json!({ "rmse": [3.0, 4.0], "share": [0.5, 0.5] }));
        let same = json!({ "mean": 4.0, "deviation": 0.0 });
        assert_eq!(
            over_folds(&[&a, &b]),
            json!({
                "rmse": [{ "mean": 2.0, "deviation": 2f64.sqrt() }, same],
                "share": [null, { "mean": 0.5, "deviation": 0.0 }],
            })
        );
        assert_eq!(over_folds(&[&json!([2.0])]), json!([{ "mean": 2.0, "deviation": null }]));
        assert_eq!(over_folds(&[]), Value::Null);
    }

    /// A fold whose test has two days with these correlations, learnt with a loss of ranks.
    fn fold(number: usize, correlations: [f64; 2]) -> Fold {
        let day = |(k, &ic): (usize, &f64)| GraphCorrelations {
            time_ns: Some((10 * number + k) as i64),
            graph: k,
            ic: vec![Some(ic)],
            rank_ic: vec![Some(2.0 * ic)],
        };
        let ic = correlations.iter().sum::<f64>() / 2.0;
        let mut evaluation = Evaluation::with_one_horizon([("model", 777.0), ("linear", 777.0)]);
        evaluation.ranks = true;
        evaluation.graphs = correlations.iter().enumerate().map(day).collect();
        evaluation.model.information = Some(InformationCoefficients {
            ic: vec![Some(ic)],
            ic_std: vec![Some(0.5)],
            ic_t: vec![Some(1.5)],
            ic_lags: vec![1],
            ic_graphs: vec![2],
            rank_ic: vec![Some(2.0 * ic)],
            rank_ic_std: vec![None],
            rank_ic_t: vec![None],
        });
        let split = SplitPlan {
            train: 20,
            validation: 2,
            test: 2,
            purged: 0,
            validation_start_ns: Some(0),
            test_start_ns: Some(0),
        };
        Fold { fold: number, run: "walk/fold".into(), steps: 3, split, evaluation }
    }

    /// `train --set data.walk_forward=3 --set training.loss=rank_pairwise` printed a table of RMSE,
    /// of which `eval` says that it means nothing, and no correlation.
    #[test]
    fn folds_of_a_model_of_ranks_have_their_coefficients_with_mean_and_t() {
        let done = [fold(1, [0.1, 0.3]), fold(2, [0.3, 0.5]), fold(3, [-0.1, 0.1])];
        let plan = FoldPlan { kind: FoldKind::WalkForward, folds: 3, overlap: 0 };
        let folds = Folds { plan, run: Path::new("walk"), done: &done };
        let text = folds.to_text();
        let words = |name: &str| {
            let line = text.lines().find(|line| line.trim_start().starts_with(name));
            line.unwrap_or_else(|| panic!("{name}: {text}")).split_whitespace().collect::<Vec<_>>()
        };
        assert_eq!(words("fold"), "fold test begins train test IC t rank IC t".split(' ').collect::<Vec<_>>());
        assert_eq!(words("1 ")[3..], ["20", "2", "0.2000", "1.50", "0.4000", "-"]);
        // Means 0.2, 0.4 and 0: 0.2 in the mean, 0.2 the deviation. The row had t over these three.
        assert_eq!(words("mean"), ["mean", "0.2000", "-", "0.4000", "-"]);
        assert_eq!(words("deviation"), ["deviation", "0.2000", "-", "0.4000", "-"]);
        let days: Vec<Option<f64>> = [0.1, 0.3, 0.3, 0.5, -0.1, 0.1].map(Some).to_vec();
        let t = format!("{:.2}", t_statistic(&days, 1).unwrap());
        assert_eq!(words("t "), ["t", &t, "-", &t, "-"]);
        assert!(!text.to_lowercase().contains("rmse") && !text.contains("777"), "{text}");
        assert!(text.contains("IC 0.2000 ± 0.2000; rank IC 0.4000 ± 0.4000: mean ± deviation over 3 folds."), "{text}");
        assert!(text.contains("Over the days of all tests: rank IC 0.4000 (t = "), "{text}");

        let json = folds.to_json(Progress::Finished);
        assert!((json["t_over_folds"]["ic"][0].as_f64().unwrap() - 3f64.sqrt()).abs() < 1e-12, "{json}");
        assert_eq!(json["over_days"][0]["ic_t"], json!(t_statistic(&days, 1)));
        assert_eq!((&json["kind"], &json["over_days"][0]["lag"]), (&json!("walk_forward"), &json!(1)));
    }

    /// `eval --split validation` pooled days that several folds have, and called them tests.
    #[test]
    fn other_parts_than_tests_share_days_and_have_no_t() {
        let mut done = [fold(1, [0.1, 0.3]), fold(2, [0.3, 0.5]), fold(3, [-0.1, 0.1])];
        for (fold, validation) in done.iter_mut().zip([7, 8, 9]) {
            (fold.evaluation.split, fold.split.validation) = (Part::Validation, validation);
        }
        let plan = FoldPlan { kind: FoldKind::WalkForward, folds: 3, overlap: 0 };
        let folds = Folds { plan, run: Path::new("walk"), done: &done };
        assert!(folds.over_days().is_none() && folds.t_over_folds(|evaluation| columns::ic(evaluation, 0)).is_none());
        let text = folds.to_text();
        assert!(!text.contains("of all tests") && !text.contains("\n        t "), "{text}");
        let head: Vec<&str> = text.lines().next().unwrap().split_whitespace().collect();
        assert_eq!(head[..5], ["fold", "test", "begins", "train", "validation"]);
        let counts: Vec<String> = done.iter().map(Fold::judged).collect();
        assert_eq!(counts, ["7", "8", "9"]);
    }

    #[test]
    fn tests_that_overlap_have_a_lag_and_no_days_together() {
        let done = [fold(1, [0.1, 0.3]), fold(2, [0.3, 0.5]), fold(3, [-0.1, 0.1])];
        let plan = FoldPlan { kind: FoldKind::WalkForward, folds: 3, overlap: 1 };
        let folds = Folds { plan, run: Path::new("walk"), done: &done };
        let expected = t_statistic(&[Some(0.2), Some(0.4), Some(0.0)], 1);
        let found = folds.t_over_folds(|evaluation| columns::ic(evaluation, 0));
        assert!((found.unwrap() - expected.unwrap()).abs() < 1e-9);
        assert!(folds.over_days().is_none() && !folds.to_text().contains("\n        t "));
    }
}
