//! Data frames on RAPIDS: what users of its memory manager met, with the figures that they gave.

use std::collections::VecDeque;

use super::random::Random;
use super::tape::Tape;
use super::{GIB, KIB, MIB, Pattern};

/// github.com/rapidsai/rmm/issues/1245.
pub(super) const HALF_MEBIBYTES: Pattern = Pattern {
    capacity_bytes: 84_490_059_776,
    ..Pattern::roomy(
        "half-mebibytes",
        "RMM 1245: 53.5 GB live, much of it in blocks of 256 to 512 KiB strewn about, then 133 MB",
        half_mebibytes,
    )
};

/// github.com/rapidsai/rmm/issues/2039.
pub(super) const TWO_STREAMS: Pattern = Pattern {
    capacity_bytes: 24 * GIB,
    ..Pattern::roomy(
        "two-streams",
        "RMM 2039: tables made on two streams in turn, a few columns of each kept",
        two_streams,
    )
};

/// Live bytes when the request failed, and that request.
const LIVE_BYTES: usize = 53_514_136_688;
const REQUEST_BYTES: usize = 132_870_728;

fn half_mebibytes(tape: &mut Tape, random: &mut Random) {
    let (mut kept, mut kept_bytes) = (Vec::new(), 0);
    let mut tables = VecDeque::new();
    loop {
        tables.push_back(tape.alloc(random.size(MIB, 130 * MIB)));
        let mut sizes: Vec<usize> = (0..4).map(|_| random.in_range(256 * KIB, 512 * KIB)).collect();
        if random.percent(3) {
            sizes.push(random.size(4 * MIB, 64 * MIB));
        }
        let bytes: usize = sizes.iter().sum();
        if kept_bytes + bytes > LIVE_BYTES {
            break;
        }
        kept_bytes += bytes;
        kept.extend(tape.alloc_all(sizes));
        // Tables go after a while that grows and shrinks, so that the memory between what stays is
        // used again and again.
        let held = random.in_range(4, 600);
        tape.keep_last(&mut tables, held);
    }
    tape.free_all(tables);
    let rest = tape.alloc(LIVE_BYTES - kept_bytes);
    let request = tape.alloc(REQUEST_BYTES);
    tape.free_all(kept);
    tape.free_all([rest, request]);
}

fn two_streams(tape: &mut Tape, random: &mut Random) {
    let mut results = Vec::new();
    for round in 0..24 {
        tape.use_stream(round % 2);
        let columns: Vec<usize> = (0..40).map(|_| random.in_range(16 * MIB, 120 * MIB)).collect();
        let read = tape.alloc_all(columns.iter().map(|bytes| bytes / 2 + 2 * MIB));
        let mut decoded = tape.alloc_all(columns.iter().copied());
        tape.free_all(read);
        let hashes = tape.alloc_all([GIB + round as usize * 3 * MIB, 400 * MIB]);
        for _ in 0..2 {
            let which = random.in_range(0, decoded.len());
            results.push(decoded.swap_remove(which));
        }
        tape.free_all(decoded);
        tape.free_all(hashes);
        tape.step();
    }
    tape.free_all(results);
}
