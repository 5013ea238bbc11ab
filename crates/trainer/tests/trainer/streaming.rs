//! Predictions from carried state: one pass over the bars, whoever asks for what.

use std::path::Path;

use megabatch_amp::Precision;
use megabatch_gpu_core::Device;
use megabatch_nn::batch::LossOn;
use megabatch_nn::loss::Loss;
use megabatch_nn::model::{Model, ModelConfig};
use megabatch_nn_cpu::{Compute, StreamingPredictor};
use megabatch_reference::{LayerState, Reference};
use megabatch_trainer::{Config, Error, Predictor, Run, SampleRanges, Samples, Selection, SeriesInMemory, Trainer};
use proptest::prelude::*;

use crate::by_hand::{inputs_of, streamed, wide, windows_of};
use crate::made_up::{cell_of, config, fusion_of, listen, pooling_of, samples, series, steps_of};

/// The weights of a model after some steps with carried state.
fn exported(path: &Path, model: ModelConfig) {
    let samples = series();
    let config = Config { model, carry_state: true, epochs: 3, ..config() };
    let mut trainer = Trainer::new(&Device::cpu(), config, samples.shape().clone()).unwrap();
    let train = SampleRanges::from(0..90);
    trainer
        .train(
            &Run { samples: &samples, train: &train, validation: SampleRanges::NONE, checkpoints: None },
            &mut listen,
        )
        .unwrap();
    trainer.save_weights(path).unwrap();
}

fn predictor(path: &Path, model: ModelConfig, compute: Compute) -> Predictor {
    let model = Model::new(series().shape().clone(), model).unwrap();
    Predictor::open(&Device::cpu(), model, path, compute).unwrap().with_carried_state()
}

/// The predictions for `indices`, [.., K].
fn predictions(predictor: &mut Predictor, samples: &dyn Samples, indices: &SampleRanges) -> Result<Vec<f32>, Error> {
    let mut all = Vec::new();
    predictor.predict(Selection { samples, indices }, |_, predictions| {
        all.extend_from_slice(predictions);
        Ok::<(), Error>(())
    })?;
    Ok(all)
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|x| x.to_bits()).collect()
}

fn apart(found: &[f32], expected: &[f64]) -> f64 {
    assert_eq!(found.len(), expected.len());
    found.iter().zip(expected).map(|(found, expected)| (f64::from(*found) - expected).abs()).fold(0.0, f64::max)
}

/// Bars of each timeframe up to the window of `sample`, from its segment's start on.
fn bars(samples: &SeriesInMemory, k: usize, sample: usize) -> Vec<f32> {
    let (series, features) = (&samples.series().unwrap().timeframes[k], samples.shape().timeframes[k].features);
    let end = series.ends[sample] as usize;
    let start = *series.segment_starts.iter().rfind(|&&start| start as usize <= end).unwrap() as usize;
    series.values[start * features..(end + 1) * features].to_vec()
}

#[test]
fn a_prediction_depends_on_the_bars_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("w.safetensors");
    let samples = series();
    let all = SampleRanges::from(0..100);
    for (pooling, gru) in [(0, false), (1, false), (0, true), (1, true)] {
        let model = ModelConfig {
            cell: cell_of(gru),
            hidden: 18,
            layers: 2,
            pooling: pooling_of(pooling, 18),
            fusion: fusion_of(pooling == 1, 18),
            ..ModelConfig::default()
        };
        exported(&path, model);
        let with = |threads, batch_size, indices: &SampleRanges| {
            let mut predictor = predictor(&path, model, Compute { threads, batch_size });
            predictions(&mut predictor, &samples, indices).unwrap()
        };
        let expected = with(1, 100, &all);
        for (threads, batch_size) in [(2, 33), (3, 1), (7, 64)] {
            assert_eq!(bits(&with(threads, batch_size, &all)), bits(&expected), "{threads} x {batch_size}");
        }
        let some = [99, 3, 60, 59, 3, 0];
        let some_expected: Vec<f32> = some.iter().flat_map(|&sample| expected[2 * sample..][..2].to_vec()).collect();
        assert_eq!(bits(&with(2, 4, &SampleRanges::from_iter(some))), bits(&some_expected));
        assert!(with(2, 4, SampleRanges::NONE).is_empty());
    }
}

/// Bars may be pushed in parts of any size.
#[test]
fn a_follower_predicts_as_the_evaluation_does() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("w.safetensors");
    let samples = series();
    for (pooling, gru) in (0..3).flat_map(|pooling| [(pooling, false), (pooling, true)]) {
        let config = ModelConfig {
            cell: cell_of(gru),
            hidden: 18,
            layers: 2,
            pooling: pooling_of(pooling, 18),
            fusion: fusion_of(pooling == 1, 18),
            ..ModelConfig::default()
        };
        exported(&path, config);
        let chosen = SampleRanges::from_iter([0, 1, 47, 59, 60, 61, 99]);
        let mut predictor = predictor(&path, config, Compute { threads: 2, batch_size: 8 });
        let expected = predictions(&mut predictor, &samples, &chosen).unwrap();
        let model = || Model::new(samples.shape().clone(), config).unwrap();
        let mut follower = StreamingPredictor::open(&Device::cpu(), model(), &path).unwrap();
        let mut successor = StreamingPredictor::open(&Device::cpu(), model(), &path).unwrap();
        for (sample, expected) in chosen.iter().zip(expected.chunks_exact(2)) {
            follower.restart();
            successor.restart();
            for (k, timeframe) in samples.shape().timeframes.iter().enumerate() {
                let (bars, part) = (bars(&samples, k, sample), (sample % 9 + 1) * timeframe.features);
                let (first, rest) = bars.split_at(part.min(bars.len()));
                follower.push(k, first);
                rest.chunks(timeframe.features).for_each(|bar| follower.push(k, bar));
                successor.push(k, &bars);
                assert_eq!(bits(follower.state(k)), bits(successor.state(k)));
            }
            assert_eq!(bits(&follower.predict()), bits(expected), "sample {sample}");
            assert_eq!(bits(&successor.predict()), bits(expected), "sample {sample}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// A follower, and a predictor, give the outputs of one pass of the reference over all bars
    /// since the segment began; so does the reference over a window that starts from the follower's
    /// state. A rounding is 6e-8 of states below 1.
    #[test]
    fn a_window_from_the_streamed_state_ends_in_the_streamed_state(
        (hidden, layers, bias, gru) in (1usize..36, 1usize..4, any::<bool>(), any::<bool>()), sample in 0usize..100, seed in 0u64..1000,
        (pooling, fuses, layer_norm) in (0usize..3, any::<bool>(), any::<bool>()),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("w.safetensors");
        let (pooling, fusion) = (pooling_of(pooling, hidden), fusion_of(fuses, hidden));
        let (cell, samples) = (cell_of(gru), series());
        let config = ModelConfig { cell, hidden, layers, bias, layer_norm, pooling, fusion, ..ModelConfig::default() };
        let model = Model::new(samples.shape().clone(), config).unwrap();
        let scope = Device::cpu().scope("test");
        let parameters = model.initial_parameters(&scope, seed).unwrap();
        megabatch_nn::model::save_weights(&path, &parameters).unwrap();

        let mut follower =
            StreamingPredictor::open(&Device::cpu(), Model::new(samples.shape().clone(), config).unwrap(), &path).unwrap();
        let mut inputs = inputs_of(&windows_of(&samples, &[sample]).view());
        for (k, timeframe) in samples.shape().timeframes.iter().enumerate() {
            let bars = bars(&samples, k, sample);
            let (before, window) = bars.split_at(bars.len() - timeframe.steps * timeframe.features);
            follower.push(k, before);
            let state_len = cell.states() * hidden;
            let layers = follower.state(k).chunks_exact(state_len).take(layers).map(|state| state.split_at(hidden));
            inputs.timeframes[k].initial =
                layers.map(|(hidden, cell)| LayerState { hidden: wide(hidden), cell: wide(cell) }).collect();
            follower.push(k, window);
        }
        let reference = Reference::new(&model, &parameters);
        let (expected, followed) = (streamed(&reference, &samples, &[sample]), follower.predict());
        prop_assert!(apart(&followed, &expected) < 1e-5);
        prop_assert!(apart(&followed, &reference.forward(&inputs).outputs) < 1e-5);
        let mut predictor = predictor(&path, config, Compute { threads: 1, batch_size: 1 });
        prop_assert!(apart(&predictions(&mut predictor, &samples, &SampleRanges::from(sample..sample + 1)).unwrap(), &expected) < 1e-5);
    }
}

#[test]
fn a_trainer_evaluates_as_the_predictor_does() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("w.safetensors");
    exported(&path, config().model);
    let samples = series();
    let config = Config { carry_state: true, dropout: 0.5, ..config() };
    let mut trainer = Trainer::new(&Device::cpu(), config.clone(), samples.shape().clone()).unwrap();
    // A step, so that its masks are still there, and then the other's weights.
    let train = SampleRanges::from(0..4);
    let once = Run { samples: &samples, train: &train, validation: SampleRanges::NONE, checkpoints: None };
    trainer.train(&once, &mut listen).unwrap();
    trainer.load_weights(&path).unwrap();
    let indices = SampleRanges::from_iter([90, 95, 99]);
    let selection = Selection { samples: &samples, indices: &indices };
    let evaluation = trainer.evaluate(selection, None).unwrap();
    let mut predictor = predictor(&path, config.model, Compute { threads: 1, batch_size: 2 });
    assert_eq!(predictor.evaluate(selection, Loss::Mse, None).unwrap().metrics, evaluation.metrics);
    // Whole histories make other predictions than windows from zero.
    let model = Model::new(samples.shape().clone(), config.model).unwrap();
    let compute = Compute { threads: 1, batch_size: 2 };
    let mut from_zero = Predictor::open(&Device::cpu(), model, &path, compute).unwrap();
    assert_ne!(from_zero.evaluate(selection, Loss::Mse, None).unwrap().loss, evaluation.loss);
}

/// Validation of bf16 and fp16 runs with carried state took unrounded weights in pooling, fusion
/// and head, and unrounded states before them. A run of samples that begins where its segment does
/// is computed alike in training and in evaluation, so that both have the same loss; that of fp32
/// is another.
#[test]
fn evaluation_has_the_arithmetic_of_training() {
    let samples = series();
    let all = SampleRanges::from(0..60);
    for (pooling, fuses, layer_norm) in [(0, false, false), (0, true, true), (1, false, true), (1, true, false)] {
        for precision in [Precision::Bf16, Precision::Fp16] {
            let model = ModelConfig {
                hidden: 18,
                layer_norm,
                pooling: pooling_of(pooling, 18),
                fusion: fusion_of(fuses, 18),
                ..ModelConfig::default()
            };
            let loss_on = LossOn::EveryStep;
            let config = Config { model, precision, loss_on, batch_size: 60, max_steps: Some(1), ..config() };
            let loss_of = |precision| {
                let config = Config { precision, ..config.clone() };
                let mut trainer = Trainer::new(&Device::cpu(), config, samples.shape().clone()).unwrap();
                trainer.evaluate(Selection { samples: &samples, indices: &all }, None).unwrap().loss
            };
            let mut trainer = Trainer::new(&Device::cpu(), config.clone(), samples.shape().clone()).unwrap();
            let run = Run { samples: &samples, train: &all, validation: SampleRanges::NONE, checkpoints: None };
            let learnt = steps_of(&mut trainer, &run)[0].loss;
            let (found, full) = (loss_of(precision), loss_of(Precision::Fp32));
            // Sums in another order, of which some lie near the middle of two numbers in 16 bits.
            let (apart, matters) = ((found - learnt).abs(), (found - full).abs());
            let most = if pooling == 0 { 1e-7 * learnt } else { matters / 4.0 };
            assert!(apart <= most && matters > 0.0, "{precision}, {model:?}: {found} for {learnt}; {full} in fp32");
        }
    }
}

#[test]
fn samples_that_are_stored_as_windows_cannot_be_streamed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("w.safetensors");
    exported(&path, config().model);
    let mut predictor = predictor(&path, config().model, Compute { threads: 1, batch_size: 4 });
    let error = predictions(&mut predictor, &samples(10), &SampleRanges::from(1..2)).unwrap_err().to_string();
    assert!(
        error.starts_with("`carry_state` is true: expected false for samples that are stored as windows"),
        "{error}"
    );
}
