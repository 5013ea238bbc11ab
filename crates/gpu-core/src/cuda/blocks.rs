//! Operations of buffers on blocks of a GPU's memory: on the default stream, so that it comes after
//! all that was submitted before on any stream, and before all that is submitted later.

#![allow(unsafe_code, reason = "the driver is called")]

use std::fmt;

use cust::sys;

use super::copy::{MemoryRegion, StreamQueue};
use super::fault::{DriverFault, checked};
use super::{Gpu, GpuSource};
use crate::error::Result;
use crate::source::{Refusal, Source, StreamId};

impl Gpu {
    pub(crate) fn source(&self) -> Result<Box<dyn Source>> {
        Ok(Box::new(GpuSource::new(self)?))
    }

    pub(crate) fn free_bytes(&self) -> Option<usize> {
        self.memory().ok().map(|memory| memory.free_bytes)
    }

    /// An allocation of the driver's, apart from the pool, of undefined contents.
    pub(crate) fn allocate_apart(&self, bytes: usize) -> Result<u64, Refusal> {
        self.context().enter()?;
        let mut address = 0;
        // SAFETY: `address` is a variable of this function.
        let code = unsafe { sys::cuMemAlloc_v2(&raw mut address, bytes) };
        checked("cuMemAlloc", format_args!("{bytes} bytes"), code)?;
        Ok(address)
    }

    /// Gives an allocation back that was made apart, once all work submitted to any stream is done.
    /// Nobody could be told of a failure: the driver takes all back when the process ends.
    pub(crate) fn free_apart(&self, address: u64) {
        if self.context().synchronize().is_ok() {
            // SAFETY: the driver gave the address, its one owner drops it, and no work is left.
            let _ = unsafe { sys::cuMemFree_v2(address) };
        }
    }

    /// Sets a live block to zero. The caller does not wait.
    pub(crate) fn zero_block(&self, address: u64, bytes: usize) -> Result<()> {
        // SAFETY: the block is live. It stays mapped until the work is done, also if it is freed
        // before: unmapping waits.
        self.on_default(|queue| unsafe { queue.zero(MemoryRegion { address, bytes }) })
    }

    /// Writes to a live block, and waits until it is done.
    pub(crate) fn write_block(&self, address: u64, src: &[u8]) -> Result<()> {
        // SAFETY: the block is live, and `src` lives until the stream has been waited for.
        self.on_default(|queue| unsafe {
            queue.upload(src.as_ptr().cast(), MemoryRegion { address, bytes: src.len() })
        })?;
        self.default_stream().synchronize()
    }

    /// Reads a live block, after all that was submitted to any stream.
    pub(crate) fn read_block(&self, address: u64, dst: &mut [u8]) -> Result<()> {
        // SAFETY: the block is live, and `dst` is borrowed until the stream has been waited for.
        self.on_default(|queue| unsafe {
            queue.download(MemoryRegion { address, bytes: dst.len() }, dst.as_mut_ptr().cast())
        })?;
        self.default_stream().synchronize()
    }

    /// Copies between two live blocks. The caller does not wait.
    pub(crate) fn copy_block(&self, src: u64, dst: u64, bytes: usize) -> Result<()> {
        // SAFETY: both blocks are live and not the same. They stay mapped until the work is done,
        // also if they are freed before.
        self.on_default(|queue| unsafe { queue.copy(src, MemoryRegion { address: dst, bytes }) })
    }

    fn on_default(&self, submit: impl FnOnce(StreamQueue<'_>) -> Result<(), DriverFault>) -> Result<()> {
        let queue = StreamQueue { streams: self.streams(), id: StreamId(0) };
        submit(queue).map_err(|fault| self.context().error(fault))
    }
}

impl fmt::Display for Gpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.context().name())
    }
}
