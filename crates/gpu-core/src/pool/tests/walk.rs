//! Assertions of every invariant, from the tiles up. They read what only the pool sees.

use std::collections::BTreeMap;

use super::live_blocks::BlockLocation;
use super::slab::class_bytes;
use super::stream_tag::Tag;
use super::tiling::{Tile, TileId, TileKind};
use super::view::GONE;
use super::{ByteRange, Pool, UNIT_BYTES};

impl Pool {
    /// Walks everything and asserts every invariant.
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
        self.main.tiling().iter().map(|id| (id, self.main.get(id)))
    }

    /// Tiles follow each other from the first byte to the last, and neighbours that could be one
    /// are one.
    fn check_tiles(&self) {
        let mut end = 0;
        let mut last = None;
        for (id, tile) in self.tiles() {
            assert_eq!(tile.start, end, "tiles follow each other");
            assert!(tile.bytes > 0 && tile.bytes % UNIT_BYTES == 0, "{tile:?} is whole units");
            assert_eq!(self.main.tiling().tile_at(tile.start), id);
            assert_eq!(self.main.tiling().tile_at(tile.end() - 1), id);
            match (last, tile.kind) {
                (Some(TileKind::Unmapped), TileKind::Unmapped) => panic!("two unmapped side by side at {end}"),
                (Some(TileKind::Free(a)), TileKind::Free(b)) => {
                    assert_eq!(a.joined(b), None, "two free tiles at {end}");
                }
                _ => {}
            }
            if tile.kind == TileKind::Unmapped {
                assert_eq!(
                    self.main.granules_inside(tile.start..tile.end()).len() * self.main.granule_bytes(),
                    tile.bytes
                );
            }
            (end, last) = (tile.end(), Some(tile.kind));
        }
        assert_eq!(end, self.main.slots() * self.main.granule_bytes(), "tiles cover the segment");
    }

    /// The bins hold exactly the free and the unmapped tiles, each in its bin.
    fn check_bins(&self) {
        let mut binned: BTreeMap<TileId, TileKind> = BTreeMap::new();
        for tag in self.streams.all().chain([Tag::IDLE]) {
            let Some(bins) = self.main.bins().get(tag.index()) else { continue };
            binned.extend(bins.iter_from(self.main.tiling(), UNIT_BYTES).map(|tile| (tile, TileKind::Free(tag))));
        }
        binned.extend(
            self.main.unmapped().iter_from(self.main.tiling(), UNIT_BYTES).map(|tile| (tile, TileKind::Unmapped)),
        );
        let idle = self.tiles().filter(|(_, tile)| matches!(tile.kind, TileKind::Free(_) | TileKind::Unmapped));
        assert_eq!(binned, idle.map(|(id, tile)| (id, tile.kind)).collect());
    }

    /// Every live block is at its recorded location, and every tile in use names its block.
    fn check_blocks(&self) {
        let mut used = 0;
        let mut live_digest = 0u64;
        for (index, live) in self.blocks.iter() {
            match &live.place {
                &BlockLocation::Whole(tile) => {
                    used += 1;
                    assert_eq!(
                        (self.main.get(tile).kind, self.main.get(tile).bytes),
                        (TileKind::Live(index), live.bytes)
                    );
                }
                &BlockLocation::Slot { slab, slot } => {
                    let slab = self.slabs.get(slab);
                    assert!(!slab.is_free(slot as usize) && slab.tag == live.tag);
                    assert_eq!(class_bytes(slab.class), live.bytes);
                }
                BlockLocation::Stitched(stitched) => {
                    used += stitched.pieces.len();
                    let range = stitched.offset..stitched.offset + live.bytes;
                    let view = self.views.get(stitched.view).pieces(&range, self.main.granule_shift());
                    let pieces = stitched.pieces.iter().map(|&piece| self.main.get(piece));
                    assert!(pieces.clone().all(|tile| tile.kind == TileKind::Piece(index)));
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
        let in_use =
            self.tiles().filter(|(_, tile)| matches!(tile.kind, TileKind::Live(_) | TileKind::Piece(_))).count();
        assert_eq!(used, in_use, "every tile in use is a block's");
        assert_eq!(live_digest, self.placements.live());
    }

    /// Every slab has its tile and as many live blocks as it says, and none is empty.
    fn check_slabs(&self) {
        let mut live: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for (_, block) in self.blocks.iter() {
            if let BlockLocation::Slot { slab, slot } = block.place {
                live.entry(slab).or_default().push(slot);
            }
        }
        for (index, slab) in self.slabs.iter() {
            let tile = self.main.get(slab.tile);
            assert_eq!(tile.kind, TileKind::Slab(index));
            let granule = self.main.range(&(slab.granule..slab.granule + 1));
            assert!(tile.start == granule.start && tile.end() <= granule.end, "a slab begins a granule");
            assert!(slab.slots() * class_bytes(slab.class) <= tile.bytes, "slots are in the slab's tile");
            assert_eq!(self.slabs.in_granule(slab.granule), Some(index));
            let mut slots = live.remove(&index).unwrap_or_default();
            slots.sort_unstable();
            assert!(slots.windows(2).all(|pair| pair[0] != pair[1]), "a slot has one block");
            assert!(slab.live == slots.len() && slab.live > 0);
            assert_eq!((0..slab.slots()).filter(|&slot| slab.is_free(slot)).count(), slab.slots() - slab.live);
        }
        assert!(live.is_empty(), "blocks are in slabs that exist");
        let slab_tiles = self.tiles().filter(|(_, tile)| matches!(tile.kind, TileKind::Slab(_))).count();
        assert_eq!(slab_tiles, self.slabs.iter().count());
    }

    /// Views map granules that exist, and know how many live blocks they have.
    fn check_views(&self) {
        let mut mapped = 0;
        for (index, view) in self.views.iter() {
            for &slot in view.slots.iter().filter(|&&slot| slot != GONE) {
                let start = self.main.range(&(slot as usize..slot as usize)).start;
                assert_ne!(
                    self.main.get(self.main.tiling().tile_at(start)).kind,
                    TileKind::Unmapped,
                    "a view maps what exists"
                );
                mapped += 1;
            }
            let in_view =
                |place: &BlockLocation| matches!(place, BlockLocation::Stitched(stitched) if stitched.view == index);
            assert_eq!(view.live, self.blocks.iter().filter(|(_, live)| in_view(&live.place)).count());
            assert_eq!(self.views.is_dormant(index), view.live == 0);
        }
        assert_eq!(mapped, self.views.mapped());
    }

    /// Counters equal the sums over tiles and blocks.
    fn check_counters(&self) {
        let granule_bytes = self.main.granule_bytes();
        let (mut touching, mut held_bytes) = (vec![0; self.main.slots()], 0);
        for (_, tile) in self.tiles() {
            let range: ByteRange = tile.start..tile.end();
            match tile.kind {
                TileKind::Unmapped => {}
                TileKind::Free(_) => held_bytes += tile.bytes,
                _ => {
                    held_bytes += tile.bytes;
                    self.main.granules_overlapping(&range).for_each(|slot| touching[slot] += 1);
                }
            }
        }
        let touched = touching.iter().filter(|&&tiles| tiles > 0).count();
        for (slot, &tiles) in touching.iter().enumerate() {
            let edges = self.main.boundary_tiles(slot);
            assert!(edges == tiles || (tiles == 1 && edges == 0), "granule {slot}: {edges} edges, {tiles} tiles");
        }
        let sum =
            |field: fn(&super::LiveBlock) -> usize| self.blocks.iter().map(|(_, live)| field(live)).sum::<usize>();
        let stats = self.stats;
        assert_eq!(self.main.live_granules(), touched);
        assert_eq!((self.main.mapped_granules() * granule_bytes, stats.reserved_bytes.now), (held_bytes, held_bytes));
        assert_eq!(stats.allocated_bytes.now, sum(|live| live.bytes));
        assert_eq!(stats.requested_bytes.now, sum(|live| live.requested_bytes));
        assert_eq!(stats.blocks.now, self.blocks.iter().count());
        assert_eq!(stats.inactive_split_bytes.now, touched * granule_bytes - stats.allocated_bytes.now);
        assert_eq!(
            self.main.largest_free_bytes(),
            self.tiles()
                .filter(|(_, tile)| matches!(tile.kind, TileKind::Free(_)))
                .map(|(_, tile)| tile.bytes)
                .max()
                .unwrap_or(0)
        );
    }
}
