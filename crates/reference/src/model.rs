//! A whole model: encoders, pooling, fusion, graph attention, readout, head.

use std::collections::BTreeMap;

use megabatch_nn::model::{
    Encoder, Fusion, GraphOutput, Model, ModelConfig, Pooling, Readout, SampleShape, TensorSet, Timeframe,
};

use crate::cell::State;
use crate::inputs::{Inputs, LayerState, Sequences};
use crate::parameters::{Parameters, Weights};
use crate::recurrent::{self, Recurrence, prefixed};
use crate::tape::{Matrix, Tape, Var};
use crate::{attention, graph, wide};

/// A model in double precision, with its parameters.
#[derive(Clone, Debug)]
pub struct Reference {
    config: ModelConfig,
    shape: SampleShape,
    /// Outputs of a row.
    width: usize,
    parameters: Parameters,
}

/// Results of a model for B samples. R rows are predicted: one a sample, or one a graph.
#[derive(Clone, Debug, PartialEq)]
pub struct Outputs {
    /// [R, K · M].
    pub outputs: Vec<f64>,
    /// The encodings of the timeframes side by side, [B, D].
    pub encodings: Vec<f64>,
    /// The states of recurrent layers by timeframe and layer; empty for an encoder without.
    pub states: Vec<Vec<LayerStates>>,
    /// The outputs of each timeframe's top layer after every step, after its norm if there is one,
    /// [S, N, H].
    pub sequences: Vec<Vec<f64>>,
    /// Weights of pooling by attention in each timeframe, [B, heads, T]; empty without it.
    pub pooling_weights: Vec<Vec<f64>>,
    /// Weights of fusion by attention, [B, heads, n, n]; empty without it.
    pub fusion_weights: Vec<f64>,
}

/// Hidden and cell states of a layer after every step, [S, N, H] each.
#[derive(Clone, Debug, PartialEq)]
pub struct LayerStates {
    /// h.
    pub hidden: Vec<f64>,
    /// c; empty for a cell without.
    pub cell: Vec<f64>,
}

/// Gradients of everything that the outputs depend on.
#[derive(Clone, Debug, PartialEq)]
pub struct Gradients {
    /// Gradients of the parameters, by name.
    pub parameters: BTreeMap<String, Vec<f64>>,
    /// Gradients of the bars, by timeframe, [N, S, F].
    pub bars: Vec<Vec<f64>>,
    /// Gradients of the states before the first step, by timeframe and layer.
    pub initial: Vec<Vec<LayerState>>,
}

impl Reference {
    /// The model with these parameters, whatever their precision.
    ///
    /// # Panics
    /// If `parameters` are those of another model.
    pub fn new(model: &Model, parameters: &TensorSet) -> Self {
        assert_eq!(model.layout(), parameters.layout(), "the parameters of the model");
        let tensors = parameters.tensors().map(|(name, shape, values)| (name.to_owned(), shape.to_vec(), wide(values)));
        Reference::from_tensors(model, tensors)
    }

    /// The model whose head, if it has one, is the identity; its other parameters are `values` by
    /// name.
    pub fn with_identity_head<'a>(model: &Model, values: impl Fn(&str) -> &'a [f32]) -> Self {
        let diagonal = model.outputs() + 1;
        let tensors = model.layout().tensors().map(|(name, shape)| {
            let len = shape.iter().product();
            let values = match name {
                "head.weight" => (0..len).map(|k| if k % diagonal == 0 { 1.0 } else { 0.0 }).collect(),
                "head.bias" => vec![0.0; len],
                _ => wide(values(name)),
            };
            (name.to_owned(), shape.to_vec(), values)
        });
        Reference::from_tensors(model, tensors)
    }

    fn from_tensors(model: &Model, tensors: impl Iterator<Item = (String, Vec<usize>, Vec<f64>)>) -> Self {
        Reference {
            config: model.config(),
            shape: model.shape().clone(),
            width: model.outputs(),
            parameters: Parameters::new(tensors),
        }
    }

    /// The parameter `name`, row-major, for writing.
    pub fn parameter_mut(&mut self, name: &str) -> Option<&mut [f64]> {
        self.parameters.get_mut(name)
    }

    /// Computes the model.
    ///
    /// # Panics
    /// If the inputs are not those of the model, or a parameter has another name or shape than in
    /// PyTorch.
    pub fn forward(&self, inputs: &Inputs) -> Outputs {
        let tape = Tape::default();
        let weights = self.parameters.on_tape(&tape);
        self.compute(&tape, &weights, inputs).outputs()
    }

    /// The gradients of everything, given that of the outputs, [R, K · M].
    ///
    /// # Panics
    /// As [`Reference::forward`].
    pub fn gradients(&self, inputs: &Inputs, d_outputs: &[f64]) -> Gradients {
        let tape = Tape::default();
        let weights = self.parameters.on_tape(&tape);
        let computation = self.compute(&tape, &weights, inputs);
        let d_outputs = Matrix::new(computation.outputs.rows(), self.width, d_outputs.to_vec());
        let gradients = tape.gradients(computation.outputs, d_outputs);
        let gradient = |var: Var<'_>| gradients.with_respect_to(var).values;
        let state = |state: &State<'_>| LayerState {
            hidden: gradient(state.hidden),
            cell: state.cell.map_or_else(Vec::new, gradient),
        };
        Gradients {
            parameters: weights.gradients(&gradients),
            bars: computation.encoders.iter().map(|encoder| gradient(encoder.bars)).collect(),
            initial: computation.encoders.iter().map(|encoder| encoder.initial.iter().map(state).collect()).collect(),
        }
    }

    fn compute<'t>(&self, tape: &'t Tape, weights: &Weights<'t>, inputs: &Inputs) -> Computation<'t> {
        assert_eq!(inputs.timeframes.len(), self.shape.timeframes.len(), "sequences of every timeframe");
        let timeframes = self.shape.timeframes.iter().zip(&inputs.timeframes);
        let encoders: Vec<Recurrence<'t>> = timeframes
            .clone()
            .map(|(timeframe, sequences)| self.encode(tape, weights, timeframe, sequences, inputs))
            .collect();
        let read = |((timeframe, sequences), encoder): ((&Timeframe, &Sequences), &Recurrence<'t>)| {
            self.pool(weights, timeframe, sequences, encoder)
        };
        let (encodings, pooling_weights): (Vec<Var<'t>>, Vec<Vec<f64>>) = timeframes.zip(&encoders).map(read).unzip();
        let (fused, fusion_weights) = self.fuse(weights, &encodings, inputs.samples());
        let outputs = self.head(weights, self.predict(tape, weights, inputs, fused));
        weights.check_all_seen();
        let encodings = Var::concat_columns(&encodings);
        Computation { encoders, encodings, pooling_weights, fusion_weights, outputs }
    }

    /// The recurrent layers of a timeframe, or its bars as they are.
    fn encode<'t>(
        &self,
        tape: &'t Tape,
        weights: &Weights<'t>,
        timeframe: &Timeframe,
        sequences: &Sequences,
        inputs: &Inputs,
    ) -> Recurrence<'t> {
        match self.config.encoder {
            Encoder::Recurrent => recurrent::forward(tape, weights, &self.config, timeframe, sequences, inputs.dropout),
            Encoder::LastBar => recurrent::bars_as_they_are(tape, timeframe, sequences),
        }
    }

    /// The vectors [B, H] that samples read of a timeframe, and the weights of attention
    /// [B, heads, T].
    fn pool<'t>(
        &self,
        weights: &Weights<'t>,
        timeframe: &Timeframe,
        sequences: &Sequences,
        encoder: &Recurrence<'t>,
    ) -> (Var<'t>, Vec<f64>) {
        let all = Var::concat_rows(&encoder.outputs); // [S · N, H]
        let row = |sequence: usize, step: usize| step * sequences.len() + sequence;
        match self.config.pooling {
            Pooling::Last => {
                let rows = sequences.reads.iter().map(|read| row(read.sequence, read.step));
                (all.gather(&rows.collect::<Vec<_>>()), Vec::new())
            }
            Pooling::Attention { heads } => {
                let name = prefixed("pooling", timeframe);
                let (mut pooled, mut all_weights) = (Vec::new(), Vec::new());
                for read in &sequences.reads {
                    let steps = read.step + 1 - timeframe.steps..read.step + 1;
                    let window = all.gather(&steps.map(|step| row(read.sequence, step)).collect::<Vec<_>>());
                    let attended = attention::pool(weights, &name, heads, window);
                    pooled.push(attended.result);
                    attended.weights.iter().for_each(|head| all_weights.extend_from_slice(&head.value().values));
                }
                (Var::concat_rows(&pooled), all_weights)
            }
        }
    }

    /// One vector a sample of those of its timeframes, [B, H] each, and the weights of attention
    /// [B, heads, n, n].
    fn fuse<'t>(&self, weights: &Weights<'t>, encodings: &[Var<'t>], samples: usize) -> (Var<'t>, Vec<f64>) {
        let Fusion::Attention { heads, feed_forward } = self.config.fusion else {
            return (Var::concat_columns(encodings), Vec::new());
        };
        let (mut fused, mut all_weights) = (Vec::new(), Vec::new());
        for sample in 0..samples {
            let tokens: Vec<Var<'t>> = encodings.iter().map(|encoding| encoding.gather(&[sample])).collect();
            let attended =
                attention::fuse(weights, heads, feed_forward * self.config.hidden, Var::concat_rows(&tokens));
            fused.push(attended.result);
            attended.weights.iter().for_each(|head| all_weights.extend_from_slice(&head.value().values));
        }
        (Var::concat_rows(&fused), all_weights)
    }

    /// The rows that the head reads: the samples, or the results of attention in their graphs and
    /// the readout of each graph.
    fn predict<'t>(&self, tape: &'t Tape, weights: &Weights<'t>, inputs: &Inputs, x: Var<'t>) -> Var<'t> {
        let Some(readout) = self.config.readout else {
            return x;
        };
        let nodes: usize = inputs.graphs.iter().map(|graph| graph.nodes).sum();
        assert_eq!(nodes, inputs.samples(), "graphs whose nodes are the samples");
        let (mut rows, mut first) = (Vec::new(), 0);
        for graph in &inputs.graphs {
            let mut own = x.gather(&(first..first + graph.nodes).collect::<Vec<_>>());
            if let Some(config) = &self.config.graph {
                own = graph::forward(tape, weights, config, graph, own, self.config.graph_edge_attributes, self.width);
            }
            rows.push(match readout {
                Readout::Node => own,
                Readout::Mean => own.mean_rows(),
                Readout::Sum => own.sum_rows(),
                Readout::Max => own.max_rows(),
            });
            first += graph.nodes;
        }
        Var::concat_rows(&rows)
    }

    /// torch.nn.Linear `head`, unless attention gives the outputs itself.
    fn head<'t>(&self, weights: &Weights<'t>, x: Var<'t>) -> Var<'t> {
        match self.config.graph {
            Some(graph) if graph.output == GraphOutput::Attention => x,
            _ => weights.linear("head", x, self.width),
        }
    }
}

/// A model's values on a tape.
struct Computation<'t> {
    encoders: Vec<Recurrence<'t>>,
    encodings: Var<'t>,
    pooling_weights: Vec<Vec<f64>>,
    fusion_weights: Vec<f64>,
    outputs: Var<'t>,
}

impl Computation<'_> {
    fn outputs(&self) -> Outputs {
        let layer = |states: &Vec<State<'_>>| LayerStates {
            hidden: states.iter().flat_map(|state| state.hidden.value().values.clone()).collect(),
            cell: states.iter().flat_map(|state| state.cell).flat_map(|cell| cell.value().values.clone()).collect(),
        };
        let sequence = |encoder: &Recurrence<'_>| {
            encoder.outputs.iter().flat_map(|output| output.value().values.clone()).collect()
        };
        Outputs {
            outputs: self.outputs.value().values.clone(),
            encodings: self.encodings.value().values.clone(),
            states: self.encoders.iter().map(|encoder| encoder.states.iter().map(layer).collect()).collect(),
            sequences: self.encoders.iter().map(sequence).collect(),
            pooling_weights: self.pooling_weights.clone(),
            fusion_weights: self.fusion_weights.clone(),
        }
    }
}
