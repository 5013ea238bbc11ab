//! The fast form against the plain one in double precision, on every instruction set, and against
//! itself.

use std::cell::OnceCell;
use std::sync::Arc;

use megabatch_gpu_core::Device;
use megabatch_order::random::{Stream, uniform};
use megabatch_segment::{Compressed, Csc, Csr};
use proptest::prelude::*;

use super::*;
use crate::graph::{GraphDropout, GraphView};
use crate::model::graph::{AttentionKind, GraphActivation, GraphConfig, GraphOutput};
use crate::model::tensor::Layout;

/// Numbers in (-1, 1).
fn numbers(seed: u64, name: &str, len: usize) -> Vec<f32> {
    (0..len as u64).map(|i| 2.0 * uniform(Stream { seed, name }, i) as f32 - 1.0).collect()
}

/// A graph that owns its arrays, some of whose nodes receive from themselves.
struct OwnedGraph {
    row_ptr: Vec<u32>,
    col: Vec<u32>,
    turned: Compressed<u32>,
    attributes: Vec<f32>,
    x: Vec<f32>,
}

impl OwnedGraph {
    fn new(seed: u64, nodes: usize, density: f32, width: usize, attributes: usize) -> Self {
        let chance = numbers(seed, "edges", nodes * nodes);
        let is_edge = |row: usize, column: usize| (chance[row * nodes + column] + 1.0) / 2.0 < density;
        let columns = |row: usize| (0..nodes as u32).filter(move |&column| is_edge(row, column as usize));
        let mut row_ptr = vec![0];
        row_ptr.extend((0..nodes).scan(0, |sum, row| {
            *sum += columns(row).count() as u32;
            Some(*sum)
        }));
        let col: Vec<u32> = (0..nodes).flat_map(columns).collect();
        let turned = Csr::new(&row_ptr, &col, nodes).unwrap().transposed().unwrap();
        let attributes = numbers(seed, "attributes", col.len() * attributes);
        OwnedGraph { row_ptr, col, turned, attributes, x: numbers(seed, "x", nodes * width) }
    }

    fn view(&self) -> GraphView<'_> {
        let nodes = self.row_ptr.len() - 1;
        GraphView {
            csr: Csr::new(&self.row_ptr, &self.col, nodes).unwrap(),
            csc: Csc::new(&self.turned.offsets, &self.turned.indices, &self.turned.edges, nodes).unwrap(),
            attributes: &self.attributes,
        }
    }
}

fn wide(x: &[f32]) -> Vec<f64> {
    x.iter().map(|&x| f64::from(x)).collect()
}

/// Attention and its weights.
struct Problem {
    attention: GraphAttention,
    parameters: TensorSet,
    sizes: (usize, usize),
}

/// Output, gradient of the input, gradients of the parameters.
type Results = (Vec<f32>, Vec<f32>, Vec<f32>);

impl Problem {
    fn new(config: GraphConfig, sizes: (usize, usize), seed: u64) -> Self {
        let mut layout = Layout::default();
        let attention = GraphAttention::new(config, sizes.0, sizes.1, 5, &mut layout);
        let mut parameters = TensorSet::zeros(&Device::cpu().scope("problem"), &Arc::new(layout)).unwrap();
        attention.initial(seed, &mut parameters);
        // Biases of zero would hide that they are left out.
        let noise = numbers(seed, "bias", parameters.values().len());
        parameters.values_mut().iter_mut().zip(noise).for_each(|(x, noise)| *x += 0.1 * noise);
        Problem { attention, parameters, sizes }
    }

    fn graph(&self, seed: u64, nodes: usize, density: f32) -> OwnedGraph {
        OwnedGraph::new(seed, nodes, density, self.sizes.0, self.sizes.1)
    }

    fn d_output(&self, graph: &OwnedGraph) -> Vec<f32> {
        numbers(9, "d_output", graph.view().nodes() * self.attention.width())
    }

    fn fast(&self, graph: &OwnedGraph, dropout: Option<GraphDropout>, pass: &mut AttentionPass) -> Results {
        let scope = Device::cpu().scope("fast");
        let mut packed = PackedAttention::new(&scope, &self.attention, Passes::ForwardAndBackward).unwrap();
        packed.pack(&self.attention, &self.parameters);
        let nodes = Nodes { graph: graph.view(), x: &graph.x, dropout };
        let y = pass.forward(&self.attention, &packed, nodes).to_vec();
        let mut gradients = TensorSet::zeros(&scope, self.parameters.layout()).unwrap();
        let mut d_x = vec![f32::NAN; graph.x.len()];
        let node_gradients = NodeGradients { d_output: &self.d_output(graph), d_x: Some(&mut d_x) };
        pass.backward(&self.attention, &self.parameters, &packed, nodes, node_gradients, &mut gradients);
        (y, d_x, gradients.values().to_vec())
    }

    fn plain(&self, graph: &OwnedGraph, dropout: Option<GraphDropout>) -> [Vec<f64>; 3] {
        self.plain_of(&wide(&graph.x), graph, dropout)
    }

    /// Distance of the plain form's results for inputs that differ by `shift` in twelve directions,
    /// one way and the other. Elsewhere than at a kink of an activation, that is about `shift`; a
    /// number that is rounded to the other side of a kink moves the gradients as far as that. One
    /// direction would not do: it may leave that number where it is.
    fn sway(&self, graph: &OwnedGraph, shift: f64, dropout: Option<GraphDropout>) -> [Vec<f64>; 3] {
        let moved = |direction: u64, shift: f64| {
            let noise = numbers(direction, "sway", graph.x.len());
            let x: Vec<f64> =
                graph.x.iter().zip(&noise).map(|(&x, &noise)| f64::from(x) + shift * f64::from(noise)).collect();
            self.plain_of(&x, graph, dropout)
        };
        let all: Vec<_> = (0..12).flat_map(|direction| [moved(direction, shift), moved(direction, -shift)]).collect();
        std::array::from_fn(|k| {
            let range = |index: usize| {
                let values = all.iter().map(|results| results[k][index]);
                values.clone().fold(f64::MIN, f64::max) - values.fold(f64::MAX, f64::min)
            };
            (0..all[0][k].len()).map(range).collect()
        })
    }

    fn plain_of(&self, x: &[f64], graph: &OwnedGraph, dropout: Option<GraphDropout>) -> [Vec<f64>; 3] {
        let scope = Device::cpu().scope("plain");
        let mut parameters = TensorSet::zeros(&scope, self.parameters.layout()).unwrap();
        parameters.values_mut().copy_from_slice(&wide(self.parameters.values()));
        let nodes = Nodes { graph: graph.view(), x, dropout };
        let mut memory = self
            .attention
            .memory(&scope, nodes.graph.nodes(), nodes.graph.edges(), Passes::ForwardAndBackward)
            .unwrap();
        let y = self.attention.forward(&parameters, nodes, &mut memory).to_vec();
        let mut gradients = TensorSet::zeros(&scope, self.parameters.layout()).unwrap();
        let mut d_x = vec![f64::NAN; x.len()];
        let node_gradients = NodeGradients { d_output: &wide(&self.d_output(graph)), d_x: Some(&mut d_x) };
        self.attention.backward(&parameters, nodes, node_gradients, &mut gradients, &mut memory);
        [y, d_x, gradients.values().to_vec()]
    }

    fn pass(&self, isa: Isa, capacity: (usize, usize)) -> AttentionPass {
        let scope = Device::cpu().scope("pass");
        AttentionPass {
            isa,
            ..AttentionPass::new(&scope, &self.attention, capacity.0, capacity.1, Passes::ForwardAndBackward).unwrap()
        }
    }
}

fn configs() -> impl Strategy<Value = GraphConfig> {
    let kinds = prop_oneof![Just(AttentionKind::Gat), Just(AttentionKind::GatV2)];
    let outputs = prop_oneof![Just(GraphOutput::Linear), Just(GraphOutput::Attention)];
    let activations = prop_oneof![Just(GraphActivation::Elu), Just(GraphActivation::Relu)];
    let rate = || prop_oneof![Just(0.0f32), 0.1f32..0.7];
    let hidden = prop_oneof![1usize..8, Just(16), 15usize..90];
    let sizes = (1usize..4, 1usize..20, hidden, 1usize..6);
    let choices = (kinds, outputs, activations, any::<bool>(), any::<bool>());
    (sizes, choices, rate(), rate()).prop_map(
        |((layers, heads, hidden, output_heads), (kind, output, activation, residual, self_loops), d, a)| GraphConfig {
            kind,
            layers,
            heads,
            hidden,
            output,
            output_heads,
            activation,
            residual,
            dropout: d,
            attention_dropout: a,
            negative_slope: 0.2,
            self_loops,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Sums of up to 1,800 products through up to three layers, at 6e-8 a rounding; their errors
    /// grow as the root of their number. Relative to the largest, because a softmax's gradients
    /// cancel; where all of them do, what is left is the rounding of terms of size one. Where a
    /// number lies so near to a kink that rounding takes it across, the gradients are as far off as
    /// the kink makes them.
    #[test]
    fn the_fast_form_equals_the_plain_one_on_every_instruction_set(
        config in configs(),
        (nodes, density) in (1usize..40, 0.0f32..0.5),
        sizes in (1usize..40, 0usize..4),
        seed in 0u64..1000,
    ) {
        let problem = Problem::new(config, sizes, seed);
        let graph = problem.graph(seed, nodes, density);
        let dropout = Some(GraphDropout::of_step(seed, 2, 11));
        let expected = problem.plain(&graph, dropout);
        // Asked for where it is needed only, for it is two dozen runs of the plain form.
        let sway = OnceCell::new();
        for isa in Isa::all() {
            let mut pass = problem.pass(isa, (nodes, graph.view().edges()));
            let (y, d_x, gradients) = problem.fast(&graph, dropout, &mut pass);
            for (k, (name, got)) in [("y", &y), ("d_x", &d_x), ("gradients", &gradients)].into_iter().enumerate() {
                let largest = expected[k].iter().fold(0.0, |m: f64, x| m.max(x.abs()));
                let rounding = 2e-5 * largest + 2.5e-7;
                for (index, (&got, &expected)) in got.iter().zip(&expected[k]).enumerate() {
                    let error = (f64::from(got) - expected).abs();
                    let kink = || 2.0 * sway.get_or_init(|| problem.sway(&graph, 2e-5, dropout))[k][index];
                    let is_near = error <= rounding || error <= rounding + kink();
                    prop_assert!(is_near, "{}: {name}[{index}]: {got} for {expected}", isa.name());
                }
            }
        }
    }
}

/// The output of a graph is a function of it alone, to the bit: not of the capacity, nor of the
/// graphs that the memory was used for before.
#[test]
fn a_graph_leaves_no_trace_in_the_next() {
    let dropout = Some(GraphDropout::of_step(1, 2, 3));
    for kind in [AttentionKind::Gat, AttentionKind::GatV2] {
        let output = GraphOutput::Attention;
        let rates = (0.3, 0.4);
        let config = GraphConfig {
            kind,
            hidden: 20,
            output,
            dropout: rates.0,
            attention_dropout: rates.1,
            ..Default::default()
        };
        let problem = Problem::new(config, (7, 2), 4);
        let (small, large) = (problem.graph(5, 6, 0.3), problem.graph(6, 33, 0.4));
        for isa in Isa::all() {
            let mut own = problem.pass(isa, (6, small.view().edges()));
            let alone = problem.fast(&small, dropout, &mut own);
            let mut shared = problem.pass(isa, (40, 2000));
            let first = problem.fast(&large, dropout, &mut shared);
            assert_eq!(problem.fast(&small, dropout, &mut shared), alone, "{}", isa.name());
            assert_eq!(problem.fast(&large, dropout, &mut shared), first, "{}", isa.name());
        }
    }
}

#[test]
fn memory_is_what_is_computed_beforehand() {
    for (kind, output) in [(AttentionKind::Gat, GraphOutput::Linear), (AttentionKind::GatV2, GraphOutput::Attention)] {
        for passes in [Passes::Forward, Passes::ForwardAndBackward] {
            let config =
                GraphConfig { kind, output, dropout: 0.5, residual: true, output_heads: 3, ..Default::default() };
            let problem = Problem::new(config, (7, 2), 4);
            let device = Device::cpu();
            let allocated = |scope: &str| device.scope(scope).usage().allocated_bytes;
            let _pass = AttentionPass::new(&device.scope("pass"), &problem.attention, 20, 90, passes).unwrap();
            assert_eq!(allocated("pass"), 4 * AttentionPass::len(&problem.attention, 20, 90, passes));
            let _packed = PackedAttention::new(&device.scope("packed"), &problem.attention, passes).unwrap();
            assert_eq!(allocated("packed"), 4 * PackedAttention::len(&problem.attention, passes));
            let plain: Result<crate::graph::AttentionMemory<f64>> =
                problem.attention.memory(&device.scope("plain"), 20, 90, passes);
            assert!(plain.is_ok());
            assert_eq!(allocated("plain"), 8 * problem.attention.memory_len(20, 90, passes));
        }
    }
}
