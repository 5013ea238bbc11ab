//! Attention pooling of many windows of one sequence, each of its last T states.
//!
//! The windows of neighbouring samples share all states but one, and the score of a state is the
//! same in all of them. With blocks of T states, a window is the end of one block and the beginning
//! of the next:
//!
//! ```text
//! block          |0 . . . T-1|T . . . 2T-1|
//! window              |- - - - - -|
//! down a block        |<- - -|                 Σ e^s_t h_t from its end to each of its states
//! up a block                 |- ->|            from its beginning to each
//! ```
//!
//! Two passes over the states thus pool all windows, whatever T: two additions a state and one a
//! window, in place of T a window, with nothing ever taken off a sum (van Herk, *A fast algorithm
//! for local minimum and maximum filters*, 1992). Sums are kept as multiples of e^m, m the largest
//! exponent in them (Milakov and Gimelshein, *Online normalizer calculation for softmax*, 2018).
//!
//! Backward, a state gathers from the windows that it is in, which end within T steps from it on:
//! the same two passes with the places changed. From S_r, the pooled sum of window r, M_r its
//! largest score and Z_r = Σ e^(s_t - M_r):
//!
//! ```text
//! a_rt = e^(s_t - M_r) / Z_r                       the weight of state t in window r
//! D_t = Σ_r a_rt dS_r,  E_t = Σ_r a_rt dS_r·S_r     Σ over windows with exponent -M_r, times e^s_t
//! ds_t = h_t·D_t - E_t
//! dh_t = D_t + Σ over heads of ds_t u,  du = Σ_t ds_t h_t
//! ```

use std::ops::Range;

use megabatch_gpu_core::{Buffer, Scope};
use megabatch_nn::Result;
use megabatch_nn::model::TensorSet;
use megabatch_nn::model::pooling::AttentionPooling;

use super::window::{add_scaled, dot};
use super::{Vectors, find_keys, keys_backward, project, project_backward};
use crate::flush::flush;
use crate::kernel::bf16::Bf16Isa;
use crate::matmul::{Matrix, Output, multiply_by};

/// Capacity.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SlidingCapacity {
    /// T: states of each window.
    pub(crate) steps: usize,
    /// States of the longest sequence.
    pub(crate) longest: usize,
    pub(crate) sequences: usize,
    pub(crate) windows: usize,
}

/// The memory of one timeframe's pooling over sequences of states, forward and backward.
///
/// Windows are told by the sequence and the place of their last state, each once, ascending:
/// `(sequence, T - 1)` and on.
#[derive(Debug)]
pub(crate) struct SlidingPooling {
    capacity: SlidingCapacity,
    /// For products of pairs of bf16 numbers; `None` for single precision.
    bf16_isa: Option<Bf16Isa>,
    /// The window that ends at each state of the current sequence.
    window_at: Vec<Option<usize>>,
    states: Buffer<f32>,   // [longest, H], of the sequence in work
    d_states: Buffer<f32>, // [longest, H]
    scores: Buffer<f32>,   // [sequences, heads, longest]
    d_scores: Buffer<f32>, // [longest], of the head in work
    keys: Buffer<f32>,     // [heads, H]
    d_keys: Buffer<f32>,   // [heads, H]
    largest: Buffer<f32>,  // [heads, windows]: M
    totals: Buffer<f32>,   // [heads, windows]: Z
    running: Buffer<f32>,  // [H]
    vectors: Vectors,
    d_vectors: Vectors,
}

/// Length of each buffer in numbers, in the order of the fields, without the last two.
fn lens(heads: usize, hidden: usize, capacity: SlidingCapacity) -> [usize; 9] {
    let (states, keys, windows) = (capacity.longest * hidden, heads * hidden, heads * capacity.windows);
    [
        states,
        states,
        capacity.sequences * heads * capacity.longest,
        capacity.longest,
        keys,
        keys,
        windows,
        windows,
        hidden,
    ]
}

impl SlidingPooling {
    /// Memory for what `capacity` says, booked on `scope`.
    pub(crate) fn new(scope: &Scope, heads: usize, hidden: usize, capacity: SlidingCapacity) -> Result<Self> {
        let zeros = |len| Buffer::zeros(scope, len);
        let [states, d_states, scores, d_scores, keys, d_keys, largest, totals, running] =
            lens(heads, hidden, capacity);
        Ok(SlidingPooling {
            capacity,
            bf16_isa: None,
            window_at: Vec::new(),
            states: zeros(states)?,
            d_states: zeros(d_states)?,
            scores: zeros(scores)?,
            d_scores: zeros(d_scores)?,
            keys: zeros(keys)?,
            d_keys: zeros(d_keys)?,
            largest: zeros(largest)?,
            totals: zeros(totals)?,
            running: zeros(running)?,
            vectors: Vectors::new(scope, heads, hidden, capacity.windows)?,
            d_vectors: Vectors::new(scope, heads, hidden, capacity.windows)?,
        })
    }

    /// This memory, for products by the given instructions.
    pub(crate) fn with(self, bf16_isa: Option<Bf16Isa>) -> Self {
        SlidingPooling { bf16_isa, ..self }
    }

    /// Length of each buffer in numbers, in the order of the fields.
    pub(crate) fn lens(heads: usize, hidden: usize, capacity: SlidingCapacity) -> Vec<usize> {
        let vectors = Vectors::lens(heads, hidden, capacity.windows);
        lens(heads, hidden, capacity).into_iter().chain(vectors).chain(vectors).collect()
    }

    /// Pools the windows that end at `ends`, of the states that `read` writes: `[W, H]`.
    pub(crate) fn forward(
        &mut self,
        pooling: &AttentionPooling,
        parameters: &TensorSet,
        ends: &[(usize, usize)],
        mut read: impl FnMut((usize, usize), &mut [f32]),
    ) -> &[f32] {
        find_keys(pooling, parameters, self.keys.as_mut_slice());
        self.vectors.set_windows(ends.len());
        let mut first = 0;
        for own in ends.chunk_by(|a, b| a.0 == b.0) {
            let sequence = self.take(pooling, first, own, &mut read);
            (0..pooling.heads).for_each(|head| self.sum_windows(pooling, sequence, head, first..first + own.len()));
            first += own.len();
        }
        project(pooling, self.bf16_isa, parameters, &mut self.vectors);
        self.vectors.pooled()
    }

    /// The pooled vectors `[W, H]` of the last forward pass.
    pub(crate) fn pooled(&self) -> &[f32] {
        self.vectors.pooled()
    }

    /// The gradient of the pooled vectors `[W, H]`, to be set before the backward pass.
    pub(crate) fn d_pooled_mut(&mut self) -> &mut [f32] {
        self.d_vectors.set_windows(self.vectors.windows());
        self.d_vectors.pooled_mut()
    }

    /// Gives `write` the gradients of the states, after [`SlidingPooling::forward`] of the same;
    /// adds the parameters' gradients to `gradients`.
    pub(crate) fn backward(
        &mut self,
        pooling: &AttentionPooling,
        parameters: &TensorSet,
        ends: &[(usize, usize)],
        mut read: impl FnMut((usize, usize), &mut [f32]),
        mut write: impl FnMut((usize, usize), &[f32]),
        gradients: &mut TensorSet,
    ) {
        project_backward(pooling, self.bf16_isa, parameters, &self.vectors, &mut self.d_vectors, gradients);
        self.d_keys.as_mut_slice().fill(0.0);
        let mut first = 0;
        for own in ends.chunk_by(|a, b| a.0 == b.0) {
            let sequence = self.take(pooling, first, own, &mut read);
            self.d_states.as_mut_slice().fill(0.0);
            (0..pooling.heads).for_each(|head| self.gather_gradients(pooling, sequence, head));
            let rows = self.d_states.as_slice().chunks_exact(pooling.hidden).take(self.window_at.len());
            rows.enumerate().for_each(|(t, row)| write((sequence, t), row));
            first += own.len();
        }
        keys_backward(pooling, parameters, self.d_keys.as_slice(), gradients);
    }

    /// The weights `[heads, T]` of window `window`, which ends at `end`, after
    /// [`SlidingPooling::forward`].
    pub(crate) fn read_weights(&self, window: usize, sequence: usize, last: usize, to: &mut [f32]) {
        let SlidingCapacity { steps, longest, windows, .. } = self.capacity;
        let heads = to.len() / steps;
        for (head, weights) in to.chunks_exact_mut(steps).enumerate() {
            let window_number = head * windows + window;
            let (largest, total) = (self.largest.as_slice()[window_number], self.totals.as_slice()[window_number]);
            let scores = &self.scores.as_slice()[(sequence * heads + head) * longest..][last + 1 - steps..];
            weights.iter_mut().zip(scores).for_each(|(to, &score)| *to = (score - largest).exp() / total);
        }
    }

    /// Takes the states of the sequence whose windows, the first of them being window `first`, end
    /// at `ends`.
    fn take(
        &mut self,
        pooling: &AttentionPooling,
        first: usize,
        ends: &[(usize, usize)],
        read: &mut impl FnMut((usize, usize), &mut [f32]),
    ) -> usize {
        let (sequence, last) = ends[ends.len() - 1];
        self.window_at.clear();
        self.window_at.resize(last + 1, None);
        ends.iter().enumerate().for_each(|(n, &(_, last))| self.window_at[last] = Some(first + n));
        let rows = self.states.as_mut_slice().chunks_exact_mut(pooling.hidden).take(last + 1);
        rows.enumerate().for_each(|(t, row)| read((sequence, t), row));
        sequence
    }

    /// The sums over windows `own` in a head, and their M and Z.
    fn sum_windows(&mut self, pooling: &AttentionPooling, sequence: usize, head: usize, own: Range<usize>) {
        let (hidden, len) = (pooling.hidden, self.window_at.len());
        let SlidingCapacity { steps, longest, windows, .. } = self.capacity;
        let states = self.states.as_slice();
        let scores = &mut self.scores.as_mut_slice()[(sequence * pooling.heads + head) * longest..][..len];
        let key = Matrix::new(&self.keys.as_slice()[head * hidden..][..hidden], hidden, 1);
        multiply_by(self.bf16_isa, Matrix::new(&states[..len * hidden], len, hidden), key, Output::Overwrite, scores);

        let largest = &mut self.largest.as_mut_slice()[head * windows..][..windows];
        let totals = &mut self.totals.as_mut_slice()[head * windows..][..windows];
        let (vectors, window_at) = (&mut self.vectors, &self.window_at);
        let add = |running: &mut Running<'_>, t: usize| {
            running.add(scores[t], 1.0, 1.0, &states[t * hidden..][..hidden]);
        };
        sweep(len, steps, self.running.as_mut_slice(), add, |running, first, part| {
            let Some(window) = window_at.get(first + steps - 1).copied().flatten() else { return };
            let (most, total, sum) = (&mut largest[window], &mut totals[window], vectors.sum_mut(head, window));
            match part {
                WindowPart::End => {
                    (*most, *total) = (running.most, running.number);
                    sum.copy_from_slice(running.vector);
                }
                WindowPart::Beginning => {
                    let both = if running.most > *most { running.most } else { *most };
                    let [fading, share] = [(*most - both).exp(), (running.most - both).exp()];
                    (*most, *total) = (both, fading * *total + share * running.number);
                    let terms = sum.iter_mut().zip(&*running.vector);
                    terms.for_each(|(sum, &term)| *sum = fading * *sum + share * term);
                }
            }
        });
        for window in own {
            let share = 1.0 / totals[window];
            vectors.sum_mut(head, window).iter_mut().for_each(|sum| *sum *= share);
        }
    }

    /// Adds a head's part to the gradients of the states and keys.
    fn gather_gradients(&mut self, pooling: &AttentionPooling, sequence: usize, head: usize) {
        let (hidden, len) = (pooling.hidden, self.window_at.len());
        let SlidingCapacity { steps, longest, windows, .. } = self.capacity;
        let scores = &self.scores.as_slice()[(sequence * pooling.heads + head) * longest..][..len];
        let largest = &self.largest.as_slice()[head * windows..][..windows];
        let totals = &self.totals.as_slice()[head * windows..][..windows];
        let (states, d_states) = (self.states.as_slice(), self.d_states.as_mut_slice());
        let d_scores = &mut self.d_scores.as_mut_slice()[..len];
        d_scores.fill(0.0);
        let (window_at, vectors, d_vectors) = (&self.window_at, &self.vectors, &self.d_vectors);
        let add = |running: &mut Running<'_>, t: usize| {
            let Some(window) = window_at[t] else { return };
            let d_sum = d_vectors.sum(head, window);
            running.add(-largest[window], 1.0 / totals[window], dot(d_sum, vectors.sum(head, window)), d_sum);
        };
        sweep(len, steps, self.running.as_mut_slice(), add, |running, t, _| {
            let (weight, state) = ((scores[t] + running.most).exp(), &states[t * hidden..][..hidden]);
            d_scores[t] += weight * (dot(state, running.vector) - running.number);
            add_scaled(&mut d_states[t * hidden..][..hidden], weight, running.vector);
        });
        let own = head * hidden..(head + 1) * hidden;
        let (key, d_key) = (&self.keys.as_slice()[own.clone()], &mut self.d_keys.as_mut_slice()[own]);
        for (t, d_score) in d_scores.iter().map(|&d| flush(d)).enumerate() {
            add_scaled(&mut d_states[t * hidden..][..hidden], d_score, key);
            add_scaled(d_key, d_score, &states[t * hidden..][..hidden]);
        }
    }
}

/// Σ f e^(x - most) of numbers and vectors, over what was added with exponents x and factors f.
struct Running<'a> {
    /// The largest exponent.
    most: f32,
    number: f32,
    vector: &'a mut [f32],
}

impl<'a> Running<'a> {
    /// Empty pooling.
    fn new(vector: &'a mut [f32]) -> Self {
        vector.fill(0.0);
        Running { most: f32::NEG_INFINITY, number: 0.0, vector }
    }

    fn add(&mut self, exponent: f32, factor: f32, number: f32, vector: &[f32]) {
        if exponent > self.most {
            let fading = (self.most - exponent).exp();
            self.number *= fading;
            self.vector.iter_mut().for_each(|sum| *sum *= fading);
            self.most = exponent;
        }
        let share = (exponent - self.most).exp() * factor;
        self.number += share * number;
        add_scaled(self.vector, share, vector);
    }
}

/// The part of a window that is summed up, see the module.
#[derive(Clone, Copy)]
enum WindowPart {
    /// From the window's first place to the end of that one's block.
    End,
    /// From the beginning of the next block to the window's last place.
    Beginning,
}

/// Sums up all windows of `steps` places, as far as they are below `len`: calls `add` for each
/// place of a part, and then `read` with the window's first place. Each window's end comes before
/// its beginning, which there is unless the window is a block.
fn sweep(
    len: usize,
    steps: usize,
    vector: &mut [f32],
    add: impl Fn(&mut Running<'_>, usize),
    mut read: impl FnMut(&Running<'_>, usize, WindowPart),
) {
    for start in (0..len).step_by(steps) {
        let mut down = Running::new(vector);
        for place in (start..len.min(start + steps)).rev() {
            add(&mut down, place);
            read(&down, place, WindowPart::End);
        }
        if start > 0 {
            let mut up = Running::new(vector);
            for place in start..start + steps - 1 {
                if place < len {
                    add(&mut up, place);
                }
                read(&up, place + 1 - steps, WindowPart::Beginning);
            }
        }
    }
}

#[cfg(test)]
mod tests;
