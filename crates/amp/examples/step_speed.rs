//! Times the two passes from gradients to updated weights, for `benches/peers/amp.py`: one line of
//! JSON with the fastest time of each in seconds.
//!
//! `step_speed PARAMETERS TENSORS THREADS REPEATS`
//!
//! Lower bound while all of it lies in memory: the first pass reads 4 bytes a parameter; the second
//! reads 16 and writes 12. `traffic` is that much traffic with an addition in place of the work.

use std::hint::black_box;
use std::time::Instant;

use megabatch_amp::{
    LossScaler, Moments, OptimizerSettings, OptimizerStep, ParameterTensor, Result, ScalerConfig, Threads,
    unscale_and_check, update,
};
use rayon::prelude::*;

struct Model {
    weights: Vec<Vec<f32>>,
    gradients: Vec<Vec<f32>>,
    exp_avg: Vec<Vec<f32>>,
    exp_avg_sq: Vec<Vec<f32>>,
    threads: Threads,
    steps: u64,
}

fn main() -> Result<()> {
    let words: Vec<usize> = std::env::args().skip(1).map(|word| word.parse().expect("a number")).collect();
    let [parameters, tensors, threads, repeats] = words[..] else { panic!("four numbers") };
    rayon::ThreadPoolBuilder::new().num_threads(threads).build_global().expect("nobody has made the pool yet");
    let mut model =
        Model::new(parameters / tensors, tensors, if threads == 1 { Threads::Caller } else { Threads::Pool });
    let mut scaler = LossScaler::new(ScalerConfig::default())?;

    let times = [
        (
            "examine",
            fastest(repeats, || _ = black_box(unscale_and_check(&model.slices(), scaler.inverse(), model.threads))),
        ),
        ("step", fastest(repeats, || model.step(&mut scaler).expect("the gradients are finite"))),
        ("traffic", fastest(repeats, || model.traffic())),
    ];
    println!("{{{}}}", times.map(|(name, seconds)| format!("\"{name}\": {seconds}")).join(", "));
    Ok(())
}

fn fastest(repeats: usize, mut work: impl FnMut()) -> f64 {
    let mut fastest = f64::INFINITY;
    for _ in 0..=repeats {
        let start = Instant::now();
        work();
        fastest = fastest.min(start.elapsed().as_secs_f64());
    }
    fastest
}

impl Model {
    fn new(len: usize, tensors: usize, threads: Threads) -> Self {
        let filled = |scale: f32| -> Vec<Vec<f32>> {
            let noise = |k: usize| ((k as u32).wrapping_mul(2_654_435_761) >> 8) as f32 / (1 << 23) as f32 - 1.0;
            (0..tensors).map(|tensor| (0..len).map(|k| scale * noise(k + tensor)).collect()).collect()
        };
        // The scaled loss's gradients, and no moments yet.
        Model {
            weights: filled(1.0),
            gradients: filled(65.0),
            exp_avg: filled(0.0),
            exp_avg_sq: filled(0.0),
            threads,
            steps: 0,
        }
    }

    fn slices(&self) -> Vec<&[f32]> {
        self.gradients.iter().map(Vec::as_slice).collect()
    }

    fn step(&mut self, scaler: &mut LossScaler) -> Result<()> {
        let examined = unscale_and_check(&self.slices(), scaler.inverse(), self.threads);
        let factors = examined.factors(Some(1.0)).expect("the gradients are finite");
        self.steps += 1;
        let settings = OptimizerSettings { lr: 1e-9, ..OptimizerSettings::default() };
        let moments = self.exp_avg.iter_mut().zip(&mut self.exp_avg_sq);
        let tensors = self.weights.iter_mut().zip(&self.gradients).zip(moments).map(|((values, gradient), (m, v))| {
            let moments = Some(Moments { exp_avg: m, exp_avg_sq: v });
            ParameterTensor { values, gradient, moments }
        });
        update(tensors, &OptimizerStep { settings, number: self.steps, factors }, self.threads);
        scaler.update(None).map(|_| ())
    }

    /// Reads the gradients; then reads everything, and writes all but the gradients.
    fn traffic(&mut self) {
        let moments = self.exp_avg.par_iter_mut().zip(&mut self.exp_avg_sq);
        let tensors = self.weights.par_iter_mut().zip(&self.gradients).zip(moments);
        // A pool of one thread is as good as the caller.
        self.gradients.par_iter().for_each(|gradient| read(gradient));
        tensors.for_each(|((weights, gradient), (m, v))| write(weights, gradient, m, v));
    }
}

fn read(gradient: &[f32]) {
    let mut lanes = [0.0f32; 64];
    gradient.chunks_exact(64).for_each(|row| lanes.iter_mut().zip(row).for_each(|(lane, g)| *lane += g));
    black_box(lanes);
}

fn write(weights: &mut [f32], gradient: &[f32], exp_avg: &mut [f32], exp_avg_sq: &mut [f32]) {
    for (((w, g), m), v) in weights.iter_mut().zip(gradient).zip(exp_avg).zip(exp_avg_sq) {
        (*w, *m, *v) = (*w + *g, *m + *g, *v + *g);
    }
}
