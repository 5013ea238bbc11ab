//! Training steps: gather, forward, loss, backward, clipping, Adam.

use std::ops::ControlFlow;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use megabatch_benches::samples;
use megabatch_gpu_core::Device;
use megabatch_trainer::{Config, ModelConfig, Run, SampleShape, Timeframe, Trainer};

/// Steps of one measurement, so that starting the reading thread does not count.
const STEPS: u64 = 4;
const BATCH: usize = 64;

fn shape(timeframes: &[(&str, usize)], features: usize) -> SampleShape {
    let timeframe = |&(name, steps): &(&str, usize)| Timeframe { name: name.to_owned(), steps, features };
    SampleShape { timeframes: timeframes.iter().map(timeframe).collect(), outputs: 36 }
}

fn stepping(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("training step");
    group.sample_size(10).throughput(Throughput::Elements(STEPS * BATCH as u64));
    let cases = [
        ("one timeframe of 60", shape(&[("", 60)], 16), 32),
        (
            "five timeframes, a tenth as long",
            shape(&[("M1", 48), ("M5", 29), ("M15", 19), ("H1", 10), ("H4", 5)], 128),
            128,
        ),
    ];
    for (name, shape, hidden) in cases {
        let data = samples(&shape, 2 * BATCH);
        let train: Vec<usize> = (0..2 * BATCH).collect();
        let run = Run { samples: &data, train: &train, validation: &[], checkpoints: None };
        group.bench_function(BenchmarkId::new(name, format!("H {hidden}")), |bencher| {
            bencher.iter_batched_ref(
                || {
                    let model = ModelConfig { hidden, layers: 1, ..ModelConfig::default() };
                    let config = Config { model, batch_size: BATCH, max_steps: Some(STEPS), ..Config::default() };
                    Trainer::new(&Device::cpu(), config, shape.clone()).expect("there is memory")
                },
                |trainer| trainer.train(&run, &mut |_| ControlFlow::Continue(())).expect("training succeeds"),
                criterion::BatchSize::PerIteration,
            );
        });
    }
    group.finish();
}

criterion_group!(benches, stepping);
criterion_main!(benches);
