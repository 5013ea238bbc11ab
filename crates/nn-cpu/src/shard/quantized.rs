//! Predictions with recurrent weights in eight bits: both products of a layer, and nothing else.
//!
//! W_ih and W_hh are quantised once, by output channel; bars, and hidden states after each step, by
//! row, at each product. Gates, their functions, cell and hidden states, biases, norms and all that
//! follows the recurrent layers are in single precision.

use std::ops::Range;

use megabatch_amp::{Accuracy, QuantizedMatrix};
use megabatch_gpu_core::{Buffer, Scope};
use megabatch_nn::Result;
use megabatch_nn::model::TensorSet;
use megabatch_nn::model::recurrent::{LayerSlots, RecurrentLayers, RecurrentSizes};

use super::bf16::Bf16Scratch;
use super::weights::{LayerWeights, WeightPart, gate_rows, padded_gates};
use super::{BLOCK_STEPS, Dimensions};
use crate::kernel::quantized::{self as int8, Int8Isa, Int8Product, Int8Rows, Int8Weights};
use crate::kernel::{self, PANEL, PanelOrder, PanelProduct, ProductIsa, Start, View, ViewMut};

/// One layer's matrices in eight bits.
#[derive(Debug)]
pub(super) struct QuantizedLayer {
    input: Int8Matrix,
    recurrent: Int8Matrix,
}

/// A matrix [GH, depth] in panels of gates, see [`Int8Weights`].
#[derive(Debug)]
struct Int8Matrix {
    depth: usize,
    weights: Buffer<i8>,
    scales: Buffer<f32>,
    offsets: Buffer<i32>,
}

/// Rows that are quantised to be multiplied.
#[derive(Debug)]
pub(super) struct Activations {
    isa: Int8Isa,
    /// Number of rows that fit.
    rows: usize,
    bytes: Buffer<u8>,
    scales: Buffer<f32>,
}

impl Activations {
    /// Empty buffers.
    pub(super) fn none(scope: &Scope) -> Result<Self> {
        Activations::new(scope, &[])
    }

    /// Buffers for the largest product of the timeframes `all`.
    pub(super) fn new(scope: &Scope, all: &[Dimensions]) -> Result<Self> {
        let rows = all.iter().map(|dims| dims.capacity.max(BLOCK_STEPS)).max().unwrap_or(0);
        let width = all.iter().map(|dims| dims.sizes.features.max(dims.sizes.hidden)).max().unwrap_or(0);
        let bytes = Buffer::zeros(scope, rows * 2 * int8::padded(width))?;
        Ok(Activations { isa: Int8Isa::best(), rows, bytes, scales: Buffer::zeros(scope, rows)? })
    }

    pub(super) fn isa(&self) -> Int8Isa {
        self.isa
    }

    /// The first `rows` rows of `x` [.., depth], quantised.
    pub(super) fn take(&mut self, rows: usize, depth: usize, x: View<'_>) -> Int8Rows<'_> {
        let scales = &mut self.scales.as_mut_slice()[..rows];
        int8::quantize(self.isa, depth, x, self.bytes.as_mut_slice(), scales);
        Int8Rows { bytes: self.bytes.as_slice(), scales: &self.scales.as_slice()[..rows] }
    }
}

impl Int8Matrix {
    /// Packs a matrix [GH, depth].
    fn new(scope: &Scope, sizes: RecurrentSizes, part: WeightPart, matrix: &QuantizedMatrix) -> Result<Self> {
        let ([_, depth], width) = (matrix.shape(), padded_gates(sizes));
        let (isa, padded) = (Int8Isa::best(), int8::padded(depth));
        let mut own = Int8Matrix {
            depth,
            weights: Buffer::zeros(scope, width * padded)?,
            scales: Buffer::zeros(scope, width)?,
            offsets: Buffer::zeros(scope, width)?,
        };
        let (weights, offsets) = (own.weights.as_mut_slice(), own.offsets.as_mut_slice());
        for (at, row) in gate_rows(sizes, part) {
            own.scales.as_mut_slice()[at] = matrix.scales()[row];
            for k in 0..depth {
                let q = matrix.at(row, k);
                weights[int8::place_of(isa, padded, at, k)] = q;
                offsets[at] -= int8::BIAS * i32::from(q);
            }
        }
        Ok(own)
    }

    /// The gates of sixteen units from panel `panel` on, or all for 0.
    fn from(&self, panel: usize) -> Int8Weights<'_> {
        let first = panel * PANEL;
        Int8Weights {
            weights: &self.weights.as_slice()[first * int8::padded(self.depth)..],
            scales: &self.scales.as_slice()[first..],
            offsets: &self.offsets.as_slice()[first..],
        }
    }
}

impl QuantizedLayer {
    /// W_hh from panel `panel` of the gates on.
    pub(super) fn recurrent_from(&self, panel: usize) -> Int8Weights<'_> {
        self.recurrent.from(panel)
    }
}

impl LayerWeights {
    /// Quantises the weights of a layer; by how much each matrix is changed, under its name.
    fn quantize(
        &mut self,
        scope: &Scope,
        sizes: RecurrentSizes,
        slots: &LayerSlots,
        parameters: &TensorSet,
    ) -> Result<[(String, Accuracy); 2]> {
        let [input_matrix, recurrent_matrix] = slots.quantized(sizes.hidden, parameters)?;
        let accuracy = |slot, matrix: &QuantizedMatrix| {
            (parameters.layout().name(slot).to_owned(), matrix.accuracy(parameters.slot(slot)))
        };
        let input = Int8Matrix::new(scope, sizes, WeightPart::Input, &input_matrix)?;
        let recurrent = Int8Matrix::new(scope, sizes, WeightPart::Recurrent, &recurrent_matrix)?;
        self.quantized = Some(QuantizedLayer { input, recurrent });
        Ok([accuracy(slots.weight_ih, &input_matrix), accuracy(slots.weight_hh, &recurrent_matrix)])
    }

    /// The panels `panels` of gates of `to` [rows, gates] = x · W_ihᵀ + b, which is `product`;
    /// all of them in bf16.
    pub(super) fn project(
        &self,
        isa: ProductIsa,
        product: PanelProduct<'_>,
        panels: Range<usize>,
        pairs: &mut Bf16Scratch,
        activations: &mut Activations,
        to: &mut ViewMut<'_>,
    ) {
        if let Some(bf16_isa) = isa.bf16_isa {
            return pairs.multiply(bf16_isa, product, to);
        }
        let mut to = to.panel(panels.start);
        let PanelProduct { rows, depth, a: x, .. } = product;
        let Some(QuantizedLayer { input, .. }) = &self.quantized else {
            return kernel::product(isa.isa, product.part(&panels, &(0..rows)), &mut to);
        };
        let ViewMut(to, at) = &mut to;
        let start = Start::Row(&self.bias.as_slice()[panels.start * PANEL..]);
        let (int8_isa, at_once) = (activations.isa, activations.rows);
        for first in (0..rows).step_by(at_once.max(1)) {
            let part = activations.take(at_once.min(rows - first), depth, View(x.0, x.1.row(first)));
            let product =
                Int8Product { depth, panels: panels.len(), start, x: part, weights: input.from(panels.start) };
            int8::product(int8_isa, product, &mut ViewMut(to, at.row(first)), PanelOrder::Ascending);
        }
    }
}

/// Quantises the layers of one timeframe; by how much each matrix is changed, under its name.
pub(super) fn quantize(
    scope: &Scope,
    layers: &mut [LayerWeights],
    recurrent: &RecurrentLayers,
    parameters: &TensorSet,
) -> Result<Vec<(String, Accuracy)>> {
    let mut all = Vec::new();
    for (layer, slots) in layers.iter_mut().zip(&recurrent.layers) {
        all.extend(layer.quantize(scope, recurrent.sizes, slots, parameters)?);
    }
    Ok(all)
}
