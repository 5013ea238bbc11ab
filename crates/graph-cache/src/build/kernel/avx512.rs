//! Kernels for x86-64 with AVX-512: sixteen numbers are one register.

#![allow(unsafe_code, reason = "instructions of the CPU")]

use std::arch::x86_64::*;

use super::lanes::{ExactLanes, Lanes};

#[derive(Clone, Copy)]
pub(super) struct Avx512(__m512);

impl Lanes for Avx512 {
    // Thirty-two registers: sixteen sums, two rows of the second operand; a broadcast is part of
    // the multiplication.
    const ROWS: usize = 8;
    const PANELS: usize = 2;

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
    unsafe fn mul_add(self, factor: Self, term: Self) -> Self {
        // SAFETY: the caller has AVX-512F.
        Avx512(unsafe { _mm512_fmadd_ps(self.0, factor.0, term.0) })
    }

    #[inline(always)]
    unsafe fn larger(self, other: Self) -> Self {
        // SAFETY: the caller has AVX-512F.
        Avx512(unsafe { _mm512_max_ps(self.0, other.0) })
    }

    #[inline(always)]
    unsafe fn at_least(self, limit: Self) -> u16 {
        // SAFETY: the caller has AVX-512F.
        unsafe { _mm512_cmp_ps_mask::<_CMP_GE_OQ>(self.0, limit.0) }
    }

    #[inline(always)]
    unsafe fn counting(self, x: Self, limit: Self) -> Self {
        // SAFETY: the caller has AVX-512F.
        unsafe { Avx512(_mm512_mask_add_ps(self.0, x.at_least(limit), self.0, _mm512_set1_ps(1.0))) }
    }

    #[inline(always)]
    unsafe fn where_at_least(self, counts: Self, least: Self) -> Self {
        // SAFETY: the caller has AVX-512F.
        unsafe { Avx512(_mm512_mask_mov_ps(_mm512_set1_ps(f32::NEG_INFINITY), counts.at_least(least), self.0)) }
    }

    #[inline(always)]
    unsafe fn largest(self) -> f32 {
        // SAFETY: the caller has AVX-512F.
        unsafe { _mm512_reduce_max_ps(self.0) }
    }

    #[inline(always)]
    unsafe fn write_places(mask: u16, first: u32, to: *mut u32) {
        // SAFETY: the caller has AVX-512F, and room for sixteen numbers. Compressing into memory
        // alone is several times as slow.
        unsafe {
            let counted = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
            let places = _mm512_add_epi32(counted, _mm512_set1_epi32(first as i32));
            _mm512_storeu_epi32(to.cast(), _mm512_maskz_compress_epi32(mask, places));
        }
    }
}

#[derive(Clone, Copy)]
pub(super) struct ExactAvx512(__m512d);

impl ExactLanes for ExactAvx512 {
    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: the caller has AVX-512F.
        ExactAvx512(unsafe { _mm512_setzero_pd() })
    }

    #[inline(always)]
    unsafe fn load(from: *const f64) -> Self {
        // SAFETY: the caller has AVX-512F, and eight numbers from `from` on.
        ExactAvx512(unsafe { _mm512_loadu_pd(from) })
    }

    #[inline(always)]
    unsafe fn plus(self, other: Self) -> Self {
        // SAFETY: the caller has AVX-512F.
        ExactAvx512(unsafe { _mm512_add_pd(self.0, other.0) })
    }

    #[inline(always)]
    unsafe fn minus(self, other: Self) -> Self {
        // SAFETY: the caller has AVX-512F.
        ExactAvx512(unsafe { _mm512_sub_pd(self.0, other.0) })
    }

    #[inline(always)]
    unsafe fn times(self, other: Self) -> Self {
        // SAFETY: the caller has AVX-512F.
        ExactAvx512(unsafe { _mm512_mul_pd(self.0, other.0) })
    }

    #[inline(always)]
    unsafe fn sum(self) -> f64 {
        // SAFETY: the caller has AVX-512F, and with it AVX.
        unsafe {
            let halves = _mm256_add_pd(_mm512_castpd512_pd256(self.0), _mm512_extractf64x4_pd::<1>(self.0));
            let quarters = _mm_add_pd(_mm256_castpd256_pd128(halves), _mm256_extractf128_pd::<1>(halves));
            _mm_cvtsd_f64(_mm_add_sd(quarters, _mm_unpackhi_pd(quarters, quarters)))
        }
    }
}

super::entry_points!(Avx512, ExactAvx512, "avx512f,avx512vl");
