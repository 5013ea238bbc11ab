//! Growth: granules are created where the fewest are missing, and given back when the user empties
//! the cache.

use std::ops::Range;

use super::granule_set::GranuleSet;
use super::live_blocks::{BlockLocation, PendingRequest};
use super::main_segment::MainSegment;
use super::stream_tag::Tag;
use super::tiling::{TileId, TileKind};
use super::{ByteRange, Pool, PoolEvent, UNIT_BYTES};
use crate::source::{Granule, Refusal};

/// A range of the main segment without live bytes, and the slots in it that lack a granule.
#[derive(Debug, PartialEq, Eq)]
struct GrowthWindow {
    range: ByteRange,
    unmapped: Vec<Range<usize>>,
}

impl GrowthWindow {
    fn granules(&self) -> usize {
        self.unmapped.iter().map(Range::len).sum()
    }
}

impl Pool {
    /// Fallback: creates the missing granules. If filling unmapped slots of the main segment takes
    /// no more granules than stitching, the block is placed there; otherwise only the granules that
    /// the stitch misses are created.
    pub(super) fn grow(&mut self, pending: &PendingRequest) -> Result<Option<BlockLocation>, Refusal> {
        if pending.class.is_some() {
            return self.grow_by(1, pending);
        }
        let plan = if self.can_stitch() { self.main.plan(pending.bytes, pending.tag) } else { Err(usize::MAX) };
        // A plan that misses no granule was refused by the source: only the main segment is left.
        let missing = plan.err().unwrap_or(usize::MAX);
        match self.main.window(pending.bytes, pending.tag) {
            Some(window) if window.granules() <= missing => {
                self.create(&window.unmapped, pending.tag)?;
                Ok(self.fit(pending))
            }
            _ => self.grow_by(missing, pending),
        }
    }

    fn grow_by(&mut self, granules: usize, pending: &PendingRequest) -> Result<Option<BlockLocation>, Refusal> {
        let Some(unmapped) = self.main.lowest_unmapped(granules) else { return Ok(None) };
        self.create(&unmapped, pending.tag)?;
        match self.fit(pending) {
            None => self.stitch(pending),
            place => Ok(place),
        }
    }

    /// Fallback for a source that cannot stitch, on a device that other processes use too: cached
    /// granules are returned to the device and created again where they are needed.
    pub(super) fn release_cached(&mut self, pending: &PendingRequest) -> Result<Option<BlockLocation>, Refusal> {
        if self.can_stitch() || self.empty_cache() == 0 {
            return Ok(None);
        }
        self.grow(pending)
    }

    /// Creates granules in unmapped slots: all of them, or none.
    fn create(&mut self, unmapped: &[Range<usize>], tag: Tag) -> Result<(), Refusal> {
        self.reserve_home()?;
        let granules = self.create_granules(unmapped.iter().map(Range::len).sum())?;
        if let Err(refusal) = self.map_home(unmapped, &granules) {
            granules.into_iter().for_each(|granule| self.source.destroy(granule));
            return Err(refusal);
        }
        let mut rest = &granules[..];
        for slots in unmapped {
            let (filling, after) = rest.split_at(slots.len());
            self.main.fill(slots.start, filling, tag);
            rest = after;
            let range = self.main.range(slots);
            self.watch.tell(|| PoolEvent::Grown { address: self.main.address(range.start), bytes: range.len() });
        }
        self.stats.reserved_bytes.set(self.main.mapped_granules() << self.main.granule_shift());
        Ok(())
    }

    fn reserve_home(&mut self) -> Result<(), Refusal> {
        if self.main.address.is_none() {
            let address = self.source.reserve(self.main.slots() << self.main.granule_shift())?;
            self.main.address = Some(address);
        }
        Ok(())
    }

    fn create_granules(&mut self, count: usize) -> Result<Vec<Granule>, Refusal> {
        if count > self.capacity - self.main.mapped_granules() {
            return Err(Refusal::OutOfMemory);
        }
        let mut granules = Vec::new();
        for _ in 0..count {
            match self.source.create() {
                Ok(granule) => granules.push(granule),
                Err(refusal) => {
                    granules.into_iter().for_each(|granule| self.source.destroy(granule));
                    return Err(refusal);
                }
            }
        }
        Ok(granules)
    }

    fn map_home(&mut self, unmapped: &[Range<usize>], granules: &[Granule]) -> Result<(), Refusal> {
        let mut rest = granules;
        for (done, slots) in unmapped.iter().enumerate() {
            let (mapping, after) = rest.split_at(slots.len());
            if let Err(refusal) = self.source.map(self.main.address(self.main.range(slots).start), mapping) {
                unmapped[..done].iter().for_each(|slots| self.unmap_home(slots));
                return Err(refusal);
            }
            rest = after;
        }
        Ok(())
    }

    fn unmap_home(&mut self, slots: &Range<usize>) {
        let range = self.main.range(slots);
        self.source.unmap(self.main.address(range.start), range.len());
    }

    /// Gives every granule without live bytes back to the source; returns their bytes.
    pub fn empty_cache(&mut self) -> usize {
        // Lets free neighbours of different streams join. If it fails, a granule that they share is
        // kept.
        let _ = self.synchronize();
        let runs = self.main.whole_free();
        let mut gone = GranuleSet::default();
        runs.iter().cloned().flatten().for_each(|slot| gone.insert(slot));
        self.unmap_from_views(&gone);
        for slots in &runs {
            self.unmap_home(slots);
            self.main.evict(slots.clone());
            slots.clone().for_each(|slot| self.source.destroy(self.main.granule(slot)));
            let range = self.main.range(slots);
            self.watch.tell(|| PoolEvent::Released { address: self.main.address(range.start), bytes: range.len() });
        }
        self.stats.reserved_bytes.set(self.main.mapped_granules() << self.main.granule_shift());
        runs.iter().map(Range::len).sum::<usize>() << self.main.granule_shift()
    }

    /// Takes granules out of all views: dormant views that have one go as a whole.
    fn unmap_from_views(&mut self, gone: &GranuleSet) {
        let concerned =
            |slots: &[u32]| slots.iter().any(|&slot| slot != super::view::GONE && gone.contains(slot as usize));
        let views: Vec<u32> =
            self.views.iter().filter(|(_, view)| concerned(&view.slots)).map(|(index, _)| index).collect();
        for view in views {
            if self.views.is_dormant(view) {
                self.drop_view(view);
                continue;
            }
            let shift = self.main.granule_shift();
            for index in self.views.forget_granules(view, gone) {
                self.source.unmap(self.views.get(view).address + (index << shift) as u64, 1 << shift);
            }
        }
    }
}

impl MainSegment {
    pub(super) fn range(&self, slots: &Range<usize>) -> ByteRange {
        slots.start << self.granule_shift()..slots.end << self.granule_shift()
    }

    /// Runs of granules without live bytes, in order of address.
    fn whole_free(&self) -> Vec<Range<usize>> {
        let free =
            self.tiling().iter().map(|tile| self.get(tile)).filter(|tile| matches!(tile.kind, TileKind::Free(_)));
        free.map(|tile| self.granules_inside(tile.start..tile.end())).filter(|run| !run.is_empty()).collect()
    }

    /// The lowest unmapped slots, `granules` of them; `None` if there are fewer.
    fn lowest_unmapped(&self, mut granules: usize) -> Option<Vec<Range<usize>>> {
        if granules > self.slots() - self.mapped_granules() {
            return None;
        }
        let mut unmapped: Vec<Range<usize>> = self.unmapped_tiles().map(|(_, slots)| slots).collect();
        unmapped.sort_unstable_by_key(|slots| slots.start);
        for slots in &mut unmapped {
            slots.end = slots.end.min(slots.start + granules);
            granules -= slots.len();
        }
        unmapped.retain(|slots| !slots.is_empty());
        Some(unmapped)
    }

    fn unmapped_tiles(&self) -> impl Iterator<Item = (TileId, Range<usize>)> {
        let unmapped = self.unmapped().iter_from(self.tiling(), UNIT_BYTES);
        unmapped.map(|tile| (tile, self.granules_inside(self.get(tile).start..self.get(tile).end())))
    }

    /// The range of `bytes` without live bytes that lacks the fewest granules, of equal ones the
    /// lowest.
    ///
    /// The best such range begins or ends with a free or unmapped tile and contains an unmapped
    /// one: otherwise `fit` would have found it.
    fn window(&self, bytes: usize, tag: Tag) -> Option<GrowthWindow> {
        let windows = self.unmapped_tiles().flat_map(|(unmapped_tile, _)| {
            let (before, after) = (self.tiling().before(unmapped_tile), self.tiling().after(unmapped_tile));
            let upwards = before.into_iter().chain([unmapped_tile]).filter_map(|tile| self.upwards(tile, bytes, tag));
            let downwards =
                after.into_iter().chain([unmapped_tile]).filter_map(|tile| self.downwards(tile, bytes, tag));
            upwards.chain(downwards).collect::<Vec<_>>()
        });
        let windows = windows.map(|range| GrowthWindow { unmapped: self.unmapped_in(&range), range });
        windows.min_by_key(|window| (window.granules(), window.range.start))
    }

    fn may_use(&self, tile: TileId, tag: Tag) -> bool {
        match self.get(tile).kind {
            TileKind::Unmapped => true,
            TileKind::Free(other) => other.serves(tag),
            _ => false,
        }
    }

    fn upwards(&self, first: TileId, bytes: usize, tag: Tag) -> Option<ByteRange> {
        let start = self.get(first).start;
        let mut tiles = std::iter::successors(Some(first), |&tile| self.tiling().after(tile));
        let enough = |&tile: &TileId| self.get(tile).end() >= start + bytes;
        tiles.by_ref().take_while(|&tile| self.may_use(tile, tag)).find(enough).map(|_| start..start + bytes)
    }

    fn downwards(&self, last: TileId, bytes: usize, tag: Tag) -> Option<ByteRange> {
        let end = self.get(last).end();
        let start = end.checked_sub(bytes)?;
        let mut tiles = std::iter::successors(Some(last), |&tile| self.tiling().before(tile));
        let enough = |&tile: &TileId| self.get(tile).start <= start;
        tiles.by_ref().take_while(|&tile| self.may_use(tile, tag)).find(enough).map(|_| start..end)
    }

    fn unmapped_in(&self, range: &ByteRange) -> Vec<Range<usize>> {
        let first = self.tiling().tile_at(range.start);
        let tiles = std::iter::successors(Some(first), |&tile| self.tiling().after(tile));
        let tiles = tiles.map(|tile| self.get(tile)).take_while(|tile| tile.start < range.end);
        tiles
            .filter(|tile| tile.kind == TileKind::Unmapped)
            .map(|tile| self.granules_overlapping(&(tile.start.max(range.start)..tile.end().min(range.end))))
            .collect()
    }
}
