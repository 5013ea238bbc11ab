//! Batches of graphs padded beside the same as they are.

use std::error::Error as StdError;

use megabatch_amp::Precision;
use megabatch_gpu_core::Device;
use megabatch_nn::batch::{BatchStorage, WindowOffsets};
use megabatch_nn::graph::{GraphBatch, GraphView};
use megabatch_nn::loss::Loss;
use megabatch_nn::model::{
    AttentionKind, GraphActivation, GraphConfig, GraphOutput, ModelConfig, SampleShape, Timeframe,
};
use megabatch_segment::{Compressed, Csc};
use proptest::prelude::*;

use super::*;

const FEATURES: usize = 3;
const OUTPUTS: usize = 2;
const ATTRIBUTES: usize = 2;
/// Most nodes of a graph.
const NODES: usize = 12;

/// Numbers in (-1, 1).
fn numbers(seed: usize, len: usize) -> Vec<f32> {
    let digits = |i: usize| ((i * 13 + seed * 78 + 1) as f64).sin() * 43_758.545_3;
    (0..len).map(|i| (2.0 * (digits(i) - digits(i).floor()) - 1.0) as f32).collect()
}

/// The edges of a graph by both of their ends, and their attributes.
struct OwnedGraph {
    by_row: Compressed<u32>,
    by_column: Compressed<u32>,
    attributes: Vec<f32>,
}

/// Graphs of these sizes.
struct Source {
    sizes: Vec<usize>,
    samples: Vec<usize>,
    graphs: Vec<OwnedGraph>,
}

impl Source {
    fn new(sizes: &[usize]) -> Self {
        let graph = |(g, &nodes): (usize, &usize)| {
            let ends = (0..nodes).flat_map(|to| (0..nodes).map(move |from| (to, from)));
            let is_edge = |&(to, from): &(usize, usize)| to % 5 != 3 && (to * 7 + from * 3 + g).is_multiple_of(3);
            let (to, from): (Vec<u32>, Vec<u32>) =
                ends.filter(is_edge).map(|(to, from)| (to as u32, from as u32)).unzip();
            let by_row = Compressed::from_edges(&to, &from, nodes, nodes).unwrap();
            let by_column = by_row.csr(nodes).unwrap().transposed().unwrap();
            OwnedGraph { by_row, by_column, attributes: numbers(g, to.len() * ATTRIBUTES) }
        };
        let graphs = sizes.iter().enumerate().map(graph).collect();
        Source { sizes: sizes.to_vec(), samples: (0..NODES).collect(), graphs }
    }
}

impl Graphs for Source {
    fn len(&self) -> usize {
        self.sizes.len()
    }

    fn nodes(&self, graph: usize) -> &[usize] {
        &self.samples[..self.sizes[graph]]
    }

    fn graph(&self, graph: usize) -> std::result::Result<GraphView<'_>, Box<dyn StdError + Send + Sync>> {
        let (nodes, OwnedGraph { by_row, by_column, attributes }) = (self.sizes[graph], &self.graphs[graph]);
        let csc = Csc::new(&by_column.offsets, &by_column.indices, &by_column.edges, nodes)?;
        Ok(GraphView { csr: by_row.csr(nodes)?, csc, attributes })
    }

    fn edge_attributes(&self) -> usize {
        ATTRIBUTES
    }

    fn largest(&self) -> (usize, usize) {
        (NODES, NODES * NODES)
    }

    fn total_edges(&self) -> usize {
        self.graphs.iter().map(|graph| graph.by_row.indices.len()).sum()
    }

    fn labelled(&self, _graph: usize) -> usize {
        unreachable!("losses look at targets")
    }
}

/// A model, its loss, and whether the device keeps the edges.
#[derive(Clone, Copy, Debug)]
struct Case {
    graph: Option<GraphConfig>,
    readout: Readout,
    loss: Loss,
    keeps: bool,
}

fn cases() -> impl Strategy<Value = Case> {
    let kinds = prop::sample::select(vec![AttentionKind::Gat, AttentionKind::GatV2]);
    let outputs = prop::sample::select(vec![GraphOutput::Linear, GraphOutput::Attention]);
    let activations = prop::sample::select(vec![GraphActivation::Elu, GraphActivation::Relu]);
    let rates = prop::sample::select(vec![0.0f32, 0.3]);
    let layers = (kinds, outputs, activations, rates, 1usize..4, any::<[bool; 2]>());
    let graph = layers.prop_map(|(attention, output, activation, rate, layers, [residual, self_loops])| GraphConfig {
        attention,
        layers,
        heads: 2,
        hidden: 3,
        output,
        output_heads: 2,
        activation,
        residual,
        dropout: rate,
        attention_dropout: rate,
        self_loops,
        ..GraphConfig::default()
    });
    let readouts = vec![
        (Readout::Node, Loss::Mse),
        (Readout::Node, Loss::CrossEntropy),
        (Readout::Node, Loss::RankPairwise),
        (Readout::Node, Loss::RankListwise { temperature: 0.5 }),
        (Readout::Mean, Loss::Mse),
        (Readout::Sum, Loss::CrossEntropy),
        (Readout::Max, Loss::Huber { delta: 0.3 }),
    ];
    let parts = (prop::option::weighted(0.9, graph), prop::sample::select(readouts), any::<bool>());
    parts.prop_map(|(graph, (readout, loss), keeps)| Case { graph, readout, loss, keeps })
}

/// Bits of gradients, of the sum of the losses and the number of its terms, and of the outputs, in
/// training and then without dropout; and the nodes that were computed.
fn outcome(case: Case, source: &Source, indices: &[usize], pads: bool) -> (Vec<u64>, usize) {
    let Case { graph, readout, loss, keeps } = case;
    let timeframe = Timeframe { name: String::new(), steps: 1, features: FEATURES };
    let shape = SampleShape { timeframes: vec![timeframe], outputs: OUTPUTS };
    let edge_attributes = if graph.is_some() { ATTRIBUTES } else { 0 };
    let encoder = Encoder::LastBar;
    let config = ModelConfig {
        encoder,
        graph,
        graph_edge_attributes: edge_attributes,
        readout: Some(readout),
        ..ModelConfig::default()
    };
    let (scope, model) = (Device::cpu().scope("test"), Model::new(shape.clone(), config).unwrap());
    let compute = ComputeConfig { loss, ..ComputeConfig::for_prediction(Precision::Fp32) };
    let mut on_device = GraphModel::new(&scope, &model, &compute, &Tuner::off()).unwrap();
    on_device.padded_nodes = if pads { bucket_nodes } else { identity };
    on_device.keep_graphs(keeps.then_some(source as &dyn Graphs)).unwrap();

    let graph_batch = GraphBatch::read(source, indices, on_device.edge_form()).unwrap();
    let samples = graph_batch.samples().last().unwrap().end;
    let (features, mut targets) = (numbers(91, samples * FEATURES), numbers(92, samples * OUTPUTS));
    // A row without a label.
    targets[samples / 2 * OUTPUTS] = f32::NAN;
    let mut offsets = WindowOffsets::with_capacity(&shape, samples);
    offsets.lay_windows(&shape, samples);
    offsets.end_at_samples(&(0..samples).collect::<Vec<_>>());
    let batch = BatchView::new(&shape, vec![&features[..]], &offsets, BatchStorage::Windows, &targets);
    let batch = batch.with_graphs(Some(&graph_batch));

    let values = model.initial_parameters(&scope, 3).unwrap();
    let parameters = Buffer::from_slice(&scope, values.values()).unwrap();
    let mut gradients = Buffer::zeros(&scope, parameters.len()).unwrap();
    let scale = Buffer::from_slice(&scope, &[4.0]).unwrap();
    let dropout = StepDropout { between_layers: None, in_graphs: StepSeed { seed: 5, step: 2 } };
    let seed = DropoutSeed { dropout: Some(dropout), position: 0 };
    let loss_input = LossInput { targets: batch.targets(), weights: None, loss, count: 7, scale: &scale };
    on_device.load(&parameters).unwrap();
    on_device.accumulate_gradients(&batch, seed, loss_input, &parameters, &mut gradients).unwrap();
    let rows = if readout == Readout::Node { samples } else { indices.len() };
    let outputs = |on_device: &GraphModel| on_device.outputs().as_slice()[..rows * OUTPUTS].to_vec();
    let mut found = [gradients.as_slice().to_vec(), outputs(&on_device)].concat();
    on_device.predict(&batch, &parameters).unwrap();
    found.extend(outputs(&on_device));
    // The model has the batch's lists themselves, no copy of them.
    assert!(graph_batch.edges().is_none_or(|edges| Arc::strong_count(edges) == 2));
    let totals = on_device.totals().as_slice().iter().map(|total| total.to_bits());
    let bits = found.iter().map(|number| u64::from(number.to_bits())).chain(totals);
    (bits.collect(), on_device.lists.nodes())
}

/// Sizes of graphs, and which of them a batch has.
fn batches() -> impl Strategy<Value = (Vec<usize>, Vec<usize>)> {
    prop::collection::vec(1..=NODES, 1..9).prop_flat_map(|sizes| {
        let all: Vec<usize> = (0..sizes.len()).collect();
        (Just(sizes), prop::sample::subsequence(all.clone(), 1..=all.len()).prop_shuffle())
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Padding takes part in nothing.
    #[test]
    fn a_padded_batch_has_the_bits_of_the_batch(case in cases(), (sizes, indices) in batches()) {
        let source = Source::new(&sizes);
        let nodes = indices.iter().map(|&graph| sizes[graph]).sum::<usize>();
        let (expected, plain_nodes) = outcome(case, &source, &indices, false);
        let (found, padded_nodes) = outcome(case, &source, &indices, true);
        prop_assert_eq!((plain_nodes, padded_nodes), (nodes, bucket_nodes(nodes)));
        prop_assert!(found == expected, "{:?}", case);
    }
}
