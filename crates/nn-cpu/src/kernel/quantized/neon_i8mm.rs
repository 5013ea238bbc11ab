//! Sums of products of bytes by FEAT_I8MM's `smmla`: two rows, the high and the low bytes of eight
//! inputs, times the weights of two outputs are added to four sums. Bytes below 128 have the same
//! value with a sign.
//!
//! The instruction is written in assembly: no stable function stands for it.

#![allow(unsafe_code, reason = "instructions of the CPU")]

use std::arch::aarch64::*;
use std::arch::asm;

use super::dots::RowSums;
use super::{BASE, GROUP};
use crate::kernel::lanes::{Lanes, Words};
use crate::kernel::neon::Neon;

/// The sums of each two outputs: two of high bytes, two of low ones.
#[derive(Clone, Copy)]
pub(super) struct Matrices([int32x4_t; 8]);

impl RowSums for Matrices {
    type Numbers = Neon;
    type Bytes = int8x16_t;
    type Weights = [int8x16_t; 8];
    const GROUP: usize = 2 * GROUP;
    // Thirty-two registers: sixteen sums, eight of weights, two of rows.
    const ROWS: usize = 2;
    const TWO: bool = false;
    const PANELS_OF_ONE: usize = 2;

    #[inline(always)]
    unsafe fn load(from: *const i32) -> Self {
        // SAFETY: the caller has NEON, and sixteen numbers from `from` on.
        Matrices(unsafe { std::array::from_fn(|i| vcombine_s32(vld1_s32(from.add(2 * i)), vdup_n_s32(0))) })
    }

    #[inline(always)]
    unsafe fn bytes(high: *const u8, low: *const u8) -> int8x16_t {
        // SAFETY: the caller has NEON, and eight bytes from each on.
        unsafe { vcombine_s8(vld1_s8(high.cast()), vld1_s8(low.cast())) }
    }

    #[inline(always)]
    unsafe fn weights(from: *const i8) -> [int8x16_t; 8] {
        // SAFETY: the caller has NEON, and 128 bytes from `from` on.
        unsafe { std::array::from_fn(|i| vld1q_s8(from.add(16 * i))) }
    }

    #[inline(always)]
    unsafe fn dot(mut self, x: int8x16_t, weights: [int8x16_t; 8]) -> Self {
        for (sums, weights) in self.0.iter_mut().zip(weights) {
            // SAFETY: the caller has I8MM; the instruction reads and writes these registers alone.
            unsafe {
                asm!(
                    "smmla {sums:v}.4s, {x:v}.16b, {weights:v}.16b",
                    sums = inout(vreg) *sums,
                    x = in(vreg) x,
                    weights = in(vreg) weights,
                    options(pure, nomem, nostack, preserves_flags)
                );
            }
        }
        self
    }

    #[inline(always)]
    unsafe fn numbers(self) -> Neon {
        let pairs = |i: usize| (self.0[2 * i], self.0[2 * i + 1]);
        // SAFETY: the caller has NEON.
        unsafe {
            let high = std::array::from_fn(|i| {
                let (left, right) = pairs(i);
                vcvtq_f32_s32(vcombine_s32(vget_low_s32(left), vget_low_s32(right)))
            });
            let low = std::array::from_fn(|i| {
                let (left, right) = pairs(i);
                vcvtq_f32_s32(vcombine_s32(vget_high_s32(left), vget_high_s32(right)))
            });
            Neon(high).mul(Neon::splat(BASE)).add(Neon(low))
        }
    }
}

super::byte_entry_points!(Matrices, "neon,i8mm");
