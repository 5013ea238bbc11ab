//! Scaled targets: the run is that of targets that were scaled before, and everything that leaves
//! it is in the unit of the targets.

use std::error::Error as StdError;

use megabatch_gpu_core::Device;
use megabatch_nn::batch::{LossOn, SeriesView};
use megabatch_nn::loss::{Ascending, Loss};
use megabatch_nn::model::Model;
use megabatch_nn_cpu::Compute;
use megabatch_trainer::{
    Batch, Checkpoints, Config, Error, Predictor, Run, SampleRanges, Samples, Selection, StepEvent, TargetScaling,
    Trainer,
};
use proptest::prelude::*;

use crate::made_up::{config, listen, losses, samples, series, shape_and_len_from, steps_of, trained_on_all};
use crate::resuming::{state, stop_after};
use crate::tasks::two;

const TRAIN: usize = 80;

/// Samples with other targets.
pub(crate) struct WithTargets<'a> {
    pub(crate) inner: &'a dyn Samples,
    pub(crate) targets: Vec<f32>,
}

impl Samples for WithTargets<'_> {
    shape_and_len_from!(inner);

    fn gather(&self, samples: &[usize], batch: &mut Batch) -> Result<(), Box<dyn StdError + Send + Sync>> {
        self.inner.gather(samples, batch)?;
        self.read_targets(samples, batch.targets_mut())
    }

    fn series(&self) -> Option<SeriesView<'_>> {
        self.inner.series().map(|series| SeriesView { targets: &self.targets, ..series })
    }

    fn targets(&self) -> Option<&[f32]> {
        Some(&self.targets)
    }
}

/// Targets of a far mean and a small deviation, of which some are not known.
fn far_targets(samples: &dyn Samples) -> Vec<f32> {
    let mut targets = vec![0.0; samples.len() * 2];
    let all: Vec<usize> = (0..samples.len()).collect();
    samples.read_targets(&all, &mut targets).unwrap();
    let far = |(place, target): (usize, &f32)| match place {
        _ if place % 14 == 3 => f32::NAN,
        _ if place % 2 == 0 => 40.0 + 0.5 * target,
        _ => -2e-4 + 3e-5 * target,
    };
    targets.iter().enumerate().map(far).collect()
}

/// Mean and population deviation of the known training targets, by the formula.
fn mean_and_deviation(targets: &[f32], k: usize) -> (f64, f64) {
    let known = || targets[..TRAIN * 2].iter().skip(k).step_by(2).map(|&t| f64::from(t)).filter(|t| !t.is_nan());
    let count = known().count() as f64;
    let mean = known().sum::<f64>() / count;
    (mean, (known().map(|t| (t - mean).powi(2)).sum::<f64>() / count).sqrt())
}

fn scaled_by_hand(targets: &[f32]) -> Vec<f32> {
    let scales = [mean_and_deviation(targets, 0), mean_and_deviation(targets, 1)];
    let scaled = |(place, &target): (usize, &f32)| {
        let (mean, deviation) = scales[place % 2];
        ((f64::from(target) - mean) / deviation) as f32
    };
    targets.iter().enumerate().map(scaled).collect()
}

fn train_part() -> SampleRanges {
    SampleRanges::from(0..TRAIN)
}

fn auto(mut config: Config) -> Config {
    config.target_scaling = TargetScaling::Auto;
    config
}

/// The largest difference of two lists in parts of the largest number.
fn apart(a: &[f32], b: &[f32]) -> f32 {
    let size = a.iter().fold(0.0f32, |size, x| size.max(x.abs()));
    a.iter().zip(b).map(|(a, b)| (a - b).abs() / size).fold(0.0, f32::max)
}

fn predictions(trainer: &Trainer, model: Model, samples: &dyn Samples) -> Vec<f32> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("weights.safetensors");
    trainer.save_weights(&path).unwrap();
    let compute = Compute { threads: 1, batch_size: 16 };
    let mut predictor = Predictor::open(&Device::cpu(), model, &path, compute).unwrap();
    let all = SampleRanges::from(0..samples.len());
    let mut found = vec![0.0; samples.len() * 2];
    let sink = |indices: &[usize], outputs: &[f32]| {
        let rows = indices.iter().zip(outputs.chunks_exact(2));
        rows.for_each(|(&index, row)| found[index * 2..][..2].copy_from_slice(row));
        Ok::<(), Error>(())
    };
    predictor.predict(Selection { samples, indices: &all }, sink).unwrap();
    found
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    /// The losses are those of targets that were scaled by hand, to the rounding of mean and
    /// deviation; evaluations have the errors of the predictions in the targets' unit.
    #[test]
    fn a_run_is_that_of_targets_scaled_before(
        kind in 0_usize..4, loss in 0_usize..3, is_series in any::<bool>(), threads in 1_usize..4,
    ) {
        let inner: Box<dyn Samples> = if is_series { Box::new(series()) } else { Box::new(samples(100)) };
        let targets = far_targets(inner.as_ref());
        let by_hand = WithTargets { targets: scaled_by_hand(&targets), inner: inner.as_ref() };
        let far = WithTargets { targets, inner: inner.as_ref() };
        let loss = [Loss::Mse, Loss::Huber { delta: 0.5 }, Loss::Quantile { levels: Ascending::new(&[0.5]).unwrap() }][loss];
        let loss_on = if is_series && kind == 1 { LossOn::EveryStep } else { LossOn::LastStep };
        let config = Config { loss, loss_on, carry_state: is_series && kind == 2, threads, max_steps: Some(12), ..config() };
        let (train, validation) = (train_part(), SampleRanges::from(TRAIN..100));
        let run = |samples| Run { samples, train: &train, validation: &validation, checkpoints: None };
        let mut trainer = Trainer::new(&Device::cpu(), auto(config.clone()), far.shape().clone()).unwrap();
        let found = losses(&steps_of(&mut trainer, &run(&far)));
        let mut plain = Trainer::new(&Device::cpu(), config, far.shape().clone()).unwrap();
        let expected = losses(&steps_of(&mut plain, &run(&by_hand)));
        for (found, expected) in found.iter().zip(&expected) {
            prop_assert!((found - expected).abs() < 1e-4 * expected, "{found}, expected {expected}");
        }
        prop_assert!(apart(plain.parameters().values(), trainer.parameters().values()) < 1e-3);

        let selection = |samples| Selection { samples, indices: &validation };
        let errors = trainer.evaluate(selection(&far), None).unwrap();
        let scaled = plain.evaluate(selection(&by_hand), None).unwrap();
        prop_assert!((errors.loss - scaled.loss).abs() < 1e-3 * scaled.loss);
        for k in 0..2 {
            let (_, deviation) = mean_and_deviation(&far.targets, k);
            let expected = scaled.metrics.rmse[k] * deviation;
            prop_assert!((errors.metrics.rmse[k] - expected).abs() < 2e-3 * expected, "{:?}, expected {expected}", errors.metrics.rmse);
        }
    }
}

/// A head of tasks has a scale for each target that is a number, and none for classes.
#[test]
fn classes_beside_numbers_are_not_scaled() {
    let inner = samples(100);
    let mut targets = far_targets(&inner);
    let mut original = vec![0.0; 200];
    inner.read_targets(&(0..100).collect::<Vec<_>>(), &mut original).unwrap();
    targets.iter_mut().zip(original).step_by(2).for_each(|(target, original)| *target = original);
    let far = WithTargets { targets, inner: &inner };
    let mut config = auto(Config { loss: two(0.4), max_steps: Some(60), run_length: Some(1), ..config() });
    config.optimizer.lr = 1e-2;
    let (mut trainer, steps) = trained_on_all(&config, &far);
    let all = SampleRanges::from(0..100);
    let evaluation = trainer.evaluate(Selection { samples: &far, indices: &all }, None).unwrap();
    let [classes, numbers] = &evaluation.tasks[..] else { panic!("{evaluation:?}") };
    assert!(classes.metrics.classes.as_ref().unwrap().accuracy[0] > 0.4);
    // 3e-5 of deviation: without scaling the head would begin four digits above it.
    assert!(numbers.metrics.rmse[0] < 4e-5, "{:?}", numbers.metrics.rmse);
    let mean = |steps: &[StepEvent]| steps.iter().map(|step| step.loss).sum::<f64>() / steps.len() as f64;
    assert!(mean(&steps[50..]) < mean(&steps[..10]));
}

/// Without an error in the targets' own unit, such as 1e-4, there is nothing to learn for a head
/// whose first weights are a thousand times as large.
#[test]
fn what_is_saved_predicts_in_the_unit_of_the_targets_and_goes_on_bit_for_bit() {
    let inner = samples(100);
    let far = WithTargets { targets: far_targets(&inner), inner: &inner };
    let folder = tempfile::tempdir().unwrap();
    let checkpoints = Checkpoints::new(folder.path().join("checkpoints"));
    let (train, validation) = (train_part(), SampleRanges::from(TRAIN..100));
    let run = |checkpoints| Run { samples: &far, train: &train, validation: &validation, checkpoints };
    let config = auto(Config { max_steps: Some(20), ..config() });
    let new = |config: &Config| Trainer::new(&Device::cpu(), config.clone(), far.shape().clone()).unwrap();
    let mut whole = new(&config);
    whole.train(&run(None), &mut listen).unwrap();

    new(&config).train(&run(Some(&checkpoints)), &mut stop_after(9)).unwrap();
    // Whatever the settings say now: the checkpoint has the scales.
    let mut rest = new(&Config { target_scaling: TargetScaling::None, ..config.clone() });
    rest.resume(&run(Some(&checkpoints))).unwrap().unwrap();
    rest.train(&run(Some(&checkpoints)), &mut listen).unwrap();
    assert!(state(&rest) == state(&whole));

    // The weights of the last checkpoint are those of `save_weights`, and need no scale.
    let model = || Model::new(far.shape().clone(), whole.model().config()).unwrap();
    let found = predictions(&whole, model(), &far);
    let (step, path) = checkpoints.list().unwrap().pop().unwrap();
    assert_eq!(step, 20);
    let saved = std::fs::read(path.join("model.safetensors")).unwrap();
    let own = folder.path().join("own.safetensors");
    whole.save_weights(&own).unwrap();
    assert!(saved == std::fs::read(&own).unwrap());
    let expected = whole.evaluate(Selection { samples: &far, indices: &validation }, None).unwrap();
    let mut raw = new(&config);
    raw.load_weights(&own).unwrap();
    let errors = raw.evaluate(Selection { samples: &far, indices: &validation }, None).unwrap();
    for k in 0..2 {
        assert!((errors.metrics.rmse[k] / expected.metrics.rmse[k] - 1.0).abs() < 1e-4);
        let (mean, deviation) = mean_and_deviation(&far.targets, k);
        let near = found.iter().skip(k).step_by(2).all(|y| (f64::from(*y) - mean).abs() < 4.0 * deviation);
        assert!(near, "{k}: {mean} ± {deviation}, {found:?}");
    }

    // Weights that are loaded are for the targets as they are.
    raw.train(&Run { samples: &far, train: &train, validation: &validation, checkpoints: None }, &mut listen).unwrap();
    let after = raw.evaluate(Selection { samples: &far, indices: &validation }, None).unwrap();
    assert!(after.loss > 1e-3, "the loss is that of targets around 40: {}", after.loss);
}

/// A target that is constant keeps its size, and its mean is learnt at once.
#[test]
fn a_constant_target_is_only_centred() {
    let inner = samples(40);
    let targets: Vec<f32> = (0..80).map(|place| if place % 2 == 0 { 7.5 } else { f32::NAN }).collect();
    let far = WithTargets { targets, inner: &inner };
    let (mut trainer, steps) = trained_on_all(&auto(Config { max_steps: Some(3), ..config() }), &far);
    assert!(steps[0].loss < 0.5, "{}", steps[0].loss);
    let all = SampleRanges::from(0..40);
    let evaluation = trainer.evaluate(Selection { samples: &far, indices: &all }, None).unwrap();
    assert!(evaluation.metrics.rmse[0] < 0.5, "{:?}", evaluation.metrics.rmse);
}
