//! Pooling of windows one by one, for predictions from states.

use megabatch_gpu_core::{Buffer, Scope};
use megabatch_nn::Result;
use megabatch_nn::model::TensorSet;
use megabatch_nn::model::pooling::AttentionPooling;

use super::{Vectors, find_keys, project};
use crate::kernel::bf16::Bf16Isa;
use crate::matmul::{Matrix, Output, multiply_by};

/// The memory of one timeframe's pooling, for up to a fixed number of windows of T states.
#[derive(Debug)]
pub(crate) struct WindowPooling {
    steps: usize,
    /// B now.
    samples: usize,
    weights: Buffer<f32>, // [B, heads, T]
    keys: Buffer<f32>,    // [heads, H]
    vectors: Vectors,
}

impl WindowPooling {
    /// Memory for up to `capacity` windows of `steps` states, booked on `scope`.
    pub(crate) fn new(scope: &Scope, pooling: &AttentionPooling, steps: usize, capacity: usize) -> Result<Self> {
        Ok(WindowPooling {
            steps,
            samples: 0,
            weights: Buffer::zeros(scope, capacity * pooling.heads * steps)?,
            keys: Buffer::zeros(scope, pooling.heads * pooling.hidden)?,
            vectors: Vectors::new(scope, pooling.heads, pooling.hidden, capacity)?,
        })
    }

    /// Length of each buffer in numbers, in the order of the fields.
    pub(crate) fn lens(heads: usize, hidden: usize, steps: usize, capacity: usize) -> Vec<usize> {
        let own = [capacity * heads * steps, heads * hidden];
        own.into_iter().chain(Vectors::lens(heads, hidden, capacity)).collect()
    }

    /// Pools the states [T, B, H] of B windows to [B, H].
    pub(crate) fn forward(
        &mut self,
        bf16_isa: Option<Bf16Isa>,
        pooling: &AttentionPooling,
        parameters: &TensorSet,
        states: &[f32],
    ) -> &[f32] {
        let (hidden, steps) = (pooling.hidden, self.steps);
        self.samples = states.len() / (steps * hidden);
        self.vectors.set_windows(self.samples);
        find_keys(pooling, parameters, self.keys.as_mut_slice());
        let keys = Matrix::new(self.keys.as_slice(), pooling.heads, hidden);
        let weights = self.weights.as_mut_slice().chunks_exact_mut(pooling.heads * steps).take(self.samples);
        for (sample, weights) in weights.enumerate() {
            let apart = self.samples * hidden;
            let states = &states[sample * hidden..][..(steps - 1) * apart + hidden];
            let all = Matrix::spaced(states, steps, hidden, apart);
            multiply_by(bf16_isa, keys, all.transposed(), Output::Overwrite, weights);
            for (head, weights) in weights.chunks_exact_mut(steps).enumerate() {
                softmax(weights);
                let sum = self.vectors.sum_mut(head, sample);
                sum.fill(0.0);
                let states = states.chunks(apart).map(|row| &row[..hidden]);
                weights.iter().zip(states).for_each(|(&weight, state)| add_scaled(sum, weight, state));
            }
        }
        project(pooling, bf16_isa, parameters, &mut self.vectors);
        self.vectors.pooled()
    }

    /// The pooled vectors [B, H], after [`WindowPooling::forward`].
    pub(crate) fn pooled(&self) -> &[f32] {
        self.vectors.pooled()
    }

    /// The weights of one sample, [heads, T], after [`WindowPooling::forward`].
    pub(crate) fn weights(&self, pooling: &AttentionPooling, sample: usize) -> &[f32] {
        let len = pooling.heads * self.steps;
        &self.weights.as_slice()[sample * len..][..len]
    }
}

/// Summed up in lanes, which CPUs add side by side.
pub(super) fn dot(a: &[f32], b: &[f32]) -> f32 {
    const LANES: usize = 8;
    let mut sums = [0.0; LANES];
    for (a, b) in a.chunks(LANES).zip(b.chunks(LANES)) {
        sums.iter_mut().zip(a.iter().zip(b)).for_each(|(sum, (&a, &b))| *sum += a * b);
    }
    sums.into_iter().fold(0.0, |sum, lane| sum + lane)
}

pub(super) fn add_scaled(sums: &mut [f32], factor: f32, terms: &[f32]) {
    sums.iter_mut().zip(terms).for_each(|(sum, &term)| *sum += factor * term);
}

/// Scores become weights that sum to one.
pub(crate) fn softmax(scores: &mut [f32]) {
    let most = scores.iter().fold(scores[0], |most, &score| if score > most { score } else { most });
    let mut sum = 0.0;
    for score in scores.iter_mut() {
        *score = (*score - most).exp();
        sum += *score;
    }
    scores.iter_mut().for_each(|weight| *weight /= sum);
}
