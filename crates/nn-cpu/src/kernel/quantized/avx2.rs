//! Sums of products of bytes in AVX2. `vpmaddubsw` adds pairs of products in sixteen bits and
//! saturates; of bytes below 128 and weights of at most 127 a pair is at most 32,258, which fits.

#![allow(unsafe_code, reason = "instructions of the CPU")]

use std::arch::x86_64::*;

use super::dots::HighLow;
use super::halves::{Eight, Halves};

#[derive(Clone, Copy)]
pub(super) struct Pairs;

impl Eight for Pairs {
    // Sixteen registers: eight sums, two of weights, two numbers of the row, and what is between
    // products and sums.
    const ROWS: usize = 2;

    #[inline(always)]
    unsafe fn add(sums: __m256i, x: __m256i, weights: __m256i) -> __m256i {
        // SAFETY: the caller has AVX2, which is all that these instructions on values need.
        unsafe {
            let four = _mm256_madd_epi16(_mm256_maddubs_epi16(x, weights), _mm256_set1_epi16(1));
            _mm256_add_epi32(sums, four)
        }
    }
}

super::byte_entry_points!(HighLow<Halves<Pairs>>, "avx2,fma");
