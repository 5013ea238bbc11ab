#![forbid(unsafe_code)]

use bytemuck::Pod;

use crate::cuda::PendingDownload;
use crate::error::Result;

/// Elements of a buffer on their way to the host, from [`Buffer::fetch`](crate::Buffer::fetch).
/// Whoever waits for them waits for what was submitted to the device before, and not for what came
/// after.
#[derive(Debug)]
#[must_use = "what is fetched is had by waiting for it"]
pub struct AsyncDownload<T: Pod> {
    way: DownloadState<T>,
}

#[derive(Debug)]
enum DownloadState<T: Pod> {
    /// From host memory, where nothing is late.
    Here(Vec<T>),
    PendingDownload {
        of_gpu: PendingDownload,
        len: usize,
    },
}

impl<T: Pod> AsyncDownload<T> {
    pub(crate) fn here(values: Vec<T>) -> Self {
        AsyncDownload { way: DownloadState::Here(values) }
    }

    pub(crate) fn coming(of_gpu: PendingDownload, len: usize) -> Self {
        AsyncDownload { way: DownloadState::PendingDownload { of_gpu, len } }
    }

    /// The elements as they were when they were asked for.
    ///
    /// # Errors
    /// [`Error::Driver`](crate::Error::Driver) where the GPU fails, or work that was submitted
    /// earlier has failed.
    pub fn wait(self) -> Result<Vec<T>> {
        match self.way {
            DownloadState::Here(values) => Ok(values),
            DownloadState::PendingDownload { of_gpu, len } => {
                let mut values = vec![T::zeroed(); len];
                of_gpu.wait(bytemuck::cast_slice_mut(&mut values))?;
                Ok(values)
            }
        }
    }
}
