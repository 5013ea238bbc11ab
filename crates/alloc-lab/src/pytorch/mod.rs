//! PyTorch's CUDA caching allocator, as a model to compare with.
//!
//! The rules are those of `c10/cuda/CUDACachingAllocator.cpp` in github.com/pytorch/pytorch (read
//! at commit 001074d25084, January 2025), with the functions named here; nothing of its text is
//! used. What the model leaves out: private pools of CUDA graphs, garbage collection by threshold,
//! rounding to powers of two (all off by default), and blocks that a second stream uses.
//!
//! - Sizes are rounded up to 512 bytes (`round_size`).
//! - Blocks up to 1 MiB live in the small pool, larger ones in the large pool (`get_pool`).
//! - Best fit: the smallest free block of the stream and pool that suffices, at the lowest address
//!   among equals (`get_free_block`, `BlockComparatorSize`).
//! - With `max_split_size`, a block of that size or more serves no smaller request, and a larger
//!   one only with less than 20 MiB to spare (`get_free_block`).
//! - A segment is 2 MiB for the small pool, 20 MiB for requests below 10 MiB, else the request
//!   rounded up to 2 MiB (`get_allocation_size`).
//! - The rest of a block is split off where it is 512 bytes or more (small pool, expandable
//!   segments), or more than 1 MiB and the request below `max_split_size` (large pool)
//!   (`should_split`).
//! - A freed block merges with its free neighbours in the segment (`free_block`,
//!   `try_merge_blocks`).
//! - When the device has no memory: with `max_split_size`, free blocks of that size or more go
//!   back, the largest first, until enough has; try again; then every segment without a live block
//!   goes back; try once more; else the request fails (`malloc`, `release_available_cached_blocks`,
//!   `release_cached_blocks`).
//! - Expandable segments: an address range 1 1/8 times the device for each stream and pool, mapped
//!   in pages of 2 MiB (small pool) or 20 MiB (large pool) (`ExpandableSegment`).
//! - A free block that can grow counts for best fit with what it can grow to (`get_free_block`).
//! - Growth takes the lowest unmapped range that has room, together with the free block before it
//!   (`find_expandable_block`, `try_allocate_expandable_block`, `map_block`).
//! - The whole pages inside free blocks go back to the device (`unmap_block`, `release_blocks`).
//!
//! A call of `cudaMalloc`, `cudaFree`, `cuMemAddressReserve`, `cuMemAddressFree`, `cuMemCreate`,
//! `cuMemRelease`, `cuMemMap`, `cuMemSetAccess`, `cuMemUnmap` or `cudaStreamSynchronize` counts as
//! one call to the driver. The addresses of new segments ascend.

mod blocks;
mod device;
mod expandable;
mod free_lists;
mod rules;
mod segments;

#[cfg(test)]
mod tests;

use megabatch_gpu_core::source::StreamId;

use crate::allocator::{Allocator, Levels};
use blocks::{BlockKey, Blocks, State};
use device::ModelDevice;
use free_lists::FreeLists;
use rules::{PoolKind, RoundedRequest};

/// Growth of the allocator's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GrowthMode {
    /// In segments, each of one call of `cudaMalloc`.
    Segments,
    /// In pages, at the end of a range of addresses or in a hole of it.
    Expandable,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct AllocatorSettings {
    pub(crate) growth: GrowthMode,
    pub(crate) capacity_bytes: usize,
    pub(crate) max_split_bytes: Option<usize>,
}

/// The model.
#[derive(Debug)]
pub(crate) struct CachingAllocator {
    settings: AllocatorSettings,
    device: ModelDevice,
    blocks: Blocks,
    /// Free lists of the small pool and of the large one.
    pools: [FreeLists; 2],
    allocated_bytes: usize,
    /// Free bytes that share their segment or page with live bytes.
    inactive_split_bytes: usize,
}

impl CachingAllocator {
    pub(crate) fn new(settings: AllocatorSettings) -> Self {
        CachingAllocator {
            settings,
            device: ModelDevice::new(settings.capacity_bytes),
            blocks: Blocks::default(),
            pools: <[FreeLists; 2]>::default(),
            allocated_bytes: 0,
            inactive_split_bytes: 0,
        }
    }

    /// A block by best fit, then by the fallbacks in order; `None` if all fail.
    fn find(&mut self, wish: &RoundedRequest) -> Option<BlockKey> {
        if let Some(key) = self.take_free(wish).or_else(|| self.grow(wish)) {
            return Some(key);
        }
        if self.release_oversize(wish)
            && let Some(key) = self.grow(wish)
        {
            return Some(key);
        }
        self.release_cached();
        self.grow(wish)
    }

    /// A free block of the pool and stream, best fit; it is in no list any more.
    fn take_free(&mut self, wish: &RoundedRequest) -> Option<BlockKey> {
        let best = self.pool(wish.kind).best_fit(wish)?;
        let best = match self.settings.growth {
            GrowthMode::Segments => best,
            GrowthMode::Expandable => self.best_expandable_fit(best),
        };
        if let Some(limit) = self.settings.max_split_bytes {
            let bytes = self.blocks[best].bytes;
            let oversize_for_small = wish.bytes < limit && bytes >= limit;
            let too_much_to_spare = wish.bytes >= limit && bytes >= wish.bytes + rules::LARGE_SEGMENT_BYTES;
            if oversize_for_small || too_much_to_spare {
                return None;
            }
        }
        self.unlist(best);
        Some(best)
    }

    /// A block from memory that the device had free; it is in no list. `None` if the device has too
    /// little.
    fn grow(&mut self, wish: &RoundedRequest) -> Option<BlockKey> {
        match self.settings.growth {
            GrowthMode::Segments => self.add_segment(wish),
            GrowthMode::Expandable => self.extend(wish),
        }
    }

    /// Gives everything back to the device that can go.
    fn release_cached(&mut self) {
        for kind in [PoolKind::Large, PoolKind::Small] {
            for key in self.pool(kind).keys() {
                match self.settings.growth {
                    GrowthMode::Segments => self.release_segment(key),
                    GrowthMode::Expandable => self.unmap(key),
                }
            }
        }
    }

    /// Marks `key` as live and splits off the part that is not needed.
    fn hand_out(&mut self, key: BlockKey, wish: &RoundedRequest) {
        let rest_bytes = self.blocks[key].bytes - wish.bytes;
        if rules::should_split(wish, rest_bytes, &self.settings) {
            let rest = self.blocks.split(key, wish.bytes);
            self.list(rest);
        }
        self.blocks[key].state = State::Live;
        self.allocated_bytes += self.blocks[key].bytes;
    }

    /// Merges `key` with those of its neighbours that are in `state`, as it will be.
    fn merge_with_neighbours(&mut self, key: BlockKey, state: State) {
        let neighbours = [self.blocks[key].previous, self.blocks[key].next];
        for neighbour in neighbours.into_iter().flatten() {
            if self.blocks[neighbour].state == state {
                self.unlist(neighbour);
                self.blocks.absorb(key, neighbour);
            }
        }
    }

    /// Puts a free block into its list.
    fn list(&mut self, key: BlockKey) {
        self.inactive_split_bytes += self.stuck_bytes(key);
        let block = &self.blocks[key];
        self.pools[block.kind as usize].insert(block, key);
    }

    /// Takes a free block out of its list.
    fn unlist(&mut self, key: BlockKey) {
        self.inactive_split_bytes -= self.stuck_bytes(key);
        let block = &self.blocks[key];
        self.pools[block.kind as usize].remove(block, key);
    }

    /// Bytes of a free block that cannot go back to the device.
    fn stuck_bytes(&self, key: BlockKey) -> usize {
        let block = &self.blocks[key];
        match self.settings.growth {
            GrowthMode::Segments if block.is_split() => block.bytes,
            GrowthMode::Segments => 0,
            GrowthMode::Expandable => block.bytes - block.whole_pages().1,
        }
    }

    fn pool(&self, kind: PoolKind) -> &FreeLists {
        &self.pools[kind as usize]
    }
}

impl Allocator for CachingAllocator {
    type Block = BlockKey;

    fn allocate(&mut self, bytes: usize, stream: StreamId) -> Option<BlockKey> {
        let wish = RoundedRequest::new(bytes, stream);
        let key = self.find(&wish)?;
        self.hand_out(key, &wish);
        Some(key)
    }

    fn free(&mut self, key: BlockKey) {
        self.allocated_bytes -= self.blocks[key].bytes;
        self.blocks[key].state = State::Free;
        self.merge_with_neighbours(key, State::Free);
        self.list(key);
    }

    fn step(&mut self) {}

    fn levels(&self) -> Levels {
        Levels {
            reserved_bytes: self.device.used_bytes(),
            allocated_bytes: self.allocated_bytes,
            largest_free_bytes: self.pools.iter().map(FreeLists::largest_bytes).max().unwrap_or(0),
            inactive_split_bytes: self.inactive_split_bytes,
            driver_calls: self.device.calls(),
            stitches: 0,
        }
    }
}
