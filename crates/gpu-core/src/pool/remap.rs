//! Lining granules up anew, so that every block is at home as one range and slides like any other.
//!
//! Blocks in views are pieces at home, and slabs stay where their granule is; a block cannot slide
//! across either. But the order of the granules at home is free as long as nothing at home is
//! fixed. So the granules are mapped in another order into a fresh range, without copying: slabs
//! first, then chains of granules that blocks continue across, then what is free. The chains have
//! no cycles: a block at home continues from a granule to the one after it, and the granules of a
//! block in a view begin or end a chain (see `stitch.rs`).
//!
//! Nothing has changed until the whole fresh range is mapped, so that a refusal is harmless.

#![forbid(unsafe_code)]

use std::collections::BTreeMap;

use super::compaction::CompactionGoal;
use super::main_segment::MainSegment;
use super::order::Tag;
use super::pending_request::Place;
use super::tiling::{Kind, TileId};
use super::view::push_joined;
use super::{Bytes, Pool};
use crate::source::{Granule, Refusal};

impl Pool {
    /// The last stage of compaction: lines granules up, then lets the blocks slide.
    pub(super) fn line_up(&mut self, goal: &CompactionGoal) -> Result<(), Refusal> {
        let is_pinned = |index: u32, place: &Place| !matches!(place, Place::Stitched(_)) && !self.is_movable(index);
        let pinned = self.blocks.iter().any(|(index, live)| is_pinned(index, &live.place));
        if pinned || !self.source.can_alias() || !self.home.is_reserved() {
            return Ok(());
        }
        let order = self.order_of_granules();
        let address = self.map_in_order(&order)?;
        self.move_home(address, &order);
        let blocks: Vec<u32> = self.blocks.iter().map(|(index, _)| index).collect();
        blocks.into_iter().for_each(|index| self.moved(index));
        self.slide(goal)
    }

    /// The slots of all granules in the order in which they are to be.
    fn order_of_granules(&self) -> Vec<usize> {
        let next = self.continuations();
        let mut is_continuation = vec![false; self.home.slots()];
        next.values().for_each(|&slot| is_continuation[slot] = true);
        let held = || self.home.tiling().iter().map(|tile| self.home.get(tile)).filter(|tile| tile.kind != Kind::Void);
        let mut granules: Vec<Bytes> = Vec::new();
        held().for_each(|tile| push_joined(&mut granules, tile.start..tile.end()));
        let slots = granules.into_iter().flat_map(|range| self.home.whole(range));
        let rank = |&slot: &usize| {
            let start = self.home.range(&(slot..slot)).start;
            let tile = self.home.get(self.home.tiling().at(start));
            let is_free = matches!(tile.kind, Kind::Free(_)) && tile.end() >= start + self.home.granule_bytes();
            if self.slabs.in_granule(slot).is_some() { 0 } else { 1 + usize::from(is_free) }
        };
        let mut heads: Vec<usize> = slots.filter(|&slot| !is_continuation[slot]).collect();
        heads.sort_by_key(rank);
        let order: Vec<usize> = heads
            .into_iter()
            .flat_map(|head| std::iter::successors(Some(head), |slot| next.get(slot).copied()))
            .collect();
        assert_eq!(order.len(), self.home.held(), "chains of granules have no cycles");
        order
    }

    /// By slot: the granule into which a block continues from its last byte.
    fn continuations(&self) -> BTreeMap<usize, usize> {
        let shift = self.home.granule_shift();
        let mut next = BTreeMap::new();
        let mut link = |tile: TileId| {
            let slots = self.home.touching(&(self.home.get(tile).start..self.home.get(tile).end()));
            next.extend(slots.clone().zip(slots.skip(1)));
        };
        for (_, live) in self.blocks.iter() {
            match &live.place {
                &Place::Whole(tile) => link(tile),
                Place::Slot { .. } => {}
                Place::Stitched(stitched) => stitched.pieces.iter().for_each(|&piece| link(piece)),
            }
        }
        let stitched = self.blocks.iter().filter_map(|(_, live)| match &live.place {
            Place::Stitched(stitched) => Some(stitched),
            _ => None,
        });
        for pair in stitched.flat_map(|stitched| stitched.pieces.windows(2)) {
            next.insert((self.home.get(pair[0]).end() >> shift) - 1, self.home.get(pair[1]).start >> shift);
        }
        next
    }

    /// Maps all granules into a fresh range, in this order from its beginning; returns its address.
    fn map_in_order(&mut self, order: &[usize]) -> Result<u64, Refusal> {
        let bytes = self.home.slots() << self.home.granule_shift();
        let granules: Vec<Granule> = order.iter().map(|&slot| self.home.granule(slot)).collect();
        let address = self.source.reserve(bytes)?;
        self.source.map(address, &granules).inspect_err(|_| self.source.release(address, bytes))?;
        Ok(address)
    }

    /// Makes a fresh range the home segment, and gives the old one and the views that it does
    /// without back.
    fn move_home(&mut self, address: u64, order: &[usize]) {
        let layout = self.layout(order);
        let granules: Vec<Granule> = order.iter().map(|&slot| self.home.granule(slot)).collect();
        let mut home = MainSegment::new(self.home.slots(), self.home.granule_bytes());
        home.set_address(address);
        home.fill(0, &granules, Tag::NOBODY);
        self.streams.all().for_each(|tag| home.know(tag));
        let old = std::mem::replace(&mut self.home, home);
        self.settle_in(&layout);
        self.renumber_views(order);

        let mut mapped: Vec<Bytes> = Vec::new();
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
    fn layout(&self, order: &[usize]) -> Vec<(Bytes, Kind)> {
        let granule_bytes = self.home.granule_bytes();
        let mut layout: Vec<(Bytes, Kind)> = Vec::new();
        for (at, &slot) in order.iter().enumerate() {
            let granule = self.home.range(&(slot..slot + 1));
            let first = self.home.tiling().at(granule.start);
            let tiles = std::iter::successors(Some(first), |&tile| self.home.tiling().after(tile));
            for tile in tiles.map(|tile| self.home.get(tile)).take_while(|tile| tile.start < granule.end) {
                let kind = match tile.kind {
                    Kind::Piece(index) if self.is_movable(index) => Kind::Live(index),
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

    /// Takes the tiles of a layout from the new home, and tells blocks and slabs where they are.
    fn settle_in(&mut self, layout: &[(Bytes, Kind)]) {
        let mut slabs = Vec::new();
        for (range, kind) in layout.iter().filter(|(_, kind)| !matches!(kind, Kind::Free(_))) {
            let free = self.home.tiling().at(range.start);
            let tile = self.home.take(free, range.clone(), *kind);
            match *kind {
                Kind::Live(index) => {
                    let place = std::mem::replace(&mut self.blocks.at_mut(index).place, Place::Whole(tile));
                    if let Place::Stitched(stitched) = place {
                        self.views.leave(stitched.view);
                    }
                }
                Kind::Piece(index) => {
                    if let Place::Stitched(stitched) = &mut self.blocks.at_mut(index).place {
                        stitched.pieces = vec![tile];
                    }
                }
                Kind::Slab(slab) => slabs.push((slab, range.start >> self.home.granule_shift(), tile)),
                Kind::Free(_) | Kind::Void => unreachable!("only what is in use is taken"),
            }
        }
        self.slabs.relocate(&slabs);
    }

    /// Drops the views that no block is in any more, and tells the others where their granules are.
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
