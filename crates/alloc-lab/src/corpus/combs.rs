//! Patterns made to leave holes that are as small as can be.

use super::random::Random;
use super::tape::{Tape, TracedBlock};
use super::{GIB, MIB, Pattern};

/// Every second tooth goes, and the next blocks are two teeth wide.
pub(super) const COMB: Pattern =
    Pattern::roomy("comb", "8 GiB in blocks of 8 MiB, every second one freed, then blocks of 16 MiB", comb);

/// The comb again and again, each time twice as wide.
pub(super) const DOUBLING_COMB: Pattern = Pattern::roomy(
    "doubling-comb",
    "4 GiB in blocks of 2 MiB, every second one freed, the next twice as large, up to 512 MiB",
    doubling_comb,
);

/// No order at all.
pub(super) const CHURN: Pattern =
    Pattern::roomy("churn", "blocks of 2 MiB to 1 GiB that come and go at random, up to 16 GiB", churn);

/// A comb of which no tooth begins where its neighbour's granule ends.
pub(super) const ODD_COMB: Pattern = Pattern::roomy(
    "odd-comb",
    "2 GiB in blocks of 3.5 MiB, every second one freed, then blocks of 7 MiB, no steps",
    odd_comb,
);

/// Blocks of little more than a granule: the loss at their ends is a large part of them.
pub(super) const NARROW_CHURN: Pattern = Pattern::roomy(
    "narrow-churn",
    "blocks of 2 to 8 MiB that come and go at random, up to 2 GiB, no steps",
    narrow_churn,
);

/// Frees every second block; the others.
fn thin(tape: &mut Tape, blocks: Vec<TracedBlock>) -> Vec<TracedBlock> {
    let mut kept = Vec::new();
    for (k, block) in blocks.into_iter().enumerate() {
        match k % 2 {
            0 => tape.free(block),
            _ => kept.push(block),
        }
    }
    kept
}

fn comb(tape: &mut Tape, _: &mut Random) {
    // Large blocks first, so that an allocator that caches them cuts the teeth from them.
    let large = tape.alloc_all([GIB; 8]);
    tape.free_all(large);
    comb_once(tape, 8 * MIB, 1024);
}

/// A comb of `count` teeth, and blocks of two teeth in the place of those that went.
fn comb_once(tape: &mut Tape, tooth_bytes: usize, count: usize) {
    let teeth = tape.alloc_all(vec![tooth_bytes; count]);
    let teeth = thin(tape, teeth);
    let wide = tape.alloc_all(vec![2 * tooth_bytes; count / 4]);
    tape.free_all(teeth);
    tape.free_all(wide);
}

fn doubling_comb(tape: &mut Tape, _: &mut Random) {
    let large = tape.alloc_all([GIB; 4]);
    tape.free_all(large);
    let mut teeth = tape.alloc_all([2 * MIB; 2048]);
    let (mut count, mut bytes) = (2048, 2 * MIB);
    while bytes < GIB / 2 {
        teeth = thin(tape, teeth);
        // As many as fit into what was freed.
        (count, bytes) = (count / 4, bytes * 2);
        let wide = vec![bytes; count.max(1)];
        teeth.extend(tape.alloc_all(wide));
    }
    tape.free_all(teeth);
}

fn odd_comb(tape: &mut Tape, _: &mut Random) {
    comb_once(tape, 7 * MIB / 2, 584);
}

fn narrow_churn(tape: &mut Tape, random: &mut Random) {
    let (mut live, mut live_bytes): (Vec<(TracedBlock, usize)>, usize) = (Vec::new(), 0);
    for _ in 0..30_000 {
        let bytes = random.in_range(2 * MIB, 8 * MIB);
        while live_bytes + bytes > 2 * GIB {
            let which = random.in_range(0, live.len());
            let (block, bytes) = live.swap_remove(which);
            tape.free(block);
            live_bytes -= bytes;
        }
        live.push((tape.alloc(bytes), bytes));
        live_bytes += bytes;
    }
    tape.free_all(live.into_iter().map(|(block, _)| block));
}

fn churn(tape: &mut Tape, random: &mut Random) {
    let (mut live, mut live_bytes): (Vec<(TracedBlock, usize)>, usize) = (Vec::new(), 0);
    for event in 0..20_000 {
        let bytes = random.size(2 * MIB, GIB);
        while live_bytes + bytes > 16 * GIB || (!live.is_empty() && random.percent(40)) {
            let which = random.in_range(0, live.len());
            let (block, bytes) = live.swap_remove(which);
            tape.free(block);
            live_bytes -= bytes;
        }
        live.push((tape.alloc(bytes), bytes));
        live_bytes += bytes;
        if event % 500 == 499 {
            tape.step();
        }
    }
    tape.free_all(live.into_iter().map(|(block, _)| block));
}
