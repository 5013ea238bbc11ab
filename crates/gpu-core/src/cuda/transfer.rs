//! Copies between pinned memory and a GPU that the host does not wait for.

#![allow(unsafe_code, reason = "the driver is called")]

use bytemuck::Pod;

use super::copy::{MemoryRegion, StreamQueue};
use super::pinned::Pinned;
use super::stream::Stream;
use crate::error::Result;

/// Pinned memory that a copy is under way from or to. Nobody can touch it before the copy is done:
/// [`Transfer::wait`] gives it back. Dropped, it goes back to the pool, which hands it out again
/// once the copy is done.
#[derive(Debug)]
#[must_use = "what is copied to the host is had by waiting for it"]
pub struct Transfer<T: Pod> {
    pinned: Pinned<T>,
}

impl<T: Pod> Transfer<T> {
    /// Waits until the copy is done, and gives the memory back.
    ///
    /// # Errors
    /// [`Error::Driver`](crate::Error::Driver), also for work that was submitted earlier and
    /// failed.
    pub fn wait(mut self) -> Result<Pinned<T>> {
        self.pinned.land()?;
        Ok(self.pinned)
    }
}

impl Stream {
    /// Copies `src` to the GPU's memory from `dst` on. The caller does not wait.
    ///
    /// # Errors
    /// [`Error::Driver`](crate::Error::Driver).
    ///
    /// # Safety
    /// From `dst` on, memory of this stream's GPU is allocated for all of `src` until the copy is
    /// done, and nothing uses it meanwhile that the streams do not order.
    pub unsafe fn upload<T: Pod>(&self, src: Pinned<T>, dst: u64) -> Result<Transfer<T>> {
        let dst = MemoryRegion { address: dst, bytes: size_of_val(src.as_slice()) };
        self.transfer(src, |queue, host| {
            // SAFETY: the GPU's side as the caller promised; the host's belongs to the transfer,
            // which keeps everybody off it.
            unsafe { queue.upload(host, dst) }
        })
    }

    /// Copies the GPU's memory from `src` on to all of `dst`. The caller does not wait.
    ///
    /// # Errors
    /// [`Error::Driver`](crate::Error::Driver).
    ///
    /// # Safety
    /// From `src` on, memory of this stream's GPU is allocated for all of `dst` until the copy is
    /// done, and nothing writes it meanwhile that the streams do not order.
    pub unsafe fn download<T: Pod>(&self, src: u64, dst: Pinned<T>) -> Result<Transfer<T>> {
        let src = MemoryRegion { address: src, bytes: size_of_val(dst.as_slice()) };
        self.transfer(dst, |queue, host| {
            // SAFETY: the GPU's side as the caller promised; the host's belongs to the transfer,
            // which keeps everybody off it.
            unsafe { queue.download(src, host) }
        })
    }

    /// Copies `bytes` within the GPU's memory. The caller does not wait.
    ///
    /// # Errors
    /// [`Error::Driver`](crate::Error::Driver).
    ///
    /// # Safety
    /// Both ranges are allocated memory of this stream's GPU until the copy is done and do not
    /// overlap, and nothing uses them meanwhile that the streams do not order.
    pub unsafe fn copy(&self, src: u64, dst: u64, bytes: usize) -> Result<()> {
        // SAFETY: as the caller promised.
        unsafe { self.queue().copy(src, MemoryRegion { address: dst, bytes }) }
            .map_err(|fault| self.context().error(fault))
    }

    /// Submits a copy and records its end. Where it cannot be recorded, the host waits for it, as
    /// the memory must not be touched before.
    fn transfer<T: Pod>(
        &self,
        mut pinned: Pinned<T>,
        submit: impl FnOnce(StreamQueue<'_>, *mut std::ffi::c_void) -> Result<(), super::DriverFault>,
    ) -> Result<Transfer<T>> {
        submit(self.queue(), pinned.address()).map_err(|fault| self.context().error(fault))?;
        pinned.depart(self)?;
        Ok(Transfer { pinned })
    }
}
