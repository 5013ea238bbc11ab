//! The memory pool: which bytes of which granules belong to whom. Arithmetic only; a [`Source`]
//! acts.
//!
//! Physical memory comes in *granules* (2 MiB on CUDA). Each is mapped once at its home, a range of
//! addresses as large as the pool's capacity, and tiles of that range say of every byte whether it
//! is live, free, or not there. Blocks are cut from free tiles by best fit; small ones share slabs.
//! When no free tile is large enough, free granules from anywhere are mapped side by side a second
//! time: a *view* (virtual aliasing). The bytes of a block in a view are live at home as well, as
//! pieces, and each byte is used through one of its addresses only; so there is one truth about
//! what is free, and a view is but a translation. What is tried before a request fails, in order,
//! is the ladder (`ladder.rs`).
//!
//! Invariants, asserted by [`Pool::check`]:
//!
//! - A request succeeds whenever its granules and those touched by live blocks together are within
//!   the capacity, unless the source refuses.
//! - At a step boundary, if all blocks are relocatable: whenever the granules of one slab for each
//!   full slab's worth of small blocks of a class and stream, and the bytes of the other blocks and
//!   of the request, are.
//! - A step that is repeated makes no call to the driver from its third repetition on
//!   (`memory_of_steps.rs`).

#![forbid(unsafe_code)]

mod bins;
mod compaction;
mod event;
mod fallback;
mod granule_set;
mod grow;
mod main_segment;
mod order;
mod pending_request;
mod placement_cache;
mod remap;
mod reuse;
mod segments;
mod slab;
mod stats;
mod stitch;
#[cfg(test)]
mod tests;
mod tiling;
mod view;
mod walk;

pub use event::{Event, Observer};
pub use segments::{BlockInfo, BlockState, SegmentInfo, SegmentKind};
pub use stats::{Peaked, Stats};

pub use crate::error::Counts;

use std::ops::Range;
use std::sync::Arc;

use crate::source::{Refusal, Source, StreamId};
use main_segment::MainSegment;
use order::Streams;
use pending_request::{Blocks, Live, PendingRequest, Place};
use placement_cache::{BlockPlacement, PlacementKind, StepMemory};
use slab::Slabs;
use view::Views;

/// Blocks begin at multiples of this, and their sizes are multiples of it.
pub const UNIT_BYTES: usize = 512;

/// A range of bytes by their offsets in a segment.
type Bytes = Range<usize>;

/// Memory that a pool may take from its source and keep.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Physical memory in bytes that the pool may hold, of which it uses whole granules; `None` for
    /// all that the source has.
    pub capacity_bytes: Option<usize>,
}

/// A wish for memory.
#[derive(Clone, Debug)]
pub struct Request {
    /// Size in bytes; the block is at least that large.
    pub bytes: usize,
    /// The stream that will use the block first. Its address is safe to use on this stream, and on
    /// others once they are ordered after it.
    pub stream: StreamId,
    /// Whose memory it is: a label of a scope, such as `model/gradients`.
    pub owner: Arc<str>,
    /// True if compaction may move it.
    pub mobility: Mobility,
}

/// True if a block's address may change at a step boundary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mobility {
    /// The address stays the same until the block is freed.
    Fixed,
    /// The holder asks for the address anew after every step boundary.
    Relocatable,
}

/// A live block, as the pool knows it. Never given twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockId(u64);

/// Why a pool has no block for a request. The pool is as it was, apart from cached memory that it
/// may have rearranged or given back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shortage {
    /// More than the pool may ever hold.
    NeverFits {
        /// Largest request that could ever succeed, in bytes.
        largest_bytes: usize,
    },
    /// Not now: what stood in the way.
    NotNow(Counts),
    /// The source failed in a way that freeing memory does not mend.
    Source(Refusal),
}

/// A pool of blocks over the memory of one device.
#[derive(Debug)]
pub struct Pool {
    source: Box<dyn Source>,
    home: MainSegment,
    slabs: Slabs,
    views: Views,
    blocks: Blocks,
    streams: Streams,
    memory: StepMemory,
    stats: Stats,
    watch: event::Watch,
    /// True if nothing was freed since the last step boundary, so that relocatable blocks may move.
    at_boundary: bool,
}

impl Pool {
    /// An empty pool over `source`; nothing is reserved yet.
    pub fn new(source: Box<dyn Source>, settings: Settings) -> Self {
        let capacity_bytes = settings.capacity_bytes.unwrap_or(usize::MAX).min(source.capacity_bytes());
        let granule_bytes = source.granule_bytes();
        Pool {
            source,
            home: MainSegment::new(capacity_bytes / granule_bytes, granule_bytes),
            slabs: Slabs::default(),
            views: Views::default(),
            blocks: Blocks::default(),
            streams: Streams::default(),
            memory: StepMemory::default(),
            stats: Stats::default(),
            watch: event::Watch::default(),
            at_boundary: false,
        }
    }

    /// A block for `request`.
    ///
    /// # Errors
    /// [`Shortage`], and then no block has changed.
    pub fn allocate(&mut self, request: &Request) -> Result<BlockId, Shortage> {
        let found = self.want(request).and_then(|want| {
            let key = self.memory.key(want.bytes, want.tag.index());
            match self.recall(key, &want).or_else(|| self.fit(&want)) {
                Some(place) => Ok(self.enter(request, want, key, place)),
                None => self.fallback(&want).map(|place| self.enter(request, want, key, place)),
            }
        });
        found.inspect_err(|_| {
            self.stats.shortages_total += 1;
            self.tell_of_shortage(request);
        })
    }

    /// Takes a block back that `stream` (the one of its request) was the last to use.
    ///
    /// # Panics
    /// If the block is not live.
    pub fn free(&mut self, block: BlockId) {
        let live = self.blocks.remove(block).expect("a block is freed once");
        let address = live.address;
        self.evict(&live.place, live.tag);
        self.memory.gone(address, live.bytes, live.tag.index());
        self.at_boundary = false;
        self.stats.requested_bytes.sub(live.requested_bytes);
        self.stats.allocated_bytes.sub(live.bytes);
        self.stats.blocks.sub(1);
        self.stats.inactive_split_bytes.set(self.inactive_split_bytes());
        self.watch.tell(|| Event::Freed {
            id: block,
            address,
            bytes: live.bytes,
            requested_bytes: live.requested_bytes,
            stream: self.streams.stream(live.tag),
            owner: live.owner,
        });
    }

    /// First address of a live block. A relocatable block's may be another after [`Pool::step`].
    ///
    /// # Panics
    /// If the block is not live.
    pub fn address(&self, block: BlockId) -> u64 {
        self.blocks.get(block).expect("the block is live").address
    }

    /// Tells the pool that a step of the work ends here: what follows is likely to repeat what lay
    /// between the last two boundaries, and relocatable blocks may move until the next block is
    /// freed.
    pub fn step(&mut self) {
        self.memory.turn();
        self.at_boundary = true;
        self.watch.tell(|| Event::Step);
    }

    /// Starts all peaks anew from what is now.
    pub fn reset_peak(&mut self) {
        self.stats.reset_peak();
    }

    /// Counters with their peaks.
    pub fn stats(&self) -> Stats {
        Stats { driver_calls_total: self.source.driver_calls(), ..self.stats }
    }

    /// The momentary figures that an out-of-memory report needs. What others hold is not asked of
    /// the device: see [`Shortage::NotNow`].
    pub fn counts(&self) -> Counts {
        let granule_bytes = self.home.granule_bytes();
        let reserved_bytes = self.home.held() * granule_bytes;
        Counts {
            capacity_bytes: self.home.slots() * granule_bytes,
            allocated_bytes: self.stats.allocated_bytes.now,
            reserved_bytes,
            free_bytes: reserved_bytes - self.stats.allocated_bytes.now,
            largest_free_block_bytes: self.home.largest_free_bytes(),
            whole_free_granules_bytes: reserved_bytes - self.home.touched() * granule_bytes,
            held_by_others_bytes: None,
        }
    }

    /// Tells `observer` of every event from now on; `None` tells nobody.
    pub fn set_observer(&mut self, observer: Option<Observer>) {
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

    fn want(&mut self, request: &Request) -> Result<PendingRequest, Shortage> {
        let largest_bytes = self.home.slots() * self.home.granule_bytes();
        if request.bytes > largest_bytes || largest_bytes == 0 {
            return Err(Shortage::NeverFits { largest_bytes });
        }
        let class = slab::class_of(request.bytes, self.home.granule_bytes());
        let bytes = class.map_or_else(|| request.bytes.max(1).next_multiple_of(UNIT_BYTES), slab::class_bytes);
        let tag = self.streams.tag(request.stream);
        self.home.know(tag);
        Ok(PendingRequest { bytes, tag, block: self.blocks.next(), class })
    }

    /// Books a block that has its place.
    fn enter(&mut self, request: &Request, want: PendingRequest, key: u64, place: Place) -> BlockId {
        let address = self.address_of(&place);
        let form = match &place {
            Place::Whole(_) => PlacementKind::Whole,
            Place::Slot { .. } => PlacementKind::Slot,
            Place::Stitched(stitched) => PlacementKind::View(stitched.view),
        };
        self.memory.note(key, BlockPlacement { address, form });
        self.memory.born(address, want.bytes, want.tag.index());
        let id = self.blocks.insert(Live {
            place,
            address,
            bytes: want.bytes,
            requested_bytes: request.bytes,
            tag: want.tag,
            mobility: request.mobility,
            owner: Arc::clone(&request.owner),
        });
        self.stats.requested_bytes.add(request.bytes);
        self.stats.allocated_bytes.add(want.bytes);
        self.stats.blocks.add(1);
        self.stats.allocations_total += 1;
        self.stats.inactive_split_bytes.set(self.inactive_split_bytes());
        self.watch.tell(|| Event::Allocated {
            id,
            address,
            bytes: want.bytes,
            requested_bytes: request.bytes,
            stream: request.stream,
            owner: Arc::clone(&request.owner),
        });
        id
    }

    fn inactive_split_bytes(&self) -> usize {
        self.home.touched() * self.home.granule_bytes() - self.stats.allocated_bytes.now
    }

    /// The figures with what others hold of the device, which has to be asked for it.
    fn counts_with_others(&mut self) -> Counts {
        let counts = self.counts();
        let used = self.source.free_bytes().map(|free| self.source.capacity_bytes().saturating_sub(free));
        Counts { held_by_others_bytes: used.map(|used| used.saturating_sub(counts.reserved_bytes)), ..counts }
    }

    fn tell_of_shortage(&mut self, request: &Request) {
        let counts = self.counts();
        self.watch.tell(|| Event::Short {
            bytes: request.bytes,
            stream: request.stream,
            owner: Arc::clone(&request.owner),
            counts,
        });
    }
}
