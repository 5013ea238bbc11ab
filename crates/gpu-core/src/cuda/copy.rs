//! Copies and fills, in the order of a stream.

#![allow(unsafe_code, reason = "the driver is called")]

use std::ffi::c_void;

use cust::sys;

use super::fault::{DriverFault, checked};
use super::gpu_command::GpuCommand;
use super::stream::GpuStreams;
use crate::source::StreamId;

/// A range of a GPU's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct MemoryRegion {
    pub(crate) address: u64,
    pub(crate) bytes: usize,
}

/// A stream by its number, ready for submissions.
#[derive(Clone, Copy)]
pub(crate) struct StreamQueue<'s> {
    pub(crate) streams: &'s GpuStreams,
    pub(crate) id: StreamId,
}

impl StreamQueue<'_> {
    /// Copies host memory to the GPU.
    ///
    /// # Safety
    /// Both ranges are allocated for as long as it takes. Where the host memory is page-locked,
    /// nobody writes it until the copy is done; other host memory has been read when the call
    /// returns.
    pub(crate) unsafe fn upload(self, src: *const c_void, dst: MemoryRegion) -> Result<(), DriverFault> {
        self.transfer("cuMemcpyHtoDAsync", dst, format_args!("from host {src:?}"), |stream| {
            // SAFETY: as the caller promised.
            unsafe { sys::cuMemcpyHtoDAsync_v2(dst.address, src, dst.bytes, stream) }
        })
    }

    /// Copies the GPU's memory to the host.
    ///
    /// # Safety
    /// Both ranges are allocated for as long as it takes. Where the host memory is page-locked,
    /// nobody touches it until the copy is done; other host memory has been written when the stream
    /// is next synchronised.
    pub(crate) unsafe fn download(self, src: MemoryRegion, dst: *mut c_void) -> Result<(), DriverFault> {
        self.transfer("cuMemcpyDtoHAsync", src, format_args!("to host {dst:?}"), |stream| {
            // SAFETY: as the caller promised.
            unsafe { sys::cuMemcpyDtoHAsync_v2(dst, src.address, src.bytes, stream) }
        })
    }

    /// Copies within the GPU's memory.
    ///
    /// # Safety
    /// Both ranges are allocated for as long as it takes, and do not overlap.
    pub(crate) unsafe fn copy(self, src: u64, dst: MemoryRegion) -> Result<(), DriverFault> {
        // SAFETY: as the caller promised.
        unsafe { self.submit_unless_empty(GpuCommand::Copy { src, dst }, dst) }
    }

    /// Sets every byte to zero.
    ///
    /// # Safety
    /// The range is allocated for as long as it takes.
    pub(crate) unsafe fn zero(self, dst: MemoryRegion) -> Result<(), DriverFault> {
        // SAFETY: as the caller promised.
        unsafe { self.submit_unless_empty(GpuCommand::Zero { dst }, dst) }
    }

    /// # Safety
    /// As [`StreamQueue::submit`].
    unsafe fn submit_unless_empty(self, work: GpuCommand, region: MemoryRegion) -> Result<(), DriverFault> {
        // SAFETY: as the caller promised.
        if region.bytes == 0 { Ok(()) } else { unsafe { self.submit(work) } }
    }

    /// Submits what needs nothing of the host, which on the default stream may be
    /// [deferred](super::command_recorder).
    ///
    /// # Safety
    /// The memory that `work` reads and writes is allocated for as long as it takes, and nobody
    /// else uses it meanwhile, unless ordered by the streams.
    pub(super) unsafe fn submit(self, work: GpuCommand) -> Result<(), DriverFault> {
        let context = self.streams.context();
        let work = match self.id {
            StreamId(0) => context.defer(work),
            _ => Some(work),
        };
        let Some(work) = work else { return Ok(()) };
        context.enter()?;
        // SAFETY: as the caller promised; the stream lives as long as its table.
        unsafe { work.submit(self.id, self.streams.raw(self.id)) }
    }

    /// Calls the driver, unless there is nothing to do.
    fn transfer(
        self,
        call: &'static str,
        stretch: MemoryRegion,
        other: std::fmt::Arguments<'_>,
        submit: impl FnOnce(sys::CUstream) -> sys::CUresult,
    ) -> Result<(), DriverFault> {
        let MemoryRegion { address, bytes } = stretch;
        if bytes == 0 {
            return Ok(());
        }
        self.streams.enter()?;
        let code = submit(self.streams.raw(self.id));
        checked(call, format_args!("{address:#x}, {bytes} bytes, {other}, stream {}", self.id.0), code)
    }
}
