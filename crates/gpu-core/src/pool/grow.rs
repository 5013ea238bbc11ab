//! Growth: granules are created where the fewest are needed, and given back when the user empties
//! the cache.

#![forbid(unsafe_code)]

use std::ops::Range;

use super::granule_set::GranuleSet;
use super::main_segment::MainSegment;
use super::order::Tag;
use super::pending_request::{PendingRequest, Place};
use super::tiling::{Kind, TileId};
use super::{Bytes, Event, Pool, UNIT_BYTES};
use crate::source::{Granule, Refusal};

/// A range of the home segment without live bytes, and the slots in it that lack a granule.
#[derive(Debug, PartialEq, Eq)]
struct Window {
    range: Bytes,
    voids: Vec<Range<usize>>,
}

impl Window {
    fn granules(&self) -> usize {
        self.voids.iter().map(Range::len).sum()
    }
}

impl Pool {
    /// The rung: creates the granules that are missing. If filling voids at home takes no more of
    /// them than stitching would, the block gets a place at home; otherwise just what the stitch
    /// lacks is created.
    pub(super) fn grow(&mut self, want: &PendingRequest) -> Result<Option<Place>, Refusal> {
        if want.class.is_some() {
            return self.grow_by(1, want);
        }
        let plan = if self.source.can_alias() { self.home.plan(want.bytes, want.tag) } else { Err(usize::MAX) };
        // A plan without a lack means that the source refused to map it: then only memory at home
        // is left.
        let missing = plan.err().unwrap_or(usize::MAX);
        match self.home.window(want.bytes, want.tag) {
            Some(window) if window.granules() <= missing => {
                self.create(&window.voids, want.tag)?;
                Ok(self.fit(want))
            }
            _ => self.grow_by(missing, want),
        }
    }

    fn grow_by(&mut self, granules: usize, want: &PendingRequest) -> Result<Option<Place>, Refusal> {
        let Some(voids) = self.home.lowest_voids(granules) else { return Ok(None) };
        self.create(&voids, want.tag)?;
        match self.fit(want) {
            None => self.stitch(want),
            place => Ok(place),
        }
    }

    /// The rung for a source that cannot stitch, on a device whose memory others use too: what the
    /// pool caches in one place can only help in another by way of the device.
    pub(super) fn release_cached(&mut self, want: &PendingRequest) -> Result<Option<Place>, Refusal> {
        if self.source.can_alias() || self.empty_cache() == 0 {
            return Ok(None);
        }
        self.grow(want)
    }

    /// Creates granules in void slots: all of them, or none and nothing has changed.
    fn create(&mut self, voids: &[Range<usize>], tag: Tag) -> Result<(), Refusal> {
        self.reserve_home()?;
        let granules = self.create_granules(voids.iter().map(Range::len).sum())?;
        if let Err(refusal) = self.map_home(voids, &granules) {
            granules.into_iter().for_each(|granule| self.source.destroy(granule));
            return Err(refusal);
        }
        let mut rest = &granules[..];
        for slots in voids {
            let (filling, after) = rest.split_at(slots.len());
            self.home.fill(slots.start, filling, tag);
            rest = after;
            let range = self.home.range(slots);
            self.watch.tell(|| Event::Grown { address: self.home.address(range.start), bytes: range.len() });
        }
        self.stats.reserved_bytes.set(self.home.held() << self.home.granule_shift());
        Ok(())
    }

    fn reserve_home(&mut self) -> Result<(), Refusal> {
        if !self.home.is_reserved() {
            let address = self.source.reserve(self.home.slots() << self.home.granule_shift())?;
            self.home.set_address(address);
        }
        Ok(())
    }

    fn create_granules(&mut self, count: usize) -> Result<Vec<Granule>, Refusal> {
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

    fn map_home(&mut self, voids: &[Range<usize>], granules: &[Granule]) -> Result<(), Refusal> {
        let mut rest = granules;
        for (done, slots) in voids.iter().enumerate() {
            let (mapping, after) = rest.split_at(slots.len());
            if let Err(refusal) = self.source.map(self.home.address(self.home.range(slots).start), mapping) {
                voids[..done].iter().for_each(|slots| self.unmap_home(slots));
                return Err(refusal);
            }
            rest = after;
        }
        Ok(())
    }

    fn unmap_home(&mut self, slots: &Range<usize>) {
        let range = self.home.range(slots);
        self.source.unmap(self.home.address(range.start), range.len());
    }

    /// Gives every granule without live bytes back to the source; returns their bytes.
    pub fn empty_cache(&mut self) -> usize {
        // So that free neighbours of different streams join. Should it fail, a granule that they
        // share is kept.
        let _ = self.settle();
        let runs = self.home.whole_free();
        let mut gone = GranuleSet::default();
        runs.iter().cloned().flatten().for_each(|slot| gone.insert(slot));
        self.unmap_from_views(&gone);
        for slots in &runs {
            self.unmap_home(slots);
            self.home.evict(slots.clone());
            slots.clone().for_each(|slot| self.source.destroy(self.home.granule(slot)));
            let range = self.home.range(slots);
            self.watch.tell(|| Event::Released { address: self.home.address(range.start), bytes: range.len() });
        }
        self.stats.reserved_bytes.set(self.home.held() << self.home.granule_shift());
        runs.iter().map(Range::len).sum::<usize>() << self.home.granule_shift()
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
            let shift = self.home.granule_shift();
            for index in self.views.lose(view, gone) {
                self.source.unmap(self.views.get(view).address + (index << shift) as u64, 1 << shift);
            }
        }
    }
}

impl MainSegment {
    pub(super) fn range(&self, slots: &Range<usize>) -> Bytes {
        slots.start << self.granule_shift()..slots.end << self.granule_shift()
    }

    /// Runs of granules without live bytes, in order of address.
    fn whole_free(&self) -> Vec<Range<usize>> {
        let free = self.tiling().iter().map(|tile| self.get(tile)).filter(|tile| matches!(tile.kind, Kind::Free(_)));
        free.map(|tile| self.whole(tile.start..tile.end())).filter(|run| !run.is_empty()).collect()
    }

    /// The lowest void slots, `granules` of them; `None` if there are fewer.
    fn lowest_voids(&self, mut granules: usize) -> Option<Vec<Range<usize>>> {
        if granules > self.slots() - self.held() {
            return None;
        }
        let mut voids: Vec<Range<usize>> = self.void_tiles().map(|(_, slots)| slots).collect();
        voids.sort_unstable_by_key(|slots| slots.start);
        for slots in &mut voids {
            slots.end = slots.end.min(slots.start + granules);
            granules -= slots.len();
        }
        voids.retain(|slots| !slots.is_empty());
        Some(voids)
    }

    fn void_tiles(&self) -> impl Iterator<Item = (TileId, Range<usize>)> {
        let voids = self.voids().iter_from(self.tiling(), UNIT_BYTES);
        voids.map(|tile| (tile, self.whole(self.get(tile).start..self.get(tile).end())))
    }

    /// The range of `bytes` without live bytes that lacks the fewest granules, of equal ones the
    /// lowest.
    ///
    /// The best such range begins with a free tile or a void, or ends with one, and has a void in
    /// it: else `fit` would have found it.
    fn window(&self, bytes: usize, tag: Tag) -> Option<Window> {
        let windows = self.void_tiles().flat_map(|(void, _)| {
            let (before, after) = (self.tiling().before(void), self.tiling().after(void));
            let upwards = before.into_iter().chain([void]).filter_map(|tile| self.upwards(tile, bytes, tag));
            let downwards = after.into_iter().chain([void]).filter_map(|tile| self.downwards(tile, bytes, tag));
            upwards.chain(downwards).collect::<Vec<_>>()
        });
        let windows = windows.map(|range| Window { voids: self.voids_in(&range), range });
        windows.min_by_key(|window| (window.granules(), window.range.start))
    }

    fn may_use(&self, tile: TileId, tag: Tag) -> bool {
        match self.get(tile).kind {
            Kind::Void => true,
            Kind::Free(other) => other.serves(tag),
            _ => false,
        }
    }

    fn upwards(&self, first: TileId, bytes: usize, tag: Tag) -> Option<Bytes> {
        let start = self.get(first).start;
        let mut tiles = std::iter::successors(Some(first), |&tile| self.tiling().after(tile));
        let enough = |&tile: &TileId| self.get(tile).end() >= start + bytes;
        tiles.by_ref().take_while(|&tile| self.may_use(tile, tag)).find(enough).map(|_| start..start + bytes)
    }

    fn downwards(&self, last: TileId, bytes: usize, tag: Tag) -> Option<Bytes> {
        let end = self.get(last).end();
        let start = end.checked_sub(bytes)?;
        let mut tiles = std::iter::successors(Some(last), |&tile| self.tiling().before(tile));
        let enough = |&tile: &TileId| self.get(tile).start <= start;
        tiles.by_ref().take_while(|&tile| self.may_use(tile, tag)).find(enough).map(|_| start..end)
    }

    fn voids_in(&self, range: &Bytes) -> Vec<Range<usize>> {
        let first = self.tiling().at(range.start);
        let tiles = std::iter::successors(Some(first), |&tile| self.tiling().after(tile));
        let tiles = tiles.map(|tile| self.get(tile)).take_while(|tile| tile.start < range.end);
        tiles
            .filter(|tile| tile.kind == Kind::Void)
            .map(|tile| self.touching(&(tile.start.max(range.start)..tile.end().min(range.end))))
            .collect()
    }
}
