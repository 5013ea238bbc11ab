//! Small trials on every GPU: training, copies, the memory pool.

use std::fmt::Display;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use megabatch_amp::Precision;
use megabatch_doctor::Trial;
use megabatch_gpu_core::cuda::Gpu;
use megabatch_gpu_core::{Buffer, Device, Error, Result};
use megabatch_nn::model::{Fusion, ModelConfig, Pooling, SampleShape, Timeframe};
use megabatch_nn_cuda::Tuning;
use megabatch_trainer::{Config, Event, Run, SampleRanges, Samples as _, SeriesInMemory, Trainer};

/// Bytes of a copy whose rate is taken; a quarter of what is free, if that is less.
const COPY_BYTES_MAX: usize = 64 << 20;
/// Blocks that the pool is asked for.
const BLOCKS: usize = 64;
/// Samples of a run, of which the last ones are validated.
const SAMPLES: usize = 60;
const TRAINING_SAMPLES: usize = 48;

/// Names of trials, and what each tries.
type Named<T> = &'static [(&'static str, T)];

/// Runs, each by what is compared.
const RUNS: Named<fn() -> Config> = &[
    ("losses in fp32", || config(Precision::Fp32)),
    ("losses in bf16", || config(Precision::Bf16)),
    ("losses in fp16", || config(Precision::Fp16)),
    ("losses with carried states", || Config { carry_state: true, ..config(Precision::Bf16) }),
    ("losses in fp32 of two layers with norms, dropout and attention", two_layers),
];

/// Cases of the memory pool, in small: asserted, and failing with the device's error.
const POOL: Named<fn(&Device) -> Result<()>> = &[
    ("blocks keep their contents", blocks_keep_their_contents),
    ("what was given back is used again", given_back_is_used_again),
    ("a refused request leaves blocks as they were", refused_requests_change_nothing),
    ("scattered memory becomes one block", scattered_memory_becomes_one_block),
];

/// Tries every GPU that the driver lists; empty without a driver.
pub(crate) fn run() -> Vec<Trial> {
    let count = match Gpu::count() {
        Ok(count) => count,
        Err(Error::DriverAbsent { .. }) => return Vec::new(),
        Err(error) => return vec![failed("cuda", "asking the driver", &error)],
    };
    (0..count).flat_map(device_trials).collect()
}

fn failed(device: &str, name: &str, error: &Error) -> Trial {
    Trial { device: device.to_owned(), name: name.to_owned(), result: None, fault: Some(error.to_string()) }
}

fn device_trials(ordinal: u32) -> Vec<Trial> {
    let name = format!("cuda:{ordinal}");
    let device = match Device::cuda(ordinal) {
        Ok(device) => device,
        Err(error) => return vec![failed(&name, "opening", &error)],
    };
    let training = RUNS.iter().map(|(case, config)| {
        tried(&device, &format!("training: {case} are the CPU's"), || {
            same_losses(config(), |config, samples| gpu_losses(&device, config, samples)).map(|()| None)
        })
    });
    let pool =
        POOL.iter().map(|(case, run)| tried(&device, &format!("memory pool: {case}"), || run(&device).map(|()| None)));
    let mut trials: Vec<Trial> = training.chain(pool).collect();
    trials.push(tried(&device, "copies from pageable memory", || pageable(&device).map(Some)));
    trials.push(tried(&device, "copies from pinned memory", || pinned(&device).map(Some)));
    trials
}

/// Runs a trial; a panic is a fault, and its message is on the standard error.
fn tried<E: Display>(device: &Device, name: &str, run: impl FnOnce() -> Result<Option<String>, E>) -> Trial {
    let (result, fault) = match catch_unwind(AssertUnwindSafe(run)) {
        Ok(Ok(result)) => (result, None),
        Ok(Err(error)) => (None, Some(error.to_string())),
        Err(_) => (None, Some("it gave a wrong result".to_owned())),
    };
    Trial { device: device.to_string(), name: name.to_owned(), result, fault }
}

/// A run of two epochs of a small model.
fn config(precision: Precision) -> Config {
    let model = ModelConfig { hidden: 20, layers: 1, ..ModelConfig::default() };
    let mut config = Config { model, precision, batch_size: 16, threads: 1, seed: 11, ..Config::default() };
    // Steps so short that the two runs stay beside each other.
    (config.max_steps, config.run_length, config.optimizer.lr) = (Some(6), Some(4), 0.004);
    config.autotune = Tuning::Off;
    config
}

fn two_layers() -> Config {
    let mut config = config(Precision::Fp32);
    config.dropout = 0.2;
    // The bias of keys has no gradient but what rounding leaves, of which AdamW would follow the
    // sign.
    config.optimizer.epsilon = 1e-4;
    let fusion = Fusion::Attention { heads: 4, feed_forward: 2 };
    let pooling = Pooling::Attention { heads: 2 };
    Config { model: ModelConfig { layers: 2, layer_norm: true, fusion, pooling, ..config.model }, ..config }
}

/// Samples one bar of M1 apart, five of which share a window of M5.
fn samples() -> megabatch_trainer::Result<SeriesInMemory> {
    let timeframe = |name: &str, steps, features| Timeframe { name: name.to_owned(), steps, features };
    let shape = SampleShape { timeframes: vec![timeframe("M1", 12, 5), timeframe("M5", 6, 3)], outputs: 2 };
    let wave = |len: usize, pace: f32| (0..len).map(|i| (i as f32 * pace).sin()).collect::<Vec<f32>>();
    let timeframe_series = |(timeframe, bars): (&Timeframe, usize)| {
        let ends: Vec<i64> = (0..SAMPLES).map(|n| (timeframe.steps - 1 + n / bars) as i64).collect();
        (wave((ends[SAMPLES - 1] as usize + 1) * timeframe.features, 0.7), ends)
    };
    let series = shape.timeframes.iter().zip([1, 5]).map(timeframe_series).collect();
    SeriesInMemory::new(shape, series, wave(2 * SAMPLES, 0.03))
}

/// The losses of all steps and validations, as `found` gives them beside the CPU. They are off by
/// the order of sums, and in 16 bits by what rounding on either side of a middle makes of numbers
/// with 11 significant bits or with 8.
fn same_losses(
    config: Config,
    found: impl FnOnce(Config, &SeriesInMemory) -> megabatch_trainer::Result<Vec<f64>>,
) -> megabatch_trainer::Result<()> {
    let samples = samples()?;
    let tolerance = match config.precision {
        Precision::Fp32 => 1e-4,
        Precision::Fp16 => 1e-3,
        Precision::Bf16 => 4e-3,
    };
    let expected = losses(Trainer::new(&Device::cpu(), config.clone(), samples.shape().clone())?, &samples)?;
    let found = found(config, &samples)?;
    let most = expected.iter().fold(0.0f64, |most, loss| most.max(loss.abs()));
    let is_near = |(found, expected): (&f64, &f64)| (found - expected).abs() <= tolerance * most;
    let is_same = found.len() == expected.len() && found.iter().zip(&expected).all(is_near);
    assert!(is_same, "the losses are {found:?} where {expected:?} is right");
    Ok(())
}

fn gpu_losses(device: &Device, config: Config, samples: &SeriesInMemory) -> megabatch_trainer::Result<Vec<f64>> {
    losses(Trainer::on_gpu(device, &Device::cpu(), config, samples.shape().clone())?, samples)
}

fn losses(mut trainer: Trainer, samples: &SeriesInMemory) -> megabatch_trainer::Result<Vec<f64>> {
    let (train, validation) =
        (SampleRanges::from(0..TRAINING_SAMPLES), SampleRanges::from(TRAINING_SAMPLES + 5..SAMPLES));
    let run = Run { samples, train: &train, validation: &validation, checkpoints: None };
    let mut losses = Vec::new();
    trainer.train(&run, &mut |event| {
        match event {
            Event::Step(step) => losses.push(step.loss),
            Event::Validation(validation) => losses.push(validation.loss),
            _ => {}
        }
        ControlFlow::Continue(())
    })?;
    Ok(losses)
}

/// Blocks of many sizes. Every other one is freed and allocated again, and each keeps its contents.
fn blocks_keep_their_contents(device: &Device) -> Result<()> {
    let scope = device.scope("doctor");
    let block = |number: usize| Buffer::from_slice(&scope, &vec![number as u32; 1 + number * number * 97]);
    let mut blocks = (0..BLOCKS).map(block).collect::<Result<Vec<_>>>()?;
    for number in (0..BLOCKS).step_by(2) {
        blocks[number] = block(number)?;
    }
    for (number, block) in blocks.iter().enumerate() {
        assert!(block.to_vec()?.iter().all(|&word| word == number as u32), "block {number} was written to by another");
    }
    Ok(())
}

/// The same blocks a second time take nothing more from the device.
fn given_back_is_used_again(device: &Device) -> Result<()> {
    let scope = device.scope("doctor");
    let fill = || (1..=BLOCKS).map(|number| Buffer::<u8>::zeros(&scope, number << 12)).collect::<Result<Vec<_>>>();
    drop(fill()?);
    let reserved = device.stats().reserved_bytes;
    let blocks = fill()?;
    assert_eq!(device.stats().reserved_bytes, reserved, "what was given back was not used");
    drop(blocks);
    Ok(())
}

/// A request beyond the budget fails, and live blocks stay.
fn refused_requests_change_nothing(device: &Device) -> Result<()> {
    let scope = device.scope("doctor");
    let values: Vec<u32> = (0..1 << 16).collect();
    let block = Buffer::from_slice(&scope, &values)?;
    device.set_budget_bytes(Some(device.usage().allocated_bytes + 1024));
    let refused = Buffer::<u8>::zeros(&scope, 1 << 20);
    device.set_budget_bytes(None);
    assert!(refused.is_err(), "more than the budget was given out");
    assert_eq!(block.to_vec()?, values, "a refused request changed a block");
    drop(Buffer::<u8>::zeros(&scope, 1 << 20)?);
    Ok(())
}

/// Every other block is given back, and a block as large as all of these together takes their
/// place: scattered memory is mapped side by side, and no block changes.
fn scattered_memory_becomes_one_block(device: &Device) -> Result<()> {
    const WORDS: usize = 1 << 20;
    const BLOCKS: usize = 8;
    // Nothing that earlier trials left is free then.
    device.empty_cache();
    let scope = device.scope("doctor");
    let block = |number: usize| Buffer::from_slice(&scope, &vec![number as u32; WORDS]);
    let mut blocks = (0..BLOCKS).map(|number| Ok(Some(block(number)?))).collect::<Result<Vec<_>>>()?;
    blocks.iter_mut().step_by(2).for_each(|block| *block = None);
    let stitches = device.stats().stitches_total;
    let values: Vec<u32> = (0..(BLOCKS / 2 * WORDS) as u32).collect();
    let large = Buffer::from_slice(&scope, &values)?;
    assert_eq!(device.stats().stitches_total, stitches + 1, "scattered memory was not used");
    assert!(large.to_vec()? == values, "the large block has other contents");
    for (number, block) in blocks.iter().enumerate().skip(1).step_by(2) {
        let words = block.as_ref().expect("it was kept").to_vec()?;
        assert!(words.iter().all(|&word| word == number as u32), "block {number} lost its contents");
    }
    Ok(())
}

fn copy_bytes(device: &Device) -> usize {
    device.free_bytes().map_or(COPY_BYTES_MAX, |free| COPY_BYTES_MAX.min(free / 4)).max(1)
}

fn pageable(device: &Device) -> Result<String> {
    let host = vec![1_u8; copy_bytes(device)];
    let mut block = Buffer::<u8>::zeros(&device.scope("doctor"), host.len())?;
    rate(host.len(), || block.copy_from(&host))
}

fn pinned(device: &Device) -> Result<String> {
    let gpu = device.gpu().expect("the device is a GPU");
    let bytes = copy_bytes(device);
    let mut block = Buffer::<u8>::zeros(&device.scope("doctor"), bytes)?;
    let mut host = Some(gpu.pinned::<u8>(bytes)?);
    rate(bytes, || {
        let memory = host.take().expect("the copy before gave it back");
        host = Some(block.upload(&gpu.default_stream(), memory)?.wait()?);
        Ok(())
    })
}

/// The best of three copies after one that does not count.
fn rate(bytes: usize, mut copy: impl FnMut() -> Result<()>) -> Result<String> {
    copy()?;
    let mut seconds = f64::INFINITY;
    for _ in 0..3 {
        let start = Instant::now();
        copy()?;
        seconds = seconds.min(start.elapsed().as_secs_f64());
    }
    Ok(format!("{:.1} GB/s", bytes as f64 / seconds / 1e9))
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::fs;
    use std::path::PathBuf;

    use megabatch_simt::driver::{FakeDriver, Setting};
    use megabatch_simt::{Checks, CompileOptions, Kernels};

    use super::*;

    /// The fake driver with the kernels of runs.
    fn with_kernels() -> FakeDriver {
        let driver = FakeDriver::whole();
        driver.set(Setting::Deferred, 1);
        let options = CompileOptions { checks: Checks::Barriers, ..CompileOptions::default() };
        for krate in ["amp", "nn-cuda"] {
            let folder = format!("{}/../{krate}/src/ops", env!("CARGO_MANIFEST_DIR"));
            let mut sources: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
            sources.retain(|path| path.extension().is_some_and(|ending| ending == "cu"));
            sources.sort();
            driver.add_kernels(Kernels::compile_with(&sources, &options).unwrap().path());
        }
        driver
    }

    #[test]
    fn wrong_losses_are_a_fault() {
        let fault = |spoil: fn(&mut Vec<f64>)| {
            let run = || {
                same_losses(config(Precision::Fp32), |config, samples| {
                    let mut found = losses(Trainer::new(&Device::cpu(), config, samples.shape().clone())?, samples)?;
                    spoil(&mut found);
                    Ok(found)
                })
                .map(|()| None)
            };
            tried(&Device::cpu(), "training", run).fault
        };
        assert_eq!(fault(|_| {}), None);
        assert_eq!(fault(|losses| losses[3] *= 1.00001), None, "the order of sums is another one");
        let wrong: [fn(&mut Vec<f64>); 3] =
            [|losses| losses[3] *= 1.1, |losses| losses[5] = f64::NAN, |losses| losses.truncate(1)];
        for spoil in wrong {
            assert_eq!(fault(spoil).as_deref(), Some("it gave a wrong result"));
        }
    }

    #[test]
    fn everything_is_tried_on_every_gpu_and_a_failure_is_told() {
        let driver = with_kernels();
        let trials = run();
        for name in
            ["training: losses in fp32", "training: losses in fp32 of two layers", "memory pool: scattered memory"]
        {
            assert!(trials.iter().any(|trial| trial.name.starts_with(name)), "{name}: {trials:?}");
        }
        let faults: Vec<_> = trials.iter().filter(|trial| trial.fault.is_some()).collect();
        assert!(faults.is_empty(), "{faults:?}");
        assert!(trials.iter().all(|trial| trial.device == "cuda:0"));

        driver.fail("cuLaunchKernel", 1, 700);
        let faults: Vec<_> = run().into_iter().filter_map(|trial| trial.fault).collect();
        assert!(faults.len() == 1 && faults[0].contains("cuLaunchKernel"), "{faults:?}");
    }
}
