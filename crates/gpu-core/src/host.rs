//! Raw host memory: the one place of this crate that calls the system allocator.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::num::NonZero;
use std::ptr::NonNull;

/// Alignment of every block in bytes: a cache line, and the width of the widest vector register.
pub(crate) const ALIGN_BYTES: usize = 64;

const ALIGN: NonZero<usize> = NonZero::new(ALIGN_BYTES).unwrap();

/// An owned block of zero-initialised host memory, aligned to [`ALIGN_BYTES`].
#[derive(Debug)]
pub(crate) struct HostBlock {
    start: NonNull<u8>,
    bytes: usize,
}

impl HostBlock {
    /// Asks the system for `bytes`; `None` when it has none. A block of zero bytes always succeeds and takes no memory.
    pub(crate) fn zeroed(bytes: usize) -> Option<Self> {
        let layout = Layout::from_size_align(bytes, ALIGN_BYTES).ok()?;
        if bytes == 0 {
            return Some(HostBlock { start: NonNull::without_provenance(ALIGN), bytes });
        }
        // SAFETY: the layout's size is not zero, as checked above.
        let start = NonNull::new(unsafe { alloc_zeroed(layout) })?;
        Some(HostBlock { start, bytes })
    }

    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for HostBlock {
    fn drop(&mut self) {
        if self.bytes > 0 {
            let layout =
                Layout::from_size_align(self.bytes, ALIGN_BYTES).expect("the layout was valid when it was allocated");
            // SAFETY: `start` came from `alloc_zeroed` with this same layout, and only this drop frees it.
            unsafe { dealloc(self.start.as_ptr(), layout) }
        }
    }
}

// SAFETY: the block is owned memory without thread affinity; access goes through `&` and `&mut` of its owner.
unsafe impl Send for HostBlock {}
// SAFETY: as above; a shared reference gives out nothing but an address and a size.
unsafe impl Sync for HostBlock {}
