//! Kernels for x86-64 with AVX2 and FMA: sixteen numbers are two registers of eight.

#![allow(unsafe_code, reason = "instructions of the CPU")]

use std::arch::x86_64::*;

use super::lanes::{ExactLanes, Lanes};

#[derive(Clone, Copy)]
pub(super) struct Avx2(__m256, __m256);

impl Lanes for Avx2 {
    // Sixteen registers: eight sums, one row of the second operand (two registers) and broadcast
    // numbers.
    const ROWS: usize = 4;
    const PANELS: usize = 1;

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
    unsafe fn mul_add(self, factor: Self, term: Self) -> Self {
        // SAFETY: the caller has AVX2 and FMA.
        unsafe { Avx2(_mm256_fmadd_ps(self.0, factor.0, term.0), _mm256_fmadd_ps(self.1, factor.1, term.1)) }
    }

    #[inline(always)]
    unsafe fn larger(self, other: Self) -> Self {
        // SAFETY: the caller has AVX2.
        unsafe { Avx2(_mm256_max_ps(self.0, other.0), _mm256_max_ps(self.1, other.1)) }
    }

    #[inline(always)]
    unsafe fn at_least(self, limit: Self) -> u16 {
        // SAFETY: the caller has AVX2.
        unsafe {
            let low = _mm256_movemask_ps(_mm256_cmp_ps::<_CMP_GE_OQ>(self.0, limit.0));
            let high = _mm256_movemask_ps(_mm256_cmp_ps::<_CMP_GE_OQ>(self.1, limit.1));
            low as u16 | (high as u16) << 8
        }
    }

    #[inline(always)]
    unsafe fn counting(self, x: Self, limit: Self) -> Self {
        // SAFETY: the caller has AVX2.
        unsafe {
            let one = _mm256_set1_ps(1.0);
            let low = _mm256_and_ps(_mm256_cmp_ps::<_CMP_GE_OQ>(x.0, limit.0), one);
            let high = _mm256_and_ps(_mm256_cmp_ps::<_CMP_GE_OQ>(x.1, limit.1), one);
            Avx2(_mm256_add_ps(self.0, low), _mm256_add_ps(self.1, high))
        }
    }

    #[inline(always)]
    unsafe fn where_at_least(self, counts: Self, least: Self) -> Self {
        // SAFETY: the caller has AVX2.
        unsafe {
            let none = _mm256_set1_ps(f32::NEG_INFINITY);
            let low = _mm256_blendv_ps(none, self.0, _mm256_cmp_ps::<_CMP_GE_OQ>(counts.0, least.0));
            let high = _mm256_blendv_ps(none, self.1, _mm256_cmp_ps::<_CMP_GE_OQ>(counts.1, least.1));
            Avx2(low, high)
        }
    }

    #[inline(always)]
    unsafe fn largest(self) -> f32 {
        // SAFETY: the caller has AVX2.
        unsafe {
            let eight = _mm256_max_ps(self.0, self.1);
            let four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps::<1>(eight));
            let two = _mm_max_ps(four, _mm_movehl_ps(four, four));
            _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)))
        }
    }
}

#[derive(Clone, Copy)]
pub(super) struct ExactAvx2(__m256d, __m256d);

impl ExactLanes for ExactAvx2 {
    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: the caller has AVX2.
        let zero = unsafe { _mm256_setzero_pd() };
        ExactAvx2(zero, zero)
    }

    #[inline(always)]
    unsafe fn load(from: *const f64) -> Self {
        // SAFETY: the caller has AVX2, and eight numbers from `from` on.
        unsafe { ExactAvx2(_mm256_loadu_pd(from), _mm256_loadu_pd(from.add(4))) }
    }

    #[inline(always)]
    unsafe fn plus(self, other: Self) -> Self {
        // SAFETY: the caller has AVX2.
        unsafe { ExactAvx2(_mm256_add_pd(self.0, other.0), _mm256_add_pd(self.1, other.1)) }
    }

    #[inline(always)]
    unsafe fn minus(self, other: Self) -> Self {
        // SAFETY: the caller has AVX2.
        unsafe { ExactAvx2(_mm256_sub_pd(self.0, other.0), _mm256_sub_pd(self.1, other.1)) }
    }

    #[inline(always)]
    unsafe fn times(self, other: Self) -> Self {
        // SAFETY: the caller has AVX2.
        unsafe { ExactAvx2(_mm256_mul_pd(self.0, other.0), _mm256_mul_pd(self.1, other.1)) }
    }

    #[inline(always)]
    unsafe fn sum(self) -> f64 {
        // SAFETY: the caller has AVX2.
        unsafe {
            let halves = _mm256_add_pd(self.0, self.1);
            let quarters = _mm_add_pd(_mm256_castpd256_pd128(halves), _mm256_extractf128_pd::<1>(halves));
            _mm_cvtsd_f64(_mm_add_sd(quarters, _mm_unpackhi_pd(quarters, quarters)))
        }
    }
}

super::entry_points!(Avx2, ExactAvx2, "avx2,fma");
