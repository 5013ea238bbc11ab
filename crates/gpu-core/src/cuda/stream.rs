//! Streams: orders of work on a GPU.

#![allow(unsafe_code, reason = "the driver is called")]

use std::fmt;
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cust::stream::{Stream as Created, StreamFlags};
use cust::sys::{self, CUresult, CUstream};

use super::context::Context;
use super::copy::StreamQueue;
use super::event::Event;
use super::fault::{Checked as _, DriverFault, checked};
use crate::error::Result;
use crate::source::StreamId;

/// All streams of a GPU. They live as long as the table, so a number stays valid.
pub(crate) struct GpuStreams {
    table: Mutex<StreamSlots>,
    context: Arc<Context>,
}

#[derive(Default)]
struct StreamSlots {
    /// The stream with number 1 comes first; 0 is the default stream, which the driver has.
    all: Vec<StreamSlot>,
    /// Numbers that nobody has.
    idle: Vec<StreamId>,
}

enum StreamSlot {
    /// A stream that ends with the table.
    Created(Created),
    /// A stream of the program's, or the default stream as the program uses it: it need not be
    /// ordered with the default stream.
    External(CUstream),
}

// SAFETY: the handle of an external stream is a number to the driver, which any thread may pass it.
unsafe impl Send for StreamSlot {}

impl GpuStreams {
    pub(crate) fn new(context: Arc<Context>) -> Self {
        GpuStreams { table: Mutex::default(), context }
    }

    pub(crate) fn default_stream(streams: &Arc<GpuStreams>) -> Stream {
        Stream { id: StreamId(0), streams: Arc::clone(streams) }
    }

    pub(crate) fn take(streams: &Arc<GpuStreams>) -> Result<Stream> {
        let mut table = streams.table();
        let id = match table.idle.pop() {
            Some(id) => id,
            None => streams.create(&mut table).map_err(|fault| streams.context.error(fault))?,
        };
        drop(table);
        Ok(Stream { id, streams: Arc::clone(streams) })
    }

    /// The driver's handle of a stream; null for the default stream.
    ///
    /// # Panics
    /// If no such stream was created.
    pub(crate) fn raw(&self, id: StreamId) -> CUstream {
        match self.table().slot(id) {
            None => ptr::null_mut(),
            Some(StreamSlot::Created(stream)) => stream.as_inner(),
            Some(StreamSlot::External(stream)) => *stream,
        }
    }

    pub(crate) fn enter(&self) -> Result<(), DriverFault> {
        self.context.enter()
    }

    pub(super) fn context(&self) -> &Context {
        &self.context
    }

    /// Numbers of all streams, the default stream's first.
    pub(crate) fn ids(&self) -> impl Iterator<Item = StreamId> + use<> {
        (0..=self.table().all.len() as u32).map(StreamId)
    }

    /// True if all work submitted to a stream is done. Does not wait.
    pub(crate) fn is_idle(&self, id: StreamId) -> Result<bool, DriverFault> {
        self.enter()?;
        // SAFETY: the stream is of this context and lives as long as the table.
        match unsafe { sys::cuStreamQuery(self.raw(id)) } {
            CUresult::CUDA_ERROR_NOT_READY => Ok(false),
            code => checked("cuStreamQuery", format_args!("stream {}", id.0), code).map(|()| true),
        }
    }

    fn create(&self, table: &mut StreamSlots) -> Result<StreamId, DriverFault> {
        self.context.enter()?;
        // cust leaves out NON_BLOCKING, so that the stream is ordered with the default stream,
        // which Gpu promises.
        let stream = Created::new(StreamFlags::DEFAULT, None)
            .checked("cuStreamCreateWithPriority", format_args!("priority 0"))?;
        Ok(table.add(StreamSlot::Created(stream)))
    }

    /// The number of a stream that the program made, or of its default stream (null). It is the
    /// same each time.
    pub(crate) fn external(&self, stream: CUstream) -> StreamId {
        let mut table = self.table();
        let known = table.all.iter().position(|slot| matches!(slot, StreamSlot::External(known) if *known == stream));
        known.map_or_else(|| table.add(StreamSlot::External(stream)), |index| StreamId(index as u32 + 1))
    }

    /// True if no work of the default stream is ordered with that of stream `id`.
    pub(crate) fn is_external(&self, id: StreamId) -> bool {
        matches!(self.table().slot(id), Some(StreamSlot::External(_)))
    }

    fn table(&self) -> MutexGuard<'_, StreamSlots> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl StreamSlots {
    /// The stream with this number; `None` for the default stream.
    ///
    /// # Panics
    /// If there is no such stream.
    fn slot(&self, id: StreamId) -> Option<&StreamSlot> {
        id.0.checked_sub(1).map(|index| &self.all[index as usize])
    }

    fn add(&mut self, stream: StreamSlot) -> StreamId {
        self.all.push(stream);
        StreamId(u32::try_from(self.all.len()).expect("fewer streams than numbers"))
    }
}

impl Drop for GpuStreams {
    fn drop(&mut self) {
        // The streams end after this, and the driver wants their context current. Where it cannot
        // be, it is gone, and they with it.
        let _ = self.context.enter_aside();
    }
}

impl fmt::Debug for GpuStreams {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Streams({}, {} beside the default stream)", self.context.name(), self.table().all.len())
    }
}

/// An order of work on a GPU. See [the module](super) for how streams are ordered among each other.
#[derive(Debug)]
pub struct Stream {
    id: StreamId,
    streams: Arc<GpuStreams>,
}

impl Stream {
    /// The number under which the memory pool knows the stream.
    pub fn id(&self) -> StreamId {
        self.id
    }

    /// Waits until all work submitted to the stream is done.
    ///
    /// # Errors
    /// [`Error::Driver`](crate::Error::Driver), also for work that was submitted earlier and
    /// failed.
    pub fn synchronize(&self) -> Result<()> {
        let wait = || {
            self.context().enter()?;
            // SAFETY: the stream is of this context and lives as long as the table, which `self`
            // keeps.
            let code = unsafe { sys::cuStreamSynchronize(self.raw()) };
            checked("cuStreamSynchronize", format_args!("stream {}", self.id.0), code)
        };
        wait().map_err(|fault| self.context().error(fault))
    }

    /// Orders later work of this stream after the work that `event` recorded. The caller does not
    /// wait.
    ///
    /// # Errors
    /// [`Error::Driver`](crate::Error::Driver).
    pub fn wait_for(&self, event: &Event) -> Result<()> {
        event.order(self.raw(), self.id).map_err(|fault| self.context().error(fault))
    }

    pub(crate) fn raw(&self) -> CUstream {
        self.streams.raw(self.id)
    }

    pub(super) fn queue(&self) -> StreamQueue<'_> {
        StreamQueue { streams: &self.streams, id: self.id }
    }

    pub(crate) fn context(&self) -> &Arc<Context> {
        &self.streams.context
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // Work may still be running on it: whoever takes the stream next is ordered after that
        // work.
        if self.id != StreamId(0) {
            self.streams.table().idle.push(self.id);
        }
    }
}
