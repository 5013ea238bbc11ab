//! Chunks of stored windows that pass through a device, each of many batches.
//!
//! ```text
//! reader    gather chunk 1, copy it │ gather chunk 2, copy it │ wait │ gather chunk 3 …
//! training  wait                    │ batches of chunk 1             │ batches of chunk 2 …
//! ```
//!
//! A chunk has the windows of its batches one after another, in the order of the schedule. The
//! reader gathers it in memory that is page-locked, unless it is very large, rounds it there to the
//! run's precision, and copies it to the device beside the device's work; its batches then bring
//! numbers of windows, targets and weights. There are two chunks, taken once, never a third.

use std::iter::Peekable;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SendError, SyncSender};
use std::time::{Duration, Instant};

use megabatch_amp::Precision;
use megabatch_gpu_core::{FilledTables, VacantTables};
use megabatch_nn::batch::{BatchStorage, BatchView, WindowOffsets};
use megabatch_nn::model::SampleShape;
use megabatch_nn_cuda::round_windows;

use crate::data::prefetching::receive;
use crate::data::samples::Batch;
use crate::error::Result;

/// Most bytes of two chunks whose pages are locked for a GPU: the system has no other use for them,
/// and takes seconds to lock more.
pub const LOCKED_BYTES_MAX: u64 = 8 << 30;

/// The memory of two chunks on a device.
pub(crate) struct DeviceChunks {
    /// Samples that a chunk has room for.
    pub(crate) samples: usize,
    /// Precision that windows are rounded to.
    pub(crate) precision: Precision,
    pub(crate) tables: [VacantTables<u8>; 2],
}

impl DeviceChunks {
    /// True if two chunks of samples of `shape` are no larger than the pages that are locked.
    pub(crate) fn locks_pages(&self, shape: &SampleShape) -> bool {
        let windows: usize = (0..shape.timeframes.len()).map(|k| shape.window_len(k)).sum();
        let sample_bytes = (windows + shape.outputs) * size_of::<f32>();
        2 * self.samples as u64 * sample_bytes as u64 <= LOCKED_BYTES_MAX
    }
}

/// The samples of a chunk, batch by batch.
#[derive(Default)]
struct ChunkSamples {
    samples: Vec<usize>,
    /// The place in `samples` at which each batch ends.
    batch_ends: Vec<usize>,
}

impl ChunkSamples {
    /// The next batches of `schedule`: as many as `capacity` samples hold, and at least one; `None`
    /// after the last.
    fn next(schedule: &mut Peekable<impl Iterator<Item = Vec<usize>>>, capacity: usize) -> Option<Self> {
        let mut chunk = ChunkSamples::default();
        // An empty batch counts as one sample, so that a chunk ends.
        let mut counted = 0;
        while let Some(batch) = schedule.next_if(|batch| counted == 0 || counted + batch.len().max(1) <= capacity) {
            counted += batch.len().max(1);
            chunk.samples.extend_from_slice(&batch);
            chunk.batch_ends.push(chunk.samples.len());
        }
        (!chunk.batch_ends.is_empty()).then_some(chunk)
    }

    /// The places in the chunk of its `n`-th batch; `None` after its last.
    fn places(&self, n: usize) -> Option<Range<usize>> {
        let end = *self.batch_ends.get(n)?;
        Some(n.checked_sub(1).map_or(0, |before| self.batch_ends[before])..end)
    }
}

/// Memory of a chunk that nobody reads.
pub(crate) struct VacantChunk {
    batch: Batch,
    tables: VacantTables<u8>,
}

/// The targets and weights of a chunk on the host, and its windows on the device.
pub(crate) struct FilledChunk {
    batch: Batch,
    samples: ChunkSamples,
    tables: FilledTables<u8>,
}

impl VacantChunk {
    /// Memory of a chunk: `batch` on the host, and `tables` on the device.
    pub(crate) fn new(batch: Batch, tables: VacantTables<u8>) -> Self {
        VacantChunk { batch, tables }
    }

    /// The memory on the host.
    pub(crate) fn into_batch(self) -> Batch {
        self.batch
    }

    fn fill(
        &mut self,
        samples: &[usize],
        precision: Precision,
        gather: &impl Fn(&[usize], &mut Batch) -> Result<()>,
    ) -> Result<()> {
        let VacantChunk { batch, tables } = self;
        gather(samples, batch)?;
        for k in 0..batch.shape().timeframes.len() {
            tables.fill(k, round_windows(precision, batch.features_mut(k)))?;
        }
        Ok(())
    }

    fn into_filled(self, samples: ChunkSamples) -> FilledChunk {
        FilledChunk { batch: self.batch, samples, tables: self.tables.into_filled() }
    }
}

impl FilledChunk {
    fn into_batch(self) -> Batch {
        self.batch
    }
}

/// Sends the chunks of `schedule`, of up to `capacity` samples, which `gather` reads, rounded to
/// `precision`, until the schedule ends, a chunk cannot be read, nobody listens or `stop` is true.
/// Returns the memory of a chunk that it then has.
pub(crate) fn read_chunks(
    schedule: impl Iterator<Item = Vec<usize>>,
    capacity: usize,
    precision: Precision,
    gather: impl Fn(&[usize], &mut Batch) -> Result<()>,
    vacant: &Receiver<VacantChunk>,
    ready: &SyncSender<Result<FilledChunk>>,
    stop: &AtomicBool,
) -> Option<Batch> {
    let mut schedule = schedule.peekable();
    while let Some(samples) = ChunkSamples::next(&mut schedule, capacity) {
        let Ok(mut chunk) = vacant.recv() else { return None };
        if stop.load(Relaxed) {
            return Some(chunk.into_batch());
        }
        if let Err(error) = chunk.fill(&samples.samples, precision, &gather) {
            // Nobody waits for a read that was stopped.
            if stop.load(Relaxed) {
                return Some(chunk.into_batch());
            }
            let _ = ready.send(Err(error));
            return None;
        }
        if let Err(SendError(filled)) = ready.send(Ok(chunk.into_filled(samples))) {
            return filled.ok().map(FilledChunk::into_batch);
        }
    }
    None
}

/// Batches of chunks that [`read_chunks`] sends.
pub(crate) struct ChunkFeed<'a> {
    filled: Receiver<Result<FilledChunk>>,
    give_back: SyncSender<VacantChunk>,
    /// The chunk in use on the host, and its samples.
    current: Option<(Batch, ChunkSamples)>,
    /// Number of the next batch in it.
    next: usize,
    /// Offsets of the windows of a batch.
    offsets: WindowOffsets,
    waited: Duration,
    is_wanted: &'a dyn Fn() -> bool,
}

impl<'a> ChunkFeed<'a> {
    /// The feed of the chunks of `filled`; see [`receive`] for `is_wanted`.
    pub(crate) fn new(
        filled: Receiver<Result<FilledChunk>>,
        give_back: SyncSender<VacantChunk>,
        shape: &SampleShape,
        is_wanted: &'a dyn Fn() -> bool,
    ) -> Self {
        let offsets = WindowOffsets::with_capacity(shape, 0);
        ChunkFeed { filled, give_back, current: None, next: 0, offsets, waited: Duration::ZERO, is_wanted }
    }

    /// Where the chunk in use has no further batch and there is another: has `exchange` give its
    /// tables to the device, in the place of those before. They are filled anew after the work
    /// submitted so far.
    pub(crate) fn turn(&mut self, exchange: impl FnOnce(FilledTables<u8>) -> Option<FilledTables<u8>>) -> Result<()> {
        if self.current.as_ref().is_some_and(|(_, samples)| samples.places(self.next).is_some()) {
            return Ok(());
        }
        let start = Instant::now();
        let next = receive(&self.filled, self.is_wanted);
        self.waited += start.elapsed();
        let Some(FilledChunk { batch, samples, tables }) = next?.transpose()? else { return Ok(()) };
        let before = exchange(tables);
        self.next = 0;
        if let (Some((batch, _)), Some(tables)) = (self.current.replace((batch, samples)), before) {
            let vacant = VacantChunk::new(batch, tables.release()?);
            self.give_back.send(vacant).expect("the receiver outlives the feed and has room for both chunks");
        }
        Ok(())
    }

    /// The next batch of the chunk in use, or `None` after its last one.
    pub(crate) fn next(&mut self) -> Option<BatchView<'_>> {
        let ChunkFeed { current, next, offsets, .. } = self;
        let (batch, samples) = current.as_ref()?;
        let places = samples.places(*next)?;
        *next += 1;
        let chunk = batch.view();
        for (k, (starts, ends)) in offsets.starts.iter_mut().zip(&mut offsets.ends).enumerate() {
            starts.clear();
            starts.extend_from_slice(&chunk.starts(k)[places.clone()]);
            ends.clear();
            ends.extend_from_slice(&chunk.ends(k)[places.clone()]);
        }
        let (shape, outputs) = (batch.shape(), batch.shape().outputs);
        let targets = &chunk.targets()[places.start * outputs..places.end * outputs];
        let weights = chunk.weights().map(|weights| &weights[places]);
        let features = vec![&[] as &[f32]; shape.timeframes.len()];
        Some(BatchView::new(shape, features, offsets, BatchStorage::Chunk, targets).with_weights(weights))
    }

    /// The memory on the host of the chunks that are here, or on their way from the reader: this
    /// waits until it has ended.
    pub(crate) fn into_batches(self) -> Vec<Batch> {
        let ChunkFeed { filled, give_back, current, .. } = self;
        // A reader that waits for memory ends.
        drop(give_back);
        let on_their_way = filled.iter().flatten().map(FilledChunk::into_batch);
        current.into_iter().map(|(batch, _)| batch).chain(on_their_way).collect()
    }

    /// Time spent waiting for chunks since the last call.
    pub(crate) fn take_waited(&mut self) -> Duration {
        std::mem::take(&mut self.waited)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sizes of the batches of each chunk.
    fn chunks(sizes: &[usize], capacity: usize) -> Vec<Vec<usize>> {
        let mut schedule = sizes.iter().map(|&size| vec![7; size]).peekable();
        let chunks = std::iter::from_fn(|| ChunkSamples::next(&mut schedule, capacity));
        chunks.map(|chunk| (0..).map_while(|n| chunk.places(n)).map(|places| places.len()).collect()).collect()
    }

    #[test]
    fn a_chunk_takes_as_many_batches_as_fit() {
        assert_eq!(chunks(&[3, 3, 3, 2], 6), [[3, 3], [3, 2]]);
        assert_eq!(chunks(&[3, 3, 3], 7), [vec![3, 3], vec![3]]);
        assert_eq!(chunks(&[3, 3], 100), [[3, 3]]);
        assert_eq!(chunks(&[0, 0, 2], 2), [vec![0, 0], vec![2]]);
        assert!(chunks(&[], 5).is_empty());
    }
}
