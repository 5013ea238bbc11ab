//! Several losses at once: a classification of the first target and a regression of the second.

use std::ops::ControlFlow;

use megabatch_gpu_core::Device;
use megabatch_nn::loss::{Ascending, Classes, Loss, Task, TaskLoss, Tasks};
use megabatch_trainer::{
    Config, Event, InMemory, OptimizerConfig, OptimizerKind, Run, SampleRanges, Samples, Selection, StepEvent, Trainer,
    ValidationEvent,
};
use proptest::prelude::*;

use crate::baselines::fit_for;
use crate::by_hand::{check_step, descend, loss_and_gradients, reference_of, windows_of};
use crate::made_up::{config, listen, samples, series, trained_on_all};
use crate::masks::with_targets;

const CLASSES: usize = 3;

pub(crate) fn two(weight: f64) -> Loss {
    let classes = TaskLoss::Classes(Classes::Thresholds(Ascending::new(&[-0.4, 0.4]).unwrap()));
    let tasks = [
        Task { targets: [0, 1], loss: classes, weight },
        Task { targets: [1, 2], loss: TaskLoss::Huber { delta: 0.5 }, weight: 1.0 - weight },
    ];
    Loss::Tasks(Tasks::new(&tasks).unwrap())
}

/// Two of three classes and one of four numbers are known.
fn holed(count: usize) -> InMemory {
    with_targets(count, |n, k, target| {
        let is_known = if k == 0 { !n.is_multiple_of(3) } else { n.is_multiple_of(4) };
        if is_known { target } else { f32::NAN }
    })
}

fn apart(a: &Trainer, b: &Trainer) -> f32 {
    let pairs = a.parameters().values().iter().zip(b.parameters().values());
    pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
}

#[test]
fn each_task_is_learnt_and_beats_its_baselines() {
    let samples = holed(240);
    let mut config = Config { loss: two(0.4), epochs: 40, run_length: Some(1), ..config() };
    config.optimizer.lr = 1e-2;
    let (mut trainer, _) = trained_on_all(&config, &samples);
    // Three outputs of the first target, one of the second.
    assert_eq!(trainer.parameters().get("head.bias").unwrap().len(), CLASSES + 1);
    let all = SampleRanges::from(0..240);
    let selection = Selection { samples: &samples, indices: &all };
    let baselines = fit_for(&Device::cpu(), selection, None, config.loss).unwrap();
    let found = trainer.evaluate(selection, Some(&baselines)).unwrap();
    let [classes, numbers] = &found.tasks[..] else { panic!("{found:?}") };
    assert_eq!((classes.targets, classes.objective, numbers.targets), ([0, 1], "cross_entropy", [1, 2]));
    assert!((found.loss - 0.4 * classes.loss - 0.6 * numbers.loss).abs() < 1e-12, "{found:?}");
    let frequent = classes.baselines["most_frequent"].classes.as_ref().unwrap();
    let errors = classes.metrics.classes.as_ref().unwrap();
    assert!(errors.accuracy[0] > frequent.accuracy[0] + 0.2, "{errors:?} beside {frequent:?}");
    assert!((errors.cross_entropy[0] - classes.loss).abs() < 1e-9);
    assert!(numbers.metrics.rmse[0] < 0.7 * numbers.baselines["mean"].rmse[0], "{numbers:?}");
    assert_eq!(numbers.baselines.len(), 3);

    // Side by side they are the lists of all.
    assert_eq!(found.metrics.rmse, [classes.metrics.rmse[0], numbers.metrics.rmse[0]]);
    assert_eq!(found.metrics.known_targets, Some(vec![160, 60]));
    assert!(found.baselines["mean"].rmse[0].is_nan() && found.baselines["most_frequent"].rmse[1].is_nan());
    // Sample 0, 12, 24, … know a number and no class; 3, 9, … know neither.
    assert_eq!(found.samples, 240 - (0..240).filter(|n| n % 3 == 0 && n % 4 != 0).count());
}

#[test]
fn accumulated_batches_are_one_large_batch_though_the_first_knows_other_targets() {
    let samples = holed(300);
    let with = |batch_size, gradient_accumulation_steps| {
        trained_on_all(
            &Config { loss: two(0.3), batch_size, gradient_accumulation_steps, epochs: 2, ..config() },
            &samples,
        )
    };
    let (large, large_steps) = with(128, 1);
    let (halves, steps) = with(64, 2);
    // Terms are scaled before they are added, so that sums differ by rounding.
    assert!(apart(&large, &halves) < 1e-5, "{}", apart(&large, &halves));
    let (small, _) = with(16, 8);
    assert!(apart(&large, &small) < 1e-5, "{}", apart(&large, &small));
    for (step, large) in steps.iter().zip(&large_steps) {
        let near = (step.loss - large.loss).abs() < 1e-6;
        assert!(near && step.loss_terms == large.loss_terms && step.loss_terms.is_some(), "{step:?} for {large:?}");
    }
    let in_series = |batch_size, gradient_accumulation_steps| {
        trained_on_all(&Config { loss: two(0.3), batch_size, gradient_accumulation_steps, ..config() }, &series()).0
    };
    assert!(apart(&in_series(64, 1), &in_series(32, 2)) < 1e-5);
}

/// Gradient descent at the rate `lr`, in which a change of weights is that times the gradient.
fn sgd(lr: f64) -> OptimizerConfig {
    OptimizerConfig { kind: OptimizerKind::Sgd, lr, weight_decay: 0.0, ..OptimizerConfig::default() }
}

/// Steps over all samples at once. The engine rounds sums of up to 200 terms of order 1, and five
/// steps pass that on.
#[test]
fn losses_are_those_of_the_reference_step_by_step() {
    let samples = holed(200);
    let config = Config {
        loss: two(0.5),
        optimizer: sgd(0.5),
        clip_norm: None,
        max_steps: Some(5),
        batch_size: 200,
        ..config()
    };
    let mut reference = reference_of(&Trainer::new(&Device::cpu(), config.clone(), samples.shape().clone()).unwrap());
    let batch = windows_of(&samples, &(0..200).collect::<Vec<_>>());
    let (_, steps) = trained_on_all(&config, &samples);
    assert_eq!(steps.len(), 5);
    for step in steps {
        let (expected, gradients) = loss_and_gradients(&reference, &batch.view(), &config);
        assert!((step.loss - expected).abs() < 2e-6, "{step:?} for {expected}");
        descend(&mut reference, &gradients, 0.5);
    }
}

#[test]
fn one_task_is_its_loss_alone() {
    let samples = with_targets(100, |n, _, target| if n % 5 == 0 { f32::NAN } else { target });
    let alone = Tasks::new(&[Task { targets: [0, 2], loss: TaskLoss::Mse, weight: 1.0 }]).unwrap();
    let with = |loss| {
        let validation = SampleRanges::from(80..100);
        let train = SampleRanges::from(0..80);
        let run = Run { samples: &samples, train: &train, validation: &validation, checkpoints: None };
        let mut trainer = Trainer::new(&Device::cpu(), Config { loss, ..config() }, samples.shape().clone()).unwrap();
        let mut losses = Vec::new();
        let observe = &mut |event: Event<'_>| {
            match event {
                Event::Step(StepEvent { loss, .. }) => losses.push(loss),
                Event::Validation(ValidationEvent { loss, .. }) => losses.push(loss),
                _ => {}
            }
            ControlFlow::Continue(())
        };
        trainer.train(&run, observe).unwrap();
        losses
    };
    assert_eq!(with(Loss::Tasks(alone)), with(Loss::Mse));
}

#[test]
fn tasks_must_be_of_all_targets() {
    let short = Tasks::new(&[Task { targets: [0, 1], loss: TaskLoss::Mse, weight: 1.0 }]).unwrap();
    let shape = samples(1).shape().clone();
    let refused = Trainer::new(&Device::cpu(), Config { loss: Loss::Tasks(short), ..config() }, shape).unwrap_err();
    assert!(refused.to_string().starts_with("`tasks[0].targets` is ..1: expected 2 as its end"), "{refused}");
    let samples = with_targets(20, |_, k, _| if k == 0 { f32::INFINITY } else { 0.0 });
    let train = SampleRanges::from(0..20);
    let run = Run { samples: &samples, train: &train, validation: SampleRanges::NONE, checkpoints: None };
    let mut trainer =
        Trainer::new(&Device::cpu(), Config { loss: two(0.5), ..config() }, samples.shape().clone()).unwrap();
    let message = trainer.train(&run, &mut listen).unwrap_err().to_string();
    assert!(message.starts_with("a target is inf: expected a finite number"), "{message}");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// One step against the reference over all samples at once.
    #[test]
    fn gradients_are_those_of_the_weighted_means(
        known in prop::collection::vec(any::<[bool; 2]>(), 40), weight in 0.1f64..0.9, batch_size in 1usize..41,
    ) {
        prop_assume!(known.iter().any(|known| known[0] || known[1]));
        let samples = with_targets(40, |n, k, target| if known[n][k] { target } else { f32::NAN });
        let config = Config {
            optimizer: sgd(1.0),
            clip_norm: None,
            max_steps: Some(1),
            gradient_accumulation_steps: 40usize.div_ceil(batch_size),
            batch_size,
            loss: two(weight),
            ..config()
        };
        check_step(&samples, &config);
    }
}
