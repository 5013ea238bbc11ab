//! Weights of samples: a sample of weight 2 is one that comes twice.

use megabatch_gpu_core::Device;
use megabatch_nn::batch::LossOn;
use megabatch_nn::loss::{Ascending, Loss};
use megabatch_trainer::{
    Checkpoints, Config, InMemory, OptimizerConfig, OptimizerKind, Run, SampleRanges, SampleWeighting, Samples,
    Selection, Trainer,
};
use proptest::prelude::*;

use crate::by_hand::windows_of;
use crate::loading::lending_of;
use crate::made_up::{config, listen, losses, samples, series, trained_on_all};
use crate::masks::with_targets;
use crate::resuming::{state, stop_after};
use crate::target_scaling::WithTargets;
use crate::tasks::two;
use crate::weighted::Weighted;

fn auto(mut config: Config) -> Config {
    config.sample_weights = SampleWeighting::Auto;
    config
}

/// Steps whose changes are the gradients.
fn plain(mut config: Config) -> Config {
    let optimizer = OptimizerConfig { kind: OptimizerKind::Sgd, lr: 0.5, weight_decay: 0.0, ..config.optimizer };
    (config.optimizer, config.clip_norm) = (optimizer, None);
    config
}

fn bits(trainer: &Trainer) -> Vec<u32> {
    trainer.parameters().values().iter().map(|x| x.to_bits()).collect()
}

fn apart(a: &Trainer, b: &Trainer) -> f32 {
    let pairs = a.parameters().values().iter().zip(b.parameters().values());
    pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
}

/// Each sample as often as its weight says.
fn repeated(samples: &InMemory, weights: &[f32]) -> InMemory {
    let times = |(sample, &weight): (usize, &f32)| std::iter::repeat_n(sample, weight as usize);
    let list: Vec<usize> = weights.iter().enumerate().flat_map(times).collect();
    let batch = windows_of(samples, &list);
    let view = batch.view();
    let features = (0..samples.shape().timeframes.len()).map(|k| view.features(k).to_vec()).collect();
    InMemory::new(samples.shape().clone(), features, view.targets().to_vec()).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    /// Three steps of all samples at once, however they are cut into batches.
    #[test]
    fn a_weight_is_a_number_of_copies(
        weights in prop::collection::vec(0u8..4, 40), loss in 0usize..4, batch_size in 5usize..41, threads in 1usize..4,
    ) {
        let weights: Vec<f32> = weights.into_iter().map(f32::from).collect();
        let copies = weights.iter().sum::<f32>() as usize;
        prop_assume!(copies > 0);
        let levels = Ascending::new(&[0.1, 0.3, 0.8]).unwrap();
        let loss = [Loss::Mse, Loss::Huber { delta: 0.3 }, Loss::Quantile { levels }, two(0.3)][loss];
        let base = plain(Config { loss, threads, max_steps: Some(3), ..config() });
        let samples = samples(40);
        let copied = repeated(&samples, &weights);
        let (expected, expected_steps) = trained_on_all(&Config { batch_size: copies, ..base.clone() }, &copied);
        let gradient_accumulation_steps = 40usize.div_ceil(batch_size);
        let weighted = auto(Config { batch_size, gradient_accumulation_steps, ..base });
        let (found, steps) = trained_on_all(&weighted, &Weighted { inner: &samples, weights });
        // Sums of up to 160 terms of order 1 in another order, three times.
        prop_assert!(apart(&found, &expected) < 1e-5, "{}", apart(&found, &expected));
        for (found, expected) in losses(&steps).iter().zip(losses(&expected_steps)) {
            prop_assert!((found - expected).abs() < 1e-5 * expected.abs().max(1.0), "{found} for {expected}");
        }
    }
}

/// Weights of 0 and 1 leave samples out as targets that are not known do: in dense training, of
/// series and of windows that load themselves ahead.
#[test]
fn a_sample_of_weight_0_is_not_learnt_from() {
    let is_out = |sample: usize| sample.is_multiple_of(3);
    let weights = |count: usize| (0..count).map(|sample| if is_out(sample) { 0.0 } else { 1.0 }).collect::<Vec<f32>>();
    let all_at_once = plain(Config { batch_size: 50, gradient_accumulation_steps: 2, max_steps: Some(3), ..config() });
    let dense = Config { loss_on: LossOn::EveryStep, run_length: Some(10), ..all_at_once.clone() };
    for config in [all_at_once.clone(), dense] {
        let series = series();
        let targets = series.series().unwrap().targets.iter().enumerate();
        let targets = targets.map(|(place, &target)| if is_out(place / 2) { f32::NAN } else { target }).collect();
        let hidden = WithTargets { inner: &series, targets };
        let (expected, _) = trained_on_all(&config, &hidden);
        let (found, steps) = trained_on_all(&auto(config), &Weighted { inner: &series, weights: weights(100) });
        assert!(apart(&found, &expected) < 1e-5, "{}", apart(&found, &expected));
        assert!(steps.iter().all(|step| step.loss_terms.is_none()), "all targets are known");
    }
    let hidden = with_targets(100, |sample, _, target| if is_out(sample) { f32::NAN } else { target });
    let (expected, _) = trained_on_all(&all_at_once, &hidden);
    let lending = lending_of(&Device::cpu(), 100, 64);
    let (found, _) = trained_on_all(&auto(all_at_once), &Weighted { inner: &lending, weights: weights(100) });
    assert!(apart(&found, &expected) < 1e-5, "{}", apart(&found, &expected));
}

#[test]
fn equal_weights_and_weights_that_are_not_used_change_no_bit() {
    let samples = samples(40);
    let (expected, steps) = trained_on_all(&config(), &samples);
    let equal = Weighted { inner: &samples, weights: vec![0.25; 40] };
    let (found, equal_steps) = trained_on_all(&auto(config()), &equal);
    assert!(bits(&found) == bits(&expected));
    // Their sums are added in another order.
    let pairs = losses(&equal_steps).into_iter().zip(losses(&steps));
    assert!(pairs.into_iter().all(|(found, expected)| (found - expected).abs() < 1e-14), "{equal_steps:?}");
    let unused = trained_on_all(&config(), &Weighted::by_turns(&samples)).0;
    assert!(bits(&unused) == bits(&expected));
    let used = trained_on_all(&auto(config()), &Weighted::by_turns(&samples)).0;
    assert!(bits(&used) != bits(&expected));
    // Errors count all samples alike.
    let indices = SampleRanges::from(0..40);
    let errors = |samples: &dyn Samples| {
        let mut trainer = trained_on_all(&config(), samples).0;
        format!("{:?}", trainer.evaluate(Selection { samples, indices: &indices }, None).unwrap().metrics)
    };
    assert_eq!(errors(&equal), errors(&samples));
}

#[test]
fn a_weighted_run_is_resumed_to_the_same_bits_and_a_change_is_told() {
    let inner = samples(60);
    let samples = Weighted::by_turns(&inner);
    let config = auto(Config { max_steps: Some(12), ..config() });
    let train = SampleRanges::from(0..60);
    let run = |checkpoints| Run { samples: &samples, train: &train, validation: SampleRanges::NONE, checkpoints };
    let trainer = |config: &Config| Trainer::new(&Device::cpu(), config.clone(), inner.shape().clone()).unwrap();
    let mut whole = trainer(&config);
    whole.train(&run(None), &mut listen).unwrap();

    let folder = tempfile::tempdir().unwrap();
    let checkpoints = Checkpoints::new(folder.path());
    let mut first = trainer(&config);
    first.train(&run(Some(&checkpoints)), &mut stop_after(5)).unwrap();
    let mut rest = trainer(&config);
    assert!(rest.resume(&run(Some(&checkpoints))).unwrap().is_some_and(|resumed| resumed.changed.is_empty()));
    rest.train(&run(None), &mut listen).unwrap();
    assert_eq!(state(&rest), state(&whole));

    let mut other = trainer(&Config { sample_weights: SampleWeighting::None, ..config });
    let changed = other.resume(&run(Some(&checkpoints))).unwrap().unwrap().changed;
    assert_eq!(changed.iter().map(ToString::to_string).collect::<Vec<_>>(), ["`sample_weights` is none, it was auto"]);
}

#[test]
fn weights_that_are_none_are_refused() {
    let inner = samples(8);
    for (weight, expected) in [
        (f32::NAN, "the weight of sample 5 is NaN: expected a finite number from 0 on"),
        (-1.0, "the weight of sample 5 is -1: expected"),
        (f32::INFINITY, "the weight of sample 5 is inf: expected"),
    ] {
        let mut samples = Weighted { inner: &inner, weights: vec![1.0; 8] };
        samples.weights[5] = weight;
        let error = refusal(&samples);
        assert!(error.starts_with(expected), "{error}");
    }
    let error = refusal(&Weighted { inner: &inner, weights: vec![0.0; 8] });
    assert!(error.starts_with("the weights of all 8 training samples are 0"), "{error}");
}

fn refusal(samples: &dyn Samples) -> String {
    let train = SampleRanges::from(0..samples.len());
    let run = Run { samples, train: &train, validation: SampleRanges::NONE, checkpoints: None };
    let mut trainer = Trainer::new(&Device::cpu(), auto(config()), samples.shape().clone()).unwrap();
    trainer.train(&run, &mut listen).unwrap_err().to_string()
}
