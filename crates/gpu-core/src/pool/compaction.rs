//! Compaction: at a step boundary, blocks that may move are copied so that the free bytes below the
//! granule, where stitching does not help, come together.
//!
//! Stages from cheap to expensive, each ending as soon as there is room: slabs of a class are
//! merged, the emptiest into the fullest; blocks are moved, small ones first, into holes where they
//! free more granules than they touch; all blocks slide towards low addresses. Slabs and blocks in
//! views stand in the way of the last; if nothing in the main segment is fixed, granules are lined
//! up anew first (`remap.rs`), and then the blocks slide until no byte is free between them.

#![forbid(unsafe_code)]

use std::collections::BTreeMap;

use super::live_blocks::{BlockLocation, PendingRequest};
use super::main_segment::MainSegment;
use super::order::Tag;
use super::tiling::{TileId, TileKind};
use super::{Mobility, Pool, PoolEvent};
use crate::source::Refusal;

/// Goal of compaction.
#[derive(Clone, Copy, Debug)]
pub(super) struct CompactionGoal {
    pending: PendingRequest,
    /// If live blocks touch no more granules than this, the rest suffices for the block by
    /// stitching; `None` if nothing suffices.
    touched_max: Option<usize>,
}

type CompactionStage = fn(&mut Pool, &CompactionGoal) -> Result<(), Refusal>;

const STAGES: [CompactionStage; 4] = [Pool::merge_slabs, Pool::evacuate, Pool::slide, Pool::reorder_granules];

impl Pool {
    /// Fallback. If a copy fails, blocks that were moved before it keep their new location.
    pub(super) fn compact(&mut self, pending: &PendingRequest) -> Result<Option<BlockLocation>, Refusal> {
        if !self.at_boundary {
            return Ok(None);
        }
        let attainable = self.attainable_granules();
        if self.stats.allocated_bytes.now + pending.bytes > attainable * self.main.granule_bytes() {
            return Ok(None);
        }
        // Copies run after the work of every stream, and so does whatever uses the freed memory
        // next.
        self.synchronize()?;
        let goal = self.goal(pending, attainable);
        let mut place = self.place_without_compaction(pending);
        for stage in STAGES {
            if place.is_none() {
                stage(self, &goal)?;
                place = self.place_without_compaction(pending);
            }
        }
        Ok(place)
    }

    fn goal(&self, pending: &PendingRequest, attainable: usize) -> CompactionGoal {
        let stitches = self.source.can_alias() || pending.class.is_some();
        let granules = pending.bytes.div_ceil(self.main.granule_bytes());
        CompactionGoal {
            pending: *pending,
            touched_max: if stitches { attainable.checked_sub(granules) } else { None },
        }
    }

    /// Granules that the pool holds or could create now.
    fn attainable_granules(&mut self) -> usize {
        let granule_bytes = self.main.granule_bytes();
        let creatable = self.source.free_bytes().map_or(usize::MAX, |free| free / granule_bytes);
        self.main.held() + creatable.min(self.capacity - self.main.held())
    }

    pub(super) fn has_room(&self, goal: &CompactionGoal) -> bool {
        let fits = || goal.pending.class.is_none() && self.main.fit(goal.pending.bytes, Tag::IDLE).is_some();
        goal.touched_max.is_some_and(|touched| self.main.touched() <= touched) || fits()
    }

    /// Retries the fallbacks before compaction; their failure is no failure of the compaction.
    fn place_without_compaction(&mut self, pending: &PendingRequest) -> Option<BlockLocation> {
        let found = self.fit(pending);
        let found = found.or_else(|| self.stitch(pending).ok().flatten());
        let found = found.or_else(|| self.grow(pending).ok().flatten());
        found.or_else(|| self.fit_in_hole(pending))
    }

    /// Moves the blocks of the emptiest slabs of each class into the fullest, so that one slab of a
    /// class and stream at most is not full.
    fn merge_slabs(&mut self, goal: &CompactionGoal) -> Result<(), Refusal> {
        let mut members: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for (index, live) in self.blocks.iter() {
            if let BlockLocation::Slot { slab, .. } = live.place {
                members.entry(slab).or_default().push(index);
            }
        }
        let mut kinds: BTreeMap<(usize, Tag), Vec<u32>> = BTreeMap::new();
        for (index, slab) in self.slabs.iter().filter(|(_, slab)| !slab.is_full()) {
            kinds.entry((slab.class, slab.tag)).or_default().push(index);
        }
        for (_, mut slabs) in kinds {
            // A slab with a fixed block cannot be emptied; it can only receive blocks.
            let stays = |slab: &u32| members[slab].iter().any(|&block| !self.is_movable(block));
            slabs.sort_by_cached_key(|slab| (stays(slab), self.slabs.get(*slab).live));
            let movable = slabs.iter().take_while(|slab| !stays(slab)).count();
            self.merge(&slabs, movable, &members, goal)?;
        }
        Ok(())
    }

    /// Moves blocks from slabs at the front of the list into slabs at its back, until both ends
    /// meet.
    fn merge(
        &mut self,
        slabs: &[u32],
        movable: usize,
        members: &BTreeMap<u32, Vec<u32>>,
        goal: &CompactionGoal,
    ) -> Result<(), Refusal> {
        let mut fullest = slabs.len();
        for (emptiest, slab) in slabs[..movable].iter().enumerate() {
            if self.has_room(goal) {
                return Ok(());
            }
            for &block in &members[slab] {
                while fullest > emptiest && self.slabs.get(slabs[fullest - 1]).is_full() {
                    fullest -= 1;
                }
                if fullest <= emptiest + 1 {
                    return Ok(());
                }
                let to = slabs[fullest - 1];
                let slot = self.slabs.take_free(to);
                self.relocate(block, BlockLocation::Slot { slab: to, slot })?;
            }
        }
        Ok(())
    }

    /// Moves blocks into holes where they touch fewer granules more than they leave untouched, the
    /// cheapest to copy first.
    fn evacuate(&mut self, goal: &CompactionGoal) -> Result<(), Refusal> {
        let movable = self.blocks.iter().filter(|&(index, _)| self.is_movable(index));
        let whole = movable.filter_map(|(index, live)| match live.place {
            BlockLocation::Whole(tile) => Some((live.bytes, self.main.get(tile).start, index)),
            _ => None,
        });
        let mut blocks: Vec<_> = whole.collect();
        blocks.sort_unstable();
        for (bytes, _, index) in blocks {
            if self.has_room(goal) {
                break;
            }
            // Larger blocks will not fit either.
            let Some(hole) = self.main.fit(bytes, Tag::IDLE) else { break };
            let &BlockLocation::Whole(from) = &self.blocks.at(index).place else {
                unreachable!("only whole blocks are listed")
            };
            let before = self.main.touched();
            let to = self.main.take(hole, self.main.cut(hole, bytes), TileKind::Live(index));
            if self.main.touched() - before < self.main.own_granules(from) {
                self.relocate(index, BlockLocation::Whole(to))?;
            } else {
                self.main.give_back(to, Tag::IDLE);
            }
        }
        Ok(())
    }

    /// Moves each block that may move down over the free tile before it.
    pub(super) fn slide(&mut self, goal: &CompactionGoal) -> Result<(), Refusal> {
        let mut next = self.main.tiling().first();
        while let Some(tile) = next {
            if self.has_room(goal) {
                break;
            }
            next = self.main.tiling().after(tile);
            let (TileKind::Free(_), Some(above)) = (self.main.get(tile).kind, next) else { continue };
            if let TileKind::Live(index) = self.main.get(above).kind
                && self.is_movable(index)
            {
                next = self.slide_down(index, tile, above)?;
            }
        }
        Ok(())
    }

    /// Moves a block down over a free tile; returns the free tile, which then lies above it.
    fn slide_down(&mut self, index: u32, free: TileId, block: TileId) -> Result<Option<TileId>, Refusal> {
        let (start, bytes) = (self.main.get(free).start, self.main.get(block).bytes);
        let (from, to) = (self.main.address(self.main.get(block).start), self.main.address(start));
        self.source.copy(from, to, bytes)?;
        // The two ranges may overlap, so that the new place cannot be taken before the old one is
        // given back.
        self.main.give_back(block, Tag::IDLE);
        let joined = self.main.tiling().at(start);
        let tile = self.main.take(joined, start..start + bytes, TileKind::Live(index));
        self.blocks.at_mut(index).place = BlockLocation::Whole(tile);
        self.moved(index);
        self.stats.copied_bytes_total += bytes as u64;
        Ok(self.main.tiling().after(tile))
    }

    /// Copies a live block to a location that was taken for it. If the copy fails, the location is
    /// given back.
    fn relocate(&mut self, index: u32, to: BlockLocation) -> Result<(), Refusal> {
        let bytes = self.blocks.at(index).bytes;
        let (from, address) = (self.blocks.at(index).address, self.address_of(&to));
        if let Err(refusal) = self.source.copy(from, address, bytes) {
            self.evict(&to, Tag::IDLE);
            return Err(refusal);
        }
        let from = std::mem::replace(&mut self.blocks.at_mut(index).place, to);
        self.evict(&from, Tag::IDLE);
        self.moved(index);
        self.stats.copied_bytes_total += bytes as u64;
        Ok(())
    }

    /// Updates the address of a block that may have moved.
    pub(super) fn moved(&mut self, index: u32) {
        let to = self.address_of(&self.blocks.at(index).place);
        let live = self.blocks.at_mut(index);
        let (bytes, tag) = (live.bytes, live.tag.index());
        let from = std::mem::replace(&mut live.address, to);
        if from == to {
            return;
        }
        self.placements.remove_block(from, bytes, tag);
        self.placements.add_block(to, bytes, tag);
        self.stats.inactive_split_bytes.set(self.inactive_split_bytes());
        self.watch.tell(|| PoolEvent::Moved { id: self.blocks.id(index), from, to, bytes });
    }

    pub(super) fn is_movable(&self, index: u32) -> bool {
        self.blocks.at(index).mobility == Mobility::Relocatable
    }
}

impl MainSegment {
    /// Granules that no other live tile touches.
    fn own_granules(&self, tile: TileId) -> usize {
        let slots = self.touching(&(self.get(tile).start..self.get(tile).end()));
        let (first, last) = (slots.start, slots.end - 1);
        let shared_last = last != first && self.edges(last) > 1;
        slots.len() - usize::from(self.edges(first) > 1) - usize::from(shared_last)
    }
}
