//! cuBLASLt as a run has it.

use std::sync::{MutexGuard, PoisonError};

use megabatch_gpu_core::{CublasLt, Cuda};

use super::Tuner;

/// cuBLASLt: looked for when it is first asked for, and used until it fails.
#[derive(Debug, Default)]
pub(super) enum Library {
    #[default]
    NotAsked,
    Here(CublasLt),
    None,
}

impl Tuner {
    /// The name and version of cuBLASLt, where sums may be added in another order and the GPU has
    /// the library.
    pub(crate) fn library_name(&self, cuda: &Cuda) -> Option<String> {
        if !self.is_fast() {
            return None;
        }
        let mut library = self.library();
        if matches!(*library, Library::NotAsked) {
            *library = match CublasLt::open(cuda) {
                Ok(found) => found.map_or(Library::None, Library::Here),
                Err(error) => self.give_up(&error),
            };
        }
        match &*library {
            Library::Here(library) => Some(library.name()),
            Library::NotAsked | Library::None => None,
        }
    }

    /// True if the library did `work`: not where it is not here, or has no way to. After a failure
    /// it is not asked again.
    pub(crate) fn by_library(
        &self,
        cuda: &Cuda,
        work: impl FnOnce(&mut CublasLt) -> megabatch_gpu_core::Result<bool>,
    ) -> bool {
        if self.library_name(cuda).is_none() {
            return false;
        }
        let mut library = self.library();
        let Library::Here(found) = &mut *library else { return false };
        work(found).unwrap_or_else(|error| {
            *library = self.give_up(&error);
            false
        })
    }

    fn library(&self) -> MutexGuard<'_, Library> {
        self.library.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn give_up(&self, error: &megabatch_gpu_core::Error) -> Library {
        self.known().notes.push(format!("products are multiplied without cuBLASLt from now on: {error}"));
        Library::None
    }
}
