//! f16 to and from f32 by the F16C instructions, eight at a time.

use std::arch::x86_64::{
    __m128i, _MM_FROUND_TO_NEAREST_INT, _mm_loadu_si128, _mm_storeu_si128, _mm256_cvtph_ps, _mm256_cvtps_ph,
    _mm256_loadu_ps, _mm256_storeu_ps,
};

use half::f16;

use super::portable;

const LANES: usize = 8;

/// # Safety
/// The CPU has F16C and AVX. The lengths are equal.
#[target_feature(enable = "f16c,avx")]
pub(super) unsafe fn f32_to_f16(from: &[f32], to: &mut [f16]) {
    let (from, from_rest) = from.as_chunks::<LANES>();
    let (to, to_rest) = to.as_chunks_mut::<LANES>();
    for (from, to) in from.iter().zip(to) {
        // SAFETY: a chunk is eight elements, 32 and 16 bytes, and neither access asks for
        // alignment.
        unsafe {
            let halves = _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(_mm256_loadu_ps(from.as_ptr()));
            _mm_storeu_si128(to.as_mut_ptr().cast::<__m128i>(), halves);
        }
    }
    portable::f32_to_f16(from_rest, to_rest);
}

/// # Safety
/// The CPU has F16C and AVX. The lengths are equal.
#[target_feature(enable = "f16c,avx")]
pub(super) unsafe fn f16_to_f32(from: &[f16], to: &mut [f32]) {
    let (from, from_rest) = from.as_chunks::<LANES>();
    let (to, to_rest) = to.as_chunks_mut::<LANES>();
    for (from, to) in from.iter().zip(to) {
        // SAFETY: as in `f32_to_f16`.
        unsafe {
            let halves = _mm_loadu_si128(from.as_ptr().cast::<__m128i>());
            _mm256_storeu_ps(to.as_mut_ptr(), _mm256_cvtph_ps(halves));
        }
    }
    portable::f16_to_f32(from_rest, to_rest);
}
