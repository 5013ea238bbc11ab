//! Dense training: samples that follow one another in one pass, on a GPU beside the same on the
//! CPU.

use megabatch_amp::Precision;
use megabatch_gpu_core::Device;
use megabatch_nn::batch::LossOn;
use megabatch_nn::model::{ModelConfig, Pooling, Timeframe};
use megabatch_trainer::{Config, Error, SeriesInMemory, Trainer};

use crate::{PRECISIONS, check, config, goes_on, losses, series, shape, wave, whole, with_kernels};

/// Runs of up to `run_length` samples.
pub(crate) fn in_runs(config: &Config, run_length: usize) -> Config {
    Config { loss_on: LossOn::EveryStep, run_length: Some(run_length), ..config.clone() }
}

/// With norms and fusion, and without pooling.
pub(crate) fn normed(precision: Precision, layers: usize) -> Config {
    let base = whole(precision, layers);
    Config { model: ModelConfig { pooling: Pooling::Last, ..base.model }, ..base }
}

/// Sixty samples in four segments, with gaps before the 9th, the 20th and the 22nd: windows of M1
/// end a bar later each time, those of H1 each fourth time, and those of M5 never, but for the
/// gaps. There is no bar behind those that are learnt.
pub(crate) fn with_gaps() -> SeriesInMemory {
    let shape = shape();
    let timeframe_series = |(timeframe, (slowness, pace)): (&Timeframe, (usize, f32))| {
        let gaps = |n: usize| [9, 20, 22].iter().filter(|&&gap| n >= gap).count();
        let end = |n: usize| (timeframe.steps - 1 + n.min(48) / slowness + gaps(n) * (timeframe.steps + 2)) as i64;
        (wave((end(59) as usize + 1) * timeframe.features, pace), (0..60).map(end).collect())
    };
    let series = shape.timeframes.iter().zip([(1, 0.7), (100, 0.9), (4, 1.3)]).map(timeframe_series).collect();
    SeriesInMemory::new(shape, series, wave(120, 0.3)).unwrap()
}

/// Training is the same on every device that operations run on.
fn trains_as_the_processor_does(gpu: &Device) {
    for precision in PRECISIONS {
        for layers in [1, 2] {
            check(gpu, &in_runs(&config(precision, layers), 5), &with_gaps());
            check(gpu, &in_runs(&normed(precision, layers), 11), &with_gaps());
        }
        check(gpu, &in_runs(&config(precision, 2), 4), &series());
    }
}

#[test]
fn by_the_plain_forms_of_the_operations() {
    trains_as_the_processor_does(&Device::cpu());
    let base = in_runs(&config(Precision::Fp32, 3), 7);
    check(&Device::cpu(), &Config { batch_size: 7, gradient_accumulation_steps: 2, ..base.clone() }, &with_gaps());
    // Batches that end within pieces of the order, if they are not cut at runs.
    check(
        &Device::cpu(),
        &Config { batch_size: 9, gradient_accumulation_steps: 3, run_length: Some(6), ..base.clone() },
        &with_gaps(),
    );
    for run_length in [9, 100] {
        let base = Config { batch_size: 49, run_length: Some(run_length), dropout: 0.0, ..base.clone() };
        check(&Device::cpu(), &base, &with_gaps());
    }
    for loss in losses() {
        let base = Config { loss, batch_size: 49, ..normed(Precision::Fp32, 2) };
        check(&Device::cpu(), &in_runs(&base, 9), &with_gaps());
    }
}

#[test]
fn by_the_kernels() {
    let (_driver, gpu) = with_kernels();
    trains_as_the_processor_does(&gpu);
}

#[test]
fn each_goes_on_where_the_other_stopped() {
    let (_driver, gpu) = with_kernels();
    goes_on(&gpu, &Config { max_steps: Some(6), ..in_runs(&config(Precision::Fp16, 2), 5) }, &with_gaps());
}

#[test]
fn attention_pooling_is_refused_by_name() {
    let config = in_runs(&whole(Precision::Fp32, 1), 5);
    let error = Trainer::on_gpu(&Device::cpu(), &Device::cpu(), config, shape()).unwrap_err();
    assert!(matches!(error, Error::NotOnGpu { setting: "loss_on", .. }), "{error:?}");
    assert!(error.to_string().ends_with("not supported on a GPU yet together with attention pooling"), "{error}");
}
