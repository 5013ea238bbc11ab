//! Training and predicting in 16 bits.

use std::ops::ControlFlow;

use half::{bf16, f16};
use megabatch_amp::{Precision, ScalerConfig};
use megabatch_gpu_core::Device;
use megabatch_nn::loss::Loss;
use megabatch_nn::model::{Model, ModelConfig, SampleShape, TensorSet, Timeframe};
use megabatch_nn_cpu::Compute;
use megabatch_trainer::{
    Checkpoints, Config, Event, OptimizerConfig, Predictor, Run, SampleRanges, Samples, Selection, SeriesInMemory,
    StepEvent, Trainer,
};

use crate::made_up::{config, fusion_of, listen, pooling_of, samples, series, steps_of, trained_on_all};

fn in_precision(precision: Precision) -> Config {
    Config { precision, epochs: 6, dropout: 0.2, ..config() }
}

/// The steps of a run on a hundred samples, and its weights.
fn trained(config: &Config) -> (Vec<StepEvent>, Vec<f32>) {
    let (trainer, steps) = trained_on_all(config, &series());
    (steps, trainer.parameters().values().to_vec())
}

/// The mean loss of the last epoch, of 13 steps.
fn last_loss(steps: &[StepEvent]) -> f64 {
    steps.iter().rev().take(13).map(|step| step.loss).sum::<f64>() / 13.0
}

#[test]
fn sixteen_bits_learn_what_single_precision_does() {
    let (fp32_steps, weights) = trained(&in_precision(Precision::Fp32));
    for precision in [Precision::Bf16, Precision::Fp16] {
        let (steps, other) = trained(&in_precision(precision));
        assert!(other != weights, "{precision} rounds something");
        let (found, expected) = (last_loss(&steps), last_loss(&fp32_steps));
        assert!((found - expected).abs() < 0.02 * expected, "{precision}: {found} for {expected}");
        let threads = trained(&Config { threads: 1, ..in_precision(precision) }).1;
        assert!(threads == other, "{precision}: threads change nothing");
        assert_eq!(steps.iter().any(|step| step.loss_scale.is_some()), precision == Precision::Fp16);
    }
}

/// Every layer that has products: layers of LSTMs, pooling and fusion by attention, the head.
#[test]
fn bf16_has_the_same_bits_for_any_threads_and_in_a_resumed_run() {
    let model = ModelConfig {
        hidden: 20,
        layers: 2,
        layer_norm: true,
        pooling: pooling_of(1, 20),
        fusion: fusion_of(true, 20),
        ..ModelConfig::default()
    };
    let config = Config { model, batch_size: 100, epochs: 5, ..in_precision(Precision::Bf16) };
    let (_, expected) = trained(&Config { threads: 1, ..config.clone() });
    for threads in [2, 3, 7, 16] {
        assert!(trained(&Config { threads, ..config.clone() }).1 == expected, "{threads} threads");
    }

    let samples = series();
    let train = SampleRanges::from(0..samples.len());
    let folder = tempfile::tempdir().unwrap();
    let checkpoints = Checkpoints::new(folder.path());
    let run = Run { samples: &samples, train: &train, validation: SampleRanges::NONE, checkpoints: Some(&checkpoints) };
    let trainer = || Trainer::new(&Device::cpu(), config.clone(), samples.shape().clone()).unwrap();
    let stop = &mut |event: Event<'_>| match event {
        Event::Step(step) if step.step == 2 => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    };
    trainer().train(&run, stop).unwrap();
    let mut rest = trainer();
    assert_eq!(rest.resume(&run).unwrap().unwrap().state.step, 2);
    rest.train(&run, &mut listen).unwrap();
    assert!(rest.parameters().values() == expected, "other weights than the whole run's");
}

/// To the nearest number of a precision.
type Round = fn(f32) -> f32;

/// One layer and timeframe in plain loops: products of rounded numbers, summed in double precision,
/// and a hidden state that is rounded.
fn by_hand(weights: &TensorSet, window: &[f32], hidden: usize, round: Round) -> Vec<f64> {
    let tensor = |name: &str| weights.get(name).unwrap();
    let features = tensor("lstm.T.weight_ih_l0").len() / (4 * hidden);
    let dot =
        |row: &[f32], x: &[f32]| row.iter().zip(x).map(|(&w, &x)| f64::from(round(w)) * f64::from(x)).sum::<f64>();
    let (mut h, mut c) = (vec![0.0f32; hidden], vec![0.0f64; hidden]);
    for bar in window.chunks_exact(features) {
        let x: Vec<f32> = bar.iter().map(|&x| round(x)).collect();
        let gate = |row: usize| {
            let input = dot(&tensor("lstm.T.weight_ih_l0")[row * features..][..features], &x);
            let recurrent = dot(&tensor("lstm.T.weight_hh_l0")[row * hidden..][..hidden], &h);
            let bias = tensor("lstm.T.bias_ih_l0")[row] + tensor("lstm.T.bias_hh_l0")[row];
            input + recurrent + f64::from(bias)
        };
        let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
        let states = (0..hidden).map(|unit| {
            let [i, f, g, o] = [0, 1, 2, 3].map(|part| gate(part * hidden + unit));
            let cell = sigmoid(f) * c[unit] + sigmoid(i) * g.tanh();
            (cell, round((sigmoid(o) * cell.tanh()) as f32))
        });
        (c, h) = states.collect::<Vec<_>>().into_iter().unzip();
    }
    tensor("head.weight")
        .chunks_exact(hidden)
        .zip(tensor("head.bias"))
        .map(|(row, bias)| dot(row, &h) + f64::from(*bias))
        .collect()
}

#[test]
fn what_a_product_reads_is_rounded_and_its_sums_are_not() {
    let shape = SampleShape { timeframes: vec![Timeframe { name: "T".into(), steps: 9, features: 5 }], outputs: 3 };
    let values: Vec<f32> = (0..40 * 5).map(|i| (i as f32 * 0.37).sin() * 2.0).collect();
    let samples = SeriesInMemory::new(shape.clone(), vec![(values.clone(), (8..40).collect())], vec![0.0; 96]).unwrap();
    let hidden = 19;
    let model = ModelConfig { hidden, layers: 1, ..ModelConfig::default() };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("w.safetensors");
    let trainer = Trainer::new(&Device::cpu(), Config { model, seed: 3, ..Config::default() }, shape.clone()).unwrap();
    trainer.save_weights(&path).unwrap();
    let rounds: [(Precision, Round, f64); 3] = [
        (Precision::Fp32, |x| x, 1e-6),
        // A sum that lies near the middle of two 16-bit numbers may go either way; 2⁻⁸ and 2⁻¹¹ of
        // a state of at most 1, in a few units.
        (Precision::Bf16, |x| bf16::from_f32(x).to_f32(), 2e-3),
        (Precision::Fp16, |x| f16::from_f32(x).to_f32(), 2.5e-4),
    ];
    for (precision, round, tolerance) in rounds {
        let compute = Compute { threads: 1, batch_size: 32 };
        let model = Model::new(shape.clone(), model).unwrap();
        let predictor = Predictor::open(&Device::cpu(), model, &path, compute).unwrap();
        let mut predictor = predictor.with_precision(precision).unwrap();
        let indices = SampleRanges::from(0..32);
        let selection = Selection { samples: &samples, indices: &indices };
        let mut found = Vec::new();
        let take = |_: &[usize], y: &[f32]| -> Result<(), megabatch_trainer::Error> {
            found.extend_from_slice(y);
            Ok(())
        };
        predictor.predict(selection, take).unwrap();
        let apart = indices.iter().flat_map(|n| by_hand(trainer.parameters(), &values[n * 5..][..45], hidden, round));
        let apart = apart.zip(&found).map(|(expected, &found)| (expected - f64::from(found)).abs()).fold(0.0, f64::max);
        assert!(apart < tolerance, "{precision}: {apart}");
        // What is asked for is rounding: the unrounded loops are farther away than this.
        let unrounded =
            indices.iter().flat_map(|n| by_hand(trainer.parameters(), &values[n * 5..][..45], hidden, |x| x));
        let apart =
            unrounded.zip(&found).map(|(expected, &found)| (expected - f64::from(found)).abs()).fold(0.0, f64::max);
        assert_eq!(apart > tolerance / 4.0, precision != Precision::Fp32, "{precision}: {apart}");
    }
}

/// Targets so large that gradients times 2¹⁶ are past 65,504.
fn overflowing() -> (SeriesInMemory, Config) {
    let samples = series();
    let view = samples.series().unwrap();
    let targets = view.targets.iter().map(|target| 40.0 + target).collect();
    let bars = view.timeframes.iter().map(|series| (series.values.to_vec(), series.ends.to_vec())).collect();
    let segments = view.timeframes.iter().map(|series| series.segment_starts.to_vec()).collect();
    let samples = SeriesInMemory::new(samples.shape().clone(), bars, targets).unwrap().with_segments(segments).unwrap();
    let optimizer = OptimizerConfig { lr: 0.01, ..OptimizerConfig::default() };
    (samples, Config { optimizer, loss: Loss::Mse, clip_norm: None, ..in_precision(Precision::Fp16) })
}

#[test]
fn a_step_that_overflows_changes_nothing_but_the_scale_which_a_resumed_run_remembers() {
    let (samples, config) = overflowing();
    let train = SampleRanges::from(0..samples.len());
    let folder = tempfile::tempdir().unwrap();
    let checkpoints = Checkpoints::new(folder.path());
    let run = Run { samples: &samples, train: &train, validation: SampleRanges::NONE, checkpoints: Some(&checkpoints) };
    let trainer = || Trainer::new(&Device::cpu(), config.clone(), samples.shape().clone()).unwrap();
    let mut whole = trainer();
    let steps = steps_of(&mut whole, &Run { checkpoints: None, ..run });
    let scales: Vec<_> = steps.into_iter().map(|step| (step.loss_scale.unwrap(), step.overflow)).collect();
    assert_eq!(scales[0].0, 65536.0);
    let fallen = scales.iter().take_while(|(_, overflow)| overflow.is_some()).count();
    assert!((1..6).contains(&fallen), "{scales:?}");
    for (pair, (before, _)) in scales.windows(2).zip(&scales) {
        let expected = if pair[0].1.is_some() { before / 2.0 } else { *before };
        assert_eq!(pair[1].0, expected);
    }

    let mut cut = trainer();
    let before = cut.parameters().values().to_vec();
    let stop = &mut |event: Event<'_>| match event {
        Event::Step(step) if step.step == fallen as u64 => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    };
    cut.train(&run, stop).unwrap();
    assert!(cut.parameters().values() == before, "no step so far changed a weight");
    let mut resumed = trainer();
    assert_eq!(resumed.resume(&run).unwrap().unwrap().state.scaler.unwrap().scale, 65536.0 / f32::exp2(fallen as f32));
    resumed.train(&run, &mut listen).unwrap();
    assert!(resumed.parameters().values() == whole.parameters().values(), "other weights than the whole run's");
}

/// A floor of the loss scale of 1.2e-38 ended in an assert of amp's once the scale fell so
/// far, or few targets were known.
#[test]
fn a_loss_scale_whose_inverse_is_no_number_is_refused() {
    for (floor, is_refused) in [(1.2e-38, true), (9e-19, true), (1e-18, false), (1.0, false)] {
        let loss_scale = ScalerConfig { floor, ..ScalerConfig::default() };
        let config = Config { precision: Precision::Fp16, loss_scale, ..config() };
        let found = Trainer::new(&Device::cpu(), config, samples(1).shape().clone());
        match found {
            Err(error) => {
                assert!(is_refused, "{error}");
                assert!(error.to_string().starts_with("`loss_scale_floor` is "), "{error}");
            }
            Ok(_) => assert!(!is_refused, "{floor}"),
        }
    }
}
