use std::fmt;
use std::sync::Arc;

use super::{BlockId, MemoryCounts};
use crate::source::StreamId;

/// Event of a pool; its observer is called with events in order.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PoolEvent {
    /// A block was given.
    Allocated {
        /// The block.
        id: BlockId,
        /// Its first address.
        address: u64,
        /// Its bytes: the request, rounded up to a block size.
        bytes: usize,
        /// Requested bytes.
        requested_bytes: usize,
        /// The stream that uses it first.
        stream: StreamId,
        /// Label of its scope.
        owner: Arc<str>,
    },
    /// A block was taken back.
    Freed {
        /// The block.
        id: BlockId,
        /// Its first address.
        address: u64,
        /// Its bytes.
        bytes: usize,
        /// Requested bytes.
        requested_bytes: usize,
        /// The stream that used it last.
        stream: StreamId,
        /// Label of its scope.
        owner: Arc<str>,
    },
    /// Granules were created and mapped in the main segment.
    Grown {
        /// Their first address.
        address: u64,
        /// Their bytes.
        bytes: usize,
    },
    /// Granules were given back to the source.
    Released {
        /// Their address in the main segment.
        address: u64,
        /// Their bytes.
        bytes: usize,
    },
    /// Scattered free granules were mapped side by side.
    Stitched {
        /// First address of the view.
        address: u64,
        /// Bytes of the view.
        bytes: usize,
        /// Granules in it.
        granules: usize,
    },
    /// A step of the work ended.
    Step,
    /// A request failed for want of memory.
    Short {
        /// Requested bytes.
        bytes: usize,
        /// The stream that would have used it.
        stream: StreamId,
        /// Label of the scope that asked.
        owner: Arc<str>,
        /// The pool's counters at that moment.
        counts: MemoryCounts,
    },
}

/// Callback for a pool's events.
pub type PoolObserver = Box<dyn FnMut(&PoolEvent) + Send>;

/// The observer, if any. Without one no event is built: the hot path costs one pointer test.
#[derive(Default)]
pub(super) struct ObserverSlot(Option<PoolObserver>);

impl ObserverSlot {
    pub(super) fn set(&mut self, observer: Option<PoolObserver>) {
        self.0 = observer;
    }

    #[inline]
    pub(super) fn tell(&mut self, event: impl FnOnce() -> PoolEvent) {
        if let Some(observer) = &mut self.0 {
            observer(&event());
        }
    }
}

impl fmt::Debug for ObserverSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Watch(on)" } else { "Watch(off)" })
    }
}
