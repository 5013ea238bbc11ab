#![forbid(unsafe_code)]

use crate::error::Result;

/// Workspaces, cached by batch size. There are few in a run: that of a batch, and of the last one
/// of an epoch or a validation.
#[derive(Debug)]
pub(super) struct WorkspaceCache<R> {
    all: Vec<(usize, R)>,
    now: usize,
}

impl<R> Default for WorkspaceCache<R> {
    fn default() -> Self {
        WorkspaceCache { all: Vec::new(), now: 0 }
    }
}

impl<R> WorkspaceCache<R> {
    /// Has the batch that follows use the room for so many samples, which is made where there is
    /// none.
    pub(super) fn enter(&mut self, samples: usize, make: impl FnOnce() -> Result<R>) -> Result<()> {
        let found = self.all.iter().position(|(cached_samples, _)| *cached_samples == samples);
        if found.is_none() {
            self.all.push((samples, make()?));
        }
        self.now = found.unwrap_or(self.all.len() - 1);
        Ok(())
    }

    /// The room of the batch.
    ///
    /// # Panics
    /// If there was none yet.
    pub(super) fn now(&self) -> &R {
        &self.all[self.now].1
    }

    /// The same for writing.
    pub(super) fn now_mut(&mut self) -> &mut R {
        &mut self.all[self.now].1
    }
}
