//! LSTM layers made of operations.

use megabatch_gpu_core::{Buffer, Device, Scope};
use megabatch_nn::Result;
use megabatch_nn_cuda::ops::{
    Arithmetic, BatchUploader, Gradients, InputWeights, Operand, Output, Product, RecurrenceInputs, RecurrenceSchedule,
    RecurrentWeights, RowInputs, Scratch, Sequence, States, TensorSlice, Transpose, WorkList, add_column_sums,
    multiply, recurrence, recurrence_backward, recurrence_of_rows,
};
use megabatch_order::random::{Stream, uniform};

use super::Case;

/// Layers over B windows of T steps. Rows are those of step 0 for all windows, then of step 1.
#[derive(Debug)]
pub(crate) struct Stack<T: Operand> {
    list: WorkList,
    input: Buffer<T>, // [T·B, F]
    pub(crate) layers: Vec<Layer<T>>,
    /// Weights of the first layer's input, where the recurrence projects it.
    own_input: Option<InputWeights<T>>,
    projected: Buffer<f32>,         // [T·B, H, 4] of the layer that is computed
    pub(crate) d_last: Buffer<f32>, // [B, H], of the top layer's last hidden states
    d_outputs: Option<Buffer<f32>>, // [T·B, H], of what a layer gives to the one above; none with a single layer
    back: Gradients<T>,
    scratch: Scratch,
}

#[derive(Debug)]
pub(crate) struct Layer<T: Operand> {
    input: usize,
    pub(crate) weight_ih: Buffer<T>, // [H, 4, input]
    bias: Buffer<f32>,               // [H, 4]
    recurrent: RecurrentWeights<T>,
    states: States<T>,
    pub(crate) d_weight_ih: Buffer<f32>,
    pub(crate) d_weight_hh: Buffer<f32>, // [H, 4, H]
    pub(crate) d_bias: Buffer<f32>,
}

impl<T: Operand> Stack<T> {
    pub(crate) fn new(device: &Device, case: &Case) -> Result<Self> {
        let scope = device.scope("layers");
        let &Case { hidden, batch, steps, .. } = case;
        let (rows, first): (usize, Vec<u32>) = (steps * batch, (0..batch as u32).collect());
        let sequence = Sequence { steps, first: &first, row_step: batch, projected_rows: rows };
        let mut list = WorkList::empty(&scope, hidden)?;
        list.set(RecurrenceSchedule::by_rule::<T>(hidden, batch), &[sequence]);
        list.read_rows(&[(0, case.features)]);
        let mut uploader = BatchUploader::new(&scope)?;
        let mut upload = uploader.upload();
        list.enqueue(&mut upload)?;
        upload.send()?;
        let layer = |l| Layer::new(&scope, &list, if l == 0 { case.features } else { hidden });
        let mut own_input = None;
        if InputWeights::<T>::are_possible(hidden, &[case.features]) {
            own_input = Some(InputWeights::zeros(&scope, hidden, &[case.features])?);
        }
        Ok(Stack {
            input: noise(&scope, "input", rows * case.features, 1.0)?,
            layers: (0..case.layers).map(layer).collect::<Result<_>>()?,
            own_input,
            projected: Buffer::zeros(&scope, rows * 4 * hidden)?,
            d_last: noise(&scope, "d_last", batch * hidden, 1.0)?,
            d_outputs: (case.layers > 1).then(|| Buffer::zeros(&scope, rows * hidden)).transpose()?,
            back: Gradients::zeros(&scope, &list)?,
            scratch: Scratch::empty(&scope)?,
            list,
        })
    }

    /// All layers, every step.
    pub(crate) fn forward(&mut self) -> Result<()> {
        let Stack { list, input, layers, own_input, projected, scratch, .. } = self;
        for l in 0..layers.len() {
            let (below, above) = layers.split_at_mut(l);
            if let (Some(own), true) = (&mut *own_input, below.is_empty()) {
                above[0].recur_over(list, own, input)?;
                continue;
            }
            let x = below.last().map_or((&*input).into(), |below| below.outputs(list));
            above[0].project(list, x, projected, scratch)?;
            above[0].recur(list, projected)?;
        }
        Ok(())
    }

    /// Back from the gradients of the last hidden states to those of all weights, after
    /// [`Stack::forward`].
    pub(crate) fn backward(&mut self) -> Result<()> {
        for l in (0..self.layers.len()).rev() {
            self.unwind_layer(l)?;
            let Stack { list, input, layers, d_outputs, back, scratch, .. } = self;
            let (below, above) = layers.split_at_mut(l);
            let x = below.last().map_or((&*input).into(), |below| below.outputs(list));
            above[0].add_up(list, &back.gates, x, scratch)?;
            if let (Some(d_outputs), false) = (d_outputs, below.is_empty()) {
                above[0].d_input(list, &back.gates, d_outputs, scratch)?;
            }
        }
        Ok(())
    }

    /// The recurrence of all layers without their projections, on what is projected already.
    pub(crate) fn recur(&mut self) -> Result<()> {
        self.layers.iter_mut().try_for_each(|layer| layer.recur(&self.list, &self.projected))
    }

    /// Its way back.
    pub(crate) fn unwind(&mut self) -> Result<()> {
        (0..self.layers.len()).rev().try_for_each(|l| self.unwind_layer(l))
    }

    /// Goes back through the recurrence of layer `l`, from the gradients of the last hidden states
    /// or, below the top, of all.
    fn unwind_layer(&mut self, l: usize) -> Result<()> {
        let Stack { list, layers, d_last, d_outputs, back, .. } = self;
        let is_top = l + 1 == layers.len();
        back.cell.set_zero()?;
        if is_top {
            back.hidden.copy_from_buffer(d_last)?;
        } else {
            back.hidden.set_zero()?;
        }
        back.outputs = if is_top { None } else { d_outputs.take() };
        let done = recurrence_backward(list, &layers[l].recurrent, &layers[l].states, back);
        *d_outputs = back.outputs.take().or(d_outputs.take());
        done
    }

    /// The top layer's last hidden states, `[B, H]`.
    #[allow(dead_code, reason = "the program times them, and its test looks at them")]
    pub(crate) fn last(&self) -> Result<Vec<f32>> {
        let steps = self.list.steps_and_windows(0)[0];
        let start = self.list.states_row_after(0, steps - 1) * self.list.hidden();
        let states = &self.layers.last().expect("a stack has a layer").states;
        Ok(states.hidden.to_vec()?[start..].iter().map(|h| h.widen()).collect())
    }
}

impl<T: Operand> Layer<T> {
    fn new(scope: &Scope, list: &WorkList, input: usize) -> Result<Self> {
        let hidden = list.hidden();
        let reach = 1.0 / (hidden as f32).sqrt();
        let mut recurrent = RecurrentWeights::zeros(scope, hidden, &[0])?;
        recurrent.set(&noise(scope, "weight_hh", 4 * hidden * hidden, reach)?)?;
        Ok(Layer {
            input,
            weight_ih: noise(scope, "weight_ih", 4 * hidden * input, reach)?,
            bias: noise(scope, "bias", 4 * hidden, reach)?,
            recurrent,
            states: States::zeros(scope, list)?,
            d_weight_ih: Buffer::zeros(scope, 4 * hidden * input)?,
            d_weight_hh: Buffer::zeros(scope, 4 * hidden * hidden)?,
            d_bias: Buffer::zeros(scope, 4 * hidden)?,
        })
    }

    /// Input of the layer above: the hidden states after each step.
    fn outputs(&self, list: &WorkList) -> TensorSlice<'_, T> {
        TensorSlice { buffer: &self.states.hidden, start: list.states_row_after(0, 0) * list.hidden() }
    }

    fn project(
        &self,
        list: &WorkList,
        x: TensorSlice<'_, T>,
        projected: &mut Buffer<f32>,
        scratch: &mut Scratch,
    ) -> Result<()> {
        let multiplied =
            product(x, (&self.weight_ih).into(), [list.rows(), 4 * list.hidden(), self.input], Transpose::Nt);
        let biased = Product { bias: Some((&self.bias).into()), ..multiplied };
        multiply(&biased, Output::Overwrite, projected, 0, scratch)
    }

    /// All steps over `rows`, which the recurrence projects.
    fn recur_over(&mut self, list: &WorkList, own: &mut InputWeights<T>, rows: &Buffer<T>) -> Result<()> {
        own.set(0, (&self.weight_ih).into(), Some((&self.bias).into()))?;
        recurrence_of_rows(list, &RowInputs { weights: &self.recurrent, input: own, rows }, &mut self.states)
    }

    fn recur(&mut self, list: &WorkList, projected: &Buffer<f32>) -> Result<()> {
        recurrence(list, &RecurrenceInputs { weights: &self.recurrent, projected }, &mut self.states)
    }

    /// Gradients of the weights from those of gates and from what was read.
    fn add_up(
        &mut self,
        list: &WorkList,
        d_gates: &Buffer<T>,
        x: TensorSlice<'_, T>,
        scratch: &mut Scratch,
    ) -> Result<()> {
        let (gates, rows) = (4 * list.hidden(), list.rows());
        let before = TensorSlice { buffer: &self.states.hidden, start: list.states_row(0) * list.hidden() };
        let recurrent = product(d_gates.into(), before, [gates, list.hidden(), rows], Transpose::Tn);
        multiply(&recurrent, Output::Overwrite, &mut self.d_weight_hh, 0, scratch)?;
        let inputs = product(d_gates.into(), x, [gates, self.input, rows], Transpose::Tn);
        multiply(&inputs, Output::Overwrite, &mut self.d_weight_ih, 0, scratch)?;
        self.d_bias.set_zero()?;
        add_column_sums(d_gates.into(), rows, gates, &mut self.d_bias, 0, scratch)
    }

    /// Gradients of what was read.
    fn d_input(&self, list: &WorkList, d_gates: &Buffer<T>, to: &mut Buffer<f32>, scratch: &mut Scratch) -> Result<()> {
        let shape = [list.rows(), self.input, 4 * list.hidden()];
        let multiplied = product(d_gates.into(), (&self.weight_ih).into(), shape, Transpose::Nn);
        multiply(&multiplied, Output::Overwrite, to, 0, scratch)
    }
}

fn product<'a, T: Operand>(
    a: TensorSlice<'a, T>,
    b: TensorSlice<'a, T>,
    shape: [usize; 3],
    layout: Transpose,
) -> Product<'a, T> {
    Product { a, b, bias: None, shape, layout, arithmetic: Arithmetic::Exact }
}

/// Numbers within ±`most`, drawn by `name`; those of long arrays come again after 65,536.
fn noise<T: Operand>(scope: &Scope, name: &str, len: usize, most: f32) -> Result<Buffer<T>> {
    let number = |k| T::narrow((uniform(Stream { seed: 1, name }, k) as f32 - 0.5) * 2.0 * most);
    let dropout_seed: Vec<T> = (0..len.min(1 << 16) as u64).map(number).collect();
    let numbers: Vec<T> = dropout_seed.iter().copied().cycle().take(len).collect();
    Ok(Buffer::from_slice(scope, &numbers)?)
}
