//! One timeframe's recurrent layers, backward.
//!
//! ```text
//! for each layer, from the top:
//!     for each step, from the last:  dgates from dh, dc;  dh = dgates · W_hh               (2)
//!     dW_hh = Σ dgatesᵀ · h before;  dW_ih = Σ dgatesᵀ · x;  db = Σ dgates             (1)
//!     dx = dgates · W_ih, which the layer below receives                             (1)
//! ```
//!
//! 1. A block of steps at a time, so that its gradients are still in the cache and never kept. In
//!    the first layer, where windows overlap, the gradients are summed by bar on the way, and dW_ih
//!    and db are formed once a bar at the end.
//! 2. Without a cell state, dh has another term past the gates, see [`Sequence::d_hidden_start`].

use std::ops::Range;

use megabatch_gpu_core::Buffer;
use megabatch_nn::model::TensorSet;
use megabatch_nn::model::recurrent::{LayerSlots, Read};

use super::gradients::SharedGradients;
use super::memory::{Segment, ShardScratch, panel_stride};
use super::norm::{norm_len, normalise_backward};
use super::rounding::round_panels;
use super::sequence::{Sequence, WindowPartition, input};
use super::weights::{LayerWeights, WeightSums};
use super::window_panels;
use super::{BLOCK_STEPS, Dimensions, add};
use crate::kernel::{
    self, CellGradients, Isa, PANEL, PanelOrder, PanelProduct, PanelStride, Prefetch, PrefetchRows, Start, Step, View,
    ViewMut,
};
use crate::norm::add_gradients;
use crate::profile::Work;

impl Sequence {
    /// Backward pass from the gradients of the top layer's outputs, set in `scratch` by
    /// [`Sequence::add_d_top`], and adds the gradients of the parameters at `slots` to `gradients`.
    pub(super) fn backward(
        &mut self,
        isa: Isa,
        all: &[LayerWeights],
        slots: &[LayerSlots],
        bars: &[f32],
        scratch: &mut ShardScratch,
        gradients: &SharedGradients<'_>,
    ) {
        for (l, (weights, slots)) in all.iter().zip(slots).enumerate().rev() {
            self.clear(l, scratch);
            for block in self.blocks().rev() {
                let start = self.clock.start();
                if !self.projects_per_bar(l) && self.partition == WindowPartition::Whole {
                    self.take_input(isa, l, all, &block, bars, scratch);
                }
                self.restore(isa, l, weights, &block, bars, scratch);
                if !weights.norm.is_empty() {
                    self.norm_backward(l, weights.norm.as_slice(), block.clone(), scratch);
                }
                for t in block.clone().rev() {
                    self.step_backward(isa, l, weights, t, scratch);
                }
                self.clock.stop_layer(start, l, Work::Backward);
                let start = self.clock.start();
                if self.partition == WindowPartition::Whole {
                    self.add_block(isa, l, block.clone(), scratch);
                }
                self.clock.stop_layer(start, l, Work::WeightGradients);
                let start = self.clock.start();
                if l > 0 {
                    if self.dims.arithmetic.bf16_isa().is_none() {
                        self.go_below(isa, l, weights, block.clone(), scratch);
                    }
                    let (at, rows) = (self.d_layer_output_at(block.start), block.len() * self.windows.len());
                    let d_below = scratch.d_layer_output.as_mut_slice();
                    round_panels(self.dims.arithmetic, d_below, at, 0..self.dims.unit_panels(), rows);
                }
                if self.drops_below(l) {
                    self.dropout_backward(block, scratch);
                }
                self.clock.stop_layer(start, l, Work::Backward);
            }
            if self.partition == WindowPartition::Group {
                continue;
            }
            let start = self.clock.start();
            if self.projects_per_bar(l) {
                self.add_bars(isa, bars, scratch);
            }
            gradients.add(|gradients| unpack(self.dims, slots, scratch, gradients));
            gradients.complete_layer(slots);
            self.clock.stop_layer(start, l, Work::WeightGradients);
        }
    }

    /// Turns the gradients of the outputs of layer `l` at a block of steps into those of its
    /// states.
    fn norm_backward(&self, l: usize, norm: &[f32], block: Range<usize>, scratch: &mut ShardScratch) {
        let (hidden, rows) = (self.dims.sizes.hidden, block.len() * self.windows.len());
        let states = View(self.layers[l].hidden.as_slice(), self.states_at(block.start + 1));
        let d = ViewMut(scratch.d_layer_output.as_mut_slice(), self.d_layer_output_at(block.start));
        normalise_backward(hidden, rows, norm, states, d, scratch.d_norm.as_mut_slice());
    }

    /// Rounds the gradients of the gates of layer `l` at step `t`.
    fn round_d_gates(&mut self, l: usize, t: usize, scratch: &mut ShardScratch) {
        let (arithmetic, panels, rows) = (self.dims.arithmetic, 0..self.dims.gate_panels(), self.windows.len());
        let ViewMut(d_gates, at) = match self.partition {
            WindowPartition::Whole => ViewMut(scratch.d_gates.as_mut_slice(), self.d_gates_at(t)),
            WindowPartition::Group => self.gates_at(t).view_mut(&mut self.layers[l].gates, &mut scratch.segment.gates),
        };
        round_panels(arithmetic, d_gates, at, panels, rows);
    }

    /// Layout of [`ShardScratch::d_hidden`] and [`ShardScratch::d_skip`].
    pub(super) fn d_state_at(&self) -> PanelStride {
        panel_stride(self.windows.len(), self.windows.len())
    }

    /// Place of the gradients of the top layer's outputs at step `t` before [`Sequence::backward`]:
    /// that of the step or, where only the last is read, of the last state.
    fn d_top_at(&self, t: usize) -> PanelStride {
        match self.dims.sizes.read {
            Read::EveryStep => self.d_layer_output_at(t),
            Read::LastStep => self.d_state_at(),
        }
    }

    /// Sets the gradients of the top layer's outputs to zero, and gives them for writing.
    pub(super) fn clear_d_top<'s>(&self, scratch: &'s mut ShardScratch) -> &'s mut [f32] {
        let (d_top, at) = match self.dims.sizes.read {
            Read::EveryStep => (scratch.d_layer_output.as_mut_slice(), self.d_layer_output_at(0)),
            Read::LastStep => (scratch.d_hidden.as_mut_slice(), self.d_state_at()),
        };
        d_top[..self.dims.unit_panels() * at.stride].fill(0.0);
        d_top
    }

    /// Adds a gradient [H] of the top layer's output after step `t` of window `w` to those in
    /// `d_top`.
    pub(super) fn add_d_top(&self, w: usize, t: usize, row: &[f32], d_top: &mut [f32]) {
        let at = self.d_top_at(t).row(w);
        for (n, part) in row.chunks(PANEL).enumerate() {
            add(&mut d_top[at.panel(n).start..], part);
        }
    }

    pub(super) fn projects_per_bar(&self, l: usize) -> bool {
        l == 0 && self.windows.overlap()
    }

    /// True if the outputs of layer `l` receive gradients after every step, and not after the last
    /// alone.
    fn receives_at_every_step(&self, l: usize) -> bool {
        l + 1 < self.layers.len() || self.dims.sizes.read == Read::EveryStep
    }

    /// Layout of [`ShardScratch::d_gates`] from step `t` of its block on.
    pub(super) fn d_gates_at(&self, t: usize) -> PanelStride {
        let windows = self.windows.len();
        panel_stride(BLOCK_STEPS * windows, windows).row(t % BLOCK_STEPS * windows)
    }

    /// The gradients of the gates of layer `l` from step `t` of its block on: those of a group take
    /// the place of the gates, for the sums over all windows that are formed when every group has
    /// come to its first step.
    pub(super) fn d_gates<'a>(
        &'a self,
        l: usize,
        t: usize,
        segment: &'a Segment,
        d_gates: &'a Buffer<f32>,
    ) -> View<'a> {
        match self.partition {
            WindowPartition::Whole => View(d_gates.as_slice(), self.d_gates_at(t)),
            WindowPartition::Group => self.gates_at(t).view(&self.layers[l].gates, &segment.gates),
        }
    }

    pub(super) fn d_layer_output_at(&self, t: usize) -> PanelStride {
        let windows = self.windows.len();
        panel_stride(self.windows.steps() * windows, windows).row(t * windows)
    }

    /// Sets to zero what layer `l` sums up, and its gradients from later steps: the cell's, and the
    /// hidden state's unless that is given after the last step.
    fn clear(&self, l: usize, scratch: &mut ShardScratch) {
        for sums in
            [&mut scratch.d_input_weight, &mut scratch.d_recurrent_weight, &mut scratch.d_bias, &mut scratch.d_norm]
        {
            sums.as_mut_slice().fill(0.0);
        }
        scratch.d_skip.as_mut_slice().fill(0.0);
        if self.receives_at_every_step(l) {
            scratch.d_hidden.as_mut_slice().fill(0.0);
        }
        if self.projects_per_bar(l) && self.partition == WindowPartition::Whole {
            let len = self.dims.gate_panels() * self.per_bar_at().stride;
            scratch.per_bar_gates.as_mut_slice()[..len].fill(0.0);
        }
    }

    /// The cell backwards at step `t`, its gradients by bar where windows overlap, and the gradient
    /// of the state before it.
    fn step_backward(&mut self, isa: Isa, l: usize, weights: &LayerWeights, t: usize, scratch: &mut ShardScratch) {
        let (rows, state_at, d_gates_at) = (self.windows.len(), self.d_state_at(), self.d_gates_at(t));
        // What is rounded here is added up after that.
        let sums_at = self.per_bar_in_step(l, t).filter(|_| !self.dims.arithmetic.is_emulated());
        if self.receives_at_every_step(l) {
            self.add_from_above(t, scratch);
        }
        let (gates_at, cell_at, states_at) = (self.gates_at(t), self.cell_at(t), self.states_at(t));
        let (kind, panels) = (self.dims.sizes.cell, self.dims.gates_per_unit());
        let prefetch = if self.dims.arithmetic.bf16_isa().is_some() { Prefetch::NextStep } else { Prefetch::Nothing };
        let (partition, layer) = (self.partition, &mut self.layers[l]);
        for n in 0..self.dims.unit_panels() {
            let at = gates_at.panel(panels * n);
            let (gates, d_gates) = match partition {
                WindowPartition::Whole => (
                    Some(at.view(&layer.gates, &scratch.segment.gates)),
                    ViewMut(scratch.d_gates.as_mut_slice(), d_gates_at.panel(panels * n)),
                ),
                WindowPartition::Group => (None, at.view_mut(&mut layer.gates, &mut scratch.segment.gates)),
            };
            let step = Step {
                gates,
                hidden: View(layer.hidden.as_slice(), states_at.panel(n)),
                cell: cell_at.panel(n).view(&layer.cell, &scratch.segment.cell),
                d_hidden: View(scratch.d_hidden.as_slice(), state_at.panel(n)),
                prefetch,
            };
            let sums = sums_at.map(|at| ViewMut(scratch.per_bar_gates.as_mut_slice(), at.panel(panels * n)));
            let d_skip = ViewMut(scratch.d_skip.as_mut_slice(), state_at.panel(n));
            kernel::cell_backward(isa, kind, rows, step, CellGradients { d_skip, d_gates, sums });
        }
        self.round_d_gates(l, t, scratch);
        if self.projects_per_bar(l) && sums_at.is_none() && self.partition == WindowPartition::Whole {
            let d_gates = View(scratch.d_gates.as_slice(), d_gates_at);
            let (sums, to) = (scratch.per_bar_gates.as_mut_slice(), self.per_bar_at());
            window_panels::add_step(&self.windows, isa, t, self.dims.gate_panels(), d_gates, sums, to);
        }
        if let Some(bf16_isa) = self.dims.arithmetic.bf16_isa() {
            self.gates_backward_bf16(bf16_isa, l, weights, t, scratch);
        } else if t > 0 {
            let ShardScratch { segment, d_gates, d_hidden, d_skip, .. } = scratch;
            let layer = &self.layers[l];
            let product = PanelProduct {
                rows,
                depth: self.dims.gate_panels() * PANEL,
                panels: self.dims.unit_panels(),
                start: self.d_hidden_start(d_skip),
                a: self.d_gates(l, t, segment, d_gates),
                b: weights.recurrent_transposed.as_slice(),
            };
            let View(gates, gates_at) = self.gates_at(t - 1).view(&layer.gates, &segment.gates);
            let View(cell, cell_at) = self.cell_at(t - 1).view(&layer.cell, &segment.cell);
            let cell_panels = if kind.has_cell_state() { self.dims.unit_panels() } else { 0 };
            let prefetch = PrefetchRows::default()
                .and(gates, gates_at, self.dims.gate_panels(), rows)
                .and(cell, cell_at, cell_panels, rows)
                .and(layer.hidden.as_slice(), self.states_at(t - 1), self.dims.unit_panels(), rows);
            kernel::product_with(
                isa,
                product,
                &mut ViewMut(d_hidden.as_mut_slice(), state_at),
                PanelOrder::Ascending,
                prefetch,
            );
            let d_hidden = scratch.d_hidden.as_mut_slice();
            round_panels(self.dims.arithmetic, d_hidden, state_at, 0..self.dims.unit_panels(), rows);
        }
    }

    /// Gradient of the hidden states before a step that does not come through the gates.
    pub(super) fn d_hidden_start<'a>(&self, d_skip: &'a Buffer<f32>) -> Start<'a> {
        match self.dims.sizes.cell.has_cell_state() {
            true => Start::Zero,
            false => Start::Rows(View(d_skip.as_slice(), self.d_state_at())),
        }
    }

    /// Adds the gradient that the layer above gave for this layer's output at step `t`.
    fn add_from_above(&self, t: usize, scratch: &mut ShardScratch) {
        let (from, to, len) = (self.d_layer_output_at(t), self.d_state_at(), self.windows.len() * PANEL);
        for n in 0..self.dims.unit_panels() {
            let terms = &scratch.d_layer_output.as_slice()[from.panel(n).start..][..len];
            let sums = &mut scratch.d_hidden.as_mut_slice()[to.panel(n).start..][..len];
            sums.iter_mut().zip(terms).for_each(|(sum, term)| *sum += term);
        }
    }

    /// Adds a block's share of dW_hh and, unless they are formed by bar, of dW_ih and db.
    fn add_block(&self, isa: Isa, l: usize, block: Range<usize>, scratch: &mut ShardScratch) {
        let (rows, gates, hidden) = (block.len() * self.windows.len(), self.dims.gate_panels(), self.dims.sizes.hidden);
        let d_gates = View(scratch.d_gates.as_slice(), self.d_gates_at(0));
        let before = View(self.layers[l].hidden.as_slice(), self.states_at(block.start));
        let bf16_isa = self.dims.arithmetic.bf16_isa();
        if let Some(bf16_isa) = bf16_isa {
            scratch.pairs.take_d_gates(bf16_isa, rows, gates, d_gates);
        }
        let pairs = &mut scratch.pairs;
        let mut add_outer = |columns, a: View<'_>, sums: &mut [f32]| match bf16_isa {
            Some(bf16_isa) => pairs.add_product(bf16_isa, rows, columns, gates, a, sums),
            None => kernel::outer(isa, rows, columns, gates, a, d_gates, sums),
        };
        add_outer(hidden, before, scratch.d_recurrent_weight.as_mut_slice());
        if !self.projects_per_bar(l) {
            let below = l.checked_sub(1).map(|below| &self.layers[below]);
            let (x, dropped) = (scratch.x.as_slice(), scratch.dropped.as_slice());
            let input = View(input(below, x, self.copies_below(l).then_some(dropped)), self.input_at(l, block.start));
            add_outer(self.dims.input(l), input, scratch.d_input_weight.as_mut_slice());
            add_rows(rows, d_gates, scratch.d_bias.as_mut_slice());
        }
    }

    /// d_layer_output = dgates · W_ih: the gradients of a block of the inputs of a layer above the
    /// first.
    fn go_below(&self, isa: Isa, l: usize, weights: &LayerWeights, block: Range<usize>, scratch: &mut ShardScratch) {
        let ShardScratch { segment, d_gates, d_layer_output, .. } = scratch;
        let product = PanelProduct {
            rows: block.len() * self.windows.len(),
            depth: self.dims.gate_panels() * PANEL,
            panels: self.dims.unit_panels(),
            start: Start::Zero,
            a: self.d_gates(l, block.start, segment, d_gates),
            b: weights.input_transposed.as_slice(),
        };
        let mut to = ViewMut(d_layer_output.as_mut_slice(), self.d_layer_output_at(block.start));
        kernel::product(isa, product, &mut to);
    }

    /// dW_ih and db of the first layer, once a bar.
    fn add_bars(&self, isa: Isa, bars: &[f32], scratch: &mut ShardScratch) {
        for rows in self.bars_in_parts() {
            self.take_bars(&rows, bars, scratch);
            let (features, gates) = (self.dims.sizes.features, self.dims.gate_panels());
            let d_gates = View(scratch.per_bar_gates.as_slice(), self.per_bar_at().row(rows.start));
            let x = View(scratch.x.as_slice(), self.x_at());
            let isa = self.dims.product_isa(isa);
            kernel::outer_by(isa, rows.len(), features, gates, x, d_gates, scratch.d_input_weight.as_mut_slice());
            add_rows(rows.len(), d_gates, scratch.d_bias.as_mut_slice());
        }
    }
}

/// sums [panels · 16] += the rows of a matrix.
#[inline(never)] // Inside of `backward`, it would take four times the instructions.
pub(super) fn add_rows(rows: usize, matrix: View<'_>, sums: &mut [f32]) {
    let View(values, place) = matrix;
    for (panel, sums) in sums.chunks_exact_mut(PANEL).enumerate() {
        for row in values[place.panel(panel).start..][..rows * PANEL].chunks_exact(PANEL) {
            sums.iter_mut().zip(row).for_each(|(sum, term)| *sum += term);
        }
    }
}

/// Adds the sums of a layer to its parameters' gradients.
fn unpack(dims: Dimensions, slots: &LayerSlots, scratch: &ShardScratch, gradients: &mut TensorSet) {
    let sums = WeightSums {
        input: scratch.d_input_weight.as_slice(),
        recurrent: scratch.d_recurrent_weight.as_slice(),
        bias: scratch.d_bias.as_slice(),
    };
    sums.add_to(dims.sizes, &(0..dims.gate_panels()), slots, gradients);
    if let Some(norm) = slots.norm {
        let (weight, bias) = scratch.d_norm.as_slice()[..norm_len(dims)].split_at(dims.unit_panels() * PANEL);
        add_gradients(&norm, weight, bias, gradients);
    }
}
