//! Batches of a source, prefetched by a thread.

mod batch;
mod chunk;
mod prefetching;
mod reader;
mod rows;
mod stats;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use chunk::BatchQueue;
use megabatch_gpu_core::Scope;
use prefetching::PrefetchedBatches;

use crate::error::Result;
use crate::source::Source;

pub use batch::LoadedBatch;
pub use rows::{BatchRows, SeriesWindows};
pub use stats::LoaderStats;

/// Memory use of a [`Loader`].
#[derive(Clone, Copy, Debug)]
pub struct LoaderOptions<'a> {
    /// Samples in a chunk: consecutive batches of at most this many samples together are read at
    /// once; a larger batch is a chunk of its own. It changes speed and memory only.
    pub chunk_samples: usize,
    /// Scope on which the two chunks are booked, of the CPU device: they are host memory.
    pub scope: &'a Scope,
}

/// The batches of a source in a given order, each a view and none a copy of its own.
///
/// Samples on disk come in chunks of consecutive batches, laid out as the batches have them. A
/// thread of the loader's own reads the next chunk while the one before is consumed; there are two
/// chunks, allocated once, never a third. Samples that the source holds in memory are not read at
/// all, and there is no thread.
///
/// Dropping the loader ends the thread: amid a read of windows before the next chunk of the file,
/// after a read of a series.
pub struct Loader<I: Iterator> {
    source: Arc<Source>,
    supply: BatchSource<I>,
}

/// Source of batches.
enum BatchSource<I: Iterator> {
    /// In memory, all of them.
    Resident(ResidentBatches<I>),
    /// On disk, prefetched.
    Ahead(Box<PrefetchedBatches<I>>),
}

impl<I: Iterator<Item = Vec<usize>>> Loader<I> {
    /// A loader of `batches`, each a list of samples in any order and with any repetitions, that
    /// begins to read at once.
    ///
    /// # Errors
    /// [`Error::Memory`](crate::Error::Memory) when there is no room for the chunks,
    /// [`Error::Io`](crate::Error::Io) when the system gives no thread.
    pub fn new(source: &Arc<Source>, batches: I, options: LoaderOptions<'_>) -> Result<Self> {
        let supply = if source.is_resident() {
            BatchSource::Resident(ResidentBatches::new(batches))
        } else {
            // A chunk larger than all samples would hold some twice.
            let chunk_samples = options.chunk_samples.min(source.shape().samples);
            let reader = Arc::clone(source) as Arc<dyn reader::SampleReader>;
            BatchSource::Ahead(Box::new(PrefetchedBatches::start(
                reader,
                BatchQueue::new(batches, chunk_samples),
                options.scope,
            )?))
        };
        Ok(Loader { source: Arc::clone(source), supply })
    }

    /// The next batch, or `None` after the last. It is borrowed until the next call.
    ///
    /// # Errors
    /// As [`Source::gather`], when the chunk that the batch would be in cannot be read: once, after
    /// which there are no more batches.
    ///
    /// # Panics
    /// If reading panicked.
    pub fn next_batch(&mut self) -> Result<Option<LoadedBatch<'_>>> {
        self.next_batch_while(&|| true)
    }

    /// As [`Loader::next_batch`]. While the batch is waited for, `is_wanted` is asked several times
    /// a second whether to wait on.
    ///
    /// # Errors
    /// As [`Loader::next_batch`]; [`Error::Stopped`](crate::Error::Stopped) once `is_wanted`
    /// returns false, after which there are no more batches.
    ///
    /// # Panics
    /// If reading panicked.
    pub fn next_batch_while(&mut self, is_wanted: &dyn Fn() -> bool) -> Result<Option<LoadedBatch<'_>>> {
        match &mut self.supply {
            BatchSource::Resident(resident) => resident.next_batch(&self.source),
            BatchSource::Ahead(ahead) => ahead.next_batch(is_wanted),
        }
    }

    /// Statistics of the batches delivered so far.
    pub fn stats(&self) -> LoaderStats {
        match &self.supply {
            BatchSource::Resident(resident) => resident.stats(),
            BatchSource::Ahead(ahead) => ahead.stats(),
        }
    }
}

/// Batches of samples in memory.
struct ResidentBatches<I> {
    /// `None` after an error.
    batches: Option<I>,
    /// The list of the borrowed batch.
    samples: Vec<usize>,
    stats: LoaderStats,
}

impl<I: Iterator<Item = Vec<usize>>> ResidentBatches<I> {
    fn new(batches: I) -> Self {
        ResidentBatches { batches: Some(batches), samples: Vec::new(), stats: LoaderStats::default() }
    }

    fn next_batch<'a>(&'a mut self, source: &'a Source) -> Result<Option<LoadedBatch<'a>>> {
        let Some(samples) = self.batches.as_mut().and_then(Iterator::next) else { return Ok(None) };
        source.check_list(&samples).inspect_err(|_| self.batches = None)?;
        self.stats.note_batch(samples.len());
        self.samples = samples;
        Ok(Some(LoadedBatch::from_source(source, &self.samples)))
    }

    fn stats(&self) -> LoaderStats {
        self.stats
    }
}
