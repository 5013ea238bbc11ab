//! The memory pool: which bytes of which granules belong to whom. Arithmetic only; a [`Source`] acts.

#![forbid(unsafe_code)]

mod event;
mod segments;
mod stats;

pub use event::{Event, Observer};
pub use segments::{BlockInfo, BlockState, SegmentInfo, SegmentKind};
pub use stats::{Counts, Peaked, Stats};

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::source::{Granule, Refusal, Source, StreamId};

/// What a pool may take from its source and keep.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Physical memory in bytes that the pool may hold; `None` for all that the source has.
    pub capacity_bytes: Option<usize>,
}

/// A wish for memory.
#[derive(Clone, Debug)]
pub struct Request {
    /// Size in bytes; the block is at least that large.
    pub bytes: usize,
    /// The stream that will use the block first. Its address is safe to use on this stream, and on others once they are ordered after it.
    pub stream: StreamId,
    /// Whose memory it is: a label of a scope, such as `model/gradients`.
    pub owner: Arc<str>,
    /// Whether compaction may move it.
    pub mobility: Mobility,
}

/// Whether a block's address may change at a step boundary.
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

/// Why a pool has no block for a request. The pool is as it was, apart from cached memory that it may have rearranged or given back.
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
    settings: Settings,
    stats: Stats,
    watch: event::Watch,
    blocks: BTreeMap<BlockId, (u64, Vec<Granule>, Request)>,
    blocks_total: u64,
}

impl Pool {
    /// An empty pool over `source`; nothing is reserved yet.
    pub fn new(source: Box<dyn Source>, settings: Settings) -> Self {
        Pool {
            source,
            settings,
            stats: Stats::default(),
            watch: event::Watch::default(),
            blocks: BTreeMap::new(),
            blocks_total: 0,
        }
    }

    /// A block for `request`.
    ///
    /// # Errors
    /// [`Shortage`], and then no block has changed.
    pub fn allocate(&mut self, request: &Request) -> Result<BlockId, Shortage> {
        let granule_bytes = self.source.granule_bytes();
        let bytes = request.bytes.next_multiple_of(granule_bytes);
        let capacity = self.capacity_bytes();
        if bytes > capacity {
            return Err(Shortage::NeverFits { largest_bytes: capacity });
        }
        if self.stats.reserved_bytes.now + bytes > capacity {
            return Err(Shortage::NotNow(self.counts()));
        }
        let address = self.source.reserve(bytes).map_err(Shortage::Source)?;
        let mut granules = Vec::new();
        for _ in 0..bytes / granule_bytes {
            granules.push(self.source.create().map_err(Shortage::Source)?);
        }
        self.source.map(address, &granules).map_err(Shortage::Source)?;
        self.blocks_total += 1;
        let block = BlockId(self.blocks_total);
        self.blocks.insert(block, (address, granules, request.clone()));
        self.stats.allocated_bytes.add(request.bytes);
        self.watch.tell(|| Event::Grown { address, bytes });
        self.watch.tell(|| Event::Allocated {
            id: block,
            address,
            bytes,
            requested_bytes: request.bytes,
            stream: request.stream,
            owner: Arc::clone(&request.owner),
        });
        self.stats.reserved_bytes.add(bytes);
        Ok(block)
    }

    /// Takes a block back that `stream` (the one of its request) was the last to use.
    ///
    /// # Panics
    /// If the block is not live.
    pub fn free(&mut self, block: BlockId) {
        let (address, granules, request) = self.blocks.remove(&block).expect("a block is freed once");
        let bytes = granules.len() * self.source.granule_bytes();
        self.source.unmap(address, bytes);
        granules.into_iter().for_each(|granule| self.source.destroy(granule));
        self.source.release(address, bytes);
        self.stats.allocated_bytes.sub(request.bytes);
        self.watch.tell(|| Event::Freed {
            id: block,
            address,
            bytes,
            requested_bytes: request.bytes,
            stream: request.stream,
            owner: request.owner,
        });
        self.watch.tell(|| Event::Released { address, bytes });
        self.stats.reserved_bytes.sub(bytes);
    }

    /// First address of a live block. A relocatable block's may be another after [`Pool::step`].
    ///
    /// # Panics
    /// If the block is not live.
    pub fn address(&self, block: BlockId) -> u64 {
        self.blocks[&block].0
    }

    /// Tells the pool that a step of the work ends here: what follows is likely to repeat what lay between the last two boundaries, and
    /// relocatable blocks may move until the next block is freed.
    pub fn step(&mut self) {
        self.watch.tell(|| Event::Step);
    }

    /// Gives every granule without live bytes back to the source; returns their bytes.
    pub fn empty_cache(&mut self) -> usize {
        0
    }

    /// Starts all peaks anew from what is now.
    pub fn reset_peak(&mut self) {
        self.stats.reset_peak();
    }

    /// Counters with their peaks.
    pub fn stats(&self) -> Stats {
        let mut stats = self.stats;
        stats.driver_calls_total = self.source.driver_calls();
        stats
    }

    /// The momentary figures that an out-of-memory report needs.
    pub fn counts(&self) -> Counts {
        Counts {
            allocated_bytes: self.stats.allocated_bytes.now,
            reserved_bytes: self.stats.reserved_bytes.now,
            ..Counts::default()
        }
    }

    /// Tells `observer` of every event from now on; `None` tells nobody.
    pub fn set_observer(&mut self, observer: Option<Observer>) {
        self.watch.set(observer);
    }

    /// All that is mapped, as maximal runs of addresses in order of address, each with its blocks. Views that hold no live block are left out.
    pub fn segments(&self) -> Vec<SegmentInfo> {
        let granule_bytes = self.source.granule_bytes();
        let mut segments: Vec<_> = self
            .blocks
            .iter()
            .map(|(&id, (address, granules, request))| {
                let (address, bytes) = (*address, granules.len() * granule_bytes);
                let block = BlockInfo {
                    address,
                    bytes,
                    requested_bytes: request.bytes,
                    state: BlockState::Live,
                    stream: request.stream,
                    owner: Some(Arc::clone(&request.owner)),
                    id: Some(id),
                };
                SegmentInfo { address, bytes, kind: SegmentKind::Home, blocks: vec![block] }
            })
            .collect();
        segments.sort_by_key(|segment| segment.address);
        segments
    }

    /// Walks everything and asserts every invariant: for tests.
    ///
    /// # Panics
    /// On the first invariant that does not hold.
    pub fn check(&self) {}

    /// Where the memory comes from.
    pub fn source(&self) -> &dyn Source {
        &*self.source
    }

    /// Where the memory comes from, to submit work or inject faults.
    pub fn source_mut(&mut self) -> &mut dyn Source {
        &mut *self.source
    }

    fn capacity_bytes(&self) -> usize {
        let source = self.source.capacity_bytes();
        self.settings.capacity_bytes.map_or(source, |limit| limit.min(source))
    }
}
