//! Sums of products of bytes by the instruction made for them, `sdot`: sixteen products are added
//! to four sums. Bytes below 128 have the same value with a sign.
//!
//! The instruction is written in assembly: the oldest compiler that builds this crate has no
//! function for it.

#![allow(unsafe_code, reason = "instructions of the CPU")]

use std::arch::aarch64::*;
use std::arch::asm;

use super::dots::{Dots, HighLow};
use crate::kernel::neon::Neon;

#[derive(Clone, Copy)]
pub(super) struct NeonSums([int32x4_t; 4]);

impl Dots for NeonSums {
    type Numbers = Neon;
    type Four = int8x16_t;
    type Weights = [int8x16_t; 4];
    // Thirty-two registers: twenty-four sums, four of weights, two numbers of the row.
    const ROWS: usize = 3;
    const TWO: bool = false;
    const PANELS_OF_ONE: usize = 2;

    #[inline(always)]
    unsafe fn load(from: *const i32) -> Self {
        // SAFETY: the caller has NEON, and sixteen numbers from `from` on.
        NeonSums(unsafe { std::array::from_fn(|i| vld1q_s32(from.add(4 * i))) })
    }

    #[inline(always)]
    unsafe fn four(from: *const u8) -> int8x16_t {
        // SAFETY: the caller has NEON, and four bytes from `from` on.
        unsafe { vreinterpretq_s8_s32(vdupq_n_s32(from.cast::<i32>().read_unaligned())) }
    }

    #[inline(always)]
    unsafe fn weights(from: *const i8) -> [int8x16_t; 4] {
        // SAFETY: the caller has NEON, and sixty-four bytes from `from` on.
        unsafe { std::array::from_fn(|i| vld1q_s8(from.add(16 * i))) }
    }

    #[inline(always)]
    unsafe fn dot(mut self, x: int8x16_t, weights: [int8x16_t; 4]) -> Self {
        for (sums, weights) in self.0.iter_mut().zip(weights) {
            // SAFETY: the caller has NEON's dot products, which read and write these registers
            // alone.
            unsafe {
                asm!(
                    "sdot {sums:v}.4s, {weights:v}.16b, {x:v}.16b",
                    sums = inout(vreg) *sums,
                    weights = in(vreg) weights,
                    x = in(vreg) x,
                    options(pure, nomem, nostack, preserves_flags)
                );
            }
        }
        self
    }

    #[inline(always)]
    unsafe fn numbers(self) -> Neon {
        // SAFETY: the caller has NEON.
        Neon(self.0.map(|sums| unsafe { vcvtq_f32_s32(sums) }))
    }
}

super::byte_entry_points!(HighLow<NeonSums>, "neon,dotprod");
