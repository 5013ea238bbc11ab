//! Predictions and errors of a trained model, from its exported weights.

use std::error::Error as StdError;

use megabatch_gpu_core::Device;
use megabatch_nn::graph::LabelSpan;
use megabatch_nn::loss::Loss;
use megabatch_nn::model::{Model, save_weights};
use megabatch_nn_cpu::Compute;
use megabatch_trainer::{
    Batch, Config, Error, InMemory, MetricsSum, Predictor, Run, SampleRanges, Samples, Selection, Trainer,
};

use crate::baselines::fit_numbers;
use crate::by_hand::windows_of;
use crate::made_up::{Disturbance, Disturbed, config, listen, samples, shape_and_len_from};

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
    let baselines = fit_numbers(&device, Selection { samples: &samples, indices: &train }).unwrap();
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
    shape_and_len_from!(0);

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
    let baselines = fit_numbers(&Device::cpu(), Selection { samples: &one, indices: &train }).unwrap();
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

/// Samples of five instruments, 20 of each: those of an instrument follow each other. The last one
/// has no target at every second time.
struct Universe(InMemory);

const TIMES: usize = 20;

impl Samples for Universe {
    shape_and_len_from!(0);

    fn gather(&self, samples: &[usize], batch: &mut Batch) -> Result<(), Box<dyn StdError + Send + Sync>> {
        self.0.gather(samples, batch)?;
        let (_, targets) = batch.slices_mut();
        let width = targets.len() / samples.len();
        for (row, sample) in targets.chunks_exact_mut(width).zip(samples) {
            if *sample >= 4 * TIMES && sample % 2 == 0 {
                row.fill(f32::NAN);
            }
        }
        Ok(())
    }

    fn times(&self, samples: &[usize]) -> Option<Vec<i64>> {
        Some(samples.iter().map(|sample| 1_000 * (sample % TIMES) as i64).collect())
    }

    /// Targets of the first horizon end at the next time, those of the second at the one after it.
    fn target_span(&self, samples: &[usize], time_ns: i64, target: usize) -> Option<LabelSpan> {
        assert!(samples.iter().all(|sample| 1_000 * (sample % TIMES) as i64 == time_ns));
        Some(LabelSpan { start_ns: time_ns, end_ns: time_ns + 1_000 * (target as i64 + 1) })
    }
}

/// `eval` of an LSTM over 500 shares had no IC, and could not be compared with a model of graphs.
#[test]
fn samples_of_a_time_are_correlated_as_the_nodes_of_a_graph_are() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.safetensors");
    exported(&path);
    let universe = Universe(samples(100));
    let (train, indices) = (SampleRanges::from(0..80), SampleRanges::from(0..100));
    let baselines = fit_numbers(&Device::cpu(), Selection { samples: &universe, indices: &train }).unwrap();
    let mut predictor = predictor(&path, Compute { threads: 1, batch_size: 7 });
    let selection = Selection { samples: &universe, indices: &indices };
    let found = predictor.evaluate(selection, Loss::Mse, Some(&baselines)).unwrap();

    let mut rows = vec![(Vec::new(), Vec::new()); TIMES];
    let see = |samples: &[usize], batch: &[f32], targets: &[f32]| {
        for ((sample, y), target) in samples.iter().zip(batch.chunks_exact(2)).zip(targets.chunks_exact(2)) {
            let (own, own_targets) = &mut rows[sample % TIMES];
            own.extend_from_slice(y);
            own_targets.extend_from_slice(target);
        }
        Ok::<(), Error>(())
    };
    predictor.predict_beside_targets(selection, &|| true, see).unwrap();
    let mut expected = MetricsSum::new(2);
    rows.iter().for_each(|(predictions, targets)| expected.add_graph(predictions, targets));
    let information = found.metrics.information.unwrap();
    let by_hand = expected.finish(&[]).information.unwrap();
    assert_eq!((&information.ic, &information.rank_ic), (&by_hand.ic, &by_hand.rank_ic));
    assert_eq!((information.ic_graphs, information.ic_lags), (vec![TIMES; 2], vec![0, 1]));
    assert_eq!(information.ic_t[0], by_hand.ic_t[0]);
    assert_ne!(information.ic_t[1], by_hand.ic_t[1]);
    let times: Vec<i64> = found.graphs.iter().map(|time| time.time_ns.unwrap() / 1_000).collect();
    assert_eq!(times, (0..20).collect::<Vec<i64>>());
    let by_graph = expected.by_graph();
    assert!(found.graphs.iter().zip(&by_graph).all(|(own, other)| own.rank_ic == other.rank_ic));
    assert!(found.baselines["linear"].information.is_some());

    // Validations, which have no baselines, cost no more than they did.
    let alone = predictor.evaluate(selection, Loss::Mse, None).unwrap();
    assert!(alone.metrics.information.is_none() && alone.graphs.is_empty());
    assert_eq!(alone.metrics.rmse, found.metrics.rmse);
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
