#![forbid(unsafe_code)]

//! One layer of one timeframe: its weights as the kernels read them, and the way back of their gradients.

use megabatch_gpu_core::{Buffer, Scope};

use super::tally::Tally;
use crate::error::Result;
use crate::footprint::{BACKWARD, BOTH, StepPhase};
use crate::lstm::Lstm;
use crate::model::Model;
use crate::ops::{
    Arithmetic, ByteMatrix, ByteRows, Layout, Operand, Output, Part, Product, RecurrentWeights, Scratch,
    add_column_sums, add_separated, column_sum_parts, interleave, make_room, multiply, multiply_bytes, parts_of_rows,
    parts_of_sum,
};
use crate::tuning::Tuner;

/// Where a layer's tensors begin among all parameters, and the layer's own form of them.
#[derive(Debug)]
pub(super) struct Cell<T: Operand> {
    hidden: usize,
    arithmetic: Arithmetic,
    /// Width of what the layer reads.
    input: usize,
    weight_ih_start: usize,
    weight_hh_start: usize,
    bias_starts: Option<[usize; 2]>,
    weight_ih: Buffer<T>, // [H, 4, input]
    /// The same in eight bits, in its place.
    in_bytes: Option<ByteMatrix>,
    bias: Option<Buffer<f32>>, // [H, 4], the sum of both
    // Empty until something is learnt.
    d_weight_ih: Buffer<f32>, // [H, 4, input]
    d_weight_hh: Buffer<f32>, // [H, 4, H]
    d_bias: Buffer<f32>,      // [H, 4]
}

/// What all cells need and none keeps.
#[derive(Debug)]
pub(super) struct Shared {
    other_bias: Buffer<f32>, // [H, 4]
    /// Gates' gradients by bar, [bars, H, 4].
    pub(super) by_bar: Buffer<f32>,
    /// What is projected in eight bits.
    rows: ByteRows,
    scratch: Scratch,
}

impl Shared {
    /// Counts what all cells share, for sums of so many parts and bars.
    pub(super) fn tally(tally: &mut Tally<'_>, parts: usize, bars: usize) {
        let gates = 4 * tally.model.config().hidden;
        tally.put("activations", "the other bias", gates * size_of::<f32>(), &[StepPhase::Forward]);
        tally.put("activations", "gradients of gates by bar", bars * gates * size_of::<f32>(), BACKWARD);
        tally.put("activations", "parts of sums", Scratch::bytes::<f32>(parts), BOTH);
    }

    pub(super) fn new(scope: &Scope, hidden: usize, tuner: &Tuner) -> Result<Self> {
        let (other_bias, by_bar) = (Buffer::zeros(scope, 4 * hidden)?, Buffer::zeros(scope, 0)?);
        Ok(Shared { other_bias, by_bar, rows: ByteRows::empty(scope)?, scratch: Scratch::tuned(scope, tuner)? })
    }
}

/// Rows that go into a layer's gradients: d_gates `[rows, H, 4]`, and the hidden states before each of these steps, `[rows, H]`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Steps<'a, T: Operand> {
    pub(super) d_gates: Part<'a, T>,
    pub(super) hidden_before: Part<'a, T>,
    pub(super) rows: usize,
}

impl<T: Operand> Cell<T> {
    /// The cell of layer `l`, on `scope`, whose products are by `arithmetic`.
    pub(super) fn new(scope: &Scope, (model, lstm, l): (&Model, &Lstm, usize), arithmetic: Arithmetic) -> Result<Self> {
        let (slots, hidden, input) = (&lstm.layers[l], lstm.sizes.hidden, lstm.sizes.input(l));
        let start = |slot| model.layout().place(slot).start;
        let bias = slots.bias.map(|_| Buffer::zeros(scope, 4 * hidden)).transpose()?;
        Ok(Cell {
            hidden,
            arithmetic,
            input,
            weight_ih_start: start(slots.weight_ih),
            weight_hh_start: start(slots.weight_hh),
            bias_starts: slots.bias.map(|biases| biases.map(start)),
            weight_ih: Buffer::zeros(scope, 4 * hidden * input)?,
            in_bytes: None,
            bias,
            d_weight_ih: Buffer::zeros(scope, 0)?,
            d_weight_hh: Buffer::zeros(scope, 0)?,
            d_bias: Buffer::zeros(scope, 0)?,
        })
    }

    /// Bytes of the weights as operations read them, and of their gradients, for a layer that reads rows of `input`.
    pub(super) fn bytes(hidden: usize, input: usize, has_bias: bool) -> [usize; 2] {
        let gates = 4 * hidden;
        let bias = if has_bias { gates * size_of::<f32>() } else { 0 };
        [gates * input * size_of::<T>() + bias, gates * (input + hidden + 1) * size_of::<f32>()]
    }

    /// Numbers that its operations ask [`Shared`] for: over so many rows of what it reads, and steps of windows, at most.
    pub(super) fn parts(hidden: usize, (input, has_bias): (usize, bool), [rows, steps]: [usize; 2]) -> usize {
        let gates = 4 * hidden;
        let sums = [[gates, hidden, steps], [gates, input, rows]].map(parts_of_sum);
        // A product that starts from a bias is not split.
        let of_bias =
            if has_bias { column_sum_parts([rows.max(1), gates]) } else { parts_of_rows([rows, gates, input]) };
        sums[0].max(sums[1]).max(of_bias).max(parts_of_rows([steps, input, gates]))
    }

    /// Takes memory for the gradients, where it is not there already.
    pub(super) fn make_room_for_gradients(&mut self) -> Result<()> {
        let gates = 4 * self.hidden;
        make_room(&mut self.d_weight_ih, gates * self.input)?;
        make_room(&mut self.d_weight_hh, gates * self.hidden)?;
        make_room(&mut self.d_bias, gates)
    }

    /// Projects by `matrix` from now on.
    pub(super) fn set_in_bytes(&mut self, matrix: ByteMatrix) {
        self.in_bytes = Some(matrix);
    }

    fn product<'a, S: Operand>(&self, [a, b]: [Part<'a, S>; 2], shape: [usize; 3], layout: Layout) -> Product<'a, S> {
        Product { a, b, start: None, shape, layout, arithmetic: self.arithmetic }
    }

    /// Takes the weights as they are now; W_hh becomes that of sequence `k` of `recurrent`.
    pub(super) fn load(
        &mut self,
        parameters: &Buffer<f32>,
        (recurrent, k): (&mut RecurrentWeights<T>, usize),
        shared: &mut Shared,
    ) -> Result<()> {
        interleave((parameters, self.weight_ih_start), &mut self.weight_ih, [self.hidden, self.input])?;
        recurrent.set(k, (parameters, self.weight_hh_start))?;
        if let (Some(bias), Some([ih, hh])) = (&mut self.bias, self.bias_starts) {
            interleave((parameters, ih), bias, [self.hidden, 1])?;
            interleave((parameters, hh), &mut shared.other_bias, [self.hidden, 1])?;
            let Shared { other_bias, scratch, .. } = shared;
            add_column_sums((&*other_bias).into(), [1, 4 * self.hidden], (bias, 0), scratch)?;
        }
        Ok(())
    }

    /// W_ih and the sum of the biases, as they were [loaded](Cell::load).
    pub(super) fn of_input(&self) -> (&Buffer<T>, Option<&Buffer<f32>>) {
        (&self.weight_ih, self.bias.as_ref())
    }

    /// x · W_ihᵀ + b of so many rows `x` `[rows, input]`, to `to` from element number `start` on.
    pub(super) fn project(
        &self,
        x: Part<'_, T>,
        rows: usize,
        to: (&mut Buffer<f32>, usize),
        shared: &mut Shared,
    ) -> Result<()> {
        let start = self.bias.as_ref().map(Part::from);
        if let Some(matrix) = &self.in_bytes {
            shared.rows.quantize(x, [rows, self.input])?;
            return multiply_bytes(&shared.rows, matrix, start, to);
        }
        let of = self.product([x, (&self.weight_ih).into()], [rows, 4 * self.hidden, self.input], Layout::Straight);
        let of = Product { start, ..of };
        multiply(&of, Output::Overwrite, to, &mut shared.scratch)
    }

    /// The gradient of what the layer read, `[rows, input]`, to `to` from element number `start` on.
    pub(super) fn d_input(
        &self,
        steps: &Steps<'_, T>,
        to: (&mut Buffer<f32>, usize),
        shared: &mut Shared,
    ) -> Result<()> {
        let shape = [steps.rows, self.input, 4 * self.hidden];
        let of = self.product([steps.d_gates, (&self.weight_ih).into()], shape, Layout::SecondTurned);
        multiply(&of, Output::Overwrite, to, &mut shared.scratch)
    }

    /// Adds the gradients of W_hh, and those of W_ih and the biases from rows that the layer read step by step, `[rows, input]`.
    pub(super) fn add_by_step(
        &mut self,
        steps: &Steps<'_, T>,
        x: Part<'_, T>,
        (shared, gradients): (&mut Shared, &mut Buffer<f32>),
    ) -> Result<()> {
        self.add_recurrent(steps, (&mut shared.scratch, &mut *gradients))?;
        self.add_input([steps.d_gates, x], steps.rows, (&mut shared.scratch, gradients))
    }

    /// The same where the layer read bars, `[bars, input]`, whose d_gates were summed by bar.
    pub(super) fn add_by_bar(
        &mut self,
        steps: &Steps<'_, T>,
        (x, bars): (&Buffer<f32>, usize),
        (Shared { by_bar, scratch, .. }, gradients): (&mut Shared, &mut Buffer<f32>),
    ) -> Result<()> {
        self.add_recurrent(steps, (&mut *scratch, &mut *gradients))?;
        self.add_input([(&*by_bar).into(), x.into()], bars, (scratch, gradients))
    }

    fn add_recurrent(
        &mut self,
        steps: &Steps<'_, T>,
        (scratch, gradients): (&mut Scratch, &mut Buffer<f32>),
    ) -> Result<()> {
        let shape = [4 * self.hidden, self.hidden, steps.rows];
        let of = self.product([steps.d_gates, steps.hidden_before], shape, Layout::BothTurned);
        multiply(&of, Output::Overwrite, (&mut self.d_weight_hh, 0), scratch)?;
        add_separated(&self.d_weight_hh, (gradients, self.weight_hh_start), [self.hidden; 2])
    }

    fn add_input<S: Operand>(
        &mut self,
        [d_gates, x]: [Part<'_, S>; 2],
        rows: usize,
        (scratch, gradients): (&mut Scratch, &mut Buffer<f32>),
    ) -> Result<()> {
        let gates = 4 * self.hidden;
        let of = self.product([d_gates, x], [gates, self.input, rows], Layout::BothTurned);
        multiply(&of, Output::Overwrite, (&mut self.d_weight_ih, 0), scratch)?;
        add_separated(&self.d_weight_ih, (gradients, self.weight_ih_start), [self.hidden, self.input])?;
        let Some(biases) = self.bias_starts else { return Ok(()) };
        self.d_bias.set_zero()?;
        add_column_sums(d_gates, [rows, gates], (&mut self.d_bias, 0), scratch)?;
        biases.into_iter().try_for_each(|start| add_separated(&self.d_bias, (gradients, start), [self.hidden, 1]))
    }
}
