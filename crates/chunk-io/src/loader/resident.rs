use super::batch::LoadedBatch;
use super::stats::LoaderStats;
use crate::error::Result;
use crate::source::Source;

/// Batches of samples that are in memory: lists, and views of the samples in them.
pub(super) struct Resident<I> {
    /// `None` after an error.
    batches: Option<I>,
    /// The list of the batch that is lent.
    samples: Vec<usize>,
    stalls: LoaderStats,
}

impl<I: Iterator<Item = Vec<usize>>> Resident<I> {
    pub(super) fn new(batches: I) -> Self {
        Resident { batches: Some(batches), samples: Vec::new(), stalls: LoaderStats::default() }
    }

    pub(super) fn next_batch<'a>(&'a mut self, source: &'a Source) -> Result<Option<LoadedBatch<'a>>> {
        let Some(samples) = self.batches.as_mut().and_then(Iterator::next) else { return Ok(None) };
        source.check_list(&samples).inspect_err(|_| self.batches = None)?;
        self.stalls.note_batch(samples.len());
        self.samples = samples;
        Ok(Some(LoadedBatch::of_source(source, &self.samples)))
    }

    pub(super) fn stalls(&self) -> LoaderStats {
        self.stalls
    }
}
