//! Page-locked blocks of the host's memory that buffers lie in: a GPU copies from them without a
//! detour. Unlike [staging](super::pinned) they are not kept once nobody has them.

#![allow(unsafe_code, reason = "the driver is called")]

use std::collections::BTreeMap;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::Gpu;
use super::context::Context;
use super::fault::DriverFault;
use super::pinned::{lock_pages, unlock_pages};
use crate::error::Result;

/// The locked blocks of a GPU.
pub(super) struct LockedBlocks {
    /// Address of each block's first byte, and of the byte behind its last.
    ends: Mutex<BTreeMap<usize, usize>>,
    context: Arc<Context>,
}

impl LockedBlocks {
    pub(super) fn new(context: Arc<Context>) -> Self {
        LockedBlocks { ends: Mutex::default(), context }
    }

    /// True if all `bytes` lie in one block.
    fn contain(&self, bytes: &[u8]) -> bool {
        let range = bytes.as_ptr_range();
        let (start, end) = (range.start.addr(), range.end.addr());
        self.ends().range(..=start).next_back().is_some_and(|(_, &block_end)| end <= block_end)
    }

    fn take(&self, bytes: usize) -> Result<NonNull<u8>, DriverFault> {
        let start = lock_pages(&self.context, bytes)?;
        self.ends().insert(start.addr().get(), start.addr().get() + bytes);
        Ok(start)
    }

    fn give_back(&self, start: NonNull<u8>) {
        self.ends().remove(&start.addr().get());
        unlock_pages(&self.context, start);
    }

    fn ends(&self) -> MutexGuard<'_, BTreeMap<usize, usize>> {
        self.ends.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Page-locked memory of the host.
pub(crate) struct LockedBlock {
    start: NonNull<u8>,
    blocks: Arc<LockedBlocks>,
}

// SAFETY: the block is owned memory without thread affinity; access goes through `&` and `&mut` of
// its holder.
unsafe impl Send for LockedBlock {}
// SAFETY: as above; a shared reference gives out nothing but an address.
unsafe impl Sync for LockedBlock {}

impl LockedBlock {
    /// A block of zeros that `gpu` copies from; `bytes` is not 0.
    pub(crate) fn zeroed(gpu: &Gpu, bytes: usize) -> Result<Self> {
        let blocks = Arc::clone(&gpu.shared.locked);
        let start = blocks.take(bytes).map_err(|fault| gpu.context().error(fault))?;
        Ok(LockedBlock { start, blocks })
    }

    /// The first byte.
    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }
}

impl Drop for LockedBlock {
    fn drop(&mut self) {
        // No copy is under way: whoever copies from locked memory waits for it.
        self.blocks.give_back(self.start);
    }
}

impl std::fmt::Debug for LockedBlock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "LockedBlock({:?})", self.start)
    }
}

impl Gpu {
    /// True if all `bytes` lie in one locked block of this GPU.
    pub(super) fn has_locked(&self, bytes: &[u8]) -> bool {
        self.shared.locked.contain(bytes)
    }
}
