//! Events: moments in the order of a stream.

use std::sync::Arc;

use cust::event::{Event as Created, EventFlags, EventStatus};
use cust::sys::{self, CUstream};

use super::context::Context;
use super::fault::{Checked as _, Fault, checked};
use super::stream::Stream;
use crate::error::Result;
use crate::source::StreamId;

/// A moment in the order of a stream: it has passed when all work submitted before it is done.
#[derive(Debug)]
pub struct Event {
    /// `None` only while dropping.
    created: Option<Created>,
    context: Arc<Context>,
}

impl Event {
    pub(crate) fn new(context: &Arc<Context>) -> Result<Self, Fault> {
        context.enter()?;
        let created = Created::new(EventFlags::DEFAULT).checked("cuEventCreate", format_args!("flags 0"))?;
        Ok(Event { created: Some(created), context: Arc::clone(context) })
    }

    /// Records the moment after all that was submitted to `stream` so far, in place of what was recorded before.
    ///
    /// # Errors
    /// [`Error::Driver`](crate::Error::Driver).
    pub fn record(&self, stream: &Stream) -> Result<()> {
        self.record_on(stream.raw(), stream.id()).map_err(|fault| self.context.error(fault))
    }

    /// Whether the recorded moment has passed; true where nothing was recorded. Does not wait.
    ///
    /// # Errors
    /// [`Error::Driver`](crate::Error::Driver), also for work that was submitted earlier and failed.
    pub fn is_done(&self) -> Result<bool> {
        let query = || {
            self.context.enter()?;
            self.created().query().checked("cuEventQuery", format_args!("no operands"))
        };
        Ok(query().map_err(|fault| self.context.error(fault))? == EventStatus::Ready)
    }

    /// Waits until the recorded moment has passed.
    ///
    /// # Errors
    /// [`Error::Driver`](crate::Error::Driver), also for work that was submitted earlier and failed.
    pub fn wait(&self) -> Result<()> {
        let wait = || {
            self.context.enter()?;
            self.created().synchronize().checked("cuEventSynchronize", format_args!("no operands"))
        };
        wait().map_err(|fault| self.context.error(fault))
    }

    /// Milliseconds from the moment that `earlier` recorded to the one that this event did, to half a microsecond or so.
    ///
    /// # Errors
    /// [`Error::Driver`](crate::Error::Driver) where one of the two has recorded nothing or its moment has not passed.
    pub fn elapsed_ms_since(&self, earlier: &Event) -> Result<f32> {
        let elapsed = || {
            self.context.enter()?;
            let elapsed = self.created().elapsed_time_f32(earlier.created());
            elapsed.checked("cuEventElapsedTime", format_args!("two events"))
        };
        elapsed().map_err(|fault| self.context.error(fault))
    }

    /// Records on a stream of the event's context.
    pub(crate) fn record_on(&self, stream: CUstream, id: StreamId) -> Result<(), Fault> {
        self.context.enter()?;
        // SAFETY: both handles are live: the event is ours, and streams live as long as their table.
        let code = unsafe { sys::cuEventRecord(self.created().as_inner(), stream) };
        checked("cuEventRecord", format_args!("stream {}", id.0), code)
    }

    /// Makes a stream wait for what is recorded now: recording anew afterwards does not change what it waits for.
    pub(crate) fn order(&self, waiting: CUstream, id: StreamId) -> Result<(), Fault> {
        self.context.enter()?;
        // SAFETY: both handles are live: the event is ours, and streams live as long as their table.
        let code = unsafe { sys::cuStreamWaitEvent(waiting, self.created().as_inner(), 0) };
        checked("cuStreamWaitEvent", format_args!("stream {}", id.0), code)
    }

    fn created(&self) -> &Created {
        self.created.as_ref().expect("an event is there until it is dropped")
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // The driver wants the context current. Where it cannot be, it is gone, and the event with it.
        if self.context.enter().is_ok() {
            drop(self.created.take());
        }
    }
}
