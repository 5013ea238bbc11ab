//! Takes the seat that the memory of steps knows, if it is free.

#![forbid(unsafe_code)]

use super::pending_request::{PendingRequest, Place};
use super::placement_cache::{BlockPlacement, PlacementKind};
use super::tiling::{Kind, TileId};
use super::{Bytes, Pool};

impl Pool {
    /// The place that a block of this key had when a step last came by here.
    #[inline]
    pub(super) fn recall(&mut self, key: u64, want: &PendingRequest) -> Option<Place> {
        let seat = self.memory.recall(key)?;
        self.take_seat(seat, want)
    }

    fn take_seat(&mut self, seat: BlockPlacement, want: &PendingRequest) -> Option<Place> {
        match seat.form {
            PlacementKind::View(view) => self.recall_view(view, seat, want),
            PlacementKind::Slot => self.recall_slot(self.home.offset(seat.address)?, want),
            PlacementKind::Whole => {
                let start = self.home.offset(seat.address)?;
                let tile = self.free_at(&(start..start + want.bytes), want)?;
                Some(Place::Whole(self.home.take(tile, start..start + want.bytes, Kind::Live(want.block))))
            }
        }
    }

    fn recall_slot(&mut self, start: usize, want: &PendingRequest) -> Option<Place> {
        let class = want.class?;
        let granule = start >> self.home.granule_shift();
        let base = granule << self.home.granule_shift();
        let slot = (start - base) / want.bytes;
        if self.slabs.in_granule(granule).is_none() {
            let tile = self.free_at(&(base..base + self.home.granule_bytes()), want)?;
            self.add_slab(tile, granule, (class, want.tag));
        }
        let slab = self.slabs.in_granule(granule).expect("it was made if there was none");
        let found = self.slabs.get(slab);
        let same = found.class == class && found.tag == want.tag && slot < found.slots() && found.is_free(slot);
        same.then(|| {
            self.slabs.take_slot(slab, slot);
            Place::Slot { slab, slot: slot as u32 }
        })
    }

    fn recall_view(&mut self, view: u32, seat: BlockPlacement, want: &PendingRequest) -> Option<Place> {
        let found = self.views.try_get(view)?;
        let offset = usize::try_from(seat.address.checked_sub(found.address)?).ok()?;
        if offset + want.bytes > found.slots.len() << self.home.granule_shift() {
            return None;
        }
        for piece in found.pieces(&(offset..offset + want.bytes), self.home.granule_shift())? {
            self.free_at(&piece, want)?;
        }
        let pieces = self.free_pieces(view, offset, want)?;
        Some(self.enter_view(want, view, offset, &pieces))
    }

    /// The free tile that a range lies in, after taking over from other streams what they freed
    /// there.
    fn free_at(&mut self, range: &Bytes, want: &PendingRequest) -> Option<TileId> {
        loop {
            if let Some(tile) = self.home.free_at(range, |tag| tag.serves(want.tag)) {
                return Some(tile);
            }
            let tiles =
                std::iter::successors(Some(self.home.tiling().at(range.start)), |&tile| self.home.tiling().after(tile));
            let mut foreign = None;
            for tile in tiles.map(|tile| self.home.get(tile)).take_while(|tile| tile.start < range.end) {
                match tile.kind {
                    Kind::Free(tag) if tag.serves(want.tag) => {}
                    Kind::Free(tag) => foreign = Some(tag),
                    _ => return None,
                }
            }
            // Each turn makes one stream's memory usable, so that there are no more turns than
            // streams.
            self.adopt(foreign?, want.tag).ok()?;
        }
    }
}
