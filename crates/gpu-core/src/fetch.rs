#![forbid(unsafe_code)]

use bytemuck::Pod;

use crate::cuda::Coming;
use crate::error::Result;

/// Elements of a buffer on their way to the host, from [`Buffer::fetch`](crate::Buffer::fetch).
/// Whoever waits for them waits for what was submitted to the device before, and not for what came
/// after.
#[derive(Debug)]
#[must_use = "what is fetched is had by waiting for it"]
pub struct Fetch<T: Pod> {
    way: Way<T>,
}

#[derive(Debug)]
enum Way<T: Pod> {
    /// From host memory, where nothing is late.
    Here(Vec<T>),
    Coming {
        of_gpu: Coming,
        len: usize,
    },
}

impl<T: Pod> Fetch<T> {
    pub(crate) fn here(values: Vec<T>) -> Self {
        Fetch { way: Way::Here(values) }
    }

    pub(crate) fn coming(of_gpu: Coming, len: usize) -> Self {
        Fetch { way: Way::Coming { of_gpu, len } }
    }

    /// The elements as they were when they were asked for.
    ///
    /// # Errors
    /// [`Error::Driver`](crate::Error::Driver) where the GPU fails, or work that was submitted
    /// earlier has failed.
    pub fn wait(self) -> Result<Vec<T>> {
        match self.way {
            Way::Here(values) => Ok(values),
            Way::Coming { of_gpu, len } => {
                let mut values = vec![T::zeroed(); len];
                of_gpu.wait(bytemuck::cast_slice_mut(&mut values))?;
                Ok(values)
            }
        }
    }
}
