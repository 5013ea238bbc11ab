//! The weights of one layer of all timeframes as the kernels read them, and the way back of their
//! gradients.

use megabatch_gpu_core::{Buffer, Scope};
use megabatch_nn::Result;
use megabatch_nn::memory::{BACKWARD, BOTH};
use megabatch_nn::model::Model;
use megabatch_nn::model::recurrent::RecurrentLayers;

use super::bars::row_width;
use super::memory_estimate::MemoryEstimate;
use crate::ops::{
    Arithmetic, DeviceInt8Matrix, DeviceInt8Rows, GATES, GateRows, GateTensor, InputWeights, Operand, Output, Product,
    Scratch, TensorSlice, Transpose, add_column_sums, add_separated, column_sum_partials_len, ensure_capacity,
    interleave, multiply, multiply_int8, product_partials_len, rows_partials_len,
};
use crate::tuning::Tuner;

/// One layer of all timeframes.
#[derive(Debug)]
pub(super) struct Cells<T: Operand> {
    hidden: usize,
    arithmetic: Arithmetic,
    timeframes: Vec<TimeframeOffsets>,
    weight_rows: GateRows,
    /// W_ih, `[H, 4, input]` of one timeframe after the other.
    weights: Buffer<T>,
    /// The same in eight bits, in their place.
    int8_weights: Vec<DeviceInt8Matrix>,
    bias: Option<Bias>,
    gradient_rows: GateRows,
    /// Gradients of W_ih, W_hh and the biases, unit by unit; empty until training needs them.
    gradients: Buffer<f32>,
}

/// The sums of both biases, `[timeframes, H, 4]`.
#[derive(Debug)]
struct Bias {
    rows: GateRows,
    sums: Buffer<f32>,
}

/// Offsets of one timeframe's parameters.
#[derive(Clone, Copy, Debug)]
struct TimeframeOffsets {
    /// Width of the rows that it reads, and of W_ih.
    input: usize,
    /// First element of W_ih.
    weight: usize,
    /// First elements of the gradients of W_ih, W_hh and the biases.
    gradients: [usize; 3],
}

/// Buffers that the cells of all layers need and none keeps.
#[derive(Debug)]
pub(super) struct Shared {
    /// Gates' gradients by bar, [bars, H, 4].
    pub(super) per_bar_gates: Buffer<f32>,
    /// Rows of 8-bit projections.
    rows: DeviceInt8Rows,
    scratch: Scratch,
}

impl Shared {
    /// Counts what all cells share, for sums of so many parts and bars.
    pub(super) fn estimate(&mut self, estimate: &mut MemoryEstimate<'_>, parts: usize, bars: usize) {
        let hidden = estimate.model.config().hidden;
        estimate.book("activations", "gradients of gates by bar", BACKWARD, |_| {
            self.ensure_gradient_capacity(bars, hidden)
        });
        estimate.book("activations", "parts of sums", BOTH, |_| self.scratch.reserve::<f32>(parts));
    }

    /// Takes memory for the gates' gradients of so many bars, where there is not as much.
    pub(super) fn ensure_gradient_capacity(&mut self, bars: usize, hidden: usize) -> Result<()> {
        ensure_capacity(&mut self.per_bar_gates, bars * GATES * hidden)
    }

    pub(super) fn new(scope: &Scope, tuner: &Tuner) -> Result<Self> {
        let per_bar_gates = Buffer::zeros(scope, 0)?;
        Ok(Shared { per_bar_gates, rows: DeviceInt8Rows::empty(scope)?, scratch: Scratch::tuned(scope, tuner)? })
    }
}

/// Rows that go into a layer's gradients: d_gates `[rows, H, 4]`, and the hidden states before each
/// of these steps, `[rows, H]`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Steps<'a, T: Operand> {
    pub(super) d_gates: TensorSlice<'a, T>,
    pub(super) hidden_before: TensorSlice<'a, T>,
    pub(super) rows: usize,
}

impl TimeframeOffsets {
    /// Places of layers that read rows of such widths; and the end of the weights.
    fn all(hidden: usize, inputs: &[usize]) -> (Vec<Self>, usize) {
        let gates = GATES * hidden;
        // Each where products load 16 bytes at a time. The biases' come last, so that they are set
        // to zero at once.
        let (mut weight, mut gradients, mut biases) = (0, 0, inputs.iter().map(|input| gates * (input + hidden)).sum());
        let timeframe = |&input: &usize| {
            let offsets = TimeframeOffsets { input, weight, gradients: [gradients, gradients + gates * input, biases] };
            weight += (gates * input).next_multiple_of(8);
            gradients += gates * (input + hidden);
            biases += gates;
            offsets
        };
        let all = inputs.iter().map(timeframe).collect();
        (all, weight)
    }
}

impl<T: Operand> Cells<T> {
    /// The cells of layer `l`, on `scope`, whose products are by `arithmetic`.
    pub(super) fn new(scope: &Scope, model: &Model, l: usize, arithmetic: Arithmetic) -> Result<Self> {
        let hidden = model.config().hidden;
        let (timeframes, weights) = TimeframeOffsets::all(hidden, &inputs(model, l));
        let each_timeframe = || timeframes.iter().zip(model.recurrent_layers());
        let start = |slot| model.layout().range(slot).start;
        let weight = |(offsets, lstm): (&TimeframeOffsets, &RecurrentLayers)| GateTensor {
            start: start(lstm.layers[l].weight_ih),
            other: None,
            place: offsets.weight,
            width: lstm.sizes.input(l),
            stride: offsets.input,
        };
        let bias = |lstm: &RecurrentLayers, place| {
            let [ih, hh] = lstm.layers[l].bias?.map(start);
            Some(GateTensor { start: ih, other: Some(hh), place, width: 1, stride: 1 })
        };
        let gradients = each_timeframe().flat_map(|(offsets, lstm)| {
            let [ih, hh, biases] = offsets.gradients;
            let weight_ih = GateTensor { place: ih, ..weight((offsets, lstm)) };
            let weight_hh = GateTensor {
                start: start(lstm.layers[l].weight_hh),
                other: None,
                place: hh,
                width: hidden,
                stride: hidden,
            };
            [Some(weight_ih), Some(weight_hh), bias(lstm, biases)].into_iter().flatten()
        });
        let biases = model.recurrent_layers().iter().enumerate().filter_map(|(k, lstm)| bias(lstm, GATES * hidden * k));
        Ok(Cells {
            hidden,
            arithmetic,
            weight_rows: GateRows::new(scope, hidden, &each_timeframe().map(weight).collect::<Vec<_>>())?,
            weights: Buffer::zeros(scope, weights)?,
            int8_weights: Vec::new(),
            bias: Bias::new(scope, hidden, &biases.collect::<Vec<_>>())?,
            gradient_rows: GateRows::new(scope, hidden, &gradients.collect::<Vec<_>>())?,
            gradients: Buffer::zeros(scope, 0)?,
            timeframes,
        })
    }

    /// Numbers that the operations of one cell ask [`Shared`] for: forward over `projected` rows of
    /// what it reads, and backward over so many rows of that and steps of windows, at most.
    pub(super) fn partial_sums_len(
        hidden: usize,
        input: usize,
        has_bias: bool,
        projected: usize,
        rows: usize,
        steps: usize,
    ) -> usize {
        let gates = GATES * hidden;
        let sums = [[gates, hidden, steps], [gates, input, rows]].map(product_partials_len);
        // A product that starts from a bias is not split.
        let bias_parts = if has_bias {
            column_sum_partials_len(rows.max(1), gates)
        } else {
            rows_partials_len(projected, gates, input)
        };
        sums[0].max(sums[1]).max(bias_parts).max(rows_partials_len(steps, input, gates))
    }

    /// Takes memory for the gradients, where it is not there already.
    pub(super) fn ensure_gradient_capacity(&mut self) -> Result<()> {
        let [_, _, biases] = self.timeframes.last().map_or([0; 3], |offsets| offsets.gradients);
        ensure_capacity(&mut self.gradients, biases + GATES * self.hidden)
    }

    /// Projects by these matrices from now on, one a timeframe.
    pub(super) fn set_int8_weights(&mut self, matrices: Vec<DeviceInt8Matrix>) {
        let matrices = matrices.into_iter().zip(&self.timeframes);
        self.int8_weights = matrices.map(|(matrix, cell)| matrix.for_rows_of(cell.input)).collect();
    }

    /// Takes the weights as they are now.
    pub(super) fn load(&mut self, parameters: &Buffer<f32>) -> Result<()> {
        interleave(&self.weight_rows, parameters, &mut self.weights)?;
        let Some(Bias { rows, sums }) = &mut self.bias else { return Ok(()) };
        interleave(rows, parameters, sums)
    }

    /// Hands W_ih and the sums of the biases, as they were [loaded](Cells::load), to a recurrence
    /// that projects what it reads.
    pub(super) fn set_input(&self, input: &mut InputWeights<T>) -> Result<()> {
        (0..self.timeframes.len()).try_for_each(|k| input.set(k, self.weight(k), self.bias(k)))
    }

    fn weight(&self, k: usize) -> TensorSlice<'_, T> {
        TensorSlice { buffer: &self.weights, start: self.timeframes[k].weight }
    }

    fn bias(&self, k: usize) -> Option<TensorSlice<'_, f32>> {
        self.bias.as_ref().map(|bias| TensorSlice { buffer: &bias.sums, start: GATES * self.hidden * k })
    }

    /// x · W_ihᵀ + b of so many rows `x` `[rows, input]` of timeframe `k`, to `to` from element
    /// number `start` on.
    pub(super) fn project(
        &self,
        k: usize,
        x: TensorSlice<'_, T>,
        rows: usize,
        to: &mut Buffer<f32>,
        to_start: usize,
        shared: &mut Shared,
    ) -> Result<()> {
        let (bias, input) = (self.bias(k), self.timeframes[k].input);
        if let Some(matrix) = self.int8_weights.get(k) {
            shared.rows.quantize(x, [rows, input])?;
            return multiply_int8(&shared.rows, matrix, bias, to, to_start);
        }
        let product = self.arithmetic.product(x, self.weight(k), [rows, GATES * self.hidden, input], Transpose::Nt);
        multiply(&Product { bias, ..product }, Output::Overwrite, to, to_start, &mut shared.scratch)
    }

    /// The gradient of what the cell of timeframe `k` read, `[rows, input]`, to `to` from element
    /// number `start` on.
    pub(super) fn d_input(
        &self,
        k: usize,
        steps: &Steps<'_, T>,
        to: &mut Buffer<f32>,
        to_start: usize,
        shared: &mut Shared,
    ) -> Result<()> {
        let shape = [steps.rows, self.timeframes[k].input, GATES * self.hidden];
        let product = self.arithmetic.product(steps.d_gates, self.weight(k), shape, Transpose::Nn);
        multiply(&product, Output::Overwrite, to, to_start, &mut shared.scratch)
    }

    /// Sets the bias gradients to zero.
    pub(super) fn zero_bias_gradients(&mut self) -> Result<()> {
        match self.timeframes.first() {
            Some(first) if self.bias.is_some() => {
                let (start, len) = (first.gradients[2], self.timeframes.len() * GATES * self.hidden);
                Ok(self.gradients.set_zero_at(start, len)?)
            }
            _ => Ok(()),
        }
    }

    /// Finds the gradients of W_hh of timeframe `k`, and those of W_ih and the biases from rows
    /// that the cell read step by step, `[rows, input]`.
    pub(super) fn weight_grads_by_step(
        &mut self,
        k: usize,
        steps: &Steps<'_, T>,
        x: TensorSlice<'_, T>,
        shared: &mut Shared,
    ) -> Result<()> {
        self.recurrent_weight_grads(k, steps, &mut shared.scratch)?;
        self.input_weight_grads(k, steps.d_gates, x, steps.rows, &mut shared.scratch)
    }

    /// The same where the cell read bars, `[bars, input]`, whose d_gates were summed by bar.
    pub(super) fn weight_grads_per_bar(
        &mut self,
        k: usize,
        steps: &Steps<'_, T>,
        x: &Buffer<f32>,
        bars: usize,
        Shared { per_bar_gates, scratch, .. }: &mut Shared,
    ) -> Result<()> {
        self.recurrent_weight_grads(k, steps, scratch)?;
        self.input_weight_grads(k, (&*per_bar_gates).into(), x.into(), bars, scratch)
    }

    fn recurrent_weight_grads(&mut self, k: usize, steps: &Steps<'_, T>, scratch: &mut Scratch) -> Result<()> {
        let (shape, [_, hh, _]) = ([GATES * self.hidden, self.hidden, steps.rows], self.timeframes[k].gradients);
        let product = self.arithmetic.product(steps.d_gates, steps.hidden_before, shape, Transpose::Tn);
        multiply(&product, Output::Overwrite, &mut self.gradients, hh, scratch)
    }

    fn input_weight_grads<S: Operand>(
        &mut self,
        k: usize,
        d_gates: TensorSlice<'_, S>,
        x: TensorSlice<'_, S>,
        rows: usize,
        scratch: &mut Scratch,
    ) -> Result<()> {
        let (gates, TimeframeOffsets { input, gradients: [ih, _, biases], .. }) =
            (GATES * self.hidden, self.timeframes[k]);
        // Sums by bar of 16-bit gradients have more bits than TF32 drops.
        let arithmetic = if T::IS_NARROW { Arithmetic::Tf32 } else { self.arithmetic };
        let shape = [gates, input, rows];
        let product = arithmetic.product(d_gates, x, shape, Transpose::Tn);
        multiply(&product, Output::Overwrite, &mut self.gradients, ih, scratch)?;
        if self.bias.is_none() {
            return Ok(());
        }
        add_column_sums(d_gates, rows, gates, &mut self.gradients, biases, scratch)
    }

    /// Adds what was found of all timeframes to the gradients of the parameters.
    pub(super) fn add_gradients(&self, gradients: &mut Buffer<f32>) -> Result<()> {
        add_separated(&self.gradient_rows, &self.gradients, gradients)
    }
}

impl Bias {
    /// None for no tensors.
    fn new(scope: &Scope, hidden: usize, tensors: &[GateTensor]) -> Result<Option<Self>> {
        if tensors.is_empty() {
            return Ok(None);
        }
        let rows = GateRows::new(scope, hidden, tensors)?;
        Ok(Some(Bias { rows, sums: Buffer::zeros(scope, tensors.len() * GATES * hidden)? }))
    }
}

/// Widths of the rows that the cells of layer `l` read.
pub(super) fn inputs(model: &Model, l: usize) -> Vec<usize> {
    let width = |input| if l == 0 { row_width(input) } else { input };
    model.recurrent_layers().iter().map(|lstm| width(lstm.sizes.input(l))).collect()
}
