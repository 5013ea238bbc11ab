//! Predictions from carried state: with the weights at rest, the state at a bar is that of one pass
//! over its segment from zero, one step a bar, whatever windows are asked for.
//!
//! A pass goes T bars at a time from the first bar of its segment on. Windows that are asked for
//! piece by piece go on from a state between two such steps, so that every product has the rows
//! that it has in one pass over all.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use megabatch_gpu_core::{Buffer, Scope};
use megabatch_nn::Result;
use megabatch_nn::batch::{BatchView, SegmentBars};
use megabatch_nn::model::pooling::Pooling;
use megabatch_nn::model::{Model, ModelConfig, Timeframe};
use rayon::prelude::*;

use crate::compute::{Capacity, Compute, Purpose, buffer_lens};
use crate::decoder::{self, Decoding};
use crate::norm::read_top;
use crate::pooling::WindowPooling;
use crate::shard::{ShardWorkspace, Weights};

/// Capacity to decode one sample at a time.
pub(crate) const ONE_SAMPLE: Capacity = Capacity { samples: 1, edges: 0, run: 1, threads: 1 };

/// The top layers' hidden states at the bars of some samples' windows that are read.
#[derive(Debug)]
pub struct StatefulInference {
    scope: Scope,
    timeframes: Vec<StreamedTimeframe>,
    /// Windows that states begin ahead of what is read; `None` begins with the segment.
    warm_up_windows: Option<usize>,
    /// One a thread.
    readers: Vec<Reader>,
    /// States that passages of the next piece go on from, by timeframe and first bar of the
    /// segment: those of the segments of the last piece that had any of the timeframe.
    resumable: BTreeMap<(usize, usize), BoundaryState>,
}

/// State between two chunks of T bars of a scan.
#[derive(Clone, Debug)]
struct BoundaryState {
    /// Row of the bar after it.
    row: usize,
    /// `[layers, S, H]`.
    state: Vec<f32>,
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
    /// Capacity for the T bars [T, F] of a scan that are not in memory, of any timeframe.
    bars: Buffer<f32>,
}

/// The window that was pooled last.
#[derive(Debug)]
struct PooledWindow {
    memory: WindowPooling,
    /// The row of its last bar.
    end: Option<usize>,
}

/// Scan of one segment of one timeframe, up to the last bar whose state is needed.
struct SegmentScan<'a> {
    timeframe: usize,
    /// T and F.
    shape: (usize, usize),
    /// Rows of the segment.
    rows: Range<usize>,
    /// The state before the first of them, [layers, S, H].
    state: Vec<f32>,
    /// The rows whose states are asked for, ascending, and where those go, [asked, H].
    asked: &'a [usize],
    hidden: &'a mut [f32],
    /// Boundary whose state is kept; `None` where none is.
    boundary: Option<Boundary>,
}

/// Boundary between two chunks of T bars of a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Boundary {
    /// First bar of the segment.
    segment_start: usize,
    /// Row of the bar after the boundary.
    row: usize,
}

/// Queue of scans that threads take from.
pub(crate) struct SegmentScans<'a, B: SegmentBars> {
    bars: &'a B,
    /// Scans that no thread has taken.
    queue: Mutex<std::vec::IntoIter<SegmentScan<'a>>>,
    kept: Mutex<BTreeMap<(usize, usize), BoundaryState>>,
    failure: Mutex<Option<B::Error>>,
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

/// Index in `rows`, ascending, of the last stretch whose rows are at most `gap` apart.
fn last_stretch(rows: &[usize], gap: usize) -> usize {
    (1..rows.len()).rev().find(|&place| rows[place] - rows[place - 1] > gap).unwrap_or(0)
}

/// Samples read at a time.
fn readers(compute: Compute) -> usize {
    compute.threads.min(compute.batch_size)
}

/// Numbers in each buffer of [`StatefulInference`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamedLens {
    /// Buffers of all that read states, which are taken first.
    pub readers: Vec<usize>,
    /// Buffers of the states, one a timeframe.
    pub states: Vec<usize>,
}

impl StreamedLens {
    /// The lengths for timeframes of so many rows that are read and T bars in a window.
    pub fn new(model: &Model, compute: Compute, timeframes: impl Iterator<Item = (usize, usize)>) -> Self {
        let ModelConfig { hidden, pooling, .. } = model.config();
        let mut reader = buffer_lens(decoder::buffer_plan(model.decoder(), ONE_SAMPLE, Purpose::Prediction));
        let mut states = Vec::new();
        for (rows, steps) in timeframes {
            if let Pooling::Attention { heads } = pooling {
                reader.extend(WindowPooling::lens(heads, hidden, steps, 1));
            }
            states.push(hidden * rows);
        }
        reader.push(largest_window_len(model));
        StreamedLens { readers: reader.repeat(readers(compute)), states }
    }

    /// Numbers in all of them.
    pub fn total(&self) -> usize {
        self.readers.iter().chain(&self.states).sum()
    }
}

/// Numbers in the largest window [T, F] of any timeframe.
fn largest_window_len(model: &Model) -> usize {
    (0..model.shape().timeframes.len()).map(|k| model.shape().window_len(k)).max().unwrap_or(0)
}

impl StatefulInference {
    /// Capacity to read states, booked on `scope`, before any are asked for.
    ///
    /// # Errors
    /// [`Error::Memory`](megabatch_nn::Error::Memory) when the device has no room.
    pub fn new(scope: &Scope, model: &Model, compute: Compute) -> Result<Self> {
        let readers = (0..readers(compute)).map(|_| Reader::new(scope, model)).collect::<Result<_>>()?;
        Ok(StatefulInference {
            scope: scope.clone(),
            timeframes: Vec::new(),
            readers,
            warm_up_windows: None,
            resumable: BTreeMap::new(),
        })
    }

    /// The same with states that begin with zero `windows` windows before each stretch of the bars
    /// that are read, or with the segment where that is nearer: what lies between stretches that
    /// are farther from each other is not computed. All windows are then to be asked for at once.
    #[must_use]
    pub fn with_warm_up(self, windows: usize) -> Self {
        StatefulInference { warm_up_windows: Some(windows), ..self }
    }

    /// Asks for the states that are read of windows which end at the rows `ends` of each timeframe,
    /// ascending, in place of those that were asked for before.
    ///
    /// # Errors
    /// As [`StatefulInference::new`].
    pub fn ask(&mut self, model: &Model, ends: Vec<Vec<usize>>) -> Result<()> {
        let ModelConfig { hidden, pooling, .. } = model.config();
        // Given back before the memory of the new ones is taken.
        self.timeframes.clear();
        let scope = &self.scope;
        let timeframe = |(k, ends): (usize, Vec<usize>)| {
            let rows = read_rows(pooling, ends, model.shape().timeframes[k].steps);
            Ok(StreamedTimeframe { hidden: Buffer::zeros(scope, rows.len() * hidden)?, rows })
        };
        self.timeframes = ends.into_iter().enumerate().map(timeframe).collect::<Result<_>>()?;
        Ok(())
    }

    /// Does `work` with the passages to compute, those through all segments in which states are
    /// asked for, and a buffer a thread for [`SegmentScans::run`].
    ///
    /// # Errors
    /// The error of `bars`, which cannot be read.
    pub(crate) fn with_passages<B: SegmentBars>(
        &mut self,
        model: &Model,
        bars: &B,
        work: impl FnOnce(&SegmentScans<'_, B>, Vec<&mut [f32]>),
    ) -> std::result::Result<(), B::Error> {
        let StatefulInference { timeframes, warm_up_windows, readers, resumable, .. } = self;
        let mut all = Vec::new();
        for (k, timeframe) in timeframes.iter_mut().enumerate() {
            let planner = ScanPlanner { model, timeframe: k, warm_up_windows: *warm_up_windows, resumable };
            planner.add(timeframe, |row| bars.segment_start(k, row), &mut all);
        }
        // The longest ones first, so that threads end at about the same time.
        all.sort_by_key(|scan| std::cmp::Reverse(scan.rows.len()));
        let scans = SegmentScans {
            bars,
            queue: Mutex::new(all.into_iter()),
            kept: Mutex::default(),
            failure: Mutex::default(),
        };
        work(&scans, readers.iter_mut().map(|reader| reader.bars.as_mut_slice()).collect());
        let SegmentScans { kept, failure, .. } = scans;
        let kept = kept.into_inner().unwrap_or_else(PoisonError::into_inner);
        resumable.retain(|(k, _), _| !kept.keys().any(|(kept_key, _)| kept_key == k));
        resumable.extend(kept);
        failure.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
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
            for (pooled, pooling) in reader.poolings.iter().zip(model.poolings()) {
                let weights = pooled.memory.weights(pooling, 0);
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
        let (timeframe, end) = (&self.timeframes[k], self.batch.ends(k)[self.sample]);
        let last = timeframe.rows.binary_search(&end).expect("the end of a streamed sample");
        (end, &timeframe.hidden.as_slice()[(last + 1 - steps) * hidden..(last + 1) * hidden])
    }
}

impl Reader {
    fn new(scope: &Scope, model: &Model) -> Result<Self> {
        let decoding = Decoding::new(scope, model.decoder(), ONE_SAMPLE, Purpose::Prediction)?;
        let pooled = |(pooling, timeframe): (_, &Timeframe)| {
            Ok(PooledWindow { memory: WindowPooling::new(scope, pooling, timeframe.steps, 1)?, end: None })
        };
        let poolings = model.poolings().iter().zip(&model.shape().timeframes).map(pooled).collect::<Result<_>>()?;
        Ok(Reader { poolings, decoding, bars: Buffer::zeros(scope, largest_window_len(model))? })
    }

    /// Takes a sample from the states at its windows' bars to its outputs.
    fn decode(&mut self, weights: Weights<'_>, sample: Streaming<'_>) {
        let Weights { model, parameters, packed } = weights;
        let hidden = model.config().hidden;
        if !self.poolings.is_empty() {
            self.pool(weights, sample);
        }
        for (k, part) in self.decoding.encodings_mut(1).chunks_exact_mut(hidden).enumerate() {
            let pooled = self.poolings.get(k).map(|pooled| pooled.memory.pooled());
            part.copy_from_slice(pooled.unwrap_or_else(|| sample.window(k, 1, hidden).1));
        }
        self.decoding.forward_in(packed.arithmetic(), model.decoder(), parameters, None, None);
    }

    /// Pools a sample's windows by attention.
    fn pool(&mut self, Weights { model, parameters, packed }: Weights<'_>, sample: Streaming<'_>) {
        let timeframes = model.poolings().iter().zip(&model.shape().timeframes);
        for (k, (pooled, (pooling, timeframe))) in self.poolings.iter_mut().zip(timeframes).enumerate() {
            let (end, states) = sample.window(k, timeframe.steps, model.config().hidden);
            // Samples that follow each other share the windows of long timeframes.
            if pooled.end != Some(end) {
                pooled.memory.forward(packed.arithmetic().bf16_isa(), pooling, parameters, states);
                pooled.end = Some(end);
            }
        }
    }
}

/// Splits the segments of a timeframe into scans that threads can run independently.
struct ScanPlanner<'a> {
    model: &'a Model,
    timeframe: usize,
    warm_up_windows: Option<usize>,
    resumable: &'a BTreeMap<(usize, usize), BoundaryState>,
}

impl ScanPlanner<'_> {
    fn add<'a>(
        &self,
        streamed: &'a mut StreamedTimeframe,
        segment_start_of: impl Fn(usize) -> usize,
        all: &mut Vec<SegmentScan<'a>>,
    ) {
        let (timeframe, hidden) = (&self.model.shape().timeframes[self.timeframe], self.model.config().hidden);
        let (mut asked, mut states) = (streamed.rows.as_slice(), streamed.hidden.as_mut_slice());
        while let Some(&last) = asked.last() {
            // From the last scan to the first: what comes before its start is split off.
            let segment_start = segment_start_of(last);
            let first_in_segment = asked.partition_point(|&row| row < segment_start);
            let (before, BoundaryState { row, state }) = match self.warm_up_windows {
                None => (first_in_segment, self.start(segment_start, asked[first_in_segment])),
                Some(windows) => {
                    let bars = windows.saturating_mul(timeframe.steps);
                    let before = first_in_segment + last_stretch(&asked[first_in_segment..], bars);
                    (before, self.zero(asked[before].saturating_sub(bars).max(segment_start)))
                }
            };
            let (earlier, own) = states.split_at_mut(before * hidden);
            all.push(SegmentScan {
                timeframe: self.timeframe,
                shape: (timeframe.steps, timeframe.features),
                rows: row..last + 1,
                state,
                asked: &asked[before..],
                hidden: own,
                boundary: self.warm_up_windows.is_none().then(|| self.boundary(segment_start, last)),
            });
            (asked, states) = (&asked[..before], earlier);
        }
    }

    /// State from which a scan of a segment gets to `first`, the first row that is asked
    /// for.
    fn start(&self, segment_start: usize, first: usize) -> BoundaryState {
        let resumed = self.resumable.get(&(self.timeframe, segment_start)).filter(|at| at.row <= first);
        resumed.cloned().unwrap_or_else(|| self.zero(segment_start))
    }

    fn zero(&self, row: usize) -> BoundaryState {
        BoundaryState { row, state: vec![0.0; self.model.config().state_len()] }
    }

    /// The last boundary before all rows that are read of windows which end at the row `last` or
    /// later.
    fn boundary(&self, segment_start: usize, last: usize) -> Boundary {
        let steps = self.model.shape().timeframes[self.timeframe].steps;
        let read = match self.model.config().pooling {
            Pooling::Last => 1,
            Pooling::Attention { .. } => steps,
        };
        let first_read = (last + 1).saturating_sub(read).max(segment_start);
        Boundary { segment_start, row: first_read - (first_read - segment_start) % steps }
    }
}

impl<B: SegmentBars> SegmentScans<'_, B> {
    /// Runs scans from the queue on this thread, with its memory and with `buffer` for bars, until
    /// none is left or bars cannot be read.
    pub(crate) fn run(&self, weights: Weights<'_>, memory: &mut ShardWorkspace, buffer: &mut [f32]) {
        const HELD: &str = "nobody panics with the lock held";
        let next = || self.queue.lock().expect(HELD).next();
        while let Some(scan) = next().filter(|_| self.failure.lock().expect(HELD).is_none()) {
            let timeframe = scan.timeframe;
            match scan.run(self.bars, weights, memory, buffer) {
                Ok(Some((Boundary { segment_start, row }, state))) => {
                    self.kept.lock().expect(HELD).insert((timeframe, segment_start), BoundaryState { row, state });
                }
                Ok(None) => {}
                Err(error) => {
                    self.failure.lock().expect(HELD).get_or_insert(error);
                }
            }
        }
    }
}

impl SegmentScan<'_> {
    /// Runs over the segment T bars at a time. Returns the boundary and the state there.
    fn run<B: SegmentBars>(
        self,
        bars: &B,
        weights: Weights<'_>,
        memory: &mut ShardWorkspace,
        buffer: &mut [f32],
    ) -> std::result::Result<Option<(Boundary, Vec<f32>)>, B::Error> {
        let SegmentScan { timeframe, shape: (steps, features), rows, mut state, asked, hidden, boundary } = self;
        let units = weights.model.config().hidden;
        let mut asked = asked.iter().zip(hidden.chunks_exact_mut(units)).peekable();
        let mut kept = None;
        for start in rows.clone().step_by(steps) {
            let end = rows.end.min(start + steps);
            if let Some(boundary) = boundary.filter(|boundary| boundary.row == start) {
                kept = Some((boundary, state.clone()));
            }
            let read = bars.bars(timeframe, start..end, &mut buffer[..(end - start) * features])?;
            memory.advance(weights.packed, timeframe, read, &mut state);
            while let Some((row, top)) = asked.next_if(|(row, _)| **row < end) {
                memory.read_top(timeframe, 0, row - start, top);
                read_top(&weights.model.recurrent_layers()[timeframe], weights.parameters, top);
            }
        }
        Ok(kept)
    }
}

/// The hidden state [H] of the top layer, out of a state [layers, S, H].
pub(crate) fn top_hidden(state: &[f32], config: ModelConfig) -> &[f32] {
    let ModelConfig { cell, hidden, .. } = config;
    &state[state.len() - cell.states() * hidden..][..hidden]
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    use megabatch_amp::Precision;
    use megabatch_gpu_core::Device;
    use megabatch_nn::model::{Cell, SampleShape};
    use proptest::prelude::*;

    use super::*;
    use crate::step::Engine;

    const STEPS: [usize; 2] = [5, 3];
    const FEATURES: [usize; 2] = [2, 3];
    const BARS: usize = 90;
    const SEGMENT_STARTS: [usize; 3] = [0, 4, 41];

    /// Made-up bars that are read into the buffer, counted, and fail to be from a row on.
    struct FromFile {
        values: [Vec<f32>; 2],
        rows_read: AtomicUsize,
        fails_at_row: Option<usize>,
    }

    impl FromFile {
        fn new(fails_at_row: Option<usize>) -> Self {
            let values = FEATURES.map(|width| (0..BARS * width).map(|n| (n as f32 * 0.37).sin()).collect());
            FromFile { values, rows_read: AtomicUsize::new(0), fails_at_row }
        }
    }

    impl SegmentBars for FromFile {
        type Error = String;

        fn segment_start(&self, _: usize, row: usize) -> usize {
            *SEGMENT_STARTS.iter().rfind(|&&start| start <= row).unwrap()
        }

        fn bars<'a>(&'a self, k: usize, rows: Range<usize>, buffer: &'a mut [f32]) -> Result<&'a [f32], String> {
            self.rows_read.fetch_add(rows.len(), Relaxed);
            if self.fails_at_row.is_some_and(|row| rows.contains(&row)) {
                return Err(format!("no bars {rows:?}"));
            }
            buffer.copy_from_slice(&self.values[k][rows.start * FEATURES[k]..rows.end * FEATURES[k]]);
            Ok(buffer)
        }
    }

    /// Rows of a timeframe and the bits of their states.
    type RowStates = Vec<(usize, Vec<u32>)>;

    fn model(pooling: Pooling, cell: Cell) -> Model {
        let timeframe = |k: usize| Timeframe { name: format!("T{k}"), steps: STEPS[k], features: FEATURES[k] };
        let shape = SampleShape { timeframes: (0..2).map(timeframe).collect(), outputs: 1 };
        Model::new(shape, ModelConfig { cell, hidden: 6, layers: 2, pooling, ..ModelConfig::default() }).unwrap()
    }

    /// Asks for the windows that end at each of the rows, piece by piece, and gives rows and states
    /// of each timeframe of each piece.
    fn states_of(
        model: &Model,
        pieces: &[Vec<usize>],
        threads: usize,
        bars: &FromFile,
    ) -> Result<Vec<RowStates>, String> {
        let (device, compute) = (Device::cpu(), Compute { threads, batch_size: 64 });
        let scope = device.scope("test");
        let parameters = model.initial_parameters(&scope, 5).unwrap();
        let mut engine = Engine::new(&device, model, compute, Purpose::Prediction, Precision::Fp32).unwrap();
        engine.load(model, &parameters);
        let mut inference = StatefulInference::new(&scope, model, compute).unwrap();
        let mut states = Vec::new();
        for piece in pieces {
            let ends = |steps: usize| {
                let fits = |end: &usize| end + 1 >= bars.segment_start(0, *end) + steps;
                let mut ends: Vec<usize> = piece.iter().copied().filter(fits).collect();
                ends.sort_unstable();
                ends.dedup();
                ends
            };
            inference.ask(model, STEPS.map(ends).to_vec()).unwrap();
            engine.stream(model, &parameters, bars, &mut inference)?;
            states.extend(inference.timeframes.iter().map(|StreamedTimeframe { rows, hidden }| {
                let bits = hidden.as_slice().chunks_exact(6).map(|state| state.iter().map(|x| x.to_bits()).collect());
                rows.iter().copied().zip(bits).collect::<Vec<_>>()
            }));
        }
        Ok(states)
    }

    proptest! {
        #[test]
        fn states_asked_for_piece_by_piece_are_those_of_one_pass(
            mut rows in prop::collection::vec(0..BARS, 1..60), cuts in prop::collection::vec(1usize..20, 30),
            (attends, ascends, gru) in any::<(bool, bool, bool)>(), threads in 1usize..4,
        ) {
            let pooling = if attends { Pooling::attention(6) } else { Pooling::Last };
            let model = model(pooling, if gru { Cell::Gru } else { Cell::Lstm });
            if ascends {
                rows.sort_unstable();
            }
            let mut left = rows.as_slice();
            let mut pieces = Vec::new();
            for cut in cuts {
                let (piece, rest) = left.split_at(cut.min(left.len()));
                pieces.push(piece.to_vec());
                left = rest;
            }
            pieces.push(left.to_vec());
            let bars = FromFile::new(None);
            let found = states_of(&model, &pieces, threads, &bars).unwrap();
            let whole = states_of(&model, &[rows], 1, &FromFile::new(None)).unwrap();
            for (n, piece) in found.into_iter().enumerate() {
                for (row, state) in piece {
                    let place = whole[n % 2].binary_search_by_key(&row, |(row, _)| *row).unwrap();
                    prop_assert_eq!(&state, &whole[n % 2][place].1, "timeframe {}, row {}", n % 2, row);
                }
            }
            // What comes again of a segment is less than two windows a piece.
            let again: usize = pieces.len() * 2 * STEPS.iter().sum::<usize>();
            prop_assert!(!ascends || bars.rows_read.into_inner() <= 2 * BARS + again);
        }
    }

    #[test]
    fn bars_that_cannot_be_read_are_an_error() {
        let (model, rows) = (model(Pooling::Last, Cell::Lstm), vec![30, 80]);
        for threads in [1, 2] {
            let error = states_of(&model, std::slice::from_ref(&rows), threads, &FromFile::new(Some(60))).unwrap_err();
            assert!(error.starts_with("no bars "), "{error}");
        }
        assert!(states_of(&model, &[rows], 2, &FromFile::new(Some(81))).is_ok());
    }
}
