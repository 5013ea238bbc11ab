//! Packing by FEAT_BF16 (`bfcvtn`): a row of sixteen words is four registers.
//!
//! The instruction is written in assembly: no stable function stands for it.

#![allow(unsafe_code, reason = "instructions of the CPU")]
#![allow(clippy::needless_range_loop, reason = "the indices are quarters of four rows")]

use std::arch::aarch64::*;
use std::arch::asm;

use super::{PAIRED_PANEL, Packing, padded_words};
use crate::kernel::PANEL;
use crate::kernel::lanes::Words;
use crate::kernel::neon::Neon;

/// `x`, or zero of its sign where it is subnormal.
#[inline(always)]
unsafe fn flushed(x: float32x4_t) -> float32x4_t {
    // SAFETY: arithmetic on values only; the caller has NEON.
    unsafe {
        let is_subnormal = vcaltq_f32(x, vdupq_n_f32(f32::MIN_POSITIVE));
        let magnitude = vandq_u32(is_subnormal, vdupq_n_u32(0x7fff_ffff));
        vreinterpretq_f32_u32(vbicq_u32(vreinterpretq_u32_f32(x), magnitude))
    }
}

/// Eight numbers, rounded: `low` in the lower half of the register.
#[inline(always)]
unsafe fn rounded(low: float32x4_t, high: float32x4_t) -> uint16x8_t {
    let halves: uint16x8_t;
    // SAFETY: the caller has BF16; the instructions read and write these registers alone.
    unsafe {
        asm!(
            "bfcvtn {halves:v}.4h, {low:v}.4s",
            "bfcvtn2 {halves:v}.8h, {high:v}.4s",
            halves = out(vreg) halves,
            low = in(vreg) flushed(low),
            high = in(vreg) flushed(high),
            options(pure, nomem, nostack)
        );
    }
    halves
}

/// Columns `column`..`column` + 16 of row `row` of `p`, zero past its rows and columns.
///
/// # Safety
/// `p.from` reaches its rows and columns; `column` begins a panel; the CPU has NEON.
#[inline(always)]
unsafe fn sixteen(p: &Packing, row: usize, column: usize) -> [float32x4_t; 4] {
    let from = p.from.wrapping_add(column / PANEL * p.from_stride + row * p.from_row);
    let present = if row < p.rows { p.columns.saturating_sub(column).min(PANEL) } else { 0 };
    // SAFETY: so many numbers are there.
    unsafe {
        if present == PANEL {
            return Neon::load(from).0;
        }
        let mut numbers = [0.0; PANEL];
        from.copy_to_nonoverlapping(numbers.as_mut_ptr(), present);
        Neon::load(numbers.as_ptr()).0
    }
}

/// Thirty-two columns of row `row`, from `column` on, as sixteen pairs.
///
/// # Safety
/// As [`sixteen`]; the CPU has BF16.
#[inline(always)]
unsafe fn row_pairs(p: &Packing, row: usize, column: usize) -> [uint32x4_t; 4] {
    // SAFETY: the contract is the same.
    unsafe {
        let [a, b, c, d] = sixteen(p, row, column);
        let [e, f, g, h] = sixteen(p, row, column + PANEL);
        [
            vreinterpretq_u32_u16(rounded(a, b)),
            vreinterpretq_u32_u16(rounded(c, d)),
            vreinterpretq_u32_u16(rounded(e, f)),
            vreinterpretq_u32_u16(rounded(g, h)),
        ]
    }
}

/// Rows `row` and `row` + 1 of sixteen columns, from `column` on, as pairs.
///
/// # Safety
/// As [`sixteen`]; the CPU has BF16.
#[inline(always)]
unsafe fn column_pairs(p: &Packing, row: usize, column: usize) -> [uint32x4_t; 4] {
    // SAFETY: the contract is the same.
    unsafe {
        let (even, odd) = (sixteen(p, row, column), sixteen(p, row + 1, column));
        let mut words = [vdupq_n_u32(0); 4];
        for i in 0..4 {
            let halves = rounded(even[i], odd[i]);
            words[i] = vreinterpretq_u32_u16(vzip1q_u16(halves, vextq_u16::<4>(halves, halves)));
        }
        words
    }
}

/// Writes sixteen words.
///
/// # Safety
/// There is room for them from `to` on; the CPU has NEON.
#[inline(always)]
unsafe fn store(words: [uint32x4_t; 4], to: *mut f32) {
    for i in 0..4 {
        // SAFETY: the contract is the same.
        unsafe { vst1q_u32(to.wrapping_add(4 * i).cast(), words[i]) };
    }
}

/// Writes the transpose of four rows of sixteen words: four words every sixteen.
///
/// # Safety
/// There is room for them from `to` on; the CPU has NEON.
#[inline(always)]
unsafe fn store_transposed(rows: [[uint32x4_t; 4]; 4], to: *mut f32) {
    let [a, b, c, d] = rows;
    for i in 0..4 {
        // SAFETY: the contract is the same.
        unsafe {
            let ab_even = vreinterpretq_u64_u32(vtrn1q_u32(a[i], b[i]));
            let ab_odd = vreinterpretq_u64_u32(vtrn2q_u32(a[i], b[i]));
            let cd_even = vreinterpretq_u64_u32(vtrn1q_u32(c[i], d[i]));
            let cd_odd = vreinterpretq_u64_u32(vtrn2q_u32(c[i], d[i]));
            let columns = [
                vtrn1q_u64(ab_even, cd_even),
                vtrn1q_u64(ab_odd, cd_odd),
                vtrn2q_u64(ab_even, cd_even),
                vtrn2q_u64(ab_odd, cd_odd),
            ];
            for j in 0..4 {
                vst1q_u64(to.wrapping_add((4 * i + j) * PANEL).cast(), columns[j]);
            }
        }
    }
}

/// # Safety
/// The pointers of `p` reach what [`rows`](super::rows) says; the CPU has BF16.
#[target_feature(enable = "neon,bf16")]
pub(super) unsafe fn rows(p: &Packing) {
    for panel in 0..p.columns.div_ceil(PAIRED_PANEL) {
        for row in 0..p.rows {
            let to = p.to.wrapping_add(panel * p.to_stride + row * PANEL);
            // SAFETY: the row of the panel of `to` is there, and what is read of `from`.
            unsafe { store(row_pairs(p, row, panel * PAIRED_PANEL), to) };
        }
    }
}

/// # Safety
/// The pointers of `p` reach what [`pairs`](super::pairs) says; the CPU has BF16.
#[target_feature(enable = "neon,bf16")]
pub(super) unsafe fn pairs(p: &Packing) {
    for panel in 0..p.columns.div_ceil(PANEL) {
        for at in 0..padded_words(p.rows) {
            let to = p.to.wrapping_add(panel * p.to_stride + at * PANEL);
            // SAFETY: the padded words of `to` are there, and what is read of `from`.
            unsafe { store(column_pairs(p, 2 * at, panel * PANEL), to) };
        }
    }
}

/// # Safety
/// The pointers of `p` reach what [`transposed_pairs`](super::transposed_pairs) says; the CPU has
/// BF16.
#[target_feature(enable = "neon,bf16")]
pub(super) unsafe fn transposed_pairs(p: &Packing) {
    for panel in 0..p.columns.div_ceil(PANEL) {
        for at in (0..padded_words(p.rows)).step_by(4) {
            let to = p.to.wrapping_add(at / PANEL * p.to_stride + panel * PANEL * PANEL + at % PANEL);
            // SAFETY: sixteen columns of the panel of `to` are there, and what is read of `from`.
            unsafe {
                let mut words = [[vdupq_n_u32(0); 4]; 4];
                for k in 0..4 {
                    words[k] = column_pairs(p, 2 * (at + k), panel * PANEL);
                }
                store_transposed(words, to);
            }
        }
    }
}

/// # Safety
/// The pointers of `p` reach what [`transposed_rows`](super::blocks) says; the CPU has BF16.
#[target_feature(enable = "neon,bf16")]
pub(super) unsafe fn transposed_rows(p: &Packing) {
    for first in (0..p.rows.next_multiple_of(PANEL)).step_by(4) {
        for block in 0..p.columns.div_ceil(PAIRED_PANEL) {
            let to = p.to.wrapping_add(first / PANEL * p.to_stride + block * PANEL * PANEL + first % PANEL);
            // SAFETY: sixteen words of the panel of `to` are there, and what is read of `from`.
            unsafe {
                let mut words = [[vdupq_n_u32(0); 4]; 4];
                for k in 0..4 {
                    words[k] = row_pairs(p, first + k, block * PAIRED_PANEL);
                }
                store_transposed(words, to);
            }
        }
    }
}
