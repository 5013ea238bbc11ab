use megabatch_nn::Result;

/// Workspaces, cached by batch size. There are few in a run: that of a batch, and of the last one
/// of an epoch or a validation.
#[derive(Debug)]
pub(super) struct WorkspaceCache<R> {
    all: Vec<(usize, R)>,
    selected: usize,
}

impl<R> Default for WorkspaceCache<R> {
    fn default() -> Self {
        WorkspaceCache { all: Vec::new(), selected: 0 }
    }
}

impl<R> WorkspaceCache<R> {
    /// Selects the workspace for batches of `samples` samples; makes it if there is none.
    pub(super) fn select(&mut self, samples: usize, make: impl FnOnce() -> Result<R>) -> Result<()> {
        let found = self.all.iter().position(|(cached_samples, _)| *cached_samples == samples);
        if found.is_none() {
            self.all.push((samples, make()?));
        }
        self.selected = found.unwrap_or(self.all.len() - 1);
        Ok(())
    }

    /// The selected workspace.
    ///
    /// # Panics
    /// If none was selected yet.
    pub(super) fn selected(&self) -> &R {
        &self.all[self.selected].1
    }

    /// The selected workspace, for writing.
    pub(super) fn selected_mut(&mut self) -> &mut R {
        &mut self.all[self.selected].1
    }
}
