//! Reordering granules so that every block becomes one range of the main segment and can slide.
//!
//! Blocks in views are pieces in the main segment, and slabs stay where their granule is; a block
//! cannot slide across either. But the order of the granules in the main segment is free as long as
//! nothing in the main segment is fixed. So the granules are mapped in another order into a fresh
//! range, without copying: slabs first, then chains of granules that blocks continue across, then
//! what is free. The chains have no cycles: a block in the main segment continues from a granule to
//! the one after it, and the granules of a block in a view begin or end a chain (see `stitch.rs`).
//!
//! Nothing has changed until the whole fresh range is mapped, so that a refusal is harmless.

#![forbid(unsafe_code)]

use std::collections::BTreeMap;

use super::compaction::CompactionGoal;
use super::live_blocks::BlockLocation;
use super::main_segment::MainSegment;
use super::order::Tag;
use super::slab::SlabMove;
use super::tiling::{TileId, TileKind};
use super::view::push_joined;
use super::{ByteRange, Pool};
use crate::source::{Granule, Refusal};

impl Pool {
    /// The last stage of compaction: reorders granules, then slides the blocks.
    pub(super) fn reorder_granules(&mut self, goal: &CompactionGoal) -> Result<(), Refusal> {
        let is_pinned =
            |index: u32, place: &BlockLocation| !matches!(place, BlockLocation::Stitched(_)) && !self.is_movable(index);
        let pinned = self.blocks.iter().any(|(index, live)| is_pinned(index, &live.place));
        if pinned || !self.source.can_alias() || !self.main.is_reserved() {
            return Ok(());
        }
        let order = self.order_of_granules();
        let address = self.map_in_order(&order)?;
        self.move_main_segment(address, &order);
        let blocks: Vec<u32> = self.blocks.iter().map(|(index, _)| index).collect();
        blocks.into_iter().for_each(|index| self.moved(index));
        self.slide(goal)
    }

    /// The slots of all granules in their new order.
    fn order_of_granules(&self) -> Vec<usize> {
        let next = self.continuations();
        let mut is_continuation = vec![false; self.main.slots()];
        next.values().for_each(|&slot| is_continuation[slot] = true);
        let held =
            || self.main.tiling().iter().map(|tile| self.main.get(tile)).filter(|tile| tile.kind != TileKind::Unmapped);
        let mut granules: Vec<ByteRange> = Vec::new();
        held().for_each(|tile| push_joined(&mut granules, tile.start..tile.end()));
        let slots = granules.into_iter().flat_map(|range| self.main.whole(range));
        let rank = |&slot: &usize| {
            let start = self.main.range(&(slot..slot)).start;
            let tile = self.main.get(self.main.tiling().at(start));
            let is_free = matches!(tile.kind, TileKind::Free(_)) && tile.end() >= start + self.main.granule_bytes();
            if self.slabs.in_granule(slot).is_some() { 0 } else { 1 + usize::from(is_free) }
        };
        let mut heads: Vec<usize> = slots.filter(|&slot| !is_continuation[slot]).collect();
        heads.sort_by_key(rank);
        let order: Vec<usize> = heads
            .into_iter()
            .flat_map(|head| std::iter::successors(Some(head), |slot| next.get(slot).copied()))
            .collect();
        assert_eq!(order.len(), self.main.held(), "chains of granules have no cycles");
        order
    }

    /// By slot: the granule into which a block continues from its last byte.
    fn continuations(&self) -> BTreeMap<usize, usize> {
        let shift = self.main.granule_shift();
        let mut next = BTreeMap::new();
        let mut link = |tile: TileId| {
            let slots = self.main.touching(&(self.main.get(tile).start..self.main.get(tile).end()));
            next.extend(slots.clone().zip(slots.skip(1)));
        };
        for (_, live) in self.blocks.iter() {
            match &live.place {
                &BlockLocation::Whole(tile) => link(tile),
                BlockLocation::Slot { .. } => {}
                BlockLocation::Stitched(stitched) => stitched.pieces.iter().for_each(|&piece| link(piece)),
            }
        }
        let stitched = self.blocks.iter().filter_map(|(_, live)| match &live.place {
            BlockLocation::Stitched(stitched) => Some(stitched),
            _ => None,
        });
        for pair in stitched.flat_map(|stitched| stitched.pieces.windows(2)) {
            next.insert((self.main.get(pair[0]).end() >> shift) - 1, self.main.get(pair[1]).start >> shift);
        }
        next
    }

    /// Maps all granules into a fresh range, in this order from its beginning; returns its address.
    fn map_in_order(&mut self, order: &[usize]) -> Result<u64, Refusal> {
        let bytes = self.main.slots() << self.main.granule_shift();
        let granules: Vec<Granule> = order.iter().map(|&slot| self.main.granule(slot)).collect();
        let address = self.source.reserve(bytes)?;
        self.source.map(address, &granules).inspect_err(|_| self.source.release(address, bytes))?;
        Ok(address)
    }

    /// Makes a fresh range the main segment; releases the old one and the views that are no longer
    /// needed.
    fn move_main_segment(&mut self, address: u64, order: &[usize]) {
        let layout = self.layout(order);
        let granules: Vec<Granule> = order.iter().map(|&slot| self.main.granule(slot)).collect();
        let mut segment = MainSegment::new(self.main.slots(), self.main.granule_bytes());
        segment.set_address(address);
        segment.fill(0, &granules, Tag::IDLE);
        self.streams.all().for_each(|tag| segment.ensure_stream(tag));
        let old = std::mem::replace(&mut self.main, segment);
        self.install_layout(&layout);
        self.renumber_views(order);

        let mut mapped: Vec<ByteRange> = Vec::new();
        let mut slots = order.to_vec();
        slots.sort_unstable();
        slots.into_iter().for_each(|slot| push_joined(&mut mapped, slot..slot + 1));
        for slots in mapped {
            let range = old.range(&slots);
            self.source.unmap(old.address(range.start), range.len());
        }
        self.source.release(old.address(0), old.slots() << old.granule_shift());
    }

    /// New layout: the tiles cut at the granules' boundaries, in the new order, and joined again.
    fn layout(&self, order: &[usize]) -> Vec<(ByteRange, TileKind)> {
        let granule_bytes = self.main.granule_bytes();
        let mut layout: Vec<(ByteRange, TileKind)> = Vec::new();
        for (at, &slot) in order.iter().enumerate() {
            let granule = self.main.range(&(slot..slot + 1));
            let first = self.main.tiling().at(granule.start);
            let tiles = std::iter::successors(Some(first), |&tile| self.main.tiling().after(tile));
            for tile in tiles.map(|tile| self.main.get(tile)).take_while(|tile| tile.start < granule.end) {
                let kind = match tile.kind {
                    TileKind::Piece(index) if self.is_movable(index) => TileKind::Live(index),
                    kind => kind,
                };
                let within = tile.start.max(granule.start) - granule.start..tile.end().min(granule.end) - granule.start;
                let range = at * granule_bytes + within.start..at * granule_bytes + within.end;
                match layout.last_mut() {
                    Some((last, of)) if *of == kind => last.end = range.end,
                    _ => layout.push((range, kind)),
                }
            }
        }
        layout
    }

    /// Installs the tiles of a layout in the new main segment and updates blocks and slabs.
    fn install_layout(&mut self, layout: &[(ByteRange, TileKind)]) {
        let mut slabs = Vec::new();
        for (range, kind) in layout.iter().filter(|(_, kind)| !matches!(kind, TileKind::Free(_))) {
            let free = self.main.tiling().at(range.start);
            let tile = self.main.take(free, range.clone(), *kind);
            match *kind {
                TileKind::Live(index) => {
                    let place = std::mem::replace(&mut self.blocks.at_mut(index).place, BlockLocation::Whole(tile));
                    if let BlockLocation::Stitched(stitched) = place {
                        self.views.remove_block(stitched.view);
                    }
                }
                TileKind::Piece(index) => {
                    if let BlockLocation::Stitched(stitched) = &mut self.blocks.at_mut(index).place {
                        stitched.pieces = vec![tile];
                    }
                }
                TileKind::Slab(slab) => {
                    let granule = range.start >> self.main.granule_shift();
                    slabs.push(SlabMove { slab, granule, tile });
                }
                TileKind::Free(_) | TileKind::Unmapped => unreachable!("only what is in use is taken"),
            }
        }
        self.slabs.relocate(&slabs);
    }

    /// Drops views without blocks, and updates the granules of the others.
    fn renumber_views(&mut self, order: &[usize]) {
        while let Some(view) = self.views.oldest() {
            self.drop_view(view);
        }
        let slot_of: BTreeMap<u32, u32> = order.iter().map(|&slot| slot as u32).zip(0..).collect();
        let views: Vec<u32> = self.views.iter().map(|(index, _)| index).collect();
        for view in views {
            self.views.renumber(view, |slot| slot_of[&slot]);
        }
    }
}
