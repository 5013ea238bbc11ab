//! CPU time of the host for a training step on a GPU: finding windows, laying out lists,
//! submitting, reading of the step before. On the fake driver with kernels that do nothing, so that
//! what is measured has the fake driver's own work and its copies in it and is an upper bound.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, BenchmarkId, Criterion, criterion_group, criterion_main};
use megabatch_amp::Precision;
use megabatch_benches::full_size::{FULL_SIZE, FullSize};
use megabatch_gpu_core::Device;
use megabatch_nn::model::ModelConfig;
use megabatch_simt::driver::{FakeDriver, Setting};
use megabatch_trainer::{Config, Event, Run, SampleRanges, Samples, Trainer};

/// Steps before those that count: buffers grow, and shapes come for the second time.
const WARM: u64 = 12;

/// Batches of an epoch.
const BATCHES: usize = 4;

/// Source of the batches.
#[derive(Clone, Copy, PartialEq)]
enum Data {
    Series,
    /// Windows that come batch by batch.
    Windows,
    /// Windows that stay on the GPU.
    KeptWindows,
}

/// Time of a number of steps.
fn time(gpu: &Device, case: &FullSize, data: Data, steps: u64) -> Duration {
    let samples = BATCHES * case.batch;
    let samples: Box<dyn Samples> = match data {
        Data::Series => Box::new(case.series(samples)),
        _ => Box::new(case.stored(samples)),
    };
    let config = Config {
        model: ModelConfig { hidden: 128, ..ModelConfig::default() },
        batch_size: case.batch,
        max_steps: Some(WARM + steps),
        precision: Precision::Bf16,
        keep_windows: data == Data::KeptWindows,
        ..Config::default()
    };
    let train = SampleRanges::from(0..BATCHES * case.batch);
    let run = Run { samples: &*samples, train: &train, validation: SampleRanges::NONE, checkpoints: None };
    let mut start = Instant::now();
    let mut observer = |event: Event<'_>| {
        if let Event::Step(step) = event
            && step.step == WARM
        {
            start = Instant::now();
        }
        ControlFlow::Continue(())
    };
    let shape = case.shape();
    let mut trainer = Trainer::on_gpu(gpu, &Device::cpu(), config, shape).expect("the model is one");
    trainer.train(&run, &mut observer).expect("training succeeds");
    start.elapsed()
}

fn measure(group: &mut BenchmarkGroup<'_, WallTime>, gpu: &Device, case: &FullSize, data: Data) {
    let data_name = match data {
        Data::Series => "",
        Data::Windows => ", windows batch by batch",
        Data::KeptWindows => ", windows that stay",
    };
    let name = BenchmarkId::new(format!("{}{data_name}", case.name), format!("B {}", case.batch));
    group.bench_function(name, |bencher| bencher.iter_custom(|steps| time(gpu, case, data, steps)));
}

fn steps(criterion: &mut Criterion) {
    let driver = FakeDriver::whole();
    driver.set(Setting::EmptyKernels, 1);
    driver.set(Setting::TotalBytes, 16 << 30);
    let gpu = Device::select("cuda:0").expect("the fake driver has a GPU");
    let mut group = criterion.benchmark_group("the host in a step on a GPU");
    group.sample_size(10);
    for case in FULL_SIZE {
        measure(&mut group, &gpu, &FullSize { batch: 128, ..*case }, Data::Series);
    }
    // Neither pace nor overlap matters to windows that are stored.
    for case in FULL_SIZE.iter().step_by(2) {
        for data in [Data::Windows, Data::KeptWindows] {
            measure(&mut group, &gpu, &FullSize { batch: 128, ..*case }, data);
        }
    }
    group.finish();
}

criterion_group!(benches, steps);
criterion_main!(benches);
