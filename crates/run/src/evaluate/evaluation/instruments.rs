//! Errors by instrument, in the measures that apply to the model.

use megabatch_trainer::{ClassErrors, InstrumentEvaluation, Metrics};

use super::{Evaluation, mean};
use crate::text::number::{plural, significant};

/// Note on the baselines in a table by instrument.
pub(crate) const BASELINES_ARE_OF_ALL: &str = "baselines are fitted on all instruments together";

/// A column of the table by instrument: a measure of a contender, averaged over the horizons.
pub(crate) struct InstrumentColumn {
    pub(crate) name: String,
    measure: Measure,
    /// The baseline that is measured; `None` for the model.
    baseline: Option<&'static str>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Measure {
    Rmse,
    Mae,
    /// Share of signs, over the horizons that have any.
    Direction,
    Accuracy,
    Balanced,
    CrossEntropy,
    /// Share of rows whose one class was predicted.
    RowAccuracy,
}

impl Evaluation {
    /// The columns; empty if no measure applies.
    pub(crate) fn instrument_columns(&self) -> Vec<InstrumentColumn> {
        let model = &self.model;
        let (compared, own): (&[Measure], &[Measure]) = match (model.accuracy, &model.classes) {
            _ if self.instruments.is_empty() => (&[], &[]),
            (Some(_), _) => (&[Measure::RowAccuracy], &[]),
            (None, Some(_)) => (&[Measure::Accuracy, Measure::Balanced, Measure::CrossEntropy], &[]),
            // Outputs of a model of ranks have no unit.
            (None, None) if self.ranks => (&[], &[]),
            (None, None) => (&[Measure::Rmse], &[Measure::Mae, Measure::Direction]),
        };
        let column = |measure: Measure, baseline: Option<&'static str>| {
            let contender = baseline.unwrap_or("model").replace('_', " ");
            InstrumentColumn { name: format!("{} {contender}", measure.title()), measure, baseline }
        };
        let contenders = || std::iter::once(None).chain(self.baselines.keys().copied().map(Some));
        let compared = compared.iter().flat_map(|&measure| contenders().map(move |baseline| column(measure, baseline)));
        compared.chain(own.iter().map(|&measure| column(measure, None))).collect()
    }
}

/// Share of the squared errors that a few instruments have where they decide the RMSE over all.
const DECIDING_SHARE: f64 = 0.95;

/// Instruments that are named in a sentence.
const NAMED_MAX: usize = 3;

impl Evaluation {
    /// A sentence after a blank where a quarter of the instruments, or a single one, has almost all
    /// of the squared errors; else empty. Pips of different sizes do that.
    pub(super) fn deciding_instruments_sentence(&self) -> String {
        let squares = |errors: &InstrumentEvaluation| {
            let known = errors.metrics.rmse.iter().filter(|rmse| rmse.is_finite());
            errors.samples as f64 * known.map(|rmse| rmse * rmse).sum::<f64>()
        };
        let mut sizes: Vec<(&str, f64)> =
            self.instruments.iter().map(|(name, errors)| (name.as_str(), squares(errors))).collect();
        sizes.sort_by(|(_, a), (_, b)| b.total_cmp(a));
        let all: f64 = sizes.iter().map(|(_, size)| size).sum();
        let most = (sizes.len() / 4).max(1);
        let mut held = 0.0;
        let decides = |(_, size): &(&str, f64)| {
            held += size;
            held >= DECIDING_SHARE * all
        };
        let last = sizes.iter().take(most).position(decides).filter(|_| sizes.len() > 1 && all > 0.0);
        let Some(few) = last.map(|last| last + 1) else { return String::new() };
        let names: Vec<&str> = sizes[..few].iter().map(|(name, _)| *name).collect();
        let whose = if few > NAMED_MAX { plural(few, "instrument") } else { names.join(", ") };
        format!(
            " {} % of the squared errors are of {whose}: they decide the RMSE over all {} instruments, each of which has a row of its own.",
            significant(100.0 * held / all, 3),
            sizes.len()
        )
    }
}

impl InstrumentColumn {
    /// The number of an instrument; `None` where it has none.
    pub(crate) fn value(&self, errors: &InstrumentEvaluation) -> Option<f64> {
        let metrics = match self.baseline {
            None => &errors.metrics,
            Some(name) => errors.baselines.get(name)?,
        };
        self.measure.value(metrics).filter(|value| value.is_finite())
    }

    /// True for shares from 0 to 1.
    pub(crate) fn is_share(&self) -> bool {
        !matches!(self.measure, Measure::Rmse | Measure::Mae | Measure::CrossEntropy)
    }
}

impl Measure {
    fn title(self) -> &'static str {
        match self {
            Measure::Rmse => "rmse",
            Measure::Mae => "mae",
            Measure::Direction => "direction",
            Measure::Accuracy | Measure::RowAccuracy => "accuracy",
            Measure::Balanced => "balanced",
            Measure::CrossEntropy => "cross entropy",
        }
    }

    fn value(self, metrics: &Metrics) -> Option<f64> {
        let classes = |values: fn(&ClassErrors) -> &[f64]| metrics.classes.as_ref().map(|own| mean(values(own)));
        match self {
            Measure::Rmse => Some(mean(&metrics.rmse)),
            Measure::Mae => Some(mean(&metrics.mae)),
            Measure::Direction => {
                let shares: Vec<f64> = metrics.direction_accuracy.iter().copied().flatten().collect();
                Some(mean(&shares))
            }
            Measure::Accuracy => classes(|own| &own.accuracy),
            Measure::Balanced => classes(|own| &own.balanced_accuracy),
            Measure::CrossEntropy => classes(|own| &own.cross_entropy),
            Measure::RowAccuracy => metrics.accuracy,
        }
    }
}
