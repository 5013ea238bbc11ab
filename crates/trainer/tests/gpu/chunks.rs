//! Stored windows that pass through a GPU in chunks, beside those that come batch by batch.

use std::ops::ControlFlow;

use megabatch_amp::Precision;
use megabatch_gpu_core::Device;
use megabatch_trainer::{
    Config, Event, GpuFootprint, Run, SampleRanges, SampleWeighting, Samples, ShortageEvent, TargetScaling,
};
use proptest::prelude::*;

use crate::keeping::{trained, wide};
use crate::weighted::Weighted;
use crate::{PRECISIONS, bits, config, losses_and_cuts, on_gpu, train, train_until, whole, windows, with_kernels};

fn check(gpu: &Device, config: &Config, chunk_windows: usize, samples: &dyn Samples) {
    let [in_chunks, batch_by_batch] = [Some(chunk_windows), None]
        .map(|chunk_windows| trained(gpu, &Config { chunk_windows, ..config.clone() }, samples));
    assert_eq!(in_chunks, batch_by_batch, "{:?}", (chunk_windows, config.precision, &config.model));
}

#[test]
fn windows_that_come_in_chunks_have_the_bits_of_those_that_come_with_each_batch() {
    let (_driver, gpu) = with_kernels();
    for gpu in [gpu, Device::cpu()] {
        for precision in PRECISIONS {
            // A batch, two and a part of one more, and all of them.
            for chunk_windows in [1, 25, 1000] {
                check(&gpu, &config(precision, 2), chunk_windows, &windows());
            }
            check(&gpu, &whole(precision, 2), 30, &windows());
            check(&gpu, &config(precision, 1), 30, &wide());
            let weighted = Config { sample_weights: SampleWeighting::Auto, ..config(precision, 1) };
            let scaled = Config { target_scaling: TargetScaling::Auto, ..weighted };
            check(&gpu, &scaled, 30, &Weighted::by_turns(&windows()));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(12) })]

    #[test]
    fn chunks_of_any_size_change_no_bit(
        chunk_windows in 1_usize..70,
        (batch_size, gradient_accumulation_steps) in (1_usize..14, 1_usize..4),
        run_length in prop_oneof![Just(None), (1_usize..30).prop_map(Some)],
        (precision, seed) in (prop::sample::select(PRECISIONS.to_vec()), any::<u64>()),
    ) {
        let base = config(precision, 2);
        let config = Config { batch_size, gradient_accumulation_steps, run_length, seed, ..base };
        let (_driver, gpu) = with_kernels();
        for gpu in [gpu, Device::cpu()] {
            check(&gpu, &config, chunk_windows, &windows());
        }
    }
}

#[test]
fn batches_of_a_chunk_bring_no_windows() {
    let (driver, gpu) = with_kernels();
    let copies_of_a_step = |keep_windows, chunk_windows| {
        let base = config(Precision::Bf16, 1);
        let config = Config { keep_windows, chunk_windows, max_steps: Some(4), ..base };
        let train_on = SampleRanges::from(0..49);
        let run = Run { samples: &windows(), train: &train_on, validation: SampleRanges::NONE, checkpoints: None };
        let mut copies = Vec::new();
        on_gpu(&gpu, &config)
            .train(&run, &mut |event| {
                if let Event::Step(_) = event {
                    copies.push(driver.calls("cuMemcpyHtoDAsync_v2"));
                }
                ControlFlow::Continue(())
            })
            .unwrap();
        copies[2] - copies[1]
    };
    // One chunk has all batches, and is there before the first step.
    assert_eq!(copies_of_a_step(false, Some(44)), copies_of_a_step(true, None));
}

#[test]
fn two_chunks_are_planned_beside_the_batches_of_a_validation() {
    let (samples, train, validation) = (windows(), SampleRanges::from(0..49), SampleRanges::from_iter([50, 55, 59]));
    for precision in PRECISIONS {
        let config = Config { chunk_windows: Some(22), ..config(precision, 1) };
        let planned = GpuFootprint::new(&config, &samples, &train, &validation, 1).unwrap();
        let gpu = Device::cpu();
        trained(&gpu, &config, &samples);
        let bars = gpu.usage_by_scope().into_iter().find(|(scope, _)| scope == "gpu/bars").unwrap().1;
        // Numbers of 16 bits take half of the bytes.
        let numbers: usize = (0..3).map(|k| samples.shape().window_len(k)).sum();
        let bytes = 2 * 22 * numbers * precision.bytes();
        assert_eq!([planned.part_bytes("bars"), bars.allocated_bytes_peak], [bytes; 2], "{precision:?}");
        assert!(gpu.usage().allocated_bytes_peak <= planned.total_bytes());
    }
}

/// Two batches of windows were planned beside chunks whatever the batches of the validation were.
#[test]
fn windows_beside_chunks_are_planned_for_the_batches_of_the_validation() {
    let (_driver, gpu) = with_kernels();
    let (samples, train) = (windows(), SampleRanges::from(0..44));
    for validation in [SampleRanges::default(), SampleRanges::from(50..53), SampleRanges::from(45..60)] {
        let config = Config { chunk_windows: Some(22), max_steps: Some(4), ..config(Precision::Fp32, 1) };
        let planned = GpuFootprint::new(&config, &samples, &train, &validation, 1).unwrap();
        gpu.reset_peak();
        let run = Run { samples: &samples, train: &train, validation: &validation, checkpoints: None };
        on_gpu(&gpu, &config).train(&run, &mut |_| ControlFlow::Continue(())).unwrap();
        let brought = 2 * validation.len().min(11) * (0..3).map(|k| samples.shape().window_len(k)).sum::<usize>();
        let windows_brought = planned.tensors.iter().filter(|tensor| tensor.name.ends_with("of two batches"));
        assert_eq!(windows_brought.map(|tensor| tensor.bytes).sum::<usize>(), brought * size_of::<f32>());
        assert_eq!(planned.total_bytes(), gpu.usage().allocated_bytes_peak, "{} validated", validation.len());
    }
}

#[test]
fn a_gpu_that_is_too_small_for_chunks_goes_on_batch_by_batch() {
    let samples = windows();
    let windows_bytes: usize = (0..3).map(|k| 22 * samples.shape().window_len(k) * size_of::<f32>()).sum();
    let config = Config { chunk_windows: Some(22), ..config(Precision::Fp32, 1) };
    let gpu = Device::cpu();
    let expected = trained(&gpu, &config, &samples);
    let needed = gpu.usage().allocated_bytes_peak;
    let gpu = Device::cpu();
    gpu.set_budget_bytes(Some(needed - windows_bytes / 2));
    let (train_on, validation) = (SampleRanges::from(0..49), SampleRanges::from_iter([50, 55, 59]));
    let run = Run { samples: &samples, train: &train_on, validation: &validation, checkpoints: None };
    let told = |cut: &ShortageEvent| (cut.releases_windows, cut.batch_size);
    let (losses, cuts) = losses_and_cuts(&mut on_gpu(&gpu, &config), &run, told);
    assert_eq!((cuts, losses), (vec![(true, 11)], expected.1));
}

#[test]
fn a_run_that_ends_amid_its_chunks_gives_their_memory_back_and_goes_on() {
    let (driver, gpu) = with_kernels();
    let (samples, config) = (windows(), Config { chunk_windows: Some(22), ..config(Precision::Bf16, 1) });
    let (expected, _, _) = trained(&gpu, &config, &samples);
    let chunk_bytes = || {
        let bars = gpu.usage_by_scope().into_iter().find(|(scope, _)| scope == "gpu/bars").unwrap().1;
        bars.allocated_bytes
    };
    let mut trainer = on_gpu(&gpu, &config);
    let (steps, _, _) = train_until(&mut trainer, &samples, None, 3);
    assert_eq!((steps.len(), chunk_bytes()), (3, 0));
    // CUDA_ERROR_LAUNCH_FAILED, once: the copy of the first chunk.
    driver.fail("cuEventSynchronize", 1, 719);
    let (train_on, validation) = (SampleRanges::from(0..49), SampleRanges::from_iter([50, 55, 59]));
    let run = Run { samples: &samples, train: &train_on, validation: &validation, checkpoints: None };
    let error = trainer.train(&run, &mut |_| ControlFlow::Continue(())).unwrap_err();
    assert!(error.to_string().contains("cuEventSynchronize"), "{error}");
    assert_eq!(chunk_bytes(), 0);
    assert_eq!(train(&mut trainer, &samples, None).0.len(), 5);
    assert!(bits(&trainer) == expected, "weights of a run that was not interrupted");
}
