use bytemuck::Pod;

use crate::buffer::Buffer;
use crate::cuda::PendingUploads;
use crate::error::Result;

/// The way of values to a device that nobody waits for: through page-locked memory, of which there
/// are two pieces, so that one is filled while the other is copied.
///
/// ```
/// use megabatch_gpu_core::{Buffer, Device, Staging};
///
/// let mut staging = Staging::default();
/// let mut buffer = Buffer::<f32>::zeros(&Device::cpu().scope("example"), 3)?;
/// staging.send(&[1.0, 2.0], &mut buffer)?;
/// assert_eq!(buffer.to_vec()?, [1.0, 2.0, 0.0]);
/// # Ok::<(), megabatch_gpu_core::Error>(())
/// ```
#[derive(Debug, Default)]
pub struct Staging {
    under_way: PendingUploads,
}

impl Staging {
    /// Copies `values` to the first elements of `dst`, in the order of its device's default stream.
    /// They have been read when this returns, and have arrived for all that is submitted later.
    /// Waits only for what was sent before the last time, so that two copies are under way at most.
    ///
    /// # Errors
    /// [`Error::Driver`](crate::Error::Driver) for a GPU that fails, or that could lock no more
    /// pages.
    ///
    /// # Panics
    /// If there are more values than elements.
    pub fn send<T: Pod>(&mut self, values: &[T], dst: &mut Buffer<T>) -> Result<()> {
        dst.receive(values, &mut self.under_way)
    }
}
