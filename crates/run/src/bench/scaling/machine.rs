//! Measured limits of a machine.

use std::hint::black_box;
use std::time::Instant;

use rayon::prelude::*;
use serde::Serialize;

use crate::error::Result;

/// Bytes that a core's second-level cache holds, and bytes that no cache holds.
const CACHED: usize = 512 << 10;
const UNCACHED: usize = 128 << 20;

/// Speeds of a machine beside its arithmetic.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Machine {
    /// From the end of a task to the begin of one that waited for it.
    pub(super) hand_over_s: f64,
    /// Rate at which one core reads its second-level cache.
    pub(super) cache_bytes_per_s: f64,
    /// Rate at which one core reads memory while all measured threads do.
    pub(super) memory_bytes_per_s: f64,
}

impl Machine {
    /// Measures with `threads` threads.
    pub(super) fn measure(threads: usize) -> Result<Self> {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build()?;
        let hand_over_s = megabatch_nn::cpu::schedule::hand_over_seconds(&pool);
        let cache_bytes_per_s = read_rate(&pool, 1, CACHED, 100);
        let memory_bytes_per_s = read_rate(&pool, threads, UNCACHED / threads, 1);
        Ok(Machine { hand_over_s, cache_bytes_per_s, memory_bytes_per_s })
    }
}

/// Bytes a second that each of `threads` threads reads, of its own `bytes`, over and over: the best
/// of several measurements.
fn read_rate(pool: &rayon::ThreadPool, threads: usize, bytes: usize, passes: usize) -> f64 {
    let buffers = vec![vec![1.0f32; bytes / size_of::<f32>()]; threads];
    let read = |buffer: &Vec<f32>| {
        for _ in 0..passes {
            black_box(sum(black_box(buffer)));
        }
    };
    let seconds = || {
        let begin = Instant::now();
        pool.install(|| buffers.par_iter().for_each(read));
        begin.elapsed().as_secs_f64()
    };
    let best = (0..4).map(|_| seconds()).fold(f64::INFINITY, f64::min);
    (bytes * passes) as f64 / best
}

/// A sum in as many chains as keep loads under way.
fn sum(values: &[f32]) -> f32 {
    const LANES: usize = 128;
    let mut sums = [0.0f32; LANES];
    for values in values.chunks_exact(LANES) {
        sums.iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
    }
    sums.iter().sum()
}
