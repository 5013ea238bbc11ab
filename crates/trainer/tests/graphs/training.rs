//! The same result whatever the threads, the batches and the interruptions; and the same in both
//! forms.

use std::ops::ControlFlow;

use megabatch_gpu_core::Device;
use megabatch_nn::loss::Loss;
use megabatch_nn::model::{AttentionKind, Encoder, GraphActivation, GraphConfig, GraphOutput, ModelConfig, Readout};
use megabatch_trainer::{Checkpoints, Config, Event, Form, OptimizerConfig, OptimizerKind, Run, Samples, Trainer};
use proptest::prelude::*;

use crate::made_up::{GraphSamples, bits, market, trained, trained_on};

const LOSSES: [Loss; 5] = [
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
fn config() -> Config {
    let model = ModelConfig {
        hidden: 5,
        layers: 2,
        graph: Some(graph()),
        edge_attributes: 2,
        readout: Some(Readout::Node),
        ..ModelConfig::default()
    };
    Config { model, dropout: 0.25, batch_size: 4, run_length: Some(1), threads: 2, seed: 11, ..Config::default() }
}

/// The targets that `loss` takes: class labels for cross entropy, the numbers as they are for
/// others.
fn with_targets_for(loss: Loss, mut samples: GraphSamples) -> GraphSamples {
    if loss == Loss::CrossEntropy {
        samples.classify();
    }
    samples
}

fn all(samples: &dyn Samples) -> Vec<usize> {
    (0..samples.graphs().unwrap().len()).collect()
}

#[test]
fn the_number_of_threads_changes_no_bit() {
    let samples = market(26);
    for form in [Form::Plain, Form::Fast] {
        let with = |threads| {
            let (trainer, losses) =
                trained(&Config { batch_size: 7, threads, epochs: 2, form, ..config() }, &samples, &all(&samples));
            (bits(&trainer), losses)
        };
        let one = with(1);
        for threads in [2, 3, 9] {
            assert!(with(threads) == one, "{threads} threads, {form:?}");
        }
    }
}

#[test]
fn accumulated_batches_are_one_large_batch() {
    for loss in LOSSES {
        let samples = with_targets_for(loss, market(30));
        let with = |batch_size, accumulation_steps| {
            let config = Config { batch_size, accumulation_steps, epochs: 2, loss, ..config() };
            bits(&trained(&config, &samples, &all(&samples)).0)
        };
        let large = with(12, 1);
        for (batch_size, accumulation_steps) in [(6, 2), (4, 3), (1, 12)] {
            assert!(with(batch_size, accumulation_steps) == large, "{batch_size} x {accumulation_steps}, {loss:?}");
        }
    }
}

#[test]
fn memory_that_runs_short_changes_no_bit() {
    let samples = market(26);
    let (config, all) = (Config { batch_size: 13, ..config() }, all(&samples));
    let calm = trained(&config, &samples, &all);
    let mut refused = 0;
    for request in 0..60 {
        let device = Device::cpu();
        device.refuse_requests(request..request + 1);
        match trained_on(&device, &config, &samples, &all) {
            Ok((trainer, losses)) => {
                assert!((bits(&trainer), &losses) == (bits(&calm.0), &calm.1), "request {request}");
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
    let (train, validation): (Vec<usize>, Vec<usize>) = (0..26).partition(|day| day % 5 > 0);
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
    assert_eq!(changed[0].to_string(), "model.graph_dropout is 0.5, it was 0.2");
    let error = with(|graph| graph.residual = true).unwrap_err().to_string();
    assert!(error.contains("model.graph_residual false, but this run has true"), "{error}");
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
        let (after, losses) = trained(&still, &plain, &[10, 21]);
        let before = Trainer::new(&Device::cpu(), still, plain.shape().clone()).unwrap();
        assert_eq!((bits(&after), losses), (bits(&before), vec![0.0; 3]), "{loss:?}");
    }
}

fn sgd(lr: f64) -> OptimizerConfig {
    OptimizerConfig { kind: OptimizerKind::Sgd, lr, weight_decay: 0.0, ..OptimizerConfig::default() }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// The change of one optimizer step at the rate 1 is the gradient. Sums of up to 500 terms of
    /// order 1 round in another order.
    #[test]
    fn the_fast_form_computes_what_the_plain_form_does(
        (hidden, layers, lstm) in (1usize..20, 1usize..3, any::<bool>()),
        (graph_layers, heads, units) in (1usize..4, 1usize..4, 1usize..9),
        [v2, attention_head, relu, residual, self_loops, drops, attributes, attends] in any::<[bool; 8]>(),
        readout in prop::sample::select(vec![Readout::Node, Readout::Mean, Readout::Sum, Readout::Max]),
        loss in 0usize..5, batch_size in 1usize..9,
    ) {
        let graph = GraphConfig {
            kind: if v2 { AttentionKind::GatV2 } else { AttentionKind::Gat },
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
        let config = |form| Config {
            model: ModelConfig {
                encoder: if lstm { Encoder::Lstm } else { Encoder::LastBar },
                hidden,
                layers,
                graph: attends.then_some(graph),
                edge_attributes: if attributes { 2 } else { 0 },
                readout: Some(readout),
                ..ModelConfig::default()
            },
            optimizer: sgd(1.0),
            clip_norm: None,
            max_steps: Some(1),
            accumulation_steps: 17usize.div_ceil(batch_size),
            batch_size,
            loss,
            form,
            ..config()
        };
        let step = |form| {
            let config = config(form);
            let before = Trainer::new(&Device::cpu(), config.clone(), samples.shape().clone()).unwrap();
            let (after, losses) = trained(&config, &samples, &all(&samples));
            let gradients: Vec<(String, Vec<f32>)> = before.parameters().tensors().zip(after.parameters().tensors())
                .map(|((name, _, before), (_, _, after))| {
                    (name.to_owned(), before.iter().zip(after).map(|(before, after)| before - after).collect())
                })
                .collect();
            (gradients, losses[0])
        };
        let ((expected, expected_loss), (got, loss)) = (step(Form::Plain), step(Form::Fast));
        prop_assert!((loss - expected_loss).abs() <= 1e-5 * expected_loss.max(1.0), "{loss} for {expected_loss}");
        for ((name, got), (_, expected)) in got.iter().zip(&expected) {
            let largest = expected.iter().fold(0.0f32, |most, x| most.max(x.abs()));
            let error = got.iter().zip(expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            prop_assert!(error <= 2e-5 * largest + 2e-6, "{name}: off by {error} of {largest}");
        }
    }
}
