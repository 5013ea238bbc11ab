use bytemuck::Pod;

use crate::buffer::Buffer;
use crate::cuda::CopyStream;
use crate::device::Scope;
use crate::error::Result;

/// Values that come to a device portion by portion, beside its work: one of two buffers is filled
/// while the device reads the other.
///
/// ```
/// use megabatch_gpu_core::{Device, DoubleBufferedUpload};
///
/// let mut intake = DoubleBufferedUpload::<f32>::new(&Device::cpu().scope("example"))?;
/// intake.take(&[1.0, 2.0])?;
/// intake.take(&[3.0])?;
/// assert_eq!(intake.values().to_vec()?, [3.0, 0.0]);
/// # Ok::<(), megabatch_gpu_core::Error>(())
/// ```
#[derive(Debug)]
pub struct DoubleBufferedUpload<T: Pod> {
    buffers: [Buffer<T>; 2],
    /// The one that was filled last.
    now: usize,
    /// On a GPU, from the first values on.
    lane: Option<CopyStream>,
}

impl<T: Pod> DoubleBufferedUpload<T> {
    /// An intake to the device of `scope`, on which its memory is booked as portions come.
    ///
    /// # Errors
    /// As [`Buffer::zeros`].
    pub fn new(scope: &Scope) -> Result<Self> {
        Ok(DoubleBufferedUpload { buffers: [Buffer::zeros(scope, 0)?, Buffer::zeros(scope, 0)?], now: 0, lane: None })
    }

    /// Takes `values` in place of those before the last. They have been read when this returns, and
    /// are in [`DoubleBufferedUpload::values`] for all that is submitted to the default stream
    /// later; on a GPU they come through page-locked memory, while what was submitted since the
    /// last call is at work. Waits only for the copy before the last one, and for values that are
    /// in page-locked memory themselves ([`Scope::page_locked`]) for their own copy.
    ///
    /// Memory is taken where there is less than the values need, for both buffers at once.
    ///
    /// # Errors
    /// As [`Buffer::zeros`]; [`Error::Driver`](crate::Error::Driver) for a GPU that fails, or that
    /// could lock no more pages.
    pub fn take(&mut self, values: &[T]) -> Result<()> {
        self.release(self.now)?;
        self.now = 1 - self.now;
        self.reserve(values.len())?;
        let dst = &mut self.buffers[self.now];
        match (&mut self.lane, dst.gpu()) {
            _ if values.is_empty() => Ok(()),
            (Some(lane), Some(gpu)) => lane.send(gpu, bytemuck::cast_slice(values), self.now, dst.address()),
            _ => dst.copy_from_at(0, values),
        }
    }

    /// Takes memory for portions of up to `len` values; what was taken before is lost where there
    /// is less.
    ///
    /// # Errors
    /// As [`DoubleBufferedUpload::take`].
    pub fn reserve(&mut self, len: usize) -> Result<()> {
        if self.values().len() < len { self.grow(len) } else { Ok(()) }
    }

    /// The values that were taken last, from the first element on; there may be room for more
    /// behind them.
    pub fn values(&self) -> &Buffer<T> {
        &self.buffers[self.now]
    }

    fn grow(&mut self, len: usize) -> Result<()> {
        let scope = self.values().scope().clone();
        // Given back before the new memory is taken.
        self.buffers = [Buffer::zeros(&scope, 0)?, Buffer::zeros(&scope, 0)?];
        self.buffers = [Buffer::zeros(&scope, len)?, Buffer::zeros(&scope, len)?];
        if let (None, Some(gpu)) = (&self.lane, self.values().gpu()) {
            self.lane = Some(CopyStream::new(gpu)?);
        }
        // Whatever used that memory before is to be done first.
        [0, 1].into_iter().try_for_each(|block| self.release(block))
    }

    /// Allows a buffer to be filled after the work submitted so far.
    fn release(&self, block: usize) -> Result<()> {
        match (&self.lane, self.buffers[block].gpu()) {
            (Some(lane), Some(gpu)) => lane.release(gpu, block),
            _ => Ok(()),
        }
    }
}
