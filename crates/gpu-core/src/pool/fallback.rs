//! The ladder: what is tried, in this order, until a block is found.

#![forbid(unsafe_code)]

use super::order::Tag;
use super::pending_request::{PendingRequest, Place, Stitched};
use super::slab::class_slots;
use super::tiling::{Kind, TileId};
use super::{Bytes, Pool, Shortage};
use crate::source::Refusal;

/// A way to come by a block: `None` if it leads nowhere, a refusal if the source stood in the way.
/// Either way no live block has changed.
type Fallback = fn(&mut Pool, &PendingRequest) -> Result<Option<Place>, Refusal>;

/// The rungs below the first, [`Pool::fit`], from cheap to dear.
const LADDER: [Fallback; 6] = [
    // Free memory of other streams, once ordered after their work.
    Pool::share,
    // Free granules from anywhere, mapped side by side.
    Pool::stitch,
    // New granules: as many as are missing.
    Pool::grow,
    // Cached granules given back for new ones elsewhere, where the source cannot stitch.
    Pool::release_cached,
    // For a small block: any hole, where no granule is left for a slab.
    |pool, want| Ok(pool.squeeze(want)),
    // At a step boundary: copies of blocks that may move.
    Pool::compact,
];

impl Pool {
    /// Climbs the ladder from its second rung on.
    #[cold]
    pub(super) fn fallback(&mut self, want: &PendingRequest) -> Result<Place, Shortage> {
        let mut failure = None;
        for rung in LADDER {
            match rung(self, want) {
                Ok(Some(place)) => return Ok(place),
                Ok(None) | Err(Refusal::OutOfMemory | Refusal::CannotAlias) => {}
                Err(refusal) => failure = Some(refusal),
            }
        }
        Err(failure.map_or_else(|| Shortage::NotNow(self.counts_with_others()), Shortage::Source))
    }

    /// A free block, without a call to the driver: of a slab, or cut from the tightest free tile.
    #[inline]
    pub(super) fn fit(&mut self, want: &PendingRequest) -> Option<Place> {
        let Some(class) = want.class else { return self.fit_whole(want) };
        match self.slabs.take(class, want.tag) {
            Some((slab, slot)) => Some(Place::Slot { slab, slot }),
            None => self.fit_slab(class, want),
        }
    }

    /// A block of a new slab.
    #[cold]
    fn fit_slab(&mut self, class: usize, want: &PendingRequest) -> Option<Place> {
        let (tile, granule) = self.home.fit_granule(want.tag)?;
        self.add_slab(tile, granule, (class, want.tag));
        self.slabs.take(class, want.tag).map(|(slab, slot)| Place::Slot { slab, slot })
    }

    /// A place in any hole for a small block. Only when no granule can be had for a slab: a hole
    /// that small blocks have begun to fill serves nobody else.
    pub(super) fn squeeze(&mut self, want: &PendingRequest) -> Option<Place> {
        want.class.and_then(|_| self.fit_whole(want))
    }

    #[inline(never)]
    fn fit_whole(&mut self, want: &PendingRequest) -> Option<Place> {
        let tile = self.home.fit(want.bytes, want.tag)?;
        let range = self.home.cut(tile, want.bytes);
        Some(Place::Whole(self.home.take(tile, range, Kind::Live(want.block))))
    }

    /// Makes a slab in a granule of a free tile.
    pub(super) fn add_slab(&mut self, tile: TileId, granule: usize, kind: (usize, Tag)) {
        let slots = class_slots(kind.0, self.home.granule_bytes());
        let range = self.home.range(&(granule..granule + 1));
        let tile = self.home.take(tile, range, Kind::Slab(self.slabs.next()));
        self.slabs.add(tile, granule, kind, slots);
    }

    /// Takes back what a block had.
    #[inline]
    pub(super) fn evict(&mut self, place: &Place, tag: Tag) {
        match place {
            &Place::Whole(tile) => self.home.give_back(tile, tag),
            &Place::Slot { slab, slot } => {
                if self.slabs.give_back(slab, slot) {
                    let slab = self.slabs.remove(slab);
                    self.home.give_back(slab.tile, tag);
                }
            }
            Place::Stitched(stitched) => self.leave_view(stitched, tag),
        }
    }

    #[cold]
    fn leave_view(&mut self, stitched: &Stitched, tag: Tag) {
        for &piece in &stitched.pieces {
            self.home.give_back(piece, tag);
        }
        self.views.leave(stitched.view);
    }

    /// The first address of a place.
    pub(super) fn address_of(&self, place: &Place) -> u64 {
        match place {
            &Place::Whole(tile) => self.home.address(self.home.get(tile).start),
            &Place::Slot { slab, slot } => self.home.address(self.slot_range(slab, slot).start),
            Place::Stitched(stitched) => self.views.get(stitched.view).address + stitched.offset as u64,
        }
    }

    pub(super) fn slot_range(&self, slab: u32, slot: u32) -> Bytes {
        super::slab::slot_bytes(self.slabs.get(slab), slot as usize, self.home.granule_shift())
    }
}
