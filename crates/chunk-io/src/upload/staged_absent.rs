//! Copies to a GPU in a build without the feature `cuda` of this crate, which cannot name streams:
//! the host waits for each.
#![forbid(unsafe_code)]

use megabatch_gpu_core::{Buffer, Cuda, Result};

/// What stands for the stream for copies.
#[derive(Debug)]
pub(super) struct Staged;

impl Staged {
    pub(super) fn new(_cuda: &Cuda) -> Result<Self> {
        Ok(Staged)
    }

    /// Copies `from` to the beginning of `to`, which becomes another buffer where it is longer.
    pub(super) fn copy(&mut self, from: &[f32], to: &mut Buffer<f32>) -> Result<()> {
        if from.len() == to.len() {
            return to.copy_from(from);
        }
        *to = Buffer::from_slice(&to.scope().clone(), from)?;
        Ok(())
    }

    pub(super) fn arrival(&self) -> Result<Arrival> {
        Ok(Arrival)
    }
}

/// The moment at which a copy returned.
#[derive(Debug)]
pub(super) struct Arrival;

impl Arrival {
    pub(super) fn wait(&self) -> Result<()> {
        Ok(())
    }
}
