//! Graph attention against the oracle, on every instruction set, and against itself.

use std::cell::OnceCell;
use std::sync::Arc;

use megabatch_gpu_core::Device;
use megabatch_nn::graph::{GraphDropout, GraphView};
use megabatch_nn::model::graph::{AttentionKind, GraphActivation, GraphConfig, GraphOutput};
use megabatch_nn::model::{Encoder, Layout, Model, ModelConfig, Readout, SampleShape, Timeframe};
use megabatch_order::random::{Stream, uniform};
use megabatch_reference::{Graph, Inputs, Reference, parts, wide};
use megabatch_segment::{Compressed, Csc, Csr};
use proptest::prelude::*;

use super::*;

/// Numbers in (-1, 1).
fn numbers(seed: u64, name: &str, len: usize) -> Vec<f32> {
    (0..len as u64).map(|i| 2.0 * uniform(Stream { seed, name }, i) as f32 - 1.0).collect()
}

/// A graph that owns its arrays, some of whose nodes receive from themselves.
struct OwnedGraph {
    row_ptr: Vec<u32>,
    col: Vec<u32>,
    transposed: Compressed<u32>,
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
        let transposed = Csr::new(&row_ptr, &col, nodes).unwrap().transposed().unwrap();
        let attributes = numbers(seed, "attributes", col.len() * attributes);
        OwnedGraph { row_ptr, col, transposed, attributes, x: numbers(seed, "x", nodes * width) }
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

/// Numbers of a node and attributes of an edge.
#[derive(Clone, Copy, Debug)]
struct NodeWidths {
    features: usize,
    attributes: usize,
}

/// Outputs of a node where attention gives them.
const OUTPUTS: usize = 5;

/// Seed, step and graph of the dropout.
const DROPOUT: megabatch_reference::GraphDropout = megabatch_reference::GraphDropout { seed: 77, step: 2, graph: 11 };

/// Attention and its weights.
struct Problem {
    attention: GraphAttention,
    parameters: TensorSet,
    sizes: NodeWidths,
}

/// Output, gradient of the input, gradients of the parameters.
type Results = (Vec<f32>, Vec<f32>, Vec<f32>);

impl Problem {
    fn new(config: GraphConfig, sizes: NodeWidths, seed: u64) -> Self {
        let mut layout = Layout::default();
        let attention = GraphAttention::new(config, sizes.features, sizes.attributes, OUTPUTS, &mut layout);
        let mut parameters = TensorSet::zeros(&Device::cpu().scope("problem"), &Arc::new(layout)).unwrap();
        attention.initial(seed, &mut parameters);
        // Biases of zero would hide that they are left out.
        let noise = numbers(seed, "bias", parameters.values().len());
        parameters.values_mut().iter_mut().zip(noise).for_each(|(x, noise)| *x += 0.1 * noise);
        Problem { attention, parameters, sizes }
    }

    fn graph(&self, seed: u64, nodes: usize, density: f32) -> OwnedGraph {
        OwnedGraph::new(seed, nodes, density, self.sizes.features, self.sizes.attributes)
    }

    fn d_output(&self, graph: &OwnedGraph) -> Vec<f32> {
        numbers(9, "d_output", graph.view().nodes() * self.attention.width())
    }

    fn run(&self, graph: &OwnedGraph, pass: &mut AttentionPass) -> Results {
        self.run_by(ThreadTeam::alone(), graph, pass)
    }

    fn run_by(&self, team: &ThreadTeam, graph: &OwnedGraph, pass: &mut AttentionPass) -> Results {
        let scope = Device::cpu().scope("run");
        let dropout = Some(GraphDropout::for_step(DROPOUT.seed, DROPOUT.step, DROPOUT.graph));
        let mut packed = PackedAttention::new(&scope, &self.attention, Passes::ForwardAndBackward).unwrap();
        packed.pack(&self.attention, &self.parameters);
        let nodes = Nodes { graph: graph.view(), x: &graph.x, dropout, team };
        let y = pass.forward(&self.attention, &packed, nodes).to_vec();
        let mut gradients = TensorSet::zeros(&scope, self.parameters.layout()).unwrap();
        let mut d_x = vec![f32::NAN; graph.x.len()];
        let node_gradients = NodeGradients { d_output: &self.d_output(graph), d_x: Some(&mut d_x) };
        pass.backward(&self.attention, &self.parameters, &packed, nodes, node_gradients, &mut gradients);
        (y, d_x, gradients.values().to_vec())
    }

    fn expected(&self, graph: &OwnedGraph) -> [Vec<f64>; 3] {
        self.expected_of(wide(&graph.x), graph)
    }

    /// Distance of the oracle's results for inputs that differ by `shift` in twelve directions,
    /// one way and the other. Elsewhere than at a kink of an activation, that is about `shift`; a
    /// number that is rounded to the other side of a kink moves the gradients as far as that. One
    /// direction would not do: it may leave that number where it is.
    fn sway(&self, graph: &OwnedGraph, shift: f64) -> [Vec<f64>; 3] {
        let moved = |direction: u64, shift: f64| {
            let noise = numbers(direction, "sway", graph.x.len());
            let x = graph.x.iter().zip(&noise).map(|(&x, &noise)| f64::from(x) + shift * f64::from(noise)).collect();
            self.expected_of(x, graph)
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

    /// Output, gradient of the input and gradients of the parameters: a model without an encoder,
    /// whose head is the identity.
    fn expected_of(&self, x: Vec<f64>, graph: &OwnedGraph) -> [Vec<f64>; 3] {
        let timeframe = Timeframe { name: String::new(), steps: 1, features: self.sizes.features };
        let shape = SampleShape { timeframes: vec![timeframe], outputs: self.attention.width() };
        let config = ModelConfig {
            encoder: Encoder::LastBar,
            graph: Some(*self.attention.config()),
            graph_edge_attributes: self.sizes.attributes,
            readout: Some(Readout::Node),
            ..ModelConfig::default()
        };
        let model = Model::new(shape, config).unwrap();
        let reference = Reference::with_identity_head(&model, |name| self.parameters.get(name).unwrap());

        let edges = (0..graph.row_ptr.len() - 1).flat_map(|node| {
            let received = graph.row_ptr[node] as usize..graph.row_ptr[node + 1] as usize;
            graph.col[received].iter().map(move |&src| (node, src as usize))
        });
        let (dst, src) = edges.unzip();
        let nodes = graph.row_ptr.len() - 1;
        let attributes = wide(&graph.attributes);
        let mut inputs = Inputs::from_windows(model.shape(), nodes, [x]);
        inputs.graphs = vec![Graph { nodes, src, dst, attributes, dropout: Some(DROPOUT) }];
        let outputs = reference.forward(&inputs).outputs;
        let mut gradients = reference.gradients(&inputs, &wide(&self.d_output(graph)));
        let parameter_gradients = parts::in_order(self.parameters.layout(), &gradients.parameters);
        [outputs, gradients.bars.swap_remove(0), parameter_gradients]
    }

    fn pass(&self, isa: Isa, nodes: usize, edges: usize) -> AttentionPass {
        let scope = Device::cpu().scope("pass");
        let pass = AttentionPass::new(&scope, &self.attention, nodes, edges, Passes::ForwardAndBackward).unwrap();
        AttentionPass { isa, ..pass }
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
        |((layers, heads, hidden, output_heads), (attention, output, activation, residual, self_loops), d, a)| {
            GraphConfig {
                attention,
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
            }
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
    fn every_instruction_set_computes_what_the_oracle_does(
        config in configs(),
        nodes in 1usize..40,
        density in 0.0f32..0.5,
        features in 1usize..40,
        attributes in 0usize..4,
        seed in 0u64..1000,
    ) {
        let problem = Problem::new(config, NodeWidths { features, attributes }, seed);
        let graph = problem.graph(seed, nodes, density);
        let expected = problem.expected(&graph);
        // Asked for where it is needed only, for it is two dozen runs of the oracle.
        let sway = OnceCell::new();
        for isa in Isa::all() {
            let mut pass = problem.pass(isa, nodes, graph.view().edges());
            let (y, d_x, gradients) = problem.run(&graph, &mut pass);
            for (k, (name, got)) in [("y", &y), ("d_x", &d_x), ("gradients", &gradients)].into_iter().enumerate() {
                let largest = expected[k].iter().fold(0.0, |m: f64, x| m.max(x.abs()));
                let rounding = 2e-5 * largest + 2.5e-7;
                for (index, (&got, &expected)) in got.iter().zip(&expected[k]).enumerate() {
                    let error = (f64::from(got) - expected).abs();
                    let kink = || 2.0 * sway.get_or_init(|| problem.sway(&graph, 2e-5))[k][index];
                    let is_near = error <= rounding || error <= rounding + kink();
                    prop_assert!(is_near, "{}: {name}[{index}]: {got} for {expected}", isa.name());
                }
            }
        }
    }

    #[test]
    fn a_team_has_the_bits_of_one_thread(
        config in configs(),
        nodes in 1usize..120,
        density in 0.0f32..0.3,
        features in 1usize..40,
        attributes in 0usize..4,
        seed in 0u64..1000,
        threads in prop::sample::select(vec![2usize, 3, 7, 16]),
    ) {
        let problem = Problem::new(config, NodeWidths { features, attributes }, seed);
        let graph = problem.graph(seed, nodes, density);
        for isa in Isa::all() {
            let mut pass = problem.pass(isa, nodes, graph.view().edges());
            let bits = |(y, d_x, gradients): Results| {
                [y, d_x, gradients].map(|values| values.into_iter().map(f32::to_bits).collect::<Vec<_>>())
            };
            let expected = bits(problem.run(&graph, &mut pass));
            let found = bits(problem.run_by(&ThreadTeam::new(threads), &graph, &mut pass));
            prop_assert!(found == expected, "{} threads, {}", threads, isa.name());
        }
    }
}

/// The output of a graph is a function of it alone, to the bit: not of the capacity, nor of the
/// graphs that the memory was used for before.
#[test]
fn a_graph_leaves_no_trace_in_the_next() {
    for kind in [AttentionKind::Gat, AttentionKind::GatV2] {
        let output = GraphOutput::Attention;
        let config = GraphConfig {
            attention: kind,
            hidden: 20,
            output,
            dropout: 0.3,
            attention_dropout: 0.4,
            ..Default::default()
        };
        let problem = Problem::new(config, NodeWidths { features: 7, attributes: 2 }, 4);
        let (small, large) = (problem.graph(5, 6, 0.3), problem.graph(6, 33, 0.4));
        for isa in Isa::all() {
            let mut own = problem.pass(isa, 6, small.view().edges());
            let alone = problem.run(&small, &mut own);
            let mut shared = problem.pass(isa, 40, 2000);
            let first = problem.run(&large, &mut shared);
            assert_eq!(problem.run(&small, &mut shared), alone, "{}", isa.name());
            assert_eq!(problem.run(&large, &mut shared), first, "{}", isa.name());
        }
    }
}

#[test]
fn memory_is_what_is_computed_beforehand() {
    for (kind, output) in [(AttentionKind::Gat, GraphOutput::Linear), (AttentionKind::GatV2, GraphOutput::Attention)] {
        for passes in [Passes::Forward, Passes::ForwardAndBackward] {
            let config = GraphConfig {
                attention: kind,
                output,
                dropout: 0.5,
                residual: true,
                output_heads: 3,
                ..Default::default()
            };
            let problem = Problem::new(config, NodeWidths { features: 7, attributes: 2 }, 4);
            let device = Device::cpu();
            let allocated = |scope: &str| device.scope(scope).usage().allocated_bytes;
            let bytes = |lens: Vec<usize>| 4 * lens.iter().sum::<usize>();
            let _pass = AttentionPass::new(&device.scope("pass"), &problem.attention, 20, 90, passes).unwrap();
            assert_eq!(allocated("pass"), bytes(AttentionPass::lens(&problem.attention, 20, 90, passes)));
            let _packed = PackedAttention::new(&device.scope("packed"), &problem.attention, passes).unwrap();
            assert_eq!(allocated("packed"), bytes(PackedAttention::lens(&problem.attention, passes)));
        }
    }
}
