#![forbid(unsafe_code)]

//! Arithmetic in 16 bits, as far as a CPU without it can tell what comes of it: what a
//! product reads is rounded to the precision of the run, and its sums are in single precision.
//! On CPUs with products of bf16 numbers, bars, states and gradients are rounded when they are
//! packed and nowhere else, see [`bf16`](super::bf16).
//!
//! To what, the table of amp's policy says ([`Precision::arithmetic`]). Rounded are bars, weights
//! (see [`Engine`](crate::step::Engine)), hidden states after each step, what dropout leaves
//! of them, the gradients of gates and of hidden states; behind the sequences what they or pooling
//! give of each sample, what products in fusion give, and the gradients of these. Cell states,
//! gates, biases, softmax, norms and all sums over bars and samples are in single precision.

use std::ops::Range;

use megabatch_amp::{Precision, round_to};

use super::memory::ShardScratch;
use super::sequence::{Sequence, WindowPartition};
use crate::kernel::{PANEL, PanelStride, ViewMut};

impl Sequence {
    /// The precision to which numbers are rounded before they are packed.
    fn rounded_to(&self) -> Precision {
        if self.dims.bf16_isa.is_some() { Precision::Fp32 } else { self.precision }
    }

    /// `rows` bars in [`ShardScratch::x`].
    pub(super) fn round_bars(&self, rows: usize, scratch: &mut ShardScratch) {
        let panels = 0..self.dims.sizes.features.div_ceil(PANEL);
        round_panels(self.rounded_to(), scratch.x.as_mut_slice(), self.x_at(), panels, rows);
    }

    /// The hidden states of layer `l` after step `t`.
    pub(super) fn round_hidden(&mut self, l: usize, t: usize) {
        let at = self.states_at(t + 1);
        let (panels, rows) = (0..self.dims.units(), self.windows.len());
        round_panels(self.rounded_to(), self.layers[l].hidden.as_mut_slice(), at, panels, rows);
    }

    /// Rounds a block of `rows` rows after dropout.
    pub(super) fn round_dropped(&self, rows: usize, scratch: &mut ShardScratch) {
        round_panels(self.rounded_to(), scratch.dropped.as_mut_slice(), self.dropped_at(), 0..self.dims.units(), rows);
    }

    /// The gradients of the gates of layer `l` at step `t`.
    pub(super) fn round_d_gates(&mut self, l: usize, t: usize, scratch: &mut ShardScratch) {
        let (precision, panels, rows) = (self.rounded_to(), 0..self.dims.gates(), self.windows.len());
        let ViewMut(d_gates, at) = match self.partition {
            WindowPartition::Whole => ViewMut(scratch.d_gates.as_mut_slice(), self.d_gates_at(t)),
            WindowPartition::Group => self.gates_at(t).view_mut(&mut self.layers[l].gates, &mut scratch.segment.gates),
        };
        round_panels(precision, d_gates, at, panels, rows);
    }

    /// The gradients of the hidden states before a step.
    pub(super) fn round_d_hidden(&self, scratch: &mut ShardScratch) {
        round_panels(
            self.rounded_to(),
            scratch.d_hidden.as_mut_slice(),
            self.d_state_at(),
            0..self.dims.units(),
            self.windows.len(),
        );
    }

    /// The gradients of what a layer above the first read in a block of steps.
    pub(super) fn round_d_layer_output(&self, block: Range<usize>, scratch: &mut ShardScratch) {
        round_panels(
            self.rounded_to(),
            scratch.d_layer_output.as_mut_slice(),
            self.d_layer_output_at(block.start),
            0..self.dims.units(),
            block.len() * self.windows.len(),
        );
    }
}

/// Rounds `rows` rows of some panels.
pub(super) fn round_panels(
    precision: Precision,
    values: &mut [f32],
    at: PanelStride,
    panels: Range<usize>,
    rows: usize,
) {
    if precision != Precision::Fp32 {
        panels.for_each(|panel| round_to(precision, &mut values[at.panel(panel).start..][..rows * PANEL]));
    }
}
