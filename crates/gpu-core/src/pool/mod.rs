//! The memory pool: which bytes of which granules belong to whom. Arithmetic only; a [`Source`]
//! acts.
//!
//! Physical memory comes in *granules* (2 MiB on CUDA). Each is mapped once in the *main segment*,
//! a range of addresses as large as the pool's capacity, or larger where addresses cost nothing
//! ([`Source::address_bytes`]). Tiles of that range say of every byte whether it is live, free or
//! unmapped. Blocks are cut from free tiles by best fit; small ones share slabs. When no free tile
//! is large enough, free granules from anywhere are mapped side by side a second time: a *view*
//! (virtual aliasing). The bytes of a block in a view are live in the main segment as well, as
//! pieces, and each byte is used through one of its addresses only; the main segment alone says
//! what is free, and a view only translates addresses. What is tried before a request fails, in
//! order, is the list of fallbacks (`fallback.rs`).
//!
//! Invariants, asserted in tests (`tests/walk.rs`):
//!
//! - A request succeeds whenever its granules and those touched by live blocks together are within
//!   the capacity, unless the source refuses.
//! - The address of a live block never changes.
//! - A step that is repeated makes no call to the driver from its third repetition on
//!   (`placement_cache.rs`).

mod bins;
mod event;
mod fallback;
mod granule_set;
mod grow;
mod live_blocks;
mod main_segment;
mod order;
mod placement_cache;
mod reserved;
mod reuse;
mod segments;
mod slab;
mod stats;
mod stitch;
mod stream_tag;
#[cfg(test)]
mod tests;
mod tiling;
mod view;
#[cfg(any(test, feature = "conformance"))]
#[path = "tests/walk.rs"]
mod walk;

pub use event::{PoolEvent, PoolObserver};
pub(crate) use reserved::reserved_bytes;
pub use segments::{BlockInfo, BlockState, SegmentInfo, SegmentKind};
pub use stats::{Peaked, Stats};

pub use crate::error::MemoryCounts;

use std::ops::Range;
use std::sync::Arc;

use crate::source::{Refusal, Source, StreamId};
use live_blocks::{BlockLocation, LiveBlock, LiveBlocks, PendingRequest};
use main_segment::MainSegment;
use placement_cache::{BlockPlacement, PlacementCache, PlacementKind};
use slab::Slabs;
use stream_tag::StreamTags;
use view::AliasViews;

/// Blocks begin at multiples of this, and their sizes are multiples of it.
pub const UNIT_BYTES: usize = 512;

/// A range of bytes by their offsets in a segment.
type ByteRange = Range<usize>;

/// Memory that a pool may take from its source and keep.
#[derive(Clone, Copy, Debug)]
pub struct PoolSettings {
    /// Physical memory in bytes that the pool may hold, of which it uses whole granules; `None` for
    /// all that the source has.
    pub capacity_bytes: Option<usize>,
}

/// A request for a block.
#[derive(Clone, Debug)]
pub struct AllocationRequest {
    /// Size in bytes; the block is at least that large.
    pub bytes: usize,
    /// The stream that will use the block first. Its address is safe to use on this stream, and on
    /// others once they are ordered after it.
    pub stream: StreamId,
    /// Label of the scope that asks, such as `model/gradients`.
    pub owner: Arc<str>,
}

/// Identifier of a live block; never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockId(u64);

/// Failure of an allocation. The pool is as before, except that it may have rearranged cached
/// memory or given it back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AllocationError {
    /// More than the pool may ever hold.
    NeverFits {
        /// Largest request that could ever succeed, in bytes.
        largest_bytes: usize,
    },
    /// The pool has no room now; its counters at that moment.
    NotNow(MemoryCounts),
    /// The source failed in a way that freeing memory does not mend.
    Source(Refusal),
}

/// A pool of blocks over the memory of one device.
#[derive(Debug)]
pub struct Pool {
    source: Box<dyn Source>,
    /// Granules that may exist.
    capacity: usize,
    /// False if no granule is to be mapped twice, although the source can.
    stitches: bool,
    main: MainSegment,
    slabs: Slabs,
    views: AliasViews,
    blocks: LiveBlocks,
    streams: StreamTags,
    placements: PlacementCache,
    stats: Stats,
    watch: event::ObserverSlot,
}

impl Pool {
    /// An empty pool over `source`. Nothing is reserved yet.
    pub fn new(source: Box<dyn Source>, settings: PoolSettings) -> Self {
        let capacity_bytes = settings.capacity_bytes.unwrap_or(usize::MAX).min(source.capacity_bytes());
        let granule_bytes = source.granule_bytes();
        let capacity = capacity_bytes / granule_bytes;
        let slots = capacity * (source.address_bytes() / source.capacity_bytes().max(1)).max(1);
        Pool {
            source,
            capacity,
            stitches: true,
            main: MainSegment::new(slots, granule_bytes),
            slabs: Slabs::default(),
            views: AliasViews::default(),
            blocks: LiveBlocks::default(),
            streams: StreamTags::default(),
            placements: PlacementCache::default(),
            stats: Stats::default(),
            watch: event::ObserverSlot::default(),
        }
    }

    /// A block for `request`.
    ///
    /// # Errors
    /// [`AllocationError`], and then no block has changed.
    pub fn allocate(&mut self, request: &AllocationRequest) -> Result<BlockId, AllocationError> {
        let found = self.pending_request(request).and_then(|pending| {
            let key = self.placements.key(pending.bytes, pending.tag.index());
            match self.reuse(key, &pending).or_else(|| self.fit(&pending)) {
                Some(place) => Ok(self.assign_block(request, pending, key, place)),
                None => self.fallback(&pending).map(|place| self.assign_block(request, pending, key, place)),
            }
        });
        found.inspect_err(|_| {
            self.stats.shortages_total += 1;
            self.report_shortage(request);
        })
    }

    /// Frees a block. The stream of its request was the last to use it.
    ///
    /// # Panics
    /// If the block is not live.
    pub fn free(&mut self, block: BlockId) {
        let live = self.blocks.remove(block).expect("a block is freed once");
        let address = live.address;
        self.evict(&live.place, live.tag);
        self.placements.remove_block(address, live.bytes, live.tag.index());
        self.stats.requested_bytes.sub(live.requested_bytes);
        self.stats.allocated_bytes.sub(live.bytes);
        self.stats.blocks.sub(1);
        self.stats.inactive_split_bytes.set(self.inactive_split_bytes());
        self.watch.tell(|| PoolEvent::Freed {
            id: block,
            address,
            bytes: live.bytes,
            requested_bytes: live.requested_bytes,
            stream: self.streams.stream(live.tag),
            owner: live.owner,
        });
    }

    /// First address of a live block. It stays the same until the block is freed.
    ///
    /// # Panics
    /// If the block is not live.
    pub fn address(&self, block: BlockId) -> u64 {
        self.blocks.get(block).expect("the block is live").address
    }

    /// Marks a step boundary: the next step is likely to repeat the requests of the last one.
    pub fn step(&mut self) {
        self.placements.end_step();
        self.watch.tell(|| PoolEvent::Step);
    }

    /// Leaves `bytes` of the memory that the source could hand out now to others: the pool never
    /// holds more than it does now and the rest. Live blocks stay.
    pub fn leave(&mut self, bytes: usize) {
        let Some(free_bytes) = self.source.free_bytes() else { return };
        let creatable = free_bytes.saturating_sub(bytes) / self.main.granule_bytes();
        self.capacity = self.capacity.min(self.main.mapped_granules() + creatable);
    }

    /// Bounds the physical memory that the pool may hold. What it holds already stays.
    pub fn limit(&mut self, bytes: usize) {
        let granules = bytes / self.main.granule_bytes();
        self.capacity = self.capacity.min(granules.max(self.main.mapped_granules()));
    }

    /// From now on, no granule is mapped a second time: large requests wait for whole free granules
    /// at consecutive addresses, or for new ones.
    pub fn forbid_stitching(&mut self) {
        self.stitches = false;
    }

    /// Resets all peaks to the current values.
    pub fn reset_peak(&mut self) {
        self.stats.reset_peak();
    }

    /// Counters with their peaks.
    pub fn stats(&self) -> Stats {
        Stats { driver_calls_total: self.source.driver_calls(), ..self.stats }
    }

    /// Current counters for an out-of-memory report. The device is not asked for memory held by
    /// other processes; [`AllocationError::NotNow`] has that number.
    pub fn counts(&self) -> MemoryCounts {
        let granule_bytes = self.main.granule_bytes();
        let reserved_bytes = self.main.mapped_granules() * granule_bytes;
        MemoryCounts {
            capacity_bytes: self.capacity * granule_bytes,
            allocated_bytes: self.stats.allocated_bytes.now,
            reserved_bytes,
            free_bytes: reserved_bytes - self.stats.allocated_bytes.now,
            largest_free_block_bytes: self.main.largest_free_bytes(),
            whole_free_granules_bytes: reserved_bytes - self.main.live_granules() * granule_bytes,
            held_by_others_bytes: None,
        }
    }

    /// Calls `observer` for every event from now on; `None` removes the observer.
    pub fn set_observer(&mut self, observer: Option<PoolObserver>) {
        self.watch.set(observer);
    }

    /// Source of the memory.
    pub fn source(&self) -> &dyn Source {
        &*self.source
    }

    /// Source of the memory, to submit work or inject faults.
    pub fn source_mut(&mut self) -> &mut dyn Source {
        &mut *self.source
    }

    /// True if granules may be mapped a second time.
    fn can_stitch(&self) -> bool {
        self.stitches && self.source.can_alias()
    }

    fn pending_request(&mut self, request: &AllocationRequest) -> Result<PendingRequest, AllocationError> {
        let largest_bytes = self.capacity * self.main.granule_bytes();
        if request.bytes > largest_bytes || largest_bytes == 0 {
            return Err(AllocationError::NeverFits { largest_bytes });
        }
        let class = slab::class_of(request.bytes, self.main.granule_bytes());
        let bytes = class.map_or_else(|| request.bytes.max(1).next_multiple_of(UNIT_BYTES), slab::class_bytes);
        let tag = self.streams.tag(request.stream);
        self.main.ensure_stream(tag);
        Ok(PendingRequest { bytes, tag, block: self.blocks.next(), class })
    }

    /// Records a block at its location.
    fn assign_block(
        &mut self,
        request: &AllocationRequest,
        pending: PendingRequest,
        key: u64,
        place: BlockLocation,
    ) -> BlockId {
        let address = self.address_of(&place);
        let kind = match &place {
            BlockLocation::Whole(_) => PlacementKind::Whole,
            BlockLocation::Slot { .. } => PlacementKind::Slot,
            BlockLocation::Stitched(stitched) => PlacementKind::View(stitched.view),
        };
        self.placements.note(key, BlockPlacement { address, kind });
        self.placements.add_block(address, pending.bytes, pending.tag.index());
        let id = self.blocks.insert(LiveBlock {
            place,
            address,
            bytes: pending.bytes,
            requested_bytes: request.bytes,
            tag: pending.tag,
            owner: Arc::clone(&request.owner),
        });
        self.stats.requested_bytes.add(request.bytes);
        self.stats.allocated_bytes.add(pending.bytes);
        self.stats.blocks.add(1);
        self.stats.allocations_total += 1;
        self.stats.inactive_split_bytes.set(self.inactive_split_bytes());
        self.watch.tell(|| PoolEvent::Allocated {
            id,
            address,
            bytes: pending.bytes,
            requested_bytes: request.bytes,
            stream: request.stream,
            owner: Arc::clone(&request.owner),
        });
        id
    }

    fn inactive_split_bytes(&self) -> usize {
        self.main.live_granules() * self.main.granule_bytes() - self.stats.allocated_bytes.now
    }

    /// Counters including memory held by other processes, for which the device is asked.
    fn counts_with_others(&mut self) -> MemoryCounts {
        let counts = self.counts();
        let used = self.source.free_bytes().map(|free| self.source.capacity_bytes().saturating_sub(free));
        MemoryCounts { held_by_others_bytes: used.map(|used| used.saturating_sub(counts.reserved_bytes)), ..counts }
    }

    fn report_shortage(&mut self, request: &AllocationRequest) {
        let counts = self.counts();
        self.watch.tell(|| PoolEvent::Short {
            bytes: request.bytes,
            stream: request.stream,
            owner: Arc::clone(&request.owner),
            counts,
        });
    }
}
