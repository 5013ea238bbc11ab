//! Training and predictions on a GPU beside the same on the CPU: by the CPU arms of a GPU's
//! operations, and by its kernels on the fake driver.
#![cfg(target_os = "linux")]

mod ahead;
mod carrying;
mod checkpointing;
mod chunks;
mod dense;
mod distributed;
mod diverging;
mod graphs;
#[path = "../in_file/mod.rs"]
mod in_file;
mod keeping;
mod library;
#[path = "../graphs/made_up.rs"]
#[allow(dead_code, reason = "made for the tests of graphs on the processor, and not all of it is needed here")]
mod made_up;
mod planning;
mod predicting;
#[path = "../../examples/gpu_operations/runs.rs"]
mod runs;
mod shapes;
mod submitting;
#[path = "../thread_peers/mod.rs"]
#[allow(dead_code, reason = "made for all tests with several ranks, and not all of it is needed here")]
mod thread_peers;
mod tuning;
#[path = "../weighted/mod.rs"]
mod weighted;

use std::ops::ControlFlow;

use megabatch_amp::Precision;
use megabatch_gpu_core::Device;
use megabatch_nn::loss::{Ascending, Classes, Loss, Task, TaskLoss, Tasks};
use megabatch_nn::model::{Fusion, ModelConfig, Pooling, SampleShape, Timeframe};
use megabatch_nn_cuda::Tuning;
use megabatch_nn_cuda::ops::SOURCES;
use megabatch_simt::Harness;
use megabatch_simt::driver::FakeDriver;
use megabatch_trainer::{
    Batch, Checkpoints, Config, End, Error, Event, InMemory, OptimizerConfig, OptimizerKind, Outcome, Run,
    SampleRanges, SampleWeighting, Samples, SeriesInMemory, ShortageEvent, StepEvent, TargetScaling, Trainer,
};
use weighted::Weighted;

fn with_kernels() -> (FakeDriver, Device) {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../nn-cuda/src/ops");
    let driver = Harness::new(folder, SOURCES).driver();
    driver.add_kernels(
        &Harness::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../amp/src/ops"), &["unscale_and_check", "update"])
            .object(),
    );
    (driver, Device::select("cuda:0").unwrap())
}

fn wave(len: usize, pace: f32) -> Vec<f32> {
    (0..len).map(|i| (i as f32 * pace).sin()).collect()
}

fn shape() -> SampleShape {
    let timeframe = |name: &str, steps, features| Timeframe { name: name.to_owned(), steps, features };
    SampleShape { timeframes: vec![timeframe("M1", 6, 3), timeframe("M5", 1, 1), timeframe("H1", 4, 2)], outputs: 2 }
}

/// Sixty samples as slices of series: two windows end at each bar of M1, three at each of M5 and
/// seven at each of H1, of which the 40th sample's begins a second segment. Some targets are not
/// known.
fn series() -> SeriesInMemory {
    let shape = shape();
    let (mut series, mut starts) = (Vec::new(), Vec::new());
    for (timeframe, (sharing, pace)) in shape.timeframes.iter().zip([(2, 0.7), (3, 0.9), (7, 1.3)]) {
        let end = |n: usize| timeframe.steps - 1 + n / sharing + if n < 40 { 0 } else { timeframe.steps + 2 };
        starts.push(vec![0, (end(40) - 1 - timeframe.steps) as i64]);
        let ends = (0..60).map(|n| end(n) as i64).collect();
        series.push((wave((end(59) + 1) * timeframe.features, pace), ends));
    }
    let mut targets = wave(120, 0.3);
    targets[7] = f32::NAN;
    SeriesInMemory::new(shape, series, targets).unwrap().with_segments(starts).unwrap()
}

/// The same number of samples as windows, which share nothing.
fn windows() -> InMemory {
    let shape = shape();
    let timeframe_windows =
        |(timeframe, pace): (&Timeframe, f32)| wave(60 * timeframe.steps * timeframe.features, pace);
    let features = shape.timeframes.iter().zip([0.7, 0.9, 1.3]).map(timeframe_windows).collect();
    InMemory::new(shape, features, wave(120, 0.3)).unwrap()
}

/// Eight steps of eleven samples, of which the last one of an epoch has five; small, and with every
/// part of a step.
fn config(precision: Precision, layers: usize) -> Config {
    let model = ModelConfig { hidden: 4, layers, ..ModelConfig::default() };
    let mut config = Config { model, precision, batch_size: 11, threads: 1, seed: 11, ..Config::default() };
    (config.max_steps, config.run_length, config.optimizer.lr) = (Some(8), Some(4), 0.02);
    config.autotune = Tuning::Off;
    // Between layers, where there are several.
    config.dropout = 0.2;
    config
}

/// The same with norms, pooling and fusion by attention.
fn whole(precision: Precision, layers: usize) -> Config {
    let config = config(precision, layers);
    let model = ModelConfig {
        hidden: 6,
        layer_norm: true,
        pooling: Pooling::Attention { heads: 2 },
        fusion: Fusion::Attention { heads: 3, feed_forward: 2 },
        ..config.model
    };
    // The bias of keys has no gradient but what rounding leaves, of which AdamW would follow the
    // sign.
    let optimizer = OptimizerConfig { epsilon: 1e-4, ..config.optimizer };
    Config { model, optimizer, ..config }
}

fn on_processor(config: &Config) -> Trainer {
    Trainer::new(&Device::cpu(), config.clone(), shape()).unwrap()
}

fn on_gpu(gpu: &Device, config: &Config) -> Trainer {
    Trainer::on_gpu(gpu, &Device::cpu(), config.clone(), shape()).unwrap()
}

/// The steps that were trained, and the validations' losses.
fn train(
    trainer: &mut Trainer,
    samples: &dyn Samples,
    checkpoints: Option<&Checkpoints>,
) -> (Vec<StepEvent>, Vec<f64>) {
    let (steps, losses, _) = train_until(trainer, samples, checkpoints, u64::MAX);
    (steps, losses)
}

fn train_until(
    trainer: &mut Trainer,
    samples: &dyn Samples,
    checkpoints: Option<&Checkpoints>,
    last: u64,
) -> (Vec<StepEvent>, Vec<f64>, Outcome) {
    let train = SampleRanges::from(0..49);
    let run = Run { samples, train: &train, validation: &SampleRanges::from_iter([50, 55, 59]), checkpoints };
    let (mut steps, mut losses) = (Vec::new(), Vec::new());
    let outcome = trainer.train(&run, &mut |event| {
        match event {
            Event::Step(step) => {
                let is_last = step.step == last;
                steps.push(step);
                if is_last {
                    return ControlFlow::Break(());
                }
            }
            Event::Validation(validation) => losses.push(validation.loss),
            _ => {}
        }
        ControlFlow::Continue(())
    });
    (steps, losses, outcome.unwrap())
}

/// Losses of the steps of a run, and what `told` takes of each shortage of memory.
fn losses_and_cuts<C>(trainer: &mut Trainer, run: &Run<'_>, told: impl Fn(&ShortageEvent) -> C) -> (Vec<f64>, Vec<C>) {
    let (mut losses, mut cuts) = (Vec::new(), Vec::new());
    trainer
        .train(run, &mut |event| {
            match event {
                Event::Step(step) => losses.push(step.loss),
                Event::Shortage(cut) => cuts.push(told(&cut)),
                _ => {}
            }
            ControlFlow::Continue(())
        })
        .unwrap();
    (losses, cuts)
}

/// By how much losses, norms of gradients and weights may differ, of the largest number of each. In
/// single precision by the order of sums; in 16 bits by what rounding on either side of a middle
/// makes of eight steps, of numbers with 11 significant bits or with 8; TF32 has 11 too.
fn tolerance(config: &Config) -> f64 {
    match config.precision {
        Precision::Fp32 if config.tf32 => 1e-2,
        Precision::Fp32 => 2e-5,
        Precision::Fp16 => 1e-2,
        Precision::Bf16 => 5e-2,
    }
}

fn assert_close(what: &str, found: &[f64], expected: &[f64], tolerance: f64) {
    assert_eq!(found.len(), expected.len(), "{what}");
    let most = expected.iter().fold(0.0f64, |most, x| most.max(x.abs()));
    for (k, (found, expected)) in found.iter().zip(expected).enumerate() {
        assert!((found - expected).abs() <= tolerance * most, "{what}, number {k}: {found} where {expected} is right");
    }
}

/// The same training on the CPU and on `gpu`.
fn check(gpu: &Device, config: &Config, samples: &dyn Samples) {
    let (mut expected, mut found) = (on_processor(config), on_gpu(gpu, config));
    let (expected_steps, expected_losses) = train(&mut expected, samples, None);
    let (steps, losses) = train(&mut found, samples, None);
    let tolerance = tolerance(config);
    let what =
        format!("{:?}", (config.precision, &config.model, config.optimizer.kind, config.gradient_accumulation_steps));
    let numbers = |number: fn(&StepEvent) -> f64| {
        [&steps, &expected_steps].map(|steps| steps.iter().map(number).collect::<Vec<_>>())
    };
    let [found_losses, expected_values] = numbers(|step| step.loss);
    assert_close(&format!("{what}: losses"), &found_losses, &expected_values, tolerance);
    let [found_norms, expected_values] = numbers(|step| step.grad_norm);
    assert_close(&format!("{what}: norms"), &found_norms, &expected_values, 2.0 * tolerance);
    assert_close(&format!("{what}: validation"), &losses, &expected_losses, tolerance);
    // Of a gradient that is near zero, Adam follows little but the sign.
    let weights = |trainer: &Trainer| trainer.parameters().values().iter().map(|&x| f64::from(x)).collect::<Vec<_>>();
    let distance =
        |one: &[f64], other: &[f64]| one.iter().zip(other).map(|(x, y)| (x - y) * (x - y)).sum::<f64>().sqrt();
    let (found, expected) = (weights(&found), weights(&expected));
    let (error, size) = (distance(&found, &expected), distance(&expected, &vec![0.0; expected.len()]));
    assert!(error <= tolerance * size, "{what}: weights of length {size} are off by {error}");
    for (found, expected) in steps.iter().zip(&expected_steps) {
        assert_eq!((found.lr, found.samples, found.loss_terms), (expected.lr, expected.samples, expected.loss_terms));
        assert_eq!((found.loss_scale, found.overflow.is_some()), (expected.loss_scale, expected.overflow.is_some()));
    }
    // Weights move, so that there is something to be compared.
    let moved = distance(&expected, &weights(&on_processor(config)));
    assert!(moved > tolerance * size, "{what}: weights of length {size} moved by {moved}");
}

const PRECISIONS: [Precision; 3] = [Precision::Fp32, Precision::Bf16, Precision::Fp16];

/// Training is the same on every device that operations run on.
fn trains_as_the_processor_does(gpu: &Device) {
    for precision in PRECISIONS {
        for layers in [1, 2] {
            check(gpu, &config(precision, layers), &series());
        }
        check(gpu, &config(precision, 1), &windows());
        let weighted = Config { sample_weights: SampleWeighting::Auto, ..config(precision, 1) };
        check(gpu, &weighted, &Weighted::by_turns(&series()));
        check(gpu, &whole(precision, 2), &series());
    }
}

fn losses() -> [Loss; 3] {
    let task = |targets, loss, weight| Task { targets, loss, weight };
    let quantile = Loss::Quantile { levels: Ascending::new(&[0.2, 0.5, 0.9]).unwrap() };
    let classes = Loss::Classes(Classes::Thresholds(Ascending::new(&[-0.5, 0.5]).unwrap()));
    let tasks = [task([0, 1], TaskLoss::Huber { delta: 0.3 }, 0.4), task([1, 2], TaskLoss::Mse, 0.6)];
    [quantile, classes, Loss::Tasks(Tasks::new(&tasks).unwrap())]
}

#[test]
fn by_the_plain_forms_of_the_operations() {
    trains_as_the_processor_does(&Device::cpu());
    let base = config(Precision::Fp32, 3);
    for kind in [OptimizerKind::Sgd, OptimizerKind::Adam] {
        let mut config = Config { gradient_accumulation_steps: 2, batch_size: 7, ..base.clone() };
        config.optimizer.kind = kind;
        config.optimizer.lr = if kind == OptimizerKind::Sgd { 0.5 } else { 0.02 };
        config.loss = Loss::Huber { delta: 0.3 };
        config.clip_norm = Some(0.1);
        config.model.bias = kind == OptimizerKind::Sgd;
        config.model.fusion = if kind == OptimizerKind::Sgd { Fusion::attention(5) } else { Fusion::Concat };
        check(&Device::cpu(), &config, &series());
    }
    for loss in losses() {
        check(&Device::cpu(), &Config { loss, ..config(Precision::Fp32, 2) }, &series());
        let base = whole(Precision::Fp32, 2);
        check(&Device::cpu(), &Config { loss, batch_size: 49, ..base }, &series());
        let scaled = Config { loss, target_scaling: TargetScaling::Auto, batch_size: 49, ..config(Precision::Fp32, 1) };
        check(&Device::cpu(), &scaled, &series());
        goes_on(&Device::cpu(), &scaled, &windows());
        let weighted = Config { sample_weights: SampleWeighting::Auto, ..scaled };
        check(&Device::cpu(), &weighted, &Weighted::by_turns(&windows()));
    }
}

/// Each part of the whole model without the others, above one layer and between two, with dropout
/// and without.
#[test]
fn norms_pooling_and_fusion_in_any_company() {
    for (precision, layers) in PRECISIONS.into_iter().flat_map(|precision| [(precision, 1), (precision, 2)]) {
        let base = whole(precision, layers);
        let plain = config(precision, layers).model;
        let models = [
            ModelConfig { layer_norm: true, hidden: 6, ..plain },
            ModelConfig { pooling: base.model.pooling, hidden: 6, ..plain },
            ModelConfig { fusion: base.model.fusion, hidden: 6, ..plain },
            ModelConfig { layer_norm: false, ..base.model },
            ModelConfig { pooling: Pooling::Last, ..base.model },
            ModelConfig { fusion: Fusion::Concat, ..base.model },
        ];
        for (k, model) in models.into_iter().enumerate() {
            let dropout = if k % 2 == 0 { base.dropout } else { 0.0 };
            check(&Device::cpu(), &Config { model, dropout, ..base.clone() }, &series());
        }
    }
    check(&Device::cpu(), &whole(Precision::Fp32, 1), &windows());
}

#[test]
fn by_the_kernels() {
    let (_driver, gpu) = with_kernels();
    trains_as_the_processor_does(&gpu);
}

/// Products of fp32 on tensor cores: another rounding of the same run, on a GPU only.
#[test]
fn with_tf32_where_it_is_allowed() {
    let (_driver, gpu) = with_kernels();
    let exact = whole(Precision::Fp32, 1);
    let config = Config { tf32: true, ..exact.clone() };
    check(&gpu, &config, &series());
    let two_steps = |config: &Config| Config { max_steps: Some(2), ..config.clone() };
    let trained = |mut trainer: Trainer| {
        train(&mut trainer, &series(), None);
        bits(&trainer)
    };
    let [config, exact] = [&config, &exact].map(two_steps);
    assert_ne!(trained(on_gpu(&gpu, &config)), trained(on_gpu(&gpu, &exact)));
    assert_eq!(trained(on_processor(&config)), trained(on_processor(&exact)));
    let refused = Trainer::new(&Device::cpu(), Config { precision: Precision::Bf16, ..config }, shape()).unwrap_err();
    assert!(refused.to_string().starts_with("`tf32` is true: expected false"), "{refused}");
}

/// A trainer with everything of the checkpoint that it goes on from.
fn resumed(mut trainer: Trainer, samples: &dyn Samples, checkpoints: &Checkpoints) -> Trainer {
    let train = SampleRanges::from(0..49);
    let run = Run {
        samples,
        train: &train,
        validation: &SampleRanges::from_iter([50, 55, 59]),
        checkpoints: Some(checkpoints),
    };
    assert_eq!(trainer.resume(&run).unwrap().unwrap().state.step, 3);
    trainer
}

fn bits(trainer: &Trainer) -> Vec<u32> {
    let moments = trainer.optimizer().moments().into_iter();
    let sets = moments.flat_map(|moments| [&moments.exp_avg, &moments.exp_avg_sq]).chain([trainer.parameters()]);
    sets.flat_map(|set| set.values().iter().map(|x| x.to_bits())).collect()
}

#[test]
fn each_goes_on_where_the_other_stopped() {
    let (_driver, gpu) = with_kernels();
    // With a loss scale, which goes on too.
    for config in [config(Precision::Fp16, 2), whole(Precision::Fp16, 2)] {
        // Into the second epoch.
        goes_on(&gpu, &Config { max_steps: Some(6), ..config }, &series());
    }
}

/// Moments are corrected by the number of updates, which a step without a known target does not add
/// to.
#[test]
fn steps_without_known_targets_are_no_updates_after_a_resume_either() {
    let (_driver, gpu) = with_kernels();
    let known = windows();
    let shape = known.shape().clone();
    let mut batch = Batch::new(&Device::cpu().scope("test"), &shape, 60).unwrap();
    batch.resize(60);
    known.gather(&(0..60).collect::<Vec<_>>(), &mut batch).unwrap();
    let (windows, targets) = batch.slices_mut();
    // All but the first and the last eleven of an epoch.
    let targets = targets.iter().enumerate().map(|(k, &y)| if (22..76).contains(&k) { f32::NAN } else { y }).collect();
    let samples = InMemory::new(shape, windows.into_iter().map(|windows| windows.to_vec()).collect(), targets).unwrap();
    for precision in PRECISIONS {
        let base = Config { run_length: None, max_steps: Some(7), ..config(precision, 1) };
        let mut trainer = on_gpu(&gpu, &base);
        let (steps, _, _) = train_until(&mut trainer, &samples, None, 3);
        let silent = steps.iter().filter(|step| step.loss_terms == Some(0)).count() as u64;
        assert!(silent > 0, "{steps:?}");
        assert_eq!(trainer.optimizer().steps(), 3 - silent, "{precision}");
        goes_on(&gpu, &base, &samples);
    }
}

fn goes_on(gpu: &Device, config: &Config, samples: &dyn Samples) {
    let (mut on_the_processor, mut on_the_gpu) = (on_processor(config), on_gpu(gpu, config));
    let (expected, _) = train(&mut on_the_processor, samples, None);
    train(&mut on_the_gpu, samples, None);
    for (begins_on_gpu, ends_on_gpu) in [(true, true), (true, false), (false, true)] {
        let folder = tempfile::tempdir().unwrap();
        let checkpoints = Checkpoints::new(folder.path());
        let trainer = |is_on_gpu| if is_on_gpu { on_gpu(gpu, config) } else { on_processor(config) };
        let mut first = trainer(begins_on_gpu);
        let (mut steps, _, outcome) = train_until(&mut first, samples, Some(&checkpoints), 3);
        assert_eq!((outcome.end, outcome.steps), (End::Stopped, 3));
        let mut second = resumed(trainer(ends_on_gpu), samples, &checkpoints);
        assert_eq!(bits(&second), bits(&first), "what a checkpoint holds");
        steps.extend(train(&mut second, samples, Some(&checkpoints)).0);
        {
            let precision = config.precision;
            let [found, expected] =
                [&steps, &expected].map(|steps| steps.iter().map(|step| step.loss).collect::<Vec<_>>());
            assert_close(&format!("{precision} {begins_on_gpu} {ends_on_gpu}"), &found, &expected, tolerance(config));
            if begins_on_gpu && ends_on_gpu {
                assert!(bits(&second) == bits(&on_the_gpu), "a run that was interrupted ends in the same bits");
            }
        }
    }
}

#[test]
fn a_gpu_that_is_too_small_takes_smaller_batches_or_says_so() {
    let config = config(Precision::Fp32, 1);
    let samples = windows();
    let (expected, peak) = {
        let gpu = Device::cpu();
        let mut trainer = on_gpu(&gpu, &config);
        (train(&mut trainer, &samples, None).0, gpu.usage().allocated_bytes_peak)
    };
    let gpu = Device::cpu();
    gpu.set_budget_bytes(Some(peak * 4 / 5));
    let mut trainer = on_gpu(&gpu, &config);
    let train_on = SampleRanges::from(0..49);
    let run = Run {
        samples: &samples,
        train: &train_on,
        validation: &SampleRanges::from_iter([50, 55, 59]),
        checkpoints: None,
    };
    let (losses, cuts) = losses_and_cuts(&mut trainer, &run, |cut| cut.gradient_checkpointing);
    assert!(!cuts.is_empty());
    assert!(!cuts.contains(&true), "gradient checkpointing");
    assert_close("losses", &losses, &expected.iter().map(|step| step.loss).collect::<Vec<_>>(), 1e-5);

    let gpu = Device::cpu();
    let mut trainer = on_gpu(&gpu, &config);
    gpu.set_budget_bytes(Some(gpu.usage().allocated_bytes + 100));
    let error = trainer.train(&run, &mut |_| ControlFlow::Continue(())).unwrap_err();
    assert!(matches!(error, Error::CannotReduceFurther { step: 1, batch_size: 1, .. }), "{error}");
    gpu.set_budget_bytes(Some(1000));
    let error = Trainer::on_gpu(&gpu, &Device::cpu(), config, shape()).unwrap_err();
    assert!(matches!(error, Error::Model(megabatch_nn::Error::Memory(_))), "{error}");
}

#[test]
fn a_driver_that_fails_ends_a_run_after_the_last_step_that_was_done() {
    let (driver, gpu) = with_kernels();
    let (config, samples) = (config(Precision::Bf16, 1), series());
    let mut whole = on_gpu(&gpu, &config);
    let (steps, _, _) = train_until(&mut whole, &samples, None, 2);
    assert_eq!(steps.len(), 2);
    let before = bits(&whole);
    // CUDA_ERROR_LAUNCH_FAILED, once.
    driver.fail("cuLaunchKernel", 30, 719);
    let train_on = SampleRanges::from(0..49);
    let run = Run {
        samples: &samples,
        train: &train_on,
        validation: &SampleRanges::from_iter([50, 55, 59]),
        checkpoints: None,
    };
    let error = whole.train(&run, &mut |_| ControlFlow::Continue(())).unwrap_err();
    assert!(error.to_string().contains("cuLaunchKernel"), "{error}");
    assert!(bits(&whole) == before, "weights are those of the last step");
    assert_eq!(train(&mut whole, &samples, None).0.len(), 6);
}

#[test]
fn what_gpu_check_trains_is_the_processors() {
    for (name, run) in runs::CASES {
        println!("{name}: {}", run(&Device::cpu()).unwrap());
    }
}
