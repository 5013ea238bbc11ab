//! Agreement with PyTorch Geometric on every case of `torch_fixture.safetensors`, which
//! `torch_fixture.py` writes.

use std::collections::BTreeMap;
use std::sync::Arc;

use megabatch_gpu_core::Device;
use megabatch_nn::cpu::graph_attention::{AttentionPass, NodeGradients, Nodes, PackedAttention, Passes};
use megabatch_nn::graph::GraphDropout;
use megabatch_nn::loss::Loss;
use megabatch_nn::model::{GraphAttention, GraphConfig, GraphOutput, Layout, TensorSet};
use megabatch_trainer::{Optimizer, OptimizerConfig, OptimizerKind, Scalar};
use safetensors::{Dtype, SafeTensors};
use serde::Deserialize;

use crate::made_up::OwnedGraph;

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
    adam: bool,
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
            kind: serde_json::from_value(named(&self.kind)).unwrap(),
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

/// The largest errors allowed, as shares of the tensor's largest magnitude.
///
/// In double precision only the order of sums differs. In single precision a rounding is 6e-8:
/// outputs are sums of up to 54 products through two layers, gradients pass through both twice and
/// cancel, since the gradients of a softmax sum to zero. Adam moves every weight by about the
/// learning rate, whatever its gradient's size, so that where a gradient is near zero its error
/// shows in full: up to a hundredth of 1e-2 a step, beside weights of about 1.
#[derive(Clone, Copy)]
struct Tolerances {
    outputs: f64,
    gradients: f64,
    weights: f64,
}

const DOUBLE: Tolerances = Tolerances { outputs: 1e-13, gradients: 1e-12, weights: 1e-9 };
const SINGLE: Tolerances = Tolerances { outputs: 1e-6, gradients: 1e-5, weights: 3e-4 };

/// A form under test: forward, then backward from the gradient that its caller makes of the output.
trait Form<S: Scalar> {
    fn run(
        &mut self,
        parameters: &TensorSet<S>,
        nodes: Nodes<'_, S>,
        gradient: &dyn Fn(&[S]) -> Vec<S>,
        gradients: &mut TensorSet<S>,
        d_x: &mut [S],
    ) -> Vec<S>;
}

struct Plain<'a, S: Scalar>(&'a GraphAttention, megabatch_trainer::AttentionMemory<S>);

impl<S: Scalar> Form<S> for Plain<'_, S> {
    fn run(
        &mut self,
        parameters: &TensorSet<S>,
        nodes: Nodes<'_, S>,
        gradient: &dyn Fn(&[S]) -> Vec<S>,
        gradients: &mut TensorSet<S>,
        d_x: &mut [S],
    ) -> Vec<S> {
        let Plain(attention, memory) = self;
        let y = attention.forward(parameters, nodes, memory).to_vec();
        let d_output = gradient(&y);
        let node_gradients = NodeGradients { d_output: &d_output, d_x: Some(d_x) };
        attention.backward(parameters, nodes, node_gradients, gradients, memory);
        y
    }
}

struct Fast<'a>(&'a GraphAttention, PackedAttention, AttentionPass);

impl Form<f32> for Fast<'_> {
    fn run(
        &mut self,
        parameters: &TensorSet,
        nodes: Nodes<'_>,
        gradient: &dyn Fn(&[f32]) -> Vec<f32>,
        gradients: &mut TensorSet,
        d_x: &mut [f32],
    ) -> Vec<f32> {
        let Fast(attention, packed, pass) = self;
        packed.pack(attention, parameters);
        let y = pass.forward(attention, packed, nodes).to_vec();
        let d_output = gradient(&y);
        let node_gradients = NodeGradients { d_output: &d_output, d_x: Some(d_x) };
        pass.backward(attention, parameters, packed, nodes, node_gradients, gradients);
        y
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

    fn numbers<S: Scalar>(&self, tensor: &str) -> Vec<S> {
        self.f64s(tensor).into_iter().map(S::from_f64).collect()
    }

    fn compare<S: Scalar>(&self, tensor: &str, got: &[S], tolerance: f64) {
        let largest = largest(&self.f64s(tensor));
        self.compare_beside(largest, tensor, got, tolerance);
    }

    /// The gradients of scores are differences, which a softmax makes sum to zero: they are as
    /// exact as the numbers that they are differences of.
    fn compare_gradients<S: Scalar>(&self, gradients: &TensorSet<S>, tolerance: f64) {
        let named = |name: &str| torch_name("grad", name);
        let of_all = gradients.tensors().map(|(name, ..)| largest(&self.f64s(&named(name)))).fold(0.0, f64::max);
        for (name, _, values) in gradients.tensors() {
            let is_difference = ["att", "lin_r", "lin_edge"].iter().any(|part| name.contains(part));
            let beside = if is_difference { of_all } else { largest(&self.f64s(&named(name))) };
            self.compare_beside(beside, &named(name), values, tolerance);
        }
    }

    fn compare_beside<S: Scalar>(&self, largest: f64, tensor: &str, got: &[S], tolerance: f64) {
        let expected = self.f64s(tensor);
        assert_eq!(got.len(), expected.len(), "{}: {tensor}", self.name);
        let error = got.iter().zip(&expected).map(|(x, y)| (x.to_f64() - y).abs()).fold(0.0, f64::max);
        assert!(got.iter().all(|x| x.is_finite()), "{}: {tensor}", self.name);
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

fn check<S: Scalar, F: Form<S>>(
    fixture: &Fixture<'_>,
    case: &Case,
    attention: &GraphAttention,
    layout: &Arc<Layout>,
    mut form: F,
    tolerances: Tolerances,
    dropout: GraphDropout,
) {
    let scope = Device::cpu().scope("parity");
    let graph = graph(fixture, case);
    let mut parameters = TensorSet::<S>::zeros(&scope, layout).unwrap();
    for (name, _) in layout.tensors() {
        let values = fixture.numbers::<S>(&torch_name("param", name));
        parameters.get_mut(name).unwrap().copy_from_slice(&values);
    }
    let (x, target) = (fixture.numbers::<S>("x"), fixture.numbers::<S>("target"));
    let nodes = Nodes { graph: graph.view(), x: &x, dropout: (case.dropout > 0.0).then_some(dropout) };
    let mut gradients = TensorSet::zeros(&scope, layout).unwrap();
    let config = OptimizerConfig { kind: OptimizerKind::Adam, lr: 0.01, weight_decay: 0.0, ..Default::default() };
    let mut optimizer = Optimizer::new(&scope, config, &parameters).unwrap();
    assert_eq!(target.len(), case.sizes.nodes * attention.width());
    for step in 1..=if case.adam { 3 } else { 1 } {
        gradients.clear();
        // Whatever is there is overwritten.
        let mut d_x = vec![S::from_f64(f64::NAN); x.len()];
        let gradient = |y: &[S]| {
            let mut d_y = vec![S::ZERO; y.len()];
            Loss::Mse.gradient(y, &target, y.len(), &mut d_y);
            d_y
        };
        let y = form.run(&parameters, nodes, &gradient, &mut gradients, &mut d_x);
        if step == 1 {
            fixture.compare("y", &y, tolerances.outputs);
            fixture.compare("grad_x", &d_x, tolerances.gradients);
            fixture.compare_gradients(&gradients, tolerances.gradients);
        }
        if case.adam {
            optimizer.update(&mut parameters, &gradients, 0.01);
            for (name, _, values) in parameters.tensors() {
                fixture.compare(&torch_name(&format!("step{step}"), name), values, tolerances.weights);
            }
        }
    }
}

fn graph(fixture: &Fixture<'_>, case: &Case) -> OwnedGraph {
    let edges: Vec<_> = fixture.u32s("row").into_iter().zip(fixture.u32s("col")).collect();
    let attributes = if case.sizes.attributes > 0 { fixture.numbers("attributes") } else { Vec::new() };
    OwnedGraph::new(case.sizes.nodes, &edges, attributes)
}

/// Calls `check` with every case, its attention and its dropout.
fn each_case(check: impl Fn(&Fixture<'_>, &Case, (&GraphAttention, &Arc<Layout>), GraphDropout)) {
    let metadata = SafeTensors::read_metadata(FIXTURE).unwrap().1.metadata().clone().unwrap();
    let file = SafeTensors::deserialize(FIXTURE).unwrap();
    let cases: BTreeMap<String, Case> = serde_json::from_str(&metadata["cases"]).unwrap();
    assert_eq!(cases.len(), 30, "the fixture has 15 cases of two kinds");
    let number = |name: &str| metadata[name].parse::<u64>().unwrap();
    let dropout = GraphDropout::of_step(number("seed"), number("step"), number("graph") as usize);
    for (name, case) in &cases {
        let mut layout = Layout::default();
        let Sizes { features, attributes, outputs, .. } = case.sizes;
        let attention = GraphAttention::new(case.config(), features, attributes, outputs, &mut layout);
        check(&Fixture { name, file: &file }, case, (&attention, &Arc::new(layout)), dropout);
    }
}

#[test]
fn the_plain_form_agrees_with_pytorch_geometric() {
    let scope = Device::cpu().scope("parity");
    each_case(|fixture, case, of, dropout| {
        let capacity = (case.sizes.nodes, fixture.u32s("row").len());
        let double =
            Plain(of.0, of.0.memory::<f64>(&scope, capacity.0, capacity.1, Passes::ForwardAndBackward).unwrap());
        check(fixture, case, of.0, of.1, double, DOUBLE, dropout);
        let single =
            Plain(of.0, of.0.memory::<f32>(&scope, capacity.0, capacity.1, Passes::ForwardAndBackward).unwrap());
        check(fixture, case, of.0, of.1, single, SINGLE, dropout);
    });
}

#[test]
fn the_fast_form_agrees_with_pytorch_geometric() {
    let scope = Device::cpu().scope("parity");
    each_case(|fixture, case, of, dropout| {
        let packed = PackedAttention::new(&scope, of.0, Passes::ForwardAndBackward).unwrap();
        let pass =
            AttentionPass::new(&scope, of.0, case.sizes.nodes, fixture.u32s("row").len(), Passes::ForwardAndBackward)
                .unwrap();
        check(fixture, case, of.0, of.1, Fast(of.0, packed, pass), SINGLE, dropout);
    });
}
