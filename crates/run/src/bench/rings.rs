//! Graphs over synthetic features of nodes, without windows: what graph attention alone takes.

use std::error::Error as StdError;

use megabatch_nn::batch::SeriesView;
use megabatch_nn::graph::{GraphView, Graphs};
use megabatch_nn::model::{Encoder, GraphActivation, GraphConfig, ModelConfig, Readout, SampleShape, Timeframe};
use megabatch_trainer::{Batch, Samples, SeriesInMemory};

use super::series::noise;
use crate::adapters::edges::Edges;
use crate::error::Result;

/// Layers and heads of graph attention, whose units a head are the work's hidden units.
const LAYERS: usize = 2;
const HEADS: usize = 4;

/// Size of the graphs of a batch.
#[derive(Clone, Copy, Debug)]
pub struct GraphSize {
    /// Nodes of a graph.
    pub nodes: u32,
    /// Edges to each node, from those in front of it.
    pub neighbours: u32,
}

/// Graphs of the same size, whose nodes have features and a target.
pub(super) struct Rings {
    samples: SeriesInMemory,
    /// Samples, a node each, of one graph after another.
    nodes: Vec<usize>,
    nodes_per_graph: usize,
    edges: Edges,
}

impl Rings {
    pub(super) fn new(size: GraphSize, graphs: usize, features: usize) -> Result<Self> {
        let (nodes_per_graph, count) = (size.nodes as usize, graphs * size.nodes as usize);
        let neighbours = size.neighbours.min(size.nodes - 1);
        let row = |node: u32| (1..=neighbours).map(|k| (node + k) % size.nodes).collect();
        let rows: Vec<Vec<u32>> = (0..size.nodes).map(row).collect();
        let edges = Edges::from_rows(nodes_per_graph, rows.iter().map(|columns| (columns.as_slice(), &[][..])))?;
        let timeframes = vec![Timeframe { name: String::new(), steps: 1, features }];
        let ends = (0..count as i64).collect();
        let shape = SampleShape { timeframes, outputs: 1 };
        let samples = SeriesInMemory::new(shape, vec![(noise(count * features), ends)], noise(count))?;
        Ok(Rings { samples, nodes: (0..count).collect(), nodes_per_graph, edges })
    }

    /// The model: graph attention over features, a linear head for each node.
    pub(super) fn model(hidden: usize) -> ModelConfig {
        let activation = GraphActivation::Relu;
        let graph = GraphConfig { layers: LAYERS, heads: HEADS, hidden, activation, ..GraphConfig::default() };
        ModelConfig {
            encoder: Encoder::LastBar,
            graph: Some(graph),
            readout: Some(Readout::Node),
            ..ModelConfig::default()
        }
    }
}

impl Samples for Rings {
    fn shape(&self) -> &SampleShape {
        self.samples.shape()
    }

    fn len(&self) -> usize {
        self.samples.len()
    }

    fn gather(&self, samples: &[usize], batch: &mut Batch) -> Result<(), Box<dyn StdError + Send + Sync>> {
        self.samples.gather(samples, batch)
    }

    fn series(&self) -> Option<SeriesView<'_>> {
        self.samples.series()
    }

    fn graphs(&self) -> Option<&dyn Graphs> {
        Some(self)
    }
}

impl Graphs for Rings {
    fn len(&self) -> usize {
        self.nodes.len() / self.nodes_per_graph
    }

    fn nodes(&self, graph: usize) -> &[usize] {
        &self.nodes[graph * self.nodes_per_graph..][..self.nodes_per_graph]
    }

    fn graph(&self, _graph: usize) -> Result<GraphView<'_>, Box<dyn StdError + Send + Sync>> {
        Ok(self.edges.view()?)
    }

    fn edge_attributes(&self) -> usize {
        0
    }

    fn largest(&self) -> (usize, usize) {
        (self.nodes_per_graph, self.edges.len())
    }

    fn total_edges(&self) -> usize {
        Graphs::len(self) * self.edges.len()
    }

    fn labelled(&self, _graph: usize) -> usize {
        self.nodes_per_graph
    }
}
