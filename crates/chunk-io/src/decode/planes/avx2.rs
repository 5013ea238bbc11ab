//! Joins of byte planes with AVX2.
//!
//! The plain loops compiled for it do for 2- and 8-byte words. For 4-byte ones, the common case,
//! the compiler widens bytes and shifts them to their place; interleaving planes two and two is
//! five times as fast and takes hardly longer than copying, which leaves nothing for wider vectors
//! to gain.

#![allow(unsafe_code, reason = "instructions of the CPU")]

use std::arch::x86_64::{
    __m256i, _mm256_loadu_si256, _mm256_permute2x128_si256, _mm256_storeu_si256, _mm256_unpackhi_epi8,
    _mm256_unpackhi_epi16, _mm256_unpacklo_epi8, _mm256_unpacklo_epi16,
};

use super::portable;

/// Words that a step joins: the bytes of a vector of each plane.
const STEP: usize = 32;

/// # Safety
/// The CPU has AVX2.
#[target_feature(enable = "avx2")]
pub(super) unsafe fn join_u16(planes: [&[u8]; 2], out: &mut [u16]) {
    portable::join_u16(planes, out);
}

/// # Safety
/// The CPU has AVX2.
#[target_feature(enable = "avx2")]
pub(super) unsafe fn join_u32(planes: [&[u8]; 4], out: &mut [u32]) {
    let whole = out.len() / STEP * STEP;
    let (out, rest) = out.split_at_mut(whole);
    let steps = planes.map(|plane| plane[..whole].as_chunks::<STEP>().0);
    for (k, out) in out.as_chunks_mut::<STEP>().0.iter_mut().enumerate() {
        let [a, b, c, d] = steps.map(|steps| load(&steps[k]));
        let (low_01, high_01) = (_mm256_unpacklo_epi8(a, b), _mm256_unpackhi_epi8(a, b));
        let (low_23, high_23) = (_mm256_unpacklo_epi8(c, d), _mm256_unpackhi_epi8(c, d));
        // Both halves of a vector are interleaved on their own: words 0-3 and 16-19, 4-7 and 20-23,
        // and so on.
        let quarters = [
            _mm256_unpacklo_epi16(low_01, low_23),
            _mm256_unpackhi_epi16(low_01, low_23),
            _mm256_unpacklo_epi16(high_01, high_23),
            _mm256_unpackhi_epi16(high_01, high_23),
        ];
        let [first, second, third, fourth] = quarters;
        let ordered = [
            _mm256_permute2x128_si256::<0x20>(first, second),
            _mm256_permute2x128_si256::<0x20>(third, fourth),
            _mm256_permute2x128_si256::<0x31>(first, second),
            _mm256_permute2x128_si256::<0x31>(third, fourth),
        ];
        for (words, out) in ordered.into_iter().zip(out.as_chunks_mut::<8>().0) {
            // SAFETY: eight words are the 32 bytes that are written, at any alignment.
            unsafe { _mm256_storeu_si256(out.as_mut_ptr().cast(), words) }
        }
    }
    portable::join_u32(planes.map(|plane| &plane[whole..]), rest);
}

/// # Safety
/// The CPU has AVX2.
#[target_feature(enable = "avx2")]
pub(super) unsafe fn join_u64(planes: [&[u8]; 8], out: &mut [u64]) {
    portable::join_u64(planes, out);
}

#[target_feature(enable = "avx2")]
fn load(bytes: &[u8; STEP]) -> __m256i {
    // SAFETY: these are the 32 bytes that are read, at any alignment.
    unsafe { _mm256_loadu_si256(bytes.as_ptr().cast()) }
}
