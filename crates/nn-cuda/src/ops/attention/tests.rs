//! The kernels beside the operations on the CPU.

use megabatch_nn::graph::{BatchEdges, GraphDropout, GraphView, NO_EDGE, SeenEdges};
use megabatch_segment::{Compressed, Csc};
use megabatch_simt::Arg;

use super::*;
use crate::ops::Output;
use crate::ops::harness::{HARNESS, noise};

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
        Graph { nodes, by_row, by_column, attributes: noise("attributes", to.len() * attributes, 1.0) }
    };
    GraphExample { all: sizes.iter().enumerate().map(graph).collect() }
}

impl GraphExample {
    /// Their edges, of which A = `attributes` attributes are seen.
    pub(in crate::ops) fn edges(&self, self_loops: bool, attributes: usize) -> BatchEdges {
        BatchEdges::new(self.views(), SeenEdges { self_loops, attributes })
    }

    fn views(&self) -> impl Iterator<Item = (usize, GraphView<'_>)> {
        (0..self.all.len()).map(|g| (5 + 3 * g, self.view(g)))
    }

    pub(in crate::ops) fn view(&self, graph: usize) -> GraphView<'_> {
        let Graph { nodes, by_row, by_column, attributes } = &self.all[graph];
        let csr = by_row.csr(*nodes).expect("edges of the nodes");
        let csc = Csc::new(&by_column.offsets, &by_column.indices, &by_column.edges, *nodes);
        GraphView { csr, csc: csc.expect("edges of the nodes"), attributes }
    }
}

/// N graphs of these sizes: none without nodes, one of a single node, one of more edges at a node
/// than a warp has lanes.
const SIZES: [usize; 3] = [1, 45, 6];

/// A layer and what it reads.
struct Example {
    sizes: AttentionSizes,
    lists: GraphLists,
    masks: Buffer<MaskNumbers>,
    drops: bool,
    values: Buffer<f32>,
    src: Buffer<f32>,
    dst: Buffer<f32>,
    vector: Buffer<f32>,
    edge_weight: Buffer<f32>,
    d_y: Buffer<f32>,
}

fn buffer(name: &'static str, len: usize) -> Buffer<f32> {
    Buffer::from_slice(&Device::cpu().scope("test"), &noise(name, len, 1.5)).unwrap()
}

fn zeros(len: usize) -> Buffer<f32> {
    Buffer::zeros(&Device::cpu().scope("test"), len).unwrap()
}

impl Example {
    /// H, C and U; A; whether heads are averaged, whether there are loops, whether coefficients are
    /// dropped.
    fn new(
        heads: u32,
        units: u32,
        score_units: u32,
        attributes: u32,
        averages: bool,
        self_loops: bool,
        drops: bool,
    ) -> Self {
        let scope = Device::cpu().scope("test");
        let lists = GraphLists::new(&scope, graphs(&SIZES, attributes as usize).edges(self_loops, attributes as usize));
        let lists = lists.unwrap();
        let (nodes, averaged) = (lists.nodes() as u32, u32::from(averages));
        let sizes = AttentionSizes { nodes, heads, units, score_units, attributes, averaged, slope: 0.2 };
        let mask = GraphDropout::for_step(3, 4, 0).attention(1, 0.4).unwrap().mask;
        let (nodes, scored) = (nodes as usize, sizes.scored());
        Example {
            masks: Buffer::from_slice(&scope, &[mask.into()]).unwrap(),
            drops,
            values: buffer("values", nodes * sizes.projected()),
            src: buffer("giving", nodes * scored),
            dst: buffer("receiving", nodes * scored),
            vector: buffer("vector", scored),
            edge_weight: buffer("edge_weight", scored * attributes as usize),
            d_y: buffer("d_y", nodes * sizes.width()),
            sizes,
            lists,
        }
    }

    fn attended(&self) -> Attended<'_> {
        let mask = self.drops.then_some((&self.masks, 0));
        Attended { sizes: self.sizes, lists: &self.lists, mask }
    }

    /// Without a vector where one unit scores, as GAT does.
    fn scored(&self) -> Scored<'_> {
        let vector = (self.sizes.score_units > 1).then_some(TensorSlice::from(&self.vector));
        let edge_weight = (self.sizes.attributes > 0).then_some(TensorSlice::from(&self.edge_weight));
        Scored { src: &self.src, dst: &self.dst, vector, edge_weight }
    }

    fn score_arguments(&self) -> Vec<Arg<'_>> {
        let vector = if self.sizes.score_units > 1 { Arg::from(self.vector.as_slice()) } else { Arg::null() };
        let edge_weight = if self.sizes.attributes > 0 { Arg::from(self.edge_weight.as_slice()) } else { Arg::null() };
        let attributes = Arg::from(&self.lists.edges.attributes[..]);
        vec![Arg::from(self.src.as_slice()), Arg::from(self.dst.as_slice()), vector, edge_weight, attributes]
    }

    fn receivers(&self) -> Vec<Arg<'_>> {
        let edges = &self.lists.edges;
        vec![Arg::from_struct(&self.sizes), Arg::from(&edges.starts[..]), Arg::from(&edges.from[..])]
    }

    fn givers(&self) -> Vec<Arg<'_>> {
        let edges = &self.lists.edges;
        let lists = [&edges.src_starts, &edges.places, &edges.to].map(|list| Arg::from(&list[..]));
        std::iter::once(Arg::from_struct(&self.sizes)).chain(lists).collect()
    }

    fn mask(&self) -> Arg<'_> {
        if self.drops { Arg::from(self.masks.as_slice()) } else { Arg::null() }
    }

    fn coefficients(&self) -> Buffer<f32> {
        let attended = self.attended();
        let mut to = zeros(attended.lens()[1]);
        coefficients(attended, self.scored(), &mut to).unwrap();
        let mut found = vec![f32::NAN; to.len()];
        let mut arguments = self.receivers();
        arguments.extend(self.score_arguments());
        arguments.extend([self.mask(), Arg::from(&self.lists.edges.graphs[..])]);
        arguments.extend([Arg::from(&self.lists.edges.graph_of[..]), Arg::from(&mut found[..])]);
        HARNESS.run("coefficients", Launch::for_threads(self.sizes.node_heads() * WARP), &mut arguments);
        drop(arguments);
        self.assert_close("coefficients", &found, to.as_slice());
        // Of places that no edge has, nobody asks.
        let heads = self.sizes.heads as usize;
        let is_edge = |k: usize| self.lists.edges.from[k / heads] != NO_EDGE;
        let signs =
            |values: &[f32]| (0..values.len()).map(|k| is_edge(k) && values[k].is_sign_negative()).collect::<Vec<_>>();
        assert!(signs(&found) == signs(to.as_slice()), "what is dropped");
        assert_eq!(signs(&found).contains(&true), self.drops);
        to
    }

    fn forward(&self, coefficients: &Buffer<f32>) {
        let (attended, bias) = (self.attended(), buffer("bias", self.sizes.width()));
        let functions = [(false, None), (true, Some(GraphActivation::Elu)), (false, Some(GraphActivation::Relu))];
        for (adds, activation) in functions {
            let mut y = buffer("before", self.d_y.len());
            let mut found = y.as_slice().to_vec();
            let start = if adds { OutputStart::Present } else { OutputStart::Bias((&bias).into()) };
            gather_heads(attended, coefficients, &self.values, start, activation, &mut y).unwrap();
            let mut arguments = self.receivers();
            arguments.extend([Arg::from(coefficients.as_slice()), self.mask(), Arg::from(self.values.as_slice())]);
            arguments.push(if adds { Arg::null() } else { Arg::from(bias.as_slice()) });
            arguments.extend([Arg::from(u32::from(adds)), Arg::from(code(activation)), Arg::from(&mut found[..])]);
            HARNESS.run("gather_heads", Launch::for_threads(self.d_y.len()), &mut arguments);
            drop(arguments);
            self.assert_close("y", &found, y.as_slice());
        }
    }

    fn backward(&self, coefficients: &Buffer<f32>) {
        let attended = self.attended();
        let mut d_scores = zeros(attended.lens()[1]);
        score_gradients(attended, coefficients, &self.values, &self.d_y, &mut d_scores).unwrap();
        let mut found = vec![f32::NAN; d_scores.len()];
        let mut arguments = self.receivers();
        arguments.extend([Arg::from(coefficients.as_slice()), self.mask(), Arg::from(self.values.as_slice())]);
        arguments.extend([Arg::from(self.d_y.as_slice()), Arg::from(&mut found[..])]);
        HARNESS.run("score_gradients", Launch::for_threads(self.sizes.node_heads() * WARP), &mut arguments);
        drop(arguments);
        self.assert_close("d_scores", &found, d_scores.as_slice());
        self.receivers_backward(&d_scores);
        self.givers_backward(coefficients, &d_scores);
    }

    fn receivers_backward(&self, d_scores: &Buffer<f32>) {
        let (attended, scored, [len, _]) = (self.attended(), self.scored(), self.attended().lens());
        let vector_len = if scored.vector.is_some() { len } else { 0 };
        let mut rows = [len, vector_len, len * self.sizes.attributes as usize].map(zeros);
        let mut found = [0, 1, 2].map(|k: usize| vec![f32::NAN; rows[k].len()]);
        let [dst, vector, edges] = &mut rows;
        receiver_gradients(attended, scored, d_scores, &mut ReceiverRows { dst, vector, edges }).unwrap();
        let mut arguments = self.receivers();
        arguments.extend(self.score_arguments());
        arguments.push(Arg::from(d_scores.as_slice()));
        arguments.extend(found.iter_mut().map(|rows| Arg::from(&mut rows[..])));
        HARNESS.run("receiver_gradients", Launch::for_threads(len), &mut arguments);
        drop(arguments);
        for (found, expected) in found.iter().zip(&rows) {
            self.assert_close("rows of receivers", found, expected.as_slice());
        }
    }

    fn givers_backward(&self, coefficients: &Buffer<f32>, d_scores: &Buffer<f32>) {
        let attended = self.attended();
        let mut d_values = zeros(self.values.len());
        value_gradients(attended, coefficients, &self.d_y, &mut d_values).unwrap();
        let mut found = vec![f32::NAN; d_values.len()];
        let mut arguments = self.givers();
        arguments.extend([Arg::from(coefficients.as_slice()), self.mask(), Arg::from(self.d_y.as_slice())]);
        arguments.push(Arg::from(&mut found[..]));
        HARNESS.run("value_gradients", Launch::for_threads(d_values.len()), &mut arguments);
        drop(arguments);
        self.assert_close("d_values", &found, d_values.as_slice());
        for output in [Output::Overwrite, Output::Add] {
            let mut d_src = buffer("before", self.src.len());
            let mut found = d_src.as_slice().to_vec();
            src_gradients(attended, self.scored(), d_scores, output, &mut d_src).unwrap();
            let mut arguments = self.givers();
            arguments.extend(self.score_arguments());
            arguments.extend([Arg::from(d_scores.as_slice()), Arg::from(u32::from(output == Output::Add))]);
            arguments.push(Arg::from(&mut found[..]));
            HARNESS.run("giver_gradients", Launch::for_threads(d_src.len()), &mut arguments);
            drop(arguments);
            self.assert_close("d_giving", &found, d_src.as_slice());
        }
    }

    /// Sums in another order, of up to 45 edges, and exponentials of another library.
    fn assert_close(&self, what: &str, found: &[f32], expected: &[f32]) {
        let most = expected.iter().fold(1.0f32, |most, x| most.max(x.abs()));
        assert_eq!(found.len(), expected.len(), "{what}");
        for (k, (found, expected)) in found.iter().zip(expected).enumerate() {
            let error = (found - expected).abs();
            assert!(error <= 2e-6 * most, "{:?}: {what}, number {k} is {found} where {expected} is right", self.sizes);
        }
    }
}

#[test]
fn the_kernels_compute_what_the_cpu_does() {
    let flags = [[false, true, true], [true, false, false], [true, true, true], [false, false, false]];
    let heads = [[1, 1, 1], [3, 5, 5], [2, 7, 1], [2, 40, 40], [5, 3, 3]];
    for (k, [heads, units, score_units]) in heads.into_iter().enumerate() {
        let [averages, self_loops, drops] = flags[k % 4];
        let example = Example::new(heads, units, score_units, [0, 2, 3][k % 3], averages, self_loops, drops);
        let coefficients = example.coefficients();
        example.forward(&coefficients);
        example.backward(&coefficients);
    }
}

#[test]
fn dots_of_nodes_are_the_cpus() {
    for sizes in [[1, 1, 1], [3, 5, 1], [2, 40, 1]] {
        let example = Example::new(sizes[0], sizes[1], sizes[2], 0, false, true, false);
        let (attended, projected) = (example.attended(), example.sizes.projected());
        let vectors = [buffer("source", projected), buffer("target", projected)];
        let parts = [TensorSlice::from(&vectors[0]), TensorSlice::from(&vectors[1])];
        let len = example.sizes.node_heads();
        let mut dots = [zeros(len), zeros(len)];
        let [src, dst] = &mut dots;
        node_dots(attended, &example.values, parts, src, dst).unwrap();
        let mut found = [vec![f32::NAN; len], vec![f32::NAN; len]];
        let mut arguments = vec![Arg::from_struct(&example.sizes), Arg::from(example.values.as_slice())];
        arguments.extend(vectors.iter().map(|vector| Arg::from(vector.as_slice())));
        arguments.extend(found.iter_mut().map(|dots| Arg::from(&mut dots[..])));
        HARNESS.run("node_dots", Launch::for_threads(len * WARP), &mut arguments);
        drop(arguments);
        found.iter().zip(&dots).for_each(|(found, dots)| example.assert_close("dots", found, dots.as_slice()));

        let d = [buffer("d_source", len), buffer("d_target", len)];
        let mut to = [buffer("before", example.values.len()), zeros(example.values.len()), zeros(example.values.len())];
        let mut found = [0, 1, 2].map(|k: usize| to[k].as_slice().to_vec());
        let dots = NodeDotInputs { values: &example.values, vectors: parts, d: [&d[0], &d[1]] };
        let [d_values, source_rows, target_rows] = &mut to;
        node_dot_gradients(attended, dots, d_values, source_rows, target_rows).unwrap();
        let mut arguments = vec![Arg::from_struct(&example.sizes), Arg::from(example.values.as_slice())];
        arguments.extend(vectors.iter().chain(&d).map(|array| Arg::from(array.as_slice())));
        arguments.extend(found.iter_mut().map(|rows| Arg::from(&mut rows[..])));
        HARNESS.run("node_dot_gradients", Launch::for_threads(example.values.len()), &mut arguments);
        drop(arguments);
        found.iter().zip(&to).for_each(|(found, to)| example.assert_close("d_values, rows", found, to.as_slice()));
    }
}

#[test]
fn slopes_of_the_functions_between_layers() {
    for (activation, is_elu) in [(GraphActivation::Elu, 1u32), (GraphActivation::Relu, 0)] {
        let y: Vec<f32> = noise("y", 700, 1.0).into_iter().map(|x| activation.apply(x)).collect();
        let (values, mut d) = (Buffer::from_slice(&Device::cpu().scope("test"), &y).unwrap(), buffer("d", 702));
        let mut found = d.as_slice().to_vec();
        activation_gradients(activation, &values, 700, &mut d).unwrap();
        let mut arguments = [Arg::from(&y[..]), Arg::from(&mut found[..]), Arg::from(700u64), Arg::from(is_elu)];
        HARNESS.run("activation_gradients", Launch::for_threads(700), &mut arguments);
        assert_eq!(found, d.as_slice());
    }
}
