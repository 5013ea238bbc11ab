#![forbid(unsafe_code)]

//! A stack of LSTM layers over windows of one timeframe, as torch.nn.LSTM defines it.
//!
//! ```text
//! i = sigmoid(W_ii x + b_ii + W_hi h + b_hi)      c' = f * c + i * g
//! f = sigmoid(W_if x + b_if + W_hf h + b_hf)      h' = o * tanh(c')
//! g = tanh   (W_ig x + b_ig + W_hg h + b_hg)
//! o = sigmoid(W_io x + b_io + W_ho h + b_ho)
//! ```
//!
//! The gates' weights are stacked in the order i, f, g, o: W_ih is [4H, F], W_hh is [4H, H].
//! Activations lie step after step ([T, B, ..]), so that one step of a batch is one contiguous
//! matrix. With layer norm, the outputs of a layer are its hidden states after
//! torch.nn.LayerNorm(H), before dropout: that is what the layer above reads, and pooling of the
//! top one; the recurrence itself goes on from the states before the norm. B samples, T steps, F
//! features, H hidden units.

mod backward;
mod dropped;
mod forward;
mod normed;
mod quantized;

use megabatch_gpu_core::{Buffer, Scope};

pub(crate) use backward::backward;
pub(crate) use forward::forward;

use dropped::Dropped;
use normed::Normed;

use crate::cpu::norm::LayerNorm;
use crate::error::Result;
use crate::model::dropout::Mask;
use crate::model::scalar::Scalar;
use crate::model::tensor::{Layout, Slot, TensorSet};

/// Sizes of one timeframe's LSTM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sizes {
    /// T.
    pub(crate) steps: usize,
    /// F of the first layer; those above read H.
    pub(crate) features: usize,
    /// H.
    pub(crate) hidden: usize,
    pub(crate) layers: usize,
    pub(crate) bias: bool,
    /// True if each layer's outputs go through a norm.
    pub(crate) norm: bool,
    pub(crate) read: Read,
}

/// Which of the top layer's hidden states are read, and give a gradient back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Read {
    /// The one after the last step.
    LastStep,
    /// States after every step.
    EveryStep,
}

/// Offsets of the parameters of one timeframe's LSTM, layer by layer.
#[derive(Debug)]
pub(crate) struct Lstm {
    pub(crate) sizes: Sizes,
    pub(crate) layers: Vec<LayerSlots>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct LayerSlots {
    pub(crate) weight_ih: Slot,         // [4H, F]
    pub(crate) weight_hh: Slot,         // [4H, H]
    pub(crate) bias: Option<[Slot; 2]>, // b_ih and b_hh, [4H] each
    pub(crate) norm: Option<LayerNorm>,
}

impl Lstm {
    /// Appends the parameters to `layout`, named `<prefix>.weight_ih_l0` and so on, in PyTorch's
    /// order, and the norms' `<norm>.l0.weight`.
    pub(crate) fn new(sizes: Sizes, prefix: &str, norm: &str, layout: &mut Layout) -> Self {
        let Sizes { hidden, .. } = sizes;
        let layer = |l: usize| {
            let mut slot = |kind: &str, shape: &[usize]| layout.push(format!("{prefix}.{kind}_l{l}"), shape);
            LayerSlots {
                weight_ih: slot("weight_ih", &[4 * hidden, sizes.input(l)]),
                weight_hh: slot("weight_hh", &[4 * hidden, hidden]),
                bias: sizes.bias.then(|| ["bias_ih", "bias_hh"].map(|kind| slot(kind, &[4 * hidden]))),
                norm: sizes.norm.then(|| LayerNorm::new(hidden, &format!("{norm}.l{l}"), layout)),
            }
        };
        Lstm { sizes, layers: (0..sizes.layers).map(layer).collect() }
    }

    /// Replaces a hidden state [H] of the top layer by what is read of it.
    pub(crate) fn read<S: Scalar>(&self, parameters: &TensorSet<S>, state: &mut [S]) {
        if let Some(norm) = self.layers.last().and_then(|layer| layer.norm) {
            norm.row(parameters, state);
        }
    }
}

impl Sizes {
    /// Width of what layer `l` reads at each step.
    pub(crate) fn input(self, l: usize) -> usize {
        if l == 0 { self.features } else { self.hidden }
    }

    /// Layers whose outputs go through a norm.
    fn norms(self) -> usize {
        if self.norm { self.layers } else { 0 }
    }

    /// Numbers in the memory of the norms for up to `capacity` samples.
    pub(crate) fn normed_len<S: Scalar>(self, capacity: usize) -> usize {
        self.norms() * Normed::<S>::len(self, capacity)
    }

    /// True if some layer's outputs receive gradients at every step: from the layer above, or for
    /// the top one from what reads it.
    pub(crate) fn has_d_between(self) -> bool {
        self.layers > 1 || self.read == Read::EveryStep
    }
}

/// Saved forward pass and backward pass, for up to a fixed number of samples.
#[derive(Debug)]
pub(crate) struct Activations<S: Scalar> {
    /// B of the windows loaded now.
    samples: usize,
    x: Buffer<S>, // [T, B, F]
    layers: Vec<LayerActivations<S>>,
    /// The outputs of each layer after their norm; empty without norms.
    normed: Vec<Normed<S>>,
    /// Inputs of the layers above the first under dropout; empty without room for it.
    dropped: Vec<Dropped<S>>,
    /// True if there is dropout in the windows loaded now.
    drops: bool,
    /// Gradient of the outputs of the layer below the one that the backward pass has done; to begin
    /// with of the top one's, if they are read.
    d_between: Buffer<S>, // [T, B, H]; empty without either
    d_x: Option<Buffer<S>>, // [T, B, F]
}

#[derive(Debug)]
struct LayerActivations<S: Scalar> {
    /// B, as in [`Activations`].
    samples: usize,
    /// i, f, g, o after their functions; the backward pass replaces them by the gradients before
    /// their functions.
    gates: Buffer<S>, // [T, B, 4H]
    /// The initial state, then the state after each step.
    hidden: Buffer<S>, // [T + 1, B, H]
    cell: Buffer<S>,      // [T + 1, B, H]
    cell_tanh: Buffer<S>, // [T, B, H]
    /// Gradients of the state before the step that the backward pass has done; of the initial state
    /// at its end.
    d_hidden: Buffer<S>, // [B, H]
    d_cell: Buffer<S>,    // [B, H]
    /// W_hh transposed, so that the product at every step reads it row by row.
    weight_hh_turned: Buffer<S>, // [H, 4H]
}

/// True if the backward pass goes on to the gradients of the inputs, which training does not need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InputGradients {
    /// They are computed.
    Compute,
    /// They are left out, and no memory is taken for them.
    Skip,
}

impl<S: Scalar> Activations<S> {
    /// Room for `capacity` samples, booked on `scope`.
    pub(crate) fn new(scope: &Scope, sizes: Sizes, capacity: usize, inputs: InputGradients) -> Result<Self> {
        let Sizes { steps, features, hidden, layers, .. } = sizes;
        let between = if sizes.has_d_between() { steps * capacity * hidden } else { 0 };
        Ok(Activations {
            samples: 0,
            x: Buffer::zeros(scope, steps * capacity * features)?,
            layers: (0..layers).map(|_| LayerActivations::new(scope, sizes, capacity)).collect::<Result<_>>()?,
            normed: (0..sizes.norms()).map(|_| Normed::new(scope, sizes, capacity)).collect::<Result<_>>()?,
            dropped: Vec::new(),
            drops: false,
            d_between: Buffer::zeros(scope, between)?,
            d_x: match inputs {
                InputGradients::Compute => Some(Buffer::zeros(scope, steps * capacity * features)?),
                InputGradients::Skip => None,
            },
        })
    }

    /// Takes room for dropout in up to `capacity` samples.
    pub(crate) fn make_room_for_dropout(&mut self, scope: &Scope, sizes: Sizes, capacity: usize) -> Result<()> {
        let gaps = sizes.layers - 1;
        self.dropped = (0..gaps).map(|_| Dropped::new(scope, sizes, capacity)).collect::<Result<_>>()?;
        Ok(())
    }

    /// Takes B = `samples` windows [B, T, F], a zero initial state and no dropout.
    pub(crate) fn load<R: Scalar>(&mut self, sizes: Sizes, samples: usize, windows: &[R]) {
        let Sizes { steps, features, hidden, .. } = sizes;
        assert_eq!(windows.len(), samples * steps * features, "windows of [{samples}, {steps}, {features}]");
        self.samples = samples;
        self.drops = false;
        let x = self.x.as_mut_slice();
        for (b, window) in windows.chunks_exact(steps * features).enumerate() {
            for (t, bar) in window.chunks_exact(features).enumerate() {
                let row = &mut x[(t * samples + b) * features..][..features];
                row.iter_mut().zip(bar).for_each(|(to, from)| *to = S::from_f64(from.to_f64()));
            }
        }
        for layer in &mut self.layers {
            layer.samples = samples;
            layer.hidden.as_mut_slice()[..samples * hidden].fill(S::ZERO);
            layer.cell.as_mut_slice()[..samples * hidden].fill(S::ZERO);
        }
    }

    /// Drops outputs of the layers below the top, the windows being those that end at `ends`.
    pub(crate) fn set_dropout(&mut self, sizes: Sizes, mask: impl Fn(usize) -> Mask, ends: &[usize]) {
        assert_eq!(ends.len(), self.samples, "an end for each window");
        assert_eq!(self.dropped.len(), sizes.layers - 1, "a pass without room for dropout");
        self.drops = true;
        self.dropped.iter_mut().enumerate().for_each(|(l, dropped)| dropped.draw(sizes, mask(l), ends));
    }

    /// Replaces the zero initial state of layer `l` by `hidden` and `cell`, [B, H] each.
    pub(crate) fn set_initial_state(&mut self, l: usize, hidden: &[S], cell: &[S]) {
        self.layers[l].hidden.as_mut_slice()[..hidden.len()].copy_from_slice(hidden);
        self.layers[l].cell.as_mut_slice()[..cell.len()].copy_from_slice(cell);
    }

    /// The hidden and the cell state of layer `l` of one sample after step `t`, [H] each.
    pub(crate) fn state(&self, sizes: Sizes, l: usize, sample: usize, t: usize) -> [&[S]; 2] {
        let row = (t + 1) * self.samples + sample;
        let layer = &self.layers[l];
        [&layer.hidden, &layer.cell].map(|states| &states.as_slice()[row * sizes.hidden..][..sizes.hidden])
    }

    /// The hidden and the cell state of layer `l` after the last step, [B, H] each.
    pub(crate) fn last_state(&self, sizes: Sizes, l: usize) -> (&[S], &[S]) {
        let state = self.samples * sizes.hidden;
        let last = sizes.steps * state..(sizes.steps + 1) * state;
        (&self.layers[l].hidden.as_slice()[last.clone()], &self.layers[l].cell.as_slice()[last])
    }

    /// The top layer's outputs after every step, [T, B, H]: its hidden states, after their norm if
    /// there is one.
    pub(crate) fn sequence(&self, sizes: Sizes) -> &[S] {
        let top = self.layers.last().expect("an LSTM has a layer");
        self.normed.last().map_or(top.outputs(sizes), Normed::outputs)
    }

    /// The same and, for writing, their gradients, [T, B, H] both.
    pub(crate) fn sequence_and_gradient_mut(&mut self, sizes: Sizes) -> (&[S], &mut [S]) {
        let len = sizes.steps * self.samples * sizes.hidden;
        let top = self.layers.last().expect("an LSTM has a layer");
        let outputs = self.normed.last().map_or(top.outputs(sizes), Normed::outputs);
        (outputs, &mut self.d_between.as_mut_slice()[..len])
    }

    /// The top layer's output after the last step, [B, H].
    pub(crate) fn last_output(&self, sizes: Sizes) -> &[S] {
        &self.sequence(sizes)[(sizes.steps - 1) * self.samples * sizes.hidden..]
    }

    /// The gradient of that [B, H], to be set before the backward pass; there is none of the
    /// outputs after the other steps.
    pub(crate) fn d_last_output_mut(&mut self, sizes: Sizes) -> &mut [S] {
        let state = self.samples * sizes.hidden;
        match sizes.read {
            Read::LastStep => {
                let top = self.layers.last_mut().expect("an LSTM has a layer");
                &mut top.d_hidden.as_mut_slice()[..state]
            }
            Read::EveryStep => {
                let d = &mut self.d_between.as_mut_slice()[..sizes.steps * state];
                d.fill(S::ZERO);
                &mut d[(sizes.steps - 1) * state..]
            }
        }
    }

    /// Gradients of the initial hidden and cell state of layer `l`, [B, H] each, after the backward
    /// pass.
    pub(crate) fn d_initial_state(&self, sizes: Sizes, l: usize) -> (&[S], &[S]) {
        let state = ..self.samples * sizes.hidden;
        (&self.layers[l].d_hidden.as_slice()[state], &self.layers[l].d_cell.as_slice()[state])
    }

    /// Gradient of the inputs [T, B, F] after the backward pass, if it was asked for.
    pub(crate) fn d_x(&self, sizes: Sizes) -> Option<&[S]> {
        self.d_x.as_ref().map(|d_x| &d_x.as_slice()[..sizes.steps * self.samples * sizes.features])
    }
}

/// Layer below: its states, its outputs after their norm, and after dropout.
type Below<'a, S> = (Option<&'a LayerActivations<S>>, Option<&'a Normed<S>>, Option<&'a Dropped<S>>);

/// Input of a layer, [T, B, ..]: the windows, or the output of the layer below.
fn input<'a, S: Scalar>(sizes: Sizes, x: &'a [S], (below, normed, dropped): Below<'a, S>) -> &'a [S] {
    match (below, normed, dropped) {
        (None, ..) => x,
        (Some(_), _, Some(dropped)) => dropped.outputs(),
        (Some(_), Some(normed), None) => normed.outputs(),
        (Some(below), None, None) => below.outputs(sizes),
    }
}

impl<S: Scalar> LayerActivations<S> {
    fn new(scope: &Scope, Sizes { steps, hidden, .. }: Sizes, capacity: usize) -> Result<Self> {
        let state = capacity * hidden;
        Ok(LayerActivations {
            samples: 0,
            gates: Buffer::zeros(scope, steps * 4 * state)?,
            hidden: Buffer::zeros(scope, (steps + 1) * state)?,
            cell: Buffer::zeros(scope, (steps + 1) * state)?,
            cell_tanh: Buffer::zeros(scope, steps * state)?,
            d_hidden: Buffer::zeros(scope, state)?,
            d_cell: Buffer::zeros(scope, state)?,
            weight_hh_turned: Buffer::zeros(scope, 4 * hidden * hidden)?,
        })
    }

    /// The hidden state after every step, [T, B, H].
    fn outputs(&self, Sizes { steps, hidden, .. }: Sizes) -> &[S] {
        let state = self.samples * hidden;
        &self.hidden.as_slice()[state..(steps + 1) * state]
    }
}

/// The four gates i, f, g, o of one sample's row [4H].
fn gates_of_row<S>(row: &mut [S]) -> [&mut [S]; 4] {
    let hidden = row.len() / 4;
    let (input_forget, cell_output) = row.split_at_mut(2 * hidden);
    let (i, f) = input_forget.split_at_mut(hidden);
    let (g, o) = cell_output.split_at_mut(hidden);
    [i, f, g, o]
}
