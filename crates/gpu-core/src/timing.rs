//! Times of work on a GPU, and the identity of that GPU.

use std::result::Result;

use crate::device::Cuda;
use crate::error::Error;

impl Cuda {
    /// Identity under which measured times hold: the GPU's name, compute capability, and the CUDA
    /// version of the driver, such as `NVIDIA H100 80GB HBM3, compute capability 9.0, CUDA 12.4`.
    pub fn identity(&self) -> String {
        self.shared_gpu().identity()
    }

    /// Milliseconds from the moment before what `work` submits to the default stream to that after
    /// it, by the GPU's events. Waits for it. What is [held back](crate::Captures) is submitted
    /// before, and nothing of `work` is held back.
    ///
    /// # Errors
    /// Errors of `work`; [`Error::Driver`] where a call fails.
    pub fn elapsed_ms<E: From<Error>>(&self, work: impl FnOnce() -> Result<(), E>) -> Result<f32, E> {
        let (done, elapsed_ms) = self.shared_gpu().elapsed_ms(work)?;
        done.map(|()| elapsed_ms)
    }
}
