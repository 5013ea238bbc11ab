//! Kernels chosen by measurement, on the fake driver, which takes for each as long as a test says.

use std::ops::ControlFlow;
use std::path::Path;

use megabatch_amp::Precision;
use megabatch_gpu_core::Device;
use megabatch_nn::model::{ModelConfig, SampleShape, Timeframe};
use megabatch_nn_cuda::Tuning;
use megabatch_simt::driver::{FakeDriver, Setting};
use megabatch_trainer::{Config, Event, InMemory, Run, SampleRanges, Samples, Trainer};

use crate::{bits, config, on_gpu, windows, with_kernels};

/// Names of the forward kernels of a first layer for H ≤ 32, by windows of a tile.
const FOUR: &str = "rows_bf16_32_4";
const EIGHT: &str = "rows_bf16_32_8";
const SIXTEEN: &str = "rows_bf16_32_16";
const TALL: &str = "product_128_64_bf16";

/// Times that a candidate is run to be measured.
const MEASURED: u64 = 6;

/// Three steps of one shape in bf16.
fn tuned(autotune: Tuning, layers: usize) -> Config {
    Config { autotune, max_steps: Some(3), ..config(Precision::Bf16, layers) }
}

/// Trains; how often each forward kernel ran, and what was noted.
fn train(driver: &FakeDriver, trainer: &mut Trainer, samples: &dyn Samples) -> ([u64; 3], Vec<String>) {
    let runs = || [FOUR, EIGHT, SIXTEEN].map(|kernel| driver.runs(kernel));
    let (before, train_on, mut notes) = (runs(), SampleRanges::from(0..49), Vec::new());
    let run = Run { samples, train: &train_on, validation: SampleRanges::NONE, checkpoints: None };
    trainer
        .train(&run, &mut |event| {
            if let Event::Note { text, .. } = event {
                notes.push(text);
            }
            ControlFlow::Continue(())
        })
        .unwrap();
    let after = runs();
    ([0, 1, 2].map(|k| after[k] - before[k]), notes)
}

fn trained_beside(driver: &FakeDriver, gpu: &Device, folder: &Path) -> ([u64; 3], Vec<String>) {
    let mut trainer = on_gpu(gpu, &tuned(Tuning::Deterministic, 2));
    trainer.keep_tuning_in(folder);
    train(driver, &mut trainer, &windows())
}

#[test]
fn the_fastest_kernels_are_found_once_a_gpu_and_have_the_bits_of_the_others() {
    let (driver, gpu) = with_kernels();
    driver.set(Setting::Devices, 2);
    let mut by_rule = on_gpu(&gpu, &tuned(Tuning::Off, 2));
    assert_eq!(train(&driver, &mut by_rule, &windows()), ([3, 0, 0], vec![]));
    // Slow forward, but so much faster with the way back.
    let times = [(FOUR, 10), (EIGHT, 15), (SIXTEEN, 20), (TALL, 7), ("product_bf16", 8)];
    let times_back = ["backward_bf16_32_4", "backward_bf16_32_8"].map(|kernel| (kernel, 40));
    times.into_iter().chain(times_back).for_each(|(kernel, us)| driver.takes(kernel, us));
    let cache = tempfile::tempdir().unwrap();
    let folder = cache.path().join("kernels");
    let mut trainer = on_gpu(&gpu, &tuned(Tuning::Deterministic, 2));
    trainer.keep_tuning_in(&folder);
    assert_eq!(train(&driver, &mut trainer, &windows()), ([MEASURED, MEASURED, MEASURED + 3], vec![]));
    // The second layer reads 66 steps of windows of M1: more rows than a small tile.
    assert_eq!(driver.runs(TALL), MEASURED + 3);
    assert_eq!(bits(&trainer), bits(&by_rule));

    assert_eq!(trained_beside(&driver, &gpu, &folder), ([0, 0, 3], vec![]), "what was found is kept");
    let other = Device::select("cuda:1").unwrap();
    assert_eq!(trained_beside(&driver, &other, &folder), ([MEASURED, MEASURED, MEASURED + 3], vec![]), "another GPU");
    driver.takes("backward_bf16_32_16", 90);
    assert_eq!(trained_beside(&driver, &gpu, &folder).0, [0, 0, 3], "it is not measured again");

    for file in std::fs::read_dir(&folder).unwrap() {
        std::fs::write(file.unwrap().path(), "not what was written").unwrap();
    }
    let (runs, notes) = trained_beside(&driver, &gpu, &folder);
    assert_eq!(runs, [MEASURED + 3, MEASURED, MEASURED], "damaged files");
    assert!(!notes.is_empty() && notes.iter().all(|note| note.ends_with("it is measured anew")), "{notes:?}");
    assert_eq!(trained_beside(&driver, &gpu, &folder), ([3, 0, 0], vec![]), "they were written again");
}

#[test]
fn a_folder_that_takes_nothing_is_noted_once() {
    let (driver, gpu) = with_kernels();
    [FOUR, EIGHT].into_iter().for_each(|kernel| driver.takes(kernel, 10));
    let cache = tempfile::tempdir().unwrap();
    let file = cache.path().join("file");
    std::fs::write(&file, "").unwrap();
    let (runs, notes) = trained_beside(&driver, &gpu, &file.join("kernels"));
    assert_eq!(runs, [MEASURED, MEASURED, MEASURED + 3]);
    let [note] = &notes[..] else { panic!("{notes:?}") };
    assert!(note.contains("measured anew in the next run") && note.contains("XDG_CACHE_HOME"), "{note}");
}

#[test]
fn a_run_that_takes_less_memory_is_still_timed_and_keeps_what_it_finds() {
    let (driver, gpu) = with_kernels();
    [FOUR, EIGHT, SIXTEEN].into_iter().for_each(|kernel| driver.takes(kernel, 10));
    let config = tuned(Tuning::Deterministic, 2);
    gpu.reset_peak();
    train(&driver, &mut on_gpu(&gpu, &config), &windows());
    gpu.set_budget_bytes(Some(gpu.usage().allocated_bytes_peak - 1));
    let cache = tempfile::tempdir().unwrap();
    let folder = cache.path().join("kernels");
    let mut trainer = on_gpu(&gpu, &config);
    trainer.time_gpu().unwrap();
    trainer.keep_tuning_in(&folder);
    let (samples, train_on) = (windows(), SampleRanges::from(0..49));
    let run = Run { samples: &samples, train: &train_on, validation: SampleRanges::NONE, checkpoints: None };
    let (mut cuts, mut busy_s) = (0, 0.0);
    trainer
        .train(&run, &mut |event| {
            match event {
                Event::Shortage(_) => {
                    cuts += 1;
                    busy_s = 0.0;
                    // What was found before.
                    if folder.exists() {
                        std::fs::remove_dir_all(&folder).unwrap();
                    }
                }
                Event::Step(step) => busy_s += step.gpu_s.expect("it is timed"),
                _ => {}
            }
            ControlFlow::Continue(())
        })
        .unwrap();
    assert!(cuts > 0);
    assert!(busy_s > 0.0, "the GPU is timed");
    assert!(std::fs::read_dir(&folder).unwrap().count() > 0, "kernels that were measured are kept");
}

#[test]
fn what_adds_in_another_order_is_only_for_those_who_ask() {
    let (driver, gpu) = with_kernels();
    driver.takes("forward_bf16_256", 1000);
    let timeframe = Timeframe { name: "M1".to_owned(), steps: 2, features: 1 };
    let shape = SampleShape { timeframes: vec![timeframe], outputs: 2 };
    let numbers = (0..120).map(|i| (i as f32 * 0.7).sin()).collect::<Vec<_>>();
    let samples = InMemory::new(shape.clone(), vec![numbers.clone()], numbers).unwrap();
    let narrow = tuned(Tuning::Off, 1);
    let wide =
        Config { model: ModelConfig { hidden: 130, ..narrow.model }, batch_size: 3, max_steps: Some(1), ..narrow };
    for (autotune, is_step_by_step) in [(Tuning::Deterministic, false), (Tuning::Fast, true)] {
        let config = Config { autotune, ..wide.clone() };
        let mut trainer = Trainer::on_gpu(&gpu, &Device::cpu(), config, shape.clone()).unwrap();
        let group_runs = driver.runs("forward_bf16_256");
        train(&driver, &mut trainer, &samples);
        let (steps, groups) = (driver.runs("step_forward_bf16"), driver.runs("forward_bf16_256") - group_runs);
        // Two steps of windows each time.
        let expected = if is_step_by_step { (2 * (MEASURED + 1), MEASURED) } else { (0, 1) };
        assert_eq!((steps, groups), expected, "{autotune:?}");
    }
}
