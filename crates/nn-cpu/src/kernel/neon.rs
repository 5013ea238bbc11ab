//! Kernels for AArch64 with NEON: a row of sixteen is four registers of four.
//!
//! A multiply-add takes one number of a register as the factor of four others. Factors are
//! therefore loaded four at a time, and no instruction spreads them: of the instructions of a
//! product more than four in five are multiply-adds.

#![allow(unsafe_code, reason = "instructions of the CPU")]
#![allow(clippy::needless_range_loop, reason = "the indices are rows and panels of a tile, counted at compile time")]

use std::arch::aarch64::*;
use std::arch::asm;

use super::PANEL;
use super::lanes::{Lanes, Words};

#[derive(Clone, Copy)]
pub(super) struct Neon(pub(super) [float32x4_t; 4]);

/// Applies an instruction to each quarter.
macro_rules! quarters {
    ($instruction:ident, $($operand:expr),+) => {
        // SAFETY: the caller has NEON, which is all that these instructions on values need.
        unsafe { Neon(std::array::from_fn(|i| $instruction($($operand.0[i]),+))) }
    };
}

/// sums[r][q] += number K of factors[r] · row q of b: one column of a tile.
///
/// # Safety
/// The CPU has NEON; b has a row of P panels, `b_stride` apart.
#[inline(always)]
unsafe fn add_number<const K: i32, const R: usize, const P: usize>(
    sums: &mut [[Neon; P]; R],
    factors: &[float32x4_t; R],
    b: *const f32,
    b_stride: usize,
) {
    // SAFETY: the contract is the same.
    unsafe {
        for q in 0..P {
            for i in 0..4 {
                let row = vld1q_f32(b.wrapping_add(q * b_stride + 4 * i));
                for r in 0..R {
                    sums[r][q].0[i] = vfmaq_laneq_f32::<K>(sums[r][q].0[i], row, factors[r]);
                }
            }
        }
    }
}

/// [`Words::add_columns`], of which `$add` adds each column, with factors that are loaded four at a
/// time.
macro_rules! add_columns {
    ($add:ident) => {
        #[inline(always)]
        unsafe fn add_columns<const R: usize, const P: usize>(
            sums: &mut [[Self; P]; R],
            a: *const f32,
            b: *const f32,
            b_stride: usize,
        ) {
            // SAFETY: the caller has the instructions, four columns of R rows of a and four rows of
            // P panels of b.
            unsafe {
                let factors = std::array::from_fn(|r| vld1q_f32(a.wrapping_add(r * PANEL)));
                $add::<0, R, P>(sums, &factors, b, b_stride);
                $add::<1, R, P>(sums, &factors, b.wrapping_add(PANEL), b_stride);
                $add::<2, R, P>(sums, &factors, b.wrapping_add(2 * PANEL), b_stride);
                $add::<3, R, P>(sums, &factors, b.wrapping_add(3 * PANEL), b_stride);
            }
        }
    };
}
pub(super) use add_columns;

impl Words for Neon {
    // Thirty-two registers: twenty-four sums, six of factors, two of a row of the second operand.
    const ROWS_ONE_PANEL: usize = 6;
    const ROWS_TWO_PANELS: usize = 3;
    const PANELS_OF_FEW: [usize; 4] = [4, 2, 2, 1];
    const PANELS_OF_MANY: usize = 1;

    #[inline(always)]
    unsafe fn splat(x: f32) -> Self {
        // SAFETY: the caller has NEON.
        Neon([unsafe { vdupq_n_f32(x) }; 4])
    }

    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        // SAFETY: the caller has NEON, and sixteen numbers from `from` on.
        Neon(unsafe { std::array::from_fn(|i| vld1q_f32(from.add(4 * i))) })
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        // SAFETY: the caller has NEON, and room for sixteen numbers from `to` on.
        unsafe { (0..4).for_each(|i| vst1q_f32(to.add(4 * i), self.0[i])) }
    }

    #[inline(always)]
    unsafe fn prefetch(from: *const f32) {
        // SAFETY: a hint, which touches no memory, to any CPU of this architecture.
        unsafe { asm!("prfm pldl2keep, [{}]", in(reg) from, options(readonly, nostack, preserves_flags)) }
    }

    #[inline(always)]
    unsafe fn mul_add(self, factor: Self, term: Self) -> Self {
        quarters!(vfmaq_f32, term, self, factor)
    }

    add_columns!(add_number);

    #[inline(always)]
    unsafe fn add_row<const J: usize, const P: usize>(
        sums: &mut [[Self; P]; J],
        a: *const f32,
        d: *const f32,
        d_stride: usize,
    ) {
        // SAFETY: the caller has NEON, J numbers of a and a row of P panels of d.
        unsafe {
            // Four numbers a register. The last ones are the end of the last four, or one each.
            let fours = J / 4 * 4;
            let factors: [_; J] = std::array::from_fn(|j| match (j < fours, fours > 0) {
                (true, _) => vld1q_f32(a.wrapping_add(j / 4 * 4)),
                (false, true) => vld1q_f32(a.wrapping_add(J - 4)),
                (false, false) => vld1q_dup_f32(a.wrapping_add(j)),
            });
            for q in 0..P {
                for i in 0..4 {
                    let row = vld1q_f32(d.wrapping_add(q * d_stride + 4 * i));
                    for j in (0..fours).step_by(4) {
                        sums[j][q].0[i] = vfmaq_laneq_f32::<0>(sums[j][q].0[i], row, factors[j]);
                        sums[j + 1][q].0[i] = vfmaq_laneq_f32::<1>(sums[j + 1][q].0[i], row, factors[j]);
                        sums[j + 2][q].0[i] = vfmaq_laneq_f32::<2>(sums[j + 2][q].0[i], row, factors[j]);
                        sums[j + 3][q].0[i] = vfmaq_laneq_f32::<3>(sums[j + 3][q].0[i], row, factors[j]);
                    }
                    for j in fours..J {
                        sums[j][q].0[i] = match J - j {
                            1 => vfmaq_laneq_f32::<3>(sums[j][q].0[i], row, factors[j]),
                            2 => vfmaq_laneq_f32::<2>(sums[j][q].0[i], row, factors[j]),
                            _ => vfmaq_laneq_f32::<1>(sums[j][q].0[i], row, factors[j]),
                        };
                    }
                }
            }
        }
    }
}

impl Lanes for Neon {
    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        quarters!(vaddq_f32, self, other)
    }

    #[inline(always)]
    unsafe fn sub(self, other: Self) -> Self {
        quarters!(vsubq_f32, self, other)
    }

    #[inline(always)]
    unsafe fn mul(self, other: Self) -> Self {
        quarters!(vmulq_f32, self, other)
    }

    #[inline(always)]
    unsafe fn div(self, other: Self) -> Self {
        quarters!(vdivq_f32, self, other)
    }

    #[inline(always)]
    unsafe fn mul_sub_from(self, factor: Self, term: Self) -> Self {
        quarters!(vfmsq_f32, term, self, factor)
    }

    // `fmin` and `fmax` give NaN where either is NaN.
    #[inline(always)]
    unsafe fn min(self, other: Self) -> Self {
        // SAFETY: the caller has NEON.
        Neon(unsafe { std::array::from_fn(|i| vbslq_f32(vcltq_f32(self.0[i], other.0[i]), self.0[i], other.0[i])) })
    }

    #[inline(always)]
    unsafe fn max(self, other: Self) -> Self {
        // SAFETY: the caller has NEON.
        Neon(unsafe { std::array::from_fn(|i| vbslq_f32(vcgtq_f32(self.0[i], other.0[i]), self.0[i], other.0[i])) })
    }

    #[inline(always)]
    unsafe fn round(self) -> Self {
        quarters!(vrndnq_f32, self)
    }

    #[inline(always)]
    unsafe fn power_of_two(self) -> Self {
        // SAFETY: the caller has NEON.
        unsafe {
            let bias = vdupq_n_s32(127);
            let power = |n| vreinterpretq_f32_s32(vshlq_n_s32::<23>(vaddq_s32(vcvtq_s32_f32(n), bias)));
            Neon(self.0.map(power))
        }
    }

    #[inline(always)]
    unsafe fn abs(self) -> Self {
        quarters!(vabsq_f32, self)
    }

    #[inline(always)]
    unsafe fn copysign(self, sign: Self) -> Self {
        // SAFETY: the caller has NEON.
        unsafe {
            let mask = vdupq_n_u32(1 << 31);
            Neon(std::array::from_fn(|i| vbslq_f32(mask, sign.0[i], self.0[i])))
        }
    }

    #[inline(always)]
    unsafe fn zero_where_less(self, tested: Self, limit: Self) -> Self {
        // SAFETY: the caller has NEON.
        unsafe {
            let kept = |i: usize| vbicq_u32(vreinterpretq_u32_f32(self.0[i]), vcltq_f32(tested.0[i], limit.0[i]));
            Neon(std::array::from_fn(|i| vreinterpretq_f32_u32(kept(i))))
        }
    }

    #[inline(always)]
    unsafe fn where_positive(self, tested: Self, other: Self) -> Self {
        // SAFETY: the caller has NEON.
        Neon(unsafe { std::array::from_fn(|i| vbslq_f32(vcgtzq_f32(tested.0[i]), self.0[i], other.0[i])) })
    }

    #[inline(always)]
    unsafe fn sum(self) -> f32 {
        // SAFETY: the caller has NEON.
        unsafe {
            let [first, second, third, fourth] = self.0;
            let four = vaddq_f32(vaddq_f32(first, third), vaddq_f32(second, fourth));
            vaddv_f32(vadd_f32(vget_low_f32(four), vget_high_f32(four)))
        }
    }
}

super::entry_points!(Neon, "neon");
