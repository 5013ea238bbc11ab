//! Copies between pinned memory and a GPU that the host does not wait for.

use bytemuck::Pod;

use super::copy::{MemoryRegion, On};
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

    /// True if the copy is done. Does not wait.
    ///
    /// # Errors
    /// As [`Transfer::wait`].
    pub fn is_done(&self) -> Result<bool> {
        self.pinned.event().is_done()
    }
}

impl Stream {
    /// Copies `from` to the GPU's memory from `to` on. The caller does not wait.
    ///
    /// # Errors
    /// [`Error::Driver`](crate::Error::Driver).
    ///
    /// # Safety
    /// From `to` on, memory of this stream's GPU is allocated for all of `from` until the copy is
    /// done, and nothing uses it meanwhile that the streams do not order.
    pub unsafe fn upload<T: Pod>(&self, from: Pinned<T>, to: u64) -> Result<Transfer<T>> {
        let to = MemoryRegion { address: to, bytes: size_of_val(from.as_slice()) };
        self.transfer(from, |on, host| {
            // SAFETY: the GPU's side as the caller promised; the host's belongs to the transfer,
            // which keeps everybody off it.
            unsafe { on.upload(host, to) }
        })
    }

    /// Copies the GPU's memory from `from` on to all of `to`. The caller does not wait.
    ///
    /// # Errors
    /// [`Error::Driver`](crate::Error::Driver).
    ///
    /// # Safety
    /// From `from` on, memory of this stream's GPU is allocated for all of `to` until the copy is
    /// done, and nothing writes it meanwhile that the streams do not order.
    pub unsafe fn download<T: Pod>(&self, from: u64, to: Pinned<T>) -> Result<Transfer<T>> {
        let from = MemoryRegion { address: from, bytes: size_of_val(to.as_slice()) };
        self.transfer(to, |on, host| {
            // SAFETY: the GPU's side as the caller promised; the host's belongs to the transfer,
            // which keeps everybody off it.
            unsafe { on.download(from, host) }
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
    pub unsafe fn copy(&self, from: u64, to: u64, bytes: usize) -> Result<()> {
        // SAFETY: as the caller promised.
        unsafe { self.on().copy(from, MemoryRegion { address: to, bytes }) }
            .map_err(|fault| self.context().error(fault))
    }

    /// Sets `bytes` bytes of the GPU's memory to zero. The caller does not wait.
    ///
    /// # Errors
    /// [`Error::Driver`](crate::Error::Driver).
    ///
    /// # Safety
    /// The range is allocated memory of this stream's GPU until it is done, and nothing uses it
    /// meanwhile that the streams do not order.
    pub unsafe fn zero(&self, address: u64, bytes: usize) -> Result<()> {
        // SAFETY: as the caller promised.
        unsafe { self.on().fill(MemoryRegion { address, bytes }, 0) }.map_err(|fault| self.context().error(fault))
    }

    /// Submits a copy and records its end. Where it cannot be recorded, the host waits for it, as
    /// the memory must not be touched before.
    fn transfer<T: Pod>(
        &self,
        mut pinned: Pinned<T>,
        submit: impl FnOnce(On<'_>, *mut std::ffi::c_void) -> Result<(), super::DriverFault>,
    ) -> Result<Transfer<T>> {
        submit(self.on(), pinned.address()).map_err(|fault| self.context().error(fault))?;
        pinned.depart(self)?;
        Ok(Transfer { pinned })
    }
}
