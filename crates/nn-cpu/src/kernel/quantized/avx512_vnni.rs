//! Sums of products of bytes by the instruction made for them, AVX-512 VNNI's `vpdpbusd`: 64
//! products are added to sixteen sums.

#![allow(unsafe_code, reason = "instructions of the CPU")]

use std::arch::x86_64::*;

use super::dots::{Dots, HighLow};
use crate::kernel::avx512::Avx512;

#[derive(Clone, Copy)]
pub(super) struct Avx512Sums(__m512i);

impl Dots for Avx512Sums {
    type Numbers = Avx512;
    type Four = __m512i;
    type Weights = __m512i;
    // Thirty-two registers: twenty-four sums, two of weights, two numbers of the row.
    const ROWS: usize = 6;
    const TWO: bool = true;

    #[inline(always)]
    unsafe fn load(from: *const i32) -> Self {
        // SAFETY: the caller has AVX-512F, and sixteen numbers from `from` on.
        Avx512Sums(unsafe { _mm512_loadu_si512(from.cast()) })
    }

    #[inline(always)]
    unsafe fn four(from: *const u8) -> __m512i {
        // SAFETY: the caller has AVX-512F, and four bytes from `from` on.
        unsafe { _mm512_set1_epi32(from.cast::<i32>().read_unaligned()) }
    }

    #[inline(always)]
    unsafe fn weights(from: *const i8) -> __m512i {
        // SAFETY: the caller has AVX-512F, and sixty-four bytes from `from` on.
        unsafe { _mm512_loadu_si512(from.cast()) }
    }

    #[inline(always)]
    unsafe fn dot(self, x: __m512i, weights: __m512i) -> Self {
        // SAFETY: the caller has AVX-512 VNNI.
        Avx512Sums(unsafe { _mm512_dpbusd_epi32(self.0, x, weights) })
    }

    #[inline(always)]
    unsafe fn numbers(self) -> Avx512 {
        // SAFETY: the caller has AVX-512F.
        Avx512(unsafe { _mm512_cvtepi32_ps(self.0) })
    }
}

super::byte_entry_points!(HighLow<Avx512Sums>, "avx512f,avx512bw,avx512vl,avx512vnni");
