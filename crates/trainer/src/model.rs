#![forbid(unsafe_code)]

use std::fmt;
use std::sync::Arc;

use megabatch_gpu_core::Scope;
use megabatch_order::random::{Stream, uniform};
use serde::{Deserialize, Serialize};

use crate::decoder::Decoder;
use crate::error::{Error, Result};
use crate::graph::{GraphConfig, Readout};
use crate::lstm::{Lstm, Sizes};
use crate::scalar::Scalar;
use crate::tensor::{Layout, TensorSet};
use crate::view::BatchView;

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

/// What makes the numbers out of a sample's windows that the rest of a model computes with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Encoder {
    /// One LSTM a timeframe: their last hidden states, side by side.
    #[default]
    Lstm,
    /// None: the features of each window's last bar as they are, side by side.
    LastBar,
}

/// The choices of a model that its samples leave open.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ModelConfig {
    /// What reads the windows. The three sizes below are those of its LSTMs, and mean nothing without them.
    #[serde(default)]
    pub encoder: Encoder,
    /// H: hidden units of every layer.
    pub hidden: usize,
    /// Layers of every timeframe's LSTM.
    pub layers: usize,
    /// Whether the LSTM has `bias_ih` and `bias_hh`. The head always has its bias.
    pub bias: bool,
    /// Attention over the graphs that samples are the nodes of, on top of their encodings.
    #[serde(default)]
    pub graph: Option<GraphConfig>,
    /// A: attributes of an edge that attention sees: those of the samples' graphs, or 0 for none of them.
    #[serde(default)]
    pub edge_attributes: usize,
    /// What is predicted where samples are the nodes of graphs ([`Samples::graphs`](crate::Samples::graphs)); none where they are not.
    /// With one, the graphs take the place of the samples in a run: in its lists, its batches and its order.
    #[serde(default)]
    pub readout: Option<Readout>,
}

impl Default for ModelConfig {
    fn default() -> Self {
        ModelConfig {
            encoder: Encoder::Lstm,
            hidden: 128,
            layers: 1,
            bias: true,
            graph: None,
            edge_attributes: 0,
            readout: None,
        }
    }
}

impl ModelConfig {
    /// Whether the samples are the nodes of graphs, which then take their place in a run.
    pub fn is_over_graphs(&self) -> bool {
        self.readout.is_some()
    }

    /// Refuses a model that has no states to be carried from bar to bar, or whose outputs are not those of one sample's states.
    pub(crate) fn check_carried_state(&self) -> Result<()> {
        if self.is_over_graphs() || self.encoder != Encoder::Lstm {
            let expected = "false for a model over graphs, and for one without an LSTM";
            return Err(Error::setting("training.carry_state", &true, expected));
        }
        Ok(())
    }
}

/// One LSTM a timeframe, their last hidden states side by side, and a linear head; where samples are the nodes of graphs, attention over
/// each graph between the two, and a readout where it is the graph that is predicted.
///
/// A description: the numbers live in [`TensorSet`]s with this model's [`layout`](Model::layout).
#[derive(Debug)]
pub struct Model {
    shape: SampleShape,
    config: ModelConfig,
    layout: Arc<Layout>,
    /// None for an encoder without parameters.
    lstms: Vec<Lstm>,
    decoder: Decoder,
}

impl Model {
    /// The model for samples of `shape`.
    ///
    /// # Errors
    /// [`Error::Setting`] when a size is 0 or a timeframe's name is not distinct, or is empty beside others, and for attention without a
    /// readout.
    pub fn new(shape: SampleShape, config: ModelConfig) -> Result<Self> {
        check(&shape, config)?;
        let mut layout = Layout::default();
        let lstm = |timeframe: &Timeframe| {
            let &Timeframe { ref name, steps, features } = timeframe;
            let ModelConfig { hidden, layers, bias, .. } = config;
            let prefix = if name.is_empty() { "lstm".to_owned() } else { format!("lstm.{name}") };
            Lstm::new(Sizes { steps, features, hidden, layers, bias }, &prefix, &mut layout)
        };
        let lstms: Vec<Lstm> = match config.encoder {
            Encoder::Lstm => shape.timeframes.iter().map(lstm).collect(),
            Encoder::LastBar => Vec::new(),
        };
        let width = match config.encoder {
            Encoder::Lstm => lstms.len() * config.hidden,
            Encoder::LastBar => shape.timeframes.iter().map(|timeframe| timeframe.features).sum(),
        };
        let decoder = Decoder::new(config, (width, shape.outputs), &mut layout);
        Ok(Model { shape, config, layout: Arc::new(layout), lstms, decoder })
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

    pub(crate) fn decoder(&self) -> &Decoder {
        &self.decoder
    }

    /// Numbers in the outputs for a batch.
    pub(crate) fn outputs_len(&self, batch: &BatchView<'_>) -> usize {
        let rows = match batch.graphs {
            Some(graphs) => graphs.samples().map(|nodes| self.decoder.rows(nodes.len())).sum(),
            None => batch.len(),
        };
        rows * self.shape.outputs
    }

    /// Parameters as PyTorch draws them by default: uniform in ±1/√H for the LSTM and in ±1/√D for the head; as PyTorch Geometric does for
    /// attention.
    ///
    /// Element `i` of tensor `name` is a function of (`seed`, `name`, `i`) alone.
    ///
    /// # Errors
    /// [`Error::Memory`] when the device has no room.
    pub fn initial_parameters<S: Scalar>(&self, scope: &Scope, seed: u64) -> Result<TensorSet<S>> {
        let mut parameters = TensorSet::zeros(scope, &self.layout)?;
        if let Some(attention) = self.decoder.attention() {
            attention.initial(seed, &mut parameters);
        }
        for (name, _) in self.layout.tensors().filter(|(name, _)| !name.starts_with("graph.")) {
            let fan = if name.starts_with("head.") { self.decoder.top() } else { self.config.hidden };
            let bound = 1.0 / (fan as f64).sqrt();
            let values = parameters.get_mut(name).expect("the parameters have this layout");
            for (index, value) in (0..).zip(values) {
                *value = S::from_f64(bound * (2.0 * uniform(Stream { seed, name }, index) - 1.0));
            }
        }
        Ok(parameters)
    }
}

fn check(shape: &SampleShape, config: ModelConfig) -> Result<()> {
    if let (Some(graph), None) = (config.graph, config.readout) {
        let expected = "none without a readout, which says what is predicted where samples are the nodes of graphs";
        return Err(Error::setting("model.graph", &format!("{:?}", graph.kind).to_lowercase(), expected));
    }
    config.graph.iter().try_for_each(GraphConfig::check)?;
    let of_lstms = |size: usize| if config.encoder == Encoder::Lstm { size } else { 1 };
    let sizes = [
        ("model.hidden", of_lstms(config.hidden)),
        ("model.layers", of_lstms(config.layers)),
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
        let config = ModelConfig { hidden: 5, layers: 2, ..ModelConfig::default() };
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
        let config = ModelConfig { hidden: 5, layers: 1, ..ModelConfig::default() };
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
        let config = ModelConfig { hidden: 16, layers: 1, ..ModelConfig::default() };
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
