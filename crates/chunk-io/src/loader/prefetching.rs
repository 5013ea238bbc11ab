use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use megabatch_gpu_core::Scope;

use super::batch::LoadedBatch;
use super::chunk::{BatchQueue, SampleChunk};
use super::reader::{CHUNKS, ReaderThread, SampleReader};
use super::stats::LoaderStats;
use crate::error::{Error, Result};

/// Batches of chunks that a thread reads ahead.
///
/// The samples of a chunk are chosen here, on the consumer's side; the thread sees lists and memory
/// only.
pub(super) struct PrefetchedBatches<I: Iterator> {
    reader: Arc<dyn SampleReader>,
    lists: BatchQueue<I>,
    scope: Scope,
    /// `None` after an error.
    thread: Option<ReaderThread>,
    /// Chunks given to the thread and not taken back yet.
    given: usize,
    /// The chunk in use, and which of its batches is the next.
    current: Option<SampleChunk>,
    next: usize,
    stats: LoaderStats,
}

impl<I: Iterator<Item = Vec<usize>>> PrefetchedBatches<I> {
    /// Begins to read.
    pub(super) fn start(reader: Arc<dyn SampleReader>, lists: BatchQueue<I>, scope: &Scope) -> Result<Self> {
        let thread = Some(ReaderThread::start(Arc::clone(&reader))?);
        let (scope, stats) = (scope.clone(), LoaderStats::default());
        let mut ahead = PrefetchedBatches { reader, lists, scope, thread, given: 0, current: None, next: 0, stats };
        for _ in 0..CHUNKS {
            ahead.give(SampleChunk::default())?;
        }
        Ok(ahead)
    }

    pub(super) fn next_batch(&mut self, is_wanted: &dyn Fn() -> bool) -> Result<Option<LoadedBatch<'_>>> {
        if self.places().is_none() && !self.turn(is_wanted).inspect_err(|_| self.thread = None)? {
            return Ok(None);
        }
        let places = self.places().expect("a chunk has a batch, and one that is not used up another");
        self.next += 1;
        self.stats.note_batch(places.len());
        let chunk = self.current.as_ref().expect("it has these places");
        Ok(Some(LoadedBatch::from_chunk(self.reader.shape(), chunk, places)))
    }

    /// The places of the next batch in the chunk in use.
    fn places(&self) -> Option<Range<usize>> {
        self.current.as_ref()?.batch(self.next)
    }

    pub(super) fn stats(&self) -> LoaderStats {
        self.stats
    }

    /// Exchanges the chunk in use for the next one; false if there is none.
    fn turn(&mut self, is_wanted: &dyn Fn() -> bool) -> Result<bool> {
        let start = Instant::now();
        if let Some(done) = self.current.take() {
            self.give(done)?;
        }
        let Some(thread) = self.thread.as_mut().filter(|_| self.given > 0) else { return Ok(false) };
        self.given -= 1;
        let chunk = thread.take(is_wanted)?;
        self.stats.note_wait(start.elapsed(), chunk.cost);
        (self.current, self.next) = (Some(chunk), 0);
        Ok(true)
    }

    /// Has the next batches read into `chunk`, or frees its memory if there are none.
    fn give(&mut self, mut chunk: SampleChunk) -> Result<()> {
        let Some(thread) = &self.thread else { return Ok(()) };
        let Some(capacity) = self.lists.next_into(&mut chunk) else { return Ok(()) };
        let made = chunk.ensure_capacity(&self.scope, self.reader.shape(), capacity);
        made.map_err(Error::memory(self.reader.path()))?;
        thread.give(chunk);
        self.given += 1;
        Ok(())
    }
}
