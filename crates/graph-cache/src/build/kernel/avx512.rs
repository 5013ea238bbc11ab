//! Kernels for x86-64 with AVX-512: sixteen numbers are one register.

use std::arch::x86_64::*;

use super::lanes::Lanes;

#[derive(Clone, Copy)]
pub(super) struct Avx512(__m512);

impl Lanes for Avx512 {
    // Thirty-two registers: sixteen sums, two rows of the second operand; a broadcast is part of the multiplication.
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
    unsafe fn at_least(self, limit: Self) -> u16 {
        // SAFETY: the caller has AVX-512F.
        unsafe { _mm512_cmp_ps_mask::<_CMP_GE_OQ>(self.0, limit.0) }
    }

    #[inline(always)]
    unsafe fn write_places(mask: u16, first: u32, to: *mut u32) {
        // SAFETY: the caller has AVX-512F, and room for one number for each bit, which is all that is written.
        unsafe {
            let counted = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
            let places = _mm512_add_epi32(counted, _mm512_set1_epi32(first as i32));
            _mm512_mask_compressstoreu_epi32(to.cast(), mask, places);
        }
    }
}

super::entry_points!(Avx512, "avx512f,avx512vl");
