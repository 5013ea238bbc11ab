//! Batches read on another thread, one ahead of the computation.

use std::cell::Cell;
use std::collections::VecDeque;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use megabatch_gpu_core::{FilledTables, Scope};
use megabatch_nn::batch::{BatchStorage, BatchView, WindowOffsets};
use megabatch_nn::graph::{EdgeForm, GraphBatch, Graphs, samples_of};
use megabatch_nn::model::SampleShape;

use crate::data::device_chunks::{ChunkFeed, DeviceChunks, VacantChunk, read_chunks};
use crate::data::prefetching::{BorrowedBatch, Chunking, INTERRUPTED, LoadedBatches, Waits, receive};
use crate::data::sample_weights::LossInputs;
use crate::data::samples::{Batch, Samples, StreamedSeries};
use crate::error::{Error, Result};

/// Source of batches, and the memory that they take.
#[derive(Clone, Copy)]
pub(crate) struct Source<'a> {
    pub(crate) samples: &'a dyn Samples,
    /// The graphs that batches are made of, where they are not made of samples.
    pub(crate) graphs: Option<&'a dyn Graphs>,
    pub(crate) edge_form: EdgeForm,
    pub(crate) scope: &'a Scope,
    /// Samples, or graphs, in the largest batch.
    pub(crate) batch_size: usize,
    /// Size of the chunks that samples load ahead, in percent of the plan.
    pub(crate) chunk_percent: u32,
    pub(crate) gather_mode: GatherMode,
    /// Scales of targets and weights of samples, for training.
    pub(crate) loss_inputs: LossInputs<'a>,
}

/// Gathering of the windows of samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GatherMode {
    /// The bars that they cover: of series each once, or whole windows.
    Bars,
    /// Offsets of the windows, for a device that has the series or the stored windows.
    WindowOffsets,
}

impl Source<'_> {
    /// Samples in the largest batch.
    fn capacity(&self) -> usize {
        self.batch_size * self.graphs.map_or(1, |graphs| graphs.largest().0)
    }

    /// The series in a file that bars are read from.
    fn streamed(&self) -> Option<&dyn StreamedSeries> {
        self.samples.streamed_series().filter(|_| self.gather_mode == GatherMode::Bars)
    }

    /// A batch with capacity for the largest.
    fn batch(&self) -> Result<Batch> {
        let (shape, capacity) = (self.samples.shape(), self.capacity());
        match self.gather_mode {
            GatherMode::WindowOffsets => Batch::for_offsets(self.scope, shape, capacity),
            GatherMode::Bars => Batch::new(self.scope, shape, capacity),
        }
    }
}

/// Calls `consume` with a feed of the batches of `schedule`, in order; another thread reads the
/// next one meanwhile. Reading ends when `consume` returns, amid a batch too. All memory lives
/// until then, so that its peak depends on shapes and not on timing: two batches, the one being
/// consumed and the one being read, or the memory of samples that load themselves ahead. A feed
/// that waits for a batch asks `is_wanted`; once that returns false, its error is
/// [`Error::Interrupted`].
pub(crate) fn with_batches<'a, T>(
    source: Source<'a>,
    schedule: impl Iterator<Item = Vec<usize>> + Send + 'a,
    is_wanted: &'a dyn Fn() -> bool,
    consume: impl FnOnce(&mut BatchFeed<'_>) -> Result<T>,
) -> Result<T> {
    if let Some(samples) = source.samples.load_ahead() {
        let requested = RequestedGraphs::default();
        let lists = requested.clone().note(schedule, source.graphs);
        let chunking = Chunking { percent: source.chunk_percent, batch_samples: source.capacity() };
        let batches = samples.load(Box::new(lists), chunking).map_err(|source| Error::PrefetchingSource { source })?;
        return consume(&mut BatchFeed::Loaded(Loaded::new(batches, source, requested, is_wanted)));
    }
    let (give_back, empty) = sync_channel(2);
    let stop = Arc::new(AtomicBool::new(false));
    for _ in 0..2 {
        let mut batch = source.batch()?;
        batch.stop_by(&stop);
        give_back.send(batch).expect("the receiver is alive and has room for two");
    }
    let (ready, gathered) = sync_channel(1);
    let streamed = source.streamed();
    let reported = streamed.map_or(Waits::default(), StreamedSeries::read_times);
    // Lent to the reader: batches that wait in the channel when it ends stay allocated.
    let empty = Mutex::new(empty);
    thread::scope(|scope| {
        let empty = &empty;
        scope.spawn(move || {
            let empty = empty.lock().expect("the reader alone locks it");
            read(source, schedule, &empty, &ready);
        });
        // Owned by this closure, so that it is gone, and the reader told to end, before the scope
        // waits for the reader.
        let waited = Duration::ZERO;
        let gathered = Gathered { gathered, give_back, current: None, waited, streamed, reported, is_wanted };
        let outcome = consume(&mut BatchFeed::Gathered(gathered));
        stop.store(true, Relaxed);
        outcome
    })
}

/// Calls `consume` with a feed of the batches of `schedule`, as [`with_batches`] does, of samples
/// whose windows pass through a device in `chunks`. Another thread gathers the next chunk, and
/// copies it there, while the batches of the one before are consumed. The memory of both on the
/// host, whose pages take seconds to lock, is that of `staging` where it has any, and is there
/// afterwards for the next call.
pub(crate) fn with_chunks<'a, T>(
    source: Source<'a>,
    chunks: DeviceChunks,
    staging: &mut Vec<Batch>,
    schedule: impl Iterator<Item = Vec<usize>> + Send + 'a,
    is_wanted: &'a dyn Fn() -> bool,
    consume: impl FnOnce(&mut BatchFeed<'_>) -> Result<T>,
) -> Result<T> {
    let DeviceChunks { samples, precision, tables } = chunks;
    let (give_back, vacant) = sync_channel(2);
    let stop = Arc::new(AtomicBool::new(false));
    for tables in tables {
        let mut batch = match staging.pop() {
            Some(batch) => batch,
            None => Batch::new(source.scope, source.samples.shape(), samples)?,
        };
        batch.stop_by(&stop);
        give_back.send(VacantChunk::new(batch, tables)).expect("the receiver is alive and has room for two");
    }
    let (ready, filled) = sync_channel(1);
    // Lent to the reader: chunks that wait in the channel when it ends stay allocated.
    let vacant = Mutex::new(vacant);
    let outcome = thread::scope(|scope| {
        let (vacant, stop) = (&vacant, &stop);
        let reader = scope.spawn(move || {
            let gather_chunk = |indices: &[usize], batch: &mut Batch| -> Result<()> {
                gather(source, indices, batch)?;
                source.loss_inputs.apply(indices, batch);
                Ok(())
            };
            let vacant = vacant.lock().expect("the reader alone locks it");
            read_chunks(schedule, samples, precision, gather_chunk, &vacant, &ready, stop)
        });
        // As in `with_batches`, gone before the scope waits for the reader.
        let mut feed = BatchFeed::Chunked(ChunkFeed::new(filled, give_back, source.samples.shape(), is_wanted));
        let outcome = consume(&mut feed);
        stop.store(true, Relaxed);
        if let BatchFeed::Chunked(chunks) = feed {
            staging.extend(chunks.into_batches());
        }
        staging.extend(reader.join().unwrap_or_else(|panic| resume_unwind(panic)));
        outcome
    });
    let vacant = vacant.into_inner().expect("the reader did not panic");
    staging.extend(vacant.try_iter().map(VacantChunk::into_batch));
    outcome
}

/// Sends gathered batches until the schedule ends, a batch cannot be read or nobody listens.
fn read<'a>(
    source: Source<'a>,
    schedule: impl Iterator<Item = Vec<usize>>,
    empty: &Receiver<Batch>,
    ready: &SyncSender<Result<Ready<'a>>>,
) {
    for indices in schedule {
        let Ok(batch) = empty.recv() else { return };
        let gathered = gather_all(source, &indices, batch);
        let failed = gathered.is_err();
        if ready.send(gathered).is_err() || failed {
            return;
        }
    }
}

/// Gathers the samples `indices`, or the graphs.
fn gather_all<'a>(source: Source<'a>, indices: &[usize], mut batch: Batch) -> Result<Ready<'a>> {
    let Some(graphs) = source.graphs else {
        gather(source, indices, &mut batch)?;
        source.loss_inputs.apply(indices, &mut batch);
        return Ok(Ready { batch, graphs: None });
    };
    let views = GraphBatch::read(graphs, indices, source.edge_form)?;
    let nodes = samples_of(graphs, indices);
    gather(source, &nodes, &mut batch)?;
    source.loss_inputs.apply(&nodes, &mut batch);
    Ok(Ready { batch, graphs: Some(views) })
}

fn gather(source: Source<'_>, indices: &[usize], batch: &mut Batch) -> Result<()> {
    let Source { samples, gather_mode, .. } = source;
    let (first, last) = (indices.iter().min().copied(), indices.iter().max().copied());
    let (Some(first), Some(last)) = (first, last) else {
        batch.resize(0);
        return Ok(());
    };
    if last >= samples.len() {
        return Err(Error::SampleOutOfRange { sample: last, len: samples.len() });
    }
    let failed = |source| Error::Gather { first, last, count: indices.len(), source };
    if let Some(series) = source.streamed() {
        return batch.read_series(samples, series, indices).map_err(failed);
    }
    let series = samples.series();
    if let Some(series) = &series {
        series.check(samples.shape())?;
    }
    match (gather_mode, &series) {
        (GatherMode::Bars, Some(series)) => batch.take_series(series, indices)?,
        (GatherMode::WindowOffsets, Some(series)) => batch.take_window_offsets(series, indices)?,
        (GatherMode::WindowOffsets, None) => {
            batch.resize(indices.len());
            samples.read_targets(indices, batch.targets_mut()).map_err(failed)?;
        }
        (GatherMode::Bars, None) => {
            batch.resize(indices.len());
            samples.gather(indices, batch).map_err(failed)?;
        }
    }
    batch.note_ends(series.as_ref(), indices)
}

/// The batches, in the order of the schedule.
pub(crate) enum BatchFeed<'a> {
    /// Read batch by batch by a thread of [`with_batches`].
    Gathered(Gathered<'a>),
    /// Loaded ahead by the samples themselves.
    Loaded(Loaded<'a>),
    /// Batches of chunks on a device, which the thread of [`with_chunks`] gathers.
    Chunked(ChunkFeed<'a>),
}

impl BatchFeed<'_> {
    /// Before [`BatchFeed::next`]: has `exchange` give the device the chunk that the next batch is
    /// of, where it has another, see [`ChunkFeed::turn`]. Other batches bring their windows.
    pub(crate) fn turn_chunk(
        &mut self,
        exchange: impl FnOnce(FilledTables<u8>) -> Option<FilledTables<u8>>,
    ) -> Result<()> {
        match self {
            BatchFeed::Chunked(chunks) => chunks.turn(exchange),
            BatchFeed::Gathered(_) | BatchFeed::Loaded(_) => Ok(()),
        }
    }

    /// The next batch, or `None` after the last one. The batch before it is given back to its
    /// reader.
    pub(crate) fn next(&mut self) -> Result<Option<BatchView<'_>>> {
        match self {
            BatchFeed::Gathered(gathered) => gathered.next(),
            BatchFeed::Loaded(loaded) => loaded.next(),
            BatchFeed::Chunked(chunks) => Ok(chunks.next()),
        }
    }

    /// Time spent waiting for data since the last call, by cause where the cause is known.
    pub(crate) fn take_waited(&mut self) -> (Duration, Option<Waits>) {
        match self {
            BatchFeed::Gathered(gathered) => gathered.take_waited(),
            BatchFeed::Loaded(loaded) => {
                let waits = loaded.take_waits();
                (waits.total(), Some(waits))
            }
            BatchFeed::Chunked(chunks) => (chunks.take_waited(), None),
        }
    }
}

/// A batch that was gathered.
struct Ready<'a> {
    batch: Batch,
    graphs: Option<GraphBatch<'a>>,
}

impl Ready<'_> {
    fn view(&self) -> BatchView<'_> {
        self.batch.view().with_graphs(self.graphs.as_ref())
    }
}

/// Batches that the thread of [`with_batches`] gathers.
pub(crate) struct Gathered<'a> {
    gathered: Receiver<Result<Ready<'a>>>,
    give_back: SyncSender<Batch>,
    current: Option<Ready<'a>>,
    waited: Duration,
    /// The series in a file that batches are read from.
    streamed: Option<&'a dyn StreamedSeries>,
    /// Read times reported so far.
    reported: Waits,
    is_wanted: &'a dyn Fn() -> bool,
}

impl Gathered<'_> {
    fn take_waited(&mut self) -> (Duration, Option<Waits>) {
        let waited = std::mem::take(&mut self.waited);
        let Some(series) = self.streamed else { return (waited, None) };
        let all = series.read_times();
        let new_waits = all - self.reported;
        self.reported = all;
        (waited, Some(new_waits.apportion(waited)))
    }

    fn next(&mut self) -> Result<Option<BatchView<'_>>> {
        if let Some(done) = self.current.take() {
            self.give_back.send(done.batch).expect("the receiver outlives the feed and has room for both batches");
        }
        let start = Instant::now();
        let gathered = receive(&self.gathered, self.is_wanted);
        self.waited += start.elapsed();
        self.current = gathered?.transpose()?;
        Ok(self.current.as_ref().map(Ready::view))
    }
}

/// Batches that the samples load themselves.
pub(crate) struct Loaded<'a> {
    batches: Box<dyn LoadedBatches + 'a>,
    shape: &'a SampleShape,
    graphs: Option<&'a dyn Graphs>,
    edge_form: EdgeForm,
    /// Requested batches that are yet to come.
    requested: RequestedGraphs,
    /// The graphs of the current batch.
    current: Option<GraphBatch<'a>>,
    offsets: WindowOffsets,
    loss_inputs: LossInputs<'a>,
    /// The targets of the current batch, where they are scaled.
    scaled: Vec<f32>,
    /// The weights of the current batch, where samples have weights.
    weights: Vec<f32>,
    /// Waits reported so far.
    reported: Waits,
    is_wanted: &'a dyn Fn() -> bool,
}

impl<'a> Loaded<'a> {
    fn new(
        batches: Box<dyn LoadedBatches + 'a>,
        source: Source<'a>,
        requested: RequestedGraphs,
        is_wanted: &'a dyn Fn() -> bool,
    ) -> Self {
        let Source { samples, graphs, edge_form, loss_inputs, .. } = source;
        let (shape, reported) = (samples.shape(), Waits::default());
        Loaded {
            batches,
            shape,
            graphs,
            edge_form,
            requested,
            current: None,
            offsets: WindowOffsets::with_capacity(shape, 0),
            loss_inputs,
            scaled: Vec::new(),
            weights: Vec::new(),
            reported,
            is_wanted,
        }
    }

    fn next(&mut self) -> Result<Option<BatchView<'_>>> {
        let (wanted, stopped) = (self.is_wanted, Cell::new(false));
        let is_wanted = || {
            stopped.set(!wanted());
            !stopped.get()
        };
        let failed = |source| if stopped.get() { INTERRUPTED } else { Error::PrefetchingSource { source } };
        let Some(batch) = self.batches.next(&is_wanted).map_err(failed)? else { return Ok(None) };
        let BorrowedBatch { samples, features, targets } = batch;
        let lent: Vec<usize> = features.iter().map(|windows| windows.len()).collect();
        let windows = (0..self.shape.timeframes.len()).map(|k| samples.len() * self.shape.window_len(k));
        assert_eq!(lent, windows.collect::<Vec<_>>(), "a source lends the windows of the samples in its own shape");
        assert_eq!(targets.len(), samples.len() * self.shape.outputs, "a source lends the samples' targets");
        let LossInputs { target_scales, weights } = self.loss_inputs;
        let targets = match target_scales {
            Some(scales) => {
                self.scaled.clear();
                self.scaled.extend_from_slice(targets);
                scales.scale(&mut self.scaled);
                &self.scaled
            }
            None => targets,
        };
        self.offsets.lay_windows(self.shape, samples.len());
        self.offsets.end_at_samples(samples);
        let read = |graphs| GraphBatch::read(graphs, &self.requested.next(), self.edge_form);
        self.current = self.graphs.map(read).transpose()?;
        let weights = weights.map(|weights| {
            self.weights.clear();
            weights.gather(samples, &mut self.weights);
            self.weights.as_slice()
        });
        let view = BatchView::new(self.shape, features, &self.offsets, BatchStorage::Windows, targets);
        Ok(Some(view.with_weights(weights).with_graphs(self.current.as_ref())))
    }

    fn take_waits(&mut self) -> Waits {
        let all = self.batches.waits();
        let new_waits = all - self.reported;
        self.reported = all;
        new_waits
    }
}

/// Graphs of the batches that samples were asked to load and that have not come yet.
#[derive(Clone, Debug, Default)]
struct RequestedGraphs(Arc<Mutex<VecDeque<Vec<usize>>>>);

impl RequestedGraphs {
    /// The samples of each batch of `schedule`. Its graphs are added when the batch is asked for.
    fn note<'a>(
        self,
        schedule: impl Iterator<Item = Vec<usize>> + Send + 'a,
        graphs: Option<&'a dyn Graphs>,
    ) -> impl Iterator<Item = Vec<usize>> + Send + 'a {
        schedule.map(move |indices| {
            let Some(graphs) = graphs else { return indices };
            let samples = samples_of(graphs, &indices);
            self.0.lock().expect("nobody panics with the lock held").push_back(indices);
            samples
        })
    }

    /// The graphs of the next batch.
    fn next(&self) -> Vec<usize> {
        let mut requested = self.0.lock().expect("nobody panics with the lock held");
        requested.pop_front().expect("a batch comes after it was asked for")
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error as StdError;

    use megabatch_amp::Precision;
    use megabatch_gpu_core::{Device, VacantTables};
    use megabatch_nn::model::Timeframe;

    use super::*;
    use crate::data::prefetching::always;
    use crate::data::samples::InMemory;

    fn samples() -> InMemory {
        let timeframe = Timeframe { name: String::new(), steps: 1, features: 1 };
        let shape = SampleShape { timeframes: vec![timeframe], outputs: 1 };
        let numbers: Vec<f32> = (0..10).map(|n| n as f32).collect();
        InMemory::new(shape, vec![numbers.clone()], numbers).unwrap()
    }

    #[test]
    fn batches_come_in_order_and_both_live_to_the_end() {
        let device = Device::cpu();
        let (samples, scope) = (samples(), device.scope("batches"));
        let source = Source {
            samples: &samples,
            graphs: None,
            edge_form: EdgeForm::Views,
            scope: &scope,
            batch_size: 3,
            chunk_percent: 100,
            gather_mode: GatherMode::Bars,
            loss_inputs: LossInputs::default(),
        };
        let schedule = [vec![4, 5, 6], vec![9], vec![], vec![0, 0]];
        let mut seen = Vec::new();
        with_batches(source, schedule.clone().into_iter(), &always, |feed| {
            while let Some(batch) = feed.next()? {
                seen.push(batch.targets().iter().map(|&x| x as usize).collect::<Vec<_>>());
            }
            assert!(feed.next()?.is_none());
            // Two batches of three windows and three targets of four bytes.
            assert_eq!(scope.usage().allocated_bytes, 2 * 3 * 2 * 4);
            Ok(())
        })
        .unwrap();
        assert_eq!(seen, schedule);
        assert_eq!(scope.usage().allocated_bytes, 0);
    }

    /// A run that goes back to a checkpoint ends amid its chunks, and takes their memory again.
    #[test]
    fn chunks_take_the_memory_of_those_before() {
        let (samples, device) = (samples(), Device::cpu());
        let scope = device.scope("batches");
        let source = Source {
            samples: &samples,
            graphs: None,
            edge_form: EdgeForm::Views,
            scope: &scope,
            batch_size: 2,
            chunk_percent: 100,
            gather_mode: GatherMode::Bars,
            loss_inputs: LossInputs::default(),
        };
        let (mut staging, mut addresses) = (Vec::new(), Vec::new());
        for taken in [0, 1, 3, 7] {
            let tables = || VacantTables::new(&device.scope("gpu/bars"), &[4 * size_of::<f32>()]).unwrap();
            let chunks = DeviceChunks { samples: 4, precision: Precision::Fp32, tables: [tables(), tables()] };
            let schedule = (0..).map(|n| vec![n % 10, (n + 1) % 10]);
            let mut held = None;
            with_chunks(source, chunks, &mut staging, schedule, &always, |feed| {
                for n in 0..taken {
                    feed.turn_chunk(|tables| held.replace(tables))?;
                    let batch = feed.next()?.unwrap();
                    assert_eq!(batch.targets(), [n as f32, (n + 1) as f32]);
                }
                Ok(())
            })
            .unwrap();
            let mut own: Vec<_> = staging.iter().map(|batch: &Batch| batch.view().targets().as_ptr()).collect();
            own.sort_unstable();
            addresses.push(own);
        }
        assert_eq!(addresses[0].len(), 2);
        assert!(addresses.iter().all(|own| *own == addresses[0]), "{addresses:?}");
    }

    #[test]
    fn reading_ends_with_its_consumer() {
        let (samples, scope) = (samples(), Device::cpu().scope("batches"));
        let source = Source {
            samples: &samples,
            graphs: None,
            edge_form: EdgeForm::Views,
            scope: &scope,
            batch_size: 1,
            chunk_percent: 100,
            gather_mode: GatherMode::Bars,
            loss_inputs: LossInputs::default(),
        };
        let schedule = std::iter::repeat(vec![7]);
        let first = with_batches(source, schedule, &always, |feed| Ok(feed.next()?.map(|batch| batch.len())));
        assert_eq!(first.unwrap(), Some(1));
    }

    /// Samples of which the last is gathered until nobody wants it.
    struct Slow(InMemory);

    impl Samples for Slow {
        fn shape(&self) -> &SampleShape {
            self.0.shape()
        }

        fn len(&self) -> usize {
            Samples::len(&self.0)
        }

        fn gather(&self, samples: &[usize], batch: &mut Batch) -> Result<(), Box<dyn StdError + Send + Sync>> {
            let start = Instant::now();
            while samples.contains(&9) {
                if batch.stop().load(Relaxed) {
                    return Err("nobody wants it".into());
                }
                assert!(start.elapsed() < Duration::from_secs(60), "nobody stopped it");
                thread::yield_now();
            }
            self.0.gather(samples, batch)
        }
    }

    #[test]
    fn a_batch_that_nobody_wants_is_not_waited_for() {
        let (samples, device) = (Slow(samples()), Device::cpu());
        let scope = device.scope("batches");
        let source = Source {
            samples: &samples,
            graphs: None,
            edge_form: EdgeForm::Views,
            scope: &scope,
            batch_size: 1,
            chunk_percent: 100,
            gather_mode: GatherMode::Bars,
            loss_inputs: LossInputs::default(),
        };
        let schedule = || [vec![0], vec![9]].into_iter();
        // The consumer leaves while the second batch is gathered.
        let first = with_batches(source, schedule(), &always, |feed| Ok(feed.next()?.map(|batch| batch.len())));
        assert_eq!(first.unwrap(), Some(1));

        // It waits for the second batch, until it no longer wants it.
        let asked = Cell::new(0);
        let is_wanted = || {
            asked.set(asked.get() + 1);
            asked.get() % 3 > 0
        };
        let waited = with_batches(source, schedule(), &is_wanted, |feed| {
            assert!(feed.next()?.is_some());
            feed.next().map(drop)
        });
        assert!(matches!(waited, Err(Error::Interrupted { .. })));
        assert_eq!(asked.get(), 3);

        let tables = || VacantTables::new(&device.scope("gpu/bars"), &[size_of::<f32>()]).unwrap();
        let chunks = DeviceChunks { samples: 1, precision: Precision::Fp32, tables: [tables(), tables()] };
        let (mut staging, mut held) = (Vec::new(), None);
        let waited = with_chunks(source, chunks, &mut staging, schedule(), &is_wanted, |feed| {
            feed.turn_chunk(|tables| held.replace(tables))?;
            assert!(feed.next()?.is_some());
            feed.turn_chunk(|tables| held.replace(tables))
        });
        assert!(matches!(waited, Err(Error::Interrupted { .. })));
        assert_eq!((asked.get(), staging.len()), (6, 2));
    }
}
