//! Page-locked host memory: copies between it and a GPU run without a detour and without the host
//! waiting. Locking pages takes the driver long, so that blocks are kept and handed out again.

#![allow(unsafe_code, reason = "the driver is called")]

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::marker::PhantomData;
use std::ptr::{self, NonNull};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytemuck::Pod;
use cust::sys;

use super::context::Context;
use super::event::Event;
use super::fault::{DriverFault, checked};
use super::non_blocking_stream::NonBlockingStream;
use super::stream::Stream;
use crate::error::{Error, Result};

/// The smallest block: a page.
const BLOCK_BYTES_MIN: usize = 4096;

/// Counters of a GPU's pinned memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PinnedStats {
    /// Bytes of blocks that somebody has.
    pub allocated_bytes: usize,
    /// Bytes that are locked, in use or kept.
    pub reserved_bytes: usize,
    /// Blocks ever handed out.
    pub allocations_total: u64,
    /// Calls to the driver that locked memory. In a steady state it stands still.
    pub locks_total: u64,
}

pub(super) struct PinnedPool {
    state: Mutex<PinnedState>,
    context: Arc<Context>,
}

#[derive(Default)]
struct PinnedState {
    /// Blocks that nobody has, by their size. The GPU may still be at work on some.
    idle: BTreeMap<usize, Vec<PinnedBlock>>,
    stats: PinnedStats,
}

/// Locked memory, initialised from its first moment on.
struct PinnedBlock {
    start: NonNull<u8>,
    bytes: usize,
    /// Records the end of the last copy, where there was one.
    event: Event,
    in_flight: bool,
}

// SAFETY: the block is owned memory without thread affinity.
unsafe impl Send for PinnedBlock {}
// SAFETY: as above; a shared reference gives out nothing but an address and a size.
unsafe impl Sync for PinnedBlock {}

impl PinnedPool {
    pub(super) fn new(context: Arc<Context>) -> Self {
        PinnedPool { state: Mutex::default(), context }
    }

    #[cfg(any(test, feature = "conformance"))]
    pub(super) fn stats(&self) -> PinnedStats {
        self.state().stats
    }

    pub(super) fn empty(&self) -> usize {
        let blocks: Vec<PinnedBlock> = std::mem::take(&mut self.state().idle).into_values().flatten().collect();
        let bytes = blocks.iter().map(|block| block.bytes).sum();
        self.state().stats.reserved_bytes -= bytes;
        blocks.into_iter().for_each(|block| self.unlock(block));
        bytes
    }

    /// A block of at least `bytes`: a kept one of the same class that the GPU is done with, or a
    /// new one.
    fn take(&self, bytes: usize) -> Result<PinnedBlock, DriverFault> {
        let bytes = class_bytes(bytes);
        let mut state = self.state();
        let kept = state.idle.get_mut(&bytes).and_then(|blocks| {
            let done = blocks.iter().position(|block| !block.in_flight || block.event.is_done().unwrap_or(false));
            done.map(|index| blocks.swap_remove(index))
        });
        let block = match kept {
            Some(block) => PinnedBlock { in_flight: false, ..block },
            None => {
                let block = self.lock(bytes)?;
                state.stats.locks_total += 1;
                state.stats.reserved_bytes += bytes;
                block
            }
        };
        state.stats.allocations_total += 1;
        state.stats.allocated_bytes += bytes;
        Ok(block)
    }

    fn put(&self, block: PinnedBlock) {
        let mut state = self.state();
        state.stats.allocated_bytes -= block.bytes;
        state.idle.entry(block.bytes).or_default().push(block);
    }

    fn lock(&self, bytes: usize) -> Result<PinnedBlock, DriverFault> {
        self.context.enter()?;
        let event = Event::new(&self.context)?;
        Ok(PinnedBlock { start: lock_pages(&self.context, bytes)?, bytes, event, in_flight: false })
    }

    /// Waits for the last copy: that the driver does is not promised.
    fn unlock(&self, PinnedBlock { start, event, in_flight, .. }: PinnedBlock) {
        if in_flight {
            let _ = event.wait();
        }
        unlock_pages(&self.context, start);
    }

    fn state(&self) -> MutexGuard<'_, PinnedState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for PinnedPool {
    fn drop(&mut self) {
        self.empty();
    }
}

/// Zeros in page-locked memory, `bytes` of them, which is not 0.
pub(super) fn lock_pages(context: &Context, bytes: usize) -> Result<NonNull<u8>, DriverFault> {
    context.enter()?;
    let mut start: *mut c_void = ptr::null_mut();
    // SAFETY: `start` is a variable of this function.
    let code = unsafe { sys::cuMemHostAlloc(&raw mut start, bytes, sys::CU_MEMHOSTALLOC_PORTABLE) };
    checked("cuMemHostAlloc", format_args!("{bytes} bytes, portable"), code)?;
    let start = NonNull::new(start.cast::<u8>()).expect("the driver gives an address where it succeeds");
    // SAFETY: the driver gave `bytes` bytes from `start` on, and nobody else has them.
    unsafe { start.write_bytes(0, bytes) };
    Ok(start)
}

/// Gives memory of [`lock_pages`] back, which nobody uses any more. Where the driver refuses, the
/// context is gone, and the memory with it.
pub(super) fn unlock_pages(context: &Context, start: NonNull<u8>) {
    if context.enter_aside().is_ok() {
        // SAFETY: the memory came from cuMemHostAlloc. The caller gives it back once, and no copy
        // is under way.
        let _ = unsafe { sys::cuMemFreeHost(start.as_ptr().cast()) };
    }
}

/// Size class of a block for `bytes`: one of four sizes between a power of two and the next, so at
/// most a fifth of it is unused.
fn class_bytes(bytes: usize) -> usize {
    let bytes = bytes.max(BLOCK_BYTES_MIN);
    let step = (bytes.next_power_of_two() / 8).max(1);
    bytes.next_multiple_of(step)
}

/// `len` elements of page-locked host memory. From [`Gpu::pinned`](super::Gpu::pinned); goes back
/// there when dropped.
pub struct Pinned<T: Pod> {
    /// `None` only while dropping.
    block: Option<PinnedBlock>,
    len: usize,
    pool: Arc<PinnedPool>,
    element: PhantomData<T>,
}

impl<T: Pod> Pinned<T> {
    pub(super) fn take(pool: &Arc<PinnedPool>, len: usize) -> Result<Self> {
        const { assert!(align_of::<T>() <= BLOCK_BYTES_MIN) };
        let bytes = len.checked_mul(size_of::<T>()).filter(|&bytes| bytes <= isize::MAX as usize / 2);
        let bytes = bytes.ok_or_else(|| Error::SizeOverflow {
            scope: "pinned".to_owned(),
            len,
            element_bytes: size_of::<T>(),
        })?;
        let block = pool.take(bytes).map_err(|fault| pool.context.error(fault))?;
        Ok(Pinned { block: Some(block), len, pool: Arc::clone(pool), element: PhantomData })
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The elements.
    pub fn as_slice(&self) -> &[T] {
        // SAFETY: the block holds at least `len` elements, initialised when it was made and aligned
        // to a page; any bytes are a valid `Pod`; no copy is under way while there is a `Pinned`,
        // and `&self` excludes writers on the host.
        unsafe { std::slice::from_raw_parts(self.block().start.cast::<T>().as_ptr(), self.len) }
    }

    /// The elements for writing.
    pub fn as_mut_slice(&mut self) -> &mut [T] {
        // SAFETY: as in `as_slice`; `&mut self` makes this the only reference.
        unsafe { std::slice::from_raw_parts_mut(self.block().start.cast::<T>().as_ptr(), self.len) }
    }

    /// Notes that a copy from or to this memory was submitted to `stream` last.
    pub(super) fn depart(&mut self, stream: &Stream) -> Result<()> {
        let block = self.block.as_mut().expect("the block is there until it is dropped");
        // First, so that the block is not handed out again where the event cannot be recorded: it
        // is then queried in vain.
        block.in_flight = true;
        if let Err(error) = block.event.record(stream) {
            // The copy's end is not known, and the event may tell of an earlier one.
            stream.synchronize()?;
            block.in_flight = false;
            return Err(error);
        }
        Ok(())
    }

    /// Records the copy's end on a non-blocking stream. If that fails, the end is not known, and
    /// the caller must wait for the stream.
    pub(super) fn record_on(&mut self, stream: &NonBlockingStream) -> Result<()> {
        let block = self.block.as_mut().expect("the block is there until it is dropped");
        let recorded = block.event.record_on(stream.raw(), NonBlockingStream::ID);
        block.in_flight = recorded.is_ok();
        recorded.map_err(|fault| self.pool.context.error(fault))
    }

    /// Waits for the copy that was submitted last.
    pub(super) fn land(&mut self) -> Result<()> {
        let block = self.block.as_mut().expect("the block is there until it is dropped");
        block.event.wait()?;
        block.in_flight = false;
        Ok(())
    }

    pub(super) fn event(&self) -> &Event {
        &self.block().event
    }

    pub(super) fn address(&self) -> *mut c_void {
        self.block().start.as_ptr().cast()
    }

    fn block(&self) -> &PinnedBlock {
        self.block.as_ref().expect("the block is there until it is dropped")
    }
}

impl<T: Pod> Drop for Pinned<T> {
    fn drop(&mut self) {
        if let Some(block) = self.block.take() {
            self.pool.put(block);
        }
    }
}

impl<T: Pod> std::fmt::Debug for Pinned<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Pinned({} elements of {} bytes)", self.len, size_of::<T>())
    }
}
