#![forbid(unsafe_code)]

//! The recurrent layers' products on a CPU that multiplies numbers in bf16, see
//! [`kernel::bf16`](crate::kernel::bf16).
//!
//! ```text
//! forward:   gates = x · W_ihᵀ + b + h · W_hhᵀ
//! backward:  dh = dgates · W_hh;  dx = dgates · W_ih;  dW_hh += dgatesᵀ · h;  dW_ih += dgatesᵀ · x
//! ```
//!
//! | matrix | lies between products as | is packed for a product as |
//! | --- | --- | --- |
//! | W_ih, W_hh, and both transposed | pairs, once an optimizer step | |
//! | x of a block of steps, h of a step | f32 panels | rows |
//! | dgates of a step | f32 panels | rows |
//! | dgates of a block of steps | f32 panels | pairs |
//! | h and x of a block of steps, for dW | f32 panels | pairs, transposed |
//!
//! Departures from the computation in single precision:
//!
//! 1. Weights are rounded once an optimizer step, all else when it is packed: states, gradients and
//!    their sums, by bar and for the biases, are in single precision between products.
//! 2. dx is formed step by step, from the rows that dh is formed from.
//! 3. A row that has no second one to make a pair with has zeros.
//! 4. dW_ih of windows that overlap is formed once a bar, of sums over windows that are rounded.

use std::ops::Range;

use megabatch_amp::Precision;
use megabatch_gpu_core::{Buffer, Scope};
use megabatch_nn::Result;
use megabatch_nn::model::recurrent::RecurrentSizes;

use super::memory::{LayerMemory, ShardScratch, padded_panel_len, panel_stride};
use super::sequence::{Sequence, input};
use super::small_batch::SMALL_BATCH_ROWS_NARROW;
use super::tasks::Projections;
use super::weights::{LayerWeights, WeightPart, gate_rows, padded_gates};
use super::{BLOCK_STEPS, Dimensions};
use crate::arithmetic::CpuArithmetic;
use crate::compute::Purpose;
use crate::kernel::bf16::{self, Bf16Isa, PAIRED_PANEL, padded_words};
use crate::kernel::{
    self, Isa, PANEL, PanelOrder, PanelProduct, PanelStride, Prefetch, Start, StatesMut, View, ViewMut,
};

/// The name of the instructions for numbers of `precision` that products are computed with on this
/// CPU, such as `amx-bf16`; `None` where they are computed in single precision, of rounded
/// operands.
pub fn instructions(precision: Precision) -> Option<&'static str> {
    CpuArithmetic::for_precision(precision).bf16_isa().map(Bf16Isa::name)
}

/// Operands as products read them, of one timeframe after another.
#[derive(Debug)]
pub(super) struct Bf16Scratch {
    /// Inputs of a block of steps, or states or gradients of gates of a step.
    rows: Buffer<f32>, // [panels of 32 columns][rows][16]
    /// Gradients of the gates of a block of steps.
    d_gates: Buffer<f32>, // [gate panels][block · B / 2][16]
    /// Inputs or states of a block of steps, transposed.
    transposed: Buffer<f32>, // [block · B / 32][columns][16]
}

/// Words in each buffer for one timeframe, in the order of the fields.
pub(super) fn scratch_len(dims: Dimensions, purpose: Purpose) -> [usize; 3] {
    if dims.arithmetic.bf16_isa().is_none() {
        return [0; 3];
    }
    let width = (0..dims.sizes.layers).map(|l| dims.input(l)).max().unwrap_or(0).max(dims.sizes.hidden);
    let block = BLOCK_STEPS * dims.capacity;
    let inputs = width.div_ceil(PAIRED_PANEL) * padded_panel_len(block);
    match purpose {
        Purpose::Prediction => [inputs, 0, 0],
        Purpose::Training { .. } => {
            let d_gates = dims.gate_panels() / 2 * padded_panel_len(dims.capacity);
            let transposed = block.div_ceil(PAIRED_PANEL) * padded_panel_len(width.next_multiple_of(PANEL));
            [inputs.max(d_gates), dims.gate_panels() * padded_words(block) * PANEL, transposed]
        }
    }
}

impl Bf16Scratch {
    pub(super) fn new(scope: &Scope, lens: [usize; 3]) -> Result<Self> {
        let [rows, d_gates, transposed] = lens;
        let zeros = |len| Buffer::zeros(scope, len);
        Ok(Bf16Scratch { rows: zeros(rows)?, d_gates: zeros(d_gates)?, transposed: zeros(transposed)? })
    }

    /// The product `of` a matrix that is packed for it.
    pub(super) fn multiply(&mut self, isa: Bf16Isa, product: PanelProduct<'_>, to: &mut ViewMut<'_>) {
        let at = rows_at(product.rows);
        bf16::rows(isa, product.rows, product.depth, product.a, &mut ViewMut(self.rows.as_mut_slice(), at));
        bf16::product(isa, PanelProduct { a: View(self.rows.as_slice(), at), ..product }, to, PanelOrder::Ascending);
    }

    /// Packs the gradients of gates at `rows` rows for [`Bf16Scratch::add_product`].
    pub(super) fn take_d_gates(&mut self, isa: Bf16Isa, rows: usize, panels: usize, d_gates: View<'_>) {
        let at = PanelStride { start: 0, stride: padded_words(rows) * PANEL };
        bf16::pairs(isa, rows, panels, d_gates, &mut ViewMut(self.d_gates.as_mut_slice(), at));
    }

    /// Adds `a` [rows, columns]ᵀ · the gradients of gates to `sums`.
    pub(super) fn add_product(
        &mut self,
        isa: Bf16Isa,
        rows: usize,
        columns: usize,
        panels: usize,
        a: View<'_>,
        sums: &mut [f32],
    ) {
        let columns_at = columns.next_multiple_of(PANEL);
        let at = panel_stride(columns_at, PANEL);
        bf16::transposed_pairs(isa, rows, columns, a, &mut ViewMut(self.transposed.as_mut_slice(), at));
        let mut sums = ViewMut(sums, PanelStride { start: 0, stride: columns * PANEL });
        let (start, a, b) = (Start::Result, View(self.transposed.as_slice(), at), self.d_gates.as_slice());
        bf16::product(
            isa,
            PanelProduct { rows: columns, depth: rows, panels, start, a, b },
            &mut sums,
            PanelOrder::Ascending,
        );
    }
}

fn rows_at(rows: usize) -> PanelStride {
    panel_stride(rows, rows)
}

/// [GH, width] to [gate panels][padded words of width][16]; the weights are rounded already.
pub(super) fn pack(sizes: RecurrentSizes, part: WeightPart, weight: &[f32], to: &mut [f32]) {
    let width = weight.len() / sizes.gate_rows();
    let panel_len = padded_words(width) * PANEL;
    for (at, row) in gate_rows(sizes, part) {
        let column = &mut to[at / PANEL * panel_len + at % PANEL..];
        let words = weight[row * width..][..width].chunks(2);
        column.iter_mut().step_by(PANEL).zip(words).for_each(|(to, word)| {
            let high = word.get(1).map_or(0, |high| high.to_bits() & HIGH);
            *to = f32::from_bits(high | word[0].to_bits() >> 16);
        });
    }
}

/// The half of a word that holds its second number.
const HIGH: u32 = 0xffff_0000;

/// [GH, H] to [unit panels][words of gates, padded][16]; the weights are rounded already.
pub(super) fn transpose(sizes: RecurrentSizes, part: WeightPart, weight: &[f32], to: &mut [f32]) {
    let (hidden, words) = (sizes.hidden, padded_words(padded_gates(sizes)));
    for (at, row) in gate_rows(sizes, part) {
        for (panel, part) in weight[row * hidden..][..hidden].chunks(PANEL).enumerate() {
            let to = &mut to[(panel * words + at / 2) * PANEL..][..part.len()];
            to.iter_mut().zip(part).for_each(|(to, number)| {
                let (word, bits) = (to.to_bits(), number.to_bits());
                let word = if at % 2 == 0 { word & HIGH | bits >> 16 } else { word & !HIGH | bits & HIGH };
                *to = f32::from_bits(word);
            });
        }
    }
}

/// Words in W_ih of width `input`, W_hh and W transposed.
pub(super) fn weights_len(dims: Dimensions, input: usize) -> [usize; 3] {
    let width = dims.gate_panels() * PANEL;
    [
        width * padded_words(input),
        width * padded_words(dims.sizes.hidden),
        dims.unit_panels() * PANEL * padded_words(width),
    ]
}

impl LayerWeights {
    /// `x` [rows, depth] · W_ihᵀ + b.
    pub(super) fn projection<'a>(&'a self, rows: usize, depth: usize, x: View<'a>) -> PanelProduct<'a> {
        let (panels, start) = (self.bias.len() / PANEL, Start::Row(self.bias.as_slice()));
        PanelProduct { rows, depth, panels, start, a: x, b: self.input.as_slice() }
    }
}

impl Sequence {
    /// gates = their projections + h · W_hhᵀ, then the cell.
    pub(super) fn step_bf16(
        &mut self,
        isa: Isa,
        bf16_isa: Bf16Isa,
        l: usize,
        weights: &LayerWeights,
        t: usize,
        projections: &[&Projections],
        ShardScratch { segment, per_bar_gates, pairs: Bf16Scratch { rows: states_as_rows, .. }, .. }: &mut ShardScratch,
    ) {
        let (rows, hidden, units) = (self.windows.len(), self.dims.sizes.hidden, self.dims.unit_panels());
        let (kind, panels) = (self.dims.sizes.cell, self.dims.gates_per_unit());
        let projected = self.projected(l, t, per_bar_gates, projections);
        let (gates_at, cell_at, states_at) = (self.gates_at(t), self.cell_at(t), self.states_at(t));
        let LayerMemory { gates, hidden: states, cell } = &mut self.layers[l];
        let h_at = rows_at(rows);
        let mut h = ViewMut(states_as_rows.as_mut_slice(), h_at);
        bf16::rows(bf16_isa, rows, hidden, View(states.as_slice(), states_at), &mut h);
        let h = View(states_as_rows.as_slice(), h_at);
        // The gates of sixteen units stay in the first-level cache from product to cell, unless one
        // product of all is faster.
        let few = rows <= SMALL_BATCH_ROWS_NARROW;
        let at_once = if few || bf16_isa.multiplies_whole_steps() { units } else { 1 };
        let weight_len = panels * padded_words(hidden) * PANEL;
        for (first, weight) in
            (0..units).step_by(at_once).zip(weights.recurrent.as_slice().chunks_exact(at_once * weight_len))
        {
            let mut unit_gates = gates_at.panel(panels * first).view_mut(gates, &mut segment.gates);
            let start = projected.map_or(Start::Result, |rows| Start::Rows(rows.panel(panels * first)));
            let product = PanelProduct { rows, depth: hidden, panels: panels * at_once, start, a: h, b: weight };
            bf16::product(bf16_isa, product, &mut unit_gates, PanelOrder::for_step(t));
            if few {
                let cell = cell_at.panel(first).view_mut(cell, &mut segment.cell);
                let states = StatesMut { hidden: ViewMut(states.as_mut_slice(), states_at.panel(first)), cell };
                kernel::forward_units(isa, kind, at_once, rows, &mut unit_gates, states);
                continue;
            }
            for n in first..first + at_once {
                let mut gates = gates_at.panel(panels * n).view_mut(gates, &mut segment.gates);
                let cell = cell_at.panel(n).view_mut(cell, &mut segment.cell);
                let states = StatesMut { hidden: ViewMut(states.as_mut_slice(), states_at.panel(n)), cell };
                kernel::forward(isa, kind, rows, &mut gates, states, Prefetch::NextStep);
            }
        }
    }

    /// The gates of all units at all steps of a segment, from their projections.
    pub(super) fn gates_again_bf16(
        &self,
        isa: Isa,
        bf16_isa: Bf16Isa,
        l: usize,
        weights: &LayerWeights,
        segment: &Range<usize>,
        scratch: &mut ShardScratch,
    ) {
        let rows = segment.len() * self.windows.len();
        let before = View(self.layers[l].hidden.as_slice(), self.states_at(segment.start));
        let gates_at = self.segment_gates_at(0);
        let mut gates = ViewMut(scratch.segment.gates.as_mut_slice(), gates_at);
        let product = PanelProduct {
            rows,
            depth: self.dims.sizes.hidden,
            panels: self.dims.gate_panels(),
            start: Start::Result,
            a: before,
            b: weights.recurrent.as_slice(),
        };
        scratch.pairs.multiply(bf16_isa, product, &mut gates);
        for n in 0..self.dims.unit_panels() {
            let mut gates =
                ViewMut(scratch.segment.gates.as_mut_slice(), gates_at.panel(self.dims.gates_per_unit() * n));
            kernel::activate(isa, self.dims.sizes.cell, rows, &mut gates);
        }
    }

    /// From the gradients of the gates of step `t`, those of the states before it and, above the
    /// first layer, of what the layer read.
    pub(super) fn gates_backward_bf16(
        &self,
        bf16_isa: Bf16Isa,
        l: usize,
        weights: &LayerWeights,
        t: usize,
        scratch: &mut ShardScratch,
    ) {
        let ShardScratch {
            segment,
            d_gates,
            d_hidden,
            d_layer_output,
            d_skip,
            pairs: Bf16Scratch { rows: d_gate_rows, .. },
            ..
        } = scratch;
        let (rows, depth) = (self.windows.len(), self.dims.gate_panels() * PANEL);
        let panels = self.dims.unit_panels();
        let at = rows_at(rows);
        let mut d_rows = ViewMut(d_gate_rows.as_mut_slice(), at);
        bf16::rows(bf16_isa, rows, depth, self.d_gates(l, t, segment, d_gates), &mut d_rows);
        let d_rows = View(d_gate_rows.as_slice(), at);
        let multiply = |start: Start<'_>, weight: &Buffer<f32>, to: &mut ViewMut<'_>| {
            let b = weight.as_slice();
            bf16::product(
                bf16_isa,
                PanelProduct { rows, depth, panels, start, a: d_rows, b },
                to,
                PanelOrder::for_step(t),
            );
        };
        if t > 0 {
            let start = self.d_hidden_start(d_skip);
            multiply(start, &weights.recurrent_transposed, &mut ViewMut(d_hidden.as_mut_slice(), self.d_state_at()));
        }
        if l > 0 {
            let mut to = ViewMut(d_layer_output.as_mut_slice(), self.d_layer_output_at(t));
            multiply(Start::Zero, &weights.input_transposed, &mut to);
        }
    }

    /// Adds a block's share of dW_hh and, unless it is formed by bar, of dW_ih.
    pub(super) fn add_block_bf16(&self, bf16_isa: Bf16Isa, l: usize, block: &Range<usize>, scratch: &mut ShardScratch) {
        let (rows, gates, hidden) = (block.len() * self.windows.len(), self.dims.gate_panels(), self.dims.sizes.hidden);
        let d_gates = View(scratch.d_gates.as_slice(), self.d_gates_at(0));
        scratch.pairs.take_d_gates(bf16_isa, rows, gates, d_gates);
        let before = View(self.layers[l].hidden.as_slice(), self.states_at(block.start));
        let sums = scratch.d_recurrent_weight.as_mut_slice();
        scratch.pairs.add_product(bf16_isa, rows, hidden, gates, before, sums);
        if !self.projects_per_bar(l) {
            let below = l.checked_sub(1).map(|below| &self.layers[below]);
            let (x, dropped) = (scratch.x.as_slice(), scratch.dropped.as_slice());
            let input = View(input(below, x, self.copies_below(l).then_some(dropped)), self.input_at(l, block.start));
            let sums = scratch.d_input_weight.as_mut_slice();
            scratch.pairs.add_product(bf16_isa, rows, self.dims.input(l), gates, input, sums);
        }
    }
}

#[cfg(test)]
mod tests {
    use megabatch_nn::model::Cell;

    use super::*;

    #[test]
    fn packed_weights_are_those_of_the_kernels() {
        let (hidden, width) = (18, 5);
        let sizes = super::super::weights::tests::sizes(Cell::Lstm, hidden);
        let weight =
            |len: usize| (0..len).map(|x| half::bf16::from_f32(x as f32 - 40.0).to_f32()).collect::<Vec<f32>>();
        let stride_of = |stride: usize| PanelStride { start: 0, stride: stride * PANEL };
        for isa in Bf16Isa::all() {
            let input = weight(4 * hidden * width);
            let (mut single, mut expected) = (vec![0.0; 8 * width * PANEL], vec![0.0; 8 * 16 * PANEL]);
            super::super::weights::pack(sizes, WeightPart::Input, &input, &mut single);
            bf16::pairs(isa, width, 8, View(&single, stride_of(width)), &mut ViewMut(&mut expected, stride_of(16)));
            let mut own = vec![0.0; 8 * 16 * PANEL];
            pack(sizes, WeightPart::Input, &input, &mut own);
            assert_eq!(own, expected, "{}", isa.name());

            let recurrent = weight(4 * hidden * hidden);
            let (mut single, mut expected) = (vec![0.0; 2 * 128 * PANEL], vec![0.0; 2 * 64 * PANEL]);
            super::super::weights::transpose(sizes, WeightPart::Recurrent, &recurrent, &mut single);
            bf16::pairs(isa, 128, 2, View(&single, stride_of(128)), &mut ViewMut(&mut expected, stride_of(64)));
            let mut own = vec![0.0; 2 * 64 * PANEL];
            transpose(sizes, WeightPart::Recurrent, &recurrent, &mut own);
            assert_eq!(own, expected, "{}", isa.name());
        }
    }
}
