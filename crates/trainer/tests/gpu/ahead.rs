//! The batches of the next step are submitted before the host knows what became of a step.

use std::ops::ControlFlow;
use std::sync::LazyLock;

use megabatch_amp::Precision;
use megabatch_gpu_core::Device;
use megabatch_simt::driver::FakeDriver;
use megabatch_trainer::{Config, Error, Event, InMemory, Run, SampleRanges, Samples, Selection, Trainer};

use crate::predicting::predictor;
use crate::{bits, config, on_gpu, on_processor, shape, train_until, wave, windows, with_kernels};

static VALIDATION: LazyLock<SampleRanges> = LazyLock::new(|| SampleRanges::from_iter([50, 55, 59]));

/// True if something was submitted that is not done. Work is done when somebody waits for it, and
/// no more of it than that takes.
fn has_work(driver: &FakeDriver, gpu: &Device) -> bool {
    driver.launches();
    let none = driver.launches();
    gpu.gpu().expect("a GPU").synchronize().unwrap();
    driver.launches() != none
}

#[test]
fn a_device_has_the_next_batches_while_the_host_reads_of_a_step() {
    let (driver, gpu) = with_kernels();
    let (samples, train) = (windows(), SampleRanges::from(0..49));
    let run = Run { samples: &samples, train: &train, validation: &VALIDATION, checkpoints: None };
    let mut is_ahead = Vec::new();
    on_gpu(&gpu, &config(Precision::Bf16, 1))
        .train(&run, &mut |event| {
            if let Event::Step(_) = event {
                is_ahead.push(has_work(&driver, &gpu));
            }
            ControlFlow::Continue(())
        })
        .unwrap();
    // Validations use the same memory.
    assert_eq!(is_ahead, [true, true, true, true, false, true, true, false]);
}

#[test]
fn a_device_has_the_next_batch_while_the_host_reads_predictions() {
    let (driver, gpu) = with_kernels();
    let config = config(Precision::Bf16, 1);
    let mut predictor = predictor(&config).on_gpu(&gpu).unwrap();
    let (samples, indices) = (windows(), SampleRanges::from(0..3 * config.batch_size + 1));
    let mut is_ahead = Vec::new();
    predictor
        .predict(Selection { samples: &samples, indices: &indices }, |_, _| {
            is_ahead.push(has_work(&driver, &gpu));
            Ok::<(), Error>(())
        })
        .unwrap();
    assert_eq!(is_ahead, [true, true, true, false]);
}

#[test]
fn a_run_that_is_stopped_forgets_what_was_submitted_ahead() {
    let (_driver, gpu) = with_kernels();
    let (config, samples) = (config(Precision::Fp16, 1), windows());
    let mut uninterrupted = on_gpu(&gpu, &config);
    train_until(&mut uninterrupted, &samples, None, u64::MAX);
    let mut stopped = on_gpu(&gpu, &config);
    for last in [2, 3, 6, u64::MAX] {
        train_until(&mut stopped, &samples, None, last);
    }
    assert!(bits(&stopped) == bits(&uninterrupted), "gradients of a step that was submitted twice count once");
}

/// The steps that were done, and the error that ended the run.
fn failure(mut trainer: Trainer, samples: &dyn Samples, train: &SampleRanges) -> (u64, String) {
    let run = Run { samples, train, validation: SampleRanges::NONE, checkpoints: None };
    let mut steps = 0;
    let error = trainer.train(&run, &mut |event| {
        if let Event::Step(step) = event {
            steps = step.step;
        }
        ControlFlow::Continue(())
    });
    (steps, error.unwrap_err().to_string())
}

#[test]
fn what_is_wrong_with_a_batch_is_told_at_its_step() {
    let (_driver, gpu) = with_kernels();
    // In the order of time, so that the last samples are in the last batch.
    let config = Config { run_length: Some(1000), dropout: 0.0, ..config(Precision::Fp32, 1) };
    let accumulates = Config { gradient_accumulation_steps: 2, batch_size: 7, ..config.clone() };
    let mut bars: Vec<Vec<f32>> =
        shape().timeframes.iter().map(|timeframe| wave(60 * timeframe.steps * timeframe.features, 0.7)).collect();
    bars[2][30 * 8 + 5] = f32::NAN;
    let has_nan = InMemory::new(shape(), bars, wave(120, 0.3)).unwrap();
    let all = SampleRanges::from(0..49);
    let beyond: SampleRanges = (0..48).chain([99]).collect();
    for config in [config, accumulates] {
        for (samples, train) in [(&windows(), &beyond), (&has_nan, &all)] {
            let expected = failure(on_processor(&config), samples, train);
            for gpu in [&gpu, &Device::cpu()] {
                assert_eq!(failure(on_gpu(gpu, &config), samples, train), expected);
            }
        }
    }
}
