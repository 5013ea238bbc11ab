//! Sums of products of bytes in AVX2. `vpmaddubsw` adds pairs of products in sixteen bits and saturates; of bytes below 128 and weights of at most 127 a pair
//! is at most 32,258, which fits.

use std::arch::x86_64::*;

use super::dots::Dots;
use crate::kernel::avx2::Avx2;

/// The sums of outputs 0..8 and 8..16.
#[derive(Clone, Copy)]
pub(super) struct Avx2Sums(__m256i, __m256i);

impl Dots for Avx2Sums {
    type Numbers = Avx2;
    type Four = __m256i;
    type Weights = (__m256i, __m256i);
    // Sixteen registers: eight sums, two of weights, two numbers of the row, and what is between products and sums.
    const ROWS: usize = 2;
    const TWO: bool = false;

    #[inline(always)]
    unsafe fn load(from: *const i32) -> Self {
        // SAFETY: the caller has AVX2, and sixteen numbers from `from` on.
        unsafe { Avx2Sums(_mm256_loadu_si256(from.cast()), _mm256_loadu_si256(from.add(8).cast())) }
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
        // SAFETY: the caller has AVX2, which is all that these instructions on values need.
        unsafe {
            let ones = _mm256_set1_epi16(1);
            let four = |weights| _mm256_madd_epi16(_mm256_maddubs_epi16(x, weights), ones);
            Avx2Sums(_mm256_add_epi32(self.0, four(weights.0)), _mm256_add_epi32(self.1, four(weights.1)))
        }
    }

    #[inline(always)]
    unsafe fn numbers(self) -> Avx2 {
        // SAFETY: the caller has AVX2.
        unsafe { Avx2(_mm256_cvtepi32_ps(self.0), _mm256_cvtepi32_ps(self.1)) }
    }
}

super::byte_entry_points!(Avx2Sums, "avx2,fma");
