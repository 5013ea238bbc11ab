//! Batches that share windows, whose sizes are rounded up: what fills them up changes nothing, and
//! their shapes come again.

use std::ops::ControlFlow;

use megabatch_amp::Precision;
use megabatch_gpu_core::Device;
use megabatch_nn::model::{Fusion, ModelConfig, SampleShape, Timeframe};
use megabatch_trainer::{Config, Event, Run, SampleRanges, SeriesInMemory, Trainer};

use crate::{assert_close, config, tolerance, wave, whole, with_kernels};

const BATCHES: usize = 6;

/// Samples of a batch.
const SAMPLES: usize = 48;

/// T.
const STEPS: usize = 3;

fn shape() -> SampleShape {
    SampleShape { timeframes: vec![Timeframe { name: "M5".to_owned(), steps: STEPS, features: 2 }], outputs: 2 }
}

/// Batches of which each has so many distinct windows, by its number; the other samples read the
/// last of them.
fn batches(distinct: fn(usize) -> usize) -> SeriesInMemory {
    let end = |sample: usize| {
        let batch = sample / SAMPLES;
        (STEPS - 1 + batch * SAMPLES + (sample % SAMPLES).min(distinct(batch) - 1)) as i64
    };
    let ends = (0..BATCHES * SAMPLES).map(end).collect();
    let bars = wave((BATCHES * SAMPLES + STEPS) * 2, 0.7);
    SeriesInMemory::new(shape(), vec![(bars, ends)], wave(2 * BATCHES * SAMPLES, 0.3)).unwrap()
}

/// The losses of a step for each batch.
fn losses(mut trainer: Trainer, samples: &SeriesInMemory) -> Vec<f64> {
    let train = SampleRanges::from(0..BATCHES * SAMPLES);
    let run = Run { samples, train: &train, validation: SampleRanges::NONE, checkpoints: None };
    let mut losses = Vec::new();
    let mut note = |event: Event<'_>| {
        if let Event::Step(step) = event {
            losses.push(step.loss);
        }
        ControlFlow::Continue(())
    };
    trainer.train(&run, &mut note).unwrap();
    losses
}

/// Every batch is one of those that were made.
fn in_batches(config: &Config) -> Config {
    Config { batch_size: SAMPLES, run_length: Some(SAMPLES), max_steps: Some(BATCHES as u64), ..config.clone() }
}

#[test]
fn batches_of_nearly_as_many_windows_have_one_shape() {
    let (driver, gpu) = with_kernels();
    let config = in_batches(&config(Precision::Bf16, 1));
    let graphs = |distinct| {
        let before = driver.calls("cuGraphLaunch");
        let trainer = Trainer::on_gpu(&gpu, &Device::cpu(), config.clone(), shape()).unwrap();
        losses(trainer, &batches(distinct));
        driver.calls("cuGraphLaunch") - before
    };
    let [same, nearly, others] = [graphs(|_| 34), graphs(|batch| 33 + batch % 2), graphs(|batch| 20 + 4 * batch)];
    assert_eq!(nearly, same);
    assert!(others < same, "{others} of {same} graphs where every batch has another shape");
}

#[test]
fn what_fills_a_batch_up_changes_no_result() {
    let gpu = Device::cpu();
    for layers in [1, 2] {
        let config = in_batches(&whole(Precision::Fp32, layers));
        let model = ModelConfig { fusion: Fusion::Concat, ..config.model };
        let config = Config { model, ..config };
        let samples = batches(|batch| 33 + 3 * (batch % 3));
        let found = losses(Trainer::on_gpu(&gpu, &gpu, config.clone(), shape()).unwrap(), &samples);
        let expected = losses(Trainer::new(&gpu, config.clone(), shape()).unwrap(), &samples);
        assert_close(&format!("{layers} layers"), &found, &expected, tolerance(&config));
        assert_eq!(found.len(), BATCHES);
    }
}
