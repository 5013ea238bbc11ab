//! Kernels for AArch64 with NEON: sixteen numbers are four registers of four.

#![allow(unsafe_code, reason = "instructions of the CPU")]

use std::arch::aarch64::*;
use std::array;

use super::lanes::{ExactLanes, Lanes};

#[derive(Clone, Copy)]
pub(super) struct Neon([float32x4_t; 4]);

impl Lanes for Neon {
    // Thirty-two registers: sixteen sums, one row of the second operand (four registers) and
    // broadcast numbers.
    const ROWS: usize = 4;
    const PANELS: usize = 1;

    #[inline(always)]
    unsafe fn splat(x: f32) -> Self {
        // SAFETY: the caller has NEON.
        Neon([unsafe { vdupq_n_f32(x) }; 4])
    }

    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        // SAFETY: the caller has NEON, and sixteen numbers from `from` on.
        Neon(unsafe { array::from_fn(|i| vld1q_f32(from.add(4 * i))) })
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        // SAFETY: the caller has NEON, and room for sixteen numbers from `to` on.
        unsafe { (0..4).for_each(|i| vst1q_f32(to.add(4 * i), self.0[i])) }
    }

    #[inline(always)]
    unsafe fn mul_add(self, factor: Self, term: Self) -> Self {
        // SAFETY: the caller has NEON.
        Neon(unsafe { array::from_fn(|i| vfmaq_f32(term.0[i], self.0[i], factor.0[i])) })
    }

    #[inline(always)]
    unsafe fn larger(self, other: Self) -> Self {
        // SAFETY: the caller has NEON.
        Neon(unsafe { array::from_fn(|i| vmaxnmq_f32(self.0[i], other.0[i])) })
    }

    #[inline(always)]
    unsafe fn at_least(self, limit: Self) -> u16 {
        /// Bits of the numbers of a register.
        const BITS: [u32; 4] = [1, 2, 4, 8];
        // SAFETY: the caller has NEON, and the bits are four.
        unsafe {
            let bits = vld1q_u32(BITS.as_ptr());
            let quarter = |i: usize| vaddvq_u32(vandq_u32(vcgeq_f32(self.0[i], limit.0[i]), bits)) << (4 * i);
            (quarter(0) | quarter(1) | quarter(2) | quarter(3)) as u16
        }
    }

    #[inline(always)]
    unsafe fn counting(self, x: Self, limit: Self) -> Self {
        // SAFETY: the caller has NEON.
        unsafe {
            let one = vreinterpretq_u32_f32(vdupq_n_f32(1.0));
            let counted = |i: usize| vreinterpretq_f32_u32(vandq_u32(vcgeq_f32(x.0[i], limit.0[i]), one));
            Neon(array::from_fn(|i| vaddq_f32(self.0[i], counted(i))))
        }
    }

    #[inline(always)]
    unsafe fn where_at_least(self, counts: Self, least: Self) -> Self {
        // SAFETY: the caller has NEON.
        unsafe {
            let none = vdupq_n_f32(f32::NEG_INFINITY);
            Neon(array::from_fn(|i| vbslq_f32(vcgeq_f32(counts.0[i], least.0[i]), self.0[i], none)))
        }
    }

    #[inline(always)]
    unsafe fn largest(self) -> f32 {
        // SAFETY: the caller has NEON.
        unsafe {
            let [first, second, third, fourth] = self.0;
            vmaxvq_f32(vmaxq_f32(vmaxq_f32(first, second), vmaxq_f32(third, fourth)))
        }
    }
}

#[derive(Clone, Copy)]
pub(super) struct ExactNeon([float64x2_t; 4]);

impl ExactLanes for ExactNeon {
    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: the caller has NEON.
        ExactNeon([unsafe { vdupq_n_f64(0.0) }; 4])
    }

    #[inline(always)]
    unsafe fn load(from: *const f64) -> Self {
        // SAFETY: the caller has NEON, and eight numbers from `from` on.
        ExactNeon(unsafe { array::from_fn(|i| vld1q_f64(from.add(2 * i))) })
    }

    #[inline(always)]
    unsafe fn plus(self, other: Self) -> Self {
        // SAFETY: the caller has NEON.
        ExactNeon(unsafe { array::from_fn(|i| vaddq_f64(self.0[i], other.0[i])) })
    }

    #[inline(always)]
    unsafe fn minus(self, other: Self) -> Self {
        // SAFETY: the caller has NEON.
        ExactNeon(unsafe { array::from_fn(|i| vsubq_f64(self.0[i], other.0[i])) })
    }

    #[inline(always)]
    unsafe fn times(self, other: Self) -> Self {
        // SAFETY: the caller has NEON.
        ExactNeon(unsafe { array::from_fn(|i| vmulq_f64(self.0[i], other.0[i])) })
    }

    #[inline(always)]
    unsafe fn sum(self) -> f64 {
        // SAFETY: the caller has NEON.
        unsafe {
            let [first, second, third, fourth] = self.0;
            vaddvq_f64(vaddq_f64(vaddq_f64(first, third), vaddq_f64(second, fourth)))
        }
    }
}

super::entry_points!(Neon, ExactNeon, "neon");
