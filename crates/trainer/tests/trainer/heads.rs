//! Models with several outputs for each target: classes and quantiles.

use megabatch_gpu_core::Device;
use megabatch_nn::loss::{Ascending, Classes, Loss};
use megabatch_reference::loss;
use megabatch_trainer::{
    Config, Error, InMemory, Metrics, OptimizerConfig, OptimizerKind, Run, SampleRanges, Samples, Selection, Trainer,
};

use crate::baselines::fit_for;
use crate::by_hand::{descend, inputs_of, loss_and_gradients, reference_of, wide, windows_of};
use crate::made_up::{config, listen, losses, samples, steps_of};
use crate::masks::with_targets;

/// Four of five samples to train on and the others to test with: the made-up targets go round so
/// slowly that a stretch of them is of one class.
fn split() -> [SampleRanges; 2] {
    let (test, train) = (0..200).partition(|n: &usize| n.is_multiple_of(5));
    [train, test]
}

/// Trains on four of five samples, and gives the trainer and every step's loss.
fn trained(config: &Config, samples: &InMemory) -> (Trainer, Vec<f64>) {
    let [train, _] = split();
    let run = Run { samples, train: &train, validation: SampleRanges::NONE, checkpoints: None };
    let mut trainer = Trainer::new(&Device::cpu(), config.clone(), samples.shape().clone()).unwrap();
    let steps = steps_of(&mut trainer, &run);
    (trainer, losses(&steps))
}

/// The errors on the other samples, and those of the baselines.
fn evaluated(trainer: &mut Trainer, loss: Loss, samples: &InMemory) -> (Metrics, Vec<(&'static str, Metrics)>) {
    let [train, test] = split();
    let selection = Selection { samples, indices: &train };
    let baselines = fit_for(&Device::cpu(), selection, None, loss).unwrap();
    let evaluation = trainer.evaluate(Selection { samples, indices: &test }, Some(&baselines)).unwrap();
    (evaluation.metrics, evaluation.baselines.into_iter().collect())
}

fn learning(loss: Loss) -> Config {
    let mut config = Config { loss, epochs: 15, run_length: Some(1), ..config() };
    config.optimizer.lr = 1e-2;
    config
}

/// Down, flat and up, of which a seventh is not known.
fn classes() -> (Classes, InMemory) {
    let samples = with_targets(200, |n, k, target| if (n + 2 * k).is_multiple_of(7) { f32::NAN } else { target });
    (Classes::Thresholds(Ascending::new(&[-0.4, 0.4]).unwrap()), samples)
}

#[test]
fn classes_of_targets_are_learnt_and_beat_the_most_frequent_one() {
    let (classes, samples) = classes();
    let loss = Loss::Classes(classes);
    let (mut trainer, _) = trained(&learning(loss), &samples);
    assert_eq!(trainer.parameters().get("head.weight").unwrap().len(), 2 * 3 * 2 * 5);
    let (metrics, baselines) = evaluated(&mut trainer, loss, &samples);
    let [("most_frequent", baseline)] = &baselines[..] else { panic!("{baselines:?}") };
    let known = metrics.known_targets.unwrap();
    let (model, other) = (metrics.classes.unwrap(), baseline.classes.as_ref().unwrap());
    assert_eq!(known.len(), 2);
    for (k, known) in known.into_iter().enumerate() {
        assert!(model.accuracy[k] > other.accuracy[k] + 0.2, "{model:?} beside {other:?}");
        assert!(model.cross_entropy[k] < 0.8 * other.cross_entropy[k], "{model:?} beside {other:?}");
        // Of three classes that all came, the most frequent one alone is predicted.
        assert!((other.balanced_accuracy[k] - 1.0 / 3.0).abs() < 1e-12, "{other:?}");
        assert_eq!(model.confusion[k].iter().flatten().sum::<usize>(), known);
    }
    assert_eq!(metrics.direction_accuracy, [None; 2]);
    assert!(metrics.rmse[0] < baseline.rmse[0]);
}

#[test]
fn labels_are_learnt_as_the_thresholds_that_make_them() {
    let (classes, samples) = classes();
    let label = |target: f32| classes.index(f64::from(target)).map_or(f32::NAN, |class| class as f32);
    let labelled =
        with_targets(200, |n, k, target| if (n + 2 * k).is_multiple_of(7) { f32::NAN } else { label(target) });
    let with = |loss, samples: &InMemory| trained(&Config { max_steps: Some(5), ..learning(loss) }, samples).1;
    assert_eq!(with(Loss::Classes(Classes::Labels(3)), &labelled), with(Loss::Classes(classes), &samples));
}

/// Steps over all training samples at once, at a rate of 0.5. The engine rounds sums of up to 160
/// terms of order 1, and five steps pass that on.
#[test]
fn losses_are_those_of_the_reference_step_by_step() {
    let (classes, samples) = classes();
    let levels = Ascending::new(&[0.1, 0.5, 0.9]).unwrap();
    let [train, test] = split().map(|part| windows_of(&samples, &part.iter().collect::<Vec<_>>()));
    for objective in [Loss::Classes(classes), Loss::Quantile { levels }] {
        let optimizer = OptimizerConfig { kind: OptimizerKind::Sgd, lr: 0.5, weight_decay: 0.0, ..Default::default() };
        let config = Config { optimizer, clip_norm: None, max_steps: Some(5), batch_size: 160, ..learning(objective) };
        let mut reference =
            reference_of(&Trainer::new(&Device::cpu(), config.clone(), samples.shape().clone()).unwrap());
        let (mut trainer, losses) = trained(&config, &samples);
        assert_eq!(losses.len(), 5);
        for (step, found) in losses.into_iter().enumerate() {
            let (expected, gradients) = loss_and_gradients(&reference, &train.view(), &config);
            assert!((found - expected).abs() < 2e-6, "{objective:?}, step {step}: {found} for {expected}");
            descend(&mut reference, &gradients, 0.5);
        }
        let [_, indices] = split();
        let found = trainer.evaluate(Selection { samples: &samples, indices: &indices }, None).unwrap().loss;
        let outputs = reference.forward(&inputs_of(&test.view())).outputs;
        let expected = loss(objective, &outputs, &wide(test.view().targets()), 2).mean;
        assert!((found - expected).abs() < 2e-6, "{objective:?}: {found} for {expected}");
    }
}

#[test]
fn quantiles_are_learnt_in_their_order() {
    let levels = Ascending::new(&[0.1, 0.5, 0.9]).unwrap();
    let (loss, samples) = (Loss::Quantile { levels }, samples(200));
    let (mut trainer, losses) = trained(&learning(loss), &samples);
    assert!(losses[losses.len() - 20..].iter().sum::<f64>() < 0.5 * losses[..20].iter().sum::<f64>(), "{losses:?}");
    let (metrics, baselines) = evaluated(&mut trainer, loss, &samples);
    let quantiles = metrics.quantiles.unwrap();
    for k in 0..2 {
        let coverage: Vec<f64> = quantiles.coverage.iter().map(|by_horizon| by_horizon[k]).collect();
        assert!(coverage[0] < 0.5 && coverage[2] > 0.5 && coverage.is_sorted(), "{quantiles:?}");
        // That of the median is half the mean absolute error.
        assert!((2.0 * quantiles.pinball_loss[1][k] - metrics.mae[k]).abs() < 1e-12, "{quantiles:?}");
    }
    assert_eq!(baselines.len(), 3);
    assert!(baselines.iter().all(|(_, metrics)| metrics.quantiles.is_none() && metrics.rmse.len() == 2));
}

#[test]
fn a_target_that_names_no_class_is_named() {
    let loss = Loss::Classes(Classes::Labels(3));
    let samples = with_targets(200, |n, _, _| if n == 170 { 7.0 } else { (n % 3) as f32 });
    let all = SampleRanges::from(0..200);
    let run = Run { samples: &samples, train: &all, validation: SampleRanges::NONE, checkpoints: None };
    let mut trainer = Trainer::new(&Device::cpu(), learning(loss), samples.shape().clone()).unwrap();
    let selection = Selection { samples: &samples, indices: &all };
    let errors = [
        trainer.evaluate(selection, None).unwrap_err(),
        fit_for(&Device::cpu(), selection, None, loss).unwrap_err(),
        trainer.train(&run, &mut listen).unwrap_err(),
    ];
    for error in errors {
        assert!(matches!(error, Error::Model(megabatch_nn::Error::Targets { .. })), "{error}");
        assert!(error.to_string().starts_with("a target is 7: expected a whole number from 0 to 2"), "{error}");
    }
}
