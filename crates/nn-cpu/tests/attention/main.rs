//! Agreement with PyTorch Geometric on every case of `torch_fixture.safetensors`, which
//! `torch_fixture.py` writes. Its steps of Adam are not computed here.

use std::collections::BTreeMap;
use std::sync::Arc;

use megabatch_gpu_core::Device;
use megabatch_nn::graph::{GraphDropout, GraphView};
use megabatch_nn::loss::Loss;
use megabatch_nn::model::{GraphAttention, GraphConfig, GraphOutput, Layout, TensorSet};
use megabatch_nn_cpu::graph_attention::{AttentionPass, NodeGradients, Nodes, PackedAttention, Passes};
use megabatch_nn_cpu::team::ThreadTeam;
use megabatch_segment::{Compressed, Csc, Csr};
use safetensors::{Dtype, SafeTensors};
use serde::Deserialize;

const FIXTURE: &[u8] = include_bytes!("torch_fixture.safetensors");

/// The choices of a case.
#[derive(Deserialize)]
struct Case {
    #[serde(flatten)]
    sizes: Sizes,
    kind: String,
    activation: String,
    output: String,
    layers: usize,
    heads: usize,
    hidden: usize,
    output_heads: usize,
    residual: bool,
    dropout: f32,
    attention_dropout: f32,
    negative_slope: f64,
    self_loops: bool,
}

#[derive(Clone, Copy, Deserialize)]
struct Sizes {
    nodes: usize,
    features: usize,
    attributes: usize,
    outputs: usize,
}

impl Case {
    fn config(&self) -> GraphConfig {
        let named = |name: &str| serde_json::Value::String(name.to_owned());
        GraphConfig {
            attention: serde_json::from_value(named(&self.kind)).unwrap(),
            activation: serde_json::from_value(named(&self.activation)).unwrap(),
            output: serde_json::from_value::<GraphOutput>(named(&self.output)).unwrap(),
            layers: self.layers,
            heads: self.heads,
            hidden: self.hidden,
            output_heads: self.output_heads,
            residual: self.residual,
            dropout: self.dropout,
            attention_dropout: self.attention_dropout,
            negative_slope: self.negative_slope,
            self_loops: self.self_loops,
        }
    }
}

/// The largest errors allowed, as shares of the tensor's largest magnitude. A rounding is 6e-8:
/// outputs are sums of up to 54 products through two layers, gradients pass through both twice and
/// cancel, since the gradients of a softmax sum to zero.
const OUTPUT_TOLERANCE: f64 = 1e-6;
const GRADIENT_TOLERANCE: f64 = 1e-5;

/// A graph that owns its arrays.
struct OwnedGraph {
    row_ptr: Vec<u32>,
    col: Vec<u32>,
    transposed: Compressed<u32>,
    attributes: Vec<f32>,
}

impl OwnedGraph {
    /// The graph of `nodes` nodes with these edges, (row, column) in the order of the rows.
    fn new(nodes: usize, edges: &[(u32, u32)], attributes: Vec<f32>) -> Self {
        let ends = (0..=nodes as u32).map(|row| edges.partition_point(|edge| edge.0 < row) as u32);
        let (row_ptr, col): (Vec<u32>, Vec<u32>) = (ends.collect(), edges.iter().map(|edge| edge.1).collect());
        let transposed = Csr::new(&row_ptr, &col, nodes).unwrap().transposed().unwrap();
        OwnedGraph { row_ptr, col, transposed, attributes }
    }

    fn view(&self) -> GraphView<'_> {
        let nodes = self.row_ptr.len() - 1;
        GraphView {
            csr: Csr::new(&self.row_ptr, &self.col, nodes).unwrap(),
            csc: Csc::new(&self.transposed.offsets, &self.transposed.indices, &self.transposed.edges, nodes).unwrap(),
            attributes: &self.attributes,
        }
    }
}

/// The tensors of one case.
struct Fixture<'a> {
    name: &'a str,
    file: &'a SafeTensors<'a>,
}

impl Fixture<'_> {
    fn f64s(&self, tensor: &str) -> Vec<f64> {
        let view = self.file.tensor(&format!("{}/{tensor}", self.name)).unwrap();
        assert_eq!(view.dtype(), Dtype::F64);
        view.data().chunks_exact(8).map(|x| f64::from_le_bytes(x.try_into().unwrap())).collect()
    }

    fn u32s(&self, tensor: &str) -> Vec<u32> {
        let view = self.file.tensor(&format!("{}/{tensor}", self.name)).unwrap();
        view.data().chunks_exact(4).map(|x| u32::from_le_bytes(x.try_into().unwrap())).collect()
    }

    fn numbers(&self, tensor: &str) -> Vec<f32> {
        self.f64s(tensor).into_iter().map(|x| x as f32).collect()
    }

    fn compare(&self, tensor: &str, found: &[f32], tolerance: f64) {
        let largest = largest(&self.f64s(tensor));
        self.compare_beside(largest, tensor, found, tolerance);
    }

    /// The gradients of scores are differences, which a softmax makes sum to zero: they are as
    /// exact as the numbers that they are differences of.
    fn compare_gradients(&self, gradients: &TensorSet) {
        let named = |name: &str| torch_name("grad", name);
        let largest_gradient =
            gradients.tensors().map(|(name, ..)| largest(&self.f64s(&named(name)))).fold(0.0, f64::max);
        for (name, _, values) in gradients.tensors() {
            let is_difference = ["att", "lin_r", "lin_edge"].iter().any(|part| name.contains(part));
            let beside = if is_difference { largest_gradient } else { largest(&self.f64s(&named(name))) };
            self.compare_beside(beside, &named(name), values, GRADIENT_TOLERANCE);
        }
    }

    fn compare_beside(&self, largest: f64, tensor: &str, found: &[f32], tolerance: f64) {
        let expected = self.f64s(tensor);
        assert_eq!(found.len(), expected.len(), "{}: {tensor}", self.name);
        let error = found.iter().zip(&expected).map(|(&x, y)| (f64::from(x) - y).abs()).fold(0.0, f64::max);
        assert!(found.iter().all(|x| x.is_finite()), "{}: {tensor}", self.name);
        assert!(error <= tolerance * largest, "{}: {tensor} is off by {error:e} of {largest:e}", self.name);
    }
}

fn largest(values: &[f64]) -> f64 {
    values.iter().fold(0.0, |m: f64, x| m.max(x.abs()))
}

/// The name in the fixture of our tensor `graph.<l>.<rest>`.
fn torch_name(prefix: &str, name: &str) -> String {
    format!("{prefix}.{}", name.replacen("graph.", "convs.", 1))
}

fn check(fixture: &Fixture<'_>, case: &Case, dropout: GraphDropout) {
    let (scope, graph) = (Device::cpu().scope("parity"), graph(fixture, case));
    let Sizes { features, attributes, outputs, nodes: count } = case.sizes;
    let mut layout = Layout::default();
    let attention = GraphAttention::new(case.config(), features, attributes, outputs, &mut layout);
    let mut parameters = TensorSet::zeros(&scope, &Arc::new(layout)).unwrap();
    for (name, _, values) in parameters.tensors_mut() {
        values.copy_from_slice(&fixture.numbers(&torch_name("param", name)));
    }
    let (x, target) = (fixture.numbers("x"), fixture.numbers("target"));
    assert_eq!(target.len(), count * attention.width());
    let nodes = Nodes {
        graph: graph.view(),
        x: &x,
        dropout: (case.dropout > 0.0).then_some(dropout),
        team: ThreadTeam::alone(),
    };

    let mut packed = PackedAttention::new(&scope, &attention, Passes::ForwardAndBackward).unwrap();
    packed.pack(&attention, &parameters);
    let edges = nodes.graph.edges();
    let mut pass = AttentionPass::new(&scope, &attention, count, edges, Passes::ForwardAndBackward).unwrap();
    let y = pass.forward(&attention, &packed, nodes).to_vec();
    fixture.compare("y", &y, OUTPUT_TOLERANCE);

    let mut d_y = vec![0.0; y.len()];
    Loss::Mse.gradient(&y, &target, y.len(), &mut d_y);
    // The values that are there are overwritten.
    let mut d_x = vec![f32::NAN; x.len()];
    let mut gradients = TensorSet::zeros(&scope, parameters.layout()).unwrap();
    let node_gradients = NodeGradients { d_output: &d_y, d_x: Some(&mut d_x) };
    pass.backward(&attention, &parameters, &packed, nodes, node_gradients, &mut gradients);
    fixture.compare("grad_x", &d_x, GRADIENT_TOLERANCE);
    fixture.compare_gradients(&gradients);
}

fn graph(fixture: &Fixture<'_>, case: &Case) -> OwnedGraph {
    let edges: Vec<_> = fixture.u32s("row").into_iter().zip(fixture.u32s("col")).collect();
    let attributes = if case.sizes.attributes > 0 { fixture.numbers("attributes") } else { Vec::new() };
    OwnedGraph::new(case.sizes.nodes, &edges, attributes)
}

#[test]
fn the_engine_agrees_with_pytorch_geometric() {
    let metadata = SafeTensors::read_metadata(FIXTURE).unwrap().1.metadata().clone().unwrap();
    let file = SafeTensors::deserialize(FIXTURE).unwrap();
    let cases: BTreeMap<String, Case> = serde_json::from_str(&metadata["cases"]).unwrap();
    assert_eq!(cases.len(), 30, "the fixture has 15 cases of two kinds");
    let number = |name: &str| metadata[name].parse::<u64>().unwrap();
    let dropout = GraphDropout::for_step(number("seed"), number("step"), number("graph") as usize);
    for (name, case) in &cases {
        check(&Fixture { name, file: &file }, case, dropout);
    }
}
