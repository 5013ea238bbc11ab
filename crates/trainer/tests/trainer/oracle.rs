//! The engine, as a trainer uses it, against the reference, over random models and samples.

use std::ops::ControlFlow;

use megabatch_gpu_core::Device;
use megabatch_nn::model::{ModelConfig, SampleShape, Timeframe};
use megabatch_nn_cpu::Compute;
use megabatch_order::{Batches, Batching, Order};
use megabatch_reference::Gradients;
use megabatch_trainer::{
    Config, Event, InMemory, OptimizerConfig, OptimizerKind, Predictor, Run, SampleRanges, Samples, Selection,
    SeriesInMemory, Trainer,
};
use proptest::prelude::*;

use crate::by_hand::{ByHand, inputs_of, loss_and_gradients, norm_of, reference_of, streamed, windows_of};
use crate::made_up::{cell_of, fusion_of, listen, pooling_of};

/// Numbers in (-1, 1) without pattern.
fn numbers(seed: usize, len: usize) -> Vec<f32> {
    (0..len).map(|i| (i as f64 * 12.9898 + seed as f64 * 78.233 + 1.0).sin() as f32).collect()
}

/// The windows of `series` one by one.
fn materialised(series: &SeriesInMemory) -> InMemory {
    let batch = windows_of(series, &all(series));
    let windows = (0..series.shape().timeframes.len()).map(|k| batch.view().features(k).to_vec()).collect();
    InMemory::new(series.shape().clone(), windows, batch.view().targets().to_vec()).unwrap()
}

fn all(samples: &dyn Samples) -> Vec<usize> {
    (0..samples.len()).collect()
}

/// Change by one step of gradient descent at rate 1 without clipping: the gradients; and its loss.
fn step(samples: &dyn Samples, config: &Config) -> (Vec<(String, Vec<f32>)>, f64, f64) {
    let device = Device::cpu();
    let mut trainer = Trainer::new(&device, config.clone(), samples.shape().clone()).unwrap();
    let before = trainer.model().initial_parameters(&device.scope("test"), config.seed).unwrap();
    let train = SampleRanges::from(0..samples.len());
    let run = Run { samples, train: &train, validation: SampleRanges::NONE, checkpoints: None };
    let (mut loss, mut norm) = (f64::NAN, f64::NAN);
    trainer
        .train(&run, &mut |event| {
            if let Event::Step(step) = &event {
                (loss, norm) = (step.loss, step.grad_norm);
            }
            listen(event)
        })
        .unwrap();
    let gradients = trainer.parameters().tensors().zip(before.tensors());
    let gradients = gradients.map(|((name, _, after), (_, _, before))| {
        (name.to_owned(), after.iter().zip(before).map(|(after, before)| before - after).collect())
    });
    (gradients.collect(), loss, norm)
}

fn predictions(samples: &dyn Samples, config: &Config) -> Vec<f32> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("w.safetensors");
    let trainer = Trainer::new(&Device::cpu(), config.clone(), samples.shape().clone()).unwrap();
    trainer.save_weights(&path).unwrap();
    let model = megabatch_nn::model::Model::new(samples.shape().clone(), config.model).unwrap();
    let compute = Compute { threads: 2, batch_size: config.batch_size };
    let mut predictor = Predictor::open(&Device::cpu(), model, &path, compute).unwrap();
    if config.carry_state {
        predictor = predictor.with_carried_state();
    }
    let indices = SampleRanges::from(0..samples.len());
    let mut found = Vec::new();
    let selection = Selection { samples, indices: &indices };
    predictor
        .predict(selection, |_, predictions| {
            found.extend_from_slice(predictions);
            Ok::<(), megabatch_trainer::Error>(())
        })
        .unwrap();
    found
}

/// The largest difference.
fn error_of(found: &[f32], expected: &[f64]) -> f64 {
    assert_eq!(found.len(), expected.len());
    found.iter().zip(expected).map(|(found, expected)| (f64::from(*found) - expected).abs()).fold(0.0, f64::max)
}

fn largest(values: &[f64]) -> f64 {
    values.iter().fold(f64::MIN_POSITIVE, |most, x| most.max(x.abs()))
}

/// The largest difference as a share of the largest magnitude.
fn apart(found: &[f32], expected: &[f64]) -> f64 {
    error_of(found, expected) / largest(expected)
}

/// Refuses gradients that differ by more than `share` of the largest of their tensor, and
/// `rounding`.
fn check_gradients(found: &[(String, Vec<f32>)], expected: &Gradients, share: f64, rounding: f64) {
    assert_eq!(found.len(), expected.parameters.len());
    for (name, found) in found {
        let expected = &expected.parameters[name];
        let (error, largest) = (error_of(found, expected), largest(expected));
        assert!(error <= share * largest + rounding, "{name}: off by {error} of {largest}");
    }
}

/// One timeframe: T, F, and how far the end of the window moves at every third sample and at the
/// others; 3 stands for a gap of 25 bars, beyond which windows share nothing.
type Shape = (usize, usize, [usize; 2]);

fn samples(count: usize, timeframes: &[Shape]) -> SeriesInMemory {
    let timeframe = |(k, &(steps, features, _)): (usize, &Shape)| Timeframe { name: format!("T{k}"), steps, features };
    let shape = SampleShape { timeframes: timeframes.iter().enumerate().map(timeframe).collect(), outputs: 3 };
    let series = timeframes.iter().enumerate().map(|(k, &(steps, features, strides))| {
        let other = if strides[1] == 3 { 25 } else { strides[1] };
        let end = |n: usize| steps - 1 + (n / 3) * strides[0] + (n - n / 3) * other;
        let ends: Vec<i64> = (0..count).map(|n| end(n) as i64).collect();
        (numbers(k, (end(count) + 1) * features), ends)
    });
    SeriesInMemory::new(shape, series.collect(), numbers(50, count * 3)).unwrap()
}

/// The same samples, those from the `first`-th on in a second segment, which begins `late` bars
/// before the first window in it.
fn in_two_segments(samples: &SeriesInMemory, first: usize, late: usize) -> SeriesInMemory {
    let shape = samples.shape().clone();
    let view = samples.series().unwrap();
    let mut starts = Vec::new();
    let series = view.timeframes.iter().zip(&shape.timeframes).enumerate().map(|(k, (series, timeframe))| {
        let moved = (timeframe.steps + late) as i64;
        let (before, after) = series.ends.split_at(first);
        let ends: Vec<i64> = before.iter().copied().chain(after.iter().map(|end| end + moved)).collect();
        let start = after.first().map(|end| end + 1).filter(|&start| start > 0);
        starts.push([0].into_iter().chain(start).collect::<Vec<i64>>());
        (numbers(k, series.values.len() + moved as usize * timeframe.features), ends)
    });
    let series = series.collect();
    SeriesInMemory::new(shape, series, view.targets.to_vec()).unwrap().with_segments(starts).unwrap()
}

/// A trainer that is let go one optimizer step at a time.
struct Stepwise<'a> {
    samples: &'a dyn Samples,
    train: SampleRanges,
    trainer: Trainer,
    lr: f32,
}

impl<'a> Stepwise<'a> {
    fn new(samples: &'a dyn Samples, config: &Config) -> Self {
        let trainer = Trainer::new(&Device::cpu(), config.clone(), samples.shape().clone()).unwrap();
        Stepwise { samples, train: SampleRanges::from(0..samples.len()), trainer, lr: config.optimizer.lr as f32 }
    }

    /// The loss and the gradients of the next step.
    fn step(&mut self) -> (f64, Vec<(String, Vec<f32>)>) {
        let before = self.trainer.parameters().values().to_vec();
        let run = Run { samples: self.samples, train: &self.train, validation: SampleRanges::NONE, checkpoints: None };
        let mut loss = f64::NAN;
        let stop = &mut |event: Event<'_>| match event {
            Event::Step(step) => {
                loss = step.loss;
                ControlFlow::Break(())
            }
            _ => ControlFlow::Continue(()),
        };
        self.trainer.train(&run, stop).unwrap();
        let mut before = before.iter();
        let tensors = self.trainer.parameters().tensors();
        let gradients = tensors.map(|(name, _, after)| {
            (name.to_owned(), after.iter().map(|after| (before.next().unwrap() - after) / self.lr).collect())
        });
        (loss, gradients.collect())
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// The engine rounds sums of up to 70 · 20 terms, which a few layers and steps pass on: 1e-7 a
    /// term at the root of their number. The gradients are read off weights of up to 1, which
    /// rounds them by 6e-8.
    #[test]
    fn a_step_is_that_of_the_reference(
        timeframes in prop::collection::vec((1usize..20, 1usize..40, [0usize..3, 0usize..4]), 1..4),
        (hidden, layers, bias, gru) in (1usize..40, 1usize..4, any::<bool>(), any::<bool>()),
        (count, batch_size, threads) in (1usize..71, 1usize..71, 1usize..4),
        (pooling, fuses, layer_norm) in (0usize..3, any::<bool>(), any::<bool>()),
    ) {
        let (pooling, fusion) = (pooling_of(pooling, hidden), fusion_of(fuses, hidden));
        // As in fusion, see there.
        let layer_norm = layer_norm && hidden > 3;
        let samples = samples(count, &timeframes);
        let windows = materialised(&samples);
        let config = Config {
            model: ModelConfig {
                cell: cell_of(gru), hidden, layers, bias, layer_norm, pooling, fusion, ..ModelConfig::default()
            },
            optimizer: OptimizerConfig { kind: OptimizerKind::Sgd, lr: 1.0, weight_decay: 0.0, ..OptimizerConfig::default() },
            clip_norm: None,
            gradient_accumulation_steps: count.div_ceil(batch_size),
            batch_size,
            threads,
            seed: 5,
            ..Config::default()
        };
        let reference = reference_of(&Trainer::new(&Device::cpu(), config.clone(), samples.shape().clone()).unwrap());
        let batch = windows_of(&samples, &all(&samples));
        let (expected_loss, expected) = loss_and_gradients(&reference, &batch.view(), &config);
        let (expected_norm, outputs) = (norm_of(&expected), reference.forward(&inputs_of(&batch.view())).outputs);
        for samples in [&samples as &dyn Samples, &windows] {
            let (gradients, loss, norm) = step(samples, &config);
            prop_assert!((loss - expected_loss).abs() <= 1e-5 * expected_loss, "loss {} for {}", loss, expected_loss);
            prop_assert!((norm - expected_norm).abs() <= 1e-5 * expected_norm, "norm {} for {}", norm, expected_norm);
            check_gradients(&gradients, &expected, 1e-5, 2.5e-7);
            prop_assert!(apart(&predictions(samples, &config), &outputs) < 1e-5);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Dropout and carried state over several steps, of which each begins where the one before it
    /// came to. Beside the rounding of one step, see above, the weights and the carried states of
    /// the steps before differ by as much again, and gradients are read off weights of up to 1 that
    /// move by the rate times them.
    #[test]
    fn dropout_and_carried_state_are_those_of_the_reference(
        timeframes in prop::collection::vec((1usize..12, 1usize..20, [0usize..3, 0usize..4]), 1..3),
        (hidden, layers, gru) in (1usize..36, 1usize..4, any::<bool>()),
        (count, batch_size, gradient_accumulation_steps, threads) in (4usize..44, 6usize..50, 1usize..4, 1usize..4),
        (rate, carry_state) in (prop_oneof![Just(0.0f32), 0.1f32..0.8], any::<bool>()),
        run_length in prop_oneof![Just(None), (1usize..9).prop_map(Some)],
        (segments, pooling, fuses, layer_norm) in ((1usize..60, 0usize..4), 0usize..3, any::<bool>(), any::<bool>()),
    ) {
        let (pooling, fusion) = (pooling_of(pooling, hidden), fusion_of(fuses, hidden));
        // As in fusion, see there.
        let layer_norm = layer_norm && hidden > 3;
        let samples = in_two_segments(&samples(count, &timeframes), segments.0.min(count), segments.1);
        // Norms make vectors of length √H, for which steps must be short, or the loss grows with
        // every one.
        let lr: f64 = if fuses || layer_norm { 0.02 } else { 0.25 };
        let config = Config {
            model: ModelConfig { cell: cell_of(gru), hidden, layers, layer_norm, pooling, fusion, ..ModelConfig::default() },
            optimizer: OptimizerConfig { kind: OptimizerKind::Sgd, lr, weight_decay: 0.0, ..OptimizerConfig::default() },
            dropout: rate,
            carry_state,
            clip_norm: None,
            max_steps: Some(5),
            gradient_accumulation_steps,
            batch_size,
            run_length,
            threads,
            seed: 5,
            ..Config::default()
        };
        let (mut got, mut expected) = (Stepwise::new(&samples, &config), ByHand::new(&samples, &config));
        let outputs = match carry_state {
            true => streamed(&expected.reference, &samples, &all(&samples)),
            false => expected.reference.forward(&inputs_of(&windows_of(&samples, &all(&samples)).view())).outputs,
        };
        let order = Order::new(count, config.run_samples(), config.seed).unwrap();
        let whole = Batching { batch_size: batch_size * gradient_accumulation_steps, ..Batching::default() };
        for (step, list) in Batches::new(order, whole).unwrap().lists(0..5).enumerate() {
            let ((loss, gradients), (expected_loss, expected)) = (got.step(), expected.step(&list));
            prop_assert!((loss - expected_loss).abs() <= 2e-5 * expected_loss, "{step}: loss {loss} for {expected_loss}");
            check_gradients(&gradients, &expected, 4e-5, 5e-7 / lr);
        }
        prop_assert!(apart(&predictions(&samples, &config), &outputs) < 1e-5);
    }
}

#[test]
fn large_inputs_saturate_and_stay_finite() {
    let shape = samples(40, &[(9, 3, [1, 1])]).shape().clone();
    let values: Vec<f32> = numbers(1, 50 * 3).into_iter().map(|x| x * 1e30).collect();
    let ends = (8..48).collect();
    let samples = SeriesInMemory::new(shape, vec![(values, ends)], numbers(2, 120)).unwrap();
    let config = Config {
        batch_size: 40,
        model: ModelConfig { hidden: 7, layers: 2, ..ModelConfig::default() },
        ..Config::default()
    };
    let (gradients, loss, _) = step(&samples, &config);
    assert!(loss.is_finite() && gradients.iter().all(|(_, g)| g.iter().all(|x| x.is_finite())));
}

#[test]
fn series_give_the_same_bits_on_any_number_of_threads() {
    let samples = in_two_segments(&samples(100, &[(12, 5, [1, 1]), (6, 4, [0, 1])]), 70, 2);
    for (dropout, carry_state, pooling) in [(0.0, false, 0), (0.3, true, 0), (0.3, true, 1), (0.0, false, 2)] {
        let bits = |threads, batch_size, gradient_accumulation_steps| {
            let config = Config {
                batch_size,
                gradient_accumulation_steps,
                threads,
                dropout,
                carry_state,
                epochs: 3,
                model: ModelConfig {
                    hidden: 20,
                    layers: 2,
                    pooling: pooling_of(pooling, 20),
                    ..ModelConfig::default()
                },
                ..Config::default()
            };
            let (weights, loss, norm) = step(&samples, &config);
            let weights: Vec<u32> = weights.iter().flat_map(|(_, w)| w.iter().map(|x| x.to_bits())).collect();
            (weights, loss.to_bits(), norm.to_bits())
        };
        let one = bits(1, 64, 1);
        for (threads, batch_size, gradient_accumulation_steps) in [(2, 64, 1), (3, 64, 1), (1, 32, 2), (3, 32, 2)] {
            let same = bits(threads, batch_size, gradient_accumulation_steps) == one;
            assert!(
                same,
                "{threads} threads, {batch_size} x {gradient_accumulation_steps}, dropout {dropout}, pooling {pooling}"
            );
        }
    }
}

#[test]
fn windows_outside_their_series_are_refused() {
    let shape = SampleShape { timeframes: vec![Timeframe { name: "M1".into(), steps: 4, features: 1 }], outputs: 1 };
    for (end, inside) in [(2, false), (3, true), (9, true), (10, false), (-1, false)] {
        let samples = SeriesInMemory::new(shape.clone(), vec![(vec![0.0; 10], vec![end])], vec![0.0]);
        assert_eq!(samples.is_ok(), inside, "{end}");
    }
    let with_segments = |starts: Vec<i64>| {
        let series = SeriesInMemory::new(shape.clone(), vec![(vec![0.0; 10], vec![3, 9])], vec![0.0; 2]).unwrap();
        series.with_segments(vec![starts]).map(drop).map_err(|error| error.to_string())
    };
    assert_eq!(with_segments(vec![0, 4, 6]), Ok(()));
    let rule = |segment: usize, start: i64, rule: &str| {
        format!("M1: segment {segment} begins at bar {start}, but {rule}; build the series anew")
    };
    for (starts, expected) in [
        (vec![1, 4], rule(0, 1, "the first one begins at bar 0")),
        (vec![0, 4, 4], rule(2, 4, "each begins after the one before it")),
        (vec![0, 4, 10], rule(2, 10, "each begins at a bar that exists")),
    ] {
        assert_eq!(with_segments(starts), Err(expected));
    }
    let across = "sample 1: a window of 4 bars that ends at bar 9 of M1 reaches over the start of a segment at bar 7; build the \
                  samples anew from these series";
    assert_eq!(with_segments(vec![0, 7]), Err(across.to_owned()));
    let short = SeriesInMemory::new(shape, vec![(vec![0.0; 10], vec![3])], vec![0.0; 2]);
    assert!(matches!(short, Err(megabatch_trainer::Error::SamplesShape { .. })));
}
