//! GPU memory of a run beside its plan.

use std::ops::ControlFlow;
use std::sync::LazyLock;

use megabatch_amp::Precision;
use megabatch_gpu_core::Device;
use megabatch_nn::model::{ModelConfig, SampleShape, Timeframe};
use megabatch_trainer::{
    Config, Event, GpuFootprint, InMemory, LastBatch, OptimizerKind, Run, SampleRanges, SampleWeighting, Samples,
    SeriesInMemory, Trainer,
};

use crate::carrying::carrying;
use crate::checkpointing::checkpointed;
use crate::dense::{in_runs, normed, with_gaps};
use crate::in_file::InFile;
use crate::keeping::wide;
use crate::weighted::Weighted;
use crate::{PRECISIONS, config, losses, series, wave, whole, windows, with_kernels};

static VALIDATION: LazyLock<SampleRanges> = LazyLock::new(|| SampleRanges::from_iter([50, 55, 59]));

/// Parts of a plan that have a scope of their own on the GPU.
const SCOPES: [&str; 4] = ["bars", "activations", "batches", "carried"];

/// The plan of a run, in all and by scope, and what the run took at its peak.
fn planned_and_taken(gpu: &Device, config: &Config, samples: &dyn Samples) -> [Vec<usize>; 2] {
    let train = SampleRanges::from(0..49);
    let plan = GpuFootprint::new(config, samples, &train, &VALIDATION, 1).unwrap();
    assert_eq!(GpuFootprint::PARTS.map(|part| plan.part_bytes(part)).iter().sum::<usize>(), plan.total_bytes());
    gpu.reset_peak();
    let mut trainer = Trainer::on_gpu(gpu, &Device::cpu(), config.clone(), samples.shape().clone()).unwrap();
    let run = Run { samples, train: &train, validation: &VALIDATION, checkpoints: None };
    trainer.train(&run, &mut |_| ControlFlow::Continue(())).unwrap();
    let by_scope = gpu.usage_by_scope();
    let scope_peak = |label: &str| {
        let usages = by_scope.iter().filter(|(scope, _)| scope == &format!("gpu/{label}"));
        usages.map(|(_, usage)| usage.allocated_bytes_peak).sum()
    };
    let planned = SCOPES.iter().map(|part| plan.part_bytes(part)).chain([plan.total_bytes()]);
    let taken = SCOPES.iter().map(|scope| scope_peak(scope)).chain([gpu.usage().allocated_bytes_peak]);
    [planned.collect(), taken.collect()]
}

/// True if no part took more than was planned of it.
fn is_enough(planned: &[usize], taken: &[usize]) -> bool {
    taken.iter().zip(planned).all(|(taken, planned)| taken <= planned)
}

/// A run of samples of which each has windows of its own takes what was planned, to the byte, and
/// all of it in an epoch.
fn check(gpu: &Device, config: &Config, samples: &dyn Samples) {
    let [planned, taken] =
        planned_and_taken(gpu, &Config { max_steps: config.max_steps.min(Some(5)), ..config.clone() }, samples);
    let what = (config.precision, &config.model, config.loss, config.batch_size);
    assert_eq!(planned, taken, "{SCOPES:?} and all of {what:?}");
}

#[test]
fn a_run_takes_what_was_planned_to_the_byte() {
    let (_driver, gpu) = with_kernels();
    for precision in PRECISIONS {
        for keep_windows in [false, true] {
            check(&gpu, &Config { keep_windows, ..config(precision, 1) }, &windows());
            check(&gpu, &Config { keep_windows, ..whole(precision, 2) }, &windows());
            check(&gpu, &Config { keep_windows, ..config(precision, 2) }, &wide());
        }
        check(&gpu, &checkpointed(&config(precision, 3)), &windows());
        check(&gpu, &checkpointed(&whole(precision, 2)), &windows());
    }
    let base = config(Precision::Fp32, 2);
    let model = ModelConfig { layer_norm: true, ..base.model };
    check(&gpu, &Config { model, ..base.clone() }, &windows());
    check(&gpu, &Config { model, dropout: 0.0, ..base.clone() }, &windows());
    let weighted = Config { sample_weights: SampleWeighting::Auto, ..base.clone() };
    check(&gpu, &weighted, &Weighted::by_turns(&windows()));
    let model = ModelConfig { bias: false, ..base.model };
    let mut accumulated = Config { model, gradient_accumulation_steps: 2, batch_size: 7, ..base };
    accumulated.optimizer.kind = OptimizerKind::Sgd;
    check(&gpu, &accumulated, &windows());
    for loss in losses() {
        check(&gpu, &Config { loss, ..config(Precision::Bf16, 1) }, &windows());
    }
}

/// Samples of one timeframe, of so many steps of two features.
fn long(steps: usize) -> InMemory {
    let timeframe = Timeframe { name: "M1".to_owned(), steps, features: 2 };
    let shape = SampleShape { timeframes: vec![timeframe], outputs: 2 };
    InMemory::new(shape, vec![wave(60 * steps * 2, 0.7)], wave(120, 0.3)).unwrap()
}

#[test]
fn what_operations_need_for_themselves_is_planned_too() {
    let (_driver, gpu) = with_kernels();
    // So many rows that products over them are split.
    let [one, two] = [1, 2].map(|layers| config(Precision::Bf16, layers));
    for base in [one, checkpointed(&two), two] {
        check(&gpu, &Config { batch_size: 49, max_steps: Some(1), ..base }, &long(21));
    }
    // Groups of blocks, which tell each other of their steps; the plan knows not how many of them a
    // GPU has room for.
    let narrow = config(Precision::Bf16, 1);
    let model = ModelConfig { hidden: 130, ..narrow.model };
    let wide = Config { model, batch_size: 49, max_steps: Some(1), ..narrow };
    let [planned, taken] = planned_and_taken(&gpu, &wide, &long(2));
    let (planned, taken) = (planned[SCOPES.len()], taken[SCOPES.len()]);
    assert!(taken <= planned && planned - taken < planned / 100, "{taken} of {planned}");
}

#[test]
fn no_more_is_taken_than_was_planned_of_windows_in_common() {
    let (_driver, gpu) = with_kernels();
    for precision in [Precision::Fp32, Precision::Bf16] {
        for run_length in [None, Some(4), Some(7)] {
            // An epoch.
            let base = Config { run_length, max_steps: Some(5), ..whole(precision, 1) };
            let [planned, taken] = planned_and_taken(&gpu, &base, &series());
            assert_eq!(planned[0], taken[0], "bars");
            assert!(is_enough(&planned, &taken), "{taken:?} of {planned:?} with runs of {run_length:?}");
        }
    }
    // Bars that come with each batch, from memory and from a file.
    for precision in [Precision::Fp32, Precision::Bf16] {
        let by_batch = Config { keep_series: false, ..config(precision, 1) };
        for samples in [&series() as &dyn Samples, &InFile(series())] {
            let [planned, taken] = planned_and_taken(&gpu, &by_batch, samples);
            assert_eq!((planned[0], taken[0]), (0, 0), "bars that stay");
            assert!(is_enough(&planned, &taken), "{taken:?} of {planned:?}");
        }
    }
    // The order of time, of samples of which as many share a window wherever a batch begins.
    let base = Config { run_length: Some(1000), ..config(Precision::Bf16, 1) };
    let [planned, taken] = planned_and_taken(&gpu, &base, &series());
    let (planned, taken) = (planned[SCOPES.len()] as f64, taken[SCOPES.len()] as f64);
    assert!(taken > 0.9 * planned, "{taken} of {planned}");
    let [planned, taken] = planned_and_taken(&gpu, &base, &InFile(one_after_another(60, 30, 10)));
    assert!(is_enough(&planned, &taken), "{taken:?} of {planned:?}");
    let (planned, taken) = (planned[SCOPES.len()] as f64, taken[SCOPES.len()] as f64);
    assert!(taken > 0.97 * planned, "{taken} of {planned} of a series in a file");
}

/// So many samples of two timeframes, whose windows end a bar later each time and each fifth time.
pub(crate) fn one_after_another(samples: usize, fast: usize, slow: usize) -> SeriesInMemory {
    let timeframe = |name: &str, steps, features| Timeframe { name: name.to_owned(), steps, features };
    let shape = SampleShape { timeframes: vec![timeframe("M1", fast, 2), timeframe("M5", slow, 1)], outputs: 2 };
    let timeframe_series = |(timeframe, slowness): (&Timeframe, usize)| {
        let end = |n: usize| (timeframe.steps - 1 + n / slowness) as i64;
        (wave((end(samples - 1) as usize + 1) * timeframe.features, 0.7), (0..samples).map(end).collect())
    };
    let series = shape.timeframes.iter().zip([1, 5]).map(timeframe_series).collect();
    SeriesInMemory::new(shape, series, wave(2 * samples, 0.3)).unwrap()
}

#[test]
fn dense_training_takes_what_was_planned_to_the_byte() {
    let (_driver, gpu) = with_kernels();
    // Two runs a batch, in an order that has some that share no bar; and one.
    let with_batches = |base: &Config| Config { batch_size: 12, max_steps: Some(12), ..in_runs(base, 6) };
    for layers in [1, 2] {
        let plain = config(Precision::Fp32, layers);
        let shared = Config { gradient_checkpointing: layers > 1, ..plain.clone() };
        for base in [carrying(&plain), plain, normed(Precision::Fp32, layers), shared] {
            let [planned, taken] = planned_and_taken(&gpu, &with_batches(&base), &one_after_another(60, 5, 3));
            assert_eq!(planned, taken, "{SCOPES:?} and all with {layers} layers");
        }
    }
    // So long that steps are rounded up.
    let base = in_runs(&Config { batch_size: 40, max_steps: Some(2), ..config(Precision::Fp32, 2) }, 40);
    let [planned, taken] = planned_and_taken(&gpu, &base, &one_after_another(60, 90, 30));
    assert_eq!(planned, taken, "{SCOPES:?} and all of long windows");
}

/// Sixty samples of one timeframe, whose windows of five bars end a bar later each time. Bars are
/// missing before the 31st.
pub(crate) fn with_one_gap() -> SeriesInMemory {
    let timeframe = Timeframe { name: "M1".to_owned(), steps: 5, features: 2 };
    let shape = SampleShape { timeframes: vec![timeframe], outputs: 2 };
    let end = |n: usize| (if n < 30 { 4 + n } else { 11 + n }) as i64;
    let series = vec![(wave((end(59) as usize + 1) * 2, 0.7), (0..60).map(end).collect())];
    SeriesInMemory::new(shape, series, wave(120, 0.3)).unwrap()
}

/// As many runs as if each piece had the gap, all as long as the longest, were planned.
#[test]
fn dense_training_takes_what_was_planned_of_runs_that_a_gap_ends() {
    let (_driver, gpu) = with_kernels();
    for layers in [1, 2] {
        for (batch_size, run_length) in [(24, 12), (12, 12)] {
            let base = in_runs(&config(Precision::Fp32, layers), run_length);
            let config = Config { batch_size, max_steps: Some(10), ..base };
            let [planned, taken] = planned_and_taken(&gpu, &config, &with_one_gap());
            assert_eq!(planned, taken, "{SCOPES:?} and all with {layers} layers in batches of {batch_size}");
        }
    }
}

#[test]
fn windows_that_go_on_from_bar_to_bar_keep_series_in_any_case() {
    let (_driver, gpu) = with_kernels();
    let base = config(Precision::Fp32, 1);
    for base in [in_runs(&base, 6), carrying(&base)] {
        let [kept, anyway] = [true, false].map(|keep_series| {
            planned_and_taken(&gpu, &Config { keep_series, max_steps: Some(5), ..base.clone() }, &series())
        });
        assert_eq!(kept, anyway);
        assert!(kept[0][0] > 0 && kept[0][0] == kept[1][0], "{kept:?}");
    }
}

/// The states themselves take what was planned to the byte, in a step of several batches too.
#[test]
fn carried_states_take_what_was_planned() {
    let (_driver, gpu) = with_kernels();
    for precision in [Precision::Fp32, Precision::Bf16] {
        let accumulates = Config { gradient_accumulation_steps: 2, batch_size: 5, ..config(precision, 2) };
        for base in [config(precision, 2), accumulates, whole(precision, 1), in_runs(&config(precision, 2), 5)] {
            let base = Config { max_steps: Some(5), ..carrying(&base) };
            for samples in [series(), with_gaps()] {
                let [planned, taken] = planned_and_taken(&gpu, &base, &samples);
                assert!(is_enough(&planned, &taken), "{taken:?} of {planned:?} in batches of {}", base.batch_size);
                assert_eq!((planned[0], planned[3]), (taken[0], taken[3]), "bars and states");
                assert!(taken[3] > 0);
            }
        }
    }
}

#[test]
fn no_more_is_taken_than_was_planned_of_dense_training_with_gaps() {
    let (_driver, gpu) = with_kernels();
    for precision in [Precision::Fp32, Precision::Bf16] {
        for (run_length, samples) in [(4, series()), (5, with_gaps()), (9, with_gaps()), (100, with_gaps())] {
            let base = Config { max_steps: Some(5), ..in_runs(&normed(precision, 2), run_length) };
            let [planned, taken] = planned_and_taken(&gpu, &base, &samples);
            assert!(is_enough(&planned, &taken), "{taken:?} of {planned:?} with runs of {run_length}");
        }
    }
}

#[test]
fn a_host_has_no_gradients_of_what_a_gpu_learns() {
    let (host, gpu) = (Device::cpu(), Device::cpu());
    let base = config(Precision::Fp32, 1);
    let trainer = Trainer::on_gpu(&gpu, &host, base, windows().shape().clone()).unwrap();
    let taken = |device: &Device, label: &str| {
        device
            .usage_by_scope()
            .iter()
            .filter(|(scope, _)| scope.ends_with(label))
            .map(|(_, usage)| usage.allocated_bytes)
            .sum::<usize>()
    };
    let size = size_of_val(trainer.parameters().values());
    assert_eq!([taken(&host, "model/gradients"), taken(&gpu, "model/gradients")], [0, size]);
    assert_eq!(taken(&host, "model/parameters"), size);
}

#[test]
fn a_host_has_no_bars_of_series_that_a_gpu_keeps() {
    let (host, gpu) = (Device::cpu(), Device::cpu());
    let (base, samples) = (config(Precision::Fp32, 1), series());
    let mut trainer = Trainer::on_gpu(&gpu, &host, base.clone(), samples.shape().clone()).unwrap();
    let train = SampleRanges::from(0..49);
    let run = Run { samples: &samples, train: &train, validation: &VALIDATION, checkpoints: None };
    let mut batch_bytes = 0;
    trainer
        .train(&run, &mut |event| {
            if let Event::Step(_) = event {
                batch_bytes = batch_bytes.max(host.scope("batches").usage().allocated_bytes_peak);
            }
            ControlFlow::Continue(())
        })
        .unwrap();
    // Two batches of a step and two of a validation, of which there are targets.
    assert_eq!(batch_bytes, 4 * base.batch_size * samples.shape().outputs * size_of::<f32>());
}

/// The memory of all batches is taken in the first step, although later batches have more distinct
/// windows.
#[test]
fn shuffled_batches_take_their_memory_once() {
    let (_driver, gpu) = with_kernels();
    let samples = series();
    let config = Config {
        run_length: Some(1),
        batch_size: 7,
        max_steps: Some(14),
        last_batch: LastBatch::Drop,
        ..config(Precision::Fp32, 1)
    };
    let train = SampleRanges::from(0..49);
    let mut trainer = Trainer::on_gpu(&gpu, &Device::cpu(), config.clone(), samples.shape().clone()).unwrap();
    let run = Run { samples: &samples, train: &train, validation: SampleRanges::NONE, checkpoints: None };
    let mut taken = Vec::new();
    let mut observer = |event: Event<'_>| {
        if let Event::Step(_) = event {
            taken.push((gpu.usage().allocations_total, gpu.usage().allocated_bytes));
        }
        ControlFlow::Continue(())
    };
    trainer.train(&run, &mut observer).unwrap();
    assert_eq!(taken.len(), 14);
    assert!(taken.iter().all(|step| *step == taken[0]), "{taken:?}");
    let planned = GpuFootprint::new(&config, &samples, &train, SampleRanges::NONE, 1).unwrap().total_bytes();
    assert!(taken[0].1 <= planned && taken[0].1 as f64 > 0.9 * planned as f64, "{} of {planned}", taken[0].1);
}
