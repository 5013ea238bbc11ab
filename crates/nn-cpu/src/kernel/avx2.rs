//! Kernels for x86-64 with AVX2 and FMA: a row of sixteen is two registers of eight.

#![allow(unsafe_code, reason = "instructions of the CPU")]

use std::arch::x86_64::*;

use super::lanes::{Lanes, Words};

#[derive(Clone, Copy)]
pub(super) struct Avx2(pub(super) __m256, pub(super) __m256);

/// Applies an instruction to both halves.
macro_rules! halves {
    ($instruction:ident, $($operand:expr),+) => {
        // SAFETY: the caller has AVX2 and FMA, which is all that these instructions on values need.
        unsafe { Avx2($instruction($($operand.0),+), $instruction($($operand.1),+)) }
    };
}

impl Words for Avx2 {
    // Sixteen registers: twelve sums, one row of the second operand (two registers) and one
    // broadcast number.
    const ROWS_ONE_PANEL: usize = 6;
    const ROWS_TWO_PANELS: usize = 3;
    const PANELS_OF_FEW: [usize; 4] = [4, 2, 2, 1];
    const PANELS_OF_MANY: usize = 1;

    #[inline(always)]
    unsafe fn splat(x: f32) -> Self {
        // SAFETY: the caller has AVX2.
        let all = unsafe { _mm256_set1_ps(x) };
        Avx2(all, all)
    }

    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        // SAFETY: the caller has AVX2, and sixteen numbers from `from` on.
        unsafe { Avx2(_mm256_loadu_ps(from), _mm256_loadu_ps(from.add(8))) }
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        // SAFETY: the caller has AVX2, and room for sixteen numbers from `to` on.
        unsafe {
            _mm256_storeu_ps(to, self.0);
            _mm256_storeu_ps(to.add(8), self.1);
        }
    }

    #[inline(always)]
    unsafe fn prefetch(from: *const f32) {
        // SAFETY: a hint, which touches no memory, to any CPU of this architecture.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(from.cast()) }
    }

    #[inline(always)]
    unsafe fn mul_add(self, factor: Self, term: Self) -> Self {
        halves!(_mm256_fmadd_ps, self, factor, term)
    }
}

impl Lanes for Avx2 {
    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        halves!(_mm256_add_ps, self, other)
    }

    #[inline(always)]
    unsafe fn sub(self, other: Self) -> Self {
        halves!(_mm256_sub_ps, self, other)
    }

    #[inline(always)]
    unsafe fn mul(self, other: Self) -> Self {
        halves!(_mm256_mul_ps, self, other)
    }

    #[inline(always)]
    unsafe fn div(self, other: Self) -> Self {
        halves!(_mm256_div_ps, self, other)
    }

    #[inline(always)]
    unsafe fn mul_sub_from(self, factor: Self, term: Self) -> Self {
        halves!(_mm256_fnmadd_ps, self, factor, term)
    }

    #[inline(always)]
    unsafe fn min(self, other: Self) -> Self {
        halves!(_mm256_min_ps, self, other)
    }

    #[inline(always)]
    unsafe fn max(self, other: Self) -> Self {
        halves!(_mm256_max_ps, self, other)
    }

    #[inline(always)]
    unsafe fn round(self) -> Self {
        const NEAREST: i32 = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
        // SAFETY: the caller has AVX2.
        unsafe { Avx2(_mm256_round_ps::<NEAREST>(self.0), _mm256_round_ps::<NEAREST>(self.1)) }
    }

    #[inline(always)]
    unsafe fn power_of_two(self) -> Self {
        // SAFETY: the caller has AVX2.
        unsafe {
            let bias = _mm256_set1_epi32(127);
            let low = _mm256_slli_epi32::<23>(_mm256_add_epi32(_mm256_cvtps_epi32(self.0), bias));
            let high = _mm256_slli_epi32::<23>(_mm256_add_epi32(_mm256_cvtps_epi32(self.1), bias));
            Avx2(_mm256_castsi256_ps(low), _mm256_castsi256_ps(high))
        }
    }

    #[inline(always)]
    unsafe fn abs(self) -> Self {
        // SAFETY: the caller has AVX2.
        let sign = unsafe { Self::splat(-0.0) };
        halves!(_mm256_andnot_ps, sign, self)
    }

    #[inline(always)]
    unsafe fn copysign(self, sign: Self) -> Self {
        // SAFETY: the caller has AVX2.
        let (magnitude, mask) = unsafe { (self.abs(), Self::splat(-0.0)) };
        let sign = halves!(_mm256_and_ps, mask, sign);
        halves!(_mm256_or_ps, magnitude, sign)
    }

    #[inline(always)]
    unsafe fn zero_where_less(self, tested: Self, limit: Self) -> Self {
        // SAFETY: the caller has AVX2.
        let less = unsafe {
            Avx2(_mm256_cmp_ps::<_CMP_LT_OQ>(tested.0, limit.0), _mm256_cmp_ps::<_CMP_LT_OQ>(tested.1, limit.1))
        };
        halves!(_mm256_andnot_ps, less, self)
    }

    #[inline(always)]
    unsafe fn where_positive(self, tested: Self, other: Self) -> Self {
        // SAFETY: the caller has AVX2.
        unsafe {
            let zero = _mm256_setzero_ps();
            let low = _mm256_cmp_ps::<_CMP_GT_OQ>(tested.0, zero);
            let high = _mm256_cmp_ps::<_CMP_GT_OQ>(tested.1, zero);
            Avx2(_mm256_blendv_ps(other.0, self.0, low), _mm256_blendv_ps(other.1, self.1, high))
        }
    }

    #[inline(always)]
    unsafe fn sum(self) -> f32 {
        // SAFETY: the caller has AVX2.
        unsafe {
            let eight = _mm256_add_ps(self.0, self.1);
            let four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps::<1>(eight));
            let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
            _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)))
        }
    }
}

super::entry_points!(Avx2, "avx2,fma");
