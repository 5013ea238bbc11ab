//! Windows that start from carried states on a GPU, as they do on the CPU.

use std::ops::ControlFlow;

use megabatch_amp::Precision;
use megabatch_gpu_core::Device;
use megabatch_nn::model::Timeframe;
use megabatch_trainer::{Config, Error, GpuFootprint, Run, SampleRanges, SeriesInMemory, StepEvent, Trainer};

use crate::dense::{in_runs, with_gaps};
use crate::{
    PRECISIONS, bits, check, config, goes_on, losses_and_cuts, on_gpu, on_processor, series, shape, train, train_until,
    wave, whole, windows, with_kernels,
};

pub(crate) fn carrying(config: &Config) -> Config {
    Config { carry_state: true, ..config.clone() }
}

/// Training is the same on every device that operations run on.
fn trains_as_the_processor_does(gpu: &Device) {
    for precision in PRECISIONS {
        for layers in [1, 2] {
            check(gpu, &carrying(&config(precision, layers)), &series());
            check(gpu, &carrying(&in_runs(&config(precision, layers), 5)), &with_gaps());
        }
        check(gpu, &carrying(&whole(precision, 2)), &series());
    }
    // States of the batches of a step, of which the last at a bar stays.
    let accumulates = Config { batch_size: 7, gradient_accumulation_steps: 2, ..config(Precision::Fp32, 2) };
    for samples in [series(), with_gaps()] {
        check(gpu, &carrying(&accumulates), &samples);
        check(gpu, &carrying(&in_runs(&accumulates, 7)), &samples);
    }
}

#[test]
fn by_the_plain_forms_of_the_operations() {
    trains_as_the_processor_does(&Device::cpu());
}

#[test]
fn by_the_kernels() {
    let (_driver, gpu) = with_kernels();
    trains_as_the_processor_does(&gpu);
}

#[test]
fn states_make_a_difference() {
    let gpu = Device::cpu();
    let losses = |config: &Config| {
        let (steps, _) = train(&mut on_gpu(&gpu, config), &series(), None);
        steps.iter().map(|step| step.loss).collect::<Vec<_>>()
    };
    let base = config(Precision::Fp32, 2);
    let [carried, from_zero] = [losses(&carrying(&base)), losses(&base)];
    assert_eq!(carried[0], from_zero[0], "nothing is carried to the first step");
    assert_ne!(carried[5..], from_zero[5..]);
}

/// Samples of which some steps know no target: what they compute is carried all the same.
#[test]
fn steps_without_known_targets_carry_states() {
    let (_driver, gpu) = with_kernels();
    let shape = shape();
    let timeframe_series = |timeframe: &Timeframe| {
        let end = |n: usize| (timeframe.steps - 1 + n) as i64;
        (wave((60 + timeframe.steps) * timeframe.features, 0.7), (0..60).map(end).collect())
    };
    let all = shape.timeframes.iter().map(timeframe_series).collect();
    // All but the first and the last eleven of an epoch.
    let known = |(k, target): (usize, f32)| if (22..76).contains(&k) { f32::NAN } else { target };
    let targets = wave(120, 0.3).into_iter().enumerate().map(known).collect();
    let samples = SeriesInMemory::new(shape, all, targets).unwrap();
    let base = carrying(&Config { run_length: None, max_steps: Some(7), ..config(Precision::Fp32, 1) });
    let (steps, _) = train(&mut on_processor(&base), &samples, None);
    assert!(steps.iter().any(|step: &StepEvent| step.loss_terms == Some(0)), "{steps:?}");
    for gpu in [gpu, Device::cpu()] {
        check(&gpu, &base, &samples);
    }
}

#[test]
fn each_goes_on_where_the_other_stopped() {
    let (_driver, gpu) = with_kernels();
    // Into the second epoch.
    let base = Config { max_steps: Some(6), ..config(Precision::Fp16, 2) };
    goes_on(&gpu, &carrying(&base), &series());
    goes_on(&gpu, &carrying(&in_runs(&base, 5)), &with_gaps());
}

#[test]
fn a_run_that_is_stopped_forgets_the_states_that_were_computed_ahead() {
    let (_driver, gpu) = with_kernels();
    let (config, samples) = (carrying(&config(Precision::Fp16, 2)), series());
    let mut uninterrupted = on_gpu(&gpu, &config);
    train_until(&mut uninterrupted, &samples, None, u64::MAX);
    let mut stopped = on_gpu(&gpu, &config);
    for last in [2, 3, 6, u64::MAX] {
        train_until(&mut stopped, &samples, None, last);
    }
    assert!(bits(&stopped) == bits(&uninterrupted), "states of a step that was submitted twice count once");
}

#[test]
fn a_gpu_that_is_too_small_carries_states_in_smaller_batches() {
    let (config, samples) = (carrying(&config(Precision::Fp32, 1)), series());
    let train_on = SampleRanges::from(0..49);
    let run = Run { samples: &samples, train: &train_on, validation: SampleRanges::NONE, checkpoints: None };
    let losses = |gpu: &Device| {
        let (losses, cuts) = losses_and_cuts(&mut on_gpu(gpu, &config), &run, |cut| cut.batch_size);
        (losses, cuts.len())
    };
    let gpu = Device::cpu();
    let (expected, cuts) = losses(&gpu);
    assert_eq!(cuts, 0);
    let needed = gpu.usage().allocated_bytes_peak;
    let gpu = Device::cpu();
    gpu.set_budget_bytes(Some(needed - 1));
    let (found, cuts) = losses(&gpu);
    assert!(cuts > 0);
    crate::assert_close("losses", &found, &expected, 1e-5);
}

#[test]
fn stored_windows_are_refused_by_the_name_of_the_setting() {
    let (config, samples) = (carrying(&config(Precision::Fp32, 1)), windows());
    let train_on = SampleRanges::from(0..49);
    let run = Run { samples: &samples, train: &train_on, validation: SampleRanges::NONE, checkpoints: None };
    let mut trainer: Trainer = on_gpu(&Device::cpu(), &config);
    for error in [
        trainer.train(&run, &mut |_| ControlFlow::Continue(())).map(drop).unwrap_err(),
        GpuFootprint::new(&config, &samples, &train_on, SampleRanges::NONE, 1).map(drop).unwrap_err(),
    ] {
        assert!(matches!(error, Error::NeedsSeries { setting: "carry_state", .. }), "{error:?}");
    }
}
