#![forbid(unsafe_code)]

//! Predictions from carried state: with the weights at rest, the state at a bar is that of one pass
//! over its segment from zero, one step a bar, whatever windows are asked for.

use std::ops::Range;
use std::sync::Mutex;

use megabatch_gpu_core::{Buffer, Scope};
use rayon::prelude::*;

use crate::batch::{BatchView, Series};
use crate::cpu::decoder::Decoding;
use crate::cpu::kernel::pairs::PairIsa;
use crate::cpu::pooling::WindowPooling;
use crate::cpu::shard::{ShardWorkspace, Weights};
use crate::cpu::step::{Capacity, Compute, Purpose};
use crate::error::Result;
use crate::model::pooling::Pooling;
use crate::model::{Model, ModelConfig, Timeframe};

/// Capacity to decode one sample at a time.
pub(crate) const ONE_SAMPLE: Capacity = Capacity { samples: 1, edges: 0, run: 1, threads: 1 };

/// The top layers' hidden states at the bars of some samples' windows that are read.
#[derive(Debug)]
pub struct StatefulInference {
    timeframes: Vec<StreamedTimeframe>,
    /// Windows that states begin ahead of what is read; `None` begins with the segment.
    warm_up_windows: Option<usize>,
    /// One a thread.
    readers: Vec<Reader>,
}

#[derive(Debug)]
struct StreamedTimeframe {
    /// The rows of the bars whose states are read, ascending.
    rows: Vec<usize>,
    hidden: Buffer<f32>, // [rows, H]
}

/// Takes one sample after another from the states at its windows' bars to its outputs, each by
/// itself, so that nothing depends on the size of the batch or on the threads.
#[derive(Debug)]
struct Reader {
    /// One a timeframe for pooling by attention, or none.
    poolings: Vec<PooledWindow>,
    /// From one sample's encoding to its outputs.
    decoding: Decoding,
}

/// The window that was pooled last.
#[derive(Debug)]
struct PooledWindow {
    memory: WindowPooling,
    /// The row of its last bar.
    end: Option<usize>,
}

/// The way through one segment of one timeframe, up to the last bar that is asked for.
pub struct Passage<'a> {
    timeframe: usize,
    /// T and F.
    shape: (usize, usize),
    /// Rows of the segment.
    rows: Range<usize>,
    /// The series, [bars, F].
    values: &'a [f32],
    /// The rows whose states are asked for, ascending, and where those go, [asked, H].
    asked: &'a [usize],
    hidden: &'a mut [f32],
}

/// The rows whose states are read for windows of `steps` bars that end at the rows `ends`,
/// ascending both.
pub fn read_rows(pooling: Pooling, ends: Vec<usize>, steps: usize) -> Vec<usize> {
    if pooling == Pooling::Last {
        return ends;
    }
    let mut rows: Vec<usize> = Vec::new();
    for end in ends {
        let unseen = rows.last().map_or(0, |&last| last + 1);
        rows.extend(unseen.max(end + 1 - steps)..=end);
    }
    rows
}

/// Place in `rows`, ascending, at which the last stretch begins whose rows are at most `gap` apart.
fn last_stretch(rows: &[usize], gap: usize) -> usize {
    (1..rows.len()).rev().find(|&place| rows[place] - rows[place - 1] > gap).unwrap_or(0)
}

/// Samples read at a time.
fn readers(compute: Compute) -> usize {
    compute.threads.min(compute.batch_size)
}

/// Numbers in the memory of [`StatefulInference`], for timeframes of so many rows that are read and
/// T bars in a window.
pub fn streamed_len(model: &Model, compute: Compute, timeframes: impl Iterator<Item = (usize, usize)>) -> usize {
    let ModelConfig { hidden, pooling, .. } = model.config();
    let pooling_len = |steps| match pooling {
        Pooling::Last => 0,
        Pooling::Attention { heads } => WindowPooling::len(heads, hidden, steps, 1),
    };
    let decoding = model.decoder().memory_len(ONE_SAMPLE, Purpose::Prediction);
    let (states, reader) = timeframes
        .fold((0, decoding), |(states, reader), (rows, steps)| (states + hidden * rows, reader + pooling_len(steps)));
    states + readers(compute) * reader
}

impl StatefulInference {
    /// Capacity for the states that are read of windows which end at the rows `ends` of each
    /// timeframe, booked on `scope`.
    pub fn new(scope: &Scope, model: &Model, compute: Compute, ends: Vec<Vec<usize>>) -> Result<Self> {
        let ModelConfig { hidden, pooling, .. } = model.config();
        let timeframe = |(k, ends): (usize, Vec<usize>)| {
            let rows = read_rows(pooling, ends, model.shape().timeframes[k].steps);
            Ok(StreamedTimeframe { hidden: Buffer::zeros(scope, rows.len() * hidden)?, rows })
        };
        let timeframes = ends.into_iter().enumerate().map(timeframe).collect::<Result<_>>()?;
        let readers = (0..readers(compute)).map(|_| Reader::new(scope, model)).collect::<Result<_>>()?;
        Ok(StatefulInference { timeframes, readers, warm_up_windows: None })
    }

    /// The same with states that begin with zero `windows` windows before each stretch of the bars
    /// that are read, or with the segment where that is nearer: what lies between stretches that
    /// are farther from each other is not computed.
    #[must_use]
    pub fn with_warm_up(self, windows: usize) -> Self {
        StatefulInference { warm_up_windows: Some(windows), ..self }
    }

    /// Passages to compute: those through all segments in which states are asked for.
    pub fn passages<'a>(&'a mut self, model: &Model, series: &[Series<'a>]) -> Vec<Passage<'a>> {
        let mut all = Vec::new();
        let warm_up_windows = self.warm_up_windows;
        for (k, (streamed, series)) in self.timeframes.iter_mut().zip(series).enumerate() {
            let (timeframe, hidden) = (&model.shape().timeframes[k], model.config().hidden);
            let warm_up = warm_up_windows.map(|windows| windows.saturating_mul(timeframe.steps));
            let (mut asked, mut states) = (streamed.rows.as_slice(), streamed.hidden.as_mut_slice());
            while let Some(&last) = asked.last() {
                // From the last passage to the first: what comes before its start is split off.
                let segment_start = series.segment_start(last);
                let of_segment = asked.partition_point(|&row| row < segment_start);
                let (before, start) = match warm_up {
                    None => (of_segment, segment_start),
                    Some(bars) => {
                        let before = of_segment + last_stretch(&asked[of_segment..], bars);
                        (before, asked[before].saturating_sub(bars).max(segment_start))
                    }
                };
                let (earlier, own) = states.split_at_mut(before * hidden);
                all.push(Passage {
                    timeframe: k,
                    shape: (timeframe.steps, timeframe.features),
                    rows: start..last + 1,
                    values: series.values,
                    asked: &asked[before..],
                    hidden: own,
                });
                (asked, states) = (&asked[..before], earlier);
            }
        }
        // The longest ones first, so that threads end at about the same time.
        all.sort_by_key(|passage| std::cmp::Reverse(passage.rows.len()));
        all
    }

    /// The outputs [B, K, M] for the samples of `batch`, on the threads of the pool that this is
    /// called in.
    pub fn predict(&mut self, weights: Weights<'_>, batch: &BatchView<'_>, outputs: &mut [f32]) {
        self.read(batch, outputs, weights.model.outputs(), |reader, sample, outputs| {
            reader.decode(weights, sample);
            outputs.copy_from_slice(reader.decoding.outputs());
        });
    }

    /// The weights with which the timeframes of the samples of `batch` are fused, [B, heads, n, n].
    pub fn fusion_weights(&mut self, weights: Weights<'_>, batch: &BatchView<'_>, to: &mut [f32]) {
        let model = weights.model;
        self.read(batch, to, model.fusion_weights_len(), |reader, sample, row| {
            reader.decode(weights, sample);
            row.copy_from_slice(reader.decoding.fusion_weights(model.decoder(), 0));
        });
    }

    /// The weights with which attention pools the windows of `batch`: `[heads, T]` of one timeframe
    /// after another, a row a sample.
    pub fn pooling_weights(&mut self, weights: Weights<'_>, batch: &BatchView<'_>, to: &mut [f32]) {
        let model = weights.model;
        self.read(batch, to, model.pooling_weights_len(), |reader, sample, mut row| {
            reader.pool(weights, sample);
            for (pooled, of) in reader.poolings.iter().zip(model.poolings()) {
                let weights = pooled.memory.weights(of, 0);
                let (own, rest) = row.split_at_mut(weights.len());
                own.copy_from_slice(weights);
                row = rest;
            }
        });
    }

    /// Gives `each` every sample of `batch` and its row of `to`, rows of `width` numbers. Samples
    /// that follow each other go to one reader as far as can be.
    fn read(
        &mut self,
        batch: &BatchView<'_>,
        to: &mut [f32],
        width: usize,
        each: impl Fn(&mut Reader, Streaming<'_>, &mut [f32]) + Sync,
    ) {
        let StatefulInference { timeframes, readers, .. } = self;
        let share = batch.len().div_ceil(readers.len()).max(1);
        let shares = readers.par_iter_mut().zip(to.par_chunks_mut(share * width)).enumerate();
        shares.for_each(|(n, (reader, rows))| {
            for (k, row) in rows.chunks_exact_mut(width).enumerate() {
                each(reader, Streaming { timeframes, batch, sample: n * share + k }, row);
            }
        });
    }
}

/// A sample of a batch among the states that its windows read.
#[derive(Clone, Copy)]
struct Streaming<'a> {
    timeframes: &'a [StreamedTimeframe],
    batch: &'a BatchView<'a>,
    sample: usize,
}

impl<'a> Streaming<'a> {
    /// The row of the last bar of the sample's window of timeframe `k`, and the states [steps, H]
    /// up to there.
    fn window(self, k: usize, steps: usize, hidden: usize) -> (usize, &'a [f32]) {
        let (of, end) = (&self.timeframes[k], self.batch.ends(k)[self.sample]);
        let last = of.rows.binary_search(&end).expect("the end of a streamed sample");
        (end, &of.hidden.as_slice()[(last + 1 - steps) * hidden..(last + 1) * hidden])
    }
}

impl Reader {
    fn new(scope: &Scope, model: &Model) -> Result<Self> {
        let decoding = Decoding::new(scope, model.decoder(), ONE_SAMPLE, Purpose::Prediction)?;
        let pooled = |(of, timeframe): (_, &Timeframe)| {
            Ok(PooledWindow { memory: WindowPooling::new(scope, of, timeframe.steps, 1)?, end: None })
        };
        let poolings = model.poolings().iter().zip(&model.shape().timeframes).map(pooled).collect::<Result<_>>()?;
        Ok(Reader { poolings, decoding })
    }

    /// Takes a sample from the states at its windows' bars to its outputs.
    fn decode(&mut self, weights: Weights<'_>, sample: Streaming<'_>) {
        let Weights { model, parameters, precision, .. } = weights;
        let hidden = model.config().hidden;
        if !self.poolings.is_empty() {
            self.pool(weights, sample);
        }
        for (k, part) in self.decoding.encodings_mut(1).chunks_exact_mut(hidden).enumerate() {
            let pooled = self.poolings.get(k).map(|pooled| pooled.memory.pooled());
            part.copy_from_slice(pooled.unwrap_or_else(|| sample.window(k, 1, hidden).1));
        }
        self.decoding.forward_in(precision, PairIsa::of(precision), model.decoder(), parameters, None, None);
    }

    /// Pools a sample's windows by attention.
    fn pool(&mut self, Weights { model, parameters, precision, .. }: Weights<'_>, sample: Streaming<'_>) {
        let timeframes = model.poolings().iter().zip(&model.shape().timeframes);
        for (k, (pooled, (of, timeframe))) in self.poolings.iter_mut().zip(timeframes).enumerate() {
            let (end, states) = sample.window(k, timeframe.steps, model.config().hidden);
            // Samples that follow each other share the windows of long timeframes.
            if pooled.end != Some(end) {
                pooled.memory.forward(PairIsa::of(precision), of, parameters, states);
                pooled.end = Some(end);
            }
        }
    }
}

/// Works off `passages` with the memory of one thread, among others that do the same.
pub(crate) fn work_off(
    passages: &Mutex<std::vec::IntoIter<Passage<'_>>>,
    weights: Weights<'_>,
    memory: &mut ShardWorkspace,
) {
    let next = || passages.lock().expect("nobody panics with the lock held").next();
    while let Some(passage) = next() {
        passage.go(weights, memory);
    }
}

impl Passage<'_> {
    /// Goes through the segment, T bars at a time: what a window has room for.
    fn go(self, weights: Weights<'_>, memory: &mut ShardWorkspace) {
        let Passage { timeframe, shape: (steps, features), rows, values, asked, hidden } = self;
        let units = weights.model.config().hidden;
        let mut state = vec![0.0; crate::cpu::carried::state_len(weights.model)];
        let mut asked = asked.iter().zip(hidden.chunks_exact_mut(units)).peekable();
        for start in rows.clone().step_by(steps) {
            let end = rows.end.min(start + steps);
            memory.advance(weights.packed, timeframe, &values[start * features..end * features], &mut state);
            while let Some((row, top)) = asked.next_if(|(row, _)| **row < end) {
                memory.read_top(timeframe, 0, row - start, top);
                weights.model.lstms()[timeframe].read(weights.parameters, top);
            }
        }
    }
}

/// The hidden state [H] of the top layer, out of a state [layers, 2, H].
pub(crate) fn top_hidden(state: &[f32], hidden: usize) -> &[f32] {
    &state[state.len() - 2 * hidden..][..hidden]
}
