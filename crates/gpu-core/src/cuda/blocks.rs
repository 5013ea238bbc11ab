//! Operations of buffers on blocks of a GPU's memory: on the default stream, so that it comes after
//! all that was submitted before on any stream, and before all that is submitted later.

use std::fmt;

use bytemuck::Pod;

use super::Gpu;
use super::copy::{MemoryRegion, On};
use super::fault::Fault;
use super::pinned::Pinned;
use super::stream::Stream;
use super::transfer::Transfer;
use crate::buffer::Buffer;
use crate::error::Result;
use crate::source::{self, Source, StreamId};

impl Gpu {
    pub(crate) fn source(&self) -> Result<Box<dyn Source>> {
        Ok(Box::new(source::Cuda::new(self)?))
    }

    pub(crate) fn free_bytes(&self) -> Option<usize> {
        self.memory().ok().map(|memory| memory.free_bytes)
    }

    /// Sets a live block to zero. The caller does not wait.
    pub(crate) fn zero_block(&self, address: u64, bytes: usize) -> Result<()> {
        // SAFETY: the block is live. It stays mapped until the work is done, also if it is freed
        // before: unmapping waits.
        self.on_default(|on| unsafe { on.fill(MemoryRegion { address, bytes }, 0) })
    }

    /// Writes to a live block, and waits until it is done.
    pub(crate) fn write_block(&self, address: u64, from: &[u8]) -> Result<()> {
        // SAFETY: the block is live, and `from` lives until the stream has been waited for.
        self.on_default(|on| unsafe { on.upload(from.as_ptr().cast(), MemoryRegion { address, bytes: from.len() }) })?;
        self.default_stream().synchronize()
    }

    /// Reads a live block, after all that was submitted to any stream.
    pub(crate) fn read_block(&self, address: u64, to: &mut [u8]) -> Result<()> {
        // SAFETY: the block is live, and `to` is borrowed until the stream has been waited for.
        self.on_default(|on| unsafe {
            on.download(MemoryRegion { address, bytes: to.len() }, to.as_mut_ptr().cast())
        })?;
        self.default_stream().synchronize()
    }

    /// Copies between two live blocks. The caller does not wait.
    pub(crate) fn copy_block(&self, from: u64, to: u64, bytes: usize) -> Result<()> {
        // SAFETY: both blocks are live and not the same. They stay mapped until the work is done,
        // also if they are freed before.
        self.on_default(|on| unsafe { on.copy(from, MemoryRegion { address: to, bytes }) })
    }

    fn on_default(&self, submit: impl FnOnce(On<'_>) -> Result<(), Fault>) -> Result<()> {
        let on = On { streams: self.streams(), id: StreamId(0) };
        submit(on).map_err(|fault| self.context().error(fault))
    }
}

impl fmt::Display for Gpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.context().name())
    }
}

impl<T: Pod> Buffer<T> {
    /// Copies all of `from` here in the order of `stream`. The caller does not wait.
    ///
    /// # Errors
    /// [`Error::Driver`](crate::Error::Driver).
    ///
    /// # Panics
    /// If the lengths differ, or if the buffer is not in the memory of the stream's GPU.
    pub fn upload(&mut self, stream: &Stream, from: Pinned<T>) -> Result<Transfer<T>> {
        self.assert_fits(stream, from.len());
        // SAFETY: the buffer is live and of this length. Its memory stays mapped until the copy is
        // done, also if the buffer is dropped before: unmapping waits, and its next owner begins on
        // the default stream, after this.
        unsafe { stream.upload(from, self.address()) }
    }

    /// Copies all of this to `to` in the order of `stream`. The caller does not wait.
    ///
    /// # Errors
    /// [`Error::Driver`](crate::Error::Driver).
    ///
    /// # Panics
    /// If the lengths differ, or if the buffer is not in the memory of the stream's GPU.
    pub fn download(&self, stream: &Stream, to: Pinned<T>) -> Result<Transfer<T>> {
        self.assert_fits(stream, to.len());
        // SAFETY: as in `upload`.
        unsafe { stream.download(self.address(), to) }
    }

    fn assert_fits(&self, stream: &Stream, len: usize) {
        assert_eq!(self.len(), len, "a copy is of as many elements on both sides");
        let gpu = self.gpu().expect("a copy on a stream is to or from a GPU's memory");
        assert!(std::ptr::eq(&**gpu.context(), &**stream.context()), "a buffer is copied on a stream of its own GPU");
    }
}
