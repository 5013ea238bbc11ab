#![forbid(unsafe_code)]

//! The plain form: window by window, head by head, step by step.

use megabatch_gpu_core::{Buffer, Scope};

use super::{AttentionPooling, Vectors};
use crate::error::Result;
use crate::model::scalar::Scalar;
use crate::model::tensor::TensorSet;
use crate::reference::matmul::{Matrix, Output, multiply};

/// The memory of one timeframe's pooling in the plain form, forward and backward, for up to a fixed
/// number of windows of T states.
#[derive(Debug)]
pub(crate) struct PlainPooling<S: Scalar> {
    steps: usize,
    /// B now.
    samples: usize,
    weights: Buffer<S>, // [B, heads, T]
    keys: Buffer<S>,    // [heads, H]
    d_keys: Buffer<S>,  // [heads, H]
    vectors: Vectors<S>,
    d_vectors: Vectors<S>,
}

impl<S: Scalar> PlainPooling<S> {
    /// Memory for up to `capacity` windows of `steps` states, booked on `scope`.
    pub(crate) fn new(scope: &Scope, of: &AttentionPooling, steps: usize, capacity: usize) -> Result<Self> {
        let sizes = (of.heads, of.hidden);
        Ok(PlainPooling {
            steps,
            samples: 0,
            weights: Buffer::zeros(scope, capacity * of.heads * steps)?,
            keys: Buffer::zeros(scope, of.heads * of.hidden)?,
            d_keys: Buffer::zeros(scope, of.heads * of.hidden)?,
            vectors: Vectors::new(scope, sizes.0, sizes.1, capacity)?,
            d_vectors: Vectors::new(scope, sizes.0, sizes.1, capacity)?,
        })
    }

    /// Numbers in it.
    pub(crate) fn len(heads: usize, hidden: usize, steps: usize, capacity: usize) -> usize {
        capacity * heads * steps + 2 * heads * hidden + 2 * Vectors::<S>::len(heads, hidden, capacity)
    }

    /// Pools the states [T, B, H] of B windows to [B, H].
    pub(crate) fn forward(&mut self, of: &AttentionPooling, parameters: &TensorSet<S>, states: &[S]) -> &[S] {
        let (hidden, steps) = (of.hidden, self.steps);
        self.samples = states.len() / (steps * hidden);
        self.vectors.set_windows(self.samples);
        of.keys(parameters, self.keys.as_mut_slice());
        let keys = Matrix::new(self.keys.as_slice(), of.heads, hidden);
        let weights = self.weights.as_mut_slice().chunks_exact_mut(of.heads * steps).take(self.samples);
        for (sample, weights) in weights.enumerate() {
            let apart = self.samples * hidden;
            let states = &states[sample * hidden..][..(steps - 1) * apart + hidden];
            let all = Matrix::spaced(states, steps, hidden, apart);
            multiply(keys, all.transposed(), Output::Overwrite, weights);
            for (head, weights) in weights.chunks_exact_mut(steps).enumerate() {
                softmax(weights);
                let sum = self.vectors.sum_mut(head, sample);
                sum.fill(S::ZERO);
                let states = states.chunks(apart).map(|row| &row[..hidden]);
                weights.iter().zip(states).for_each(|(&weight, state)| add_scaled(sum, weight, state));
            }
        }
        of.project(parameters, &mut self.vectors);
        self.vectors.pooled()
    }

    /// The pooled vectors [B, H], after [`PlainPooling::forward`].
    pub(crate) fn pooled(&self) -> &[S] {
        self.vectors.pooled()
    }

    /// The weights of one sample, [heads, T], after [`PlainPooling::forward`].
    pub(crate) fn weights(&self, of: &AttentionPooling, sample: usize) -> &[S] {
        let len = of.heads * self.steps;
        &self.weights.as_slice()[sample * len..][..len]
    }

    /// The gradient of the pooled vectors [B, H], to be set before the backward pass.
    pub(crate) fn d_pooled_mut(&mut self) -> &mut [S] {
        self.d_vectors.set_windows(self.samples);
        self.d_vectors.pooled_mut()
    }

    /// Writes the gradient of the states [T, B, H], after [`PlainPooling::forward`] of the same;
    /// adds the parameters' gradients to `gradients`.
    pub(crate) fn backward(
        &mut self,
        of: &AttentionPooling,
        parameters: &TensorSet<S>,
        states: &[S],
        d_states: &mut [S],
        gradients: &mut TensorSet<S>,
    ) {
        let hidden = of.hidden;
        of.project_backward(parameters, &self.vectors, &mut self.d_vectors, gradients);
        self.d_keys.as_mut_slice().fill(S::ZERO);
        d_states.fill(S::ZERO);
        for (row, weights) in self.weights.as_slice().chunks_exact(self.steps).take(self.samples * of.heads).enumerate()
        {
            let (sample, head) = (row / of.heads, row % of.heads);
            let own = head * hidden..(head + 1) * hidden;
            let (key, d_key) = (&self.keys.as_slice()[own.clone()], &mut self.d_keys.as_mut_slice()[own]);
            let d_sum = self.d_vectors.sum(head, sample);
            // Σ a_t (dsum·h_t), which the softmax takes from each.
            let mean = dot(d_sum, self.vectors.sum(head, sample));
            for (t, &weight) in weights.iter().enumerate() {
                let at = (t * self.samples + sample) * hidden..(t * self.samples + sample + 1) * hidden;
                let (state, d_state) = (&states[at.clone()], &mut d_states[at]);
                let d_score = (weight * (dot(d_sum, state) - mean)).flush();
                add_scaled(d_state, weight, d_sum);
                add_scaled(d_state, d_score, key);
                add_scaled(d_key, d_score, state);
            }
        }
        of.keys_backward(parameters, self.d_keys.as_slice(), gradients);
    }
}

/// Summed up in lanes, which CPUs add side by side.
pub(super) fn dot<S: Scalar>(a: &[S], b: &[S]) -> S {
    const LANES: usize = 8;
    let mut sums = [S::ZERO; LANES];
    for (a, b) in a.chunks(LANES).zip(b.chunks(LANES)) {
        sums.iter_mut().zip(a.iter().zip(b)).for_each(|(sum, (&a, &b))| *sum += a * b);
    }
    sums.into_iter().fold(S::ZERO, |sum, lane| sum + lane)
}

pub(super) fn add_scaled<S: Scalar>(sums: &mut [S], factor: S, terms: &[S]) {
    sums.iter_mut().zip(terms).for_each(|(sum, &term)| *sum += factor * term);
}

/// Scores become weights that sum to one.
pub(crate) fn softmax<S: Scalar>(scores: &mut [S]) {
    let most = scores.iter().fold(scores[0], |most, &score| if score > most { score } else { most });
    let mut sum = S::ZERO;
    for score in scores.iter_mut() {
        *score = (*score - most).exp();
        sum += *score;
    }
    scores.iter_mut().for_each(|weight| *weight = *weight / sum);
}
