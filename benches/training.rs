//! Training steps: gather, forward, loss, backward, clipping, Adam; and predictions.

use std::ops::ControlFlow;

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use megabatch_benches::full_size::{FULL_SIZE, shape};
use megabatch_benches::samples;
use megabatch_gpu_core::Device;
use megabatch_nn::model::{Model, ModelConfig, save_weights};
use megabatch_nn_cpu::Compute;
use megabatch_trainer::{Config, Predictor, Run, SampleRanges, Samples, Selection, Trainer};

/// Steps of one measurement, so that starting the reading thread does not count.
const STEPS: u64 = 4;
const BATCH: usize = 64;

fn model(hidden: usize) -> ModelConfig {
    ModelConfig { hidden, layers: 1, ..ModelConfig::default() }
}

/// Times `STEPS` steps on all of `data`, `batch` samples each.
fn time_steps(
    group: &mut BenchmarkGroup<'_, WallTime>,
    name: &str,
    data: &dyn Samples,
    hidden: usize,
    batch_size: usize,
) {
    let train = SampleRanges::from(0..data.len());
    let run = Run { samples: data, train: &train, validation: SampleRanges::NONE, checkpoints: None };
    group.throughput(Throughput::Elements(STEPS * batch_size as u64));
    group.bench_function(BenchmarkId::new(name, format!("H {hidden}")), |bencher| {
        bencher.iter_batched_ref(
            || {
                let config = Config { model: model(hidden), batch_size, max_steps: Some(STEPS), ..Config::default() };
                Trainer::new(&Device::cpu(), config, data.shape().clone()).expect("there is memory")
            },
            |trainer| trainer.train(&run, &mut |_| ControlFlow::Continue(())).expect("training succeeds"),
            criterion::BatchSize::PerIteration,
        );
    });
}

fn stepping(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("training step");
    group.sample_size(10);
    let cases = [
        ("one timeframe of 60", shape(&[("", 60)], 16), 32),
        (
            "five timeframes, a tenth as long",
            shape(&[("M1", 48), ("M5", 29), ("M15", 19), ("H1", 10), ("H4", 5)], 128),
            128,
        ),
    ];
    for (name, shape, hidden) in cases {
        time_steps(&mut group, name, &samples(&shape, 2 * BATCH), hidden, BATCH);
    }
    for case in FULL_SIZE {
        time_steps(&mut group, case.name, &case.series(case.batch), 128, case.batch);
    }
    group.finish();
}

fn predicting(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("prediction");
    group.sample_size(10);
    let folder = tempfile::tempdir().expect("a folder for temporary files");
    let weights = folder.path().join("weights.safetensors");
    for case in FULL_SIZE {
        let data = case.series(case.batch);
        let (device, indices) = (Device::cpu(), SampleRanges::from(0..case.batch));
        let model = Model::new(data.shape().clone(), model(128)).expect("the model is one");
        let initial = model.initial_parameters(&device.scope("initial"), 0).expect("there is memory");
        save_weights(&weights, &initial).expect("the folder is writable");
        let compute = Compute { threads: 2, batch_size: case.batch };
        let mut predictor = Predictor::open(&device, model, &weights, compute).expect("the weights are the model's");
        group.throughput(Throughput::Elements(case.batch as u64));
        group.bench_function(BenchmarkId::new(case.name, "H 128"), |bencher| {
            let selection = Selection { samples: &data, indices: &indices };
            bencher.iter(|| {
                predictor.predict(selection, |_, _| Ok::<(), megabatch_trainer::Error>(())).expect("samples are there");
            });
        });
    }
    group.finish();
}

criterion_group!(benches, stepping, predicting);
criterion_main!(benches);
