//! Copies and fills, in the order of a stream.

use std::ffi::c_void;

use cust::sys;

use super::fault::{Fault, checked};
use super::stream::Streams;
use crate::source::StreamId;

/// A stretch of a GPU's memory that a copy or a fill works on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stretch {
    pub(crate) address: u64,
    pub(crate) bytes: usize,
}

/// A stream by its number, with what it takes to submit to it.
#[derive(Clone, Copy)]
pub(crate) struct On<'s> {
    pub(crate) streams: &'s Streams,
    pub(crate) id: StreamId,
}

impl On<'_> {
    /// Copies host memory to the GPU.
    ///
    /// # Safety
    /// Both stretches are allocated for as long as it takes. Where the host memory is page-locked, nobody writes it until the copy is done;
    /// other host memory has been read when the call returns.
    pub(crate) unsafe fn upload(self, from: *const c_void, to: Stretch) -> Result<(), Fault> {
        self.submit("cuMemcpyHtoDAsync", to, format_args!("from host {from:?}"), |stream| {
            // SAFETY: as the caller promised.
            unsafe { sys::cuMemcpyHtoDAsync_v2(to.address, from, to.bytes, stream) }
        })
    }

    /// Copies the GPU's memory to the host.
    ///
    /// # Safety
    /// Both stretches are allocated for as long as it takes. Where the host memory is page-locked, nobody touches it until the copy is done;
    /// other host memory has been written when the stream is next synchronised.
    pub(crate) unsafe fn download(self, from: Stretch, to: *mut c_void) -> Result<(), Fault> {
        self.submit("cuMemcpyDtoHAsync", from, format_args!("to host {to:?}"), |stream| {
            // SAFETY: as the caller promised.
            unsafe { sys::cuMemcpyDtoHAsync_v2(to, from.address, from.bytes, stream) }
        })
    }

    /// Copies within the GPU's memory.
    ///
    /// # Safety
    /// Both stretches are allocated for as long as it takes, and do not overlap.
    pub(crate) unsafe fn copy(self, from: u64, to: Stretch) -> Result<(), Fault> {
        self.submit("cuMemcpyDtoDAsync", to, format_args!("from {from:#x}"), |stream| {
            // SAFETY: as the caller promised.
            unsafe { sys::cuMemcpyDtoDAsync_v2(to.address, from, to.bytes, stream) }
        })
    }

    /// Sets every byte to `value`.
    ///
    /// # Safety
    /// The stretch is allocated for as long as it takes.
    pub(crate) unsafe fn fill(self, to: Stretch, value: u8) -> Result<(), Fault> {
        self.submit("cuMemsetD8Async", to, format_args!("value {value}"), |stream| {
            // SAFETY: as the caller promised.
            unsafe { sys::cuMemsetD8Async(to.address, value, to.bytes, stream) }
        })
    }

    /// Calls the driver, unless there is nothing to do.
    fn submit(
        self,
        call: &'static str,
        stretch: Stretch,
        other: std::fmt::Arguments<'_>,
        submit: impl FnOnce(sys::CUstream) -> sys::CUresult,
    ) -> Result<(), Fault> {
        let Stretch { address, bytes } = stretch;
        if bytes == 0 {
            return Ok(());
        }
        self.streams.enter()?;
        let code = submit(self.streams.raw(self.id));
        checked(call, format_args!("{address:#x}, {bytes} bytes, {other}, stream {}", self.id.0), code)
    }
}
