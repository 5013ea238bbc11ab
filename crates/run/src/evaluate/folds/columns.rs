//! Columns of the table of folds: the measures that apply to the model.

use megabatch_trainer::{ClassErrors, Metrics};

use crate::evaluate::{Evaluation, mean};
use crate::text::number::significant;

/// A measure of a contender, a number a fold.
pub(crate) struct FoldColumn {
    pub(crate) name: String,
    /// True if the sentence on all folds has it.
    pub(crate) leads: bool,
    /// The baseline that is measured; `None` for the model.
    pub(crate) baseline: Option<&'static str>,
    measure: FoldMeasure,
}

/// Measure of the predictions of a fold's test.
#[derive(Clone, Copy, PartialEq, Eq)]
enum FoldMeasure {
    /// Averaged over the horizons.
    Rmse,
    /// Share of signs, over the horizons that have any.
    Direction,
    /// Share of rows whose one class was predicted.
    Accuracy,
    /// Averaged over the targets.
    ClassAccuracy,
    CrossEntropy,
    /// At the first horizon, as the following.
    Ic,
    IcT,
    RankIc,
    RankIcT,
}

/// The columns for what the model of `evaluation` predicts: its own, then those of the baselines.
pub(crate) fn columns(evaluation: &Evaluation) -> Vec<FoldColumn> {
    let model = &evaluation.model;
    let errors: &[FoldMeasure] = match (model.accuracy, &model.classes) {
        (Some(_), _) => &[FoldMeasure::Accuracy],
        (None, Some(_)) => &[FoldMeasure::ClassAccuracy, FoldMeasure::CrossEntropy],
        // Outputs of a model of ranks have no unit, so that their errors say nothing.
        (None, None) if evaluation.ranks => &[],
        (None, None) => &[FoldMeasure::Rmse, FoldMeasure::Direction],
    };
    let correlations: &[FoldMeasure] = match model.information {
        Some(_) => &[FoldMeasure::Ic, FoldMeasure::IcT, FoldMeasure::RankIc, FoldMeasure::RankIcT],
        None => &[],
    };
    let measures = || errors.iter().chain(correlations).copied();
    let column = |measure: FoldMeasure, baseline: Option<&'static str>| {
        let suffix = baseline.map_or(String::new(), |name| format!(" {}", name.replace('_', " ")));
        FoldColumn { name: format!("{}{suffix}", measure.title()), leads: measure.leads(evaluation), measure, baseline }
    };
    let own = measures().map(|measure| column(measure, None));
    let baselines = evaluation.baselines.keys().flat_map(|&name| {
        measures().filter(|measure| measure.is_compared()).map(move |measure| column(measure, Some(name)))
    });
    own.chain(baselines.filter(|column| column.value(evaluation).is_some())).collect()
}

impl FoldColumn {
    /// The number of a fold; `None` where it has none.
    pub(crate) fn value(&self, evaluation: &Evaluation) -> Option<f64> {
        let metrics = match self.baseline {
            None => &evaluation.model,
            Some(name) => evaluation.baselines.get(name)?,
        };
        self.measure.value(metrics).filter(|value| value.is_finite())
    }

    /// A number as the column shows it.
    pub(crate) fn cell(&self, value: Option<f64>) -> String {
        let shown = |value: f64| match self.measure {
            FoldMeasure::Accuracy | FoldMeasure::ClassAccuracy | FoldMeasure::Direction => {
                format!("{} %", significant(100.0 * value, 3))
            }
            FoldMeasure::IcT | FoldMeasure::RankIcT => format!("{value:.2}"),
            FoldMeasure::Ic | FoldMeasure::RankIc => format!("{value:.4}"),
            FoldMeasure::Rmse | FoldMeasure::CrossEntropy => significant(value, 4),
        };
        value.map_or("-".to_owned(), shown)
    }

    /// True if a mean over folds is meaningful. A mean of t-statistics is not.
    pub(crate) fn is_summarised(&self) -> bool {
        !matches!(self.measure, FoldMeasure::IcT | FoldMeasure::RankIcT)
    }

    /// The one of the model's two t-statistics that is about this column.
    pub(super) fn own_t(&self, ic_t: Option<f64>, rank_ic_t: Option<f64>) -> Option<f64> {
        match (self.measure, self.baseline) {
            (FoldMeasure::Ic, None) => ic_t,
            (FoldMeasure::RankIc, None) => rank_ic_t,
            _ => None,
        }
    }

    /// True if both have the same measure.
    pub(crate) fn is_of_the_same(&self, other: &FoldColumn) -> bool {
        self.measure == other.measure
    }

    /// Characters in a terminal.
    pub(crate) fn width(&self) -> usize {
        self.name.chars().count().max(8)
    }
}

impl FoldMeasure {
    fn title(self) -> &'static str {
        match self {
            FoldMeasure::Rmse => "rmse",
            FoldMeasure::Direction => "direction",
            FoldMeasure::Accuracy | FoldMeasure::ClassAccuracy => "accuracy",
            FoldMeasure::CrossEntropy => "cross entropy",
            FoldMeasure::Ic => "IC",
            FoldMeasure::RankIc => "rank IC",
            FoldMeasure::IcT | FoldMeasure::RankIcT => "t",
        }
    }

    /// True if the baselines are measured too.
    fn is_compared(self) -> bool {
        !matches!(self, FoldMeasure::Direction | FoldMeasure::IcT | FoldMeasure::RankIcT)
    }

    /// True if it tells most about the model of `evaluation`.
    fn leads(self, evaluation: &Evaluation) -> bool {
        match self {
            FoldMeasure::Rmse => evaluation.model.information.is_none(),
            FoldMeasure::Accuracy | FoldMeasure::ClassAccuracy | FoldMeasure::Ic | FoldMeasure::RankIc => true,
            _ => false,
        }
    }

    fn value(self, metrics: &Metrics) -> Option<f64> {
        let information = metrics.information.as_ref();
        let first = |values: &[Option<f64>]| values.first().copied().flatten();
        let class_mean =
            |values: fn(&ClassErrors) -> &[f64]| metrics.classes.as_ref().map(|classes| mean(values(classes)));
        match self {
            FoldMeasure::Rmse => Some(mean(&metrics.rmse)),
            FoldMeasure::Direction => {
                let shares: Vec<f64> = metrics.direction_accuracy.iter().copied().flatten().collect();
                Some(mean(&shares))
            }
            FoldMeasure::Accuracy => metrics.accuracy,
            FoldMeasure::ClassAccuracy => class_mean(|classes| &classes.accuracy),
            FoldMeasure::CrossEntropy => class_mean(|classes| &classes.cross_entropy),
            FoldMeasure::Ic => first(&information?.ic),
            FoldMeasure::IcT => first(&information?.ic_t),
            FoldMeasure::RankIc => first(&information?.rank_ic),
            FoldMeasure::RankIcT => first(&information?.rank_ic_t),
        }
    }
}

/// The model's IC at the horizon in place `horizon`.
pub(super) fn ic(evaluation: &Evaluation, horizon: usize) -> Option<f64> {
    evaluation.model.information.as_ref()?.ic.get(horizon).copied().flatten()
}

/// The model's rank IC at the horizon in place `horizon`.
pub(super) fn rank_ic(evaluation: &Evaluation, horizon: usize) -> Option<f64> {
    evaluation.model.information.as_ref()?.rank_ic.get(horizon).copied().flatten()
}
