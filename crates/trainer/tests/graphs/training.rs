//! Training over graphs: the same result whatever the threads, the batches and the interruptions,
//! and that of the reference.

use std::ops::ControlFlow;

use megabatch_gpu_core::Device;
use megabatch_nn::graph::Graphs;
use megabatch_nn::loss::Loss;
use megabatch_nn::model::{
    AttentionKind, Cell, Dropout, Encoder, GraphActivation, GraphConfig, GraphOutput, ModelConfig, Readout,
};
use megabatch_reference::{Graph, GraphDropout, Inputs, LossValue, Reference, loss_of_graphs};
use megabatch_trainer::{
    Batch, Checkpoints, Config, Event, OptimizerConfig, OptimizerKind, Run, SampleRanges, Samples, Trainer,
};
use proptest::prelude::*;

use crate::made_up::{GraphSamples, bits, market, trained, trained_on};

pub(crate) const LOSSES: [Loss; 5] = [
    Loss::Mse,
    Loss::Huber { delta: 0.5 },
    Loss::CrossEntropy,
    Loss::RankPairwise,
    Loss::RankListwise { temperature: 0.5 },
];

fn graph() -> GraphConfig {
    GraphConfig { heads: 2, hidden: 3, dropout: 0.2, attention_dropout: 0.3, ..GraphConfig::default() }
}

/// An LSTM of two layers under attention, with dropout everywhere; tests change what they are
/// about.
pub(crate) fn config() -> Config {
    let model = ModelConfig {
        hidden: 5,
        layers: 2,
        graph: Some(graph()),
        graph_edge_attributes: 2,
        readout: Some(Readout::Node),
        ..ModelConfig::default()
    };
    Config { model, dropout: 0.25, batch_size: 4, run_length: Some(1), threads: 2, seed: 11, ..Config::default() }
}

/// The targets that `loss` takes: class labels for cross entropy, the numbers as they are for
/// others.
pub(crate) fn with_targets_for(loss: Loss, mut samples: GraphSamples) -> GraphSamples {
    if loss == Loss::CrossEntropy {
        samples.classify();
    }
    samples
}

pub(crate) fn all(samples: &dyn Samples) -> SampleRanges {
    SampleRanges::from(0..samples.graphs().unwrap().len())
}

#[test]
fn the_number_of_threads_changes_no_bit() {
    let samples = market(26);
    let with = |threads| {
        let (trainer, losses) =
            trained(&Config { batch_size: 7, threads, epochs: 2, ..config() }, &samples, &all(&samples));
        (bits(&trainer), losses)
    };
    let one = with(1);
    for threads in [2, 3, 9] {
        assert!(with(threads) == one, "{threads} threads");
    }
}

#[test]
fn accumulated_batches_are_one_large_batch() {
    for loss in LOSSES {
        let samples = with_targets_for(loss, market(30));
        let with = |batch_size, gradient_accumulation_steps| {
            let config = Config { batch_size, gradient_accumulation_steps, epochs: 2, loss, ..config() };
            bits(&trained(&config, &samples, &all(&samples)).0)
        };
        let large = with(12, 1);
        for (batch_size, gradient_accumulation_steps) in [(6, 2), (4, 3), (1, 12)] {
            assert!(
                with(batch_size, gradient_accumulation_steps) == large,
                "{batch_size} x {gradient_accumulation_steps}, {loss:?}"
            );
        }
    }
}

#[test]
fn memory_that_runs_short_changes_no_bit() {
    let samples = market(26);
    let (config, all) = (Config { batch_size: 13, ..config() }, all(&samples));
    let (calm, calm_losses) = trained(&config, &samples, &all);
    let mut refused = 0;
    for request in 0..60 {
        let device = Device::cpu();
        device.refuse_requests(request..request + 1);
        match trained_on(&device, &config, &samples, &all) {
            Ok((trainer, losses)) => {
                assert!(bits(&trainer) == bits(&calm) && losses == calm_losses, "request {request}");
            }
            // Weights, gradients and moments, of which there is nothing to cut.
            Err(error) => {
                assert!(error.is_shortage() && request < 4, "request {request}: {error}");
                refused += 1;
            }
        }
    }
    assert_eq!(refused, 4);
}

#[test]
fn a_resumed_run_ends_in_the_same_bits() {
    let samples = market(26);
    let (train, validation): (SampleRanges, SampleRanges) = (0..26).partition(|day| day % 5 > 0);
    let config = Config { max_steps: Some(14), loss: Loss::RankPairwise, ..config() };
    let fresh = || Trainer::new(&Device::cpu(), config.clone(), samples.shape().clone()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let checkpoints = Checkpoints::new(folder.path());
    let run = Run { samples: &samples, train: &train, validation: &validation, checkpoints: None };
    let mut whole = fresh();
    let outcome = whole.train(&run, &mut |_| ControlFlow::Continue(())).unwrap();

    let run = Run { checkpoints: Some(&checkpoints), ..run };
    let stop = &mut |event: Event<'_>| match event {
        Event::Step(step) if step.step == 8 => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    };
    fresh().train(&run, stop).unwrap();
    let mut rest = fresh();
    let resumed = rest.resume(&run).unwrap().unwrap();
    assert_eq!((resumed.state.step, resumed.changed.len()), (8, 0));
    assert_eq!(rest.train(&run, &mut |_| ControlFlow::Continue(())).unwrap(), outcome);
    assert_eq!(bits(&rest), bits(&whole));

    // What decides how the next steps are made may change, and is told; what the weights mean may
    // not.
    let with = |change: fn(&mut GraphConfig)| {
        let mut other = config.clone();
        other.model.graph.iter_mut().for_each(change);
        Trainer::new(&Device::cpu(), other, samples.shape().clone()).unwrap().resume(&run)
    };
    let changed = with(|graph| graph.dropout = 0.5).unwrap().unwrap().changed;
    assert_eq!(changed[0].to_string(), "`graph_dropout` is 0.5, it was 0.2");
    let error = with(|graph| graph.residual = true).unwrap_err().to_string();
    assert!(error.contains("`graph_residual` false, but this run has true"), "{error}");
}

#[test]
fn what_is_not_labelled_counts_nowhere() {
    for loss in LOSSES {
        let plain = with_targets_for(loss, market(23));
        let mut other = with_targets_for(loss, market(23));
        other.change_targets(|targets| {
            // The first targets of nodes whose second is not known.
            targets.chunks_exact_mut(2).filter(|row| row[1].is_nan()).for_each(|row| row[0] += 1e3);
        });
        let with = |samples: &dyn Samples| bits(&trained(&Config { loss, ..config() }, samples, &all(samples)).0);
        assert!(with(&plain) == with(&other), "{loss:?}");
        // A step without any label changes nothing that is not shrunk by weight decay.
        let still = Config { loss, max_steps: Some(3), optimizer: sgd(1.0), ..config() };
        let (after, losses) = trained(&still, &plain, &SampleRanges::from_iter([10, 21]));
        let before = Trainer::new(&Device::cpu(), still, plain.shape().clone()).unwrap();
        assert_eq!((bits(&after), losses), (bits(&before), vec![0.0; 3]), "{loss:?}");
    }
}

fn sgd(lr: f64) -> OptimizerConfig {
    OptimizerConfig { kind: OptimizerKind::Sgd, lr, weight_decay: 0.0, ..OptimizerConfig::default() }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// The change of one optimizer step at the rate 1 is the gradient. The engine rounds sums of up
    /// to 500 terms of order 1.
    #[test]
    fn a_step_is_that_of_the_reference(
        (hidden, layers, [recurrent, gru]) in (1usize..20, 1usize..3, any::<[bool; 2]>()),
        (graph_layers, heads, units) in (1usize..4, 1usize..4, 1usize..9),
        [v2, attention_head, relu, residual, self_loops, drops, attributes, attends] in any::<[bool; 8]>(),
        readout in prop::sample::select(vec![Readout::Node, Readout::Mean, Readout::Sum, Readout::Max]),
        loss in 0usize..5, batch_size in 1usize..9,
    ) {
        let graph = GraphConfig {
            attention: if v2 { AttentionKind::GatV2 } else { AttentionKind::Gat },
            layers: graph_layers,
            heads,
            hidden: units,
            output: if attention_head { GraphOutput::Attention } else { GraphOutput::Linear },
            output_heads: heads,
            activation: if relu { GraphActivation::Relu } else { GraphActivation::Elu },
            residual,
            dropout: if drops { 0.3 } else { 0.0 },
            attention_dropout: if drops { 0.4 } else { 0.0 },
            self_loops,
            ..GraphConfig::default()
        };
        let loss = if readout == Readout::Node { LOSSES[loss] } else { LOSSES[loss % 3] };
        let mut samples = market(17);
        if readout != Readout::Node {
            samples.label_graphs();
        }
        let samples = with_targets_for(loss, samples);
        let config = Config {
            model: ModelConfig {
                encoder: if recurrent { Encoder::Recurrent } else { Encoder::LastBar },
                cell: if gru { Cell::Gru } else { Cell::Lstm },
                hidden,
                layers,
                graph: attends.then_some(graph),
                graph_edge_attributes: if attributes { 2 } else { 0 },
                readout: Some(readout),
                ..ModelConfig::default()
            },
            optimizer: sgd(1.0),
            clip_norm: None,
            max_steps: Some(1),
            gradient_accumulation_steps: 17usize.div_ceil(batch_size),
            batch_size,
            loss,
            ..config()
        };
        let before = Trainer::new(&Device::cpu(), config.clone(), samples.shape().clone()).unwrap();
        let reference = Reference::new(before.model(), before.parameters());
        let inputs = inputs(&samples, &config);
        let expected = loss_of(&samples, &config, &reference.forward(&inputs).outputs);
        let gradients = reference.gradients(&inputs, &expected.gradient).parameters;
        let (after, losses) = trained(&config, &samples, &all(&samples));
        let apart = (losses[0] - expected.mean).abs();
        prop_assert!(apart <= 1e-5 * expected.mean.max(1.0), "{} for {}", losses[0], expected.mean);
        for ((name, _, before), (_, _, after)) in before.parameters().tensors().zip(after.parameters().tensors()) {
            let expected = &gradients[name];
            let changes = before.iter().zip(after).map(|(before, after)| f64::from(before - after));
            let error = changes.zip(expected).map(|(change, d)| (change - d).abs()).fold(0.0, f64::max);
            let largest = expected.iter().fold(0.0, |most: f64, d| most.max(d.abs()));
            prop_assert!(error <= 2e-5 * largest + 2e-6, "{name}: off by {error} of {largest}");
        }
    }
}

/// Bars and edges of all graphs, with the dropout of the first step.
fn inputs(samples: &GraphSamples, config: &Config) -> Inputs {
    let nodes = nodes(samples);
    let batch = batch_of(samples, &nodes);
    let windows = (0..2).map(|k| batch.view().features(k).iter().copied().map(f64::from).collect());
    let mut inputs = Inputs::from_windows(samples.shape(), nodes.len(), windows.collect::<Vec<_>>());
    inputs.timeframes.iter_mut().for_each(|timeframe| timeframe.ends.clone_from(&nodes));
    inputs.dropout = Some(Dropout::for_step(config.dropout, config.seed, 0).unwrap());
    let graph = |index: usize| {
        let view = samples.graph(index).unwrap();
        let (nodes, csr) = (samples.graphs[index].nodes.len(), view.csr);
        let received = (0..nodes).flat_map(|node| csr.columns_of(node).iter().map(move |&src| (node, src as usize)));
        let (dst, src) = received.unzip();
        let attributes = view.attributes.iter().copied().map(f64::from).collect();
        let dropout = Some(GraphDropout { seed: config.seed, step: 0, graph: index });
        Graph { nodes, src, dst, attributes, dropout }
    };
    inputs.graphs = (0..samples.graphs.len()).map(graph).collect();
    inputs
}

/// The nodes of all graphs, graph after graph.
fn nodes(samples: &GraphSamples) -> Vec<usize> {
    samples.graphs.iter().flat_map(|graph| graph.nodes.clone()).collect()
}

fn batch_of(samples: &GraphSamples, nodes: &[usize]) -> Batch {
    let mut batch = Batch::new(&Device::cpu().scope("test"), samples.shape(), nodes.len()).unwrap();
    batch.resize(nodes.len());
    samples.gather(nodes, &mut batch).unwrap();
    batch
}

/// The loss of all graphs: of each node, or of graphs as wholes, which have the targets of their
/// first nodes.
fn loss_of(samples: &GraphSamples, config: &Config, outputs: &[f64]) -> LossValue {
    let by_node = config.model.readout == Some(Readout::Node);
    let rows = |nodes: &[usize]| if by_node { nodes.to_vec() } else { vec![nodes[0]] };
    let targets: Vec<Vec<f64>> = samples
        .graphs
        .iter()
        .map(|graph| batch_of(samples, &rows(&graph.nodes)).view().targets().iter().copied().map(f64::from).collect())
        .collect();
    let (mut rest, mut graphs) = (outputs, Vec::new());
    for targets in &targets {
        let (own, others) = rest.split_at(targets.len());
        graphs.push((own, targets.as_slice()));
        rest = others;
    }
    loss_of_graphs(config.loss, &graphs, 2)
}
