//! The walk: every invariant, asserted from the tiles up.

#![forbid(unsafe_code)]

use std::collections::BTreeMap;

use super::order::Tag;
use super::pending_request::Place;
use super::slab::class_bytes;
use super::tiling::{Kind, Tile, TileId};
use super::view::GONE;
use super::{Bytes, Pool, UNIT_BYTES};

impl Pool {
    /// Walks everything and asserts every invariant: for tests.
    ///
    /// # Panics
    /// On the first invariant that does not hold.
    pub fn check(&self) {
        self.check_tiles();
        self.check_bins();
        self.check_blocks();
        self.check_slabs();
        self.check_views();
        self.check_counters();
    }

    fn tiles(&self) -> impl Iterator<Item = (TileId, &Tile)> {
        self.home.tiling().iter().map(|id| (id, self.home.get(id)))
    }

    /// Tiles follow each other from the first byte to the last, and neighbours that could be one
    /// are one.
    fn check_tiles(&self) {
        let mut end = 0;
        let mut last = None;
        for (id, tile) in self.tiles() {
            assert_eq!(tile.start, end, "tiles follow each other");
            assert!(tile.bytes > 0 && tile.bytes % UNIT_BYTES == 0, "{tile:?} is whole units");
            assert_eq!(self.home.tiling().at(tile.start), id);
            assert_eq!(self.home.tiling().at(tile.end() - 1), id);
            match (last, tile.kind) {
                (Some(Kind::Void), Kind::Void) => panic!("two voids side by side at {end}"),
                (Some(Kind::Free(a)), Kind::Free(b)) => assert_eq!(a.joined(b), None, "two free tiles at {end}"),
                _ => {}
            }
            if tile.kind == Kind::Void {
                assert_eq!(self.home.whole(tile.start..tile.end()).len() * self.home.granule_bytes(), tile.bytes);
            }
            (end, last) = (tile.end(), Some(tile.kind));
        }
        assert_eq!(end, self.home.slots() * self.home.granule_bytes(), "tiles cover the segment");
    }

    /// The bins hold the free tiles and the voids, each in its place, and nothing else.
    fn check_bins(&self) {
        let mut binned: BTreeMap<TileId, Kind> = BTreeMap::new();
        for tag in self.streams.all().chain([Tag::NOBODY]) {
            let Some(bins) = self.home.bins().get(tag.index()) else { continue };
            binned.extend(bins.iter_from(self.home.tiling(), UNIT_BYTES).map(|tile| (tile, Kind::Free(tag))));
        }
        binned.extend(self.home.voids().iter_from(self.home.tiling(), UNIT_BYTES).map(|tile| (tile, Kind::Void)));
        let idle = self.tiles().filter(|(_, tile)| matches!(tile.kind, Kind::Free(_) | Kind::Void));
        assert_eq!(binned, idle.map(|(id, tile)| (id, tile.kind)).collect());
    }

    /// Every live block is where it says, and every tile in use says whose it is.
    fn check_blocks(&self) {
        let mut used = 0;
        let mut live_digest = 0u64;
        for (index, live) in self.blocks.iter() {
            match &live.place {
                &Place::Whole(tile) => {
                    used += 1;
                    assert_eq!((self.home.get(tile).kind, self.home.get(tile).bytes), (Kind::Live(index), live.bytes));
                }
                &Place::Slot { slab, slot } => {
                    let slab = self.slabs.get(slab);
                    assert!(!slab.is_free(slot as usize) && slab.tag == live.tag);
                    assert_eq!(class_bytes(slab.class), live.bytes);
                }
                Place::Stitched(stitched) => {
                    used += stitched.pieces.len();
                    let range = stitched.offset..stitched.offset + live.bytes;
                    let view = self.views.get(stitched.view).pieces(&range, self.home.granule_shift());
                    let pieces = stitched.pieces.iter().map(|&piece| self.home.get(piece));
                    assert!(pieces.clone().all(|tile| tile.kind == Kind::Piece(index)));
                    assert_eq!(
                        view,
                        Some(pieces.map(|tile| tile.start..tile.end()).collect()),
                        "pieces are what is seen"
                    );
                }
            }
            assert_eq!(live.address, self.address_of(&live.place));
            let digest = super::placement_cache::digest(live.address, live.bytes, live.tag.index());
            live_digest = live_digest.wrapping_add(digest);
        }
        let in_use = self.tiles().filter(|(_, tile)| matches!(tile.kind, Kind::Live(_) | Kind::Piece(_))).count();
        assert_eq!(used, in_use, "every tile in use is a block's");
        assert_eq!(live_digest, self.memory.live());
    }

    /// Every slab has its tile and as many live blocks as it says, and none is empty.
    fn check_slabs(&self) {
        let mut live: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for (_, block) in self.blocks.iter() {
            if let Place::Slot { slab, slot } = block.place {
                live.entry(slab).or_default().push(slot);
            }
        }
        for (index, slab) in self.slabs.iter() {
            let tile = self.home.get(slab.tile);
            assert_eq!(tile.kind, Kind::Slab(index));
            assert_eq!(tile.start..tile.end(), self.home.range(&(slab.granule..slab.granule + 1)));
            assert_eq!(self.slabs.in_granule(slab.granule), Some(index));
            let mut slots = live.remove(&index).unwrap_or_default();
            slots.sort_unstable();
            assert!(slots.windows(2).all(|pair| pair[0] != pair[1]), "a slot has one block");
            assert!(slab.live == slots.len() && slab.live > 0);
            assert_eq!((0..slab.slots()).filter(|&slot| slab.is_free(slot)).count(), slab.slots() - slab.live);
        }
        assert!(live.is_empty(), "blocks are in slabs that exist");
        let slab_tiles = self.tiles().filter(|(_, tile)| matches!(tile.kind, Kind::Slab(_))).count();
        assert_eq!(slab_tiles, self.slabs.iter().count());
    }

    /// Views map granules that exist, and know how many live blocks they have.
    fn check_views(&self) {
        let mut mapped = 0;
        for (index, view) in self.views.iter() {
            for &slot in view.slots.iter().filter(|&&slot| slot != GONE) {
                let start = self.home.range(&(slot as usize..slot as usize)).start;
                assert_ne!(self.home.get(self.home.tiling().at(start)).kind, Kind::Void, "a view maps what exists");
                mapped += 1;
            }
            let in_view = |place: &Place| matches!(place, Place::Stitched(stitched) if stitched.view == index);
            assert_eq!(view.live, self.blocks.iter().filter(|(_, live)| in_view(&live.place)).count());
            assert_eq!(self.views.is_dormant(index), view.live == 0);
        }
        assert_eq!(mapped, self.views.mapped());
    }

    /// Counters are the sums that they stand for.
    fn check_counters(&self) {
        let granule_bytes = self.home.granule_bytes();
        let (mut touching, mut held_bytes) = (vec![0; self.home.slots()], 0);
        for (_, tile) in self.tiles() {
            let range: Bytes = tile.start..tile.end();
            match tile.kind {
                Kind::Void => {}
                Kind::Free(_) => held_bytes += tile.bytes,
                _ => {
                    held_bytes += tile.bytes;
                    self.home.touching(&range).for_each(|slot| touching[slot] += 1);
                }
            }
        }
        let touched = touching.iter().filter(|&&tiles| tiles > 0).count();
        for (slot, &tiles) in touching.iter().enumerate() {
            let edges = self.home.edges(slot);
            assert!(edges == tiles || (tiles == 1 && edges == 0), "granule {slot}: {edges} edges, {tiles} tiles");
        }
        let sum = |of: fn(&super::Live) -> usize| self.blocks.iter().map(|(_, live)| of(live)).sum::<usize>();
        let stats = self.stats;
        assert_eq!(self.home.touched(), touched);
        assert_eq!((self.home.held() * granule_bytes, stats.reserved_bytes.now), (held_bytes, held_bytes));
        assert_eq!(stats.allocated_bytes.now, sum(|live| live.bytes));
        assert_eq!(stats.requested_bytes.now, sum(|live| live.requested_bytes));
        assert_eq!(stats.blocks.now, self.blocks.iter().count());
        assert_eq!(stats.inactive_split_bytes.now, touched * granule_bytes - stats.allocated_bytes.now);
        assert_eq!(
            self.home.largest_free_bytes(),
            self.tiles()
                .filter(|(_, tile)| matches!(tile.kind, Kind::Free(_)))
                .map(|(_, tile)| tile.bytes)
                .max()
                .unwrap_or(0)
        );
    }
}
