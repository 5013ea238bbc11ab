//! Predictions and errors of a trained model, from its exported weights.

use std::error::Error as StdError;

use megabatch_gpu_core::Device;
use megabatch_nn::loss::Loss;
use megabatch_nn::model::{Model, SampleShape, save_weights};
use megabatch_nn_cpu::Compute;
use megabatch_trainer::{
    Baselines, Batch, Config, Error, InMemory, Predictor, Run, SampleRanges, Samples, Selection, Trainer,
};

use crate::by_hand::windows_of;
use crate::made_up::{Disturbance, Disturbed, config, listen, samples};

/// A model after a few steps and the file that it was exported to.
fn exported(path: &std::path::Path) -> Trainer {
    let samples = samples(100);
    let train = SampleRanges::from(0..80);
    let run = Run { samples: &samples, train: &train, validation: SampleRanges::NONE, checkpoints: None };
    let mut trainer = Trainer::new(&Device::cpu(), Config { epochs: 2, ..config() }, samples.shape().clone()).unwrap();
    trainer.train(&run, &mut listen).unwrap();
    trainer.save_weights(path).unwrap();
    trainer
}

fn predictor(path: &std::path::Path, compute: Compute) -> Predictor {
    let model = Model::new(samples(1).shape().clone(), config().model).unwrap();
    Predictor::open(&Device::cpu(), model, path, compute).unwrap()
}

#[test]
fn an_exported_model_predicts_as_the_trained_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.safetensors");
    let mut trainer = exported(&path);
    let samples = samples(100);
    let device = Device::cpu();
    let train = SampleRanges::from(0..80);
    let baselines = Baselines::fit(&device, Selection { samples: &samples, indices: &train }).unwrap();
    let indices: SampleRanges = (80..100).rev().collect();
    let selection = Selection { samples: &samples, indices: &indices };
    let expected = trainer.evaluate(selection, Some(&baselines)).unwrap();
    let mut predictor = predictor(&path, Compute { threads: 2, batch_size: 8 });
    assert_eq!(predictor.evaluate(selection, Loss::Mse, Some(&baselines)).unwrap(), expected);

    let (mut visited, mut squares) = (Vec::new(), 0.0);
    let mut batch = Batch::new(&device.scope("test"), samples.shape(), 8).unwrap();
    predictor
        .predict(selection, |indices, predictions| {
            batch.resize(indices.len());
            samples.gather(indices, &mut batch).unwrap();
            squares +=
                predictions.iter().zip(batch.view().targets()).map(|(y, t)| f64::from(y - t).powi(2)).sum::<f64>();
            visited.extend_from_slice(indices);
            Ok::<(), Error>(())
        })
        .unwrap();
    assert_eq!(SampleRanges::from_iter(visited), indices);
    let mse = expected.metrics.rmse.iter().map(|rmse| rmse * rmse).sum::<f64>() / 2.0;
    assert!((squares / 40.0 - mse).abs() < 1e-6 * mse && (expected.loss - mse).abs() < 1e-12);

    let json = serde_json::to_value(&expected).unwrap();
    assert_eq!(json["samples"], 20);
    for metrics in [&json, &json["baselines"]["no_change"], &json["baselines"]["mean"], &json["baselines"]["linear"]] {
        for name in ["rmse", "mae", "direction_accuracy"] {
            assert_eq!(metrics[name].as_array().unwrap().len(), 2, "{name}");
        }
    }
    assert_eq!(json["baselines"]["no_change"]["direction_accuracy"][0], 0.0);
}

/// Samples of which every third is of another instrument.
struct OfTwo(InMemory);

fn name_of(sample: usize) -> &'static str {
    if sample.is_multiple_of(3) { "USDJPY" } else { "EURUSD" }
}

impl Samples for OfTwo {
    fn shape(&self) -> &SampleShape {
        self.0.shape()
    }

    fn len(&self) -> usize {
        self.0.len()
    }

    fn gather(&self, samples: &[usize], batch: &mut Batch) -> Result<(), Box<dyn StdError + Send + Sync>> {
        self.0.gather(samples, batch)
    }

    fn instrument(&self, sample: usize) -> Option<&str> {
        Some(name_of(sample))
    }
}

#[test]
fn errors_by_instrument_are_those_of_its_samples_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.safetensors");
    exported(&path);
    let (one, two) = (samples(100), OfTwo(samples(100)));
    let train = SampleRanges::from(0..80);
    let baselines = Baselines::fit(&Device::cpu(), Selection { samples: &one, indices: &train }).unwrap();
    let mut predictor = predictor(&path, Compute { threads: 1, batch_size: 8 });
    let mut evaluate = |samples: &dyn Samples, indices: &SampleRanges| {
        predictor.evaluate(Selection { samples, indices }, Loss::Mse, Some(&baselines)).unwrap()
    };
    let indices: SampleRanges = (51..100).rev().collect();
    let pooled = evaluate(&two, &indices);
    assert_eq!(pooled.instruments.keys().collect::<Vec<_>>(), ["EURUSD", "USDJPY"]);
    for (name, found) in &pooled.instruments {
        let own: SampleRanges = indices.iter().filter(|&sample| name_of(sample) == name).collect();
        let alone = evaluate(&one, &own);
        assert_eq!(found.samples, own.len());
        assert_eq!((&found.metrics, &found.baselines), (&alone.metrics, &alone.baselines), "{name}");
        assert_ne!(found.metrics, pooled.metrics);
    }
    let untold = evaluate(&one, &indices);
    assert_eq!((untold.metrics, untold.baselines), (pooled.metrics, pooled.baselines));
    assert!(untold.instruments.is_empty());
}

#[test]
fn a_sink_and_a_source_can_end_a_prediction() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.safetensors");
    exported(&path);
    let mut predictor = predictor(&path, Compute { threads: 1, batch_size: 4 });
    let indices = SampleRanges::from(0..40);
    let samples = Disturbed::new(samples(100), Disturbance::Fail { at_call: 4 });
    let selection = Selection { samples: &samples, indices: &indices };
    let mut batches = 0;
    let error = predictor.predict(selection, |_, _| {
        batches += 1;
        Ok::<(), Error>(())
    });
    assert!(matches!(error, Err(Error::Gather { first: 16, last: 19, .. })), "{error:?}");
    assert_eq!(batches, 4);

    let full = |_: &[usize], _: &[f32]| {
        Err(Error::File { path: "p.csv".into(), action: "write", source: std::io::ErrorKind::StorageFull.into() })
    };
    assert!(matches!(predictor.predict(selection, full), Err(Error::File { action: "write", .. })));
    let nothing = predictor.evaluate(Selection { indices: SampleRanges::NONE, ..selection }, Loss::Mse, None);
    assert!(matches!(nothing, Err(Error::NothingLeft { part: "evaluation", .. })));
}

#[test]
fn huber_is_evaluated_as_it_is_defined() {
    let samples = samples(100);
    let delta = 0.25;
    let train = SampleRanges::from(0..80);
    let indices = SampleRanges::from(80..100);
    let selection = Selection { samples: &samples, indices: &indices };
    let config = Config { max_steps: Some(3), loss: Loss::Huber { delta }, ..config() };
    let mut trainer = Trainer::new(&Device::cpu(), config, samples.shape().clone()).unwrap();
    let run = Run { samples: &samples, train: &train, validation: SampleRanges::NONE, checkpoints: None };
    trainer.train(&run, &mut listen).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.safetensors");
    trainer.save_weights(&path).unwrap();

    let mut predictor = predictor(&path, Compute { threads: 1, batch_size: 20 });
    let mut naive = 0.0;
    let batch = windows_of(&samples, &indices.iter().collect::<Vec<_>>());
    predictor
        .predict(selection, |_, predictions| {
            for (y, target) in predictions.iter().zip(batch.view().targets()) {
                let error = f64::from(y - target).abs();
                naive += if error < delta { 0.5 * error.powi(2) } else { delta * (error - 0.5 * delta) };
            }
            Ok::<(), Error>(())
        })
        .unwrap();
    for evaluated in [
        trainer.evaluate(selection, None).unwrap(),
        predictor.evaluate(selection, Loss::Huber { delta }, None).unwrap(),
    ] {
        // Errors are rounded to single precision by hand.
        assert!((evaluated.loss - naive / 40.0).abs() < 1e-7, "{} for {}", evaluated.loss, naive / 40.0);
    }
}

#[test]
fn weights_of_another_model_are_refused_with_all_differences() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.safetensors");
    let mut wide = config().model;
    (wide.hidden, wide.layers) = (6, 1);
    let model = Model::new(samples(1).shape().clone(), wide).unwrap();
    let weights = model.initial_parameters(&Device::cpu().scope("test"), 1).unwrap();
    save_weights(&path, &weights).unwrap();
    let mut trainer = Trainer::new(&Device::cpu(), config(), samples(1).shape().clone()).unwrap();
    let before = trainer.parameters().values().to_vec();
    match trainer.load_weights(&path) {
        Err(Error::Model(megabatch_nn::Error::Weights { problems, .. })) => {
            assert_eq!(problems[0], "  lstm.M1.weight_ih_l0: expected [20, 3], found [24, 3]");
            assert!(problems.contains(&"  lstm.H1.bias_hh_l1: missing, expected [20]".to_owned()), "{problems:?}");
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(trainer.parameters().values(), before);
}
