//! The training loop: the same result whatever the threads, what the observer hears, and what
//! happens when things go wrong.

use std::ops::ControlFlow;

use megabatch_gpu_core::{Device, Error::OverBudget};
use megabatch_nn::model::{Fusion, ModelConfig, Pooling, SampleShape, TensorSet, save_weights};
use megabatch_trainer::{Config, End, Error, Event, InMemory, LastBatch, Outcome, Run, SampleRanges, Samples, Trainer};

use crate::made_up::{Disturbance, Disturbed, config, listen, losses, samples, trained_on_all};

fn bits(trainer: &Trainer) -> Vec<u32> {
    trainer.parameters().values().iter().map(|x| x.to_bits()).collect()
}

/// Trains on all of `samples`, and gives the trainer and every step's loss.
fn train(config: &Config, samples: &InMemory) -> (Trainer, Vec<f64>) {
    let (trainer, steps) = trained_on_all(config, samples);
    (trainer, losses(&steps))
}

#[test]
fn the_number_of_threads_changes_no_bit() {
    let samples = samples(230);
    // Batches of 100 are shards of 32, 32, 32 and 4; the last batch of an epoch is one of 30.
    let with = |threads| train(&Config { batch_size: 100, threads, epochs: 3, ..config() }, &samples);
    let (one, losses) = with(1);
    for threads in [2, 3, 7] {
        let (many, many_losses) = with(threads);
        assert_eq!((bits(&many), &many_losses), (bits(&one), &losses), "{threads} threads");
    }
}

#[test]
fn accumulated_batches_are_one_large_batch() {
    let samples = samples(300);
    let with = |batch_size, gradient_accumulation_steps| {
        train(&Config { batch_size, gradient_accumulation_steps, epochs: 2, ..config() }, &samples)
    };
    let (large, large_losses) = with(128, 1);
    let (halves, _) = with(64, 2);
    assert_eq!(bits(&halves), bits(&large), "whole shards are summed in the same order");
    let (small, losses) = with(16, 8);
    // Six steps of 1e-3 each move the weights; the gradients' roundings of 1e-7 show through Adam's
    // normalisation.
    let pairs = small.parameters().values().iter().zip(large.parameters().values());
    let apart = pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    assert!(apart < 1e-5, "{apart}");
    assert!(losses.iter().zip(large_losses).all(|(a, b)| (a - b).abs() < 1e-6 * b));
}

#[test]
fn the_loss_falls() {
    let mut config = Config { epochs: 30, run_length: Some(1), ..config() };
    config.optimizer.lr = 1e-2;
    let (_, losses) = train(&config, &samples(64));
    let mean = |part: &[f64]| part.iter().sum::<f64>() / part.len() as f64;
    assert!(mean(&losses[232..]) < 0.1 * mean(&losses[..8]), "{losses:?}");
}

#[test]
fn the_observer_hears_steps_validations_and_the_end() {
    let samples = samples(60);
    let (train, validation): (SampleRanges, SampleRanges) = (0..60).partition(|&n| n < 40);
    let run = Run { samples: &samples, train: &train, validation: &validation, checkpoints: None };
    let config = Config { max_steps: Some(12), epochs: 1, validate_every_steps: Some(4), ..config() };
    let device = Device::cpu();
    let mut trainer = Trainer::new(&device, config, samples.shape().clone()).unwrap();
    let mut heard = Vec::new();
    let (mut allocations, mut epochs, mut batches) = (Vec::new(), Vec::new(), Vec::new());
    // Steps, and validations after 4, 5, 8, 10 and 12 of them.
    let told_before = |step: u64| step as usize + [4, 5, 8, 10, 12].iter().filter(|&&at| at < step).count();
    let outcome = trainer.train(&run, &mut |event| {
        match event {
            Event::Step(step) => {
                assert!(step.loss > 0.0 && step.grad_norm > 0.0 && step.samples_per_s > 0.0, "{step:?}");
                assert_eq!((step.steps, step.samples, step.lr), (12, 8, 1e-3));
                assert_eq!(step.allocated_bytes, device.usage().allocated_bytes);
                heard.push(format!("step {} of epoch {}", step.step, step.epoch));
                allocations.push(device.usage().allocations_total);
            }
            Event::Validation(validation) => {
                assert_eq!(validation.metrics.rmse.len(), 2);
                heard.push(format!("validation {} of epoch {}", validation.step, validation.epoch));
            }
            Event::Epoch(epoch) => {
                assert!(epoch.allocated_bytes <= epoch.allocated_bytes_peak, "{epoch:?}");
                assert!(epoch.allocated_bytes_peak <= epoch.reserved_bytes_peak, "{epoch:?}");
                epochs.push((epoch.step, epoch.epoch));
            }
            Event::Validating(batch) => {
                assert_eq!((batch.samples, heard.len()), (20, told_before(batch.step)));
                batches.push(batch.done);
            }
            Event::Waiting => {}
            _ => panic!("{event:?}"),
        }
        ControlFlow::Continue(())
    });
    let outcome = outcome.unwrap();
    assert_eq!((outcome.steps, outcome.end), (12, End::Finished));
    // Of the 20 samples, before each of the five validations is told.
    assert_eq!(batches, [8, 16, 20].repeat(5));
    assert_eq!(epochs, [(5, 0), (10, 1)]);
    let validations: Vec<_> = heard.iter().filter(|line| line.starts_with('v')).collect();
    // Every fourth step, the ends of epochs of five steps, and the end.
    let expected = [(4, 0), (5, 0), (8, 1), (10, 1), (12, 2)].map(|(s, e)| format!("validation {s} of epoch {e}"));
    assert_eq!(validations, expected.each_ref());
    assert_eq!((heard[0].as_str(), heard.len()), ("step 1 of epoch 0", 17));
    assert_eq!(allocations[0], allocations[3], "steps between validations allocate nothing");
    assert_eq!(device.scope("batches").usage().allocated_bytes, 0);
}

#[test]
fn the_observer_can_stop() {
    let samples = samples(40);
    let train = SampleRanges::from(0..40);
    let run = Run { samples: &samples, train: &train, validation: &train, checkpoints: None };
    let mut trainer = Trainer::new(&Device::cpu(), config(), samples.shape().clone()).unwrap();
    let stop_at = |event: Event<'_>| match event {
        Event::Step(step) if step.step == 3 => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    };
    let outcome = trainer.train(&run, &mut { stop_at }).unwrap();
    assert_eq!(outcome, Outcome { steps: 3, end: End::Stopped, best: None, rollbacks: 0 });
    // It goes on from there.
    assert_eq!(trainer.train(&run, &mut listen).unwrap().steps, 5);
}

#[test]
fn a_source_that_fails_ends_training_after_the_last_whole_step() {
    let samples = Disturbed::new(samples(40), Disturbance::Fail { at_call: 3 });
    let train = SampleRanges::from(0..40);
    let run = Run { samples: &samples, train: &train, validation: SampleRanges::NONE, checkpoints: None };
    let mut trainer = Trainer::new(&Device::cpu(), config(), samples.shape().clone()).unwrap();
    let mut steps = 0;
    let error = trainer.train(&run, &mut |event| {
        steps += u64::from(matches!(event, Event::Step(_)));
        ControlFlow::Continue(())
    });
    let error = error.unwrap_err();
    assert!(matches!(error, Error::Gather { count: 8, .. }), "{error}");
    assert!(error.to_string().ends_with("the disk is on fire"), "{error}");
    assert_eq!(steps, 3);
}

#[test]
fn samples_that_do_not_exist_or_fit_are_refused() {
    let samples = samples(40);
    let mut trainer = Trainer::new(&Device::cpu(), config(), samples.shape().clone()).unwrap();
    let run = |train| Run { samples: &samples, train, validation: SampleRanges::NONE, checkpoints: None };
    let (beyond, one) = (SampleRanges::from_iter([3, 40]), SampleRanges::from(1..2));
    let error = trainer.train(&run(&beyond), &mut listen).unwrap_err();
    assert_eq!(error.to_string(), "sample 40 was asked for, but there are 40");
    let error = trainer.train(&run(SampleRanges::NONE), &mut listen).unwrap_err();
    assert!(matches!(error, Error::NothingLeft { part: "training", .. }), "{error}");

    let other = SampleShape { outputs: 3, ..samples.shape().clone() };
    let mut trainer = Trainer::new(&Device::cpu(), config(), other).unwrap();
    let error = trainer.train(&run(&one), &mut listen).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the model takes M1 [6, 3], H1 [4, 2], targets [3], but the samples are M1 [6, 3], H1 [4, 2], targets [2]; \
         use data made as the training data was"
    );
}

#[test]
fn a_number_that_is_not_finite_is_traced_to_its_tensor() {
    for (place, value, name) in
        [(0, f32::NAN, "features.M1"), (1, f32::INFINITY, "features.H1"), (2, f32::NEG_INFINITY, "targets")]
    {
        let samples = Disturbed::new(samples(40), Disturbance::Deliver { at_call: 2, place, value });
        let train = SampleRanges::from(0..40);
        let run = Run { samples: &samples, train: &train, validation: SampleRanges::NONE, checkpoints: None };
        let mut trainer = Trainer::new(&Device::cpu(), config(), samples.shape().clone()).unwrap();
        match trainer.train(&run, &mut listen) {
            Err(Error::NotFinite { step: 3, tensor, index: 0, .. }) => assert_eq!(tensor, name),
            other => panic!("{name}: {other:?}"),
        }
        assert!(trainer.parameters().values().iter().all(|x| x.is_finite()));
    }
}

#[test]
fn weights_and_outputs_that_are_not_finite_are_named() {
    let samples = samples(40);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("w.safetensors");
    let train = SampleRanges::from(0..40);
    let run = Run { samples: &samples, train: &train, validation: SampleRanges::NONE, checkpoints: None };
    for value in [f32::NAN, f32::MAX] {
        let mut trainer = Trainer::new(&Device::cpu(), config(), samples.shape().clone()).unwrap();
        let scope = Device::cpu().scope("test");
        let mut weights = trainer.model().initial_parameters(&scope, 1).unwrap();
        // One of the two outputs overflows, whatever the sign of what the hidden states add to its
        // bias.
        weights.get_mut("head.weight").unwrap().fill(value);
        weights.get_mut("head.bias").unwrap().copy_from_slice(&[f32::MAX, -f32::MAX]);
        save_weights(&path, &weights).unwrap();
        if value.is_nan() {
            let error = trainer.load_weights(&path).unwrap_err().to_string();
            assert!(error.contains("head.weight"), "{error}");
            continue;
        }
        trainer.load_weights(&path).unwrap();
        match trainer.train(&run, &mut listen) {
            Err(Error::NotFinite { step: 1, tensor, .. }) => assert_eq!(tensor, "outputs in head"),
            other => panic!("{other:?}"),
        }
    }
}

/// Finite weights with which sums overflow, once up and once down, so that their difference is no
/// number.
#[test]
fn layers_pooling_and_fusion_that_overflow_are_named() {
    let samples = samples(40);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("w.safetensors");
    let train = SampleRanges::from(0..40);
    let run = Run { samples: &samples, train: &train, validation: SampleRanges::NONE, checkpoints: None };
    let alternate = |values: &mut [f32], size: f32| {
        values.iter_mut().enumerate().for_each(|(i, x)| *x = if i % 2 == 0 { size } else { -size });
    };
    let hidden = 8;
    let (pooling, fusion) = (Pooling::attention(hidden), Fusion::attention(hidden));
    let model = ModelConfig { hidden, layer_norm: true, pooling, fusion, ..config().model };
    let wide = |weights: &mut TensorSet, name: &str| weights.get_mut(name).unwrap().fill(1e3);
    type Break<'a> = &'a dyn Fn(&mut TensorSet);
    let cases: [(Break<'_>, &str); 3] = [
        // States lie within 1 and overflow no product; what a norm makes of them does.
        (
            &|weights| {
                weights.get_mut("norm.H1.l0.weight").unwrap().fill(3e38);
                alternate(weights.get_mut("lstm.H1.weight_ih_l1").unwrap(), 3e38);
            },
            "the cell state after bar 0 [B, H] in layer 1 of lstm.H1",
        ),
        (
            &|weights| {
                wide(weights, "norm.M1.l1.weight");
                alternate(weights.get_mut("pooling.M1.query").unwrap(), 3e38);
            },
            "weights [B, heads, T] in pooling.M1",
        ),
        (
            &|weights| {
                wide(weights, "norm.M1.l1.weight");
                wide(weights, "norm.H1.l1.weight");
                alternate(weights.get_mut("fusion.self_attn.in_proj_weight").unwrap(), 3e38);
            },
            "queries, keys and values [B · n, 3H] in fusion",
        ),
    ];
    for (damage, expected) in &cases {
        let mut trainer = Trainer::new(&Device::cpu(), Config { model, ..config() }, samples.shape().clone()).unwrap();
        let scope = Device::cpu().scope("test");
        let mut weights = trainer.model().initial_parameters(&scope, 1).unwrap();
        damage(&mut weights);
        save_weights(&path, &weights).unwrap();
        trainer.load_weights(&path).unwrap();
        match trainer.train(&run, &mut listen) {
            Err(Error::NotFinite { step: 1, tensor, .. }) => {
                assert!(tensor.ends_with(expected), "{tensor} for {expected}");
            }
            other => panic!("{expected}: {other:?}"),
        }
    }
}

#[test]
fn a_profile_tells_the_time_of_every_layer_and_changes_nothing() {
    let samples = samples(96);
    let pooling = Pooling::attention(5);
    let model = ModelConfig { pooling, ..config().model };
    let [(off, none), (on, steps)] = [false, true].map(|profile| {
        let config = Config { model, profile, batch_size: 32, threads: 1, ..config() };
        let (trainer, steps) = trained_on_all(&config, &samples);
        (bits(&trainer), steps)
    });
    assert!(off == on && none.iter().all(|step| step.profile.is_none()) && steps.len() == 3);
    for step in &steps {
        let profile = step.profile.as_ref().unwrap();
        let names: Vec<_> = profile.layers.iter().map(|times| (times.timeframe.as_str(), times.layer)).collect();
        assert_eq!(names, [("M1", 0), ("M1", 1), ("H1", 0), ("H1", 1)]);
        let forward: f64 = profile.layers.iter().map(|times| times.projection_s + times.recurrence_s).sum();
        let backward: f64 = profile.layers.iter().map(|times| times.backward_s + times.weight_gradients_s).sum();
        let each = profile.layers.iter();
        let mut each = each.flat_map(|t| [t.projection_s, t.recurrence_s, t.backward_s, t.weight_gradients_s]);
        assert!(each.all(|time| time > 0.0), "{profile:?}");
        // Of one thread, the parts lie in the whole; the clocks of both are the same.
        let pooled: [f64; 2] =
            profile.pooling.iter().fold([profile.decoder.forward_s, profile.decoder.backward_s], |sum, pooling| {
                [sum[0] + pooling.passes.forward_s, sum[1] + pooling.passes.backward_s]
            });
        assert!(profile.pooling.len() == 2 && pooled.iter().all(|&time| time > 0.0), "{profile:?}");
        assert!(forward + pooled[0] <= step.forward_s && backward + pooled[1] <= step.backward_s, "{step:?}");
    }
}

#[test]
fn settings_out_of_range_are_named() {
    for (config, message) in [
        (Config { batch_size: 0, ..config() }, "`batch_size` is 0: expected 1 or more"),
        (Config { threads: 0, ..config() }, "`threads` is 0: expected 1 or more"),
        (Config { run_length: Some(0), ..config() }, "`run_length` is 0: expected 1 or more"),
        (Config { clip_norm: Some(0.0), ..config() }, "`clip_norm` is 0: expected a positive number, or none"),
    ] {
        let error = Trainer::new(&Device::cpu(), config, samples(1).shape().clone()).unwrap_err();
        assert_eq!(error.to_string(), message);
    }
    let few = Config { last_batch: LastBatch::Drop, ..config() };
    let samples = samples(7);
    let run = Run {
        samples: &samples,
        train: &SampleRanges::from_iter([0, 1, 2, 3, 4, 5, 6]),
        validation: SampleRanges::NONE,
        checkpoints: None,
    };
    let error = Trainer::new(&Device::cpu(), few, samples.shape().clone()).unwrap().train(&run, &mut listen);
    assert!(matches!(error, Err(Error::NothingLeft { before: 7, after: 0, .. })));
}

#[test]
fn memory_over_the_budget_is_an_error_and_leaves_none_behind() {
    let device = Device::cpu();
    device.set_budget_bytes(Some(20_000));
    let error = Trainer::new(&device, config(), samples(1).shape().clone()).unwrap_err();
    assert!(matches!(error, Error::Model(megabatch_nn::Error::Memory(OverBudget { .. }))), "{error}");
    assert_eq!(device.usage().allocated_bytes, 0);
}

/// Loaded weights kept the moments of those before them, and the number of updates.
#[test]
fn loaded_weights_have_no_moments() {
    let samples = samples(40);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("w.safetensors");
    let (mut used, _) = train(&config(), &samples);
    used.save_weights(&path).unwrap();
    assert_ne!(used.optimizer().steps(), 0);
    assert!(used.load_weights(&folder.path().join("none")).is_err());
    assert_ne!(used.optimizer().steps(), 0, "a file that cannot be read changes nothing");
    used.load_weights(&path).unwrap();
    assert_eq!(used.optimizer().steps(), 0);
    let moments = used.optimizer().moments().unwrap();
    let all = moments.exp_avg.values().iter().chain(moments.exp_avg_sq.values());
    assert!(all.copied().all(|moment| moment == 0.0));
}
