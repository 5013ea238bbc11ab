//! Sums in double precision whose bits no instruction set changes: eight partial sums, of the numbers whose place leaves each remainder by eight, added in
//! pairs, and no multiplication fused with an addition.
//!
//! ```text
//! Σ_t f(t) = ((s0 + s4) + (s2 + s6)) + ((s1 + s5) + (s3 + s7))    with    s_l = Σ_{t mod 8 = l} f(t)
//! ```
//!
//! They are what graphs are made of; single precision only says where to look. Rows end in zeros up to a multiple of eight.

#![forbid(unsafe_code)]

use super::{Between, LANES, Measure};

/// Σ f over the places of rows of the same length, a multiple of eight. Inlined into what is compiled for an instruction set.
#[inline(always)]
pub(crate) fn sum<const ROWS: usize>(rows: [&[f64]; ROWS], f: impl Fn([f64; ROWS]) -> f64) -> f64 {
    let len = rows.first().map_or(0, |row| row.len());
    let rows = rows.map(|row| &row[..len]);
    let mut sums = [0.0; LANES];
    for at in (0..len / LANES).map(|block| block * LANES) {
        let block: [&[f64; LANES]; ROWS] = rows.map(|row| row[at..at + LANES].try_into().expect("eight of a row"));
        for (lane, sum) in sums.iter_mut().enumerate() {
            *sum += f(block.map(|row| row[lane]));
        }
    }
    let [s0, s1, s2, s3, s4, s5, s6, s7] = sums;
    ((s0 + s4) + (s2 + s6)) + ((s1 + s5) + (s3 + s7))
}

/// Writes the measure between a row and each of the columns.
#[inline(always)]
pub(super) fn between(b: &mut Between<'_>) {
    let row = |at: u32| &b.rows[at as usize * b.stride..][..b.stride];
    let from = row(b.row);
    for (&column, to) in b.columns.iter().zip(b.to.iter_mut()) {
        *to = match b.measure {
            Measure::Product => sum([from, row(column)], |[x, y]| x * y),
            Measure::SquaredDistance => sum([from, row(column)], |[x, y]| (x - y) * (x - y)),
        };
    }
}
