//! Descriptions of models: configuration, shapes, parameters by name, initial values. Nothing is
//! computed here.

mod cell;
pub mod decoder;
mod dropout;
pub mod fusion;
mod gradient_groups;
pub mod graph;
pub mod head;
mod initial;
pub mod norm;
pub mod pooling;
mod readout;
pub mod recurrent;
mod tensor;
mod weights;

pub use cell::Cell;
pub use dropout::{Dropout, Mask, StepDropout, StepSeed, check_rate};
pub use fusion::Fusion;
pub use graph::{AttentionKind, GraphActivation, GraphAttention, GraphConfig, GraphOutput};
pub use pooling::Pooling;
pub use readout::Readout;
pub use tensor::{Layout, Moments, NamedTensor, Slot, TensorSet};
pub use weights::{TensorFile, encode, load_weights, save_weights};

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use decoder::Decoder;
use pooling::{AttentionPooling, check_heads};
use recurrent::{Read, RecurrentLayers, RecurrentSizes};

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

/// Shape of a sample. The order of the timeframes is that of the head's input; it is the caller's
/// to fix (shortest duration first, everywhere in megabatch).
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

impl SampleShape {
    /// T·F of the k-th timeframe.
    pub fn window_len(&self, k: usize) -> usize {
        self.timeframes[k].steps * self.timeframes[k].features
    }
}

/// Encoder of a sample's windows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Encoder {
    /// Recurrent layers for each timeframe: their last hidden states, side by side.
    #[default]
    #[serde(rename = "lstm")]
    Recurrent,
    /// None: the features of each window's last bar as they are, side by side.
    LastBar,
}

impl Encoder {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Encoder::Recurrent => "lstm",
            Encoder::LastBar => "none",
        }
    }
}

/// The choices of a model that its samples leave open.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ModelConfig {
    /// Encoder of the windows. The three sizes below are those of its layers, and mean nothing
    /// without them.
    #[serde(default)]
    pub encoder: Encoder,
    /// Cell of the encoder's layers.
    #[serde(default)]
    pub cell: Cell,
    /// H: hidden units of every layer.
    pub hidden: usize,
    /// Recurrent layers of every timeframe.
    pub layers: usize,
    /// True if the layers have `bias_ih` and `bias_hh`. The head always has its bias.
    pub bias: bool,
    /// True if the outputs of every recurrent layer go through a norm, torch.nn.LayerNorm(H): after
    /// the recurrence, which goes on from the states before it, and before dropout.
    #[serde(default)]
    pub layer_norm: bool,
    /// Pooling of the hidden states of a window into one vector.
    #[serde(default)]
    pub pooling: Pooling,
    /// Fusion of the timeframes' vectors.
    #[serde(default)]
    pub fusion: Fusion,
    /// Attention over the graphs that samples are the nodes of, on top of their encodings.
    #[serde(default)]
    pub graph: Option<GraphConfig>,
    /// A: attributes of an edge that attention sees: those of the samples' graphs, or 0 for none of
    /// them.
    #[serde(default, rename = "edge_attributes")]
    pub graph_edge_attributes: usize,
    /// Level at which a model predicts whose samples are the nodes of graphs; none where they are
    /// not. With one, the graphs take the place of the samples in a run: in its lists, its batches
    /// and its order.
    #[serde(default)]
    pub readout: Option<Readout>,
    /// M: outputs for each target, side by side: as many as the loss compares with it, see
    /// [`Loss::outputs_per_target`](crate::loss::Loss::outputs_per_target). A trainer takes this
    /// from its loss.
    #[serde(default = "one")]
    pub outputs_per_target: usize,
    /// Outputs of a sample, where targets have different numbers of them, as tasks may
    /// ([`Loss::groups`](crate::loss::Loss::groups)).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outputs: Option<usize>,
}

fn one() -> usize {
    1
}

impl Default for ModelConfig {
    fn default() -> Self {
        ModelConfig {
            encoder: Encoder::Recurrent,
            cell: Cell::Lstm,
            hidden: 128,
            layers: 1,
            bias: true,
            layer_norm: false,
            pooling: Pooling::Last,
            fusion: Fusion::Concat,
            graph: None,
            graph_edge_attributes: 0,
            readout: None,
            outputs_per_target: 1,
            outputs: None,
        }
    }
}

impl ModelConfig {
    /// Outputs for a sample of so many targets.
    pub fn outputs_of(&self, targets: usize) -> usize {
        self.outputs.unwrap_or(targets * self.outputs_per_target)
    }

    /// Numbers in the state of all layers of one timeframe, `[layers, S, H]`: the hidden state of
    /// each layer, then its cell state if it has one.
    pub fn state_len(&self) -> usize {
        self.layers * self.cell.states() * self.hidden
    }

    /// True if the samples are the nodes of graphs, which then take their place in a run.
    pub fn is_over_graphs(&self) -> bool {
        self.readout.is_some()
    }

    /// Which outputs of the top layer give a gradient back. A norm turns gradients at every step
    /// alike.
    pub(crate) fn read(&self) -> Read {
        if self.pooling == Pooling::Last && !self.layer_norm { Read::LastStep } else { Read::EveryStep }
    }

    /// Refuses a model that has no states to be carried from bar to bar, or whose outputs are not
    /// those of one sample's states.
    pub fn check_carried_state(&self) -> Result<()> {
        if self.is_over_graphs() || self.encoder != Encoder::Recurrent {
            let expected = "false for a model over graphs, and for one without an LSTM";
            return Err(Error::setting("carry_state", &true, expected));
        }
        Ok(())
    }
}

/// Recurrent layers for each timeframe, their last hidden states, or what attention makes of all of
/// them, side by side or fused by attention, and a linear head; where samples are the nodes of
/// graphs, attention over each graph between the two, and a readout where it is the graph that is
/// predicted.
///
/// A description: the numbers live in [`TensorSet`]s with this model's
/// [`layout`](Model::layout).
#[derive(Debug)]
pub struct Model {
    shape: SampleShape,
    config: ModelConfig,
    layout: Arc<Layout>,
    /// One a timeframe; none for an encoder without parameters.
    recurrent_layers: Vec<RecurrentLayers>,
    /// One a timeframe, for pooling by attention.
    poolings: Vec<AttentionPooling>,
    decoder: Decoder,
}

impl Model {
    /// The model for samples of `shape`.
    ///
    /// # Errors
    /// [`Error::Setting`] when a size is 0 or a timeframe's name is not distinct, or is empty
    /// beside others, and for attention without a readout.
    pub fn new(shape: SampleShape, config: ModelConfig) -> Result<Self> {
        check(&shape, config)?;
        let mut layout = Layout::default();
        let layers_of_timeframe = |timeframe: &Timeframe| {
            let &Timeframe { ref name, steps, features } = timeframe;
            let ModelConfig { cell, hidden, layers, bias, layer_norm: norm, .. } = config;
            let read = config.read();
            let sizes = RecurrentSizes { cell, steps, features, hidden, layers, bias, norm, read };
            RecurrentLayers::new(sizes, &prefixed(cell.name(), name), &prefixed("norm", name), &mut layout)
        };
        let recurrent_layers: Vec<RecurrentLayers> = match config.encoder {
            Encoder::Recurrent => shape.timeframes.iter().map(layers_of_timeframe).collect(),
            Encoder::LastBar => Vec::new(),
        };
        let poolings = match config.pooling {
            Pooling::Last => Vec::new(),
            Pooling::Attention { heads } => shape
                .timeframes
                .iter()
                .map(|tf| AttentionPooling::new(config.hidden, heads, &prefixed("pooling", &tf.name), &mut layout))
                .collect(),
        };
        let width = match config.encoder {
            Encoder::Recurrent => recurrent_layers.len() * config.hidden,
            Encoder::LastBar => shape.timeframes.iter().map(|timeframe| timeframe.features).sum(),
        };
        let decoder =
            Decoder::new(config, shape.timeframes.len(), width, config.outputs_of(shape.outputs), &mut layout);
        Ok(Model { shape, config, layout: Arc::new(layout), recurrent_layers, poolings, decoder })
    }

    /// Shape of a sample.
    pub fn shape(&self) -> &SampleShape {
        &self.shape
    }

    /// Outputs for a sample: M for each of K targets, [K, M]; of tasks, those of one group after
    /// the other.
    pub fn outputs(&self) -> usize {
        self.config.outputs_of(self.shape.outputs)
    }

    /// The sizes that samples leave open.
    pub fn config(&self) -> ModelConfig {
        self.config
    }

    /// Names and shapes of the parameters, PyTorch's: `lstm.<TF>.weight_ih_l0` [4H, F]
    /// or `gru…`, … ,
    /// `head.weight` [K · M, D], `head.bias`. The file `docs/reference/weights.md` of the
    /// repository has the module in PyTorch.
    pub fn layout(&self) -> &Arc<Layout> {
        &self.layout
    }

    /// The layers of each timeframe; none for an encoder without parameters.
    pub fn recurrent_layers(&self) -> &[RecurrentLayers] {
        &self.recurrent_layers
    }

    /// One pooling a timeframe; none for pooling by the last state.
    pub fn poolings(&self) -> &[AttentionPooling] {
        &self.poolings
    }

    /// Weights of attention pooling in each timeframe of a sample: heads · T.
    pub fn pooling_weights_lens(&self) -> impl Iterator<Item = usize> {
        self.poolings.iter().zip(&self.shape.timeframes).map(|(pooling, timeframe)| pooling.heads * timeframe.steps)
    }

    /// Weights of attention pooling in all timeframes of a sample.
    pub fn pooling_weights_len(&self) -> usize {
        self.pooling_weights_lens().sum()
    }

    /// Weights of fusion by attention in a sample; none without it.
    pub fn fusion_weights_len(&self) -> usize {
        self.decoder.fusion_weights_len()
    }

    /// The layers above the encoders.
    pub fn decoder(&self) -> &Decoder {
        &self.decoder
    }
}

/// The name of a part of the model, for a timeframe that has a name.
pub fn prefixed(part: &str, timeframe: &str) -> String {
    if timeframe.is_empty() { part.to_owned() } else { format!("{part}.{timeframe}") }
}

fn check(shape: &SampleShape, config: ModelConfig) -> Result<()> {
    if let (Some(graph), None) = (config.graph, config.readout) {
        let expected = "none without a readout, which says what is predicted where samples are the nodes of graphs";
        return Err(Error::setting("graph", &format!("{:?}", graph.attention).to_lowercase(), expected));
    }
    config.graph.iter().try_for_each(GraphConfig::check)?;
    check_attention(config)?;
    let recurrent_size = |size: usize| if config.encoder == Encoder::Recurrent { size } else { 1 };
    let sizes = [
        ("hidden", recurrent_size(config.hidden)),
        ("layers", recurrent_size(config.layers)),
        ("the number of timeframes", shape.timeframes.len()),
        ("the number of targets", shape.outputs),
        ("the number of outputs of a target", config.outputs_per_target.min(config.outputs.unwrap_or(usize::MAX))),
    ];
    let windows = shape
        .timeframes
        .iter()
        .flat_map(|tf| [("the length of a window", tf.steps), ("the number of features", tf.features)]);
    if let Some((setting, _)) = sizes.into_iter().chain(windows).find(|&(_, size)| size == 0) {
        return Err(Error::setting(setting, &0, "1 or more"));
    }
    for (k, Timeframe { name, .. }) in shape.timeframes.iter().enumerate() {
        let repeated = shape.timeframes[..k].iter().any(|earlier| earlier.name == *name);
        if repeated || (name.is_empty() && shape.timeframes.len() > 1) {
            return Err(Error::setting("the name of a timeframe", &format!("{name:?}"), "a name of its own"));
        }
    }
    Ok(())
}

/// Refuses a norm, pooling or fusion of states that there are not, or that cannot be cut into
/// heads.
fn check_attention(config: ModelConfig) -> Result<()> {
    let has_states = config.encoder == Encoder::Recurrent;
    if config.layer_norm && !has_states {
        return Err(Error::setting("layer_norm", &true, "false for a model without an LSTM"));
    }
    match config.pooling {
        Pooling::Last => {}
        Pooling::Attention { heads } if has_states => check_heads("pooling_heads", heads, config.hidden)?,
        Pooling::Attention { .. } => {
            return Err(Error::setting("pooling", &"attention", "last for a model without an LSTM"));
        }
    }
    match config.fusion {
        Fusion::Concat => Ok(()),
        Fusion::Attention { feed_forward: 0, .. } => Err(Error::setting("fusion_feed_forward", &0, "1 or more")),
        Fusion::Attention { heads, .. } if has_states => check_heads("fusion_heads", heads, config.hidden),
        Fusion::Attention { .. } => Err(Error::setting("fusion", &"attention", "concat for a model without an LSTM")),
    }
}

#[cfg(test)]
mod tests {
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
        let heads = |heads| Pooling::Attention { heads };
        let fuse = |heads, feed_forward| Fusion::Attention { heads, feed_forward };
        for (names, config, what) in [
            (&["M1"][..], ModelConfig { hidden: 0, ..config }, "`hidden` is 0"),
            (&["M1"], ModelConfig { layers: 0, ..config }, "`layers` is 0"),
            (&[], config, "the number of timeframes is 0"),
            (&["M1", "M1"], config, r#"the name of a timeframe is "M1""#),
            (&["M1", ""], config, r#"the name of a timeframe is """#),
            (&["M1"], ModelConfig { pooling: heads(2), ..config }, "`pooling_heads` is 2: expected a number"),
            (&["M1"], ModelConfig { pooling: heads(0), ..config }, "`pooling_heads` is 0"),
            (&["M1"], ModelConfig { pooling: heads(5), encoder: Encoder::LastBar, ..config }, "`pooling` is att"),
            (&["M1"], ModelConfig { layer_norm: true, encoder: Encoder::LastBar, ..config }, "`layer_norm` is true"),
            (&["M1"], ModelConfig { fusion: fuse(3, 4), ..config }, "`fusion_heads` is 3: expected a number"),
            (&["M1"], ModelConfig { fusion: fuse(1, 0), ..config }, "`fusion_feed_forward` is 0: expected 1"),
            (&["M1"], ModelConfig { fusion: fuse(1, 4), encoder: Encoder::LastBar, ..config }, "`fusion` is att"),
        ] {
            let message = Model::new(shape(names), config).unwrap_err().to_string();
            assert!(message.starts_with(what), "{message}");
        }
    }
}
