//! The main segment: one range of addresses, as large as the capacity or larger, at which every
//! granule is mapped for as long as it exists. Its tiles alone say who uses which byte; a view only
//! shows pieces of it side by side.

use super::bins::Bins;
use super::stream_tag::Tag;
use super::tiling::{Tile, TileId, TileKind, Tiling};
use super::{ByteRange, UNIT_BYTES};
use crate::source::Granule;

/// Addresses of the pool's granules, and the tiles that cover them.
#[derive(Debug)]
pub(super) struct MainSegment {
    /// First address, once the range is reserved.
    pub(super) address: Option<u64>,
    tiling: Tiling,
    /// Free tiles by the stream that they must be ordered after, as [`Tag`].
    bins: Vec<Bins>,
    unmapped: Bins,
    granule_shift: u32,
    /// Granules by slot; the entry of an unmapped slot is meaningless.
    granules: Vec<u64>,
    /// Granules that exist.
    mapped_granules: usize,
    /// By slot: live tiles that begin or end in the granule. A tile that covers a granule and goes
    /// beyond it on both sides is not counted.
    boundary_tiles: Vec<u32>,
    /// Granules with a live byte.
    live_granules: usize,
}

impl MainSegment {
    pub(super) fn new(slots: usize, granule_bytes: usize) -> Self {
        assert!(granule_bytes.is_power_of_two() && granule_bytes >= UNIT_BYTES, "a granule is a power of two of units");
        let granule_shift = granule_bytes.ilog2();
        let mut segment = MainSegment {
            address: None,
            tiling: Tiling::new(slots, granule_shift, TileKind::Unmapped),
            bins: vec![Bins::new()],
            unmapped: Bins::new(),
            granule_shift,
            granules: vec![0; slots],
            mapped_granules: 0,
            boundary_tiles: vec![0; slots],
            live_granules: 0,
        };
        if let Some(unmapped) = segment.tiling.first() {
            segment.unmapped.insert(&mut segment.tiling, unmapped);
        }
        segment
    }

    /// The address of an offset.
    pub(super) fn address(&self, offset: usize) -> u64 {
        self.address.expect("the range is reserved before anything is in it") + offset as u64
    }

    /// The offset of an address, if it lies in this segment.
    pub(super) fn offset(&self, address: u64) -> Option<usize> {
        let offset = usize::try_from(address.checked_sub(self.address?)?).ok()?;
        (offset < self.slots() << self.granule_shift).then_some(offset)
    }

    pub(super) fn tiling(&self) -> &Tiling {
        &self.tiling
    }

    pub(super) fn get(&self, tile: TileId) -> &Tile {
        self.tiling.get(tile)
    }

    pub(super) fn slots(&self) -> usize {
        self.granules.len()
    }

    pub(super) fn granule_bytes(&self) -> usize {
        1 << self.granule_shift
    }

    pub(super) fn granule_shift(&self) -> u32 {
        self.granule_shift
    }

    pub(super) fn granule(&self, slot: usize) -> Granule {
        Granule(self.granules[slot])
    }

    /// Granules that exist.
    pub(super) fn mapped_granules(&self) -> usize {
        self.mapped_granules
    }

    /// Granules with a live byte.
    pub(super) fn live_granules(&self) -> usize {
        self.live_granules
    }

    /// Live tiles that begin or end in the granule.
    #[cfg(any(test, feature = "conformance"))]
    pub(super) fn boundary_tiles(&self, slot: usize) -> u32 {
        self.boundary_tiles[slot]
    }

    pub(super) fn bins(&self) -> &[Bins] {
        &self.bins
    }

    pub(super) fn unmapped(&self) -> &Bins {
        &self.unmapped
    }

    /// Bytes of the largest free tile.
    pub(super) fn largest_free_bytes(&self) -> usize {
        self.bins.iter().map(|bins| bins.largest_bytes(&self.tiling)).max().unwrap_or(0)
    }

    /// Adds the bins of `tag` if there are none.
    pub(super) fn ensure_stream(&mut self, tag: Tag) {
        while self.bins.len() <= tag.index() {
            self.bins.push(Bins::new());
        }
    }

    /// Slots of the granules that lie wholly in a range.
    pub(super) fn granules_inside(&self, range: ByteRange) -> std::ops::Range<usize> {
        let first = range.start.next_multiple_of(self.granule_bytes()) >> self.granule_shift;
        first..(range.end >> self.granule_shift).max(first)
    }

    /// Slots of the granules that a range has bytes in.
    pub(super) fn granules_overlapping(&self, range: &ByteRange) -> std::ops::Range<usize> {
        range.start >> self.granule_shift..((range.end - 1) >> self.granule_shift) + 1
    }

    /// Granules without live bytes that would get some if this free range were allocated.
    pub(super) fn cost(&self, range: &ByteRange) -> usize {
        let slots = self.granules_overlapping(range);
        let (first, last) = (slots.start, slots.end - 1);
        let shared_last = last != first && self.boundary_tiles[last] > 0;
        slots.len() - usize::from(self.boundary_tiles[first] > 0) - usize::from(shared_last)
    }

    /// The free tile that holds a range; `None` if a byte is live, unmapped, or of a stream that
    /// `usable` refuses.
    pub(super) fn free_at(&self, range: &ByteRange, usable: impl Fn(Tag) -> bool) -> Option<TileId> {
        let tile = self.tiling.tile_at(range.start);
        let found = self.get(tile);
        let free = matches!(found.kind, TileKind::Free(tag) if usable(tag));
        (free && range.end <= found.end()).then_some(tile)
    }

    /// A free tile, idle or of `tag`, that `bytes` fit in: nearly the smallest.
    pub(super) fn fit(&self, bytes: usize, tag: Tag) -> Option<TileId> {
        let own = self.bins[tag.index()].find(&self.tiling, bytes);
        let nobodys = &self.bins[Tag::IDLE.index()];
        if tag == Tag::IDLE || nobodys.is_empty() {
            return own;
        }
        let found = own.into_iter().chain(nobodys.find(&self.tiling, bytes));
        found.min_by_key(|&tile| (self.get(tile).bytes, self.get(tile).start))
    }

    /// A free tile, idle or of `tag`, with a whole granule in it, and the slot of that granule.
    pub(super) fn fit_granule(&self, tag: Tag) -> Option<(TileId, usize)> {
        let bins = [tag, Tag::IDLE].into_iter().map(|tag| &self.bins[tag.index()]);
        bins.flat_map(|bins| bins.iter_from(&self.tiling, self.granule_bytes())).find_map(|tile| {
            let found = self.get(tile);
            let whole = self.granules_inside(found.start..found.end());
            (!whole.is_empty()).then_some((tile, whole.start))
        })
    }

    /// Place for `bytes` in a free tile: at the end that breaks into fewer whole granules, at the
    /// lower one if both are as good. What a neighbour has begun to use is so used up before a
    /// granule is begun that could still go wherever it is needed.
    pub(super) fn cut(&self, tile: TileId, bytes: usize) -> ByteRange {
        let found = self.get(tile);
        let low = found.start..found.start + bytes;
        if found.bytes == bytes {
            return low;
        }
        let high = found.end() - bytes..found.end();
        if self.cost(&high) < self.cost(&low) { high } else { low }
    }

    /// Allocates a range of a free tile as `kind`; the rest of the tile stays free.
    pub(super) fn take(&mut self, tile: TileId, range: ByteRange, kind: TileKind) -> TileId {
        let &Tile { start, kind: TileKind::Free(tag), .. } = self.get(tile) else {
            panic!("only free tiles are given")
        };
        let end = self.get(tile).end();
        debug_assert!(start <= range.start && range.end <= end);
        self.bins[tag.index()].remove(&mut self.tiling, tile);
        let mut taken = tile;
        if start < range.start {
            taken = self.tiling.split(tile, range.start);
            self.bins[tag.index()].insert(&mut self.tiling, tile);
        }
        if range.end < end {
            let rest = self.tiling.split(taken, range.end);
            self.bins[tag.index()].insert(&mut self.tiling, rest);
        }
        self.tiling.get_mut(taken).kind = kind;
        self.touch(&range);
        taken
    }

    /// Frees a live tile. Its next user is ordered after the stream of `tag`.
    pub(super) fn give_back(&mut self, tile: TileId, tag: Tag) {
        let found = self.get(tile);
        let range = found.start..found.end();
        self.untouch(&range);
        self.become_free(tile, tag);
    }

    /// Frees the bytes of a live tile from offset `end` on, of which there may be none.
    pub(super) fn shorten(&mut self, tile: TileId, end: usize, tag: Tag) {
        let found = self.get(tile);
        let range = found.start..found.end();
        if end == range.end {
            return;
        }
        self.untouch(&range);
        let rest = self.tiling.split(tile, end);
        self.touch(&(range.start..end));
        self.become_free(rest, tag);
    }

    /// Changes the tag of all free tiles of `old`.
    pub(super) fn retag(&mut self, old: Tag, new_tag: Tag) {
        while let Some(tile) = self.bins[old.index()].first() {
            self.bins[old.index()].remove(&mut self.tiling, tile);
            self.become_free(tile, new_tag);
        }
    }

    /// Maps granules into slots of an unmapped tile.
    pub(super) fn fill(&mut self, slot: usize, granules: &[Granule], tag: Tag) {
        let range = slot << self.granule_shift..(slot + granules.len()) << self.granule_shift;
        let unmapped = self.tiling.tile_at(range.start);
        debug_assert_eq!(self.get(unmapped).kind, TileKind::Unmapped);
        self.unmapped.remove(&mut self.tiling, unmapped);
        let tile =
            self.isolate(unmapped, &range, |segment, unmapped| segment.unmapped.insert(&mut segment.tiling, unmapped));
        for (slot, granule) in (slot..).zip(granules) {
            self.granules[slot] = granule.0;
        }
        self.mapped_granules += granules.len();
        self.become_free(tile, tag);
    }

    /// Removes the granules from slots that are free; the caller destroys or moves them.
    pub(super) fn evict(&mut self, slots: std::ops::Range<usize>) {
        let range = slots.start << self.granule_shift..slots.end << self.granule_shift;
        let tile = self.tiling.tile_at(range.start);
        let TileKind::Free(tag) = self.get(tile).kind else { panic!("only free granules are given back") };
        self.bins[tag.index()].remove(&mut self.tiling, tile);
        let mut tile =
            self.isolate(tile, &range, |segment, rest| segment.bins[tag.index()].insert(&mut segment.tiling, rest));
        self.tiling.get_mut(tile).kind = TileKind::Unmapped;
        self.mapped_granules -= slots.len();
        if let Some(after) = self.tiling.after(tile).filter(|&after| self.get(after).kind == TileKind::Unmapped) {
            self.unmapped.remove(&mut self.tiling, after);
            self.tiling.join(tile, after);
        }
        if let Some(before) = self.tiling.before(tile).filter(|&before| self.get(before).kind == TileKind::Unmapped) {
            self.unmapped.remove(&mut self.tiling, before);
            self.tiling.join(before, tile);
            tile = before;
        }
        self.unmapped.insert(&mut self.tiling, tile);
    }

    /// Cuts a range out of a tile that is in no bin; `keep` gets the remainders on either side.
    fn isolate(&mut self, tile: TileId, range: &ByteRange, keep: impl Fn(&mut Self, TileId)) -> TileId {
        let mut cut = tile;
        if self.get(tile).start < range.start {
            cut = self.tiling.split(tile, range.start);
            keep(self, tile);
        }
        if range.end < self.get(cut).end() {
            let rest = self.tiling.split(cut, range.end);
            keep(self, rest);
        }
        cut
    }

    /// Joins a tile that is in no bin with the free neighbours that it may be joined with, and puts
    /// the whole in its bin.
    ///
    /// Idle memory joins that of any stream and takes its tag: ordering it after that stream
    /// without need is safe.
    fn become_free(&mut self, mut tile: TileId, mut tag: Tag) {
        if let Some((after, joined)) = self.tiling.after(tile).and_then(|after| self.joinable(after, tag)) {
            self.tiling.join(tile, after);
            tag = joined;
        }
        if let Some((before, joined)) = self.tiling.before(tile).and_then(|before| self.joinable(before, tag)) {
            self.tiling.join(before, tile);
            tile = before;
            tag = joined;
        }
        self.tiling.get_mut(tile).kind = TileKind::Free(tag);
        self.bins[tag.index()].insert(&mut self.tiling, tile);
    }

    /// A free neighbour that may be joined with memory of `tag`, taken out of its bin, and the tag
    /// of the whole.
    fn joinable(&mut self, neighbour: TileId, tag: Tag) -> Option<(TileId, Tag)> {
        let TileKind::Free(other) = self.get(neighbour).kind else { return None };
        let joined = tag.joined(other)?;
        self.bins[other.index()].remove(&mut self.tiling, neighbour);
        Some((neighbour, joined))
    }

    fn touch(&mut self, range: &ByteRange) {
        let (first, last) = (range.start >> self.granule_shift, (range.end - 1) >> self.granule_shift);
        self.live_granules += usize::from(self.boundary_tiles[first] == 0);
        self.boundary_tiles[first] += 1;
        if last != first {
            self.live_granules += last - first - 1 + usize::from(self.boundary_tiles[last] == 0);
            self.boundary_tiles[last] += 1;
        }
    }

    fn untouch(&mut self, range: &ByteRange) {
        let (first, last) = (range.start >> self.granule_shift, (range.end - 1) >> self.granule_shift);
        self.boundary_tiles[first] -= 1;
        self.live_granules -= usize::from(self.boundary_tiles[first] == 0);
        if last != first {
            self.boundary_tiles[last] -= 1;
            self.live_granules -= last - first - 1 + usize::from(self.boundary_tiles[last] == 0);
        }
    }
}
