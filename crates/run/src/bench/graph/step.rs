//! A batch of graphs of the file through the model, as a step of training takes it.

use std::sync::Arc;
use std::time::Instant;

use megabatch_gpu_core::{Device, Scope};
use megabatch_graph_cache::{BlockDiagonal, GraphFile, StoredGraph};
use megabatch_nn::graph::GraphView;
use megabatch_nn::model::{GraphActivation, GraphAttention, GraphConfig, Layout, TensorSet};
use megabatch_nn_cpu::graph_attention::{AttentionPass, NodeGradients, Nodes, PackedAttention, Passes};
use megabatch_nn_cpu::team::ThreadTeam;
use rayon::prelude::*;

use super::model::Size;
use crate::error::Result;

/// Seconds from a list of graphs to what the model makes of them, the fastest of some batches, no
/// two of which are of the same graphs in order.
#[derive(Clone, Copy)]
pub(super) struct Times {
    /// Offsets and the forward pass.
    pub(super) forward_s: f64,
    /// Offsets, the forward pass, and back from the loss mean(y²) to the gradients of all weights.
    pub(super) step_s: f64,
}

/// Times batches of `count` graphs of the file; `features` are those of all graphs, one after the
/// other.
pub(super) fn measure(file: &GraphFile, features: &[f32], size: Size, count: usize, repeats: usize) -> Result<Times> {
    let mut step = Step::new(file, features, size)?;
    let forward_s = step.fastest(count, repeats, Step::forward)?;
    Ok(Times { forward_s, step_s: step.fastest(count, repeats, Step::forward_and_backward)? })
}

/// Buffers of one thread that takes graphs through the model.
struct Worker {
    pass: AttentionPass,
    gradients: TensorSet,
    d_output: Vec<f32>,
}

/// Graph attention without attributes of edges, with a worker a thread.
struct Step<'f> {
    batch: BlockDiagonal<u32>,
    features: &'f [f32],
    width: usize,
    drawn: usize,
    attention: GraphAttention,
    parameters: TensorSet,
    packed: PackedAttention,
    gradients: TensorSet,
    workers: Vec<Worker>,
}

impl<'f> Step<'f> {
    fn new(file: &GraphFile, features: &'f [f32], size: Size) -> Result<Self> {
        let scope: Scope = Device::cpu().scope("step");
        let activation = GraphActivation::Relu;
        let Size { layers, heads, hidden, .. } = size;
        let config = GraphConfig { layers, heads, hidden, activation, ..GraphConfig::default() };
        let mut layout = Layout::default();
        let attention = GraphAttention::new(config, size.features, 0, 1, &mut layout);
        let layout = Arc::new(layout);
        let mut parameters = TensorSet::zeros(&scope, &layout)?;
        attention.initial(0, &mut parameters);
        let sizes = (0..file.len()).map(|graph| file.size(graph));
        let largest = sizes.fold((0, 0), |(nodes, edges), size| (nodes.max(size.0), edges.max(size.1)));
        let worker = |_| -> Result<Worker> {
            let pass = AttentionPass::new(&scope, &attention, largest.0, largest.1, Passes::ForwardAndBackward)?;
            Ok(Worker { pass, gradients: TensorSet::zeros(&scope, &layout)?, d_output: Vec::new() })
        };
        Ok(Step {
            batch: BlockDiagonal::new(file.clone()),
            features,
            width: size.features,
            drawn: 0,
            packed: PackedAttention::new(&scope, &attention, Passes::ForwardAndBackward)?,
            gradients: TensorSet::zeros(&scope, &layout)?,
            workers: (0..rayon::current_num_threads()).map(worker).collect::<Result<_>>()?,
            parameters,
            attention,
        })
    }

    /// Seconds of the fastest of `repeats` batches of `count` graphs, after one that does not
    /// count.
    fn fastest(&mut self, count: usize, repeats: usize, work: fn(&mut Self)) -> Result<f64> {
        let mut fastest = f64::INFINITY;
        for repeat in 0..=repeats {
            let graphs = self.draw(count);
            let start = Instant::now();
            self.batch.set(&graphs)?;
            work(self);
            let seconds = start.elapsed().as_secs_f64();
            fastest = if repeat == 0 { fastest } else { seconds.min(fastest) };
        }
        Ok(fastest)
    }

    /// The next batch: `count` graphs of the file in an order that looks random.
    fn draw(&mut self, count: usize) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.batch.file().len()).collect();
        self.drawn += 1;
        let drawn = self.drawn as u32;
        order.sort_by_key(|&graph| (graph as u32 + 1).wrapping_mul(2_654_435_761_u32.wrapping_add(drawn << 1)));
        order.truncate(count);
        order
    }

    fn forward(&mut self) {
        let Step { attention, parameters, packed, workers, batch, features, width, .. } = self;
        packed.pack(attention, parameters);
        let places: Vec<usize> = (0..batch.len()).collect();
        for places in places.chunks(workers.len()) {
            workers.par_iter_mut().zip(places).for_each(|(worker, &place)| {
                let block = batch.block(place);
                let nodes = nodes(&block, features, batch.graphs()[place], *width);
                worker.pass.forward(attention, packed, nodes);
            });
        }
    }

    fn forward_and_backward(&mut self) {
        let Step { attention, parameters, packed, gradients, workers, batch, features, width, .. } = self;
        packed.pack(attention, parameters);
        gradients.clear();
        let scale = 2.0 / (batch.nodes() * attention.width()) as f32;
        let places: Vec<usize> = (0..batch.len()).collect();
        for places in places.chunks(workers.len()) {
            workers.par_iter_mut().zip(places).for_each(|(worker, &place)| {
                let block = batch.block(place);
                let nodes = nodes(&block, features, batch.graphs()[place], *width);
                let Worker { pass, gradients, d_output } = worker;
                let y = pass.forward(attention, packed, nodes);
                d_output.clear();
                d_output.extend(y.iter().map(|y| scale * y));
                gradients.clear();
                let node_gradients = NodeGradients { d_output, d_x: None };
                pass.backward(attention, parameters, packed, nodes, node_gradients, gradients);
            });
            // Sums in the order of the graphs, as a trainer forms them.
            for worker in &workers[..places.len()] {
                let pairs = gradients.values_mut().iter_mut().zip(worker.gradients.values());
                pairs.for_each(|(sum, term)| *sum += term);
            }
        }
    }
}

/// A block of the batch where it lies in the file, and its rows of the features.
fn nodes<'b>(block: &StoredGraph<'b>, features: &'b [f32], graph: usize, width: usize) -> Nodes<'b> {
    let len = block.len() * width;
    let graph_view = GraphView { csr: block.csr(), csc: block.csc(), attributes: &[] };
    Nodes { graph: graph_view, x: &features[graph * len..][..len], dropout: None, team: ThreadTeam::alone() }
}
