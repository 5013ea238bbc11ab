#![forbid(unsafe_code)]

//! Weights in panels, and gradients back from them.
//!
//! The panels of the gates follow one another as i, f, g, o of units 0..16, then of units 16..32,
//! and so on. Units past H fill the last panels up with zeros, which the cell keeps: a gate of 1/2,
//! a candidate and a state of zero.

use std::ops::Range;

use megabatch_gpu_core::{Buffer, Scope};
use megabatch_nn::Result;
use megabatch_nn::model::lstm::{GATES, LayerSlots};
use megabatch_nn::model::{Slot, TensorSet};

use super::Dimensions;
use super::bf16;
use super::norm::norm_len;
use super::quantized::QuantizedLayer;
use crate::compute::Purpose;
use crate::kernel::PANEL;

/// One layer's weights.
#[derive(Debug)]
pub(super) struct LayerWeights {
    /// W_ih and W_hh. For products of pairs, here and transposed, a row is one of two numbers'
    /// words, see [`bf16`].
    pub(super) input: Buffer<f32>, // [gate panels][F][16]
    pub(super) recurrent: Buffer<f32>, // [gate panels][H][16]
    pub(super) bias: Buffer<f32>,      // b_ih + b_hh: [gate panels][16]
    /// For the backward pass, else empty: W_hh and, above the first layer, W_ih transposed, [unit
    /// panels][4H padded][16].
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
    let width = dims.gates() * PANEL;
    let [input, recurrent, transposed] = match dims.bf16_isa {
        Some(_) => bf16::weights_len(dims, dims.input(l)),
        None => [width * dims.input(l), width * dims.sizes.hidden, dims.units() * PANEL * width],
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
            is_bf16: dims.bf16_isa.is_some(),
            quantized: None,
        })
    }

    /// Copies the weights of a layer of H = `hidden` units, its matrices on threads of the pool
    /// that this is called in.
    pub(super) fn pack(&mut self, hidden: usize, slots: &LayerSlots, parameters: &TensorSet) {
        let (weight_ih, weight_hh) = (parameters.slot(slots.weight_ih), parameters.slot(slots.weight_hh));
        let pack = if self.is_bf16 { bf16::pack } else { pack };
        let transpose = if self.is_bf16 { bf16::transpose } else { transpose };
        let (input, recurrent) = (self.input.as_mut_slice(), self.recurrent.as_mut_slice());
        let (input_transposed, recurrent_transposed) =
            (self.input_transposed.as_mut_slice(), self.recurrent_transposed.as_mut_slice());
        let transpose = |weight: &[f32], to: &mut [f32]| {
            if !to.is_empty() {
                transpose(hidden, weight, to);
            }
        };
        rayon::join(
            || rayon::join(|| pack(hidden, weight_ih, input), || pack(hidden, weight_hh, recurrent)),
            || rayon::join(|| transpose(weight_ih, input_transposed), || transpose(weight_hh, recurrent_transposed)),
        );
        if let Some(norm) = slots.norm {
            let panels = self.norm.len() / 2;
            for (to, values) in self.norm.as_mut_slice().chunks_exact_mut(panels).zip(norm.parameters(parameters)) {
                to[..hidden].copy_from_slice(values);
            }
        }
        if let Some([ih, hh]) = slots.bias.map(|bias| bias.map(|slot| parameters.slot(slot))) {
            for (at, row) in gate_rows(hidden) {
                self.bias.as_mut_slice()[at] = ih[row] + hh[row];
            }
        }
    }
}

/// The place of each gate in the row of all panels, and its row in PyTorch's [4H, ..].
pub(super) fn gate_rows(hidden: usize) -> impl Iterator<Item = (usize, usize)> {
    let units = move |gate: usize| (0..hidden).map(move |unit| (unit, gate));
    (0..GATES).flat_map(units).map(move |(unit, gate)| {
        let panel = unit / PANEL * GATES + gate;
        (panel * PANEL + unit % PANEL, gate * hidden + unit)
    })
}

/// [4H, width] to [gate panels][width][16].
pub(super) fn pack(hidden: usize, weight: &[f32], to: &mut [f32]) {
    let width = weight.len() / (GATES * hidden);
    for (at, row) in gate_rows(hidden) {
        let column = &mut to[at / PANEL * width * PANEL + at % PANEL..];
        column.iter_mut().step_by(PANEL).zip(&weight[row * width..][..width]).for_each(|(to, &from)| *to = from);
    }
}

/// [4H, H] to [unit panels][gates, padded][16].
pub(super) fn transpose(hidden: usize, weight: &[f32], to: &mut [f32]) {
    let depth = GATES * hidden.next_multiple_of(PANEL);
    for (at, row) in gate_rows(hidden) {
        for (panel, part) in weight[row * hidden..][..hidden].chunks(PANEL).enumerate() {
            to[(panel * depth + at) * PANEL..][..part.len()].copy_from_slice(part);
        }
    }
}

/// Adds the panels `panels` of a gradient [gate panels][width][16], which `from` begins with, to
/// the tensor [4H, width] at `slot`.
pub(super) fn unpack_add(hidden: usize, panels: &Range<usize>, from: &[f32], slot: Slot, gradients: &mut TensorSet) {
    let gradient = gradients.slot_mut(slot);
    let width = gradient.len() / (GATES * hidden);
    for (at, row) in gate_rows(hidden).filter(|(at, _)| panels.contains(&(at / PANEL))) {
        let column = &from[(at / PANEL - panels.start) * width * PANEL + at % PANEL..];
        let sums = &mut gradient[row * width..][..width];
        sums.iter_mut().zip(column.iter().step_by(PANEL)).for_each(|(sum, term)| *sum += term);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panels_hold_the_gates_of_sixteen_units_each() {
        let hidden = 18;
        let weight: Vec<f32> = (0..GATES * hidden * hidden).map(|x| x as f32 + 1.0).collect();
        let (mut packed, mut transposed) = (vec![0.0; 8 * 18 * 16], vec![0.0; 2 * 128 * 16]);
        pack(hidden, &weight, &mut packed);
        transpose(hidden, &weight, &mut transposed);
        for (gate, unit, column) in [(0, 0, 0), (3, 15, 17), (1, 16, 4), (2, 17, 17)] {
            let (panel, lane) = (unit / 16 * GATES + gate, unit % 16);
            let expected = weight[(gate * hidden + unit) * hidden + column];
            assert_eq!(packed[(panel * hidden + column) * 16 + lane], expected);
            assert_eq!(transposed[(column / 16 * 128 + panel * 16 + lane) * 16 + column % 16], expected);
        }
        let kept = |x: &[f32]| x.iter().filter(|&&x| x != 0.0).count();
        assert_eq!((kept(&packed), kept(&transposed)), (weight.len(), weight.len()));
    }
}
