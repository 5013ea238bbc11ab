//! The CPU engine against the oracle: models over graphs with norms, pooling, fusion and dropout
//! between LSTM layers, in every combination.

use std::error::Error as StdError;

use megabatch_gpu_core::Device;
use megabatch_nn::batch::{BatchStorage, BatchView, WindowOffsets};
use megabatch_nn::graph::{EdgeForm, GraphBatch, GraphView, Graphs};
use megabatch_nn::loss::{Loss, Objective, labelled_rows};
use megabatch_nn::model::{
    AttentionKind, Dropout, Fusion, GraphConfig, Model, ModelConfig, Pooling, Readout, SampleShape, StepDropout,
    StepSeed, TensorSet, Timeframe,
};
use megabatch_nn_cpu::{Changes, CheckpointPolicy, Compute, Engine, Purpose, Totals};
use megabatch_reference::{Graph, GraphDropout, Inputs, Reference, loss_of_graphs};
use megabatch_segment::{Compressed, Csc};
use proptest::prelude::*;

const STEP: StepSeed = StepSeed { seed: 3, step: 14 };

/// Numbers in (-1, 1) without pattern: the sines of a growing argument.
fn numbers(seed: u64, len: usize) -> Vec<f32> {
    (0..len).map(|i| (i as f64 * 12.9898 + seed as f64 * 78.233 + 1.0).sin() as f32).collect()
}

fn wide(values: &[f32]) -> Vec<f64> {
    values.iter().copied().map(f64::from).collect()
}

/// A graph that owns its arrays.
struct OwnedGraph {
    samples: Vec<usize>,
    received: Compressed<u32>,
    given: Compressed<u32>,
    attributes: Vec<f32>,
}

/// Graphs whose nodes, graph after graph, are all samples.
struct OwnedGraphs(Vec<OwnedGraph>);

/// A node that receives and the one that gives.
type Edge = (u32, u32);

impl OwnedGraphs {
    /// Graphs of so many nodes with these edges, whose nodes are counted round.
    fn new(graphs: &[(usize, Vec<Edge>)]) -> Self {
        let mut first = 0;
        let graph = |(index, (nodes, edges)): (usize, &(usize, Vec<Edge>))| {
            let count = *nodes as u32;
            let (dst, src): (Vec<u32>, Vec<u32>) = edges.iter().map(|&(dst, src)| (dst % count, src % count)).unzip();
            let received = Compressed::from_edges(&dst, &src, *nodes, *nodes).unwrap();
            let given = received.csr(*nodes).unwrap().transposed().unwrap();
            first += nodes;
            let attributes = numbers(5 + index as u64, 2 * edges.len());
            OwnedGraph { samples: (first - nodes..first).collect(), received, given, attributes }
        };
        OwnedGraphs(graphs.iter().enumerate().map(graph).collect())
    }

    fn samples(&self) -> usize {
        self.0.iter().map(|graph| graph.samples.len()).sum()
    }

    /// The same for the oracle.
    fn described(&self, drops: bool) -> Vec<Graph> {
        let graph = |(index, owned): (usize, &OwnedGraph)| {
            let csr = owned.received.csr(owned.samples.len()).unwrap();
            let received = |node: usize| csr.edges_of(node).map(move |edge| (node, csr.col()[edge] as usize));
            let (dst, src) = (0..owned.samples.len()).flat_map(received).unzip();
            let dropout = GraphDropout { seed: STEP.seed, step: STEP.step, graph: index };
            let dropout = drops.then_some(dropout);
            Graph { nodes: owned.samples.len(), src, dst, attributes: wide(&owned.attributes), dropout }
        };
        self.0.iter().enumerate().map(graph).collect()
    }
}

impl Graphs for OwnedGraphs {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn nodes(&self, graph: usize) -> &[usize] {
        &self.0[graph].samples
    }

    fn graph(&self, graph: usize) -> Result<GraphView<'_>, Box<dyn StdError + Send + Sync>> {
        let OwnedGraph { samples, received, given, attributes } = &self.0[graph];
        let csc = Csc::new(&given.offsets, &given.indices, &given.edges, samples.len())?;
        Ok(GraphView { csr: received.csr(samples.len())?, csc, attributes })
    }

    fn edge_attributes(&self) -> usize {
        2
    }

    fn largest(&self) -> (usize, usize) {
        let most = |size: fn(&OwnedGraph) -> usize| self.0.iter().map(size).max().unwrap();
        (most(|graph| graph.samples.len()), most(|graph| graph.attributes.len() / 2))
    }

    fn total_edges(&self) -> usize {
        self.0.iter().map(|graph| graph.attributes.len() / 2).sum()
    }

    fn labelled(&self, _: usize) -> usize {
        unreachable!("a trainer counts the terms of a loss")
    }
}

/// A model and all that its loss depends on.
struct Problem {
    model: Model,
    parameters: TensorSet,
    graphs: OwnedGraphs,
    bars: Vec<Vec<f32>>,
    targets: Vec<f32>,
    loss: Loss,
    drops: bool,
}

/// Outputs of a prediction; loss and gradients of training, the parameters' one after another.
struct Results {
    outputs: Vec<f64>,
    loss: f64,
    gradients: Vec<f64>,
}

/// Rate of dropout between LSTM layers.
const RATE: f32 = 0.3;

impl Problem {
    fn new(model: Model, graphs: &[(usize, Vec<Edge>)], loss: Loss, drops: bool) -> Self {
        let graphs = OwnedGraphs::new(graphs);
        let mut parameters = model.initial_parameters(&Device::cpu().scope("problem"), 3).unwrap();
        // Biases of zero would hide that they are left out.
        let noise = numbers(77, model.layout().len());
        parameters.values_mut().iter_mut().zip(noise).for_each(|(value, noise)| *value += 0.05 * noise);
        let timeframes = (1..).zip(&model.shape().timeframes);
        let samples = graphs.samples();
        let mut targets = numbers(99, samples * model.shape().outputs);
        // A node without a label.
        targets.iter_mut().skip(2 * model.shape().outputs).take(1).for_each(|target| *target = f32::NAN);
        Problem {
            bars: timeframes.map(|(k, timeframe)| numbers(k, samples * timeframe.steps * timeframe.features)).collect(),
            model,
            parameters,
            graphs,
            targets,
            loss,
            drops,
        }
    }

    /// Targets of a graph's outputs: those of its nodes, or of the first for all.
    fn targets_of(&self, samples: std::ops::Range<usize>) -> &[f32] {
        let (width, sample_range) = (self.model.shape().outputs, samples.start..samples.start + 1);
        let rows = if self.model.config().readout == Some(Readout::Node) { samples } else { sample_range };
        &self.targets[rows.start * width..rows.end * width]
    }

    /// The targets graph after graph.
    fn targets_by_graph(&self) -> Vec<&[f32]> {
        let ranges = self.graphs.0.iter().map(|graph| graph.samples[0]..graph.samples[0] + graph.samples.len());
        ranges.map(|samples| self.targets_of(samples)).collect()
    }

    /// By the engine, on two threads.
    fn found(&self) -> Results {
        self.found_by(2)
    }

    /// By the engine.
    fn found_by(&self, threads: usize) -> Results {
        let (model, shape, samples) = (&self.model, self.model.shape(), self.graphs.samples());
        let mut offsets = WindowOffsets::with_capacity(shape, samples);
        offsets.lay_windows(shape, samples);
        offsets.end_at_samples(&(0..samples).collect::<Vec<_>>());
        let features = self.bars.iter().map(Vec::as_slice).collect();
        let batch = BatchView::new(shape, features, &offsets, BatchStorage::Windows, &self.targets);
        let indices: Vec<usize> = (0..self.graphs.len()).collect();
        let graph_batch = GraphBatch::read(&self.graphs, &indices, EdgeForm::Views).unwrap();
        let batch = batch.with_graphs(Some(&graph_batch));

        let device = Device::cpu();
        let purpose = Purpose::Training { dropout: self.drops, runs: None, kept: CheckpointPolicy::Everything };
        let compute = Compute { threads, batch_size: self.graphs.len() };
        let mut engine = Engine::new(&device, model, compute, purpose, megabatch_amp::Precision::Fp32).unwrap();
        engine.ensure_batch_capacity(model, Some(&self.graphs)).unwrap();
        engine.load(model, &self.parameters);
        let mut outputs = vec![f32::NAN; batch.outputs_len(model)];
        engine.predict(model, &self.parameters, &batch, &mut outputs);

        let between_layers = self.drops.then(|| Dropout::for_step(RATE, STEP.seed, STEP.step).unwrap());
        let dropout = StepDropout { between_layers, in_graphs: STEP };
        let objective = Objective { loss: self.loss, count: self.count(), position: 0, dropout, scale: 1.0 };
        let mut gradients = TensorSet::zeros(&device.scope("gradients"), model.layout()).unwrap();
        let changes = Changes { gradients: &mut gradients, carried: None };
        let totals = engine.accumulate(model, &self.parameters, &batch, objective, changes, Totals::default());
        let loss = totals.loss_sum / self.count() as f64;
        Results { outputs: wide(&outputs), loss, gradients: wide(gradients.values()) }
    }

    /// Terms of the loss, or 1.
    fn count(&self) -> usize {
        let width = self.model.shape().outputs;
        let graph_terms = |targets: &[f32]| self.loss.graph_terms(labelled_rows(targets, width), width);
        self.targets_by_graph().into_iter().map(graph_terms).sum::<usize>().max(1)
    }

    /// By the oracle, from parameters and bars that are shifted by `shift` times a number of the
    /// direction `direction`.
    fn expected(&self, shift: f64, direction: u64) -> Results {
        let mut reference = Reference::new(&self.model, &self.parameters);
        for (name, _) in self.model.layout().tensors() {
            add_noise(reference.parameter_mut(name).unwrap(), shift, direction);
        }
        let mut bars: Vec<Vec<f64>> = self.bars.iter().map(|bars| wide(bars)).collect();
        bars.iter_mut().for_each(|bars| add_noise(bars, shift, direction));
        let mut inputs = Inputs::from_windows(self.model.shape(), self.graphs.samples(), bars);
        inputs.graphs = self.graphs.described(false);
        let outputs = reference.forward(&inputs).outputs;

        inputs.graphs = self.graphs.described(true);
        inputs.dropout = self.drops.then(|| Dropout::for_step(RATE, STEP.seed, STEP.step).unwrap());
        let (dropped, width) = (reference.forward(&inputs).outputs, self.model.shape().outputs);
        let targets: Vec<Vec<f64>> = self.targets_by_graph().into_iter().map(wide).collect();
        let mut rest = dropped.as_slice();
        let mut graph_gradient = |targets: &Vec<f64>| rest.split_off(..targets.len()).unwrap();
        let graph_gradients: Vec<_> =
            targets.iter().map(|targets| (graph_gradient(targets), targets.as_slice())).collect();
        let loss = loss_of_graphs(self.loss, &graph_gradients, width);
        let gradients = reference.gradients(&inputs, &loss.gradient).parameters;
        let gradients = self.model.layout().tensors().flat_map(|(name, _)| gradients[name].clone()).collect();
        Results { outputs, loss: loss.mean, gradients }
    }

    /// Single precision: sums of some dozens of products through all layers, at 6e-8 a rounding,
    /// which norms of a few numbers make larger. Where a number lies so near to a kink of an
    /// activation, or to another one that a maximum is taken over, that rounding takes it across,
    /// results are as far off as they are for inputs that differ as much.
    fn check(&self) -> Result<(), TestCaseError> {
        let (found, expected) = (self.found().parts(), self.expected(0.0, 0).parts());
        let sway = std::cell::OnceCell::new();
        let shifted =
            || -> Vec<_> { (0..8).flat_map(|k| [1e-5, -1e-5].map(|by| self.expected(by, k).parts())).collect() };
        for (part, (found, expected)) in found.iter().zip(&expected).enumerate() {
            prop_assert_eq!(found.len(), expected.len());
            let largest = expected.iter().fold(0.1, |most: f64, x| most.max(x.abs()));
            for (i, (&found, &expected)) in found.iter().zip(expected).enumerate() {
                let error = (found - expected).abs();
                let kink = || {
                    let all = sway.get_or_init(shifted).iter().map(|parts| (parts[part][i] - expected).abs());
                    4.0 * all.fold(0.0, f64::max)
                };
                let is_near = error <= 2e-5 * largest || error <= 2e-5 * largest + kink();
                prop_assert!(is_near, "part {}, number {}: {} for {}", part, i, found, expected);
            }
        }
        Ok(())
    }
}

impl Results {
    fn parts(self) -> [Vec<f64>; 3] {
        [self.outputs, vec![self.loss], self.gradients]
    }
}

fn add_noise(to: &mut [f64], shift: f64, direction: u64) {
    let noise = numbers(1000 + direction, to.len());
    to.iter_mut().zip(noise).for_each(|(x, noise)| *x += shift * f64::from(noise));
}

fn graphs() -> impl Strategy<Value = Vec<(usize, Vec<Edge>)>> {
    let edges = prop::collection::vec((any::<u32>(), any::<u32>()), 0..14);
    prop::collection::vec((1usize..7, edges), 1..4)
}

/// Every combination of the parts of a model, over windows of timeframes.
fn configs() -> impl Strategy<Value = ModelConfig> {
    let readouts = prop::sample::select(vec![Readout::Node, Readout::Mean, Readout::Sum, Readout::Max]);
    let attention = prop::option::weighted(0.5, (any::<bool>(), any::<bool>()));
    let choices = (any::<bool>(), any::<bool>(), any::<bool>());
    ((2usize..5, 1usize..3), choices, attention, readouts).prop_map(
        |((width, layers), (layer_norm, pools, fuses), attention, readout)| {
            let graph = |(v2, _): (bool, bool)| GraphConfig {
                attention: if v2 { AttentionKind::GatV2 } else { AttentionKind::Gat },
                layers: 2,
                heads: 2,
                hidden: 3,
                dropout: 0.3,
                attention_dropout: 0.2,
                ..GraphConfig::default()
            };
            ModelConfig {
                hidden: 2 * width,
                layers,
                layer_norm,
                pooling: if pools { Pooling::Attention { heads: 2 } } else { Pooling::Last },
                fusion: if fuses { Fusion::Attention { heads: 2, feed_forward: 2 } } else { Fusion::Concat },
                graph: attention.map(graph),
                graph_edge_attributes: if matches!(attention, Some((_, true))) { 2 } else { 0 },
                readout: Some(readout),
                ..ModelConfig::default()
            }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn outputs_and_gradients_are_the_oracles(
        config in configs(),
        windows in prop::collection::vec((1usize..6, 1usize..4), 1..4),
        outputs in 1usize..4,
        graphs in graphs(),
        loss in prop::sample::select(vec![Loss::Mse, Loss::CrossEntropy, Loss::RankPairwise]),
        drops in any::<bool>(),
    ) {
        prop_assume!(loss.check_readout(config.readout).is_ok());
        let timeframe = |k: usize, steps, features| Timeframe { name: format!("T{k}"), steps, features };
        let timeframes = windows.iter().enumerate().map(|(k, &(steps, features))| timeframe(k, steps, features));
        let shape = SampleShape { timeframes: timeframes.collect(), outputs };
        Problem::new(Model::new(shape, config).unwrap(), &graphs, loss, drops).check()?;
    }
}

/// One graph, whose tasks and loops several threads share.
#[test]
fn a_graph_has_the_bits_of_one_thread_for_any_number() {
    let edges: Vec<Edge> = (0..900u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 9, n * n)).collect();
    let timeframe = |steps, features| Timeframe { name: format!("T{steps}"), steps, features };
    for (kind, edge_attributes, fusion, readout, layer_norm) in [
        (AttentionKind::Gat, 0, Fusion::Concat, Readout::Node, false),
        (AttentionKind::Gat, 2, Fusion::Attention { heads: 2, feed_forward: 2 }, Readout::Max, false),
        (AttentionKind::GatV2, 2, Fusion::Concat, Readout::Node, true),
        (AttentionKind::GatV2, 0, Fusion::Concat, Readout::Mean, false),
    ] {
        let (heads, hidden) = (3, 20);
        let graph = GraphConfig {
            attention: kind,
            heads,
            hidden,
            dropout: 0.3,
            attention_dropout: 0.2,
            ..GraphConfig::default()
        };
        let config = ModelConfig {
            hidden: 24,
            layers: 2,
            layer_norm,
            fusion,
            graph: Some(graph),
            graph_edge_attributes: edge_attributes,
            readout: Some(readout),
            ..ModelConfig::default()
        };
        let shape = SampleShape { timeframes: vec![timeframe(12, 6), timeframe(5, 3)], outputs: 2 };
        let problem = Problem::new(Model::new(shape, config).unwrap(), &[(150, edges.clone())], Loss::Mse, true);
        let expected = problem.found_by(1).parts();
        for threads in [2, 3, 7, 16] {
            assert!(problem.found_by(threads).parts() == expected, "{kind:?}, {edge_attributes}, {threads} threads");
        }
    }
}
