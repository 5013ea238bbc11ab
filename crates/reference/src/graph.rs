//! Graph attention: torch_geometric.nn.GATConv and GATv2Conv, layer by layer.

use megabatch_nn::model::{AttentionKind, GraphActivation, GraphConfig, GraphOutput};
use megabatch_order::random::{Stream, bits, halves, philox4x32};

use crate::parameters::Weights;
use crate::tape::{Matrix, Tape, Var};

/// One graph.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Graph {
    /// N.
    pub nodes: usize,
    /// The source node of each edge.
    pub src: Vec<usize>,
    /// The node that receives it. Edges come in the order of the nodes that receive them.
    pub dst: Vec<usize>,
    /// [E, A], row-major.
    pub attributes: Vec<f64>,
    /// Dropout of the inputs and of the coefficients of layers, by the rates of the
    /// configuration.
    pub dropout: Option<GraphDropout>,
}

/// Key of a graph's dropout masks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GraphDropout {
    /// Seed of the run.
    pub seed: u64,
    /// Optimizer step, counted from 0.
    pub step: u64,
    /// Identity of the graph.
    pub graph: usize,
}

impl GraphDropout {
    /// The factors [rows, columns] of numbers that are dropped with the probability `rate`: 0 or
    /// 1 / (1 - rate). `name` is `input` or `attention`.
    fn factors(self, name: &str, layer: usize, rate: f32, rows: usize, columns: usize) -> Matrix {
        let step = bits(Stream { seed: self.seed, name: "graph dropout" }, self.step);
        let key = halves(bits(Stream { seed: step, name }, layer as u64));
        let [graph_low, graph_high] = halves(self.graph as u64);
        let rate = f64::from(rate);
        Matrix::from_fn(rows, columns, |row, column| {
            let words = philox4x32(key, [column as u32, row as u32 / 4, graph_low, graph_high]);
            if f64::from(words[row % 4]) < (rate * 2f64.powi(32)).floor() { 0.0 } else { 1.0 / (1.0 - rate) }
        })
    }
}

/// The edges that a layer attends over.
struct Edges {
    src: Vec<usize>,
    dst: Vec<usize>,
    attributes: Matrix, // [E, A]
    /// Columns of the dropout mask of the coefficients.
    places: Vec<usize>,
}

impl Edges {
    /// The edges of `graph`; with `self_loops`, those between different nodes and then one from
    /// each node to itself, whose attributes are the mean of those that the node receives, and 0
    /// where it receives none: `add_self_loops=True` and `fill_value="mean"`.
    fn new(graph: &Graph, self_loops: bool, width: usize) -> Self {
        assert!(graph.dst.is_sorted(), "edges in the order of the nodes that receive them");
        let count = graph.src.len();
        let all = Matrix::new(count, width, if width == 0 { Vec::new() } else { graph.attributes.clone() });
        let shift = |edge: usize| if self_loops { graph.dst[edge] } else { 0 };
        let kept: Vec<usize> = (0..count).filter(|&edge| !(self_loops && graph.src[edge] == graph.dst[edge])).collect();
        let mut edges = Edges {
            src: kept.iter().map(|&edge| graph.src[edge]).collect(),
            dst: kept.iter().map(|&edge| graph.dst[edge]).collect(),
            attributes: Matrix::from_fn(kept.len(), width, |i, a| all.get(kept[i], a)),
            places: kept.iter().map(|&edge| edge + shift(edge)).collect(),
        };
        for node in (0..graph.nodes).filter(|_| self_loops) {
            let received: Vec<usize> = kept.iter().copied().filter(|&edge| graph.dst[edge] == node).collect();
            let mean =
                |a: usize| received.iter().map(|&edge| all.get(edge, a)).sum::<f64>() / received.len().max(1) as f64;
            edges.attributes.values.extend((0..width).map(mean));
            edges.attributes.rows += 1;
            edges.src.push(node);
            edges.dst.push(node);
            edges.places.push(graph.dst.partition_point(|&dst| dst <= node) + node);
        }
        edges
    }
}

/// The sizes of a layer.
struct Sizes {
    nodes: usize,
    heads: usize,
    units: usize,
    /// A.
    attributes: usize,
    /// True if the heads are averaged, in place of standing side by side.
    is_averaged: bool,
}

impl Sizes {
    fn projected(&self) -> usize {
        self.heads * self.units
    }

    fn width(&self) -> usize {
        if self.is_averaged { self.units } else { self.projected() }
    }
}

/// All layers over the nodes of one graph, x [N, F], with a function between each two of them.
/// K = `outputs` is the width of an averaging last layer, and A = `attributes` what it sees of an
/// edge.
pub(crate) fn forward<'t>(
    tape: &'t Tape,
    weights: &Weights<'t>,
    config: &GraphConfig,
    graph: &Graph,
    mut x: Var<'t>,
    attributes: usize,
    outputs: usize,
) -> Var<'t> {
    let edges = Edges::new(graph, config.self_loops, attributes);
    for layer in 0..config.layers {
        let is_averaged = config.output == GraphOutput::Attention && layer + 1 == config.layers;
        let (heads, units) = if is_averaged { (config.output_heads, outputs) } else { (config.heads, config.hidden) };
        let sizes = Sizes { nodes: graph.nodes, heads, units, attributes, is_averaged };
        if let Some(dropout) = graph.dropout.filter(|_| config.dropout > 0.0) {
            x = x * tape.leaf(dropout.factors("input", layer, config.dropout, x.rows(), x.columns()));
        }
        let attention = graph.dropout.filter(|_| config.attention_dropout > 0.0).map(|dropout| {
            let places = graph.nodes + graph.src.len();
            let all = dropout.factors("attention", layer, config.attention_dropout, heads, places);
            Matrix::from_fn(edges.places.len(), heads, |edge, head| all.get(head, edges.places[edge]))
        });
        x = convolve(
            weights,
            config,
            &format!("graph.{layer}"),
            &sizes,
            &edges,
            attention.map(|weights| tape.leaf(weights)),
            x,
        );
        if layer + 1 < config.layers {
            x = match config.activation {
                GraphActivation::Elu => x.elu(),
                GraphActivation::Relu => x.relu(),
            };
        }
    }
    x
}

/// One layer, for edges e = j → i with attributes a_e:
///
/// ```text
/// α = softmax of the scores over the edges that i receives, head by head, times `dropout` [E, H]
/// y_i = Σ_e α_e v_j, heads side by side or their mean, + W_res x_i + bias
/// ```
fn convolve<'t>(
    weights: &Weights<'t>,
    config: &GraphConfig,
    name: &str,
    sizes: &Sizes,
    edges: &Edges,
    dropout: Option<Var<'t>>,
    x: Var<'t>,
) -> Var<'t> {
    let scored = match config.attention {
        AttentionKind::Gat => gat(weights, config, name, sizes, edges, x),
        AttentionKind::GatV2 => gat_v2(weights, config, name, sizes, edges, x),
    };
    let coefficients = scored.scores.segment_softmax(&edges.dst, sizes.nodes); // [E, H]
    let coefficients = dropout.map_or(coefficients, |factors| coefficients * factors);
    let (heads, units, count) = (sizes.heads, sizes.units, edges.src.len());
    let values = scored.values.gather(&edges.src).reshaped(count * heads, units);
    let messages = values * coefficients.reshaped(count * heads, 1);
    let sums = messages.reshaped(count, heads * units).scatter_add(&edges.dst, sizes.nodes); // [N, H · C]
    let mut y = match sizes.is_averaged {
        false => sums,
        true => {
            let node_of_head: Vec<usize> = (0..sizes.nodes * heads).map(|row| row / heads).collect();
            sums.reshaped(sizes.nodes * heads, units).scatter_add(&node_of_head, sizes.nodes).scale(1.0 / heads as f64)
        }
    };
    if config.residual {
        y = y + x.linear(weights.get(&format!("{name}.res.weight"), sizes.width(), x.columns()), None);
    }
    y + weights.get(&format!("{name}.bias"), 1, sizes.width())
}

/// The scores of edges [E, H], and the values that nodes give [N, H · C].
struct Scored<'t> {
    scores: Var<'t>,
    values: Var<'t>,
}

/// GATConv, after Veličković et al., "Graph attention networks", 2018: v = W x and
///
/// ```text
/// score = LeakyReLU(att_src · v_j + att_dst · v_i + att_edge · W_e a_e)
/// ```
fn gat<'t>(
    weights: &Weights<'t>,
    config: &GraphConfig,
    name: &str,
    sizes: &Sizes,
    edges: &Edges,
    x: Var<'t>,
) -> Scored<'t> {
    let values = x.linear(weights.get(&format!("{name}.lin.weight"), sizes.projected(), x.columns()), None);
    let attention = |part: &str| weights.get(&format!("{name}.{part}"), 1, sizes.projected());
    let source_scores = by_head(sizes, values * attention("att_src")).gather(&edges.src);
    let target_scores = by_head(sizes, values * attention("att_dst")).gather(&edges.dst);
    let mut scores = source_scores + target_scores;
    if let Some(projected) = project_edges(weights, name, sizes, edges, x) {
        scores = scores + by_head(sizes, projected * attention("att_edge"));
    }
    Scored { scores: scores.leaky_relu(config.negative_slope), values }
}

/// GATv2Conv, after Brody, Alon and Yahav, "How attentive are graph attention networks?", 2022:
/// v = W_l x + b_l and
///
/// ```text
/// score = att · LeakyReLU(v_j + W_r x_i + b_r + W_e a_e)
/// ```
fn gat_v2<'t>(
    weights: &Weights<'t>,
    config: &GraphConfig,
    name: &str,
    sizes: &Sizes,
    edges: &Edges,
    x: Var<'t>,
) -> Scored<'t> {
    let values = weights.linear(&format!("{name}.lin_l"), x, sizes.projected());
    let receivers = weights.linear(&format!("{name}.lin_r"), x, sizes.projected());
    let mut joined = values.gather(&edges.src) + receivers.gather(&edges.dst);
    if let Some(projected) = project_edges(weights, name, sizes, edges, x) {
        joined = joined + projected;
    }
    let attention = weights.get(&format!("{name}.att"), 1, sizes.projected());
    Scored { scores: by_head(sizes, joined.leaky_relu(config.negative_slope) * attention), values }
}

/// W_e a_e of every edge [E, H · C]; none without attributes.
fn project_edges<'t>(weights: &Weights<'t>, name: &str, sizes: &Sizes, edges: &Edges, x: Var<'t>) -> Option<Var<'t>> {
    (sizes.attributes > 0).then(|| {
        let weight = weights.get(&format!("{name}.lin_edge.weight"), sizes.projected(), sizes.attributes);
        x.tape().leaf(edges.attributes.clone()).linear(weight, None)
    })
}

/// The sums over the units of each head: [n, H · C] to [n, H].
fn by_head<'t>(sizes: &Sizes, x: Var<'t>) -> Var<'t> {
    x.reshaped(x.rows() * sizes.heads, sizes.units).sum_columns().reshaped(x.rows(), sizes.heads)
}
