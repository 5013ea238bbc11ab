#![forbid(unsafe_code)]

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

use super::memory::{LayerMemory, ShardScratch};
use super::sequence::Sequence;
use super::small_batch::SMALL_BATCH_ROWS_NARROW;
use super::tasks::Projections;
use super::weights::{LayerWeights, WeightPart, gate_rows, padded_gates};
use super::{BLOCK_STEPS, Dimensions};
use crate::kernel::quantized::{self as int8, Int8Isa, Int8Product, Int8Rows, Int8Weights};
use crate::kernel::{self, Isa, PANEL, PanelOrder, PanelProduct, Start, StatesMut, View, ViewMut};

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

    /// The first `rows` rows of `x` [.., depth], quantised.
    fn take(&mut self, rows: usize, depth: usize, x: View<'_>) -> Int8Rows<'_> {
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

    /// The panels `panels` of gates of `to` [rows, gates] = x · W_ihᵀ + b, which is `product`.
    pub(super) fn project(
        &self,
        isa: Isa,
        product: PanelProduct<'_>,
        panels: Range<usize>,
        activations: &mut Activations,
        to: &mut ViewMut<'_>,
    ) {
        let mut to = to.panel(panels.start);
        let PanelProduct { rows, depth, a: x, .. } = product;
        let Some(QuantizedLayer { input, .. }) = &self.quantized else {
            return kernel::product(isa, product.part(&panels, &(0..rows)), &mut to);
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

impl Sequence {
    /// gates += h · W_hhᵀ, then the cell, with weights in eight bits.
    pub(super) fn step_quantized(
        &mut self,
        isa: Isa,
        l: usize,
        QuantizedLayer { recurrent, .. }: &QuantizedLayer,
        t: usize,
        projections: &[&Projections],
        ShardScratch { segment, per_bar_gates, activations, .. }: &mut ShardScratch,
    ) {
        let projected = self.projected(l, t, per_bar_gates, projections);
        let (rows, hidden, own) = (self.windows.len(), self.dims.sizes.hidden, self.own_unit_panels());
        let (kind, gates_per_unit) = (self.dims.sizes.cell, self.dims.gates_per_unit());
        let (gates_at, cell_at, states_at) = (self.gates_at(t), self.cell_at(t), self.states_at(t));
        let LayerMemory { gates, hidden: states, cell } = &mut self.layers[l];
        let int8_isa = activations.isa;
        let h = activations.take(rows, hidden, View(states.as_slice(), states_at));
        // A few rows' chains of operations hide behind those of other units, many rows' gates stay
        // in the cache.
        let at_once = if rows <= SMALL_BATCH_ROWS_NARROW { own.len() } else { 1 };
        for n in own.step_by(at_once) {
            let mut gates = gates_at.panel(gates_per_unit * n).view_mut(gates, &mut segment.gates);
            let start = projected.map_or(Start::Result, |rows| Start::Rows(rows.panel(gates_per_unit * n)));
            let (panels, weights) = (gates_per_unit * at_once, recurrent.from(gates_per_unit * n));
            let product = Int8Product { depth: hidden, panels, start, x: h, weights };
            int8::product(int8_isa, product, &mut gates, PanelOrder::for_step(t));
            let cell = cell_at.panel(n).view_mut(cell, &mut segment.cell);
            let states = StatesMut { hidden: ViewMut(states.as_mut_slice(), states_at.panel(n)), cell };
            kernel::forward_units(isa, kind, at_once, rows, &mut gates, states);
        }
    }
}
