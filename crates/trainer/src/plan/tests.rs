//! The peak of a run is what was computed.

use std::error::Error as StdError;
use std::ops::ControlFlow;

use megabatch_amp::Precision;
use megabatch_gpu_core::{Device, reserved_bytes};
use megabatch_nn::batch::LossOn;
use megabatch_nn::graph::{GraphView, Graphs};
use megabatch_nn::loss::{Loss, Task, TaskLoss, Tasks};
use megabatch_nn::memory::PlannedTensor;
use megabatch_nn::model::{
    AttentionKind, Cell, Encoder, Fusion, GraphConfig, GraphOutput, ModelConfig, Readout, Timeframe,
};
use megabatch_segment::{Compressed, Csc};
use proptest::prelude::*;

use super::*;
use crate::config::optimizer::{OptimizerConfig, OptimizerKind};
use crate::data::sample_ranges::SampleRanges;
use crate::data::samples::{Batch, InMemory};
use crate::data::series_in_memory::SeriesInMemory;
use crate::error::Error;
use crate::train::{Run, Trainer};

const SAMPLES: usize = 70;

/// The largest bytes of each part in a run on `device`.
fn peaks_of_a_run(device: &Device, config: &Config, data: &dyn Samples, validation: &SampleRanges) -> [usize; 6] {
    let mut trainer = Trainer::new(device, config.clone(), data.shape().clone()).unwrap();
    let train = SampleRanges::from(0..60);
    let run = Run { samples: data, train: &train, validation, checkpoints: None };
    trainer.train(&run, &mut |_| ControlFlow::Continue(())).unwrap();
    let peak = |labels: &[&str]| -> usize {
        labels.iter().map(|label| device.scope(label).usage().allocated_bytes_peak).sum()
    };
    assert_eq!(
        device.usage().allocated_bytes_peak,
        device.usage_by_scope().iter().map(|(_, usage)| usage.allocated_bytes_peak).sum::<usize>()
    );
    [
        peak(&["model/parameters", "model/parameters/working", "model/parameters/packed"]),
        peak(&["model/gradients", "model/gradients/shards"]),
        peak(&["optimizer"]),
        peak(&["activations"]),
        peak(&["batches"]),
        peak(&["carried", "carried/streamed"]),
    ]
}

/// Sum of the tensors of each part.
fn by_tensor(tensors: &[PlannedTensor]) -> [usize; 6] {
    let parts = ["parameters", "gradients", "optimizer", "activations", "batches", "carried"];
    assert!(tensors.iter().all(|tensor| parts.contains(&tensor.part) && !tensor.used_in.is_empty()), "{tensors:?}");
    parts.map(|part| tensors.iter().filter(|tensor| tensor.part == part).map(|tensor| tensor.bytes).sum())
}

fn windows(shape: &SampleShape) -> InMemory {
    let windows = (0..shape.timeframes.len()).map(|k| vec![0.5; SAMPLES * shape.window_len(k)]).collect();
    InMemory::new(shape.clone(), windows, vec![1.0 / shape.outputs as f32; SAMPLES * shape.outputs]).unwrap()
}

/// Windows that end three to a bar, in two segments.
fn series(shape: &SampleShape) -> SeriesInMemory {
    let series = shape.timeframes.iter().map(|timeframe| {
        let end = |n: usize| timeframe.steps - 1 + n / 3 + if n < 40 { 0 } else { timeframe.steps };
        let ends: Vec<i64> = (0..SAMPLES).map(|n| end(n) as i64).collect();
        (vec![0.5; (end(SAMPLES) + 1) * timeframe.features], ends)
    });
    // The window of sample 40 begins the second segment.
    let starts = shape.timeframes.iter().map(|timeframe| vec![0, (13 + timeframe.steps) as i64]);
    let targets = vec![0.25; SAMPLES * shape.outputs];
    SeriesInMemory::new(shape.clone(), series.collect(), targets).unwrap().with_segments(starts.collect()).unwrap()
}

/// Seventy rings of one to four of the same nodes, with an attribute an edge; the source says that
/// there may be more.
struct Rings {
    inner: InMemory,
    rings: Vec<(Compressed<u32>, Compressed<u32>)>,
    /// True if nodes have targets, or graphs.
    by_node: bool,
}

const NODES: [usize; 4] = [0, 1, 2, 3];
const ONES: [f32; 4] = [1.0; 4];

impl Rings {
    fn new(shape: &SampleShape) -> Self {
        let ring = |nodes: usize| {
            let targets: Vec<u32> = (0..nodes as u32).collect();
            let sources: Vec<u32> = targets.iter().map(|targets| (targets + 1) % nodes as u32).collect();
            let by_row = Compressed::from_edges(&targets, &sources, nodes, nodes).unwrap();
            let by_column = by_row.csr(nodes).unwrap().transposed().unwrap();
            (by_row, by_column)
        };
        Rings { inner: windows(shape), rings: (0..SAMPLES).map(|graph| ring(1 + graph % 4)).collect(), by_node: true }
    }
}

impl Samples for Rings {
    fn shape(&self) -> &SampleShape {
        self.inner.shape()
    }

    fn len(&self) -> usize {
        self.inner.len()
    }

    fn gather(&self, samples: &[usize], batch: &mut Batch) -> Result<(), Box<dyn StdError + Send + Sync>> {
        self.inner.gather(samples, batch)
    }

    fn graphs(&self) -> Option<&dyn Graphs> {
        Some(self)
    }
}

impl Graphs for Rings {
    fn len(&self) -> usize {
        self.rings.len()
    }

    fn nodes(&self, graph: usize) -> &[usize] {
        &NODES[..1 + graph % 4]
    }

    fn graph(&self, graph: usize) -> Result<GraphView<'_>, Box<dyn StdError + Send + Sync>> {
        let (by_row, by_column) = &self.rings[graph];
        let nodes = 1 + graph % 4;
        let csc = Csc::new(&by_column.offsets, &by_column.indices, &by_column.edges, nodes)?;
        Ok(GraphView { csr: by_row.csr(nodes)?, csc, attributes: &ONES[..nodes] })
    }

    fn edge_attributes(&self) -> usize {
        1
    }

    fn largest(&self) -> (usize, usize) {
        (5, 6)
    }

    fn total_edges(&self) -> usize {
        self.rings.iter().map(|(by_row, _)| by_row.indices.len()).sum()
    }

    fn labelled(&self, graph: usize) -> usize {
        if self.by_node { 1 + graph % 4 } else { 1 }
    }
}

fn parts(computed: &Footprint) -> [usize; 6] {
    [
        computed.parameters_bytes,
        computed.gradients_bytes,
        computed.optimizer_bytes,
        computed.activations_bytes,
        computed.batches_bytes,
        computed.carried_bytes,
    ]
}

proptest! {
    /// The same of a run over graphs, of which the largest are not among those that are trained on.
    #[test]
    fn a_run_over_graphs_takes_what_was_computed(
        timeframes in prop::collection::vec((1usize..4, 1usize..4), 1..3),
        (hidden, layers, graph_layers, heads) in (1usize..6, 1usize..3, 1usize..4, 1usize..4),
        (batch_size, threads, gradient_accumulation_steps) in (1usize..20, 1usize..4, 1usize..3),
        [lstm, attends, v2, attention_head, validates, drops, attributes] in any::<[bool; 7]>(),
        (by_node, pools, fuses, norm) in any::<(bool, bool, bool, bool)>(),
    ) {
        let timeframe = |(k, &(steps, features)): (usize, &(usize, usize))| {
            Timeframe { name: format!("T{k}"), steps, features }
        };
        let shape = SampleShape { timeframes: timeframes.iter().enumerate().map(timeframe).collect(), outputs: 2 };
        let graph = GraphConfig {
            attention: if v2 { AttentionKind::GatV2 } else { AttentionKind::Gat },
            layers: graph_layers,
            heads,
            hidden: 3,
            output: if attention_head { GraphOutput::Attention } else { GraphOutput::Linear },
            dropout: if drops { 0.5 } else { 0.0 },
            attention_dropout: if drops { 0.5 } else { 0.0 },
            ..GraphConfig::default()
        };
        let config = Config {
            model: ModelConfig {
                encoder: if lstm { Encoder::Recurrent } else { Encoder::LastBar },
                hidden,
                layers,
                layer_norm: norm && lstm,
                pooling: if pools && lstm { Pooling::attention(hidden) } else { Pooling::Last },
                fusion: if fuses && lstm { Fusion::attention(hidden) } else { Fusion::Concat },
                graph: attends.then_some(graph),
                graph_edge_attributes: usize::from(attributes),
                readout: Some(if by_node { Readout::Node } else { Readout::Max }),
                ..ModelConfig::default()
            },
            loss: if by_node { Loss::Mse } else { Loss::CrossEntropy },
            batch_size,
            threads,
            gradient_accumulation_steps,
            dropout: if drops { 0.5 } else { 0.0 },
            ..Config::default()
        };
        let validation = &SampleRanges::from(if validates { 60..62 } else { 60..60 });
        let data = Rings { by_node, ..Rings::new(&shape) };
        let (nodes, edges) = data.largest();
        let computed = Footprint::for_graphs(&config, &shape, nodes, edges, validation.len()).unwrap();
        prop_assert_eq!(peaks_of_a_run(&Device::cpu(), &config, &data, validation), parts(&computed));
        prop_assert_eq!(by_tensor(&computed.tensors(&config, &shape, Some(data.largest()), validation.len()).unwrap()), parts(&computed));
        let blocks = computed.blocks(&config, &shape, Some(data.largest()), validation.len(), None).unwrap();
        prop_assert_eq!(blocks.iter().sum::<usize>(), computed.total_bytes());
    }

    /// The peak of a run is what was computed, byte for byte, whatever its settings.
    #[test]
    fn a_run_takes_what_was_computed(
        timeframes in prop::collection::vec((prop_oneof![1usize..5, 14usize..35], 1usize..4), 1..4),
        (hidden, layers, bias) in (1usize..6, 1usize..4, any::<bool>()),
        (batch_size, threads, gradient_accumulation_steps) in (1usize..80, 1usize..4, 1usize..3),
        [adam, validates, drops, carries, dense, bf16, pools, fuses, layer_norm, checkpointing, gru] in any::<[bool; 11]>(),
        run_length in prop_oneof![Just(None), (1usize..20).prop_map(Some)],
    ) {
        let timeframe = |(k, &(steps, features)): (usize, &(usize, usize))| {
            Timeframe { name: format!("T{k}"), steps, features }
        };
        let shape = SampleShape { timeframes: timeframes.iter().enumerate().map(timeframe).collect(), outputs: 2 };
        let kind = if adam { OptimizerKind::Adam } else { OptimizerKind::Sgd };
        let config = Config {
            model: ModelConfig {
                cell: if gru { Cell::Gru } else { Cell::Lstm },
                hidden,
                layers,
                bias,
                layer_norm,
                pooling: if pools { Pooling::attention(hidden) } else { Pooling::Last },
                fusion: if fuses { Fusion::attention(hidden) } else { Fusion::Concat },
                ..ModelConfig::default()
            },
            optimizer: OptimizerConfig { kind, ..OptimizerConfig::default() },
            batch_size,
            threads,
            gradient_accumulation_steps,
            dropout: if drops { 0.5 } else { 0.0 },
            carry_state: carries,
            loss_on: if dense { LossOn::EveryStep } else { LossOn::LastStep },
            precision: if bf16 { Precision::Bf16 } else { Precision::Fp32 },
            run_length,
            gradient_checkpointing: checkpointing,
            ..Config::default()
        };
        let validation = &SampleRanges::from(if validates { 60..62 } else { 60..60 });
        let data: Box<dyn Samples> = if config.streams() { Box::new(series(&shape)) } else { Box::new(windows(&shape)) };
        let mut computed = Footprint::new(&config, &shape, validation.len()).unwrap();
        let states = || CarriedStates::new(&config, &*data, &SampleRanges::from(0..60), validation).unwrap();
        let states = config.streams().then(states);
        if let Some(states) = &states {
            computed = computed.with_carried_states(&config, &shape, states);
        }
        let device = Device::cpu();
        prop_assert_eq!(peaks_of_a_run(&device, &config, &*data, validation), parts(&computed));
        prop_assert_eq!(computed.total_bytes(), parts(&computed).iter().sum::<usize>());
        let blocks = computed.blocks(&config, &shape, None, validation.len(), states.as_ref()).unwrap();
        prop_assert_eq!(blocks.iter().sum::<usize>(), computed.total_bytes());
        let (taken, planned) = (device.stats().reserved_bytes.peak, reserved_bytes(blocks));
        prop_assert!(if config.streams() { taken <= planned } else { taken == planned }, "{taken} of {planned}");
        prop_assert_eq!(by_tensor(&computed.tensors(&config, &shape, None, validation.len()).unwrap()), parts(&computed));
    }
}

/// A sample that is counted ahead was planned beside the batches of a validation.
#[test]
fn tasks_of_a_step_of_several_batches_take_no_more_beside_a_validation() {
    let shape =
        SampleShape { timeframes: vec![Timeframe { name: "M1".to_owned(), steps: 3, features: 2 }], outputs: 2 };
    let tasks = Tasks::new(&[Task { targets: [0, 2], loss: TaskLoss::Mse, weight: 1.0 }]).unwrap();
    let model = ModelConfig { hidden: 3, ..ModelConfig::default() };
    let loss = Loss::Tasks(tasks);
    let config = Config { model, loss, batch_size: 8, threads: 2, gradient_accumulation_steps: 2, ..Config::default() };
    let data = windows(&shape);
    for (validation, at_most) in [(60..62, 0), (60..60, (3 * 2 + 2) * size_of::<f32>())] {
        let validation = &SampleRanges::from(validation);
        let computed = Footprint::new(&config, &shape, validation.len()).unwrap();
        let (peaks, planned) = (peaks_of_a_run(&Device::cpu(), &config, &data, validation), parts(&computed));
        assert!(planned[4] - peaks[4] <= at_most && peaks[..4] == planned[..4], "{peaks:?}, {planned:?}");
        assert_eq!(by_tensor(&computed.tensors(&config, &shape, None, validation.len()).unwrap()), planned);
    }
}

/// `batch_size` and `gradient_accumulation_steps` of 1,000,000,000 each wrapped around in a release
/// build.
#[test]
fn settings_that_multiply_to_more_than_can_be_counted_are_refused() {
    let timeframe = |name: &str, steps| Timeframe { name: name.to_owned(), steps, features: 5 };
    let shape = SampleShape { timeframes: vec![timeframe("M1", 480), timeframe("H4", 60)], outputs: 3 };
    let config = |batch_size, gradient_accumulation_steps| Config {
        batch_size,
        gradient_accumulation_steps,
        carry_state: true,
        threads: 2,
        ..Config::default()
    };
    let validation = vec![HeldStates { ends: vec![3, 1], covered: vec![9, 4] }];
    let states = CarriedStates { training: vec![7, 2], validation };
    let footprint = |config: &Config| Footprint::new(config, &shape, 3);
    for most in [1_000_000_000, usize::MAX] {
        let config = config(64, most);
        let planned = footprint(&config).unwrap();
        assert_eq!(planned, footprint(&Config { gradient_accumulation_steps: 1, ..config.clone() }).unwrap());
        // A step has no more states than there are bars to carry them from.
        assert!(planned.with_carried_states(&config, &shape, &states).carried_bytes > 0);
    }
    assert!(footprint(&config(1_000_000, 1)).unwrap().total_bytes() > 1_000_000_000);
    let wide = ModelConfig { hidden: 65_536, layers: 64, ..ModelConfig::default() };
    let graph = GraphConfig { heads: 65_536, hidden: 65_536, ..GraphConfig::default() };
    let over_graphs = ModelConfig { graph: Some(graph), readout: Some(Readout::Node), ..ModelConfig::default() };
    for config in [
        config(usize::MAX, 1),
        config(usize::MAX, usize::MAX),
        Config { model: wide, ..config(1_000_000_000, 1_000_000_000) },
        Config { model: over_graphs, carry_state: false, ..config(1, 1) },
        Config { loss_on: LossOn::EveryStep, run_length: Some(usize::MAX), ..config(usize::MAX, 1) },
    ] {
        let error = match config.model.is_over_graphs() {
            true => Footprint::for_graphs(&config, &shape, 30, 90, 3).unwrap_err(),
            false => footprint(&config).unwrap_err(),
        };
        assert!(error.to_string().starts_with("`batch_size` is "), "{error}");
        let refused = Trainer::new(&Device::cpu(), config, shape.clone()).unwrap_err();
        assert!(matches!(refused, Error::Setting { .. }), "{refused}");
    }
}
