//! Operations of models over graphs, each on the device beside the CPU.

use megabatch_gpu_core::{Buffer, Device, Scope};
use megabatch_nn::Result;
use megabatch_nn::graph::{BatchEdges, GraphDropout, GraphView, SeenEdges};
use megabatch_nn::loss::Loss;
use megabatch_nn::model::Readout;
use megabatch_nn::model::graph::GraphActivation;
use megabatch_segment::{Compressed, Csc};

use super::super::dropout::MaskNumbers;
use super::super::{
    Attended, AttentionSizes, DroppedNodes, GraphLists, GraphRows, LossScaling, NodeDotInputs, Output, OutputStart,
    ReadGraphs, ReceiverRows, Scored, Scratch, TensorSlice, Terms, activation_gradients, coefficients,
    drop_node_gradients, drop_nodes, gather_heads, graph_loss, node_dot_gradients, node_dots, read_graphs,
    read_graphs_backward, receiver_gradients, score_gradients, src_gradients, value_gradients,
};
use super::inter_layer::{buffer, same};
use super::noise;

/// Graphs that own their arrays; their numbers in the source are 5, 8, 11 and so on.
pub(in crate::ops) struct GraphExample {
    all: Vec<Graph>,
}

struct Graph {
    nodes: usize,
    by_row: Compressed<u32>,
    by_column: Compressed<u32>,
    attributes: Vec<f32>,
}

/// A graph of each size, whose edges have so many attributes. There are edges from nodes to
/// themselves, nodes that receive nothing, and one that receives from all.
pub(in crate::ops) fn graphs(sizes: &[usize], attributes: usize) -> GraphExample {
    let graph = |(g, &nodes): (usize, &usize)| {
        let ends = (0..nodes).flat_map(|to| (0..nodes).map(move |from| (to, from)));
        let is_edge =
            |&(to, from): &(usize, usize)| to == 1 || to % 5 != 3 && (to * 7 + from * 3 + g).is_multiple_of(4);
        let (to, from): (Vec<u32>, Vec<u32>) = ends.filter(is_edge).map(|(to, from)| (to as u32, from as u32)).unzip();
        let by_row = Compressed::from_edges(&to, &from, nodes, nodes).expect("edges of the nodes");
        let by_column = by_row.csr(nodes).and_then(|csr| csr.transposed()).expect("edges of the nodes");
        Graph { nodes, by_row, by_column, attributes: noise(g, "attributes", to.len() * attributes, 1.0) }
    };
    GraphExample { all: sizes.iter().enumerate().map(graph).collect() }
}

impl GraphExample {
    /// Their edges, of which A = `attributes` attributes are seen.
    pub(in crate::ops) fn edges(&self, self_loops: bool, attributes: usize) -> BatchEdges {
        BatchEdges::new(self.views(), SeenEdges { self_loops, attributes })
    }

    fn views(&self) -> impl Iterator<Item = (usize, GraphView<'_>)> {
        self.all.iter().enumerate().map(|(g, Graph { nodes, by_row, by_column, attributes })| {
            let csr = by_row.csr(*nodes).expect("edges of the nodes");
            let csc = Csc::new(&by_column.offsets, &by_column.indices, &by_column.edges, *nodes);
            (5 + 3 * g, GraphView { csr, csc: csc.expect("edges of the nodes"), attributes })
        })
    }
}

/// One of a single node, one with more edges at a node than a warp has lanes.
const SIZES: [usize; 3] = [1, 45, 6];

/// Sums in another order, and exponentials.
pub(super) fn attention(device: &Device) -> Result<()> {
    same(device, 2e-6, |scope| Ok([attend(scope, 2, 5, 5)?, attend(scope, 3, 4, 1)?].concat()))
}

/// A layer with H, C and U, forward and backward; GAT's dots of nodes where U is 1.
fn attend(scope: &Scope, heads: u32, units: u32, score_units: u32) -> Result<Vec<f32>> {
    let lists = GraphLists::new(scope, graphs(&SIZES, 2).edges(true, 2))?;
    let (nodes, averaged) = (lists.nodes() as u32, u32::from(score_units == 1));
    let sizes = AttentionSizes { nodes, heads, units, score_units, attributes: 2, averaged, slope: 0.2 };
    let (nodes, projected, scored_len) = (nodes as usize, sizes.projected(), sizes.scored());
    let masks = masks(scope)?;
    let attended = Attended { sizes, lists: &lists, mask: Some((&masks, 1)) };
    let values = buffer(scope, "values", nodes * projected)?;
    let vectors = [buffer(scope, "source", projected)?, buffer(scope, "target", projected)?];
    let (mut src, mut dst) =
        (buffer(scope, "giving", nodes * scored_len)?, buffer(scope, "receiving", nodes * scored_len)?);
    let parts = [TensorSlice::from(&vectors[0]), TensorSlice::from(&vectors[1])];
    let is_gat = score_units == 1;
    if is_gat {
        node_dots(attended, &values, parts, &mut src, &mut dst)?;
    }
    let (vector, edge_weight) = (buffer(scope, "vector", scored_len)?, buffer(scope, "edges", 2 * scored_len)?);
    let vector = (!is_gat).then_some(TensorSlice::from(&vector));
    let scored = Scored { src: &src, dst: &dst, vector, edge_weight: Some((&edge_weight).into()) };
    let zeros = |len| Buffer::<f32>::zeros(scope, len);
    let (edges, rows) = (lists.places() * heads as usize, nodes * scored_len);
    let (mut weights, mut y, bias) =
        (zeros(edges)?, zeros(nodes * sizes.width())?, buffer(scope, "bias", sizes.width())?);
    coefficients(attended, scored, &mut weights)?;
    gather_heads(attended, &weights, &values, OutputStart::Bias((&bias).into()), Some(GraphActivation::Elu), &mut y)?;

    let mut d_y = buffer(scope, "d_y", y.len())?;
    activation_gradients(GraphActivation::Elu, &y, y.len(), &mut d_y)?;
    let (mut d_scores, mut d_values, mut d_src) = (zeros(edges)?, zeros(values.len())?, zeros(rows)?);
    score_gradients(attended, &weights, &values, &d_y, &mut d_scores)?;
    value_gradients(attended, &weights, &d_y, &mut d_values)?;
    src_gradients(attended, scored, &d_scores, Output::Overwrite, &mut d_src)?;
    let [mut d_dst, mut vector_rows, mut edge_rows] = [zeros(rows)?, zeros(rows)?, zeros(2 * rows)?];
    let mut to = ReceiverRows { dst: &mut d_dst, vector: &mut vector_rows, edges: &mut edge_rows };
    receiver_gradients(attended, scored, &d_scores, &mut to)?;
    let mut dot_rows = [zeros(values.len())?, zeros(values.len())?];
    if is_gat {
        let [first, second] = &mut dot_rows;
        let dots = NodeDotInputs { values: &values, vectors: parts, d: [&d_src, &d_dst] };
        node_dot_gradients(attended, dots, &mut d_values, first, second)?;
    }
    let [first, second] = &dot_rows;
    let all = [&y, &d_values, &d_src, &d_dst, &vector_rows, &edge_rows, first, second];
    Ok(all.iter().map(|buffer| buffer.to_vec()).collect::<Result<Vec<_>, _>>()?.concat())
}

/// Masks of the input of a layer and of its coefficients.
fn masks(scope: &Scope) -> Result<Buffer<MaskNumbers>> {
    let dropout = GraphDropout::for_step(3, 4, 0);
    let masks = [dropout.input(1, 0.4), dropout.attention(1, 0.3)].into_iter().flatten();
    Ok(Buffer::from_slice(scope, &masks.map(|graph_mask| graph_mask.mask.into()).collect::<Vec<_>>())?)
}

pub(super) fn readouts(device: &Device) -> Result<()> {
    same(device, 0.0, |scope| {
        let (lists, width) = (GraphLists::new(scope, graphs(&SIZES, 0).edges(false, 0))?, 7);
        let (masks, len) = (masks(scope)?, lists.nodes() * width);
        let dropped = DroppedNodes { mask: (&masks, 0), lists: &lists, width };
        let (mut nodes, mut all) = (Buffer::zeros(scope, len)?, Vec::new());
        drop_nodes(dropped, &buffer(scope, "nodes", len)?, &mut nodes)?;
        for readout in [Readout::Mean, Readout::Sum, Readout::Max] {
            let inputs = ReadGraphs { readout, lists: &lists, width };
            let graphs = lists.graphs() * width;
            let (mut read, mut from) = (Buffer::zeros(scope, graphs)?, Buffer::zeros(scope, graphs)?);
            read_graphs(inputs, &nodes, &mut read, &mut from)?;
            let mut d_nodes = Buffer::zeros(scope, len)?;
            read_graphs_backward(inputs, &buffer(scope, "d", graphs)?, &from, &mut d_nodes)?;
            drop_node_gradients(dropped, &mut d_nodes)?;
            all.extend([read.to_vec()?, d_nodes.to_vec()?].concat());
        }
        Ok(all)
    })
}

/// In f64, but for the gradients.
pub(super) fn losses(device: &Device) -> Result<()> {
    same(device, 1e-6, |scope| {
        let (lists, width) = (GraphLists::new(scope, graphs(&SIZES, 0).edges(false, 0))?, 2);
        let mut known: Vec<f32> =
            noise(1, "targets", lists.nodes() * width, 8.0).into_iter().map(|x| x.abs().floor() / 8.0).collect();
        known.chunks_exact_mut(width).step_by(5).for_each(|row| row.fill(f32::NAN));
        let (outputs, targets) = (buffer(scope, "outputs", known.len())?, Buffer::from_slice(scope, &known)?);
        let (scale, mut all) = (Buffer::from_slice(scope, &[8.0f32])?, Vec::new());
        for loss in [Loss::CrossEntropy, Loss::RankPairwise, Loss::RankListwise { temperature: 0.3 }] {
            let terms = Buffer::from_slice(scope, &[Terms::new(loss, 3, &known)])?;
            let graph_rows = GraphRows { lists: &lists, by_node: true, outputs: &outputs, targets: &targets, width };
            let (mut d, mut totals) = (Buffer::zeros(scope, known.len())?, Buffer::zeros(scope, 2)?);
            let objective = LossScaling { terms: &terms, scale: &scale };
            graph_loss(loss, graph_rows, objective, &mut d, &mut totals, &mut Scratch::empty(scope)?)?;
            all.extend(d.to_vec()?);
            all.extend(totals.to_vec()?.into_iter().map(|total| (total / lists.nodes() as f64) as f32));
        }
        Ok(all)
    })
}
