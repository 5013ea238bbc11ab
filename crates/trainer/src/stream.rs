#![forbid(unsafe_code)]

//! Predictions from carried state: with the weights at rest, the state at a bar is that of one pass over its segment from zero,
//! one step a bar, whatever windows are asked for.

use std::ops::Range;
use std::sync::Mutex;

use megabatch_gpu_core::{Buffer, Scope};

use crate::carried::series_of;
use crate::error::Result;
use crate::form::{Memory, Weights};
use crate::model::Model;
use crate::samples::Samples;
use crate::series::Series;
use crate::tensor::TensorSet;
use crate::view::BatchView;

/// The top layers' hidden states at the last bars of some samples' windows.
#[derive(Debug)]
pub(crate) struct Streamed {
    timeframes: Vec<StreamedTimeframe>,
    joined: Buffer<f32>, // [D]
}

#[derive(Debug)]
struct StreamedTimeframe {
    /// The rows of the windows' last bars, ascending.
    ends: Vec<usize>,
    hidden: Buffer<f32>, // [ends, H]
}

/// The way through one segment of one timeframe, up to the last bar that is asked for.
pub(crate) struct Passage<'a> {
    timeframe: usize,
    /// T and F.
    shape: (usize, usize),
    /// Rows of the segment.
    rows: Range<usize>,
    /// The series, [bars, F].
    values: &'a [f32],
    /// The rows whose states are asked for, ascending, and where those go, [ends, H].
    ends: &'a [usize],
    hidden: &'a mut [f32],
}

/// The rows of the last bars of the windows of `indices`, by timeframe, ascending.
///
/// # Errors
/// As [`carried_rows`](crate::carried::carried_rows).
pub(crate) fn distinct_ends(samples: &dyn Samples, indices: &[usize]) -> Result<Vec<Vec<usize>>> {
    let (shape, series) = (samples.shape(), series_of(samples)?);
    let ends = |k: usize| {
        let end = |&sample: &usize| Ok(series.window_start(shape, k, sample)? + shape.timeframes[k].steps - 1);
        let mut ends = indices.iter().map(end).collect::<Result<Vec<_>>>()?;
        ends.sort_unstable();
        ends.dedup();
        Ok(ends)
    };
    (0..shape.timeframes.len()).map(ends).collect()
}

/// Numbers of the memory of [`Streamed`], for so many distinct last bars in each timeframe.
pub(crate) fn streamed_len(hidden: usize, ends: &[usize]) -> usize {
    hidden * (ends.iter().sum::<usize>() + ends.len())
}

impl Streamed {
    /// Room for the states at the rows `ends` of each timeframe, booked on `scope`.
    pub(crate) fn new(scope: &Scope, model: &Model, ends: Vec<Vec<usize>>) -> Result<Self> {
        let hidden = model.config().hidden;
        let joined = Buffer::zeros(scope, ends.len() * hidden)?;
        let timeframe =
            |ends: Vec<usize>| Ok(StreamedTimeframe { hidden: Buffer::zeros(scope, ends.len() * hidden)?, ends });
        Ok(Streamed { timeframes: ends.into_iter().map(timeframe).collect::<Result<_>>()?, joined })
    }

    /// What is to be computed: the passages through all segments in which states are asked for.
    pub(crate) fn passages<'a>(&'a mut self, model: &Model, series: &[Series<'a>]) -> Vec<Passage<'a>> {
        let mut all = Vec::new();
        for (k, (streamed, series)) in self.timeframes.iter_mut().zip(series).enumerate() {
            let (timeframe, hidden) = (&model.shape().timeframes[k], model.config().hidden);
            let (mut ends, mut states) = (streamed.ends.as_slice(), streamed.hidden.as_mut_slice());
            while let Some(&last) = ends.last() {
                // From the last segment to the first: what comes before a segment's start is split off.
                let start = series.segment_start(last);
                let before = ends.partition_point(|&end| end < start);
                let (earlier, own) = states.split_at_mut(before * hidden);
                all.push(Passage {
                    timeframe: k,
                    shape: (timeframe.steps, timeframe.features),
                    rows: start..last + 1,
                    values: series.values,
                    ends: &ends[before..],
                    hidden: own,
                });
                (ends, states) = (&ends[..before], earlier);
            }
        }
        // The longest ones first, so that threads end at about the same time.
        all.sort_by_key(|passage| std::cmp::Reverse(passage.rows.len()));
        all
    }

    /// The outputs [B, K] for the samples of `batch`, each from the states at its windows' last bars.
    pub(crate) fn predict(
        &mut self,
        (model, parameters): (&Model, &TensorSet<f32>),
        batch: &BatchView<'_>,
        outputs: &mut [f32],
    ) {
        let hidden = model.config().hidden;
        for (sample, outputs) in outputs.chunks_exact_mut(model.shape().outputs).enumerate() {
            let parts = self.joined.as_mut_slice().chunks_exact_mut(hidden);
            for (k, (part, streamed)) in parts.zip(&self.timeframes).enumerate() {
                let end = streamed.ends.binary_search(&batch.ends(k)[sample]).expect("the end of a streamed sample");
                part.copy_from_slice(&streamed.hidden.as_slice()[end * hidden..][..hidden]);
            }
            // A row at a time, so that nothing depends on the size of the batch.
            model.decoder().plain_head().forward(parameters, self.joined.as_slice(), outputs);
        }
    }
}

/// Works off `passages` with the memory of one thread, among others that do the same.
pub(crate) fn work_off(passages: &Mutex<std::vec::IntoIter<Passage<'_>>>, weights: Weights<'_>, memory: &mut Memory) {
    let next = || passages.lock().expect("nobody panics with the lock held").next();
    while let Some(passage) = next() {
        passage.go(weights, memory);
    }
}

impl Passage<'_> {
    /// Goes through the segment, T bars at a time: what a window has room for.
    fn go(self, weights: Weights<'_>, memory: &mut Memory) {
        let Passage { timeframe, shape: (steps, features), rows, values, ends, hidden } = self;
        let units = weights.model.config().hidden;
        let mut state = vec![0.0; crate::carried::state_len(weights.model)];
        let mut at_end = state.clone();
        let mut asked = ends.iter().zip(hidden.chunks_exact_mut(units)).peekable();
        for start in rows.clone().step_by(steps) {
            let end = rows.end.min(start + steps);
            memory.advance(weights, (timeframe, &values[start * features..end * features]), &mut state);
            while let Some((row, top)) = asked.next_if(|(row, _)| **row < end) {
                memory.read_state(timeframe, (0, row - start), &mut at_end);
                top.copy_from_slice(top_hidden(&at_end, units));
            }
        }
    }
}

/// The hidden state [H] of the top layer, out of a state [layers, 2, H].
pub(crate) fn top_hidden(state: &[f32], hidden: usize) -> &[f32] {
    &state[state.len() - 2 * hidden..][..hidden]
}
