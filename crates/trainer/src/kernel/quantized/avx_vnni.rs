//! Sums of products of bytes by AVX-VNNI's `vpdpbusd`, of processors that have AVX2 and no AVX-512: 32 products are added to eight sums.

use std::arch::x86_64::*;

use super::dots::Dots;
use crate::kernel::avx2::Avx2;

/// The sums of outputs 0..8 and 8..16.
#[derive(Clone, Copy)]
pub(super) struct AvxVnniSums(__m256i, __m256i);

impl Dots for AvxVnniSums {
    type Numbers = Avx2;
    type Four = __m256i;
    type Weights = (__m256i, __m256i);
    // Sixteen registers: twelve sums, two of weights, two numbers of the row.
    const ROWS: usize = 3;
    const TWO: bool = false;

    #[inline(always)]
    unsafe fn load(from: *const i32) -> Self {
        // SAFETY: the caller has AVX2, and sixteen numbers from `from` on.
        unsafe { AvxVnniSums(_mm256_loadu_si256(from.cast()), _mm256_loadu_si256(from.add(8).cast())) }
    }

    #[inline(always)]
    unsafe fn four(from: *const u8) -> __m256i {
        // SAFETY: the caller has AVX2, and four bytes from `from` on.
        unsafe { _mm256_set1_epi32(from.cast::<i32>().read_unaligned()) }
    }

    #[inline(always)]
    unsafe fn weights(from: *const i8) -> (__m256i, __m256i) {
        // SAFETY: the caller has AVX2, and sixty-four bytes from `from` on.
        unsafe { (_mm256_loadu_si256(from.cast()), _mm256_loadu_si256(from.add(32).cast())) }
    }

    #[inline(always)]
    unsafe fn dot(self, x: __m256i, weights: (__m256i, __m256i)) -> Self {
        // SAFETY: the caller has AVX-VNNI.
        unsafe {
            let Self(first, second) = self;
            AvxVnniSums(_mm256_dpbusd_avx_epi32(first, x, weights.0), _mm256_dpbusd_avx_epi32(second, x, weights.1))
        }
    }

    #[inline(always)]
    unsafe fn numbers(self) -> Avx2 {
        // SAFETY: the caller has AVX2.
        unsafe { Avx2(_mm256_cvtepi32_ps(self.0), _mm256_cvtepi32_ps(self.1)) }
    }
}

super::byte_entry_points!(AvxVnniSums, "avx2,fma,avxvnni");
