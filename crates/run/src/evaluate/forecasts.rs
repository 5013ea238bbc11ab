//! Predictions beside targets at a few horizons, for the report.

use std::ops::{ControlFlow, Range};
use std::path::Path;

use megabatch_chunk_io::Source;
use megabatch_nn::loss::{Group, Loss};
use megabatch_trainer::{Error, SampleRanges, Samples as _, Selection};

use crate::adapters::data::times_of;
use crate::adapters::samples::SourceSamples;
use crate::error::Result;
use crate::evaluate::Part;
use crate::host::{Host, Work};
use crate::setup::TrainingSetup;

/// Predictions and outcomes of the evaluated samples of a part of the data.
pub(crate) struct Forecasts {
    pub(crate) part: Part,
    /// The samples, by their place in the file.
    pub(crate) indices: SampleRanges,
    /// Time of each sample, ns since 1970 UTC, if the data have times.
    pub(crate) times: Option<Vec<i64>>,
    /// Stretches of samples of one instrument, where the file has several.
    pub(crate) instruments: Option<Vec<InstrumentStretch>>,
    /// A few numeric horizons, the nearest first; none for a model of classes.
    pub(crate) pairs: Vec<Pairs>,
}

/// Samples of one instrument that follow one another.
pub(crate) struct InstrumentStretch {
    /// Position of the first.
    first: usize,
    name: String,
}

/// Predicted and actual values at one horizon, a pair for each sample. An unknown actual value is
/// NaN.
pub(crate) struct Pairs {
    /// From 1.
    pub(crate) horizon: usize,
    pub(crate) predicted: Vec<f32>,
    pub(crate) actual: Vec<f32>,
}

/// Samples of a stretch of time.
const STRETCH: usize = 240;

impl Forecasts {
    /// Predicts the evaluated samples of `part` of `samples`, the data of `setup`, with `weights`.
    /// It takes no more memory than training, once the trainer is dropped.
    pub(crate) fn predict(
        setup: &TrainingSetup,
        samples: &SourceSamples,
        part: Part,
        weights: &Path,
        host: &Host<'_>,
    ) -> Result<Self> {
        let TrainingSetup { split, training, .. } = setup;
        let whole_part = part.indices(split, samples.len());
        let indices = training.evaluated(&whole_part).into_owned();
        let outputs = samples.shape().outputs;
        let points = points(training.loss, outputs);
        // A class has no place on an axis of targets.
        let numbers: Vec<usize> = (0..outputs).filter(|&k| points[k].is_some()).collect();
        let chosen = few_horizons(numbers.len()).into_iter().filter(|_| !numbers.is_empty());
        let mut pairs: Vec<Pairs> = chosen.map(|horizon| Pairs::at(numbers[horizon - 1] + 1)).collect();
        if pairs.is_empty() {
            return Ok(Forecasts { part, indices, times: None, instruments: None, pairs });
        }
        let mut predictor = setup.predictor(weights, &whole_part)?;
        let width = training.loss.outputs(outputs);
        let mut done = 0;
        let mut follow = host.follow(Work { label: "report", total: indices.len() as u64, unit: "samples" });
        let selection = Selection { samples, indices: &indices };
        let is_wanted = || !host.cancel.is_requested();
        predictor.predict_beside_targets(selection, &is_wanted, |rows, predictions, targets| {
            for Pairs { horizon, predicted, actual } in &mut pairs {
                let output = points[*horizon - 1].expect("a horizon of numbers");
                predicted.extend(column(predictions, width, output));
                actual.extend(column(targets, outputs, *horizon - 1));
            }
            done += rows.len();
            match follow(done) {
                ControlFlow::Continue(()) => Ok(()),
                ControlFlow::Break(()) => Err(Error::Interrupted { work: "the report" }),
            }
        })?;
        drop(follow);
        let source = samples.source();
        let times = times_of(source, &indices)?;
        let instruments = InstrumentStretch::all(source, &indices);
        Ok(Forecasts { part, indices, times, instruments, pairs })
    }

    /// Number of samples.
    pub(crate) fn len(&self) -> usize {
        self.indices.len()
    }

    /// Consecutive samples of one instrument near the middle of the part, and the horizon to show:
    /// the second of `pairs`, which is neither noise nor far away. `None` where fewer than two
    /// would be shown.
    pub(crate) fn stretch(&self) -> Option<(Range<usize>, &Pairs)> {
        let pairs = self.pairs.get(1).or(self.pairs.first())?;
        let middle = self.len() / 2;
        let (first, end) = match &self.instruments {
            Some(instruments) if middle < self.len() => {
                let next = InstrumentStretch::after(instruments, middle);
                (instruments[next - 1].first, instruments.get(next).map_or(self.len(), |next| next.first))
            }
            _ => (0, self.len()),
        };
        let start = middle.saturating_sub(STRETCH / 2).min(end.saturating_sub(STRETCH)).max(first);
        let range = self.unbroken(middle, start..(start + STRETCH).min(end));
        (range.len() > 1).then_some((range, pairs))
    }

    /// The part of `range` around `middle` whose samples follow each other in the data.
    fn unbroken(&self, middle: usize, range: Range<usize>) -> Range<usize> {
        let is_break = |k: usize| self.indices.sample_at(k) != self.indices.sample_at(k - 1) + 1;
        let first = (range.start + 1..=middle.min(range.end)).rev().find(|&k| k < self.len() && is_break(k));
        let end = (middle + 1..range.end).find(|&k| is_break(k));
        first.unwrap_or(range.start)..end.unwrap_or(range.end)
    }

    /// The instrument of a sample of [`Forecasts::stretch`], where the file has several.
    pub(crate) fn instrument(&self, sample: usize) -> Option<&str> {
        let instruments = self.instruments.as_ref()?;
        Some(instruments[InstrumentStretch::after(instruments, sample) - 1].name.as_str())
    }
}

impl InstrumentStretch {
    /// The stretches of `samples`; `None` where an instrument is not known.
    fn all(source: &Source, samples: &SampleRanges) -> Option<Vec<Self>> {
        let (mut stretches, mut previous) = (Vec::new(), None);
        for (first, sample) in samples.iter().enumerate() {
            let place = source.instrument_of(sample)?;
            if previous.replace(place) != Some(place) {
                stretches.push(InstrumentStretch { first, name: source.instruments()[place].clone() });
            }
        }
        Some(stretches)
    }

    /// The stretch after the one that has `position`.
    fn after(stretches: &[Self], position: usize) -> usize {
        stretches.partition_point(|stretch| stretch.first <= position)
    }
}

impl Pairs {
    /// Pairs whose actual value is known.
    pub(crate) fn known(&self) -> Pairs {
        let known = self.predicted.iter().zip(&self.actual).filter(|(_, actual)| !actual.is_nan());
        let (predicted, actual) = known.unzip();
        Pairs { horizon: self.horizon, predicted, actual }
    }

    fn at(horizon: usize) -> Self {
        Pairs { horizon, predicted: Vec::new(), actual: Vec::new() }
    }
}

/// Output of a sample for each of its targets; `None` for a class.
fn points(loss: Loss, targets: usize) -> Vec<Option<usize>> {
    let group_names = |Group { targets, outputs, loss, .. }: Group| {
        let (width, point) = (loss.outputs_per_target(), loss.point());
        let is_number = !matches!(loss, Loss::Classes(_));
        (0..targets.len()).map(move |k| is_number.then_some(outputs.start + k * width + point)).collect::<Vec<_>>()
    };
    loss.groups(targets).into_iter().flat_map(group_names).collect()
}

/// The first horizon, the last, and those a quarter and half way between.
pub(crate) fn few_horizons(outputs: usize) -> Vec<usize> {
    let mut chosen = vec![1, outputs.div_ceil(4), outputs.div_ceil(2), outputs];
    chosen.dedup();
    chosen
}

/// Column `place` of `rows` [B, width].
fn column(rows: &[f32], width: usize, place: usize) -> impl Iterator<Item = f32> + '_ {
    rows.chunks_exact(width).map(move |row| row[place])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_horizons_from_the_first_to_the_last() {
        for (outputs, expected) in [(1, vec![1]), (2, vec![1, 2]), (5, vec![1, 2, 3, 5]), (36, vec![1, 9, 18, 36])] {
            assert_eq!(few_horizons(outputs), expected);
        }
    }

    fn forecasts(len: usize, instruments: Option<Vec<InstrumentStretch>>) -> Forecasts {
        let pairs = Pairs { horizon: 1, predicted: vec![0.0; len], actual: vec![0.0; len] };
        Forecasts {
            part: Part::Test,
            indices: SampleRanges::from(0..len),
            times: None,
            instruments,
            pairs: vec![pairs],
        }
    }

    #[test]
    fn a_stretch_lies_in_the_middle_and_within_one_instrument() {
        assert_eq!(forecasts(1000, None).stretch().unwrap().0, 380..620);
        assert_eq!(forecasts(10, None).stretch().unwrap().0, 0..10);
        assert!(forecasts(1, None).stretch().is_none());
        for (second_from, range) in [(501, 261..501), (500, 500..740), (400, 400..640), (999, 380..620)] {
            let stretches = [(0, "A"), (second_from, "B")];
            let stretches = stretches.map(|(first, name)| InstrumentStretch { first, name: name.to_owned() });
            let all = forecasts(1000, Some(stretches.into()));
            assert_eq!(all.stretch().unwrap().0, range, "{second_from}");
            assert_eq!([0, second_from].map(|sample| all.instrument(sample).unwrap()), ["A", "B"]);
        }
    }
}
