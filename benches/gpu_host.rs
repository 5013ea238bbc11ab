//! CPU time of the host for a training step on a GPU: finding windows, laying out lists,
//! submitting, reading of the step before. On the fake driver with kernels and fills that do
//! nothing, so that what is measured has the fake driver's own work and its copies in it and is an
//! upper bound.

use std::error::Error as StdError;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, BenchmarkId, Criterion, criterion_group, criterion_main};
use megabatch_amp::Precision;
use megabatch_benches::full_size::{FULL_SIZE, FullSize};
use megabatch_benches::noise;
use megabatch_gpu_core::Device;
use megabatch_nn::graph::{GraphView, Graphs};
use megabatch_nn::model::{Encoder, GraphConfig, ModelConfig, Readout, SampleShape, Timeframe};
use megabatch_segment::{Compressed, Csc};
use megabatch_simt::driver::{FakeDriver, Setting};
use megabatch_trainer::{Batch, Config, Event, InMemory, Run, SampleRanges, Samples, Trainer};

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
    time_of_training(gpu, config, &*samples, BATCHES * case.batch)
}

/// Time of the steps of `config` after the first [`WARM`], on so many samples or graphs.
fn time_of_training(gpu: &Device, config: Config, samples: &dyn Samples, count: usize) -> Duration {
    let train = SampleRanges::from(0..count);
    let run = Run { samples, train: &train, validation: SampleRanges::NONE, checkpoints: None };
    let mut start = Instant::now();
    let mut observer = |event: Event<'_>| {
        if let Event::Step(step) = event
            && step.step == WARM
        {
            start = Instant::now();
        }
        ControlFlow::Continue(())
    };
    let shape = samples.shape().clone();
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

/// Graphs of 256 nodes, each of which receives from the 16 in front of it.
struct Rings {
    samples: InMemory,
    nodes: Vec<usize>,
    by_row: Compressed<u32>,
    by_column: Compressed<u32>,
}

const NODES: usize = 256;
const NEIGHBOURS: usize = 16;
const FEATURES: usize = 4;

impl Rings {
    fn new(graphs: usize) -> Self {
        let to = (0..NODES as u32).flat_map(|node| [node; NEIGHBOURS]).collect::<Vec<_>>();
        let front = (1..=NEIGHBOURS as u32).cycle();
        let from: Vec<u32> = to.iter().zip(front).map(|(node, k)| (node + k) % NODES as u32).collect();
        let by_row = Compressed::from_edges(&to, &from, NODES, NODES).expect("edges of the nodes");
        let by_column = by_row.csr(NODES).and_then(|csr| csr.transposed()).expect("edges of the nodes");
        let timeframes = vec![Timeframe { name: String::new(), steps: 1, features: FEATURES }];
        let (shape, count) = (SampleShape { timeframes, outputs: 1 }, graphs * NODES);
        let samples = InMemory::new(shape, vec![noise(count * FEATURES)], noise(count)).expect("arrays of the shape");
        Rings { samples, nodes: (0..count).collect(), by_row, by_column }
    }
}

impl Samples for Rings {
    fn shape(&self) -> &SampleShape {
        self.samples.shape()
    }

    fn len(&self) -> usize {
        self.samples.len()
    }

    fn gather(&self, samples: &[usize], batch: &mut Batch) -> Result<(), Box<dyn StdError + Send + Sync>> {
        self.samples.gather(samples, batch)
    }

    fn graphs(&self) -> Option<&dyn Graphs> {
        Some(self)
    }
}

impl Graphs for Rings {
    fn len(&self) -> usize {
        self.nodes.len() / NODES
    }

    fn nodes(&self, graph: usize) -> &[usize] {
        &self.nodes[graph * NODES..][..NODES]
    }

    fn graph(&self, _graph: usize) -> Result<GraphView<'_>, Box<dyn StdError + Send + Sync>> {
        let Compressed { offsets, indices, edges, .. } = &self.by_column;
        Ok(GraphView { csr: self.by_row.csr(NODES)?, csc: Csc::new(offsets, indices, edges, NODES)?, attributes: &[] })
    }

    fn edge_attributes(&self) -> usize {
        0
    }

    fn largest(&self) -> (usize, usize) {
        (NODES, NODES * NEIGHBOURS)
    }

    fn total_edges(&self) -> usize {
        self.nodes.len() * NEIGHBOURS
    }

    /// None: kernels that do nothing count no terms of the loss.
    fn labelled(&self, _graph: usize) -> usize {
        0
    }
}

/// Steps over eight graphs, whose edges stay on the GPU or come with each batch.
fn measure_graphs(group: &mut BenchmarkGroup<'_, WallTime>, gpu: &Device, keep_graphs: bool) {
    const GRAPHS: usize = 8;
    let samples = Rings::new(BATCHES * GRAPHS);
    let model = ModelConfig {
        encoder: Encoder::LastBar,
        graph: Some(GraphConfig { layers: 2, heads: 4, hidden: 16, ..GraphConfig::default() }),
        readout: Some(Readout::Node),
        ..ModelConfig::default()
    };
    let config = Config { model, batch_size: GRAPHS, keep_graphs, ..Config::default() };
    let name = BenchmarkId::new(if keep_graphs { "graphs that stay" } else { "graphs batch by batch" }, "B 8");
    group.bench_function(name, |bencher| {
        bencher.iter_custom(|steps| {
            let config = Config { max_steps: Some(WARM + steps), ..config.clone() };
            time_of_training(gpu, config, &samples, Graphs::len(&samples))
        });
    });
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
    for keep_graphs in [false, true] {
        measure_graphs(&mut group, &gpu, keep_graphs);
    }
    group.finish();
}

criterion_group!(benches, steps);
criterion_main!(benches);
