//! Slabs of small blocks: one granule cut into equal slots, so that small blocks neither scatter
//! over granules nor split large free ranges.
//!
//! Size classes are multiples of 512 bytes, four to an octave, up to a 64th of a granule (32 KiB
//! where a granule is 2 MiB). A block is at most a quarter larger than what was asked for, and what
//! is left at the end of a slab's granule is less than one block. Where there is no other memory,
//! a slab ends behind its last live block, and the rest of its granule is free for any block.

use super::granule_set::GranuleSet;
use super::stream_tag::Tag;
use super::tiling::TileId;
use super::{ByteRange, UNIT_BYTES};

/// Most blocks in a slab: a 64-bit word summarises 64 words of free bits.
const SLOTS_MAX: usize = 64 * 64;

/// The size class of a request, if it is small: its index.
pub(super) fn class_of(bytes: usize, granule_bytes: usize) -> Option<usize> {
    let units = bytes.div_ceil(UNIT_BYTES).max(1);
    if units > granule_bytes / 64 / UNIT_BYTES {
        return None;
    }
    if units <= 4 {
        return Some(units - 1);
    }
    let octave = (units - 1).ilog2() as usize;
    // Steps of 2^(octave - 2) units: four in an octave.
    let steps = ((units - 1) >> (octave - 2)) + 1;
    Some(4 * (octave - 1) + steps - 5)
}

/// Bytes of a block of a class.
pub(super) fn class_bytes(class: usize) -> usize {
    let units = if class < 4 { class + 1 } else { (class % 4 + 5) << (class / 4 - 1) };
    units * UNIT_BYTES
}

/// Blocks in a slab of a class.
pub(super) fn class_slots(class: usize, granule_bytes: usize) -> usize {
    (granule_bytes / class_bytes(class)).min(SLOTS_MAX)
}

/// A granule of equal blocks, or the beginning of one.
#[derive(Debug)]
pub(super) struct Slab {
    pub(super) tile: TileId,
    /// Slot of its granule in the main segment.
    pub(super) granule: usize,
    pub(super) class: usize,
    /// The stream that uses its blocks.
    pub(super) tag: Tag,
    pub(super) live: usize,
    slots: usize,
    /// One bit a block, set if it is free.
    free: Vec<u64>,
    /// One bit a word of `free`, set if the word is not zero.
    summary: u64,
}

impl Slab {
    fn new(tile: TileId, granule: usize, class: usize, tag: Tag, slots: usize) -> Self {
        let word = |first: usize| if slots - first >= 64 { u64::MAX } else { !(u64::MAX << (slots - first)) };
        let free: Vec<u64> = (0..slots).step_by(64).map(word).collect();
        let summary = u64::MAX >> (64 - free.len());
        Slab { tile, granule, class, tag, live: 0, slots, free, summary }
    }

    pub(super) fn is_full(&self) -> bool {
        self.summary == 0
    }

    pub(super) fn slots(&self) -> usize {
        self.slots
    }

    pub(super) fn is_free(&self, slot: usize) -> bool {
        self.free[slot / 64] >> (slot % 64) & 1 == 1
    }

    fn first_free(&self) -> usize {
        let word = self.summary.trailing_zeros() as usize;
        word * 64 + self.free[word].trailing_zeros() as usize
    }

    fn take(&mut self, slot: usize) {
        self.free[slot / 64] &= !(1 << (slot % 64));
        if self.free[slot / 64] == 0 {
            self.summary &= !(1 << (slot / 64));
        }
        self.live += 1;
    }

    /// Slots up to the last block that is live.
    pub(super) fn slots_used(&self) -> usize {
        (0..self.slots).rev().find(|&slot| !self.is_free(slot)).map_or(0, |last| last + 1)
    }

    /// Takes the slots from number `slots` on away, which are free.
    fn shorten(&mut self, slots: usize) {
        for slot in slots..self.slots {
            self.free[slot / 64] &= !(1 << (slot % 64));
        }
        self.slots = slots;
        self.summary = (0..).zip(&self.free).map(|(word, &free)| u64::from(free != 0) << word).sum();
    }

    fn give_back(&mut self, slot: usize) {
        self.free[slot / 64] |= 1 << (slot % 64);
        self.summary |= 1 << (slot / 64);
        self.live -= 1;
    }
}

/// All slabs of a pool.
#[derive(Debug, Default)]
pub(super) struct Slabs {
    slabs: Vec<Option<Slab>>,
    vacant: Vec<u32>,
    /// Granules of slabs with a free block, by tag and class. The lowest is filled first, so that
    /// the others may empty.
    open: Vec<Vec<GranuleSet>>,
    /// By granule: 1 + the slab in it; 0 for none.
    by_granule: Vec<u32>,
}

impl Slabs {
    /// A free block of a class, if a slab has one.
    pub(super) fn take(&mut self, class: usize, tag: Tag) -> Option<(u32, u32)> {
        let granule = self.open.get(tag.index())?.get(class)?.first()?;
        let slab = self.by_granule[granule] - 1;
        Some((slab, self.take_free(slab)))
    }

    /// A free block of a slab that has one.
    pub(super) fn take_free(&mut self, index: u32) -> u32 {
        let slab = self.get_mut(index);
        let slot = slab.first_free();
        slab.take(slot);
        if slab.is_full() {
            let (granule, class, tag) = (slab.granule, slab.class, slab.tag);
            self.open[tag.index()][class].remove(granule);
        }
        slot as u32
    }

    /// Takes a slot that is free.
    pub(super) fn take_slot(&mut self, index: u32, slot: usize) {
        let slab = self.get_mut(index);
        slab.take(slot);
        if slab.is_full() {
            let (granule, class, tag) = (slab.granule, slab.class, slab.tag);
            self.open[tag.index()][class].remove(granule);
        }
    }

    /// Frees a slot. True if the slab has no live block left; the caller then removes it.
    pub(super) fn give_back(&mut self, index: u32, slot: u32) -> bool {
        let slab = self.get_mut(index);
        let was_full = slab.is_full();
        slab.give_back(slot as usize);
        let (empty, granule, class, tag) = (slab.live == 0, slab.granule, slab.class, slab.tag);
        if was_full {
            self.open[tag.index()][class].insert(granule);
        }
        empty
    }

    /// Takes the free slots at the end of a slab away. Returns the bytes that are left of it.
    pub(super) fn shorten(&mut self, index: u32) -> usize {
        let slab = self.get_mut(index);
        let (was_full, slots) = (slab.is_full(), slab.slots_used());
        slab.shorten(slots);
        let (granule, class, tag) = (slab.granule, slab.class, slab.tag);
        if !was_full && slab.is_full() {
            self.open[tag.index()][class].remove(granule);
        }
        slots * class_bytes(class)
    }

    /// Adds a slab without live blocks.
    pub(super) fn add(&mut self, tile: TileId, granule: usize, class: usize, tag: Tag, slots: usize) {
        let slab = Slab::new(tile, granule, class, tag, slots);
        let index = self.next();
        if self.vacant.pop().is_some() {
            self.slabs[index as usize] = Some(slab);
        } else {
            self.slabs.push(Some(slab));
        }
        if self.open.len() <= tag.index() {
            self.open.resize_with(tag.index() + 1, Vec::new);
        }
        let classes = &mut self.open[tag.index()];
        if classes.len() <= class {
            classes.resize_with(class + 1, GranuleSet::default);
        }
        classes[class].insert(granule);
        self.set_granule(granule, index + 1);
    }

    /// The index that the next slab will have.
    pub(super) fn next(&self) -> u32 {
        self.vacant.last().copied().unwrap_or(self.slabs.len() as u32)
    }

    /// Takes a slab without live blocks away.
    pub(super) fn remove(&mut self, index: u32) -> Slab {
        let slab = self.slabs[index as usize].take().expect("the slab exists");
        self.vacant.push(index);
        self.open[slab.tag.index()][slab.class].remove(slab.granule);
        self.set_granule(slab.granule, 0);
        slab
    }

    pub(super) fn get(&self, index: u32) -> &Slab {
        self.slabs[index as usize].as_ref().expect("tiles and blocks name slabs that exist")
    }

    fn get_mut(&mut self, index: u32) -> &mut Slab {
        self.slabs[index as usize].as_mut().expect("tiles and blocks name slabs that exist")
    }

    /// The slab in a granule.
    pub(super) fn in_granule(&self, granule: usize) -> Option<u32> {
        self.by_granule.get(granule)?.checked_sub(1)
    }

    /// All slabs by index.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &Slab)> {
        (0..).zip(&self.slabs).filter_map(|(index, slab)| Some((index, slab.as_ref()?)))
    }

    fn set_granule(&mut self, granule: usize, slab: u32) {
        if self.by_granule.len() <= granule {
            self.by_granule.resize(granule + 1, 0);
        }
        self.by_granule[granule] = slab;
    }
}

/// The bytes of a slot, by its offset in the main segment.
pub(super) fn slot_bytes(slab: &Slab, slot: usize, granule_shift: u32) -> ByteRange {
    let start = (slab.granule << granule_shift) + slot * class_bytes(slab.class);
    start..start + class_bytes(slab.class)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRANULE: usize = 2 << 20;

    #[test]
    fn classes_are_in_order_and_lose_a_quarter_at_most() {
        for bytes in 0..=GRANULE / 64 {
            let class = class_of(bytes, GRANULE).unwrap();
            let given = class_bytes(class);
            assert!(
                given >= bytes && (given <= UNIT_BYTES || 4 * given <= 5 * bytes.next_multiple_of(UNIT_BYTES)),
                "{bytes}"
            );
            assert!(class == 0 || class_bytes(class - 1) < bytes, "{bytes} would go into a smaller class");
            assert!(GRANULE % given < given);
        }
        assert_eq!(class_of(GRANULE / 64, GRANULE), Some(19));
        assert_eq!(class_of(GRANULE / 64 + 1, GRANULE), None);
        assert_eq!(class_of(1, 4096), None);
    }

    #[test]
    fn a_slab_gives_each_slot_once() {
        for (class, granule_bytes) in [(0, GRANULE), (2, GRANULE), (19, GRANULE), (0, 64 << 10), (0, 1 << 25)] {
            let slots = class_slots(class, granule_bytes);
            let mut slabs = Slabs::default();
            slabs.add(Tiling::new(1, 21, TileKind::Unmapped).first().unwrap(), 3, class, Tag::IDLE, slots);
            let mut given: Vec<u32> =
                std::iter::from_fn(|| slabs.take(class, Tag::IDLE)).map(|(_, slot)| slot).collect();
            assert_eq!(given, (0..slots as u32).collect::<Vec<_>>());
            assert!(!slabs.give_back(0, 5.min(slots as u32 - 1)));
            assert_eq!(slabs.take(class, Tag::IDLE), Some((0, 5.min(slots as u32 - 1))));
            let last = given.pop().unwrap();
            assert!(given.into_iter().all(|slot| !slabs.give_back(0, slot)));
            assert!(slabs.give_back(0, last));
            assert_eq!(slabs.remove(0).live, 0);
            assert_eq!(slabs.take(class, Tag::IDLE), None);
        }
    }

    use super::super::tiling::{TileKind, Tiling};
}
