//! Gives a block the placement that it had in an earlier step, if that is free.

use super::live_blocks::{BlockLocation, PendingRequest};
use super::placement_cache::{BlockPlacement, PlacementKind};
use super::tiling::{TileId, TileKind};
use super::{ByteRange, Pool};

impl Pool {
    /// The location that a block of this key had in an earlier step.
    #[inline]
    pub(super) fn reuse(&mut self, key: u64, pending: &PendingRequest) -> Option<BlockLocation> {
        let placement = self.placements.reuse(key)?;
        self.take_placement(placement, pending)
    }

    fn take_placement(&mut self, placement: BlockPlacement, pending: &PendingRequest) -> Option<BlockLocation> {
        match placement.kind {
            PlacementKind::View(view) => self.reuse_view(view, placement, pending),
            PlacementKind::Slot => self.reuse_slot(self.main.offset(placement.address)?, pending),
            PlacementKind::Whole => {
                let start = self.main.offset(placement.address)?;
                let range = start..start + pending.bytes;
                let tile = match self.free_at(&range, pending) {
                    Some(tile) => tile,
                    None => self.free_behind_slab(&range, pending)?,
                };
                Some(BlockLocation::Whole(self.main.take(tile, range, TileKind::Live(pending.block))))
            }
        }
    }

    /// The free tile that holds a range behind the last live block of a slab, which ends there now.
    #[cold]
    fn free_behind_slab(&mut self, range: &ByteRange, pending: &PendingRequest) -> Option<TileId> {
        let slab = self.slabs.in_granule(range.start >> self.main.granule_shift())?;
        let found = self.slabs.get(slab);
        let behind = self.range_behind(found);
        if !found.tag.serves(pending.tag) || range.start < behind.start || behind.end < range.end {
            return None;
        }
        self.shorten_slab(slab);
        self.free_at(range, pending)
    }

    fn reuse_slot(&mut self, start: usize, pending: &PendingRequest) -> Option<BlockLocation> {
        let class = pending.class?;
        let granule = start >> self.main.granule_shift();
        let base = granule << self.main.granule_shift();
        let slot = (start - base) / pending.bytes;
        if self.slabs.in_granule(granule).is_none() {
            let tile = self.free_at(&(base..base + self.main.granule_bytes()), pending)?;
            self.add_slab(tile, granule, class, pending.tag);
        }
        let slab = self.slabs.in_granule(granule).expect("it was made if there was none");
        let found = self.slabs.get(slab);
        let same = found.class == class && found.tag == pending.tag && slot < found.slots() && found.is_free(slot);
        same.then(|| {
            self.slabs.take_slot(slab, slot);
            BlockLocation::Slot { slab, slot: slot as u32 }
        })
    }

    fn reuse_view(&mut self, view: u32, placement: BlockPlacement, pending: &PendingRequest) -> Option<BlockLocation> {
        let found = self.views.try_get(view)?;
        let offset = usize::try_from(placement.address.checked_sub(found.address)?).ok()?;
        if offset + pending.bytes > found.slots.len() << self.main.granule_shift() {
            return None;
        }
        for piece in found.pieces(&(offset..offset + pending.bytes), self.main.granule_shift())? {
            self.free_at(&piece, pending)?;
        }
        let pieces = self.free_pieces(view, offset, pending)?;
        Some(self.assign_view(pending, view, offset, &pieces))
    }

    /// The free tile that holds a range, after ordering the stream after others that freed memory
    /// there.
    fn free_at(&mut self, range: &ByteRange, pending: &PendingRequest) -> Option<TileId> {
        loop {
            if let Some(tile) = self.main.free_at(range, |tag| tag.serves(pending.tag)) {
                return Some(tile);
            }
            let tiles = std::iter::successors(Some(self.main.tiling().tile_at(range.start)), |&tile| {
                self.main.tiling().after(tile)
            });
            let mut foreign = None;
            for tile in tiles.map(|tile| self.main.get(tile)).take_while(|tile| tile.start < range.end) {
                match tile.kind {
                    TileKind::Free(tag) if tag.serves(pending.tag) => {}
                    TileKind::Free(tag) => foreign = Some(tag),
                    _ => return None,
                }
            }
            // Each iteration makes one stream's memory usable, so that there are at most as many as
            // streams.
            self.adopt(foreign?, pending.tag).ok()?;
        }
    }
}
