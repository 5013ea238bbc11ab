//! Kernels for x86-64 with AVX-512F: a row of sixteen is one register.

#![allow(unsafe_code, reason = "instructions of the CPU")]

use std::arch::x86_64::*;

use super::lanes::{Lanes, Words};

#[derive(Clone, Copy)]
pub(super) struct Avx512(pub(super) __m512);

/// Applies an instruction to the register.
macro_rules! whole {
    ($instruction:ident, $($operand:expr),+) => {
        // SAFETY: the caller has AVX-512F, which is all that these instructions on values need.
        unsafe { Avx512($instruction($($operand.0),+)) }
    };
}

impl Words for Avx512 {
    // Thirty-two registers: twenty-four sums, two rows of the second operand; a broadcast is part
    // of the multiplication.
    const ROWS_ONE_PANEL: usize = 12;
    const ROWS_TWO_PANELS: usize = 12;
    const PANELS_OF_FEW: [usize; 4] = [8, 4, 4, 4];
    const PANELS_OF_MANY: usize = 2;

    #[inline(always)]
    unsafe fn splat(x: f32) -> Self {
        // SAFETY: the caller has AVX-512F.
        Avx512(unsafe { _mm512_set1_ps(x) })
    }

    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        // SAFETY: the caller has AVX-512F, and sixteen numbers from `from` on.
        Avx512(unsafe { _mm512_loadu_ps(from) })
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        // SAFETY: the caller has AVX-512F, and room for sixteen numbers from `to` on.
        unsafe { _mm512_storeu_ps(to, self.0) }
    }

    #[inline(always)]
    unsafe fn prefetch(from: *const f32) {
        // SAFETY: a hint, which touches no memory, to any CPU of this architecture.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(from.cast()) }
    }

    #[inline(always)]
    unsafe fn mul_add(self, factor: Self, term: Self) -> Self {
        whole!(_mm512_fmadd_ps, self, factor, term)
    }
}

impl Lanes for Avx512 {
    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        whole!(_mm512_add_ps, self, other)
    }

    #[inline(always)]
    unsafe fn sub(self, other: Self) -> Self {
        whole!(_mm512_sub_ps, self, other)
    }

    #[inline(always)]
    unsafe fn mul(self, other: Self) -> Self {
        whole!(_mm512_mul_ps, self, other)
    }

    #[inline(always)]
    unsafe fn div(self, other: Self) -> Self {
        whole!(_mm512_div_ps, self, other)
    }

    #[inline(always)]
    unsafe fn mul_sub_from(self, factor: Self, term: Self) -> Self {
        whole!(_mm512_fnmadd_ps, self, factor, term)
    }

    #[inline(always)]
    unsafe fn min(self, other: Self) -> Self {
        whole!(_mm512_min_ps, self, other)
    }

    #[inline(always)]
    unsafe fn max(self, other: Self) -> Self {
        whole!(_mm512_max_ps, self, other)
    }

    #[inline(always)]
    unsafe fn round(self) -> Self {
        const NEAREST: i32 = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
        // SAFETY: the caller has AVX-512F.
        Avx512(unsafe { _mm512_roundscale_ps::<NEAREST>(self.0) })
    }

    #[inline(always)]
    unsafe fn power_of_two(self) -> Self {
        // SAFETY: the caller has AVX-512F.
        Avx512(unsafe { _mm512_scalef_ps(_mm512_set1_ps(1.0), self.0) })
    }

    #[inline(always)]
    unsafe fn abs(self) -> Self {
        whole!(_mm512_abs_ps, self)
    }

    #[inline(always)]
    unsafe fn copysign(self, sign: Self) -> Self {
        /// sign bit ? third : second, bit by bit, as a table over the bits of (mask, second,
        /// third).
        const CHOOSE: i32 = 0b1010_1100;
        // SAFETY: the caller has AVX-512F.
        unsafe {
            let mask = _mm512_set1_epi32(i32::MIN);
            let bits =
                _mm512_ternarylogic_epi32::<CHOOSE>(mask, _mm512_castps_si512(self.0), _mm512_castps_si512(sign.0));
            Avx512(_mm512_castsi512_ps(bits))
        }
    }

    #[inline(always)]
    unsafe fn zero_where_less(self, tested: Self, limit: Self) -> Self {
        // SAFETY: the caller has AVX-512F.
        unsafe {
            let kept = _mm512_cmp_ps_mask::<_CMP_NLT_UQ>(tested.0, limit.0);
            Avx512(_mm512_maskz_mov_ps(kept, self.0))
        }
    }

    #[inline(always)]
    unsafe fn where_positive(self, tested: Self, other: Self) -> Self {
        // SAFETY: the caller has AVX-512F.
        unsafe {
            let positive = _mm512_cmp_ps_mask::<_CMP_GT_OQ>(tested.0, _mm512_setzero_ps());
            Avx512(_mm512_mask_mov_ps(other.0, positive, self.0))
        }
    }

    #[inline(always)]
    unsafe fn sum(self) -> f32 {
        // SAFETY: the caller has AVX-512F.
        unsafe { _mm512_reduce_add_ps(self.0) }
    }
}

super::entry_points!(Avx512, "avx512f");
