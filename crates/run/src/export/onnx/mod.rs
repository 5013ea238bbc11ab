//! Models as ONNX files.
//!
//! `graph` says what a graph of operators is; `recurrent`, `pooling` and `fusion` put the parts of
//! a model into one; `encode` turns it into bytes with `wire`. The operators are those of opset 17,
//! all of which ONNX Runtime 1.14 computes on the CPU in f32.

mod encode;
mod fusion;
mod graph;
mod pooling;
mod recurrent;
#[cfg(test)]
mod tests;
mod weights;

use megabatch_nn::model::{Fusion, Model, TensorSet, Timeframe};

use encode::Header;
use graph::{Extent, Graph, Node, Port};
use recurrent::Reader;
use weights::Weights;

/// A model of LSTMs, and how it is to be written. `scaling` and `input_docs` have one entry a
/// timeframe, in the model's order.
pub(crate) struct Export<'a> {
    pub(crate) model: &'a Model,
    pub(crate) parameters: &'a TensorSet,
    /// The step of the parameters.
    pub(crate) step: u64,
    /// Samples that are predicted at once; left to whoever runs the model if `None`.
    pub(crate) batch: Option<usize>,
    /// Scaling of raw features; `None` to take scaled ones.
    pub(crate) scaling: Option<Vec<Scaling>>,
    /// Description of each input, for people.
    pub(crate) input_docs: Vec<String>,
    /// Description of the output, for people.
    pub(crate) output_doc: String,
    /// Keys and values of the file's metadata.
    pub(crate) metadata: Vec<(String, String)>,
}

/// Scaling of the features of a timeframe: scaled = (raw - centre) / scale.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Scaling {
    /// `[F]`.
    pub(crate) center: Vec<f64>,
    /// `[F]`.
    pub(crate) scale: Vec<f64>,
}

impl Export<'_> {
    /// The bytes of the file.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let doc = format!("{} -> predictions [{}]", self.model.shape(), self.model.outputs());
        encode::encode(&self.graph(), &Header { step: self.step, doc: &doc, metadata: &self.metadata })
    }

    fn graph(&self) -> Graph {
        let (mut graph, config, weights) = (Graph::default(), self.model.config(), Weights(self.parameters));
        let batch = self.batch.map_or(Extent::Free("batch"), Extent::Fixed);
        let mut vectors = Vec::new();
        for (k, timeframe) in self.model.shape().timeframes.iter().enumerate() {
            let reader = Reader { weights, config, timeframe };
            let mut windows = input_name(timeframe);
            let shape = vec![batch, Extent::Fixed(timeframe.steps), Extent::Fixed(timeframe.features)];
            graph.inputs.push(Port { name: windows.clone(), shape, doc: self.input_docs[k].clone() });
            if let Some(scaling) = &self.scaling {
                windows = scaling[k].add_to(&mut graph, &reader, &windows);
            }
            vectors.push(reader.add_to(&mut graph, &windows));
        }
        let fused = match config.fusion {
            Fusion::Concat => fusion::concat(&mut graph, &vectors),
            Fusion::Attention { heads, .. } => fusion::attention(&mut graph, weights, &vectors, config.hidden, heads),
        };
        let name = weights.linear(&mut graph, &fused, "head", "predictions");
        let shape = vec![batch, Extent::Fixed(self.model.outputs())];
        graph.outputs.push(Port { name, shape, doc: self.output_doc.clone() });
        graph
    }
}

impl Scaling {
    /// From raw windows [B, T, F] to scaled ones.
    fn add_to(&self, graph: &mut Graph, reader: &Reader<'_>, windows: &str) -> String {
        // A centre far from zero beside its scale would lose digits as one f32: it is taken off in
        // two parts, what f32 holds of it and the rest.
        let coarse: Vec<f32> = self.center.iter().map(|&center| center as f32).collect();
        let rest = self.center.iter().zip(&coarse).map(|(&center, &coarse)| (center - f64::from(coarse)) as f32);
        let rest = rest.collect();
        let scale = self.scale.iter().map(|&scale| scale as f32).collect();
        let mut constant =
            |name: &str, values: Vec<f32>| graph.constant(reader.parameter("scaler", name), &[values.len()], values);
        let [coarse, rest, scale] =
            [("center", coarse), ("center_rest", rest), ("scale", scale)].map(|(name, values)| constant(name, values));
        let nearly = graph.add(Node::new("Sub", &[windows, &coarse], reader.value("nearly_centered")));
        let centered = graph.add(Node::new("Sub", &[&nearly, &rest], reader.value("centered")));
        graph.add(Node::new("Div", &[&centered, &scale], reader.value("scaled")))
    }
}

/// Name of a timeframe's windows.
pub(crate) fn input_name(timeframe: &Timeframe) -> String {
    match timeframe.name.as_str() {
        "" => "features".to_owned(),
        name => format!("features.{name}"),
    }
}
