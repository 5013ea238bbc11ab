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

#[cfg(test)]
mod tests {
    use super::super::exp::exp;
    use super::*;

    /// Additions, products, comparisons and the exponential function.
    struct Mixed<'a>(&'a [f32], &'a mut [f32]);

    impl Loops for Mixed<'_> {
        #[inline(always)]
        fn run(self) {
            for (x, out) in self.0.iter().zip(self.1) {
                *out = if *x > -3.0 { *x * *x + 0.1 } else { exp(*x) };
            }
        }
    }

    fn bits(run: impl FnOnce(Mixed<'_>)) -> Vec<u32> {
        let x: Vec<f32> = (0..1000).map(|k| k as f32 * -0.0917).collect();
        let mut out = vec![0.0; x.len()];
        run(Mixed(&x, &mut out));
        out.into_iter().map(f32::to_bits).collect()
    }

    #[test]
    fn the_width_of_vectors_changes_no_bit() {
        let expected = bits(|loops| loops.run());
        assert_eq!(bits(|loops| run(loops)), expected);
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx2") {
            // SAFETY: the processor has what the function is compiled for.
            assert_eq!(bits(|loops| unsafe { avx2(loops) }), expected);
        }
    }
}
