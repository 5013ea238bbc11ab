use bytemuck::Pod;

use crate::cuda::PendingDownload;
use crate::error::Result;

/// Elements of a buffer being copied to the host, from [`Buffer::fetch`](crate::Buffer::fetch).
/// Waiting for them waits for work submitted before the fetch, and not for later work.
#[derive(Debug)]
#[must_use = "what is fetched is had by waiting for it"]
pub struct AsyncDownload<T: Pod> {
    way: DownloadState<T>,
}

#[derive(Debug)]
enum DownloadState<T: Pod> {
    /// From host memory, already copied.
    Here(Vec<T>),
    PendingDownload {
        pending: PendingDownload,
        len: usize,
    },
}

impl<T: Pod> AsyncDownload<T> {
    pub(crate) fn here(values: Vec<T>) -> Self {
        AsyncDownload { way: DownloadState::Here(values) }
    }

    pub(crate) fn coming(pending: PendingDownload, len: usize) -> Self {
        AsyncDownload { way: DownloadState::PendingDownload { pending, len } }
    }

    /// The elements at the time of the fetch.
    ///
    /// # Errors
    /// [`Error::Driver`](crate::Error::Driver) where the GPU fails, or work that was submitted
    /// earlier has failed.
    pub fn wait(self) -> Result<Vec<T>> {
        match self.way {
            DownloadState::Here(values) => Ok(values),
            DownloadState::PendingDownload { pending, len } => {
                let mut values = vec![T::zeroed(); len];
                pending.wait(bytemuck::cast_slice_mut(&mut values))?;
                Ok(values)
            }
        }
    }
}
