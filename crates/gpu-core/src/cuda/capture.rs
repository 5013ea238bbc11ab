//! Captures: CUDA graphs made of work in an order, which one call submits.
//!
//! Source: CUDA driver API, "Graph Management" and "Stream Management".

#![allow(unsafe_code, reason = "the driver is called")]

use std::ptr;
use std::sync::Arc;

use cust::sys::{self, CUgraph, CUgraphExec, CUstream, CUstreamCaptureMode};

use super::context::Context;
use super::fault::{DriverFault, checked};
use super::gpu_command::GpuCommand;
use super::non_blocking_stream::NonBlockingStream;

/// A stream that runs nothing: work is captured on it. Other threads may use the default stream
/// meanwhile.
#[derive(Debug)]
pub(super) struct CaptureStream {
    stream: NonBlockingStream,
}

impl CaptureStream {
    /// The context is current, here and in all that follows.
    pub(super) fn new(context: &Arc<Context>) -> Result<Self, DriverFault> {
        Ok(CaptureStream { stream: NonBlockingStream::in_current(context)? })
    }

    /// # Safety
    /// As [`GpuCommand::submit`], whenever the graph is launched.
    unsafe fn record(&self, work: &[GpuCommand]) -> Result<CudaGraph, DriverFault> {
        // Nothing but `work` is asked of the driver meanwhile. Other threads are not concerned.
        let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        // SAFETY: the stream lives as long as `self`.
        let code = unsafe { sys::cuStreamBeginCapture_v2(self.stream.raw(), mode) };
        checked("cuStreamBeginCapture", format_args!("thread-local"), code)?;
        // SAFETY: as the caller promised.
        let captured =
            work.iter().try_for_each(|work| unsafe { work.submit(NonBlockingStream::ID, self.stream.raw()) });
        // Also after a failure, without which the stream would go on capturing.
        let graph = end(self.stream.raw(), work.len());
        captured.and(graph)
    }
}

fn end(stream: CUstream, nodes: usize) -> Result<CudaGraph, DriverFault> {
    let mut graph = CudaGraph(ptr::null_mut());
    // SAFETY: the stream is its caller's, and the address that of a variable of this function.
    let code = unsafe { sys::cuStreamEndCapture(stream, &raw mut graph.0) };
    checked("cuStreamEndCapture", format_args!("{nodes} nodes"), code)?;
    Ok(graph)
}

/// A graph that is not executable.
struct CudaGraph(CUgraph);

impl Drop for CudaGraph {
    fn drop(&mut self) {
        if !self.0.is_null() {
            // SAFETY: the driver gave the graph, and nobody else has it.
            let _ = unsafe { sys::cuGraphDestroy(self.0) };
        }
    }
}

/// Work that was captured, in the driver's executable form.
#[derive(Debug)]
pub(super) struct Capture {
    executable: CUgraphExec,
    context: Arc<Context>,
}

// SAFETY: the handle is a number to the driver, which any thread may pass it, one at a time, as
// `&mut self` and drops see to.
unsafe impl Send for Capture {}

impl Capture {
    /// Captures `work`, which is not done yet.
    ///
    /// # Safety
    /// As [`GpuCommand::submit`], whenever the capture is launched.
    pub(super) unsafe fn new(recorder: &CaptureStream, work: &[GpuCommand]) -> Result<Self, DriverFault> {
        // SAFETY: as the caller promised.
        let graph = unsafe { recorder.record(work) }?;
        let mut executable = ptr::null_mut();
        // SAFETY: the graph is live, and the address that of a variable of this function.
        let code = unsafe { sys::cuGraphInstantiateWithFlags(&raw mut executable, graph.0, 0) };
        checked("cuGraphInstantiateWithFlags", format_args!("{} nodes", work.len()), code)?;
        Ok(Capture { executable, context: Arc::clone(recorder.stream.context()) })
    }

    /// Updates the capture to `work`, which is [like](GpuCommand::is_like) its old work. If that
    /// fails, the old work stays.
    ///
    /// # Safety
    /// As [`Capture::new`].
    pub(super) unsafe fn update(&mut self, recorder: &CaptureStream, work: &[GpuCommand]) -> Result<(), DriverFault> {
        // SAFETY: as the caller promised.
        let graph = unsafe { recorder.record(work) }?;
        // A number: drivers have reasons that the bindings' enum does not list.
        let (mut node, mut reason) = (ptr::null_mut(), 0i32);
        // SAFETY: both graphs are live, and the addresses those of variables of this function; the
        // enum behind the last one has the size of its number.
        let code = unsafe { sys::cuGraphExecUpdate(self.executable, graph.0, &raw mut node, (&raw mut reason).cast()) };
        checked("cuGraphExecUpdate", format_args!("{} nodes, reason {reason}", work.len()), code)
    }

    /// Submits all of it to the default stream.
    ///
    /// # Safety
    /// As [`GpuCommand::submit`] of the captured work.
    pub(super) unsafe fn launch(&mut self) -> Result<(), DriverFault> {
        // SAFETY: the executable is live; for the rest the caller answers.
        let code = unsafe { sys::cuGraphLaunch(self.executable, ptr::null_mut()) };
        checked("cuGraphLaunch", format_args!("{:?}, stream 0", self.executable), code)
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        // Where the context cannot be current, it is gone, and the graph with it. One that is
        // running ends when it is done.
        if self.context.enter_aside().is_ok() {
            // SAFETY: the driver gave the executable, and nobody else has it.
            let _ = unsafe { sys::cuGraphExecDestroy(self.executable) };
        }
    }
}
