//! Memory that will be wanted.

#![allow(unsafe_code, reason = "the instruction is an intrinsic")]

/// Asks for `numbers` to be brought into the cache, for use some time later.
#[inline(always)]
pub(super) fn prefetch<T>(numbers: &[T]) {
    #[cfg(target_arch = "x86_64")]
    for line in numbers.chunks(CACHE_LINE_BYTES / size_of::<T>()) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: every CPU has the instruction, which touches no memory that the program
        // sees.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(line.as_ptr().cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = numbers;
}

#[cfg(target_arch = "x86_64")]
const CACHE_LINE_BYTES: usize = 64;
