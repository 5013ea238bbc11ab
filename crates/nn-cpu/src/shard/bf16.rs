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

use megabatch_amp::Precision;
use megabatch_gpu_core::{Buffer, Scope};
use megabatch_nn::Result;
use megabatch_nn::model::recurrent::RecurrentSizes;

use super::memory::{ShardScratch, padded_panel_len, panel_stride};
use super::sequence::Sequence;
use super::weights::{LayerWeights, WeightPart, gate_rows, padded_gates};
use super::{BLOCK_STEPS, Dimensions};
use crate::arithmetic::CpuArithmetic;
use crate::compute::Purpose;
use crate::kernel::bf16::{self, Bf16Isa, PAIRED_PANEL, padded_words};
use crate::kernel::{PANEL, PanelOrder, PanelProduct, PanelStride, Start, View, ViewMut};

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

    /// Packs `matrix` [rows, columns] as the first operand of a product.
    pub(super) fn take_rows(&mut self, isa: Bf16Isa, rows: usize, columns: usize, matrix: View<'_>) -> View<'_> {
        let at = panel_stride(rows, rows);
        bf16::rows(isa, rows, columns, matrix, &mut ViewMut(self.rows.as_mut_slice(), at));
        View(self.rows.as_slice(), at)
    }

    /// Writes a product whose first operand is in single precision.
    pub(super) fn multiply(&mut self, isa: Bf16Isa, product: PanelProduct<'_>, to: &mut ViewMut<'_>) {
        let a = self.take_rows(isa, product.rows, product.depth, product.a);
        bf16::product(isa, PanelProduct { a, ..product }, to, PanelOrder::Ascending);
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
        let ShardScratch { segment, d_gates, d_hidden, d_layer_output, d_skip, pairs, .. } = scratch;
        let (rows, depth) = (self.windows.len(), self.dims.gate_panels() * PANEL);
        let panels = self.dims.unit_panels();
        let d_rows = pairs.take_rows(bf16_isa, rows, depth, self.d_gates(l, t, segment, d_gates));
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
