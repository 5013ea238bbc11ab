//! The kernels for any CPU: the packing in plain loops, and twins of the three instructions that
//! add the same numbers in the same order.
//!
//! ```text
//! vdpbf16ps:  c = fma(a.hi, b.hi, c);  c = fma(a.lo, b.lo, c)                            (1)
//! tdpbf16ps:  even = odd = 0
//!             for each of up to sixteen words:
//!                 even = fma(a.lo, b.lo, even);  odd = fma(a.hi, b.hi, odd)
//!             c = c + (even + odd)                                                       (1)
//! bfdot:      c = c + (a.lo · b.lo + a.hi · b.hi)                                        (2)
//! ```
//!
//! 1. Each rounds to the nearest, ties to even; subnormal numbers are read and written as zero
//!    (Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2: VDPBF16PS,
//!    TDPBF16PS).
//! 2. A sum between two numbers becomes the one whose last bit is 1; products are exact. Subnormal
//!    numbers are read and written as zero (Arm Architecture Reference Manual for A-profile: BFDOT;
//!    a process begins with FPCR.EBF = 0).

#![allow(unsafe_code, reason = "instructions of the CPU")]

use half::bf16;

use super::Packing;
use crate::kernel::lanes::Words;
use crate::kernel::{PANEL, ProductArguments};

/// Sixteen words, multiplied as bfdot does or else as vdpbf16ps.
#[derive(Clone, Copy)]
struct Dots<const IS_BFDOT: bool>([f32; PANEL]);

impl<const IS_BFDOT: bool> Words for Dots<IS_BFDOT> {
    const ROWS_ONE_PANEL: usize = 3;
    const ROWS_TWO_PANELS: usize = 1;
    const PANELS_OF_FEW: [usize; 4] = [2, 1, 1, 1];
    const PANELS_OF_MANY: usize = 1;

    #[inline(always)]
    unsafe fn splat(x: f32) -> Self {
        Dots([x; PANEL])
    }

    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        // SAFETY: the caller's pointer reaches sixteen words, and an array is read at any
        // alignment.
        Dots(unsafe { from.cast::<[f32; PANEL]>().read_unaligned() })
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        // SAFETY: as in `load`.
        unsafe { to.cast::<[f32; PANEL]>().write_unaligned(self.0) }
    }

    #[inline(always)]
    unsafe fn prefetch(_: *const f32) {}

    #[inline(always)]
    unsafe fn mul_add(self, factor: Self, term: Self) -> Self {
        let add: fn(f32, u32, u32) -> f32 = if IS_BFDOT { bfdot } else { dot };
        Dots(std::array::from_fn(|i| add(term.0[i], self.0[i].to_bits(), factor.0[i].to_bits())))
    }
}

/// # Safety
/// As [`product`](crate::kernel::product::product).
pub(super) unsafe fn product_by_dots(p: &ProductArguments) {
    // SAFETY: the contract is the same; no instruction set is needed.
    unsafe { crate::kernel::product::product::<Dots<false>>(p) }
}

/// # Safety
/// As [`product`](crate::kernel::product::product).
pub(super) unsafe fn product_by_bfdot(p: &ProductArguments) {
    // SAFETY: the contract is the same; no instruction set is needed.
    unsafe { crate::kernel::product::product::<Dots<true>>(p) }
}

/// bfdot: sum + a · b.
pub(super) fn bfdot(sum: f32, a: u32, b: u32) -> f32 {
    let product = |a: f32, b: f32| flushed(flushed(a) * flushed(b));
    sum_to_odd(sum, sum_to_odd(product(low(a), low(b)), product(high(a), high(b))))
}

/// a + b. A sum between two numbers becomes the one whose last bit is 1.
fn sum_to_odd(a: f32, b: f32) -> f32 {
    let (a, b) = (flushed(a), flushed(b));
    let nearest = a + b;
    if nearest.is_infinite() && a.is_finite() && b.is_finite() {
        // Only a sum from 2¹²⁸ on is infinite. Halves of numbers as large as these are exact.
        return 2.0 * sum_to_odd(a / 2.0, b / 2.0);
    }
    let (small, large) = if a.abs() < b.abs() { (a, b) } else { (b, a) };
    // The sum less `nearest`, exactly (Dekker, 1971); NaN where a number is not finite.
    let error = small - (nearest - large);
    if error == 0.0 || error.is_nan() {
        return flushed(nearest);
    }
    let is_beyond = (error < 0.0) == (nearest > 0.0);
    f32::from_bits((nearest.to_bits() - u32::from(is_beyond)) | 1)
}

/// vdpbf16ps: sum + a · b.
fn dot(sum: f32, a: u32, b: u32) -> f32 {
    fused(low(a), low(b), fused(high(a), high(b), sum))
}

/// # Safety
/// As [`product`](crate::kernel::product::product); a and b reach whole panels of the depth.
pub(super) unsafe fn product_by_tiles(p: &ProductArguments) {
    for (panel, row) in (0..p.panels).flat_map(|panel| (0..p.rows).map(move |row| (panel, row))) {
        // SAFETY: the row of the panel lies inside the product, whose pointers reach it by its
        // contract, and whole panels of a's row and b's panel.
        unsafe {
            let c = p.c.add(panel * p.c_stride + row * PANEL).cast::<[f32; PANEL]>();
            let mut sums = match p.start.is_null() {
                true => c.read(),
                false => p.start.add(panel * p.start_stride + row * p.start_row).cast::<[f32; PANEL]>().read(),
            };
            for k in 0..p.depth.div_ceil(PANEL) {
                let a = p.a.add(k * p.a_stride + row * PANEL).cast::<[u32; PANEL]>().read();
                let b = p.b.add(panel * p.b_stride + k * PANEL * PANEL).cast::<[[u32; PANEL]; PANEL]>().read();
                for (i, sum) in sums.iter_mut().enumerate() {
                    *sum = tile_dot(*sum, a.iter().zip(&b).map(|(&a, b)| (a, b[i])));
                }
            }
            c.write(sums);
        }
    }
}

/// One sum of tdpbf16ps: sum + Σ a · b.
pub(super) fn tile_dot(sum: f32, words: impl Iterator<Item = (u32, u32)>) -> f32 {
    let (mut even, mut odd) = (0.0, 0.0);
    for (a, b) in words {
        even = fused(low(a), low(b), even);
        odd = fused(high(a), high(b), odd);
    }
    flushed(flushed(sum) + flushed(even + odd))
}

fn fused(a: f32, b: f32, sum: f32) -> f32 {
    flushed(flushed(a).mul_add(flushed(b), flushed(sum)))
}

fn low(word: u32) -> f32 {
    f32::from_bits(word << 16)
}

fn high(word: u32) -> f32 {
    f32::from_bits(word & 0xffff_0000)
}

/// `x`, or zero of its sign where it is subnormal.
fn flushed(x: f32) -> f32 {
    if x.is_subnormal() { 0f32.copysign(x) } else { x }
}

/// The word of two numbers, rounded.
fn word(low: f32, high: f32) -> f32 {
    let half = |x: f32| u32::from(bf16::from_f32(flushed(x)).to_bits());
    f32::from_bits(half(low) | half(high) << 16)
}

/// # Safety
/// The pointers of `p` reach what [`rows`](super::rows) says.
pub(super) unsafe fn rows(p: &Packing) {
    // SAFETY: columns below `p.columns` of each row are in `from`, and whole panels of `to` are
    // written, as the contract has it.
    unsafe {
        for row in 0..p.rows {
            for at in 0..p.columns.next_multiple_of(2 * PANEL) / 2 {
                let (low, high) = (number(p, row, 2 * at), number(p, row, 2 * at + 1));
                p.to.add(at / PANEL * p.to_stride + row * PANEL + at % PANEL).write(word(low, high));
            }
        }
    }
}

/// # Safety
/// The pointers of `p` reach what [`pairs`](super::pairs) says.
pub(super) unsafe fn pairs(p: &Packing) {
    // SAFETY: rows below `p.rows` of each panel are in `from`, and the padded words of whole panels
    // of `to` are written, as the contract has it.
    unsafe {
        for column in 0..p.columns.next_multiple_of(PANEL) {
            for at in 0..super::padded_words(p.rows) {
                let (low, high) = (number(p, 2 * at, column), number(p, 2 * at + 1, column));
                p.to.add(column / PANEL * p.to_stride + at * PANEL + column % PANEL).write(word(low, high));
            }
        }
    }
}

/// # Safety
/// The pointers of `p` reach what [`transposed_pairs`](super::transposed_pairs) says.
pub(super) unsafe fn transposed_pairs(p: &Packing) {
    // SAFETY: as in `pairs`.
    unsafe {
        for column in 0..p.columns.next_multiple_of(PANEL) {
            for at in 0..super::padded_words(p.rows) {
                let (low, high) = (number(p, 2 * at, column), number(p, 2 * at + 1, column));
                p.to.add(at / PANEL * p.to_stride + column * PANEL + at % PANEL).write(word(low, high));
            }
        }
    }
}

/// # Safety
/// The pointers of `p` reach what [`transposed_rows`](super::blocks) says.
pub(super) unsafe fn transposed_rows(p: &Packing) {
    // SAFETY: as in `pairs`.
    unsafe {
        for row in 0..p.rows.next_multiple_of(PANEL) {
            for at in 0..super::padded_words(p.columns) {
                let (low, high) = (number(p, row, 2 * at), number(p, row, 2 * at + 1));
                p.to.add(row / PANEL * p.to_stride + at * PANEL + row % PANEL).write(word(low, high));
            }
        }
    }
}

/// A number of `from`, zero past its rows and columns.
///
/// # Safety
/// `from` reaches `p.rows` rows of `p.columns` columns.
unsafe fn number(p: &Packing, row: usize, column: usize) -> f32 {
    if row >= p.rows || column >= p.columns {
        return 0.0;
    }
    // SAFETY: the row and the column are there.
    unsafe { p.from.add(column / PANEL * p.from_stride + row * p.from_row + column % PANEL).read() }
}
