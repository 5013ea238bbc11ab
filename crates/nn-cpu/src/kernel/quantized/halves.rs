//! Sixteen sums of products of bytes as two vectors of eight, for the instruction sets with vectors
//! of 256 bits.

#![allow(unsafe_code, reason = "instructions of the CPU")]

use std::arch::x86_64::*;
use std::marker::PhantomData;

use super::dots::Dots;
use crate::kernel::avx2::Avx2;

/// Eight running sums.
///
/// # Safety
/// As for [`Dots`].
pub(super) trait Eight: Copy {
    /// As [`Dots::ROWS`].
    const ROWS: usize;

    /// sums + the four products of each output.
    unsafe fn add(sums: __m256i, x: __m256i, weights: __m256i) -> __m256i;
}

/// The sums of outputs 0..8 and 8..16.
#[derive(Clone, Copy)]
pub(super) struct Halves<E>(__m256i, __m256i, PhantomData<E>);

impl<E: Eight> Dots for Halves<E> {
    type Numbers = Avx2;
    type Four = __m256i;
    type Weights = [__m256i; 2];
    const ROWS: usize = E::ROWS;
    const TWO: bool = false;

    #[inline(always)]
    unsafe fn load(from: *const i32) -> Self {
        // SAFETY: the caller has AVX2, and sixteen numbers from `from` on.
        unsafe { Halves(_mm256_loadu_si256(from.cast()), _mm256_loadu_si256(from.add(8).cast()), PhantomData) }
    }

    #[inline(always)]
    unsafe fn four(from: *const u8) -> __m256i {
        // SAFETY: the caller has AVX2, and four bytes from `from` on.
        unsafe { _mm256_set1_epi32(from.cast::<i32>().read_unaligned()) }
    }

    #[inline(always)]
    unsafe fn weights(from: *const i8) -> [__m256i; 2] {
        // SAFETY: the caller has AVX2, and sixty-four bytes from `from` on.
        unsafe { [_mm256_loadu_si256(from.cast()), _mm256_loadu_si256(from.add(32).cast())] }
    }

    #[inline(always)]
    unsafe fn dot(self, x: __m256i, weights: [__m256i; 2]) -> Self {
        // SAFETY: the caller has the instruction set of E.
        unsafe { Halves(E::add(self.0, x, weights[0]), E::add(self.1, x, weights[1]), PhantomData) }
    }

    #[inline(always)]
    unsafe fn numbers(self) -> Avx2 {
        // SAFETY: the caller has AVX2.
        unsafe { Avx2(_mm256_cvtepi32_ps(self.0), _mm256_cvtepi32_ps(self.1)) }
    }
}
