//! The worst that small blocks can do to an allocator that moves nothing.

use std::collections::BTreeMap;

use super::random::Random;
use super::tape::{Tape, TracedBlock};
use super::{MIB, Pattern};

/// Robson's program for blocks up to a mebibyte.
pub(super) const SMALL_BLOCKS: Pattern = Pattern {
    largest_power_of_two_bytes: Some(LARGEST_BYTES),
    ..Pattern::roomy(
        "small-blocks",
        "Robson's program against first fit: 64 MiB in blocks of 512 B to 1 MiB, no steps",
        small_blocks,
    )
};

const UNIT_BYTES: usize = 512;
const LIVE_UNITS: usize = 64 * MIB / UNIT_BYTES;
const LARGEST_BYTES: usize = MIB;
const ROUNDS: u32 = (LARGEST_BYTES / UNIT_BYTES).ilog2();

/// Memory that any allocator which moves nothing needs at worst, for `live_bytes` at most live in
/// blocks of `smallest_bytes` times a power of two up to `largest_bytes`: M (½ log₂ n + 1) − n + 1
/// in units of the smallest block (J. M. Robson, "An estimate of the store size necessary for
/// dynamic storage allocation", Journal of the ACM 18, 1971).
pub fn robson_bound_bytes(live_bytes: usize, smallest_bytes: usize, largest_bytes: usize) -> usize {
    let (live, largest) = (live_bytes / smallest_bytes, largest_bytes / smallest_bytes);
    let units = live as f64 * (f64::from(largest.ilog2()) / 2.0 + 1.0) - largest as f64 + 1.0;
    units as usize * smallest_bytes
}

/// Round by round the blocks double. Before a round, every block goes that does not cover the
/// offset f of its aligned stretch of the coming size, where f is chosen so that as much as
/// possible stays; what stays keeps a hole in every stretch from being wide enough. The offsets are
/// those that the blocks have under first fit.
fn small_blocks(tape: &mut Tape, _: &mut Random) {
    let mut live: Vec<(usize, usize, TracedBlock)> = Vec::new();
    let (mut offset, mut live_units) = (0, 0);
    for round in 0..=ROUNDS {
        let size = 1_usize << round;
        if round > 0 {
            offset = best_offset(&live, offset, size);
            let (kept, freed): (Vec<_>, Vec<_>) =
                live.into_iter().partition(|&(start, units, _)| covers(start, units, offset, size));
            live = kept;
            for (_, units, block) in freed {
                tape.free(block);
                live_units -= units;
            }
        }
        let mut holes = Holes::between_blocks(&live);
        while live_units + size <= LIVE_UNITS {
            live.push((holes.first_fit(size), size, tape.alloc(size * UNIT_BYTES)));
            live_units += size;
        }
    }
    tape.free_all(live.into_iter().map(|(_, _, block)| block));
}

/// True if a block holds the unit at `offset` of a stretch of `size` units.
fn covers(start: usize, units: usize, offset: usize, size: usize) -> bool {
    let first = start + (offset + size - start % size) % size;
    first < start + units
}

/// The better of the offset so far and the one half a stretch on: the one with which more stays.
fn best_offset(live: &[(usize, usize, TracedBlock)], offset: usize, size: usize) -> usize {
    let stays = |offset: usize| -> usize {
        let kept = live.iter().filter(|&&(start, units, _)| covers(start, units, offset, size));
        kept.map(|&(_, units, _)| units).sum()
    };
    let other = offset + size / 2;
    if stays(other) > stays(offset) { other } else { offset }
}

/// Free stretches of an endless memory.
struct Holes {
    /// Length by first unit; the last hole has no end.
    holes: BTreeMap<usize, usize>,
    /// Start of the search: no hole before is large enough for the size that was asked for last.
    next: usize,
}

impl Holes {
    fn between_blocks(live: &[(usize, usize, TracedBlock)]) -> Self {
        let mut taken: Vec<(usize, usize)> = live.iter().map(|&(start, units, _)| (start, units)).collect();
        taken.sort_unstable();
        let (mut holes, mut end) = (BTreeMap::new(), 0);
        for (start, units) in taken {
            if start > end {
                holes.insert(end, start - end);
            }
            end = start + units;
        }
        holes.insert(end, usize::MAX - end);
        Holes { holes, next: 0 }
    }

    /// Takes `units` at the lowest place. Sizes must not change from call to call.
    fn first_fit(&mut self, units: usize) -> usize {
        let (&start, &length) =
            self.holes.range(self.next..).find(|&(_, &length)| length >= units).expect("the last hole has no end");
        self.holes.remove(&start);
        self.holes.insert(start + units, length - units);
        self.next = start + units;
        start
    }
}
