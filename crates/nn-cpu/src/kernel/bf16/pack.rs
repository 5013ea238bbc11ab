//! Packing by AVX512_BF16.

#![allow(unsafe_code, reason = "instructions of the CPU")]

use std::arch::x86_64::*;
use std::mem::transmute;

use super::{PAIRED_PANEL, Packing, padded_words};
use crate::kernel::PANEL;

/// Halves of a register in the order 0, 16, 1, 17, …: two rows of sixteen become pairs of columns.
static INTERLEAVED: [i16; 32] = {
    let (mut order, mut i) = ([0; 32], 0);
    while i < 32 {
        order[i] = i as i16 / 2 + i as i16 % 2 * 16;
        i += 1;
    }
    order
};

/// Thirty-two numbers, rounded: `low` in the lower half of the register.
#[inline(always)]
unsafe fn rounded(low: __m512, high: __m512) -> __m512i {
    // SAFETY: the caller has AVX512_BF16; both types are 64 bytes of any content.
    unsafe { transmute(_mm512_cvtne2ps_pbh(high, low)) }
}

/// Columns of a row of sixteen that are below `columns`.
fn mask(first: usize, columns: usize) -> __mmask16 {
    ((1u32 << columns.saturating_sub(first).min(PANEL)) - 1) as __mmask16
}

/// # Safety
/// The pointers of `p` reach what [`rows`](super::rows) says; the CPU has AVX512_BF16.
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
pub(super) unsafe fn rows(p: &Packing) {
    for panel in 0..p.columns.div_ceil(PAIRED_PANEL) {
        let first = panel * PAIRED_PANEL;
        let (low, high) = (mask(first, p.columns), mask(first + PANEL, p.columns));
        let (from, to) = (p.from.wrapping_add(2 * panel * p.from_stride), p.to.wrapping_add(panel * p.to_stride));
        for row in 0..p.rows {
            // SAFETY: the row of the panel of `to` and, with the masks, those of the two panels of
            // `from` are there.
            unsafe {
                let from = from.wrapping_add(row * p.from_row);
                let low = _mm512_maskz_loadu_ps(low, from);
                let high = _mm512_maskz_loadu_ps(high, from.wrapping_add(p.from_stride));
                _mm512_storeu_si512(to.wrapping_add(row * PANEL).cast(), rounded(low, high));
            }
        }
    }
}

/// # Safety
/// The pointers of `p` reach what [`pairs`](super::pairs) says; the CPU has AVX512_BF16.
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
pub(super) unsafe fn pairs(p: &Packing) {
    for panel in 0..p.columns.div_ceil(PANEL) {
        let (from, to) = (p.from.wrapping_add(panel * p.from_stride), p.to.wrapping_add(panel * p.to_stride));
        let mask = mask(panel * PANEL, p.columns);
        for at in 0..padded_words(p.rows) {
            // SAFETY: the padded words of `to` are there; of `from` no row past the last is read
            // and no column past the mask.
            unsafe {
                let pair = pair(p, from, 2 * at, mask);
                _mm512_storeu_si512(to.wrapping_add(at * PANEL).cast(), pair);
            }
        }
    }
}

/// Rows `row` and `row` + 1 of the panel `from` of `p` in the columns of `mask`, as pairs; zero
/// past the last row.
///
/// # Safety
/// `from` reaches these columns of all rows; the CPU has AVX512_BF16.
#[inline(always)]
unsafe fn pair(p: &Packing, from: *const f32, row: usize, mask: __mmask16) -> __m512i {
    let masks = [row, row + 1].map(|row| if row < p.rows { mask } else { 0 });
    // SAFETY: what the masks leave is there.
    unsafe {
        let even = _mm512_maskz_loadu_ps(masks[0], from.wrapping_add(row * p.from_row));
        let odd = _mm512_maskz_loadu_ps(masks[1], from.wrapping_add((row + 1) * p.from_row));
        _mm512_permutexvar_epi16(_mm512_loadu_si512(INTERLEAVED.as_ptr().cast()), rounded(even, odd))
    }
}

/// # Safety
/// The pointers of `p` reach what [`transposed_pairs`](super::transposed_pairs) says; the CPU has
/// AVX512_BF16.
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
pub(super) unsafe fn transposed_pairs(p: &Packing) {
    for panel in 0..p.columns.div_ceil(PANEL) {
        let from = p.from.wrapping_add(panel * p.from_stride);
        let mask = mask(panel * PANEL, p.columns);
        for block in 0..p.rows.div_ceil(PAIRED_PANEL) {
            // SAFETY: sixteen columns of the block's panel of `to` are there; of `from` no row past
            // the last is read and no column past the mask.
            unsafe {
                let mut words = [_mm512_setzero_si512(); PANEL];
                for (at, word) in words.iter_mut().enumerate() {
                    *word = pair(p, from, block * PAIRED_PANEL + 2 * at, mask);
                }
                let to = p.to.wrapping_add(block * p.to_stride + panel * PANEL * PANEL);
                for (column, word) in transposed(words).into_iter().enumerate() {
                    _mm512_storeu_si512(to.wrapping_add(column * PANEL).cast(), word);
                }
            }
        }
    }
}

/// # Safety
/// The pointers of `p` reach what [`transposed_rows`](super::blocks) says; the CPU has AVX512_BF16.
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
pub(super) unsafe fn transposed_rows(p: &Packing) {
    for panel in 0..p.rows.div_ceil(PANEL) {
        for block in 0..p.columns.div_ceil(PAIRED_PANEL) {
            let first = block * PAIRED_PANEL;
            let (low, high) = (mask(first, p.columns), mask(first + PANEL, p.columns));
            let from = p.from.wrapping_add(2 * block * p.from_stride);
            // SAFETY: sixteen words of the panel of `to` are there; of `from` no row past the last
            // is read and no column past the masks.
            unsafe {
                let mut words = [_mm512_setzero_si512(); PANEL];
                for (row, word) in (panel * PANEL..p.rows).zip(&mut words) {
                    let from = from.wrapping_add(row * p.from_row);
                    let low = _mm512_maskz_loadu_ps(low, from);
                    let high = _mm512_maskz_loadu_ps(high, from.wrapping_add(p.from_stride));
                    *word = rounded(low, high);
                }
                let to = p.to.wrapping_add(panel * p.to_stride + block * PANEL * PANEL);
                for (at, word) in transposed(words).into_iter().enumerate() {
                    _mm512_storeu_si512(to.wrapping_add(at * PANEL).cast(), word);
                }
            }
        }
    }
}

/// The transpose of sixteen rows of sixteen words: pairs of rows, fours, and then lanes of 128
/// bits.
#[inline(always)]
unsafe fn transposed(rows: [__m512i; PANEL]) -> [__m512i; PANEL] {
    // SAFETY: arithmetic on values only; the caller has AVX-512F.
    unsafe {
        let mut fours = [_mm512_setzero_si512(); PANEL];
        for i in 0..4 {
            let [a, b, c, d] = [rows[4 * i], rows[4 * i + 1], rows[4 * i + 2], rows[4 * i + 3]];
            let (ab, cd) = (_mm512_unpacklo_epi32(a, b), _mm512_unpacklo_epi32(c, d));
            let (ab_high, cd_high) = (_mm512_unpackhi_epi32(a, b), _mm512_unpackhi_epi32(c, d));
            fours[4 * i] = _mm512_unpacklo_epi64(ab, cd);
            fours[4 * i + 1] = _mm512_unpackhi_epi64(ab, cd);
            fours[4 * i + 2] = _mm512_unpacklo_epi64(ab_high, cd_high);
            fours[4 * i + 3] = _mm512_unpackhi_epi64(ab_high, cd_high);
        }
        // Lane q of fours[4 i + j] is column 4 q + j of rows 4 i..4 i + 4.
        let mut columns = [_mm512_setzero_si512(); PANEL];
        for j in 0..4 {
            let [a, b, c, d] = [fours[j], fours[4 + j], fours[8 + j], fours[12 + j]];
            let (ab, cd) = (_mm512_shuffle_i32x4::<0x44>(a, b), _mm512_shuffle_i32x4::<0x44>(c, d));
            let (ab_high, cd_high) = (_mm512_shuffle_i32x4::<0xee>(a, b), _mm512_shuffle_i32x4::<0xee>(c, d));
            columns[j] = _mm512_shuffle_i32x4::<0x88>(ab, cd);
            columns[4 + j] = _mm512_shuffle_i32x4::<0xdd>(ab, cd);
            columns[8 + j] = _mm512_shuffle_i32x4::<0x88>(ab_high, cd_high);
            columns[12 + j] = _mm512_shuffle_i32x4::<0xdd>(ab_high, cd_high);
        }
        columns
    }
}
