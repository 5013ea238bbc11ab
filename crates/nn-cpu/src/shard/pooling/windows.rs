//! Attention pooling of one timeframe's distinct windows, each a sequence of its own.
//!
//! ```text
//! for each window, its states [T, H] gathered:                                        (1)
//!     scores = states · keys;  weights = softmax over t;  sums = weightsᵀ · states     (2)
//! pooled vectors from the sums, all windows at once
//! ```
//!
//! Backward, from the gradients of the sums, for each window with its states gathered anew:
//!
//! ```text
//!     dweights = states · dsums;  dscores = weights · (dweights - Σ weights · dweights)
//!     dstates = weights · dsums + dscores · keys;  dkeys += dscoresᵀ · states
//! ```
//!
//! 1. The steps of one window lie apart by the number of windows. Side by side they stay in the
//!    second-level cache, and all that follows are products of the kernels.
//! 2. Heads are the columns of a panel, so that the softmax goes through all of them at once.

use megabatch_gpu_core::{Buffer, Scope};
use megabatch_nn::Result;
use megabatch_nn::model::TensorSet;
use megabatch_nn::model::pooling::AttentionPooling;

use super::super::Dimensions;
use super::super::memory::panel_stride;
use super::super::norm::normalise;
use super::super::sequence::Sequence;
use super::PoolingParameters;
use crate::compute::Purpose;
use crate::flush::flush;
use crate::kernel::{self, Isa, PANEL, PanelProduct, PanelStride, Start, View, ViewMut};
use crate::pooling::{Vectors, find_keys, keys_backward, project, project_backward};

/// The keys of one timeframe, [heads, H], as the kernels read them.
#[derive(Debug)]
pub(in crate::shard) struct PackedKeys {
    by_head: Buffer<f32>, // [head panels][H][16]
    /// For the backward pass, else empty.
    by_unit: Buffer<f32>, // [unit panels][heads][16]
}

/// Length of each buffer of a timeframe's keys in numbers, in the order of the fields.
pub(in crate::shard) fn keys_len(dims: Dimensions, purpose: Purpose) -> [usize; 2] {
    let by_unit = if purpose == Purpose::Prediction { 0 } else { dims.unit_panels() * dims.heads * PANEL };
    [dims.head_panels() * dims.sizes.hidden * PANEL, by_unit]
}

impl PackedKeys {
    pub(in crate::shard) fn new(scope: &Scope, dims: Dimensions, purpose: Purpose) -> Result<Self> {
        let [by_head, by_unit] = keys_len(dims, purpose);
        Ok(PackedKeys { by_head: Buffer::zeros(scope, by_head)?, by_unit: Buffer::zeros(scope, by_unit)? })
    }

    /// Computes the keys anew.
    pub(in crate::shard) fn pack(&mut self, pooling: &AttentionPooling, parameters: &TensorSet) {
        let mut keys = vec![0.0; pooling.heads * pooling.hidden];
        find_keys(pooling, parameters, &mut keys);
        for (head, key) in keys.chunks_exact(pooling.hidden).enumerate() {
            put_column(key, head, self.by_head.as_mut_slice());
            if !self.by_unit.is_empty() {
                put_row(key, head, pooling.heads, self.by_unit.as_mut_slice());
            }
        }
    }
}

/// Column `head` of [head panels][H][16].
fn put_column(values: &[f32], head: usize, to: &mut [f32]) {
    let column = &mut to[head / PANEL * values.len() * PANEL + head % PANEL..];
    column.iter_mut().step_by(PANEL).zip(values).for_each(|(to, &value)| *to = value);
}

/// Row `head` of [unit panels][heads][16].
fn put_row(values: &[f32], head: usize, heads: usize, to: &mut [f32]) {
    for (panel, part) in values.chunks(PANEL).enumerate() {
        to[(panel * heads + head) * PANEL..][..part.len()].copy_from_slice(part);
    }
}

/// Row `head` out of [unit panels][heads][16].
fn read_row(from: &[f32], head: usize, heads: usize, to: &mut [f32]) {
    for (panel, part) in to.chunks_mut(PANEL).enumerate() {
        part.copy_from_slice(&from[(panel * heads + head) * PANEL..][..part.len()]);
    }
}

/// Saved forward pass of one timeframe.
#[derive(Debug)]
pub(in crate::shard) struct PooledWindows {
    dims: Dimensions,
    /// [W][head panels][T][16]
    weights: Buffer<f32>,
    vectors: Vectors,
}

/// Scratch buffers of pooling, used by one timeframe after another.
#[derive(Debug)]
pub(in crate::shard) struct PoolingScratch {
    states: Buffer<f32>,   // [unit panels][T][16]
    sums: Buffer<f32>,     // [unit panels][heads][16]; their gradients in the backward pass
    d_states: Buffer<f32>, // [unit panels][T][16]
    d_scores: Buffer<f32>, // [head panels][T][16]
    /// The gradients of the sums once more, and of the keys.
    d_by_head: Buffer<f32>, // [head panels][H][16]
    d_keys: Buffer<f32>,   // [unit panels][heads][16]
    /// Gradients; for as many windows and heads as any timeframe has.
    d_vectors: Option<Vectors>,
}

/// Length of each buffer of one timeframe in numbers, in the order of the fields, without the last.
fn scratch_len(dims: Dimensions, purpose: Purpose) -> [usize; 6] {
    if !dims.pools_windows() {
        return [0; 6];
    }
    let states = dims.unit_panels() * window_place(dims.sizes.steps).stride;
    let sums = dims.unit_panels() * dims.heads * PANEL;
    match purpose {
        Purpose::Prediction => [states, sums, 0, 0, 0, 0],
        Purpose::Training { .. } => {
            let scores = dims.head_panels() * dims.sizes.steps * PANEL;
            [states, sums, states, scores, dims.head_panels() * dims.sizes.hidden * PANEL, sums]
        }
    }
}

/// The states of one window, gathered.
fn window_place(steps: usize) -> PanelStride {
    panel_stride(steps, 1)
}

fn largest(all: &[Dimensions], purpose: Purpose) -> [usize; 6] {
    let each = all.iter().map(|&dims| scratch_len(dims, purpose));
    each.fold([0; 6], |most, len| std::array::from_fn(|i| most[i].max(len[i])))
}

/// A timeframe whose windows are pooled one by one and learnt from. All timeframes have windows and
/// heads of the same numbers.
fn trained_windows(all: &[Dimensions], purpose: Purpose) -> Option<&Dimensions> {
    all.first().filter(|dims| dims.pools_windows() && purpose != Purpose::Prediction)
}

impl Dimensions {
    /// True if each window is pooled by itself.
    fn pools_windows(self) -> bool {
        self.heads > 0 && !self.is_dense()
    }

    /// Panels of heads.
    fn head_panels(self) -> usize {
        self.heads.div_ceil(PANEL)
    }

    /// The products of the `states` [T, H] of a window with a vector a head.
    fn scores<'a>(self, states: View<'a>, by_head: &'a [f32]) -> PanelProduct<'a> {
        let (rows, depth, panels) = (self.sizes.steps, self.sizes.hidden, self.head_panels());
        PanelProduct { rows, depth, panels, start: Start::Zero, a: states, b: by_head }
    }

    fn weights_len(self) -> usize {
        self.capacity * self.head_panels() * self.sizes.steps * PANEL
    }

    /// The weights of window `w`, or anything of that shape, for windows of T bars.
    fn weights_at(self, w: usize) -> PanelStride {
        let stride = self.sizes.steps * PANEL;
        PanelStride { start: w * self.head_panels() * stride, stride }
    }
}

impl PoolingScratch {
    pub(in crate::shard) fn new(scope: &Scope, all: &[Dimensions], purpose: Purpose) -> Result<Self> {
        let [states, sums, d_states, d_scores, d_by_head, d_keys] = largest(all, purpose);
        let zeros = |len| Buffer::zeros(scope, len);
        let trained = trained_windows(all, purpose);
        let d_vectors = |dims: &Dimensions| Vectors::new(scope, dims.heads, dims.sizes.hidden, dims.capacity);
        Ok(PoolingScratch {
            states: zeros(states)?,
            sums: zeros(sums)?,
            d_states: zeros(d_states)?,
            d_scores: zeros(d_scores)?,
            d_by_head: zeros(d_by_head)?,
            d_keys: zeros(d_keys)?,
            d_vectors: trained.map(d_vectors).transpose()?,
        })
    }

    /// Length of each buffer in numbers, in the order in which they are taken.
    pub(super) fn lens(all: &[Dimensions], purpose: Purpose) -> Vec<usize> {
        let vectors = |dims: &Dimensions| Vectors::lens(dims.heads, dims.sizes.hidden, dims.capacity);
        let d_vectors = trained_windows(all, purpose).into_iter().flat_map(vectors);
        largest(all, purpose).into_iter().chain(d_vectors).collect()
    }

    /// The gradients of the pooled vectors of `windows` windows, [W, H], for writing.
    pub(in crate::shard) fn d_pooled_mut(&mut self, windows: usize) -> &mut [f32] {
        let d_vectors = self.d_vectors.as_mut().expect("memory made for training");
        d_vectors.set_windows(windows);
        d_vectors.pooled_mut()
    }
}

impl PooledWindows {
    pub(in crate::shard) fn new(scope: &Scope, dims: Dimensions) -> Result<Self> {
        let vectors = Vectors::new(scope, dims.heads, dims.sizes.hidden, dims.capacity)?;
        Ok(PooledWindows { dims, weights: Buffer::zeros(scope, dims.weights_len())?, vectors })
    }

    /// Length of each buffer in numbers, in the order in which they are taken.
    pub(super) fn lens(dims: Dimensions) -> Vec<usize> {
        let vectors = Vectors::lens(dims.heads, dims.sizes.hidden, dims.capacity);
        vectors.into_iter().chain([dims.weights_len()]).collect()
    }

    /// Pools the states that `sequence` has computed: [W, H], a row a distinct window.
    pub(in crate::shard) fn forward(
        &mut self,
        isa: Isa,
        PoolingParameters { pooling, values, keys, norm }: PoolingParameters<'_>,
        sequence: &Sequence,
        scratch: &mut PoolingScratch,
    ) -> &[f32] {
        let (dims, windows) = (self.dims, sequence.windows.len());
        let steps = dims.sizes.steps;
        self.vectors.set_windows(windows);
        for w in 0..windows {
            gather_window(sequence, w, norm, scratch.states.as_mut_slice());
            let states = View(scratch.states.as_slice(), window_place(steps));
            let mut weights = ViewMut(self.weights.as_mut_slice(), dims.weights_at(w));
            kernel::product_by(dims.product_isa(isa), dims.scores(states, keys.by_head.as_slice()), &mut weights);
            for panel in 0..dims.head_panels() {
                softmax(isa, &mut weights.0[dims.weights_at(w).panel(panel).start..][..steps * PANEL]);
            }
            let sums = &mut scratch.sums.as_mut_slice()[..dims.unit_panels() * dims.heads * PANEL];
            sums.fill(0.0);
            let weights = View(self.weights.as_slice(), dims.weights_at(w));
            kernel::outer_by(dims.product_isa(isa), steps, dims.heads, dims.unit_panels(), weights, states, sums);
            for head in 0..dims.heads {
                read_row(sums, head, dims.heads, self.vectors.sum_mut(head, w));
            }
        }
        project(pooling, dims.arithmetic.bf16_isa(), values, &mut self.vectors);
        self.vectors.pooled()
    }

    /// The pooled vectors [W, H] of the last forward pass.
    pub(in crate::shard) fn pooled(&self) -> &[f32] {
        self.vectors.pooled()
    }

    /// Backward pass from the gradients of the pooled vectors, set by
    /// [`PoolingScratch::d_pooled_mut`], to those of the states, which are written to
    /// `d_layer_output`; adds those of the parameters to `gradients`.
    pub(in crate::shard) fn backward(
        &self,
        isa: Isa,
        PoolingParameters { pooling, values, keys, norm }: PoolingParameters<'_>,
        sequence: &Sequence,
        d_layer_output: &mut [f32],
        scratch: &mut PoolingScratch,
        gradients: &mut TensorSet,
    ) {
        let d_vectors = scratch.d_vectors.as_mut().expect("memory made for training");
        project_backward(pooling, self.dims.arithmetic.bf16_isa(), values, &self.vectors, d_vectors, gradients);
        scratch.d_keys.as_mut_slice().fill(0.0);
        for w in 0..sequence.windows.len() {
            gather_window(sequence, w, norm, scratch.states.as_mut_slice());
            self.score_gradients(isa, w, scratch);
            self.state_gradients(isa, w, keys, scratch);
            scatter_window(sequence, w, scratch.d_states.as_slice(), d_layer_output);
        }
        let mut d_keys = vec![0.0; pooling.heads * pooling.hidden];
        for (head, row) in d_keys.chunks_exact_mut(pooling.hidden).enumerate() {
            read_row(scratch.d_keys.as_slice(), head, pooling.heads, row);
        }
        keys_backward(pooling, values, &d_keys, gradients);
    }

    /// The gradients of one window's scores, in [`PoolingScratch::d_scores`].
    fn score_gradients(&self, isa: Isa, w: usize, scratch: &mut PoolingScratch) {
        let dims = self.dims;
        let steps = dims.sizes.steps;
        let d_vectors = scratch.d_vectors.as_ref().expect("memory made for training");
        for head in 0..dims.heads {
            let d_sum = d_vectors.sum(head, w);
            put_column(d_sum, head, scratch.d_by_head.as_mut_slice());
            put_row(d_sum, head, dims.heads, scratch.sums.as_mut_slice());
        }
        let states = View(scratch.states.as_slice(), window_place(steps));
        let mut d_scores = ViewMut(scratch.d_scores.as_mut_slice(), dims.weights_at(0));
        kernel::product_by(dims.product_isa(isa), dims.scores(states, scratch.d_by_head.as_slice()), &mut d_scores);
        for panel in 0..dims.head_panels() {
            let weights = &self.weights.as_slice()[dims.weights_at(w).panel(panel).start..][..steps * PANEL];
            softmax_backward(weights, &mut d_scores.0[panel * steps * PANEL..][..steps * PANEL]);
        }
    }

    /// The gradients of one window's states, from those of its scores and sums; adds the keys'.
    fn state_gradients(&self, isa: Isa, w: usize, keys: &PackedKeys, scratch: &mut PoolingScratch) {
        let dims = self.dims;
        let (rows, depth, panels) = (dims.sizes.steps, dims.heads, dims.unit_panels());
        let weights = View(self.weights.as_slice(), dims.weights_at(w));
        let d_scores = View(scratch.d_scores.as_slice(), dims.weights_at(0));
        let states_at = window_place(dims.sizes.steps);
        let mut d_states = ViewMut(scratch.d_states.as_mut_slice(), states_at);
        let (start, b) = (Start::Zero, scratch.sums.as_slice());
        kernel::product_by(
            dims.product_isa(isa),
            PanelProduct { rows, depth, panels, start, a: weights, b },
            &mut d_states,
        );
        let (start, b) = (Start::Result, keys.by_unit.as_slice());
        kernel::product_by(
            dims.product_isa(isa),
            PanelProduct { rows, depth, panels, start, a: d_scores, b },
            &mut d_states,
        );
        let d_keys = &mut scratch.d_keys.as_mut_slice()[..dims.unit_panels() * dims.heads * PANEL];
        kernel::outer_by(
            dims.product_isa(isa),
            rows,
            depth,
            panels,
            d_scores,
            View(scratch.states.as_slice(), states_at),
            d_keys,
        );
    }

    /// The weights of window `w`, which are in `to` [heads, T] afterwards.
    pub(in crate::shard) fn read_weights(&self, w: usize, to: &mut [f32]) {
        for (head, row) in to.chunks_exact_mut(self.dims.sizes.steps).enumerate() {
            let from = &self.weights.as_slice()[self.dims.weights_at(w).panel(head / PANEL).start + head % PANEL..];
            row.iter_mut().zip(from.iter().step_by(PANEL)).for_each(|(to, &weight)| *to = weight);
        }
    }
}

/// Copies the top layer's outputs after each step of window `w`, whose steps lie a row a window
/// apart: its states, after their norm if there is one.
fn gather_window(sequence: &Sequence, w: usize, norm: &[f32], to: &mut [f32]) {
    let top = sequence.layers[sequence.layers.len() - 1].hidden.as_slice();
    let (from, steps) = (sequence.states_at(1).row(w), sequence.windows.steps());
    for n in 0..sequence.dims.unit_panels() {
        let rows = top[from.panel(n).start..].chunks(sequence.windows.len() * PANEL);
        let to = to[window_place(steps).panel(n).start..].chunks_exact_mut(PANEL).take(steps);
        to.zip(rows).for_each(|(to, row)| to.copy_from_slice(&row[..PANEL]));
    }
    if !norm.is_empty() {
        normalise(sequence.dims.sizes.hidden, steps, norm, ViewMut(to, window_place(steps)));
    }
}

/// Writes the gradients of the states after each step of window `w` to those of all windows.
fn scatter_window(sequence: &Sequence, w: usize, from: &[f32], to: &mut [f32]) {
    let (at, steps) = (sequence.d_layer_output_at(0).row(w), sequence.windows.steps());
    for n in 0..sequence.dims.unit_panels() {
        let rows = to[at.panel(n).start..].chunks_mut(sequence.windows.len() * PANEL);
        let from = from[window_place(steps).panel(n).start..].chunks_exact(PANEL).take(steps);
        from.zip(rows).for_each(|(from, row)| row[..PANEL].copy_from_slice(from));
    }
}

/// Scores [T][16] become weights that sum to one over T.
fn softmax(isa: Isa, scores: &mut [f32]) {
    let mut most = [f32::NEG_INFINITY; PANEL];
    for row in scores.chunks_exact(PANEL) {
        most.iter_mut().zip(row).for_each(|(most, &score)| *most = if score > *most { score } else { *most });
    }
    for row in scores.chunks_exact_mut(PANEL) {
        row.iter_mut().zip(&most).for_each(|(score, most)| *score -= most);
    }
    kernel::attention::exp(isa, scores);
    let mut sums = [0.0; PANEL];
    for row in scores.chunks_exact(PANEL) {
        sums.iter_mut().zip(row).for_each(|(sum, term)| *sum += term);
    }
    let shares = sums.map(|sum| 1.0 / sum);
    for row in scores.chunks_exact_mut(PANEL) {
        row.iter_mut().zip(&shares).for_each(|(weight, share)| *weight *= share);
    }
}

/// The gradients of weights [T][16] become those of the scores.
fn softmax_backward(weights: &[f32], d: &mut [f32]) {
    let mut means = [0.0; PANEL];
    for (weights, d) in weights.chunks_exact(PANEL).zip(d.chunks_exact(PANEL)) {
        means.iter_mut().zip(weights).zip(d).for_each(|((mean, weight), d)| *mean += weight * d);
    }
    for (weights, d) in weights.chunks_exact(PANEL).zip(d.chunks_exact_mut(PANEL)) {
        d.iter_mut().zip(weights).zip(&means).for_each(|((d, weight), mean)| *d = flush(weight * (*d - mean)));
    }
}
