//! Weights in panels, and gradients back from them.
//!
//! The panels of the gates follow one another as those of units 0..16 in the order of the cell's
//! [`GateLayout`], then of units 16..32, and so on. A matrix has zeros in panels that none of its
//! rows is added to. Units past H fill the last panels up with zeros, which the cell keeps: a gate
//! of 1/2, a candidate and a state of zero.

use std::ops::Range;

use megabatch_gpu_core::{Buffer, Scope};
use megabatch_nn::Result;
use megabatch_nn::model::recurrent::{LayerSlots, RecurrentSizes};
use megabatch_nn::model::{Slot, TensorSet};

use super::Dimensions;
use super::bf16;
use super::norm::norm_len;
use super::quantized::QuantizedLayer;
use crate::compute::Purpose;
use crate::kernel::{GateLayout, PANEL};

/// One layer's weights.
#[derive(Debug)]
pub(super) struct LayerWeights {
    /// W_ih and W_hh. For products of pairs, here and transposed, a row is one of two numbers'
    /// words, see [`bf16`].
    pub(super) input: Buffer<f32>, // [gate panels][F][16]
    pub(super) recurrent: Buffer<f32>, // [gate panels][H][16]
    /// b_ih + b_hh, or one of them where a gate's sums are apart.
    pub(super) bias: Buffer<f32>, // [gate panels][16]
    /// For the backward pass, else empty: W_hh and, above the first layer, W_ih transposed, [unit
    /// panels][16 · gate panels][16].
    pub(super) recurrent_transposed: Buffer<f32>,
    pub(super) input_transposed: Buffer<f32>,
    /// γ, then β, of the norm of its outputs; empty without one.
    pub(super) norm: Buffer<f32>, // [2][unit panels][16]
    /// True if the matrices are pairs.
    is_bf16: bool,
    /// Quantised forms of the two matrices, for predictions in eight bits.
    pub(super) quantized: Option<QuantizedLayer>,
}

/// Length of each buffer of a layer's weights in numbers, in the order of the fields.
pub(super) fn weights_len(dims: Dimensions, l: usize, purpose: Purpose) -> [usize; 6] {
    let width = dims.gate_panels() * PANEL;
    let [input, recurrent, transposed] = match dims.arithmetic.bf16_isa() {
        Some(_) => bf16::weights_len(dims, dims.input(l)),
        None => [width * dims.input(l), width * dims.sizes.hidden, dims.unit_panels() * PANEL * width],
    };
    let (transposed, between) = match purpose {
        Purpose::Training { .. } => (transposed, if l > 0 { transposed } else { 0 }),
        Purpose::Prediction => (0, 0),
    };
    [input, recurrent, width, transposed, between, norm_len(dims)]
}

impl LayerWeights {
    pub(super) fn new(scope: &Scope, dims: Dimensions, l: usize, purpose: Purpose) -> Result<Self> {
        let [input, recurrent, bias, recurrent_transposed, input_transposed, norm] = weights_len(dims, l, purpose);
        let zeros = |len| Buffer::zeros(scope, len);
        Ok(LayerWeights {
            input: zeros(input)?,
            recurrent: zeros(recurrent)?,
            bias: zeros(bias)?,
            recurrent_transposed: zeros(recurrent_transposed)?,
            input_transposed: zeros(input_transposed)?,
            norm: zeros(norm)?,
            is_bf16: dims.arithmetic.bf16_isa().is_some(),
            quantized: None,
        })
    }

    /// Copies the weights of a layer, its matrices on threads of the pool that this is called in.
    pub(super) fn pack(&mut self, sizes: RecurrentSizes, slots: &LayerSlots, parameters: &TensorSet) {
        let (weight_ih, weight_hh) = (parameters.slot(slots.weight_ih), parameters.slot(slots.weight_hh));
        let pack = if self.is_bf16 { bf16::pack } else { pack };
        let transpose = if self.is_bf16 { bf16::transpose } else { transpose };
        let (input, recurrent) = (self.input.as_mut_slice(), self.recurrent.as_mut_slice());
        let (input_transposed, recurrent_transposed) =
            (self.input_transposed.as_mut_slice(), self.recurrent_transposed.as_mut_slice());
        let pack = |part, weight: &[f32], to: &mut [f32]| pack(sizes, part, weight, to);
        let transpose = |part, weight: &[f32], to: &mut [f32]| {
            if !to.is_empty() {
                transpose(sizes, part, weight, to);
            }
        };
        rayon::join(
            || {
                let recurrent = || pack(WeightPart::Recurrent, weight_hh, recurrent);
                rayon::join(|| pack(WeightPart::Input, weight_ih, input), recurrent)
            },
            || {
                let recurrent = || transpose(WeightPart::Recurrent, weight_hh, recurrent_transposed);
                rayon::join(|| transpose(WeightPart::Input, weight_ih, input_transposed), recurrent)
            },
        );
        if let Some(norm) = slots.norm {
            let panels = self.norm.len() / 2;
            for (to, values) in self.norm.as_mut_slice().chunks_exact_mut(panels).zip(norm.parameters(parameters)) {
                to[..sizes.hidden].copy_from_slice(values);
            }
        }
        if let Some([ih, hh]) = slots.bias.map(|bias| bias.map(|slot| parameters.slot(slot))) {
            let bias = self.bias.as_mut_slice();
            let places = gate_rows(sizes, WeightPart::Input).zip(gate_rows(sizes, WeightPart::Recurrent));
            for ((ih_at, row), (hh_at, _)) in places {
                if ih_at == hh_at {
                    bias[ih_at] = ih[row] + hh[row];
                } else {
                    (bias[ih_at], bias[hh_at]) = (ih[row], hh[row]);
                }
            }
        }
    }
}

/// One of a layer's matrices, or its bias.
#[derive(Clone, Copy, Debug)]
pub(super) enum WeightPart {
    /// W_ih or b_ih.
    Input,
    /// W_hh or b_hh.
    Recurrent,
}

/// The place of each row of a matrix in the row of all panels of gates, and that row in PyTorch's
/// [GH, ..].
pub(super) fn gate_rows(sizes: RecurrentSizes, part: WeightPart) -> impl Iterator<Item = (usize, usize)> {
    let (hidden, layout) = (sizes.hidden, GateLayout::new(sizes.cell));
    let panels = match part {
        WeightPart::Input => layout.input,
        WeightPart::Recurrent => layout.recurrent,
    };
    panels.iter().enumerate().flat_map(move |(gate, panel)| {
        (0..hidden).map(move |unit| {
            let place = (unit / PANEL * layout.panels + panel) * PANEL + unit % PANEL;
            (place, gate * hidden + unit)
        })
    })
}

/// [GH, width] to [gate panels][width][16].
pub(super) fn pack(sizes: RecurrentSizes, part: WeightPart, weight: &[f32], to: &mut [f32]) {
    let width = weight.len() / sizes.gate_rows();
    for (at, row) in gate_rows(sizes, part) {
        let column = &mut to[at / PANEL * width * PANEL + at % PANEL..];
        column.iter_mut().step_by(PANEL).zip(&weight[row * width..][..width]).for_each(|(to, &from)| *to = from);
    }
}

/// [GH, H] to [unit panels][gates, padded][16].
pub(super) fn transpose(sizes: RecurrentSizes, part: WeightPart, weight: &[f32], to: &mut [f32]) {
    let (hidden, depth) = (sizes.hidden, padded_gates(sizes));
    for (at, row) in gate_rows(sizes, part) {
        for (panel, part) in weight[row * hidden..][..hidden].chunks(PANEL).enumerate() {
            to[(panel * depth + at) * PANEL..][..part.len()].copy_from_slice(part);
        }
    }
}

/// Length of a row of all panels of gates.
pub(super) fn padded_gates(sizes: RecurrentSizes) -> usize {
    GateLayout::new(sizes.cell).panels * sizes.hidden.next_multiple_of(PANEL)
}

/// Sums of the gradients of a layer's weights for some panels of gates, [panels][width][16] each.
#[derive(Clone, Copy)]
pub(super) struct WeightSums<'a> {
    pub(super) input: &'a [f32],
    pub(super) recurrent: &'a [f32],
    pub(super) bias: &'a [f32],
}

impl WeightSums<'_> {
    /// Adds the sums of the panels `panels` to the gradients at `slots`.
    pub(super) fn add_to(
        self,
        sizes: RecurrentSizes,
        panels: &Range<usize>,
        slots: &LayerSlots,
        gradients: &mut TensorSet,
    ) {
        let mut add = |part, sums: &[f32], slot: Slot| {
            let gradient = gradients.slot_mut(slot);
            let width = gradient.len() / sizes.gate_rows();
            for (at, row) in gate_rows(sizes, part).filter(|(at, _)| panels.contains(&(at / PANEL))) {
                let column = &sums[(at / PANEL - panels.start) * width * PANEL + at % PANEL..];
                let gradients = &mut gradient[row * width..][..width];
                gradients.iter_mut().zip(column.iter().step_by(PANEL)).for_each(|(sum, term)| *sum += term);
            }
        };
        add(WeightPart::Input, self.input, slots.weight_ih);
        add(WeightPart::Recurrent, self.recurrent, slots.weight_hh);
        if let Some([ih, hh]) = slots.bias {
            add(WeightPart::Input, self.bias, ih);
            add(WeightPart::Recurrent, self.bias, hh);
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use megabatch_nn::model::Cell;
    use megabatch_nn::model::recurrent::Read;

    use super::*;

    pub(in crate::shard) fn sizes(cell: Cell, hidden: usize) -> RecurrentSizes {
        let (steps, features, layers) = (1, hidden, 1);
        RecurrentSizes { cell, steps, features, hidden, layers, bias: true, norm: false, read: Read::LastStep }
    }

    #[test]
    fn panels_hold_the_gates_of_sixteen_units_each() {
        let (hidden, part) = (18, WeightPart::Recurrent);
        let sizes = sizes(Cell::Lstm, hidden);
        let weight: Vec<f32> = (0..sizes.gate_rows() * hidden).map(|x| x as f32 + 1.0).collect();
        let (mut packed, mut transposed) = (vec![0.0; 8 * 18 * 16], vec![0.0; 2 * 128 * 16]);
        pack(sizes, part, &weight, &mut packed);
        transpose(sizes, part, &weight, &mut transposed);
        for (gate, unit, column) in [(0, 0, 0), (3, 15, 17), (1, 16, 4), (2, 17, 17)] {
            let (panel, lane) = (unit / 16 * 4 + gate, unit % 16);
            let expected = weight[(gate * hidden + unit) * hidden + column];
            assert_eq!(packed[(panel * hidden + column) * 16 + lane], expected);
            assert_eq!(transposed[(column / 16 * 128 + panel * 16 + lane) * 16 + column % 16], expected);
        }
        let kept = |x: &[f32]| x.iter().filter(|&&x| x != 0.0).count();
        assert_eq!((kept(&packed), kept(&transposed)), (weight.len(), weight.len()));
    }
}
