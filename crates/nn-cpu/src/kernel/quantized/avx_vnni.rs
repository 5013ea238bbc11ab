//! Sums of products of bytes by AVX-VNNI's `vpdpbusd`, of CPUs that have AVX2 and no AVX-512:
//! 32 products are added to eight sums.

#![allow(unsafe_code, reason = "instructions of the CPU")]

use std::arch::x86_64::*;

use super::dots::HighLow;
use super::halves::{Eight, Halves};

#[derive(Clone, Copy)]
pub(super) struct Fours;

impl Eight for Fours {
    // Sixteen registers: twelve sums, two of weights, two numbers of the row.
    const ROWS: usize = 3;

    #[inline(always)]
    unsafe fn add(sums: __m256i, x: __m256i, weights: __m256i) -> __m256i {
        // SAFETY: the caller has AVX-VNNI.
        unsafe { _mm256_dpbusd_avx_epi32(sums, x, weights) }
    }
}

super::byte_entry_points!(HighLow<Halves<Fours>>, "avx2,fma,avxvnni");
