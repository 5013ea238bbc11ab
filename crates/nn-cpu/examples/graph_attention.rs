//! Times graph attention, for `benches/peers/graph_attention.py`: one line of JSON with the fastest
//! times in seconds and the memory in bytes.
//!
//! `cargo run --release -p megabatch-nn-cpu --example graph_attention -- [THREADS] [GRAPHS]
//! [NODES] [K] [FEATURES] [REPEATS] [gat|gatv2]`
//!
//! Two layers of 4 heads of 64 units with ReLU between them, over graphs whose nodes receive K
//! edges each. A step packs the weights, takes every graph forward and back from the loss mean(y²),
//! and sums the gradients in the order of the graphs.

use std::sync::Arc;
use std::time::Instant;

use megabatch_gpu_core::{Device, Scope};
use megabatch_nn::Result;
use megabatch_nn::graph::GraphView;
use megabatch_nn::model::{AttentionKind, GraphActivation, GraphAttention, GraphConfig, Layout, TensorSet};
use megabatch_nn_cpu::graph_attention::{AttentionPass, NodeGradients, Nodes, PackedAttention, Passes};
use megabatch_nn_cpu::team::ThreadTeam;
use megabatch_segment::{Compressed, Csc, Csr};
use rayon::prelude::*;

/// A graph and its nodes.
struct Graph {
    row_ptr: Vec<u32>,
    col: Vec<u32>,
    transposed: Compressed<u32>,
    x: Vec<f32>,
}

/// State of one thread.
struct Worker {
    pass: AttentionPass,
    gradients: TensorSet,
    d_output: Vec<f32>,
}

struct Step {
    attention: GraphAttention,
    parameters: TensorSet,
    packed: PackedAttention,
    gradients: TensorSet,
    workers: Vec<Worker>,
}

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, default| words.get(at).map_or(default, |word| word.parse().expect("a number"));
    let [threads, count, nodes, k, features, repeats] =
        [(0, 2), (1, 32), (2, 256), (3, 10), (4, 64), (5, 7)].map(|(at, default)| number(at, default));
    let kind = if words.get(6).is_some_and(|kind| kind == "gatv2") { AttentionKind::GatV2 } else { AttentionKind::Gat };
    rayon::ThreadPoolBuilder::new().num_threads(threads).build_global().expect("nobody has made the pool yet");
    let graphs: Vec<Graph> = (0..count).map(|graph| Graph::new(graph as u64, nodes, k, features)).collect();
    let device = Device::cpu();
    let mut step = Step::new(&device.scope("attention"), kind, threads, nodes, k, features)?;
    let booked_bytes = device.scope("attention").usage().allocated_bytes;
    let forward_s = fastest(repeats, || step.forward(&graphs));
    let step_s = fastest(repeats, || step.forward_and_backward(&graphs));
    let graphs_per_s = count as f64 / step_s;
    let peak_rss_bytes = peak_rss_bytes().map_or("null".to_owned(), |bytes| bytes.to_string());
    println!(
        "{{\"forward_s\": {forward_s}, \"step_s\": {step_s}, \"graphs_per_s\": {graphs_per_s}, \"booked_bytes\": {booked_bytes}, \
         \"peak_rss_bytes\": {peak_rss_bytes}}}"
    );
    Ok(())
}

fn fastest(repeats: usize, mut work: impl FnMut()) -> f64 {
    let mut fastest = f64::INFINITY;
    for _ in 0..=repeats {
        let start = Instant::now();
        work();
        fastest = fastest.min(start.elapsed().as_secs_f64());
    }
    fastest
}

/// Peak resident memory of the process, where the system tells it.
fn peak_rss_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
}

impl Graph {
    fn new(seed: u64, nodes: usize, k: usize, features: usize) -> Self {
        let mut state = (seed + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let mut random = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 40) as usize
        };
        let mut col = Vec::with_capacity(nodes * k);
        for node in 0..nodes {
            let mut neighbours = Vec::with_capacity(k);
            while neighbours.len() < k {
                let other = random() % nodes;
                if other != node && !neighbours.contains(&(other as u32)) {
                    neighbours.push(other as u32);
                }
            }
            neighbours.sort_unstable();
            col.extend(neighbours);
        }
        let row_ptr: Vec<u32> = (0..=nodes).map(|node| (node * k) as u32).collect();
        let transposed = Csr::new(&row_ptr, &col, nodes).and_then(|csr| csr.transposed()).expect("a graph by its rows");
        let x = (0..nodes * features).map(|_| random() as f32 / 2f32.powi(23) - 1.0).collect();
        Graph { row_ptr, col, transposed, x }
    }

    fn nodes(&self) -> Nodes<'_> {
        let count = self.row_ptr.len() - 1;
        let graph = GraphView {
            csr: Csr::new(&self.row_ptr, &self.col, count).expect("a graph by its rows"),
            csc: Csc::new(
                &self.transposed.offsets[..],
                &self.transposed.indices[..],
                &self.transposed.edges[..],
                count,
            )
            .expect("a graph by its columns"),
            attributes: &[],
        };
        Nodes { graph, x: &self.x, dropout: None, team: ThreadTeam::alone() }
    }
}

impl Step {
    fn new(
        scope: &Scope,
        kind: AttentionKind,
        threads: usize,
        nodes: usize,
        k: usize,
        features: usize,
    ) -> Result<Self> {
        let mut layout = Layout::default();
        let config = GraphConfig { attention: kind, activation: GraphActivation::Relu, ..GraphConfig::default() };
        let attention = GraphAttention::new(config, features, 0, 1, &mut layout);
        let layout = Arc::new(layout);
        let mut parameters = TensorSet::zeros(scope, &layout)?;
        attention.initial(1, &mut parameters);
        let worker = |_| {
            let pass = AttentionPass::new(scope, &attention, nodes, nodes * k, Passes::ForwardAndBackward)?;
            Ok(Worker { pass, gradients: TensorSet::zeros(scope, &layout)?, d_output: Vec::new() })
        };
        Ok(Step {
            packed: PackedAttention::new(scope, &attention, Passes::ForwardAndBackward)?,
            gradients: TensorSet::zeros(scope, &layout)?,
            workers: (0..threads).map(worker).collect::<Result<_>>()?,
            parameters,
            attention,
        })
    }

    fn forward(&mut self, graphs: &[Graph]) {
        let Step { attention, parameters, packed, workers, .. } = self;
        packed.pack(attention, parameters);
        for graphs in graphs.chunks(workers.len()) {
            workers.par_iter_mut().zip(graphs).for_each(|(worker, graph)| {
                worker.pass.forward(attention, packed, graph.nodes());
            });
        }
    }

    fn forward_and_backward(&mut self, graphs: &[Graph]) {
        let Step { attention, parameters, packed, gradients, workers } = self;
        packed.pack(attention, parameters);
        gradients.clear();
        let scale =
            2.0 / (graphs.iter().map(|graph| graph.nodes().graph.nodes()).sum::<usize>() * attention.width()) as f32;
        for graphs in graphs.chunks(workers.len()) {
            workers.par_iter_mut().zip(graphs).for_each(|(worker, graph)| {
                let (nodes, Worker { pass, gradients, d_output }) = (graph.nodes(), worker);
                let y = pass.forward(attention, packed, nodes);
                d_output.clear();
                d_output.extend(y.iter().map(|y| scale * y));
                gradients.clear();
                let node_gradients = NodeGradients { d_output, d_x: None };
                pass.backward(attention, parameters, packed, nodes, node_gradients, gradients);
            });
            // Sums in the order of the graphs, as a trainer forms them.
            for worker in &workers[..graphs.len()] {
                let pairs = gradients.values_mut().iter_mut().zip(worker.gradients.values());
                pairs.for_each(|(sum, term)| *sum += term);
            }
        }
    }
}
