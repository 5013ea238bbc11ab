//! f16 by the F16C instructions and bf16 in AVX2's integer arithmetic, eight at a time.

#![allow(unsafe_code, reason = "instructions of the CPU")]

use std::arch::x86_64::{
    __m128i, __m256, __m256i, _CMP_UNORD_Q, _MM_FROUND_TO_NEAREST_INT, _mm_loadu_si128, _mm_storeu_si128,
    _mm256_add_epi32, _mm256_and_si256, _mm256_blendv_epi8, _mm256_castps_si256, _mm256_castsi256_ps,
    _mm256_castsi256_si128, _mm256_cmp_ps, _mm256_cvtepu16_epi32, _mm256_cvtph_ps, _mm256_cvtps_ph,
    _mm256_extracti128_si256, _mm256_loadu_ps, _mm256_or_si256, _mm256_set1_epi32, _mm256_slli_epi32,
    _mm256_srli_epi32, _mm256_storeu_ps,
};

use half::{bf16, f16};

use super::portable;

const LANES: usize = 8;

/// Loops a kernel of eight over two slices, and the portable form over the rest.
macro_rules! eights {
    ($name:ident($src:ty => $dst:ty), $features:literal, $load:expr, $store:expr, $kernel:expr) => {
        /// # Safety
        /// The CPU has the features below. The lengths are equal.
        #[target_feature(enable = $features)]
        pub(super) unsafe fn $name(src: &[$src], dst: &mut [$dst]) {
            let (src, from_rest) = src.as_chunks::<LANES>();
            let (dst, to_rest) = dst.as_chunks_mut::<LANES>();
            for (src, dst) in src.iter().zip(dst) {
                // SAFETY: a chunk is eight elements, which is what is loaded and stored, and
                // neither asks for alignment.
                unsafe { $store(dst.as_mut_ptr().cast(), $kernel($load(src.as_ptr().cast()))) }
            }
            portable::$name(from_rest, to_rest);
        }
    };
}

eights!(f32_to_f16(f32 => f16), "f16c,avx", _mm256_loadu_ps, _mm_storeu_si128, _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>);
eights!(f16_to_f32(f16 => f32), "f16c,avx", _mm_loadu_si128, _mm256_storeu_ps, _mm256_cvtph_ps);
eights!(f32_to_bf16(f32 => bf16), "avx2", _mm256_loadu_ps, _mm_storeu_si128, round_to_bf16);
eights!(bf16_to_f32(bf16 => f32), "avx2", _mm_loadu_si128, _mm256_storeu_ps, widen_bf16);

#[target_feature(enable = "avx2")]
fn round_to_bf16(values: __m256) -> __m128i {
    let bits = _mm256_castps_si256(values);
    let odd = _mm256_and_si256(_mm256_srli_epi32::<16>(bits), _mm256_set1_epi32(1));
    let rounded = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
    let quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x0040_0000));
    let is_nan = _mm256_castps_si256(_mm256_cmp_ps::<_CMP_UNORD_Q>(values, values));
    upper_halves(_mm256_blendv_epi8(rounded, quiet, is_nan))
}

/// The upper 16 bits of each 32.
#[target_feature(enable = "avx2")]
fn upper_halves(words: __m256i) -> __m128i {
    use std::arch::x86_64::_mm_packus_epi32;
    let upper = _mm256_srli_epi32::<16>(words);
    _mm_packus_epi32(_mm256_castsi256_si128(upper), _mm256_extracti128_si256::<1>(upper))
}

#[target_feature(enable = "avx2")]
fn widen_bf16(halves: __m128i) -> __m256 {
    let values = _mm256_castsi256_ps(_mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(halves)));
    let is_nan = _mm256_castps_si256(_mm256_cmp_ps::<_CMP_UNORD_Q>(values, values));
    let quiet = _mm256_and_si256(is_nan, _mm256_set1_epi32(0x0040_0000));
    _mm256_castsi256_ps(_mm256_or_si256(_mm256_castps_si256(values), quiet))
}
