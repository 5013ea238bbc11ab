//! Batches of a data file in the order of training, each in memory of its own.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread::{self, JoinHandle};

use megabatch_chunk_io::{SampleSlices, Source, TimeframeShape};
use megabatch_order::{Batches, Batching, LastBatch, Order, Rank};

use super::Dataset;
use super::SampleRanges;
use super::batch_memory::{MemoryPool, SharedMemory};
use super::gather::{BYTES_MIN, gather};
use crate::error::{Error, Result};

/// Batching of an epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchOptions {
    /// Samples in a batch, of all ranks together.
    pub batch_size: usize,
    /// Order of the samples.
    pub visit: SampleVisit,
    /// Treatment of samples at an epoch's end that do not fill a batch.
    pub last_batch: LastBatch,
    /// Rank whose part of each batch is taken.
    pub rank: usize,
    /// Number of ranks.
    pub world_size: usize,
    /// Bytes that are read from disk at once, for samples that are not in memory; a batch at least.
    /// Three such pieces are in memory; of samples in memory, three batches.
    pub chunk_bytes: usize,
    /// Windows of the batches.
    pub windows: WindowView,
}

/// Order of an epoch's samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SampleVisit {
    /// The file's order, in every epoch.
    Sequential,
    /// Shuffled anew in every epoch, as training does.
    Shuffled {
        /// Seed of the order.
        seed: u64,
        /// Consecutive samples that stay together; if `None`, as many as training takes: those of
        /// a batch where neighbours overlap, else 1.
        run_length: Option<usize>,
    },
}

/// Memory of the windows of a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WindowView {
    /// Each window is copied into memory of the batch.
    #[default]
    Copied,
    /// Windows whose ends are a constant number of bars apart are seen where the series has them,
    /// by strides, and must not be written; others are copied.
    StridedWherePossible,
}

impl Default for BatchOptions {
    fn default() -> Self {
        BatchOptions {
            batch_size: 256,
            visit: SampleVisit::Sequential,
            last_batch: LastBatch::Keep,
            rank: 0,
            world_size: 1,
            chunk_bytes: 64 << 20,
            windows: WindowView::Copied,
        }
    }
}

/// The batches of samples of a data file, epoch by epoch.
pub struct BatchLoader {
    source: Arc<Source>,
    /// Samples of the file that are visited.
    samples: Arc<SampleRanges>,
    batches: Batches,
    options: BatchOptions,
    run_length: Option<usize>,
    pool: Arc<MemoryPool>,
}

impl BatchLoader {
    /// The batches of `samples` of `dataset`.
    ///
    /// # Errors
    /// [`Kind::Usage`](crate::Kind::Usage) for a batch of nothing, a rank that there is not, a
    /// sample that the file does not have, or a file of graphs.
    pub fn new(dataset: &Dataset, samples: SampleRanges, options: BatchOptions) -> Result<Self> {
        let source = Arc::clone(dataset.source()?);
        let usage = |error: megabatch_order::Error| Error::usage(error.to_string());
        let rank = Rank::new(options.rank, options.world_size).map_err(usage)?;
        let (order, run_length) = match options.visit {
            SampleVisit::Sequential => (Order::sequential(samples.len()), None),
            SampleVisit::Shuffled { seed, run_length } => {
                let by_data = if run_length.is_none() { dataset.run_length_by_data()? } else { None };
                let run_length = run_length.or(by_data).unwrap_or(options.batch_size);
                (Order::new(samples.len(), run_length, seed).map_err(usage)?, Some(run_length))
            }
        };
        let BatchOptions { batch_size, last_batch, .. } = options;
        let batching = Batching { batch_size, gradient_accumulation_steps: 1, last_batch, rank };
        let batches = Batches::new(order, batching).map_err(usage)?;
        let in_file = source.shape().samples;
        if let Some(run) = samples.runs().find(|run| run.end > in_file) {
            let (sample, file) = (run.start.max(in_file), source.path().display());
            return Err(Error::usage(format!("sample {sample}: {file} has {in_file}, counted from 0")));
        }
        let samples = Arc::new(samples);
        Ok(BatchLoader { source, samples, batches, options, run_length, pool: Arc::default() })
    }

    /// Batches in an epoch.
    pub fn batches_per_epoch(&self) -> u64 {
        self.batches.steps_per_epoch()
    }

    /// Consecutive samples that stay together; `None` where samples are not shuffled.
    pub fn run_length(&self) -> Option<usize> {
        self.run_length
    }

    /// The batches of `epoch` from the one of number `first` on, both counted from 0.
    ///
    /// # Errors
    /// When the system gives no thread to gather with.
    pub fn epoch(&self, epoch: u64, first: u64) -> Result<EpochBatches> {
        let lists = self.sample_lists(epoch, first);
        let (source, pool) = (Arc::clone(&self.source), Arc::clone(&self.pool));
        let delivery = match self.samples_ahead() {
            None => Delivery::WhenAsked(Box::new(lists)),
            Some(samples) => {
                Delivery::Ahead(GatherAhead::start(Arc::clone(&source), Arc::clone(&pool), lists, samples)?)
            }
        };
        Ok(EpochBatches { source, pool, windows: self.options.windows, delivery })
    }

    /// The samples of the batches of `epoch` from the one of number `first` on.
    pub fn sample_lists(&self, epoch: u64, first: u64) -> impl Iterator<Item = Vec<usize>> + Send + use<> {
        let in_epoch = self.batches_per_epoch();
        let steps = epoch.saturating_mul(in_epoch) + first.min(in_epoch)..(epoch + 1).saturating_mul(in_epoch);
        let samples = Arc::clone(&self.samples);
        self.batches.lists(steps).map(move |list| list.into_iter().map(|n| samples.sample_at(n)).collect())
    }

    /// Samples that a thread gathers at once, a batch at least; `None` where a batch takes less
    /// time than to hand it over.
    pub(super) fn samples_ahead(&self) -> Option<usize> {
        let BatchOptions { batch_size, world_size, chunk_bytes, windows, .. } = self.options;
        let sample_bytes = self.source.shape().sample_bytes().max(1) as usize;
        if !self.source.is_resident() {
            return Some(chunk_bytes / sample_bytes);
        }
        let is_copied_by_all_threads = batch_size / world_size * sample_bytes >= BYTES_MIN;
        (windows == WindowView::Copied && is_copied_by_all_threads).then_some(0)
    }
}

/// The batches of an epoch.
pub struct EpochBatches {
    source: Arc<Source>,
    pool: Arc<MemoryPool>,
    windows: WindowView,
    delivery: Delivery,
}

enum Delivery {
    /// Each batch is gathered when it is asked for.
    WhenAsked(Box<dyn Iterator<Item = Vec<usize>> + Send>),
    /// A thread gathers batches before they are asked for.
    Ahead(GatherAhead),
}

impl EpochBatches {
    /// The next batch; `None` after the last.
    ///
    /// # Errors
    /// Errors of reading. No batch comes after one.
    pub fn next_batch(&mut self) -> Result<Option<GatheredBatch>> {
        match &mut self.delivery {
            Delivery::WhenAsked(lists) => {
                let Some(samples) = lists.next() else { return Ok(None) };
                Ok(Some(GatheredBatch::from_memory(&self.source, &self.pool, samples, self.windows)?))
            }
            Delivery::Ahead(ahead) => ahead.next_batch(),
        }
    }
}

/// A batch. Its memory is its own until it is dropped.
#[derive(Debug)]
pub struct GatheredBatch {
    source: Arc<Source>,
    samples: Vec<usize>,
    memory: Arc<SharedMemory>,
    /// Place of the first sample in the memory.
    first: usize,
    /// Windows that are seen in the series, by timeframe.
    strided: Vec<Option<Rows>>,
}

/// Place of the rows of a table in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rows {
    /// Address of the first number, an f32.
    pub address: usize,
    /// Numbers by dimension: `[B, T, F]`, or `[B, K]` of targets.
    pub shape: Vec<usize>,
    /// Bytes from one number to the next, by dimension.
    pub strides: Vec<usize>,
    /// True for memory of the data file, which must not be written.
    pub is_of_the_file: bool,
}

impl Rows {
    fn consecutive(address: usize, shape: Vec<usize>) -> Self {
        let mut strides = vec![size_of::<f32>(); shape.len()];
        for dimension in (1..shape.len()).rev() {
            strides[dimension - 1] = strides[dimension] * shape[dimension];
        }
        Rows { address, shape, strides, is_of_the_file: false }
    }
}

impl GatheredBatch {
    /// The batch of `samples`, which `source` holds in memory.
    fn from_memory(
        source: &Arc<Source>,
        pool: &Arc<MemoryPool>,
        samples: Vec<usize>,
        windows: WindowView,
    ) -> Result<Self> {
        let strided: Vec<Option<Rows>> = match windows {
            WindowView::Copied => vec![None; source.shape().timeframes.len()],
            WindowView::StridedWherePossible => {
                (0..source.shape().timeframes.len()).map(|k| strided(source, k, &samples)).collect()
            }
        };
        let mut shape = source.shape().clone();
        // What is seen in place takes no memory.
        for (timeframe, _) in shape.timeframes.iter_mut().zip(&strided).filter(|(_, rows)| rows.is_some()) {
            timeframe.steps = 0;
        }
        let mut memory = pool.take(&shape, samples.len());
        match strided.iter().all(Option::is_none) {
            true => gather(source, &samples, memory.slices())?,
            false => copy_others(source, &samples, memory.slices(), &strided),
        }
        let memory = Arc::new(memory.share());
        Ok(GatheredBatch { source: Arc::clone(source), samples, memory, first: 0, strided })
    }

    /// Number of tables: timeframes, and the targets.
    pub fn tables(&self) -> usize {
        self.source.shape().timeframes.len() + 1
    }

    /// Samples of the file, `[B]`.
    pub fn samples(&self) -> &[usize] {
        &self.samples
    }

    /// Windows of the `k`-th timeframe, `[B, T, F]`.
    pub fn windows(&self, k: usize) -> Rows {
        if let Some(Some(rows)) = self.strided.get(k) {
            return rows.clone();
        }
        let timeframe = &self.source.shape().timeframes[k];
        self.rows(k, vec![self.samples.len(), timeframe.steps, timeframe.features])
    }

    /// Targets, `[B, K]`.
    pub fn targets(&self) -> Rows {
        let shape = self.source.shape();
        self.rows(shape.timeframes.len(), vec![self.samples.len(), shape.horizons])
    }

    fn rows(&self, table: usize, shape: Vec<usize>) -> Rows {
        let row_bytes: usize = shape[1..].iter().product::<usize>() * size_of::<f32>();
        Rows::consecutive(self.memory.address(table) + self.first * row_bytes, shape)
    }

    /// The copied windows of the `k`-th timeframe, or after the last one the targets, row-major.
    /// Nobody may write to the addresses of the batch meanwhile.
    pub fn values(&self, k: usize) -> &[f32] {
        let shape = self.source.shape();
        let row_len = shape.timeframes.get(k).map_or(shape.horizons, TimeframeShape::window_len);
        &self.memory.values(k)[self.first * row_len..(self.first + self.samples.len()) * row_len]
    }
}

/// Windows of the `k`-th timeframe where the series has them, if their ends are a constant number
/// of bars apart.
fn strided(source: &Source, k: usize, samples: &[usize]) -> Option<Rows> {
    let series = source.series()?;
    let resident = series.resident()?;
    let timeframe = &series.file().timeframes()[k];
    let ends = timeframe.sample_ends();
    let end = |sample: &usize| ends[*sample];
    let step = match samples {
        [] => return None,
        [_] => 1,
        [first, second, ..] => end(second) - end(first),
    };
    let is_even = samples.windows(2).all(|pair| end(&pair[1]) - end(&pair[0]) == step);
    let step = usize::try_from(step).ok().filter(|_| is_even)?;
    let (steps, features) = (timeframe.steps(), timeframe.feature_names().len());
    let first_bar = end(&samples[0]) as usize + 1 - steps;
    let row_bytes = features * size_of::<f32>();
    Some(Rows {
        address: resident.values(k)[first_bar * features..].as_ptr() as usize,
        shape: vec![samples.len(), steps, features],
        strides: vec![step * row_bytes, row_bytes, size_of::<f32>()],
        is_of_the_file: true,
    })
}

/// Copies what is not seen in place.
fn copy_others(source: &Source, samples: &[usize], out: SampleSlices<'_>, strided: &[Option<Rows>]) {
    let series = source.series().expect("windows are seen in place in a series only");
    let resident = series.resident().expect("windows are seen in place in memory only");
    for (k, table) in out.features.into_iter().enumerate().filter(|(k, _)| strided[*k].is_none()) {
        let timeframe = &series.file().timeframes()[k];
        let (ends, features) = (timeframe.sample_ends(), timeframe.feature_names().len());
        for (window, &sample) in table.chunks_exact_mut(timeframe.steps() * features).zip(samples) {
            let end = (ends[sample] as usize + 1) * features;
            window.copy_from_slice(&resident.values(k)[end - window.len()..end]);
        }
    }
    let horizons = source.shape().horizons;
    for (row, &sample) in out.targets.chunks_exact_mut(horizons).zip(samples) {
        row.copy_from_slice(&resident.targets()[sample * horizons..(sample + 1) * horizons]);
    }
}

/// Batches that were gathered together.
struct Chunk {
    memory: Arc<SharedMemory>,
    lists: VecDeque<Vec<usize>>,
    /// Place of the next batch.
    next: usize,
}

/// A thread that gathers chunks of batches, one ahead of the one in use.
struct GatherAhead {
    source: Arc<Source>,
    chunk: Option<Chunk>,
    /// `None` once it is to end.
    chunks: Option<Receiver<Result<Chunk>>>,
    thread: Option<JoinHandle<()>>,
}

impl GatherAhead {
    fn start(
        source: Arc<Source>,
        pool: Arc<MemoryPool>,
        lists: impl Iterator<Item = Vec<usize>> + Send + 'static,
        chunk_samples: usize,
    ) -> Result<Self> {
        let (sender, chunks) = sync_channel(1);
        let file = Arc::clone(&source);
        let work = move || {
            let mut lists = lists.peekable();
            while lists.peek().is_some() {
                let (mut together, mut samples) = (VecDeque::new(), Vec::new());
                while let Some(list) =
                    lists.next_if(|list| samples.is_empty() || samples.len() + list.len() <= chunk_samples)
                {
                    samples.extend_from_slice(&list);
                    together.push_back(list);
                }
                let mut memory = pool.take(file.shape(), samples.len());
                let read = gather(&file, &samples, memory.slices());
                let failed = read.is_err();
                let chunk = read.map(|()| Chunk { memory: Arc::new(memory.share()), lists: together, next: 0 });
                if sender.send(chunk).is_err() || failed {
                    return;
                }
            }
        };
        let thread = thread::Builder::new().name("gather ahead".to_owned()).spawn(work)?;
        Ok(GatherAhead { source, chunk: None, chunks: Some(chunks), thread: Some(thread) })
    }

    fn next_batch(&mut self) -> Result<Option<GatheredBatch>> {
        if self.chunk.as_ref().is_none_or(|chunk| chunk.lists.is_empty()) {
            // Before the wait, so that its memory can be used again.
            self.chunk = None;
            let Some(next) = self.chunks.as_ref().and_then(|chunks| chunks.recv().ok()) else { return Ok(None) };
            self.chunk = Some(next?);
        }
        let Some(chunk) = &mut self.chunk else { return Ok(None) };
        let Some(samples) = chunk.lists.pop_front() else { return Ok(None) };
        let first = chunk.next;
        chunk.next += samples.len();
        let (source, memory) = (Arc::clone(&self.source), Arc::clone(&chunk.memory));
        Ok(Some(GatheredBatch { source, samples, memory, first, strided: Vec::new() }))
    }
}

impl Drop for GatherAhead {
    fn drop(&mut self) {
        // The thread ends when it finds nobody who takes its chunk.
        self.chunks = None;
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has been told on standard error, and there is nobody to tell.
            let _ = thread.join();
        }
    }
}
