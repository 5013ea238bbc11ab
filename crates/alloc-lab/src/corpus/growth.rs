//! The growth of reserved memory that github.com/pytorch/pytorch/pull/193400 describes, with its
//! sizes.

use super::random::Random;
use super::tape::Tape;
use super::{GIB, MIB, Pattern};

/// A hundred cycles of two large blocks and a small one that stays.
pub(super) const RESERVED_GROWTH: Pattern = Pattern {
    capacity_bytes: 16 * GIB,
    max_split_bytes: Some(128 * MIB),
    ..Pattern::roomy(
        "reserved-growth",
        "PyTorch 193400: 91 and 45.5 MiB come and go a hundred times, 2 MiB stay each time",
        reserved_growth,
    )
};

fn reserved_growth(tape: &mut Tape, _: &mut Random) {
    let mut kept = vec![tape.alloc(64 * MIB)];
    for _cycle in 0..=100 {
        let large = tape.alloc_all([91 * MIB, 45 * MIB + MIB / 2]);
        kept.push(tape.alloc(2 * MIB));
        tape.free_all(large);
        tape.step();
    }
    tape.free_all(kept);
}
