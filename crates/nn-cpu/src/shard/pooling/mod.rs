//! Attention pooling of what one timeframe's sequences have computed: of each distinct window by
//! itself or, where sequences are runs of dense training, of the windows within them.

mod windows;

use megabatch_gpu_core::Scope;
use megabatch_nn::Result;
use megabatch_nn::batch::Windows;
use megabatch_nn::model::TensorSet;
use megabatch_nn::model::pooling::AttentionPooling;

use super::memory::ShardScratch;
use super::norm::normalise;
use super::sequence::Sequence;
use super::{Dimensions, add};
use crate::compute::Purpose;
use crate::kernel::{Isa, PANEL, PanelStride, ViewMut};
use crate::pooling::{SlidingCapacity, SlidingPooling};
use windows::PooledWindows;
pub(super) use windows::{PackedKeys, PoolingScratch, keys_len};

/// Saved forward pass of one timeframe.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "there is one a timeframe, and all are of one form")]
pub(super) enum Pooled {
    Windows(PooledWindows),
    Runs(SlidingPooling),
}

/// The parameters of one timeframe's pooling.
#[derive(Clone, Copy)]
pub(super) struct PoolingParameters<'a> {
    pub(super) pooling: &'a AttentionPooling,
    pub(super) values: &'a TensorSet,
    pub(super) keys: &'a PackedKeys,
    /// Norm of the states, [2][unit panels][16]; empty without norm.
    pub(super) norm: &'a [f32],
}

/// Length of each buffer of pooling, in numbers: of a [`Pooled`] for each timeframe, then of a
/// [`PoolingScratch`].
pub(super) fn lens(all: &[Dimensions], purpose: Purpose) -> Vec<usize> {
    let pooled = all.iter().filter(|dims| dims.heads > 0).flat_map(|&dims| match dims.is_dense() {
        true => SlidingPooling::lens(dims.heads, dims.sizes.hidden, sliding_capacity(dims)),
        false => PooledWindows::lens(dims),
    });
    pooled.chain(PoolingScratch::lens(all, purpose)).collect()
}

fn sliding_capacity(dims: Dimensions) -> SlidingCapacity {
    SlidingCapacity { steps: dims.sizes.steps, longest: dims.steps, sequences: dims.capacity, windows: dims.samples }
}

impl Pooled {
    pub(super) fn new(scope: &Scope, dims: Dimensions) -> Result<Self> {
        if dims.is_dense() {
            let runs = SlidingPooling::new(scope, dims.heads, dims.sizes.hidden, sliding_capacity(dims))?;
            return Ok(Pooled::Runs(runs.with(dims.arithmetic.bf16_isa())));
        }
        Ok(Pooled::Windows(PooledWindows::new(scope, dims)?))
    }

    /// Pools the states that `sequence` has computed: [W, H], a row for each of what the samples
    /// read, see [`Windows::read`](megabatch_nn::batch::Windows::read).
    pub(super) fn forward(
        &mut self,
        isa: Isa,
        pooling: PoolingParameters<'_>,
        sequence: &Sequence,
        scratch: &mut PoolingScratch,
    ) -> &[f32] {
        match self {
            Pooled::Windows(pooled) => pooled.forward(isa, pooling, sequence, scratch),
            Pooled::Runs(pooled) => {
                pooled.forward(pooling.pooling, pooling.values, sequence.windows.read(), reader(sequence, pooling.norm))
            }
        }
    }

    /// The pooled vectors of the last forward pass, as [`Pooled::forward`] gives them.
    pub(super) fn pooled(&self) -> &[f32] {
        match self {
            Pooled::Windows(pooled) => pooled.pooled(),
            Pooled::Runs(pooled) => pooled.pooled(),
        }
    }

    /// Sets the gradients of the pooled vectors, [W, H], to the sums of `rows`, a row [H] for each
    /// sample of `windows`.
    pub(super) fn set_d_pooled<'a>(
        &mut self,
        windows: &Windows,
        rows: impl Iterator<Item = &'a [f32]>,
        scratch: &mut PoolingScratch,
    ) {
        let d_pooled = match self {
            Pooled::Windows(_) => scratch.d_pooled_mut(windows.read().len()),
            Pooled::Runs(pooled) => pooled.d_pooled_mut(),
        };
        d_pooled.fill(0.0);
        for (row, read) in rows.zip(windows.read_of_sample()) {
            add(&mut d_pooled[read * row.len()..][..row.len()], row);
        }
    }

    /// Backward pass from the gradients of the pooled vectors, set by [`Pooled::set_d_pooled`], to
    /// those of the states, in [`ShardScratch::d_layer_output`]; adds those of the parameters to
    /// `gradients`.
    pub(super) fn backward(
        &mut self,
        isa: Isa,
        pooling: PoolingParameters<'_>,
        sequence: &Sequence,
        to: &mut ShardScratch,
        scratch: &mut PoolingScratch,
        gradients: &mut TensorSet,
    ) {
        match self {
            Pooled::Windows(pooled) => {
                pooled.backward(isa, pooling, sequence, to.d_layer_output.as_mut_slice(), scratch, gradients);
            }
            Pooled::Runs(pooled) => {
                let d_top = sequence.clear_d_top(to);
                let write = |at: (usize, usize), row: &[f32]| sequence.add_d_top(at.0, at.1, row, d_top);
                pooled.backward(
                    pooling.pooling,
                    pooling.values,
                    sequence.windows.read(),
                    reader(sequence, pooling.norm),
                    write,
                    gradients,
                );
            }
        }
    }

    /// The weights of what sample `sample` reads, which are in `to` [heads, T] afterwards.
    pub(super) fn read_weights(&self, sequence: &Sequence, sample: usize, to: &mut [f32]) {
        let read = sequence.windows.read_of_sample()[sample];
        match self {
            Pooled::Windows(pooled) => pooled.read_weights(read, to),
            Pooled::Runs(pooled) => {
                let (window, step) = sequence.windows.read()[read];
                pooled.read_weights(read, window, step, to);
            }
        }
    }
}

/// Copies the top layer's output [H] after a step of a window, normalised where there is a norm.
fn reader<'a>(sequence: &'a Sequence, norm: &'a [f32]) -> impl Fn((usize, usize), &mut [f32]) + 'a {
    move |at, row| {
        sequence.read_top(at.0, at.1, row);
        if !norm.is_empty() {
            normalise(row.len(), 1, norm, ViewMut(row, PanelStride { start: 0, stride: PANEL }));
        }
    }
}
