//! The fallbacks that are tried, in this order, until a block is found.

use super::live_blocks::{BlockLocation, PendingRequest, Stitched};
use super::slab::{Slab, class_bytes, class_slots};
use super::stream_tag::Tag;
use super::tiling::{Tile, TileId, TileKind};
use super::{AllocationError, ByteRange, Pool};
use crate::source::Refusal;

/// One way to find memory for a block: `None` if there is none, a refusal if the source failed. No
/// live block has changed in either case.
type FallbackStep = fn(&mut Pool, &PendingRequest) -> Result<Option<BlockLocation>, Refusal>;

/// Fallbacks after [`Pool::fit`], from cheap to expensive.
const FALLBACKS: [FallbackStep; 6] = [
    // Free memory of other streams, once ordered after their work.
    Pool::share,
    // Scattered free granules, mapped side by side.
    Pool::stitch,
    // New granules: as many as are missing.
    Pool::grow,
    // Cached granules released and created elsewhere, where the source cannot stitch.
    Pool::release_cached,
    // Any hole, for a small block when no granule is left for a slab.
    |pool, pending| Ok(pool.fit_in_hole(pending)),
    // What lies behind the last block of a slab.
    |pool, pending| Ok(pool.fit_behind_slab(pending)),
];

impl Pool {
    /// Tries the fallbacks in order.
    #[cold]
    pub(super) fn fallback(&mut self, pending: &PendingRequest) -> Result<BlockLocation, AllocationError> {
        let mut failure = None;
        for step in FALLBACKS {
            match step(self, pending) {
                Ok(Some(place)) => return Ok(place),
                Ok(None) | Err(Refusal::OutOfMemory | Refusal::CannotAlias) => {}
                Err(refusal) => failure = Some(refusal),
            }
        }
        Err(failure.map_or_else(|| AllocationError::NotNow(self.counts_with_others()), AllocationError::Source))
    }

    /// A free block without a driver call: a slot of a slab, or a cut from the best-fitting free
    /// tile.
    #[inline]
    pub(super) fn fit(&mut self, pending: &PendingRequest) -> Option<BlockLocation> {
        let Some(class) = pending.class else { return self.fit_whole(pending) };
        match self.slabs.take(class, pending.tag) {
            Some((slab, slot)) => Some(BlockLocation::Slot { slab, slot }),
            None => self.fit_slab(class, pending),
        }
    }

    /// The first slot of a new slab.
    #[cold]
    fn fit_slab(&mut self, class: usize, pending: &PendingRequest) -> Option<BlockLocation> {
        let (tile, granule) = self.main.fit_granule(pending.tag)?;
        self.add_slab(tile, granule, class, pending.tag);
        self.slabs.take(class, pending.tag).map(|(slab, slot)| BlockLocation::Slot { slab, slot })
    }

    /// A small block in any hole, only when no granule is left for a slab: a hole with small blocks
    /// in it is useless for large ones.
    pub(super) fn fit_in_hole(&mut self, pending: &PendingRequest) -> Option<BlockLocation> {
        pending.class.and_then(|_| self.fit_whole(pending))
    }

    /// A block in the granule of a slab, behind the slab's last live block. Slabs without room for
    /// it stay as they are.
    fn fit_behind_slab(&mut self, pending: &PendingRequest) -> Option<BlockLocation> {
        let fitting = self
            .slabs
            .iter()
            .filter(|(_, slab)| slab.tag.serves(pending.tag) && self.range_behind(slab).len() >= pending.bytes);
        let (slab, _) = fitting.min_by_key(|(_, slab)| slab.granule)?;
        self.shorten_slab(slab);
        self.fit_whole(pending)
    }

    /// The range behind the last live block of a slab that is free once the slab ends there.
    pub(super) fn range_behind(&self, slab: &Slab) -> ByteRange {
        let (tile, after) = (self.main.get(slab.tile), self.main.tiling().after(slab.tile));
        let is_free = |after: &&Tile| matches!(after.kind, TileKind::Free(tag) if tag.serves(slab.tag));
        let free = after.map(|after| self.main.get(after)).filter(is_free);
        tile.start + slab.slots_used() * class_bytes(slab.class)..free.map_or(tile.end(), Tile::end)
    }

    /// Ends a slab behind its last live block.
    pub(super) fn shorten_slab(&mut self, slab: u32) {
        let &Slab { tile, tag, .. } = self.slabs.get(slab);
        let end = self.main.get(tile).start + self.slabs.shorten(slab);
        self.main.shorten(tile, end, tag);
    }

    #[inline(never)]
    fn fit_whole(&mut self, pending: &PendingRequest) -> Option<BlockLocation> {
        let tile = self.main.fit(pending.bytes, pending.tag)?;
        let range = self.main.cut(tile, pending.bytes);
        Some(BlockLocation::Whole(self.main.take(tile, range, TileKind::Live(pending.block))))
    }

    /// Adds a slab in a granule of a free tile.
    pub(super) fn add_slab(&mut self, tile: TileId, granule: usize, class: usize, tag: Tag) {
        let slots = class_slots(class, self.main.granule_bytes());
        let range = self.main.range(&(granule..granule + 1));
        let tile = self.main.take(tile, range, TileKind::Slab(self.slabs.next()));
        self.slabs.add(tile, granule, class, tag, slots);
    }

    /// Frees the memory of a block.
    #[inline]
    pub(super) fn evict(&mut self, place: &BlockLocation, tag: Tag) {
        match place {
            &BlockLocation::Whole(tile) => self.main.give_back(tile, tag),
            &BlockLocation::Slot { slab, slot } => {
                if self.slabs.give_back(slab, slot) {
                    let slab = self.slabs.remove(slab);
                    self.main.give_back(slab.tile, tag);
                }
            }
            BlockLocation::Stitched(stitched) => self.release_view(stitched, tag),
        }
    }

    #[cold]
    fn release_view(&mut self, stitched: &Stitched, tag: Tag) {
        for &piece in &stitched.pieces {
            self.main.give_back(piece, tag);
        }
        self.views.remove_block(stitched.view);
    }

    /// The first address of a location.
    pub(super) fn address_of(&self, place: &BlockLocation) -> u64 {
        match place {
            &BlockLocation::Whole(tile) => self.main.address(self.main.get(tile).start),
            &BlockLocation::Slot { slab, slot } => self.main.address(self.slot_range(slab, slot).start),
            BlockLocation::Stitched(stitched) => self.views.get(stitched.view).address + stitched.offset as u64,
        }
    }

    pub(super) fn slot_range(&self, slab: u32, slot: u32) -> ByteRange {
        super::slab::slot_bytes(self.slabs.get(slab), slot as usize, self.main.granule_shift())
    }
}
