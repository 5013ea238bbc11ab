//! Training steps: gather, forward, loss, backward, clipping, Adam; and predictions.

use std::ops::ControlFlow;

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use megabatch_benches::{noise, samples};
use megabatch_gpu_core::Device;
use megabatch_trainer::{
    Compute, Config, Form, Model, ModelConfig, Predictor, Run, SampleShape, Samples, Selection, SeriesInMemory,
    Timeframe, Trainer, save_weights,
};

/// Steps of one measurement, so that starting the reading thread does not count.
const STEPS: u64 = 4;
const BATCH: usize = 64;
const TARGETS: usize = 36;

/// Name, bars in a window and minutes in a bar of each timeframe.
type Windows = &'static [(&'static str, usize, usize)];

const MULTI: Windows = &[("M1", 480, 1), ("M5", 288, 5), ("M15", 192, 15), ("H1", 96, 60), ("H4", 48, 240)];
const SINGLE: Windows = &[("", 360, 1)];

/// A model of the size that docs/speed.md has, H = 128.
struct FullSize {
    name: &'static str,
    windows: Windows,
    features: usize,
    batch: usize,
    /// Minutes between samples: 1, or so many that few windows have bars in common.
    apart: usize,
}

const FULL_SIZE: &[FullSize] = &[
    FullSize { name: "multi, consecutive", windows: MULTI, features: 128, batch: 64, apart: 1 },
    FullSize { name: "multi, far apart", windows: MULTI, features: 128, batch: 64, apart: 1009 },
    FullSize { name: "single, consecutive", windows: SINGLE, features: 167, batch: 128, apart: 1 },
    FullSize { name: "single, far apart", windows: SINGLE, features: 167, batch: 128, apart: 1009 },
];

fn shape(timeframes: &[(&str, usize)], features: usize) -> SampleShape {
    let timeframe = |&(name, steps): &(&str, usize)| Timeframe { name: name.to_owned(), steps, features };
    SampleShape { timeframes: timeframes.iter().map(timeframe).collect(), outputs: TARGETS }
}

fn model(hidden: usize) -> ModelConfig {
    ModelConfig { hidden, layers: 1, ..ModelConfig::default() }
}

/// Times `STEPS` steps on all of `data`, `batch` samples each.
fn time_steps(
    group: &mut BenchmarkGroup<'_, WallTime>,
    name: &str,
    (data, hidden, batch_size): (&dyn Samples, usize, usize),
) {
    let train: Vec<usize> = (0..data.len()).collect();
    let run = Run { samples: data, train: &train, validation: &[], checkpoints: None };
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
        time_steps(&mut group, name, (&samples(&shape, 2 * BATCH), hidden, BATCH));
    }
    for case in FULL_SIZE {
        time_steps(&mut group, case.name, (&case.series(), 128, case.batch));
    }
    group.finish();
}

impl FullSize {
    /// A batch of samples of a series.
    fn series(&self) -> SeriesInMemory {
        let timeframes: Vec<_> = self.windows.iter().map(|&(name, steps, _)| (name, steps)).collect();
        let of = |&(_, steps, minutes): &(&str, usize, usize)| {
            let ends: Vec<i64> = (0..self.batch).map(|n| (steps - 1 + n * self.apart / minutes) as i64).collect();
            (noise((ends[self.batch - 1] as usize + 1) * self.features), ends)
        };
        let series = self.windows.iter().map(of).collect();
        SeriesInMemory::new(shape(&timeframes, self.features), series, noise(self.batch * TARGETS))
            .expect("the arrays have the shape's sizes")
    }
}

fn predicting(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("prediction");
    group.sample_size(10);
    let folder = tempfile::tempdir().expect("a folder for temporary files");
    let weights = folder.path().join("weights.safetensors");
    for case in FULL_SIZE {
        let data = case.series();
        let (device, indices) = (Device::cpu(), (0..case.batch).collect::<Vec<_>>());
        let model = Model::new(data.shape().clone(), model(128)).expect("the model is one");
        let initial = model.initial_parameters::<f32>(&device.scope("initial"), 0).expect("there is memory");
        save_weights(&weights, &initial).expect("the folder is writable");
        let compute = Compute { threads: 2, batch_size: case.batch, form: Form::Fast };
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
