//! Products by `bfdot`: a row of sixteen words is four registers. The loop over a block is that of
//! `kernel/product.rs`. As in `kernel/neon.rs`, factors are loaded four at a time, and no
//! instruction spreads them.
//!
//! The instruction is written in assembly: no stable function stands for it.

#![allow(unsafe_code, reason = "instructions of the CPU")]
#![allow(clippy::needless_range_loop, reason = "the indices are rows and panels of a tile, counted at compile time")]

use std::arch::aarch64::*;
use std::arch::asm;

use crate::kernel::lanes::Words;
use crate::kernel::neon::{Neon, add_columns};
use crate::kernel::{PANEL, ProductArguments};

#[derive(Clone, Copy)]
struct Dots(Neon);

/// sums[r][q] += word K of factors[r] · row q of b: one column of a tile.
///
/// # Safety
/// The CPU has BF16; b has a row of P panels, `b_stride` apart.
#[inline(always)]
unsafe fn add_word<const K: i32, const R: usize, const P: usize>(
    sums: &mut [[Dots; P]; R],
    factors: &[float32x4_t; R],
    b: *const f32,
    b_stride: usize,
) {
    for q in 0..P {
        for i in 0..4 {
            // SAFETY: the row is there; the instruction reads and writes these registers alone.
            unsafe {
                let row = vld1q_f32(b.wrapping_add(q * b_stride + 4 * i));
                for r in 0..R {
                    asm!(
                        "bfdot {sums:v}.4s, {row:v}.8h, {factors:v}.2h[{word}]",
                        sums = inout(vreg) sums[r][q].0.0[i],
                        row = in(vreg) row,
                        factors = in(vreg) factors[r],
                        word = const K,
                        options(pure, nomem, nostack, preserves_flags)
                    );
                }
            }
        }
    }
}

impl Words for Dots {
    const ROWS_ONE_PANEL: usize = Neon::ROWS_ONE_PANEL;
    const ROWS_TWO_PANELS: usize = Neon::ROWS_TWO_PANELS;
    const PANELS_OF_FEW: [usize; 4] = Neon::PANELS_OF_FEW;
    const PANELS_OF_MANY: usize = Neon::PANELS_OF_MANY;

    #[inline(always)]
    unsafe fn splat(x: f32) -> Self {
        // SAFETY: the contract is the same.
        Dots(unsafe { Neon::splat(x) })
    }

    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        // SAFETY: the contract is the same.
        Dots(unsafe { Neon::load(from) })
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        // SAFETY: the contract is the same.
        unsafe { self.0.store(to) }
    }

    #[inline(always)]
    unsafe fn prefetch(from: *const f32) {
        // SAFETY: the contract is the same.
        unsafe { Neon::prefetch(from) }
    }

    #[inline(always)]
    unsafe fn mul_add(self, factor: Self, term: Self) -> Self {
        let mut sums = term.0.0;
        for ((sums, a), b) in sums.iter_mut().zip(self.0.0).zip(factor.0.0) {
            // SAFETY: the caller has BF16; the instruction reads and writes these registers alone.
            unsafe {
                asm!(
                    "bfdot {sums:v}.4s, {a:v}.8h, {b:v}.8h",
                    sums = inout(vreg) *sums,
                    a = in(vreg) a,
                    b = in(vreg) b,
                    options(pure, nomem, nostack, preserves_flags)
                );
            }
        }
        Dots(Neon(sums))
    }

    add_columns!(add_word);
}

/// # Safety
/// As [`product`](crate::kernel::product::product).
#[target_feature(enable = "neon,bf16")]
pub(super) unsafe fn product(p: &ProductArguments) {
    // SAFETY: the caller keeps this function's contract, which is the kernel's.
    unsafe { crate::kernel::product::product::<Dots>(p) }
}
