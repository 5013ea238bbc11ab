//! Dense training against its definition, and what it refuses.

use std::collections::BTreeMap;
use std::fs;
use std::ops::{ControlFlow, Range};

use megabatch_gpu_core::Device;
use megabatch_nn::batch::LossOn;
use megabatch_nn::loss::Loss;
use megabatch_nn::model::{Dropout, Model, ModelConfig, Pooling, SampleShape, TensorSet, Timeframe, save_weights};
use megabatch_nn_cpu::Compute;
use megabatch_order::Order;
use megabatch_reference::{Inputs, Reference, loss};
use megabatch_trainer::{
    CarriedStates, Checkpoints, Config, Event, OptimizerConfig, OptimizerKind, Predictor, Run, SampleRanges, Samples,
    Selection, SeriesInMemory, Trainer,
};
use proptest::prelude::*;

use crate::by_hand::{one_pass, wide};
use crate::made_up::{cell_of, config, listen, losses, samples, series, trained_on_all};

/// One epoch of steps of gradient descent, whose weights and losses, and whether the device's peak
/// is what it was at the start.
fn trained(samples: &dyn Samples, config: &Config) -> (Vec<f32>, Vec<f64>) {
    let (trainer, steps) = trained_on_all(config, samples);
    (trainer.parameters().values().to_vec(), losses(&steps))
}

/// The bars that a sample's window has in front of it, in each timeframe, if it goes on from that
/// of `first`.
fn ahead(samples: &SeriesInMemory, first: usize, sample: usize) -> Vec<i64> {
    let view = samples.series().unwrap();
    view.timeframes.iter().map(|series| series.ends[sample] - series.ends[first]).collect()
}

/// A list of samples in runs of up to `longest`, as the definition has them.
fn runs(samples: &SeriesInMemory, list: &[usize], longest: usize) -> Vec<Range<usize>> {
    let mut runs: Vec<Range<usize>> = Vec::new();
    let reach = |first: usize, at: usize| ahead(samples, list[first], list[at]).into_iter().max().unwrap();
    for at in 0..list.len() {
        let follows = at > 0 && {
            let moved = ahead(samples, list[at - 1], list[at]);
            let steps = samples.shape().timeframes.iter().map(|timeframe| timeframe.steps as i64);
            moved.iter().zip(steps).all(|(moved, steps)| (0..steps).contains(moved))
        };
        match runs.last_mut() {
            Some(run) if follows && run.len() < longest && reach(run.start, at) < longest as i64 => run.end = at + 1,
            _ => runs.push(at..at + 1),
        }
    }
    runs
}

/// The first step by the definition: each sample from zero over all bars since its run began, in
/// double precision. Its loss, and the gradients by name.
fn by_hand(samples: &SeriesInMemory, config: &Config) -> (f64, BTreeMap<String, Vec<f64>>) {
    let model = Model::new(samples.shape().clone(), config.model).unwrap();
    let parameters = model.initial_parameters(&Device::cpu().scope("by hand"), config.seed).unwrap();
    let reference = Reference::new(&model, &parameters);
    let order = Order::new(samples.len(), config.run_samples(), config.seed).unwrap();
    let list: Vec<usize> = (0..samples.len()).map(|position| order.epoch(0).sample(position)).collect();
    // A run stays within what the order visits together, and within a batch.
    let longest = config.run_samples().min(config.batch_size);
    let cells = list.chunks(config.run_samples()).flat_map(|piece| piece.chunks(longest));
    let cell_runs =
        |cell: &[usize]| runs(samples, cell, longest).into_iter().map(|run| cell[run].to_vec()).collect::<Vec<_>>();
    let (mut mean, mut sum) = (0.0, BTreeMap::<String, Vec<f64>>::new());
    for run in cells.flat_map(cell_runs) {
        let inputs = inputs_of_run(samples, config, &run);
        let share = run.len() as f64 / samples.len() as f64;
        let targets = targets_of(samples, &run);
        let mut loss = loss(Loss::Mse, &reference.forward(&inputs).outputs, &targets, samples.shape().outputs);
        mean += share * loss.mean;
        loss.gradient.iter_mut().for_each(|gradient| *gradient *= share);
        for (name, gradient) in reference.gradients(&inputs, &loss.gradient).parameters {
            let to = sum.entry(name).or_insert_with(|| vec![0.0; gradient.len()]);
            to.iter_mut().zip(gradient).for_each(|(to, gradient)| *to += gradient);
        }
    }
    (mean, sum)
}

/// One pass over the bars of a run, from the first one of its first window on.
fn inputs_of_run(samples: &SeriesInMemory, config: &Config, run: &[usize]) -> Inputs {
    let (view, shape) = (samples.series().unwrap(), samples.shape());
    let series = view.timeframes.iter().zip(&shape.timeframes);
    let starts = series.map(|(series, timeframe)| series.ends[run[0]] as usize + 1 - timeframe.steps);
    let dropout = Some(Dropout::for_step(config.dropout, config.seed, 0).unwrap());
    Inputs { dropout, ..one_pass(samples, &starts.collect::<Vec<_>>(), run) }
}

fn targets_of(samples: &SeriesInMemory, list: &[usize]) -> Vec<f64> {
    let (view, width) = (samples.series().unwrap(), samples.shape().outputs);
    list.iter().flat_map(|sample| wide(&view.targets[sample * width..][..width])).collect()
}

/// Bars and windows whose ends move by so many bars a sample: by 3 in place of each seventh step,
/// and by more than a window in place of the twentieth.
fn walk(count: usize, timeframes: &[(usize, usize, usize)]) -> SeriesInMemory {
    series_whose_ends_move(count, timeframes, |(steps, _, slowness), n| n / slowness + n / 7 * 2 + n / 20 * (steps + 1))
}

/// Bars and windows: that of sample n ends so many bars after the first one's as `moved` says of
/// the timeframe.
fn series_whose_ends_move(
    count: usize,
    timeframes: &[(usize, usize, usize)],
    moved: impl Fn((usize, usize, usize), usize) -> usize,
) -> SeriesInMemory {
    let number = |seed: usize, i: usize| (i as f64 * 12.9898 + seed as f64 * 78.233 + 1.0).sin() as f32;
    let timeframe = |(k, &(steps, features, _)): (usize, &(usize, usize, usize))| Timeframe {
        name: format!("T{k}"),
        steps,
        features,
    };
    let shape = SampleShape { timeframes: timeframes.iter().enumerate().map(timeframe).collect(), outputs: 2 };
    let series = timeframes.iter().enumerate().map(|(k, &(steps, features, slowness))| {
        let moved = |n: usize| moved((steps, features, slowness), n);
        let ends: Vec<i64> = (0..count).map(|n| (steps - 1 + moved(n)) as i64).collect();
        ((0..(steps + moved(count)) * features).map(|i| number(k, i)).collect(), ends)
    });
    SeriesInMemory::new(shape, series.collect(), (0..2 * count).map(|i| number(50, i)).collect()).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Single precision over up to 80 steps beside double, as in `oracle.rs`; gradients are read
    /// off weights of up to 1, which rounds them by 6e-8.
    #[test]
    fn a_run_is_one_pass_over_its_bars(
        timeframes in prop::collection::vec((1usize..12, 1usize..20, 1usize..4), 1..4),
        (hidden, layers, gru) in (1usize..36, 1usize..4, any::<bool>()),
        (count, batch_size, threads) in (1usize..71, 1usize..71, 1usize..4),
        (run_length, rate) in (prop_oneof![Just(None), (1usize..40).prop_map(Some)], prop_oneof![Just(0.0f32), 0.1f32..0.8]),
    ) {
        let samples = walk(count, &timeframes);
        let config = Config {
            model: ModelConfig { cell: cell_of(gru), hidden, layers, ..ModelConfig::default() },
            optimizer: OptimizerConfig { kind: OptimizerKind::Sgd, lr: 1.0, weight_decay: 0.0, ..OptimizerConfig::default() },
            loss_on: LossOn::EveryStep,
            dropout: rate,
            clip_norm: None,
            gradient_accumulation_steps: count.div_ceil(batch_size),
            max_steps: Some(1),
            batch_size,
            run_length,
            threads,
            seed: 5,
            ..Config::default()
        };
        let (expected_loss, expected) = by_hand(&samples, &config);
        let (weights, losses) = trained(&samples, &config);
        prop_assert!((losses[0] - expected_loss).abs() <= 1e-5 * expected_loss, "loss {} for {}", losses[0], expected_loss);
        let model = Model::new(samples.shape().clone(), config.model).unwrap();
        let before = model.initial_parameters(&Device::cpu().scope("test"), config.seed).unwrap();
        let mut got = before.values().iter().zip(&weights).map(|(before, after)| f64::from(before - after));
        for (name, _) in model.layout().tensors() {
            let largest = expected[name].iter().fold(0.0, |most: f64, x| most.max(x.abs()));
            for (expected, got) in expected[name].iter().zip(&mut got) {
                prop_assert!((got - expected).abs() <= 2e-5 * largest + 2.5e-7, "{}: {} for {}", name, got, expected);
            }
        }
    }
}

/// The mean loss of all samples, in one pass over their bars, with these weights.
fn streamed_loss(samples: &SeriesInMemory, config: &Config, weights: &[f32]) -> f64 {
    let (scope, model) = (Device::cpu().scope("test"), Model::new(samples.shape().clone(), config.model).unwrap());
    let mut parameters = TensorSet::zeros(&scope, model.layout()).unwrap();
    parameters.values_mut().copy_from_slice(weights);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("weights.safetensors");
    save_weights(&path, &parameters).unwrap();
    let compute = Compute { threads: 1, batch_size: samples.len() };
    let mut predictor = Predictor::open(&Device::cpu(), model, &path, compute).unwrap().with_carried_state();
    let indices = SampleRanges::from(0..samples.len());
    predictor.evaluate(Selection { samples, indices: &indices }, Loss::Mse, None).unwrap().loss
}

/// A run that begins where its segment does is what evaluation computes, which pools each window by
/// itself: the loss is the same, and its slope along the gradient is the gradient's length.
#[test]
fn attention_pools_the_window_of_each_sample() {
    for (layer_norm, count, timeframes) in
        [(false, 40, &[(7, 3, 1), (5, 4, 3)][..]), (true, 9, &[(30, 2, 1)]), (false, 30, &[(4, 2, 1), (12, 3, 1)])]
    {
        let samples = series_whose_ends_move(count, timeframes, |(_, _, slowness), n| n / slowness);
        let config = Config {
            model: ModelConfig { hidden: 20, layer_norm, pooling: Pooling::attention(20), ..ModelConfig::default() },
            optimizer: OptimizerConfig {
                kind: OptimizerKind::Sgd,
                lr: 1.0,
                weight_decay: 0.0,
                ..OptimizerConfig::default()
            },
            loss_on: LossOn::EveryStep,
            clip_norm: None,
            max_steps: Some(1),
            batch_size: count,
            run_length: Some(count),
            ..Config::default()
        };
        let (after, losses) = trained(&samples, &config);
        let model = Model::new(samples.shape().clone(), config.model).unwrap();
        let before = model.initial_parameters(&Device::cpu().scope("test"), config.seed).unwrap();
        let before = before.values();
        let expected = streamed_loss(&samples, &config, before);
        assert!((losses[0] - expected).abs() <= 1e-6 * expected, "loss {} for {expected}", losses[0]);

        let gradient: Vec<f64> = before.iter().zip(&after).map(|(before, after)| f64::from(before - after)).collect();
        let length = gradient.iter().map(|d| d * d).sum::<f64>().sqrt();
        // Along the gradient, and along parts of it that other mistakes would show in.
        for every in [1, 2, 3, 7] {
            let part = |(i, &d): (usize, &f64)| if i % every == 0 { d } else { 0.0 };
            let direction: Vec<f64> = gradient.iter().enumerate().map(part).collect();
            let expected: f64 = direction.iter().zip(&gradient).map(|(part, d)| part * d).sum();
            let step = 0.01 / expected.sqrt();
            let [above, below] = [step, -step].map(|step| {
                let moved = before.iter().zip(&direction).map(|(x, d)| (f64::from(*x) + step * d) as f32);
                streamed_loss(&samples, &config, &moved.collect::<Vec<_>>())
            });
            let slope = (above - below) / (2.0 * step);
            assert!((slope - expected).abs() <= 1e-3 * expected, "{every}: {slope} for {expected}, of {length}");
        }
    }
}

/// Samples of instruments one after another, so many of each, whose windows end a bar later each
/// time in the first timeframe and every third time in the second.
pub(crate) fn instruments(lens: &[usize]) -> SeriesInMemory {
    let starts: Vec<usize> = lens.iter().scan(0, |at, len| Some(std::mem::replace(at, *at + len))).collect();
    let count = lens.iter().sum();
    let instrument = |n: usize| starts.partition_point(|&start| start <= n).saturating_sub(1);
    series_whose_ends_move(count, &[(5, 2, 1), (3, 1, 3)], |(steps, _, slowness), n| {
        n / slowness + instrument(n) * steps
    })
}

/// Steps of gradient descent of a few epochs; `None` where not even the trainer could be made.
fn bits_on(device: &Device, samples: &SeriesInMemory, config: &Config) -> Option<Vec<u32>> {
    let train = SampleRanges::from(0..samples.len());
    let run = Run { samples, train: &train, validation: SampleRanges::NONE, checkpoints: None };
    let mut trainer = Trainer::new(device, config.clone(), samples.shape().clone()).ok()?;
    trainer.train(&run, &mut listen).ok()?;
    Some(trainer.parameters().values().iter().map(|x| x.to_bits()).collect())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// A memory shortage in dense training with `run_length` 24 and `batch_size` 128 cut batches to
    /// 72 samples, and losses differed by 7e-3; accumulation cut them in the same way. Runs of
    /// different lengths once shared bars by what else was in the batch, and one case in some
    /// hundreds differed in a last bit.
    #[test]
    fn no_cut_into_batches_changes_a_bit(
        lens in prop::collection::vec(1usize..40, 1..8),
        (run_length, at_once, accumulated) in (1usize..25, 1usize..9, 1usize..6),
        (refused, carry_state, threads) in (5u64..60, any::<bool>(), 1usize..4),
    ) {
        let samples = instruments(&lens);
        let batch_size = run_length * at_once + at_once / 2;
        let whole = Config {
            loss_on: LossOn::EveryStep,
            run_length: Some(run_length),
            batch_size: batch_size * accumulated,
            dropout: 0.25,
            max_steps: Some(4),
            carry_state,
            threads,
            ..config()
        };
        let expected = bits_on(&Device::cpu(), &samples, &whole).unwrap();
        let parts = Config { batch_size, gradient_accumulation_steps: accumulated, ..whole.clone() };
        let accumulated_bits = bits_on(&Device::cpu(), &samples, &parts).unwrap();
        prop_assert_eq!(&accumulated_bits, &expected, "accumulated");
        for config in [whole, parts] {
            let device = Device::cpu();
            device.refuse_requests(refused..refused + 2);
            // Of what is there before the first batch, nothing can be cut.
            if let Some(found) = bits_on(&device, &samples, &config) {
                prop_assert_eq!(&found, &expected, "cut to less");
            }
        }
    }
}

fn dense() -> Config {
    Config { loss_on: LossOn::EveryStep, run_length: Some(12), batch_size: 48, dropout: 0.25, epochs: 3, ..config() }
}

#[test]
fn threads_change_no_bit_and_a_killed_run_goes_on_to_the_same() {
    let samples = series();
    for (carry_state, pooling) in [(false, Pooling::Last), (true, Pooling::Last), (true, Pooling::attention(5))] {
        let config = Config { carry_state, ..dense() };
        let config = Config { model: ModelConfig { pooling, ..config.model }, ..config };
        let bits = |threads| trained(&samples, &Config { threads, ..config.clone() }).0;
        let expected = bits(1);
        assert!(bits(3) == expected, "threads");

        let folder = tempfile::tempdir().unwrap();
        let checkpoints = Checkpoints::new(folder.path());
        let train = SampleRanges::from(0..samples.len());
        let run =
            Run { samples: &samples, train: &train, validation: SampleRanges::NONE, checkpoints: Some(&checkpoints) };
        let trainer = || Trainer::new(&Device::cpu(), config.clone(), samples.shape().clone()).unwrap();
        let stop = &mut |event: Event<'_>| match event {
            Event::Step(step) if step.step == 4 => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        };
        trainer().train(&run, stop).unwrap();
        let mut resumed = trainer();
        resumed.resume(&run).unwrap();
        resumed.train(&run, &mut listen).unwrap();
        assert!(resumed.parameters().values() == expected, "carry_state {carry_state}");

        let windows = Config { loss_on: LossOn::LastStep, ..config.clone() };
        let mut other = Trainer::new(&Device::cpu(), windows, samples.shape().clone()).unwrap();
        let error = other.resume(&run).unwrap_err().to_string();
        assert!(error.contains("`loss_on` every_step, but this run has last_step"), "{error}");
        fs::remove_dir_all(folder.path()).unwrap();
    }
}

#[test]
fn what_has_no_bars_to_go_on_over_is_refused() {
    let refused = |config: Config, samples: &dyn Samples| {
        let train = SampleRanges::from(0..10);
        let run = Run { samples, train: &train, validation: SampleRanges::NONE, checkpoints: None };
        let trainer = Trainer::new(&Device::cpu(), config, samples.shape().clone());
        trainer.and_then(|mut trainer| trainer.train(&run, &mut listen)).unwrap_err().to_string()
    };
    let windows = samples(20);
    let part = SampleRanges::from(0..10);
    let planned = CarriedStates::new(&dense(), &windows, &part, SampleRanges::NONE).unwrap_err().to_string();
    for error in [refused(dense(), &windows), planned] {
        assert!(
            error.starts_with("`loss_on` is every_step: expected last_step for samples that are stored as windows"),
            "{error}"
        );
    }
}
