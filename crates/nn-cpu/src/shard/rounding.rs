#![forbid(unsafe_code)]

//! Rounding of the operands of products whose 16-bit arithmetic is emulated
//! ([`CpuArithmetic::Emulated`]). A CPU with products of bf16 numbers rounds bars, states and
//! gradients when they are packed and nowhere else, see [`bf16`](super::bf16).
//!
//! | rounded | not rounded |
//! | --- | --- |
//! | bars, weights ([`Engine`](crate::step::Engine)) | biases |
//! | hidden states after each step, and after dropout | cell states, gates |
//! | gradients of gates and of hidden states | sums over bars and over samples |
//! | encodings, results of products in fusion, their gradients | softmax, norms |

use std::ops::Range;

use super::memory::ShardScratch;
use super::sequence::{Sequence, WindowPartition};
use crate::arithmetic::CpuArithmetic;
use crate::kernel::{PANEL, PanelStride, ViewMut};

impl Sequence {
    /// `rows` bars in [`ShardScratch::x`].
    pub(super) fn round_bars(&self, rows: usize, scratch: &mut ShardScratch) {
        let panels = 0..self.dims.sizes.features.div_ceil(PANEL);
        round_panels(self.dims.arithmetic, scratch.x.as_mut_slice(), self.x_at(), panels, rows);
    }

    /// The hidden states of layer `l` after step `t`.
    pub(super) fn round_hidden(&mut self, l: usize, t: usize) {
        let at = self.states_at(t + 1);
        let (panels, rows) = (0..self.dims.unit_panels(), self.windows.len());
        round_panels(self.dims.arithmetic, self.layers[l].hidden.as_mut_slice(), at, panels, rows);
    }

    /// Rounds a block of `rows` rows after dropout.
    pub(super) fn round_dropped(&self, rows: usize, scratch: &mut ShardScratch) {
        round_panels(
            self.dims.arithmetic,
            scratch.dropped.as_mut_slice(),
            self.dropped_at(),
            0..self.dims.unit_panels(),
            rows,
        );
    }

    /// The gradients of the gates of layer `l` at step `t`.
    pub(super) fn round_d_gates(&mut self, l: usize, t: usize, scratch: &mut ShardScratch) {
        let (arithmetic, panels, rows) = (self.dims.arithmetic, 0..self.dims.gate_panels(), self.windows.len());
        let ViewMut(d_gates, at) = match self.partition {
            WindowPartition::Whole => ViewMut(scratch.d_gates.as_mut_slice(), self.d_gates_at(t)),
            WindowPartition::Group => self.gates_at(t).view_mut(&mut self.layers[l].gates, &mut scratch.segment.gates),
        };
        round_panels(arithmetic, d_gates, at, panels, rows);
    }

    /// The gradients of the hidden states before a step.
    pub(super) fn round_d_hidden(&self, scratch: &mut ShardScratch) {
        round_panels(
            self.dims.arithmetic,
            scratch.d_hidden.as_mut_slice(),
            self.d_state_at(),
            0..self.dims.unit_panels(),
            self.windows.len(),
        );
    }

    /// The gradients of what a layer above the first read in a block of steps.
    pub(super) fn round_d_layer_output(&self, block: Range<usize>, scratch: &mut ShardScratch) {
        round_panels(
            self.dims.arithmetic,
            scratch.d_layer_output.as_mut_slice(),
            self.d_layer_output_at(block.start),
            0..self.dims.unit_panels(),
            block.len() * self.windows.len(),
        );
    }
}

/// Rounds `rows` rows of some panels where products of 16-bit operands are emulated.
pub(super) fn round_panels(
    arithmetic: CpuArithmetic,
    values: &mut [f32],
    at: PanelStride,
    panels: Range<usize>,
    rows: usize,
) {
    if arithmetic.is_emulated() {
        panels.for_each(|panel| arithmetic.round(&mut values[at.panel(panel).start..][..rows * PANEL]));
    }
}
