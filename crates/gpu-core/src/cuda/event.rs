//! Events: moments in the order of a stream. Straight to the driver, as cust's cannot wait for one
//! twice.

#![allow(unsafe_code, reason = "the driver is called")]

use std::ptr;
use std::sync::Arc;

use cust::sys::{self, CUevent, CUresult, CUstream};

use super::context::Context;
use super::fault::{DriverFault, checked};
use super::stream::Stream;
use crate::error::Result;
use crate::source::StreamId;

/// A moment in the order of a stream: it has passed when all work submitted before it is done.
#[derive(Debug)]
pub struct Event {
    event: CUevent,
    context: Arc<Context>,
}

// SAFETY: the handle is a number to the driver, which any thread may pass it, and several at a
// time.
unsafe impl Send for Event {}
// SAFETY: as above.
unsafe impl Sync for Event {}

impl Event {
    pub(crate) fn new(context: &Arc<Context>) -> Result<Self, DriverFault> {
        context.enter()?;
        let mut event = ptr::null_mut();
        // SAFETY: `event` is a variable of this function.
        let code = unsafe { sys::cuEventCreate(&raw mut event, 0) };
        checked("cuEventCreate", format_args!("flags 0"), code)?;
        Ok(Event { event, context: Arc::clone(context) })
    }

    /// Records the moment after the work submitted to `stream` so far, in place of an earlier
    /// moment.
    ///
    /// # Errors
    /// [`Error::Driver`](crate::Error::Driver).
    pub fn record(&self, stream: &Stream) -> Result<()> {
        self.record_on(stream.raw(), stream.id()).map_err(|fault| self.context.error(fault))
    }

    /// True if the recorded moment has passed; true where nothing was recorded. Does not wait.
    ///
    /// # Errors
    /// [`Error::Driver`](crate::Error::Driver), also for work that was submitted earlier and
    /// failed.
    pub fn is_done(&self) -> Result<bool> {
        self.query().map_err(|fault| self.context.error(fault))
    }

    /// Waits until the recorded moment has passed.
    ///
    /// # Errors
    /// [`Error::Driver`](crate::Error::Driver), also for work that was submitted earlier and
    /// failed.
    pub fn wait(&self) -> Result<()> {
        let wait = || {
            self.context.enter()?;
            self.wait_in_current()
        };
        wait().map_err(|fault| self.context.error(fault))
    }

    /// Milliseconds from the moment that `earlier` recorded to the one that this event did, to half
    /// a microsecond or so.
    ///
    /// # Errors
    /// [`Error::Driver`](crate::Error::Driver) where one of the two has recorded nothing or its
    /// moment has not passed.
    pub fn elapsed_ms_since(&self, earlier: &Event) -> Result<f32> {
        let elapsed = || {
            self.context.enter()?;
            self.elapsed_ms_in_current(earlier)
        };
        elapsed().map_err(|fault| self.context.error(fault))
    }

    pub(crate) fn record_on(&self, stream: CUstream, id: StreamId) -> Result<(), DriverFault> {
        self.context.enter()?;
        self.record_in_current(stream, id)
    }

    /// As [`Event::wait`] where the context is current; deferred work stays deferred.
    pub(super) fn wait_in_current(&self) -> Result<(), DriverFault> {
        // SAFETY: the event lives as long as `self`.
        let code = unsafe { sys::cuEventSynchronize(self.event) };
        checked("cuEventSynchronize", format_args!("{:?}", self.event), code)
    }

    /// As [`Event::elapsed_ms_since`], where the context is current.
    pub(super) fn elapsed_ms_in_current(&self, earlier: &Event) -> Result<f32, DriverFault> {
        let mut ms = 0.0;
        // SAFETY: `ms` is a variable of this function, and both events live.
        let code = unsafe { sys::cuEventElapsedTime(&raw mut ms, earlier.event, self.event) };
        checked("cuEventElapsedTime", format_args!("{:?} to {:?}", earlier.event, self.event), code)?;
        Ok(ms)
    }

    /// As [`Event::record_on`] where the context is current; deferred work stays deferred.
    pub(super) fn record_in_current(&self, stream: CUstream, id: StreamId) -> Result<(), DriverFault> {
        // SAFETY: both handles are live: the event is ours, and streams live as long as their
        // table.
        let code = unsafe { sys::cuEventRecord(self.event, stream) };
        checked("cuEventRecord", format_args!("stream {}", id.0), code)
    }

    /// Makes a stream wait for the work recorded now; a later recording does not change that.
    pub(crate) fn order(&self, waiting: CUstream, id: StreamId) -> Result<(), DriverFault> {
        self.context.enter()?;
        self.order_in_current(waiting, id)
    }

    /// As [`Event::order`] where the context is current; deferred work stays deferred.
    pub(super) fn order_in_current(&self, waiting: CUstream, id: StreamId) -> Result<(), DriverFault> {
        // SAFETY: both handles are live: the event is ours, and streams live as long as their
        // table.
        let code = unsafe { sys::cuStreamWaitEvent(waiting, self.event, 0) };
        checked("cuStreamWaitEvent", format_args!("stream {}", id.0), code)
    }

    fn query(&self) -> Result<bool, DriverFault> {
        self.context.enter()?;
        self.is_done_in_current()
    }

    /// As [`Event::is_done`] where the context is current; deferred work stays deferred.
    pub(super) fn is_done_in_current(&self) -> Result<bool, DriverFault> {
        // SAFETY: the event lives as long as `self`.
        match unsafe { sys::cuEventQuery(self.event) } {
            CUresult::CUDA_ERROR_NOT_READY => Ok(false),
            code => checked("cuEventQuery", format_args!("{:?}", self.event), code).map(|()| true),
        }
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // Where the context cannot be entered, it is gone, and the event with it.
        if self.context.enter_aside().is_ok() {
            // SAFETY: the event is ours, and nobody has it after this. What waits for it goes on
            // waiting for what was recorded.
            let _ = unsafe { sys::cuEventDestroy_v2(self.event) };
        }
    }
}
