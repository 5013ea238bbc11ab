#![forbid(unsafe_code)]

//! The plain form of the model: window by window, in plain loops and products.

use megabatch_gpu_core::Scope;

use crate::cpu::decoder::{Decoding, GraphShard};
use crate::cpu::pooling::PlainPooling;
use crate::cpu::step::{Capacity, Kept, Purpose};
use crate::error::Result;
use crate::graph::AttentionMemory;
use crate::model::dropout::Dropout;
use crate::model::scalar::Scalar;
use crate::model::tensor::TensorSet;
use crate::model::{Encoder, Model};
use crate::reference::lstm::{self, Activations, InputGradients, Lstm, Sizes};

/// The memory of one forward and backward pass, for up to a fixed number of samples.
///
/// Load windows with [`Pass::load`], run [`Model::forward`], set the outputs' gradient, run
/// [`Model::backward`].
#[derive(Debug)]
pub struct Pass<S: Scalar> {
    /// B now.
    samples: usize,
    capacity: usize,
    sizes: Vec<Sizes>,
    lstms: Vec<Activations<S>>,
    /// One a timeframe, for pooling by attention.
    poolings: Vec<PlainPooling<S>>,
    /// T and F of each timeframe, for an encoder that takes the last bars as they are.
    last_bars: Vec<[usize; 2]>,
    decoding: Decoding<S, AttentionMemory<S>>,
}

/// Purpose of a pass; dropout takes room of its own.
const PURPOSE: Purpose = Purpose::Training { dropout: false, runs: None, kept: Kept::Everything };

impl<S: Scalar> Pass<S> {
    /// Memory for up to `capacity` samples, booked on `scope`.
    ///
    /// # Errors
    /// [`Error::Memory`](crate::Error::Memory) when the device has no room.
    pub fn new(scope: &Scope, model: &Model, capacity: usize, inputs: InputGradients) -> Result<Self> {
        Self::with_room(scope, model, Capacity { samples: capacity, edges: 0, run: 1 }, inputs)
    }

    /// The same for a model over graphs: memory for a graph of up to `room`.
    pub(crate) fn with_room(scope: &Scope, model: &Model, room: Capacity, inputs: InputGradients) -> Result<Self> {
        let capacity = room.samples;
        let activations = |lstm: &Lstm| Activations::new(scope, lstm.sizes, capacity, inputs);
        let last_bars = match model.config().encoder {
            Encoder::Lstm => Vec::new(),
            Encoder::LastBar => model.shape().timeframes.iter().map(|tf| [tf.steps, tf.features]).collect(),
        };
        let pooling = |(of, lstm): (_, &Lstm)| PlainPooling::new(scope, of, lstm.sizes.steps, capacity);
        Ok(Pass {
            samples: 0,
            capacity,
            poolings: model.poolings().iter().zip(model.lstms()).map(pooling).collect::<Result<_>>()?,
            sizes: model.lstms().iter().map(|lstm| lstm.sizes).collect(),
            lstms: model.lstms().iter().map(activations).collect::<Result<_>>()?,
            last_bars,
            decoding: Decoding::new(scope, model.decoder(), room, PURPOSE)?,
        })
    }

    /// The pass with the memory for [`Pass::set_dropout`], booked on `scope`.
    ///
    /// # Errors
    /// [`Error::Memory`](crate::Error::Memory) when the device has no room.
    pub fn with_room_for_dropout(mut self, scope: &Scope) -> Result<Self> {
        for (activations, &sizes) in self.lstms.iter_mut().zip(&self.sizes) {
            activations.make_room_for_dropout(scope, sizes, self.capacity)?;
        }
        Ok(self)
    }

    /// Takes `samples` windows a timeframe, [B, T, F] each, to start from states of zero, without
    /// dropout.
    ///
    /// # Panics
    /// If there are more samples than the pass has room for, or the windows have other sizes than
    /// the model's.
    pub fn load<'a, R: Scalar>(&mut self, samples: usize, windows: impl ExactSizeIterator<Item = &'a [R]>) {
        assert!(samples <= self.capacity, "{samples} samples in a pass for {}", self.capacity);
        assert_eq!(windows.len(), self.lstms.len() + self.last_bars.len(), "windows of each timeframe");
        self.samples = samples;
        if self.lstms.is_empty() {
            return self.take_last_bars(samples, windows);
        }
        for ((activations, &sizes), windows) in self.lstms.iter_mut().zip(&self.sizes).zip(windows) {
            activations.load(sizes, samples, windows);
        }
    }

    fn take_last_bars<'a, R: Scalar>(&mut self, samples: usize, windows: impl Iterator<Item = &'a [R]>) {
        let encodings = self.decoding.encodings_mut(samples); // [B, D]
        let width: usize = self.last_bars.iter().map(|[_, features]| features).sum();
        let mut before = 0;
        for (&[steps, features], windows) in self.last_bars.iter().zip(windows) {
            assert_eq!(windows.len(), samples * steps * features, "windows of [{samples}, {steps}, {features}]");
            let rows = encodings.chunks_exact_mut(width).zip(windows.chunks_exact(steps * features));
            for (row, window) in rows {
                let last = window[(steps - 1) * features..].iter();
                row[before..].iter_mut().zip(last).for_each(|(to, from)| *to = S::from_f64(from.to_f64()));
            }
            before += features;
        }
    }

    /// Drops outputs of the layers below the top from the windows loaded now, whose ends `[B]` in
    /// each timeframe are `ends`; see [`Mask::factor`](crate::Mask::factor).
    ///
    /// # Panics
    /// If the pass has no room for it, or there is not an end for each window.
    pub fn set_dropout<'a>(
        &mut self,
        model: &Model,
        dropout: Dropout,
        ends: impl ExactSizeIterator<Item = &'a [usize]>,
    ) {
        assert_eq!(ends.len(), self.lstms.len(), "ends of the windows of each timeframe");
        for ((k, activations), ends) in self.lstms.iter_mut().enumerate().zip(ends) {
            let timeframe = &model.shape().timeframes[k].name;
            activations.set_dropout(self.sizes[k], |layer| dropout.mask(timeframe, layer), ends);
        }
    }

    /// Starts layer `layer` of timeframe `timeframe` from `hidden` and `cell`, [B, H] each, instead
    /// of zero.
    ///
    /// # Panics
    /// If there is no such layer or the states are larger.
    pub fn set_initial_state(&mut self, timeframe: usize, layer: usize, hidden: &[S], cell: &[S]) {
        assert_eq!(hidden.len(), self.samples * self.sizes[timeframe].hidden, "an initial state [B, H]");
        assert_eq!(cell.len(), hidden.len(), "an initial state [B, H]");
        self.lstms[timeframe].set_initial_state(layer, hidden, cell);
    }

    /// The model's outputs [B, K].
    pub fn outputs(&self) -> &[S] {
        self.decoding.outputs()
    }

    /// The outputs and, for writing, their gradient, [B, K] both.
    pub fn outputs_and_gradient_mut(&mut self) -> (&[S], &mut [S]) {
        self.decoding.outputs_and_gradient_mut()
    }

    /// Hidden and cell state of a layer after the last step, [B, H] each.
    pub fn last_state(&self, timeframe: usize, layer: usize) -> (&[S], &[S]) {
        self.lstms[timeframe].last_state(self.sizes[timeframe], layer)
    }

    /// The top layer's hidden state after every step, after its norm if there is one, [T, B, H].
    pub fn sequence(&self, timeframe: usize) -> &[S] {
        self.lstms[timeframe].sequence(self.sizes[timeframe])
    }

    /// The weights [heads, T] with which attention pooled the states of one sample in one
    /// timeframe, after [`Model::forward`].
    ///
    /// # Panics
    /// If the model does not pool by attention, or there is no such timeframe or sample.
    pub fn pooling_weights(&self, model: &Model, timeframe: usize, sample: usize) -> &[S] {
        assert!(sample < self.samples, "sample {sample} of {}", self.samples);
        self.poolings[timeframe].weights(&model.poolings()[timeframe], sample)
    }

    /// The weights [heads, n, n] with which the vectors of the n timeframes of one sample looked at
    /// each other in fusion by attention, after
    /// [`Model::forward`]: a row a timeframe that looks.
    ///
    /// # Panics
    /// If the model does not fuse by attention, or there is no such sample.
    pub fn fusion_weights(&self, model: &Model, sample: usize) -> &[S] {
        assert!(sample < self.samples, "sample {sample} of {}", self.samples);
        let weights = self.decoding.fusion_weights(model.decoder(), sample);
        assert!(!weights.is_empty(), "the model fuses by attention");
        weights
    }

    /// Gradient of a timeframe's windows, [T, B, F], if the pass was made to compute it.
    pub fn input_gradient(&self, timeframe: usize) -> Option<&[S]> {
        self.lstms[timeframe].d_x(self.sizes[timeframe])
    }

    /// Gradients of a layer's initial hidden and cell state, [B, H] each.
    pub fn initial_state_gradient(&self, timeframe: usize, layer: usize) -> (&[S], &[S]) {
        self.lstms[timeframe].d_initial_state(self.sizes[timeframe], layer)
    }
}

impl Model {
    /// Computes the outputs of the windows loaded in `pass`, for a model without graphs.
    pub fn forward<S: Scalar>(&self, parameters: &TensorSet<S>, pass: &mut Pass<S>) {
        pass.forward(self, parameters, None);
    }

    /// Goes back from the outputs' gradient, set by [`Pass::outputs_and_gradient_mut`], after
    /// [`Model::forward`]; adds the parameters' gradients to `gradients`.
    pub fn backward<S: Scalar>(&self, parameters: &TensorSet<S>, pass: &mut Pass<S>, gradients: &mut TensorSet<S>) {
        pass.backward(self, parameters, None, gradients);
    }
}

impl<S: Scalar> Pass<S> {
    /// Computes the outputs of the windows loaded, which are the nodes of `graph` for a model over
    /// graphs.
    pub(crate) fn forward(&mut self, model: &Model, parameters: &TensorSet<S>, graph: Option<GraphShard<'_>>) {
        let (hidden, width) = (model.config().hidden, model.decoder().width());
        for (k, (lstm, activations)) in model.lstms().iter().zip(&mut self.lstms).enumerate() {
            lstm::forward(lstm, parameters, activations);
            let read = match (model.poolings().get(k), self.poolings.get_mut(k)) {
                (Some(pooling), Some(memory)) => memory.forward(pooling, parameters, activations.sequence(lstm.sizes)),
                _ => activations.last_output(lstm.sizes),
            };
            let encodings = self.decoding.encodings_mut(self.samples);
            for (row, read) in encodings.chunks_exact_mut(width).zip(read.chunks_exact(hidden)) {
                row[k * hidden..][..hidden].copy_from_slice(read);
            }
        }
        self.decoding.forward(model.decoder(), parameters, None, graph);
    }

    /// Goes back from the outputs' gradient; adds the parameters' gradients to `gradients`.
    pub(crate) fn backward(
        &mut self,
        model: &Model,
        parameters: &TensorSet<S>,
        graph: Option<GraphShard<'_>>,
        gradients: &mut TensorSet<S>,
    ) {
        let (hidden, width) = (model.config().hidden, model.decoder().width());
        self.decoding.backward(model.decoder(), parameters, None, graph, gradients);
        for (k, (lstm, activations)) in model.lstms().iter().zip(&mut self.lstms).enumerate() {
            let d_read = match self.poolings.get_mut(k) {
                Some(memory) => memory.d_pooled_mut(),
                None => activations.d_last_output_mut(lstm.sizes),
            };
            for (d_read, row) in d_read.chunks_exact_mut(hidden).zip(self.decoding.d_encodings().chunks_exact(width)) {
                d_read.copy_from_slice(&row[k * hidden..][..hidden]);
            }
            if let (Some(pooling), Some(memory)) = (model.poolings().get(k), self.poolings.get_mut(k)) {
                let states = activations.sequence_and_gradient_mut(lstm.sizes);
                memory.backward(pooling, parameters, states.0, states.1, gradients);
            }
            lstm::backward(lstm, parameters, activations, gradients);
        }
    }
}

/// Carried states, `[layers, 2, H]` a window: the hidden and then the cell state of each layer.
impl Pass<f32> {
    /// Starts each window of timeframe `k` from its state, or from zero.
    pub(crate) fn set_initial_states(&mut self, k: usize, states: &[Option<&[f32]>]) {
        let Sizes { hidden, layers, .. } = self.sizes[k];
        let zero = vec![0.0; 2 * layers * hidden];
        for layer in 0..layers {
            let [hidden_states, cell_states] = [0, 1].map(|half| {
                let own = (2 * layer + half) * hidden..(2 * layer + half + 1) * hidden;
                let state = |state: &Option<&[f32]>| state.unwrap_or(&zero)[own.clone()].to_vec();
                states.iter().flat_map(state).collect::<Vec<f32>>()
            });
            self.set_initial_state(k, layer, &hidden_states, &cell_states);
        }
    }

    /// Writes the state of one sample in timeframe `k` after step `t`.
    pub(crate) fn read_state(&self, k: usize, sample: usize, t: usize, to: &mut [f32]) {
        let sizes = self.sizes[k];
        for (layer, to) in to.chunks_exact_mut(2 * sizes.hidden).enumerate() {
            let halves = to.chunks_exact_mut(sizes.hidden);
            let state = self.lstms[k].state(sizes, layer, sample, t);
            halves.zip(state).for_each(|(to, from)| to.copy_from_slice(from));
        }
    }

    /// Writes the cell and the hidden state [H] of layer `l` of one sample in timeframe `k` after
    /// step `t`.
    pub(crate) fn read_layer(
        &self,
        k: usize,
        l: usize,
        sample: usize,
        t: usize,
        cell_to: &mut [f32],
        hidden_to: &mut [f32],
    ) {
        let [hidden, cell] = self.lstms[k].state(self.sizes[k], l, sample, t);
        hidden_to.copy_from_slice(hidden);
        cell_to.copy_from_slice(cell);
    }

    /// The memory behind the encoder.
    pub(crate) fn decoding(&self) -> &Decoding<f32, AttentionMemory<f32>> {
        &self.decoding
    }

    /// Writes the top layer's hidden state of one sample in timeframe `k` after step `t`.
    pub(crate) fn read_top(&self, k: usize, sample: usize, t: usize, to: &mut [f32]) {
        let sizes = self.sizes[k];
        let [hidden, _] = self.lstms[k].state(sizes, sizes.layers - 1, sample, t);
        to.copy_from_slice(hidden);
    }

    /// Goes on from `state` of timeframe `k` over `bars` [n, F], at most T of them; `state` is then
    /// that after them.
    pub(crate) fn advance(
        &mut self,
        model: &Model,
        parameters: &TensorSet<f32>,
        k: usize,
        bars: &[f32],
        state: &mut [f32],
    ) {
        let lstm = &model.lstms()[k];
        let sizes = Sizes { steps: bars.len() / lstm.sizes.features, ..lstm.sizes };
        self.samples = 1;
        self.lstms[k].load(sizes, 1, bars);
        self.set_initial_states(k, &[Some(state)]);
        lstm::forward(&Lstm { sizes, layers: lstm.layers.clone() }, parameters, &mut self.lstms[k]);
        self.read_state(k, 0, sizes.steps - 1, state);
    }
}
