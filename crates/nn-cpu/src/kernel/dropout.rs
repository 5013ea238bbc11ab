//! The factors of dropout for sixteen units of every window at some steps.
//!
//! ```text
//! for window w, step t, unit u:
//!     to[t · W + w][u] = word t mod 4 of philox(key, [u, t / 4, end of w]) < limit ? 0 : scale
//! ```
//!
//! Departure: the sixteen units of four steps are drawn at once, and their words lie in the lower
//! halves of 64-bit numbers with anything above them: then compilers turn a round into
//! multiplications of 32 by 32 bits, shifts and exclusive ors alone.

use megabatch_order::random::{PHILOX_KEY_STEPS, PHILOX_MULTIPLIERS, PHILOX_ROUNDS};

use super::{Draw, PANEL};

/// Steps whose numbers are the words of one answer.
pub(super) const WORDS: usize = 4;

type UnitLanes = [u64; PANEL];

/// Inlined into a function compiled for an instruction set. `d.to` holds a row for each step and
/// window.
#[inline(always)]
pub(super) fn draw(d: &mut Draw<'_>) {
    let (windows, steps) = (d.ends.len(), d.steps.clone());
    for quad in steps.start / WORDS..steps.end.div_ceil(WORDS) {
        for (w, &end) in d.ends.iter().enumerate() {
            let words = philox(d.mask.key, [d.first_unit as u32, quad as u32, end as u32, (end as u64 >> 32) as u32]);
            for (word, t) in words.iter().zip(quad * WORDS..).filter(|(_, t)| steps.contains(t)) {
                let row = (t - steps.start) * windows + w;
                let factors: &mut [f32; PANEL] =
                    (&mut d.to[row * PANEL..][..PANEL]).try_into().expect("a row of a panel");
                for (factor, &word) in factors.iter_mut().zip(word) {
                    *factor = if (word as u32) < d.mask.dropped_below { 0.0 } else { d.scale };
                }
            }
        }
    }
}

/// Ten rounds of Philox4x32 for sixteen counters that differ by 0, 1, … in their first word; the
/// other halves are of no meaning.
#[inline(always)]
fn philox(mut key: [u32; 2], counter: [u32; 4]) -> [UnitLanes; WORDS] {
    let mut lanes = counter.map(|word| [u64::from(word); PANEL]);
    for (unit, word) in lanes[0].iter_mut().enumerate() {
        *word += unit as u64;
    }
    for _ in 0..PHILOX_ROUNDS {
        let [products0, products1] = [multiply(lanes[0], 0), multiply(lanes[2], 1)];
        for i in 0..PANEL {
            let (high0, high1) = (products0[i] >> 32, products1[i] >> 32);
            lanes[0][i] = high1 ^ lanes[1][i] ^ u64::from(key[0]);
            lanes[1][i] = products1[i];
            lanes[2][i] = high0 ^ lanes[3][i] ^ u64::from(key[1]);
            lanes[3][i] = products0[i];
        }
        key = [key[0].wrapping_add(PHILOX_KEY_STEPS[0]), key[1].wrapping_add(PHILOX_KEY_STEPS[1])];
    }
    lanes
}

/// The lower halves of `lanes` times the multiplier `which`.
#[inline(always)]
fn multiply(mut lanes: UnitLanes, which: usize) -> UnitLanes {
    for lane in &mut lanes {
        *lane = (*lane & u64::from(u32::MAX)).wrapping_mul(u64::from(PHILOX_MULTIPLIERS[which]));
    }
    lanes
}
