//! Multiply-adds a second of single-precision numbers that lie in registers, the most that any
//! product can reach, for each instruction set of the CPU engine that this CPU has.
//!
//! `cargo run --release -p megabatch-nn-cpu --example multiply_add_peak -- [THREADS]`

#![allow(
    unsafe_code,
    reason = "instructions beyond the baseline are called where the processor has been asked for them"
)]

use std::hint::black_box;
use std::sync::Barrier;
use std::time::Instant;

/// Multiply-adds of sixteen numbers each, in one measurement: a hundredth of a second and less.
const ROUNDS: usize = 100_000;
/// Sums in flight: more than two multipliers of five cycles take, and as many as sixteen registers
/// hold beside two operands.
const SUMS: usize = 12;
const MEASUREMENTS: usize = 20;

/// A name, and what forms `ROUNDS` · `SUMS` multiply-adds of `lanes` numbers.
struct InstructionSet {
    name: &'static str,
    lanes: usize,
    run: fn(),
}

fn main() {
    let threads = std::env::args().nth(1).and_then(|threads| threads.parse().ok()).unwrap_or(1);
    let rates = instruction_sets().into_iter().map(|set| format!("\"{}\": {:.0}", set.name, rate(&set, threads)));
    println!("{{{}}}", rates.collect::<Vec<_>>().join(", "));
}

/// The most multiply-adds a second on so many threads together.
fn rate(set: &InstructionSet, threads: usize) -> f64 {
    let barrier = Barrier::new(threads);
    let fastest_s = |_| {
        (0..MEASUREMENTS).fold(f64::INFINITY, |fastest, _| {
            barrier.wait();
            let start = Instant::now();
            (set.run)();
            fastest.min(start.elapsed().as_secs_f64())
        })
    };
    let multiply_adds = (ROUNDS * SUMS * set.lanes) as f64;
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|thread| scope.spawn(move || fastest_s(thread))).collect();
        workers.into_iter().map(|worker| multiply_adds / worker.join().expect("a loop of arithmetic ends")).sum()
    })
}

fn instruction_sets() -> Vec<InstructionSet> {
    let mut all = vec![InstructionSet { name: "portable", lanes: 4, run: portable }];
    #[cfg(target_arch = "x86_64")]
    {
        if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
            // SAFETY: the CPU has the instructions that the function is compiled for.
            all.push(InstructionSet { name: "avx2", lanes: 8, run: || unsafe { x86::avx2() } });
        }
        if is_x86_feature_detected!("avx512f") {
            // SAFETY: as above.
            all.push(InstructionSet { name: "avx512", lanes: 16, run: || unsafe { x86::avx512() } });
        }
    }
    #[cfg(target_arch = "aarch64")]
    if std::arch::is_aarch64_feature_detected!("neon") {
        // SAFETY: as above.
        all.push(InstructionSet { name: "neon", lanes: 4, run: || unsafe { arm::neon() } });
    }
    all
}

/// A product and a sum, of as many numbers as the smallest vectors hold.
fn portable() {
    let mut sums = black_box([[0.5f32; 4]; SUMS]);
    let [factor, term] = black_box([0.5f32; 2]);
    for _ in 0..ROUNDS {
        for sum in sums.as_flattened_mut() {
            *sum = *sum * factor + term;
        }
    }
    black_box(sums);
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::{_mm256_fmadd_ps, _mm256_set1_ps, _mm512_fmadd_ps, _mm512_set1_ps};
    use std::hint::black_box;

    use super::{ROUNDS, SUMS};

    #[target_feature(enable = "avx2,fma")]
    pub(super) fn avx2() {
        let [factor, term] = black_box([0.5f32; 2]).map(|x| _mm256_set1_ps(x));
        let mut sums = [term; SUMS];
        for _ in 0..ROUNDS {
            for sum in &mut sums {
                *sum = _mm256_fmadd_ps(*sum, factor, term);
            }
        }
        black_box(sums);
    }

    #[target_feature(enable = "avx512f")]
    pub(super) fn avx512() {
        let [factor, term] = black_box([0.5f32; 2]).map(|x| _mm512_set1_ps(x));
        let mut sums = [term; SUMS];
        for _ in 0..ROUNDS {
            for sum in &mut sums {
                *sum = _mm512_fmadd_ps(*sum, factor, term);
            }
        }
        black_box(sums);
    }
}

#[cfg(target_arch = "aarch64")]
mod arm {
    use std::arch::aarch64::{vdupq_n_f32, vfmaq_f32};
    use std::hint::black_box;

    use super::{ROUNDS, SUMS};

    #[target_feature(enable = "neon")]
    pub(super) fn neon() {
        let [factor, term] = black_box([0.5f32; 2]).map(|x| vdupq_n_f32(x));
        let mut sums = [term; SUMS];
        for _ in 0..ROUNDS {
            for sum in &mut sums {
                *sum = vfmaq_f32(term, *sum, factor);
            }
        }
        black_box(sums);
    }
}
