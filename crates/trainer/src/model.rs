#![forbid(unsafe_code)]

use std::fmt;
use std::sync::Arc;

use megabatch_gpu_core::{Buffer, Scope};
use serde::{Deserialize, Serialize};

use crate::dropout::Dropout;
use crate::error::{Error, Result};
use crate::head::Head;
use crate::lstm::{self, Activations, InputGradients, Lstm, Sizes};
use crate::random::{Stream, uniform};
use crate::scalar::Scalar;
use crate::tensor::{Layout, TensorSet};

/// One timeframe of the samples.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timeframe {
    /// Its name, such as `M1`; empty for the only timeframe of data that does not name it.
    pub name: String,
    /// T: bars in a window.
    pub steps: usize,
    /// F: features of a bar.
    pub features: usize,
}

/// What a sample is made of. The order of the timeframes is that of the head's input; it is the caller's to fix
/// (shortest duration first, everywhere in megabatch).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SampleShape {
    /// The windows of a sample.
    pub timeframes: Vec<Timeframe>,
    /// K: targets of a sample.
    pub outputs: usize,
}

impl fmt::Display for SampleShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Timeframe { name, steps, features } in &self.timeframes {
            let name = if name.is_empty() { "features" } else { name };
            write!(f, "{name} [{steps}, {features}], ")?;
        }
        write!(f, "targets [{}]", self.outputs)
    }
}

/// The choices of a model that its samples leave open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelConfig {
    /// H: hidden units of every layer.
    pub hidden: usize,
    /// Layers of every timeframe's LSTM.
    pub layers: usize,
    /// Whether the LSTM has `bias_ih` and `bias_hh`. The head always has its bias.
    pub bias: bool,
}

impl Default for ModelConfig {
    fn default() -> Self {
        ModelConfig { hidden: 128, layers: 1, bias: true }
    }
}

/// One LSTM a timeframe, their last hidden states side by side, and a linear head.
///
/// A description: the numbers live in [`TensorSet`]s with this model's [`layout`](Model::layout).
#[derive(Debug)]
pub struct Model {
    shape: SampleShape,
    config: ModelConfig,
    layout: Arc<Layout>,
    lstms: Vec<Lstm>,
    head: Head,
}

impl Model {
    /// The model for samples of `shape`.
    ///
    /// # Errors
    /// [`Error::Setting`] when a size is 0 or a timeframe's name is not distinct, or is empty beside others.
    pub fn new(shape: SampleShape, config: ModelConfig) -> Result<Self> {
        check(&shape, config)?;
        let mut layout = Layout::default();
        let lstm = |timeframe: &Timeframe| {
            let &Timeframe { ref name, steps, features } = timeframe;
            let ModelConfig { hidden, layers, bias } = config;
            let prefix = if name.is_empty() { "lstm".to_owned() } else { format!("lstm.{name}") };
            Lstm::new(Sizes { steps, features, hidden, layers, bias }, &prefix, &mut layout)
        };
        let lstms: Vec<Lstm> = shape.timeframes.iter().map(lstm).collect();
        let head = Head::new(lstms.len() * config.hidden, shape.outputs, &mut layout);
        Ok(Model { shape, config, layout: Arc::new(layout), lstms, head })
    }

    /// What a sample is made of.
    pub fn shape(&self) -> &SampleShape {
        &self.shape
    }

    /// The sizes that samples leave open.
    pub fn config(&self) -> ModelConfig {
        self.config
    }

    /// Names and shapes of the parameters, PyTorch's: `lstm.<TF>.weight_ih_l0` [4H, F], … , `head.weight` [K, D], `head.bias`.
    pub fn layout(&self) -> &Arc<Layout> {
        &self.layout
    }

    pub(crate) fn lstms(&self) -> &[Lstm] {
        &self.lstms
    }

    pub(crate) fn head(&self) -> &Head {
        &self.head
    }

    /// Parameters as PyTorch draws them by default: uniform in ±1/√H for the LSTM and in ±1/√D for the head.
    ///
    /// Element `i` of tensor `name` is a function of (`seed`, `name`, `i`) alone.
    ///
    /// # Errors
    /// [`Error::Memory`] when the device has no room.
    pub fn initial_parameters<S: Scalar>(&self, scope: &Scope, seed: u64) -> Result<TensorSet<S>> {
        let mut parameters = TensorSet::zeros(scope, &self.layout)?;
        let joined = self.config.hidden * self.lstms.len();
        for (name, _) in self.layout.tensors() {
            let fan = if name.starts_with("head.") { joined } else { self.config.hidden };
            let bound = 1.0 / (fan as f64).sqrt();
            let values = parameters.get_mut(name).expect("the parameters have this layout");
            for (index, value) in (0..).zip(values) {
                *value = S::from_f64(bound * (2.0 * uniform(Stream { seed, name }, index) - 1.0));
            }
        }
        Ok(parameters)
    }

    /// Computes the outputs of the windows loaded in `pass`.
    pub fn forward<S: Scalar>(&self, parameters: &TensorSet<S>, pass: &mut Pass<S>) {
        let (hidden, width) = (self.config.hidden, self.lstms.len() * self.config.hidden);
        for (k, (lstm, activations)) in self.lstms.iter().zip(&mut pass.lstms).enumerate() {
            lstm::forward(lstm, parameters, activations);
            let (last, _) = activations.last_state(lstm.sizes, self.config.layers - 1); // [B, H]
            for (row, last) in pass.joined.as_mut_slice().chunks_exact_mut(width).zip(last.chunks_exact(hidden)) {
                row[k * hidden..][..hidden].copy_from_slice(last);
            }
        }
        let joined = &pass.joined.as_slice()[..pass.samples * width]; // [B, D]
        let outputs = &mut pass.outputs.as_mut_slice()[..pass.samples * self.shape.outputs]; // [B, K]
        self.head.forward(parameters, joined, outputs);
    }

    /// Goes back from the outputs' gradient, set by [`Pass::outputs_and_gradient_mut`], after [`Model::forward`]; adds the
    /// parameters' gradients to `gradients`.
    pub fn backward<S: Scalar>(&self, parameters: &TensorSet<S>, pass: &mut Pass<S>, gradients: &mut TensorSet<S>) {
        let (hidden, width) = (self.config.hidden, self.lstms.len() * self.config.hidden);
        let joined = &pass.joined.as_slice()[..pass.samples * width];
        let d_outputs = &pass.d_outputs.as_slice()[..pass.samples * self.shape.outputs];
        let d_joined = &mut pass.d_joined.as_mut_slice()[..pass.samples * width];
        self.head.backward(parameters, (joined, d_outputs), d_joined, gradients);
        for (k, (lstm, activations)) in self.lstms.iter().zip(&mut pass.lstms).enumerate() {
            let d_last = activations.d_last_hidden_mut(lstm.sizes);
            for (d_last, row) in d_last.chunks_exact_mut(hidden).zip(d_joined.chunks_exact(width)) {
                d_last.copy_from_slice(&row[k * hidden..][..hidden]);
            }
            lstm::backward(lstm, parameters, activations, gradients);
        }
    }
}

fn check(shape: &SampleShape, config: ModelConfig) -> Result<()> {
    let sizes = [
        ("model.hidden", config.hidden),
        ("model.layers", config.layers),
        ("the number of timeframes", shape.timeframes.len()),
        ("the number of targets", shape.outputs),
    ];
    let windows = shape.timeframes.iter().flat_map(|tf| [("the window's length", tf.steps), ("features", tf.features)]);
    if let Some((setting, _)) = sizes.into_iter().chain(windows).find(|&(_, size)| size == 0) {
        return Err(Error::setting(setting, &0, "1 or more"));
    }
    for (k, Timeframe { name, .. }) in shape.timeframes.iter().enumerate() {
        let repeated = shape.timeframes[..k].iter().any(|earlier| earlier.name == *name);
        if repeated || (name.is_empty() && shape.timeframes.len() > 1) {
            return Err(Error::setting("a timeframe's name", &format!("`{name}`"), "a name of its own"));
        }
    }
    Ok(())
}

/// The memory of one forward and backward pass, for up to a fixed number of samples.
///
/// Load windows with [`Pass::load`], run [`Model::forward`], set the outputs' gradient, run [`Model::backward`].
#[derive(Debug)]
pub struct Pass<S: Scalar> {
    /// B now.
    samples: usize,
    capacity: usize,
    sizes: Vec<Sizes>,
    lstms: Vec<Activations<S>>,
    joined: Buffer<S>,    // [B, D]
    outputs: Buffer<S>,   // [B, K]
    d_outputs: Buffer<S>, // [B, K]
    d_joined: Buffer<S>,  // [B, D]
}

impl<S: Scalar> Pass<S> {
    /// Memory for up to `capacity` samples, booked on `scope`.
    ///
    /// # Errors
    /// [`Error::Memory`] when the device has no room.
    pub fn new(scope: &Scope, model: &Model, capacity: usize, inputs: InputGradients) -> Result<Self> {
        let (width, outputs) = (model.lstms.len() * model.config.hidden, model.shape.outputs);
        let activations = |lstm: &Lstm| Activations::new(scope, lstm.sizes, capacity, inputs);
        Ok(Pass {
            samples: 0,
            capacity,
            sizes: model.lstms.iter().map(|lstm| lstm.sizes).collect(),
            lstms: model.lstms.iter().map(activations).collect::<Result<_>>()?,
            joined: Buffer::zeros(scope, capacity * width)?,
            outputs: Buffer::zeros(scope, capacity * outputs)?,
            d_outputs: Buffer::zeros(scope, capacity * outputs)?,
            d_joined: Buffer::zeros(scope, capacity * width)?,
        })
    }

    /// The pass with the memory for [`Pass::set_dropout`], booked on `scope`.
    ///
    /// # Errors
    /// [`Error::Memory`] when the device has no room.
    pub fn with_room_for_dropout(mut self, scope: &Scope) -> Result<Self> {
        for (activations, &sizes) in self.lstms.iter_mut().zip(&self.sizes) {
            activations.make_room_for_dropout(scope, sizes, self.capacity)?;
        }
        Ok(self)
    }

    /// Takes `samples` windows a timeframe, [B, T, F] each, to start from states of zero, without dropout.
    ///
    /// # Panics
    /// If there are more samples than the pass has room for, or the windows have other sizes than the model's.
    pub fn load<'a, R: Scalar>(&mut self, samples: usize, windows: impl ExactSizeIterator<Item = &'a [R]>) {
        assert!(samples <= self.capacity, "{samples} samples in a pass for {}", self.capacity);
        assert_eq!(windows.len(), self.lstms.len(), "windows of each timeframe");
        self.samples = samples;
        for ((activations, &sizes), windows) in self.lstms.iter_mut().zip(&self.sizes).zip(windows) {
            activations.load(sizes, samples, windows);
        }
    }

    /// Drops outputs of the layers below the top from the windows loaded now, whose ends [B] in each timeframe are `ends`; see
    /// [`Mask::factor`](crate::Mask::factor).
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
            let timeframe = &model.shape.timeframes[k].name;
            activations.set_dropout(self.sizes[k], |layer| dropout.mask(timeframe, layer), ends);
        }
    }

    /// Starts layer `layer` of timeframe `timeframe` from `hidden` and `cell`, [B, H] each, instead of zero.
    ///
    /// # Panics
    /// If there is no such layer or the states are larger.
    pub fn set_initial_state(&mut self, timeframe: usize, layer: usize, (hidden, cell): (&[S], &[S])) {
        assert_eq!(hidden.len(), self.samples * self.sizes[timeframe].hidden, "an initial state [B, H]");
        assert_eq!(cell.len(), hidden.len(), "an initial state [B, H]");
        self.lstms[timeframe].set_initial_state(layer, hidden, cell);
    }

    /// The model's outputs [B, K].
    pub fn outputs(&self) -> &[S] {
        &self.outputs.as_slice()[..self.samples * (self.outputs.len() / self.capacity)]
    }

    /// The outputs and, for writing, their gradient, [B, K] both.
    pub fn outputs_and_gradient_mut(&mut self) -> (&[S], &mut [S]) {
        let len = self.samples * (self.outputs.len() / self.capacity);
        (&self.outputs.as_slice()[..len], &mut self.d_outputs.as_mut_slice()[..len])
    }

    /// Hidden and cell state of a layer after the last step, [B, H] each.
    pub fn last_state(&self, timeframe: usize, layer: usize) -> (&[S], &[S]) {
        self.lstms[timeframe].last_state(self.sizes[timeframe], layer)
    }

    /// The top layer's hidden state after every step, [T, B, H].
    pub fn sequence(&self, timeframe: usize) -> &[S] {
        self.lstms[timeframe].sequence(self.sizes[timeframe])
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
            self.set_initial_state(k, layer, (&hidden_states, &cell_states));
        }
    }

    /// Writes the state of one sample in timeframe `k` after step `t`.
    pub(crate) fn read_state(&self, k: usize, (sample, t): (usize, usize), to: &mut [f32]) {
        let sizes = self.sizes[k];
        for (layer, to) in to.chunks_exact_mut(2 * sizes.hidden).enumerate() {
            let halves = to.chunks_exact_mut(sizes.hidden);
            let state = self.lstms[k].state(sizes, layer, (sample, t));
            halves.zip(state).for_each(|(to, from)| to.copy_from_slice(from));
        }
    }

    /// Goes on from `state` of timeframe `k` over `bars` [n, F], at most T of them; `state` is then that after them.
    pub(crate) fn advance(
        &mut self,
        (model, parameters): (&Model, &TensorSet<f32>),
        (k, bars): (usize, &[f32]),
        state: &mut [f32],
    ) {
        let lstm = &model.lstms[k];
        let sizes = Sizes { steps: bars.len() / lstm.sizes.features, ..lstm.sizes };
        self.samples = 1;
        self.lstms[k].load(sizes, 1, bars);
        self.set_initial_states(k, &[Some(state)]);
        lstm::forward(&Lstm { sizes, layers: lstm.layers.clone() }, parameters, &mut self.lstms[k]);
        self.read_state(k, (0, sizes.steps - 1), state);
    }
}

#[cfg(test)]
mod tests {
    use megabatch_gpu_core::Device;

    use super::*;

    fn shape(names: &[&str]) -> SampleShape {
        let timeframe = |name: &&str| Timeframe { name: (*name).to_owned(), steps: 2, features: 3 };
        SampleShape { timeframes: names.iter().map(timeframe).collect(), outputs: 2 }
    }

    #[test]
    fn parameters_have_pytorch_names_and_shapes() {
        let config = ModelConfig { hidden: 5, layers: 2, bias: true };
        let model = Model::new(shape(&["M1", "H1"]), config).unwrap();
        let tensors: Vec<_> = model.layout().tensors().map(|(name, shape)| format!("{name} {shape:?}")).collect();
        let lstm = |tf: &str| {
            let layer = |l: usize, width: usize| {
                [
                    format!("lstm.{tf}.weight_ih_l{l} [20, {width}]"),
                    format!("lstm.{tf}.weight_hh_l{l} [20, 5]"),
                    format!("lstm.{tf}.bias_ih_l{l} [20]"),
                    format!("lstm.{tf}.bias_hh_l{l} [20]"),
                ]
            };
            [layer(0, 3), layer(1, 5)].concat()
        };
        let head = ["head.weight [2, 10]", "head.bias [2]"].map(str::to_owned).to_vec();
        assert_eq!(tensors, [lstm("M1"), lstm("H1"), head].concat());

        let unnamed = Model::new(shape(&[""]), ModelConfig { bias: false, ..config }).unwrap();
        let first = unnamed.layout().tensors().map(|(name, _)| name.to_owned()).next();
        assert_eq!(first.as_deref(), Some("lstm.weight_ih_l0"));
    }

    #[test]
    fn sizes_of_zero_and_names_given_twice_are_refused() {
        let config = ModelConfig { hidden: 5, layers: 1, bias: true };
        for (names, config, what) in [
            (&["M1"][..], ModelConfig { hidden: 0, ..config }, "model.hidden is 0"),
            (&["M1"], ModelConfig { layers: 0, ..config }, "model.layers is 0"),
            (&[], config, "the number of timeframes is 0"),
            (&["M1", "M1"], config, "a timeframe's name is `M1`"),
            (&["M1", ""], config, "a timeframe's name is ``"),
        ] {
            let message = Model::new(shape(names), config).unwrap_err().to_string();
            assert!(message.starts_with(what), "{message}");
        }
    }

    #[test]
    fn initial_parameters_fill_their_interval_and_depend_on_nothing_else() {
        let scope = Device::cpu().scope("test");
        let config = ModelConfig { hidden: 16, layers: 1, bias: true };
        let draw = |names: &[&str], seed| {
            let model = Model::new(shape(names), config).unwrap();
            model.initial_parameters::<f64>(&scope, seed).unwrap()
        };
        let (two, one) = (draw(&["M1", "H1"], 7), draw(&["H1"], 7));
        assert_eq!(two.get("lstm.H1.weight_hh_l0"), one.get("lstm.H1.weight_hh_l0"));
        assert_ne!(two.values(), draw(&["M1", "H1"], 8).values());
        for (set, name, bound) in [(&two, "lstm.M1.weight_hh_l0", 0.25), (&two, "head.weight", 1.0 / 32f64.sqrt())] {
            let largest = set.get(name).unwrap().iter().fold(0.0, |m: f64, x| m.max(x.abs()));
            assert!(largest <= bound && largest > 0.9 * bound, "{name}: {largest} of {bound}");
        }
    }
}
