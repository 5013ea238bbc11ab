//! Streams that are not ordered with the default stream.

#![allow(unsafe_code, reason = "the driver is called")]

use std::ptr;
use std::sync::Arc;

use cust::sys::{self, CUstream, CUstream_flags};

use super::context::Context;
use super::fault::{DriverFault, checked};
use crate::source::StreamId;

/// A stream beside all others, which only events order with them. No table has it.
#[derive(Debug)]
pub(super) struct NonBlockingStream {
    stream: CUstream,
    context: Arc<Context>,
}

// SAFETY: the handle is a number to the driver, which any thread may pass it, and several at a
// time.
unsafe impl Send for NonBlockingStream {}
// SAFETY: as above.
unsafe impl Sync for NonBlockingStream {}

impl NonBlockingStream {
    /// The number that messages give such a stream.
    pub(super) const ID: StreamId = StreamId(u32::MAX);

    /// Submits deferred work first, as every call does.
    pub(super) fn new(context: &Arc<Context>) -> Result<Self, DriverFault> {
        context.enter()?;
        NonBlockingStream::in_current(context)
    }

    /// A new stream where the context is current and nothing else is to be submitted.
    pub(super) fn in_current(context: &Arc<Context>) -> Result<Self, DriverFault> {
        let mut stream = ptr::null_mut();
        // Straight to the driver, as cust takes that flag away.
        let flags = CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
        // SAFETY: `stream` is a variable of this function.
        let code = unsafe { sys::cuStreamCreateWithPriority(&raw mut stream, flags, 0) };
        checked("cuStreamCreateWithPriority", format_args!("non-blocking, priority 0"), code)?;
        Ok(NonBlockingStream { stream, context: Arc::clone(context) })
    }

    pub(super) fn raw(&self) -> CUstream {
        self.stream
    }

    pub(super) fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// Waits for its work.
    pub(super) fn synchronize(&self) -> Result<(), DriverFault> {
        self.context.enter()?;
        // SAFETY: the stream lives as long as `self`.
        let code = unsafe { sys::cuStreamSynchronize(self.stream) };
        checked("cuStreamSynchronize", format_args!("stream {}", NonBlockingStream::ID.0), code)
    }
}

impl Drop for NonBlockingStream {
    fn drop(&mut self) {
        // Where the context cannot be current, it is gone, and the stream with it. What was
        // submitted to it ends nevertheless.
        if self.context.enter_aside().is_ok() {
            // SAFETY: the stream is ours, and nobody has it after this.
            let _ = unsafe { sys::cuStreamDestroy_v2(self.stream) };
        }
    }
}
