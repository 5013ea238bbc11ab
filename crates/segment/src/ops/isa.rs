//! The CPU's loops, compiled for each width of vectors that processors have. They are the same loops: no instruction set changes a result, since none
//! fuses a multiplication with an addition unless it is told to.

#![allow(
    unsafe_code,
    reason = "a function compiled for an instruction set may only be called where the processor has it, which is checked first"
)]

/// Loops over rows that are to be compiled several times. `run` is inlined into each, with all that it calls.
pub(super) trait Loops {
    fn run(self);
}

/// Runs `loops`, compiled for the widest vectors that the processor has.
pub(super) fn run<L: Loops>(loops: L) {
    #[cfg(target_arch = "x86_64")]
    {
        if is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512vl") {
            // SAFETY: the processor has what the function is compiled for.
            return unsafe { avx512(loops) };
        }
        if is_x86_feature_detected!("avx2") {
            // SAFETY: as above.
            return unsafe { avx2(loops) };
        }
    }
    loops.run();
}

/// Asks for `numbers` to be brought into the cache, for use some time later.
#[inline(always)]
pub(super) fn prefetch<T>(numbers: &[T]) {
    #[cfg(target_arch = "x86_64")]
    for line in numbers.chunks(CACHE_LINE_BYTES / size_of::<T>()) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: every processor has the instruction, which touches no memory that the program sees.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(line.as_ptr().cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = numbers;
}

#[cfg(target_arch = "x86_64")]
const CACHE_LINE_BYTES: usize = 64;

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512vl")]
fn avx512<L: Loops>(loops: L) {
    loops.run();
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn avx2<L: Loops>(loops: L) {
    loops.run();
}
