//! Sums in double precision with the same bits on every instruction set: eight partial sums, one
//! for each place modulo 8, added in pairs, without fused multiply-add.
//!
//! ```text
//! Σ_t f(t) = ((s0 + s4) + (s2 + s6)) + ((s1 + s5) + (s3 + s7))
//! s_l    = Σ_{t mod 8 = l} f(t)
//! ```
//!
//! Graphs hold these sums; single precision only proposes candidates. Rows end in zeros up to a
//! multiple of eight.

#![allow(unsafe_code, reason = "instructions of the CPU")]

use super::lanes::ExactLanes;
use super::{LANES, MeasureArguments, RowMeasure};

/// Σ f over the places of rows of the same length, a multiple of eight. Inlined into what is
/// compiled for an instruction set.
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

/// Columns whose sums are formed side by side, as the additions of one sum wait for each other.
const TOGETHER: usize = 4;

/// Writes the measure between a row and each of the columns.
///
/// # Safety
/// The rows contain all columns, see [`MeasureArguments`]; the CPU has the instruction set of V.
#[inline(always)]
pub(super) unsafe fn between<V: ExactLanes>(b: &mut MeasureArguments<'_>) {
    // SAFETY: the caller keeps the contract of the sums, which is this function's.
    unsafe {
        match b.measure {
            RowMeasure::Product => measures::<V>(b, |x, y| x.times(y)),
            RowMeasure::SquaredDistance => measures::<V>(b, |x, y| x.minus(y).times(x.minus(y))),
        }
    }
}

/// # Safety
/// As [`between`].
#[inline(always)]
unsafe fn measures<V: ExactLanes>(b: &mut MeasureArguments<'_>, f: impl Fn(V, V) -> V + Copy) {
    let row = |at: u32| b.rows[at as usize * b.stride..][..b.stride].as_ptr();
    let (from, stride) = (row(b.row), b.stride);
    let (columns, rest) = b.columns.as_chunks::<TOGETHER>();
    let (to, to_rest) = b.to.as_chunks_mut::<TOGETHER>();
    // SAFETY: each pointer is that of a row, which has the stride's numbers.
    unsafe {
        for (columns, to) in columns.iter().zip(to) {
            *to = side_by_side(from, columns.map(row), stride, f);
        }
        for (&column, to) in rest.iter().zip(to_rest) {
            [*to] = side_by_side(from, [row(column)], stride, f);
        }
    }
}

/// # Safety
/// All pointers reach `stride` numbers, a multiple of eight; the CPU has the instruction set
/// of V.
#[inline(always)]
unsafe fn side_by_side<V: ExactLanes, const N: usize>(
    from: *const f64,
    others: [*const f64; N],
    stride: usize,
    f: impl Fn(V, V) -> V,
) -> [f64; N] {
    // SAFETY: eight numbers from a multiple of eight on that is less than the stride.
    unsafe {
        let mut sums = [V::zero(); N];
        for at in (0..stride).step_by(LANES) {
            let x = V::load(from.add(at));
            for (sum, other) in sums.iter_mut().zip(others) {
                *sum = sum.plus(f(x, V::load(other.add(at))));
            }
        }
        sums.map(|sum| sum.sum())
    }
}
