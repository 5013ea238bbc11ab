//! Targets that are not known: they count in no loss, no gradient, no error and no baseline.

use std::ops::ControlFlow;

use megabatch_amp::Precision;
use megabatch_gpu_core::Device;
use megabatch_nn::loss::{Ascending, Loss};
use megabatch_trainer::{
    Checkpoints, Config, Divergence, Event, InMemory, OptimizerConfig, OptimizerKind, Run, SampleRanges, Samples,
    Selection, StepEvent, Trainer,
};
use proptest::prelude::*;

use crate::baselines::fit_numbers;
use crate::by_hand::{check_step, windows_of};
use crate::made_up::{Disturbance, Disturbed, config, listen, samples, steps_of, trained_on_all};
use crate::resuming::{TRAIN, run, state, stop_after, trainer};

/// The samples of [`samples`], with the targets that `change` makes of theirs, by sample and
/// horizon.
pub(crate) fn with_targets(count: usize, change: impl Fn(usize, usize, f32) -> f32) -> InMemory {
    let whole = samples(count);
    let mut batch = windows_of(&whole, &(0..count).collect::<Vec<_>>());
    let (windows, targets) = batch.slices_mut();
    let targets = targets.iter().enumerate().map(|(i, &target)| change(i / 2, i % 2, target)).collect();
    InMemory::new(whole.shape().clone(), windows.into_iter().map(|windows| windows.to_vec()).collect(), targets)
        .unwrap()
}

/// Every third first target, every fifth second one and all of samples 40 to 59 are not known.
fn holed(count: usize) -> InMemory {
    with_targets(count, |sample, horizon, target| {
        let is_unknown = sample.is_multiple_of([3, 5][horizon]) || (40..60).contains(&sample);
        if is_unknown { f32::NAN } else { target }
    })
}

fn bits(trainer: &Trainer) -> Vec<u32> {
    trainer.parameters().values().iter().map(|x| x.to_bits()).collect()
}

/// The change of one step is the gradient.
fn plain_descent() -> OptimizerConfig {
    OptimizerConfig { kind: OptimizerKind::Sgd, lr: 1.0, weight_decay: 0.0, ..OptimizerConfig::default() }
}

#[test]
fn accumulated_batches_are_one_large_batch() {
    let samples = holed(300);
    let with = |batch_size, gradient_accumulation_steps| {
        trained_on_all(&Config { batch_size, gradient_accumulation_steps, epochs: 2, ..config() }, &samples)
    };
    let (large, large_steps) = with(128, 1);
    let (halves, steps) = with(64, 2);
    assert_eq!(bits(&halves), bits(&large));
    for (step, large) in steps.iter().zip(&large_steps) {
        assert!(
            (step.loss - large.loss).abs() < 1e-12 && step.loss_terms == large.loss_terms,
            "{step:?} for {large:?}"
        );
    }
    assert!(steps.iter().all(|step| step.loss_terms.is_some_and(|terms| terms < 2 * step.samples)), "{steps:?}");
    let (small, _) = with(16, 8);
    let pairs = small.parameters().values().iter().zip(large.parameters().values());
    let apart = pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    // As for samples whose targets are all known.
    assert!(apart < 1e-5, "{apart}");
}

#[test]
fn where_all_targets_are_known_nothing_is_told() {
    let (_, steps) = trained_on_all(&config(), &samples(40));
    assert!(steps.iter().all(|step| step.loss_terms.is_none()));
}

#[test]
fn a_step_without_known_targets_changes_nothing_and_says_so() {
    let samples = with_targets(24, |sample, _, target| if sample / 8 == 1 { f32::NAN } else { target });
    for precision in [Precision::Fp32, Precision::Fp16] {
        // In the order of the samples: one run of eight a step, whichever comes first.
        let config = Config { max_steps: Some(3), precision, ..config() };
        let (_, steps) = trained_on_all(&config, &samples);
        let silent: Vec<_> = steps.iter().filter(|step| step.loss_terms == Some(0)).collect();
        let [StepEvent { step, loss, grad_norm, overflow: None, .. }] = silent[..] else { panic!("{steps:?}") };
        assert_eq!((*loss, *grad_norm), (0.0, 0.0));
        // Moments of Adam and weight decay leave the weights alone, too.
        let up_to =
            |max_steps| bits(&trained_on_all(&Config { max_steps: Some(max_steps), ..config.clone() }, &samples).0);
        assert_eq!(up_to(*step), up_to(step - 1));
        assert!(*step == 3 || up_to(step + 1) != up_to(*step));
    }
}

/// 20 steps in batches of 8 beside 10 steps and 10 after a resume ended in weights that differed by
/// 7e-5 where the targets of samples 8 to 15 are NaN: Adam's corrections went by the number of
/// steps, and not by that of updates.
#[test]
fn a_run_with_silent_steps_is_resumed_to_the_same_bits() {
    let is_silent = |sample: usize| (8..40).contains(&sample);
    let samples = with_targets(100, |sample, _, target| if is_silent(sample) { f32::NAN } else { target });
    for precision in [Precision::Fp32, Precision::Bf16, Precision::Fp16] {
        let config = Config { max_steps: Some(20), precision, ..config() };
        let mut whole = trainer(&config);
        let steps = steps_of(&mut whole, &run(&samples, None));
        let silent: Vec<u64> = steps.iter().filter(|step| step.loss_terms == Some(0)).map(|step| step.step).collect();
        let first = silent[0];
        assert!(first < 12, "{silent:?}");
        assert_eq!(whole.optimizer().steps(), 20 - silent.len() as u64);
        for stop in [first, first + 3] {
            let folder = tempfile::tempdir().unwrap();
            let checkpoints = Checkpoints::new(folder.path());
            let run = run(&samples, Some(&checkpoints));
            trainer(&config).train(&run, &mut stop_after(stop)).unwrap();
            let mut rest = trainer(&config);
            rest.resume(&run).unwrap().unwrap();
            rest.train(&run, &mut listen).unwrap();
            assert!(state(&rest) == state(&whole), "{precision}, stopped after {stop}");
        }
    }
}

/// A run in fp16 that goes on in bf16 wrote no number of updates any more, so that the next resume
/// took that of steps.
#[test]
fn a_run_that_changes_its_precision_keeps_its_number_of_updates() {
    let samples = with_targets(100, |sample, _, target| if (8..40).contains(&sample) { f32::NAN } else { target });
    let folder = tempfile::tempdir().unwrap();
    let checkpoints = Checkpoints::new(folder.path());
    let run = run(&samples, Some(&checkpoints));
    let mut updates = 0;
    for (precision, stop) in [(Precision::Fp16, 12), (Precision::Bf16, 14), (Precision::Fp32, 16)] {
        let mut trainer = trainer(&Config { max_steps: Some(20), precision, ..config() });
        trainer.resume(&run).unwrap();
        assert_eq!(trainer.optimizer().steps(), updates, "{precision}");
        trainer.train(&run, &mut stop_after(stop)).unwrap();
        updates = trainer.optimizer().steps();
        assert!(updates < stop, "{precision}: {updates} of {stop}");
    }
}

/// A rollback is a resume: 19 steps, of which the failing one is computed twice.
#[test]
fn a_rollback_keeps_the_number_of_updates() {
    for precision in [Precision::Fp32, Precision::Bf16, Precision::Fp16] {
        let silent = with_targets(90, |sample, _, target| if (8..40).contains(&sample) { f32::NAN } else { target });
        let samples = Disturbed::new(silent, Disturbance::Deliver { at_call: 11, place: 2, value: f32::NEG_INFINITY });
        let folder = tempfile::tempdir().unwrap();
        let checkpoints = Checkpoints { every_steps: Some(4), ..Checkpoints::new(folder.path()) };
        let divergence = Divergence { max_rollbacks: 3, loss_spike_factor: None };
        let mut trainer = trainer(&Config { max_steps: Some(20), precision, divergence, ..config() });
        let run =
            Run { samples: &samples, train: &TRAIN, validation: SampleRanges::NONE, checkpoints: Some(&checkpoints) };
        let mut updates = std::collections::BTreeMap::new();
        let outcome = trainer.train(&run, &mut |event| {
            if let Event::Step(step) = event {
                updates.insert(step.step, step.loss_terms != Some(0) && step.overflow.is_none());
            }
            ControlFlow::Continue(())
        });
        assert_eq!(outcome.unwrap().rollbacks, 1, "{precision}");
        let updates = updates.values().filter(|&&changed| changed).count() as u64;
        assert!(updates < 20, "{precision}");
        assert_eq!(trainer.optimizer().steps(), updates, "{precision}");
    }
}

#[test]
fn errors_and_baselines_are_those_of_known_targets() {
    let (whole, part) = (samples(100), holed(100));
    let device = Device::cpu();
    let training = SampleRanges::from(0..80);
    let known_first: SampleRanges = (0..100).filter(|n| n % 3 > 0 && !(40..60).contains(n)).collect();
    let mut trainer = Trainer::new(&device, config(), part.shape().clone()).unwrap();
    let fit = |samples, indices: &SampleRanges| fit_numbers(&device, Selection { samples, indices }).unwrap();
    let part_baselines = fit(&part, &training);
    let all = SampleRanges::from(0..100);
    let found = trainer.evaluate(Selection { samples: &part, indices: &all }, Some(&part_baselines)).unwrap();
    // The same by the samples whose first target is known: their second ones are another matter.
    let known_training: SampleRanges = known_first.iter().filter(|&n| n < 80).collect();
    let baselines = fit(&whole, &known_training);
    let selection = Selection { samples: &whole, indices: &known_first };
    let expected = trainer.evaluate(selection, Some(&baselines)).unwrap();

    // Samples 0, 15, 30, 60, 75 and 90 know no target, as 40 to 59.
    assert_eq!((found.samples, expected.samples), (74, known_first.len()));
    let known_targets = found.metrics.known_targets.clone().unwrap();
    assert_eq!((known_targets[0], known_targets[1]), (known_first.len(), 64));
    // Sums of up to a hundred terms in another order.
    let near = |a: f64, b: f64| assert!((a - b).abs() < 1e-6, "{a} and {b}");
    near(found.metrics.rmse[0], expected.metrics.rmse[0]);
    near(found.metrics.mae[0], expected.metrics.mae[0]);
    assert_eq!(found.metrics.direction_accuracy[0], expected.metrics.direction_accuracy[0]);
    for (name, errors) in &found.baselines {
        near(errors.rmse[0], expected.baselines[name].rmse[0]);
    }
    let squares = |k: usize| found.metrics.rmse[k].powi(2) * known_targets[k] as f64;
    near(found.loss, (squares(0) + squares(1)) / (known_targets[0] + known_targets[1]) as f64);

    let nothing = with_targets(20, |_, _, _| f32::NAN);
    let indices = SampleRanges::from(0..20);
    let selection = Selection { samples: &nothing, indices: &indices };
    let message = trainer.evaluate(selection, None).unwrap_err().to_string();
    assert!(message.contains("none of their targets is known"), "{message}");
    let message = fit_numbers(&device, selection).unwrap_err().to_string();
    assert!(message.contains("none of the training targets is known"), "{message}");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// One step against the reference over all samples at once, whose loss is the mean over the
    /// targets that are known.
    #[test]
    fn gradients_are_those_of_the_mean_over_known_targets(
        known in prop::collection::vec(any::<[bool; 2]>(), 40), loss in 0usize..3, batch_size in 1usize..41,
    ) {
        let levels = Ascending::new(&[0.1, 0.3, 0.8]).unwrap();
        let loss = [Loss::Mse, Loss::Huber { delta: 0.3 }, Loss::Quantile { levels }][loss];
        let terms = known.iter().flatten().filter(|known| **known).count();
        prop_assume!(terms > 0);
        let samples = with_targets(40, |n, k, target| if known[n][k] { target } else { f32::NAN });
        let config = Config {
            optimizer: plain_descent(),
            clip_norm: None,
            max_steps: Some(1),
            gradient_accumulation_steps: 40usize.div_ceil(batch_size),
            batch_size,
            loss,
            ..config()
        };
        let step = check_step(&samples, &config);
        prop_assert_eq!(step.loss_terms, (terms < 80).then_some(terms * loss.outputs_per_target()));
    }
}
