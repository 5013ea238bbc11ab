//! One graph of shares, whose windows go through LSTM and attention.

use std::error::Error as StdError;

use megabatch_nn::graph::{GraphView, Graphs};
use megabatch_nn::model::{GraphConfig, ModelConfig, Readout, SampleShape, Timeframe};

use super::super::series::{MadeUp, noise};
use crate::adapters::edges::Edges;
use crate::error::Result;

/// Bars of a share's window.
const STEPS: usize = 60;
/// Neighbours of a share.
const NEIGHBOURS: u32 = 8;

/// The graph.
pub(super) struct Shares {
    nodes: Vec<usize>,
    edges: Edges,
}

impl Shares {
    /// A graph of `count` shares, each with as many neighbours in front of it.
    pub(super) fn new(count: usize) -> Result<Self> {
        let nodes = u32::try_from(count)?;
        let columns: Vec<Vec<u32>> =
            (0..nodes).map(|row| (1..=NEIGHBOURS).map(|k| (row + k) % nodes).collect()).collect();
        let edges = Edges::of_rows(count, columns.iter().map(|columns| (columns.as_slice(), &[][..])))?;
        Ok(Shares { nodes: (0..count).collect(), edges })
    }

    /// The model over it that `model` is without a graph.
    pub(super) fn model(model: ModelConfig) -> ModelConfig {
        ModelConfig { graph: Some(GraphConfig::default()), readout: Some(Readout::Node), ..model }
    }

    /// A window of each share of `features` numbers a bar, and a target.
    pub(super) fn made_up(&self, features: usize) -> MadeUp {
        let count = self.nodes.len();
        let shape =
            SampleShape { timeframes: vec![Timeframe { name: "D1".to_owned(), steps: STEPS, features }], outputs: 1 };
        let ends = (1..=count).map(|share| (share * STEPS - 1) as i64).collect();
        MadeUp { shape, series: vec![(noise(count * STEPS * features), ends)], targets: noise(count) }
    }
}

impl Graphs for Shares {
    fn len(&self) -> usize {
        1
    }

    fn nodes(&self, _graph: usize) -> &[usize] {
        &self.nodes
    }

    fn graph(&self, _graph: usize) -> std::result::Result<GraphView<'_>, Box<dyn StdError + Send + Sync>> {
        Ok(self.edges.view()?)
    }

    fn edge_attributes(&self) -> usize {
        0
    }

    fn largest(&self) -> (usize, usize) {
        (self.nodes.len(), self.edges.len())
    }

    fn labelled(&self, _graph: usize) -> usize {
        self.nodes.len()
    }
}
