//! Free tiles by size, for best fit without a search over all tiles.

use super::UNIT_BYTES;
use super::tiling::{NONE, TileId, Tiling};

/// Bins a power of two; a bin holds sizes within a 32nd of each other.
const BINS_PER_OCTAVE: usize = 32;
/// Enough for 2^46 units: more than any address space.
const BINS: usize = 44 * BINS_PER_OCTAVE;
const WORDS: usize = BINS / 64;
/// Most tiles of a bin that are compared for the best fit. Sizes in a bin differ by a 32nd at most,
/// so comparing all would cost more than it saves.
const LOOKS: usize = 8;

/// Tiles in bins of like size, each bin a list through the tiles.
#[derive(Debug)]
pub(super) struct Bins {
    heads: Box<[u32; BINS]>,
    filled: [u64; WORDS],
    /// Words of `filled` that are not zero.
    summary: u32,
}

impl Bins {
    pub(super) fn new() -> Self {
        Bins { heads: Box::new([NONE; BINS]), filled: [0; WORDS], summary: 0 }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.summary == 0
    }

    pub(super) fn insert(&mut self, tiling: &mut Tiling, id: TileId) {
        let bin = bin_of(tiling.get(id).bytes);
        let head = std::mem::replace(&mut self.heads[bin], id.link());
        if let Some(head) = TileId::from_link(head) {
            tiling.get_mut(head).bin_before = id.link();
        }
        let tile = tiling.get_mut(id);
        (tile.bin_before, tile.bin_after) = (NONE, head);
        self.filled[bin / 64] |= 1 << (bin % 64);
        self.summary |= 1 << (bin / 64);
    }

    pub(super) fn remove(&mut self, tiling: &mut Tiling, id: TileId) {
        let tile = tiling.get(id);
        let (bin, before, after) = (bin_of(tile.bytes), tile.bin_before, tile.bin_after);
        if let Some(after) = TileId::from_link(after) {
            tiling.get_mut(after).bin_before = before;
        }
        if let Some(before) = TileId::from_link(before) {
            tiling.get_mut(before).bin_after = after;
            return;
        }
        self.heads[bin] = after;
        if after == NONE {
            self.filled[bin / 64] &= !(1 << (bin % 64));
            if self.filled[bin / 64] == 0 {
                self.summary &= !(1 << (bin / 64));
            }
        }
    }

    /// A tile of at least `bytes`: nearly the smallest, with the lowest address among equals.
    /// `None` only if no tile is large enough.
    pub(super) fn find(&self, tiling: &Tiling, bytes: usize) -> Option<TileId> {
        let bin = bin_of(bytes);
        // Tiles of the request's own bin may be too small; those of larger bins all fit.
        if let Some(tile) = self.tightest(tiling, bin, bytes) {
            return Some(tile);
        }
        match self.filled_from(bin + 1) {
            Some(larger) => self.tightest(tiling, larger, bytes),
            None => self.bin(tiling, bin).skip(LOOKS).find(|&tile| tiling.get(tile).bytes >= bytes),
        }
    }

    /// The best fit among the first tiles of a bin.
    fn tightest(&self, tiling: &Tiling, bin: usize, bytes: usize) -> Option<TileId> {
        let mut best = None;
        let mut tightest = (usize::MAX, usize::MAX);
        let mut next = TileId::from_link(self.heads[bin]);
        for _ in 0..LOOKS {
            let Some(id) = next else { break };
            let tile = tiling.get(id);
            if tile.bytes >= bytes && (tile.bytes, tile.start) < tightest {
                tightest = (tile.bytes, tile.start);
                best = next;
            }
            next = TileId::from_link(tile.bin_after);
        }
        best
    }

    /// All tiles of at least `bytes`, from small to large bins, and perhaps some that are slightly
    /// smaller.
    pub(super) fn iter_from<'a>(&'a self, tiling: &'a Tiling, bytes: usize) -> impl Iterator<Item = TileId> + 'a {
        std::iter::successors(self.filled_from(bin_of(bytes)), |bin| self.filled_from(bin + 1))
            .flat_map(|bin| self.bin(tiling, bin))
    }

    /// A tile of the smallest bin that has one.
    pub(super) fn first(&self) -> Option<TileId> {
        TileId::from_link(self.heads[self.filled_from(0)?])
    }

    /// Bytes of the largest tile.
    pub(super) fn largest_bytes(&self, tiling: &Tiling) -> usize {
        let Some(word) = self.summary.checked_ilog2() else { return 0 };
        let bin = word * 64 + self.filled[word as usize].ilog2();
        self.bin(tiling, bin as usize).map(|tile| tiling.get(tile).bytes).max().expect("the bin is filled")
    }

    fn bin<'a>(&'a self, tiling: &'a Tiling, bin: usize) -> impl Iterator<Item = TileId> + 'a {
        std::iter::successors(TileId::from_link(self.heads[bin]), |&tile| TileId::from_link(tiling.get(tile).bin_after))
    }

    fn filled_from(&self, bin: usize) -> Option<usize> {
        let word = bin / 64;
        if word < WORDS {
            let bits = self.filled[word] & (u64::MAX << (bin % 64));
            if bits != 0 {
                return Some(word * 64 + bits.trailing_zeros() as usize);
            }
        }
        let words = self.summary & u32::MAX.checked_shl(word as u32 + 1).unwrap_or(0);
        (words != 0).then(|| {
            let word = words.trailing_zeros() as usize;
            word * 64 + self.filled[word].trailing_zeros() as usize
        })
    }
}

/// The bin of a size: exact below 32 units, then 32 bins a power of two.
fn bin_of(bytes: usize) -> usize {
    let units = bytes / UNIT_BYTES;
    if units < BINS_PER_OCTAVE {
        return units;
    }
    let octave = units.ilog2() - BINS_PER_OCTAVE.ilog2();
    octave as usize * BINS_PER_OCTAVE + (units >> octave)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::stream_tag::Tag;
    use super::super::tiling::TileKind;
    use super::*;

    #[test]
    fn bins_are_in_order_of_size_and_none_is_left_out() {
        let mut last = 0;
        for units in 1..100_000 {
            let bin = bin_of(units * UNIT_BYTES);
            assert!(bin == last || bin == last + 1, "{units} units");
            last = bin;
        }
        assert!(bin_of(usize::MAX / 512) < BINS);
    }

    proptest! {
        /// A tile is found if and only if one is large enough, and it is at most a sixteenth larger
        /// than the smallest that would do.
        #[test]
        fn what_is_found_is_nearly_the_tightest(
            sizes in prop::collection::vec(1usize..4_000, 1..60),
            wishes in prop::collection::vec(1usize..4_500, 1..40),
        ) {
            let mut tiling = Tiling::new(64, 21, TileKind::Free(Tag::IDLE));
            let mut rest = tiling.first().unwrap();
            let mut bins = Bins::new();
            let mut model = Vec::new();
            for units in sizes {
                let bytes = units * UNIT_BYTES;
                let upper = tiling.split(rest, tiling.get(rest).start + bytes);
                bins.insert(&mut tiling, rest);
                model.push(bytes);
                rest = upper;
            }
            for units in wishes {
                let bytes = units * UNIT_BYTES;
                let found = bins.find(&tiling, bytes);
                let tightest = model.iter().copied().filter(|&size| size >= bytes).min();
                prop_assert_eq!(found.is_some(), tightest.is_some());
                let (Some(found), Some(tightest)) = (found, tightest) else { continue };
                let size = tiling.get(found).bytes;
                prop_assert!(size >= bytes && size <= tightest + tightest / 16, "{size} for {bytes}, not {tightest}");
                bins.remove(&mut tiling, found);
                model.swap_remove(model.iter().position(|&s| s == size).unwrap());
                prop_assert_eq!(bins.largest_bytes(&tiling), model.iter().copied().max().unwrap_or(0));
            }
        }
    }
}
