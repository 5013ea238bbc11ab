//! All conversions in AVX-512, sixteen at a time.
//!
//! Its own bf16 instructions (AVX512_BF16) are left alone: they take subnormals for zeros.

#![allow(unsafe_code, reason = "instructions of the CPU")]

use std::arch::x86_64::{
    __m256i, __m512, _CMP_UNORD_Q, _MM_FROUND_TO_NEAREST_INT, _mm256_loadu_si256, _mm256_storeu_si256,
    _mm512_add_epi32, _mm512_and_si512, _mm512_castps_si512, _mm512_castsi512_ps, _mm512_cmp_ps_mask,
    _mm512_cvtepi32_epi16, _mm512_cvtepu16_epi32, _mm512_cvtph_ps, _mm512_cvtps_ph, _mm512_loadu_ps,
    _mm512_mask_or_epi32, _mm512_set1_epi32, _mm512_slli_epi32, _mm512_srli_epi32, _mm512_storeu_ps,
};

use half::{bf16, f16};

use super::portable;

const LANES: usize = 16;

/// Loops a kernel of sixteen over two slices, and the portable form over the rest.
macro_rules! sixteens {
    ($name:ident($src:ty => $dst:ty), $load:expr, $store:expr, $kernel:expr) => {
        /// # Safety
        /// The CPU has AVX-512F. The lengths are equal.
        #[target_feature(enable = "avx512f")]
        pub(super) unsafe fn $name(src: &[$src], dst: &mut [$dst]) {
            let (src, from_rest) = src.as_chunks::<LANES>();
            let (dst, to_rest) = dst.as_chunks_mut::<LANES>();
            for (src, dst) in src.iter().zip(dst) {
                // SAFETY: a chunk is sixteen elements, which is what is loaded and stored, and
                // neither asks for alignment.
                unsafe { $store(dst.as_mut_ptr().cast(), $kernel($load(src.as_ptr().cast()))) }
            }
            portable::$name(from_rest, to_rest);
        }
    };
}

sixteens!(f32_to_f16(f32 => f16), _mm512_loadu_ps, _mm256_storeu_si256, _mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>);
sixteens!(f16_to_f32(f16 => f32), _mm256_loadu_si256, _mm512_storeu_ps, _mm512_cvtph_ps);
sixteens!(f32_to_bf16(f32 => bf16), _mm512_loadu_ps, _mm256_storeu_si256, round_to_bf16);
sixteens!(bf16_to_f32(bf16 => f32), _mm256_loadu_si256, _mm512_storeu_ps, widen_bf16);

#[target_feature(enable = "avx512f")]
fn round_to_bf16(values: __m512) -> __m256i {
    let bits = _mm512_castps_si512(values);
    let odd = _mm512_and_si512(_mm512_srli_epi32::<16>(bits), _mm512_set1_epi32(1));
    let rounded = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);
    let is_nan = _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(values, values);
    let words = _mm512_mask_or_epi32(rounded, is_nan, bits, _mm512_set1_epi32(0x0040_0000));
    _mm512_cvtepi32_epi16(_mm512_srli_epi32::<16>(words))
}

#[target_feature(enable = "avx512f")]
fn widen_bf16(halves: __m256i) -> __m512 {
    let words = _mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(halves));
    let values = _mm512_castsi512_ps(words);
    let is_nan = _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(values, values);
    _mm512_castsi512_ps(_mm512_mask_or_epi32(words, is_nan, words, _mm512_set1_epi32(0x0040_0000)))
}
