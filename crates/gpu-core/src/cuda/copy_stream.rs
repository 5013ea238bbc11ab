//! Copies to a GPU beside its work, into two blocks in turn.
//!
//! ```text
//! default stream  work on 0 │ release 0 │ wait for copy to 1 │ work on 1 │ release 1 │ wait 0 …
//! copy stream     copy to 1 ─────────────────────┘   wait for release 0, copy to 0 ───────────┘
//! ```
//!
//! A copy thus runs while the default stream works on the other block.

#![allow(unsafe_code, reason = "the driver is called")]

use std::collections::VecDeque;

use cust::sys;
use rayon::prelude::*;

use super::Gpu;
use super::event::Event;
use super::fault::{DriverFault, checked};
use super::non_blocking_stream::NonBlockingStream;
use super::pinned::Pinned;
use crate::error::Result;

/// Bytes that one thread copies at a time: a batch of stored windows has tens of megabytes, and one
/// thread copies them slower than a GPU takes them.
const PIECE_BYTES: usize = 1 << 20;

fn copy_by_all_threads(src: &[u8], dst: &mut [u8]) {
    if src.len() <= PIECE_BYTES {
        return dst.copy_from_slice(src);
    }
    let pieces = dst.par_chunks_mut(PIECE_BYTES).zip_eq(src.par_chunks(PIECE_BYTES));
    pieces.for_each(|(dst, src)| dst.copy_from_slice(src));
}

/// A stream for copies, and its order with the default stream.
#[derive(Debug)]
pub(crate) struct CopyStream {
    stream: NonBlockingStream,
    /// By block: the work of the default stream that was submitted before its release.
    released: [Event; 2],
    /// Records the end of a copy that the host waits for.
    copied: Event,
    /// Sources of copies, the oldest first: two pieces at most.
    under_way: VecDeque<Pinned<u8>>,
}

impl CopyStream {
    pub(crate) fn new(gpu: &Gpu) -> Result<Self> {
        let stream = NonBlockingStream::new(gpu.context()).map_err(|fault| gpu.context().error(fault))?;
        let released = [gpu.event()?, gpu.event()?];
        Ok(CopyStream { stream, released, copied: gpu.event()?, under_way: VecDeque::new() })
    }

    /// Allows block number `block` to be written after the work submitted to the default stream so
    /// far.
    pub(crate) fn release(&self, gpu: &Gpu, block: usize) -> Result<()> {
        self.released[block].record(&gpu.default_stream())
    }

    /// Copies `src` to address `dst` of the live block number `block`. Later work of the default
    /// stream waits for it. When this returns, `src` has been read.
    pub(crate) fn send(&mut self, gpu: &Gpu, src: &[u8], block: usize, dst: u64) -> Result<()> {
        if gpu.has_locked(src) {
            return self.send_locked(gpu, src, block, dst);
        }
        // What was waited for goes back, and is handed out again.
        while self.under_way.len() >= self.released.len() {
            self.under_way.pop_front().map(|mut oldest| oldest.land()).transpose()?;
        }
        let mut pinned = gpu.pinned::<u8>(src.len())?;
        copy_by_all_threads(src, pinned.as_mut_slice());
        let submitted = self.submit(pinned.as_slice(), dst, block).map_err(|fault| gpu.context().error(fault));
        let ordered = submitted.and_then(|()| {
            pinned.record_on(&self.stream)?;
            gpu.default_stream().wait_for(pinned.event())
        });
        if ordered.is_err() {
            // Nobody but this stream knows of the copy, if it was submitted: it must not outlive
            // its memory on either side.
            let _ = self.stream.synchronize();
        }
        ordered?;
        self.under_way.push_back(pinned);
        Ok(())
    }

    /// The same from page-locked memory, which goes without a detour: the host waits for the copy,
    /// beside the GPU's work, and has nothing to do for it.
    fn send_locked(&self, gpu: &Gpu, src: &[u8], block: usize, dst: u64) -> Result<()> {
        let submitted = self.submit(src, dst, block);
        let recorded = submitted.and_then(|()| self.copied.record_on(self.stream.raw(), NonBlockingStream::ID));
        let done = recorded.map_err(|fault| gpu.context().error(fault)).and_then(|()| self.copied.wait());
        if done.is_err() {
            // A copy that was submitted must not outlive its memory.
            let _ = self.stream.synchronize();
        }
        done
    }

    /// Copies `src`, in any memory, to address `dst` of the live block number `block`, and waits
    /// for it. Any thread may call it; work that others defer stays deferred: none of it has to do
    /// with the block, which was released after it.
    pub(crate) fn send_aside(&self, gpu: &Gpu, src: &[u8], block: usize, dst: u64) -> Result<()> {
        let copied = || {
            gpu.context().enter_aside()?;
            self.released[block].order_in_current(self.stream.raw(), NonBlockingStream::ID)?;
            self.copy_in_current(src, dst)?;
            self.copied.record_in_current(self.stream.raw(), NonBlockingStream::ID)?;
            self.copied.wait_in_current()
        };
        let done = copied().map_err(|fault| gpu.context().error(fault));
        if done.is_err() {
            // A copy that was submitted must not outlive its memory.
            let _ = self.stream.synchronize();
        }
        done
    }

    /// Submits the copy of `src`, which is page-locked. The caller keeps it until the copy is done.
    fn submit(&self, src: &[u8], dst: u64, block: usize) -> Result<(), DriverFault> {
        self.released[block].order(self.stream.raw(), NonBlockingStream::ID)?;
        self.copy_in_current(src, dst)
    }

    /// Submits the copy of `src` to a block, after its release. The context is current, and the
    /// caller keeps `src` until the copy is done.
    fn copy_in_current(&self, src: &[u8], dst: u64) -> Result<(), DriverFault> {
        // SAFETY: the block is live, and all that the default stream had to do with its memory was
        // submitted before it was released. It stays mapped until the copy is done, also if it is
        // freed before: what takes the memory next begins on the default stream, which waits for
        // the copy, or the host has waited for it. The caller keeps `src` until then.
        let code = unsafe { sys::cuMemcpyHtoDAsync_v2(dst, src.as_ptr().cast(), src.len(), self.stream.raw()) };
        let operands = format_args!("{dst:#x}, {} bytes, stream {}", src.len(), NonBlockingStream::ID.0);
        checked("cuMemcpyHtoDAsync", operands, code)
    }
}
