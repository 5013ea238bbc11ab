//! Time that a model waits for its graphs.

mod model;
mod step;
mod topology;

use std::time::{Duration, Instant};

use megabatch_graph_cache::build::{Correlation, CorrelationGraphs, Panel};
use megabatch_graph_cache::{BlockDiagonal, BuildOptions, Builder, GraphFile, build_cached, unwatched};
use serde::Serialize;

use crate::command_report::CommandReport;
use crate::error::Result;
use crate::text::DAY_NS;
use crate::usage::peak_rss_bytes;
use model::{Model, Size};
use topology::{Asked, Cached, InMemory, Rebuilt, Topology};

/// A validation loop over graphs to measure.
#[derive(Clone, Debug)]
pub struct GraphOptions {
    /// Nodes of a graph.
    pub nodes: usize,
    /// Neighbours of a node.
    pub k: usize,
    /// Returns in the look-back of a correlation.
    pub window: usize,
    /// Graphs in the loop.
    pub graphs: usize,
    /// Features of a node.
    pub features: usize,
    /// Layers of attention.
    pub layers: usize,
    /// Heads of a layer.
    pub heads: usize,
    /// Units of a head.
    pub hidden: usize,
    /// Graphs of a batch, forward and backward.
    pub batch: usize,
    /// Threads that build and that compute batches; the loop uses one.
    pub threads: usize,
    /// Also measure a loop whose graphs this program builds, split at blanks: it reads N, W and k
    /// as u32 and the returns `[N, W]` as f32 from its standard input, and answers with the k
    /// neighbours of each node, `[N, k]` u32, little-endian all.
    pub rebuild_with: Option<String>,
    /// Repetitions of each loop; the fastest counts.
    pub repeats: usize,
}

impl GraphOptions {
    fn size(&self) -> Size {
        Size { features: self.features, layers: self.layers, heads: self.heads, hidden: self.hidden }
    }
}

/// Measures a validation loop whose graphs are built in every batch, read from a file, or in
/// memory.
///
/// Each iteration passes one correlation graph of synthetic returns through graph attention,
/// forward.
///
/// # Errors
/// Where a file or a thread cannot be had.
pub fn graph(options: &GraphOptions) -> Result<CommandReport> {
    let threads = rayon::ThreadPoolBuilder::new().num_threads(options.threads).build()?;
    let measured = threads.install(|| measure(options))?;
    Ok(CommandReport::new(describe(&measured), &measured))
}

#[derive(Serialize)]
struct Measured {
    nodes: usize,
    k: usize,
    window: usize,
    graphs: usize,
    edges: usize,
    /// By the program that `--rebuild-with` names.
    #[serde(skip_serializing_if = "Option::is_none")]
    rebuilt_elsewhere: Option<Loop>,
    rebuilt: Loop,
    cached: Loop,
    in_memory: Loop,
    #[serde(skip_serializing_if = "Option::is_none")]
    cached_over_rebuilt_elsewhere: Option<f64>,
    /// Iterations of the loop with the file for each of that which builds.
    cached_over_rebuilt: f64,
    cached_over_in_memory: f64,
    /// One batch of all graphs in random order: its offsets.
    batch_topology_us: f64,
    /// Graphs of the batches below.
    batch_graphs: usize,
    /// A batch of graphs by offsets and through the model forward, on all threads.
    batch_forward_s: f64,
    /// The same and back to the gradients of all weights.
    batch_step_s: f64,
    /// Building the file of all graphs, on disk.
    file_built_s: f64,
    file_bytes: usize,
    peak_rss_bytes: Option<u64>,
}

/// Times of one source of graphs.
#[derive(Clone, Copy, Serialize)]
struct Loop {
    iterations_per_s: f64,
    /// The part of the time in which the model has no graph.
    waiting_share: f64,
    waiting_us_per_iteration: f64,
    /// Sum of the model's outputs, the same in all loops.
    sum: f64,
}

fn measure(options: &GraphOptions) -> Result<Measured> {
    let days = options.window + options.graphs;
    let names: Vec<String> = (0..options.nodes).map(|node| format!("N{node:05}")).collect();
    let times: Vec<i64> = (0..days as i64).map(|day| day * DAY_NS).collect();
    let values: Vec<f64> = noise(options.nodes * days).into_iter().map(f64::from).collect();
    let panel = Panel::new(&names, &times, &times, &values)?;
    let correlation = Correlation {
        lookback: options.window,
        k: options.k,
        min_observations: Correlation::default().min_observations.min(options.window),
        ..Correlation::default()
    };
    let builder = CorrelationGraphs::new(correlation, panel)?;
    let folder = tempfile::tempdir()?;
    let start = Instant::now();
    let path = folder.path().join("bench.mbg");
    let file = build_cached(&path, &builder, &BuildOptions::default(), &mut unwatched)?;
    let file_built_s = start.elapsed().as_secs_f64();
    let elsewhere = options.rebuild_with.as_ref().map(|command| Asked::new(command, panel, options.window, options.k));
    let batch_graphs = options.batch.min(options.graphs);
    let features = noise(options.graphs * options.nodes * options.features);
    let batch = step::measure(&file, &features, options.size(), batch_graphs, options.repeats)?;
    let ([rebuilt, cached, in_memory], rebuilt_elsewhere) = loops(options, &builder, &file, elsewhere.transpose()?)?;
    Ok(Measured {
        nodes: options.nodes,
        k: options.k,
        window: options.window,
        graphs: options.graphs,
        edges: file.size(0).1,
        cached_over_rebuilt_elsewhere: rebuilt_elsewhere.map(|other| cached.iterations_per_s / other.iterations_per_s),
        rebuilt_elsewhere,
        rebuilt,
        cached,
        in_memory,
        cached_over_rebuilt: cached.iterations_per_s / rebuilt.iterations_per_s,
        cached_over_in_memory: cached.iterations_per_s / in_memory.iterations_per_s,
        batch_topology_us: batch_topology_us(&file)?,
        batch_graphs,
        batch_forward_s: batch.forward_s,
        batch_step_s: batch.step_s,
        file_built_s,
        file_bytes: file.bytes(),
        peak_rss_bytes: peak_rss_bytes(),
    })
}

/// The fastest run of each loop. Loops alternate, so that other load affects all alike.
fn loops(
    options: &GraphOptions,
    builder: &dyn Builder,
    file: &GraphFile,
    mut elsewhere: Option<Asked<'_>>,
) -> Result<([Loop; 3], Option<Loop>)> {
    let largest = (options.nodes, (0..file.len()).map(|graph| file.size(graph).1).max().unwrap_or(0));
    let mut model = Model::new(options.size(), largest)?;
    let features = noise(options.nodes * options.features);
    let (mut rebuilt, mut cached, mut in_memory) =
        (Rebuilt::new(builder), Cached(file.clone()), InMemory::new(builder)?);
    let mut fastest: [Option<Loop>; 4] = [None; 4];
    for _ in 0..options.repeats {
        let mut ways: Vec<&mut dyn Topology> = vec![&mut rebuilt, &mut cached, &mut in_memory];
        ways.extend(elsewhere.as_mut().map(|asked| asked as &mut dyn Topology));
        for (way, fastest) in ways.into_iter().zip(&mut fastest) {
            let loop_ = validate(way, options.graphs, &mut model, &features)?;
            if fastest.is_none_or(|fastest| loop_.iterations_per_s > fastest.iterations_per_s) {
                *fastest = Some(loop_);
            }
        }
    }
    let [rebuilt, cached, in_memory, elsewhere] = fastest;
    Ok(([rebuilt, cached, in_memory].map(|fastest| fastest.expect("each loop ran once at least")), elsewhere))
}

/// All graphs through the model, once.
fn validate(way: &mut dyn Topology, graphs: usize, model: &mut Model, features: &[f32]) -> Result<Loop> {
    let (start, mut waited, mut sum) = (Instant::now(), Duration::ZERO, 0.0);
    for index in 0..graphs {
        let asked = Instant::now();
        let graph = way.graph(index)?;
        waited += asked.elapsed();
        sum += f64::from(model.forward(graph, features));
    }
    let seconds = start.elapsed().as_secs_f64();
    Ok(Loop {
        iterations_per_s: graphs as f64 / seconds,
        waiting_share: waited.as_secs_f64() / seconds,
        waiting_us_per_iteration: 1e6 * waited.as_secs_f64() / graphs as f64,
        sum,
    })
}

/// The time that a batch of all graphs takes in the best of many.
fn batch_topology_us(file: &GraphFile) -> Result<f64> {
    const BATCHES: usize = 200;
    let mut order: Vec<usize> = (0..file.len()).collect();
    order.sort_by_key(|&graph| (graph as u32).wrapping_mul(2_654_435_761));
    // Two orders by turns: a batch that is asked for again is there already.
    let orders = [order.iter().rev().copied().collect(), order];
    let mut batch = BlockDiagonal::<u32>::new(file.clone());
    let mut best = Duration::MAX;
    for round in 0..BATCHES {
        let start = Instant::now();
        batch.set(std::hint::black_box::<&Vec<usize>>(&orders[round % 2]))?;
        best = best.min(start.elapsed());
    }
    Ok(1e6 * best.as_secs_f64())
}

/// Numbers in [-1, 1) that look random: a multiplicative hash of their index, mixed.
fn noise(len: usize) -> Vec<f32> {
    let mixed = |index: u32| {
        let hash = (index ^ 0x9e37_79b9).wrapping_mul(0x85eb_ca6b);
        let hash = (hash ^ hash >> 13).wrapping_mul(0xc2b2_ae35);
        hash ^ hash >> 16
    };
    (0..len as u32).map(|index| (mixed(index) >> 8) as f32 / (1 << 23) as f32 - 1.0).collect()
}

fn describe(measured: &Measured) -> String {
    let Measured { nodes, edges, graphs, rebuilt, cached, in_memory, .. } = measured;
    let mut lines = vec![format!("{graphs} graphs of {nodes} nodes and {edges} edges, one an iteration")];
    let elsewhere = measured.rebuilt_elsewhere.iter().map(|way| ("built elsewhere", way));
    let here = [("built in every batch", rebuilt), ("from the file", cached), ("in memory", in_memory)];
    for (name, way) in elsewhere.chain(here) {
        lines.push(format!(
            "{name:>20}: {:9.1} iterations/s, waiting {:6.2} % of the time, {:8.2} µs an iteration",
            way.iterations_per_s,
            100.0 * way.waiting_share,
            way.waiting_us_per_iteration
        ));
    }
    lines.push(format!(
        "the file: {:.2} times as fast as building, {:.3} times memory; the offsets of a batch of all graphs: {:.2} µs",
        measured.cached_over_rebuilt, measured.cached_over_in_memory, measured.batch_topology_us
    ));
    lines.push(format!(
        "a batch of {}, offsets and model: {:.2} ms forward, {:.2} ms forward and backward",
        measured.batch_graphs,
        1e3 * measured.batch_forward_s,
        1e3 * measured.batch_step_s
    ));
    lines.join("\n")
}
