//! Models over graphs on a GPU beside the CPU.

use std::error::Error as StdError;
use std::ops::ControlFlow;
use std::sync::LazyLock;

use megabatch_amp::Precision;
use megabatch_gpu_core::Device;
use megabatch_nn::batch::SeriesView;
use megabatch_nn::graph::Graphs;
use megabatch_nn::loss::{Ascending, Classes, Loss};
use megabatch_nn::model::{
    AttentionKind, Encoder, Fusion, GraphActivation, GraphConfig, GraphOutput, Model, ModelConfig, Readout,
    SampleShape, save_weights,
};
use megabatch_nn_cpu::Compute;
use megabatch_trainer::{
    Batch, Checkpoints, Config, Error, Event, GpuFootprint, InMemory, Predictor, Run, SampleRanges, Samples, Selection,
    SeriesInMemory, StepEvent, Trainer,
};

use crate::made_up::{GraphSamples, market, numbers, one_bar};
use crate::{assert_close, bits, config, series, tolerance, with_kernels};

/// Two layers of attention over an LSTM, with dropout everywhere.
pub(crate) fn over_graphs(attention: AttentionKind) -> Config {
    let graph = GraphConfig {
        attention,
        heads: 2,
        hidden: 3,
        dropout: 0.2,
        attention_dropout: 0.3,
        residual: true,
        ..GraphConfig::default()
    };
    let base = config(Precision::Fp32, 2);
    let model =
        ModelConfig { graph: Some(graph), graph_edge_attributes: 2, readout: Some(Readout::Node), ..base.model };
    // Six steps of four graphs, the last one of an epoch of two.
    let mut config = Config { model, batch_size: 4, max_steps: Some(6), run_length: Some(1), ..base };
    config.optimizer.epsilon = 1e-4;
    config
}

/// The same with a change of what the layers are.
fn with_layers(kind: AttentionKind, change: impl FnOnce(&mut GraphConfig)) -> Config {
    let mut config = over_graphs(kind);
    change(config.model.graph.as_mut().unwrap());
    config
}

const TRAIN: std::ops::Range<usize> = 0..18;
static VALIDATION: LazyLock<SampleRanges> = LazyLock::new(|| SampleRanges::from_iter([18, 20, 19]));

pub(crate) fn trainer(gpu: Option<&Device>, config: &Config, samples: &dyn Samples) -> Trainer {
    let (host, shape) = (Device::cpu(), samples.shape().clone());
    match gpu {
        Some(gpu) => Trainer::on_gpu(gpu, &host, config.clone(), shape).unwrap(),
        None => Trainer::new(&host, config.clone(), shape).unwrap(),
    }
}

/// The steps trained up to `last`, and the validations' losses.
pub(crate) fn train(
    trainer: &mut Trainer,
    samples: &dyn Samples,
    checkpoints: Option<&Checkpoints>,
    last: u64,
) -> (Vec<StepEvent>, Vec<f64>) {
    let train = SampleRanges::from(TRAIN);
    let run = Run { samples, train: &train, validation: &VALIDATION, checkpoints };
    let (mut steps, mut losses) = (Vec::new(), Vec::new());
    let observe = &mut |event: Event<'_>| {
        match event {
            Event::Step(step) => {
                steps.push(step);
                if steps.last().is_some_and(|step| step.step == last) {
                    return ControlFlow::Break(());
                }
            }
            Event::Validation(validation) => losses.push(validation.loss),
            _ => {}
        }
        ControlFlow::Continue(())
    };
    trainer.train(&run, observe).unwrap();
    (steps, losses)
}

/// The same training on the CPU and on `gpu`.
fn check(gpu: &Device, config: &Config, samples: &dyn Samples) {
    let (mut cpu_trainer, mut gpu_trainer) = (trainer(None, config, samples), trainer(Some(gpu), config, samples));
    let (expected, expected_losses) = train(&mut cpu_trainer, samples, None, u64::MAX);
    let (found, losses) = train(&mut gpu_trainer, samples, None, u64::MAX);
    let (what, tolerance) = (format!("{:?}", (config.loss, &config.model)), tolerance(config));
    let numbers = |steps: &[StepEvent], number: fn(&StepEvent) -> f64| steps.iter().map(number).collect::<Vec<_>>();
    assert_close(&what, &numbers(&found, |step| step.loss), &numbers(&expected, |step| step.loss), tolerance);
    let norms = [&found, &expected].map(|steps| numbers(steps, |step| step.grad_norm));
    assert_close(&format!("{what}: norms"), &norms[0], &norms[1], 5.0 * tolerance);
    assert_close(&format!("{what}: validation"), &losses, &expected_losses, tolerance);
    let weights = |trainer: &Trainer| trainer.parameters().values().iter().map(|&x| f64::from(x)).collect::<Vec<_>>();
    let (found, expected) = (weights(&gpu_trainer), weights(&cpu_trainer));
    let distance = |weights: &[f64]| weights.iter().zip(&expected).map(|(x, y)| (x - y) * (x - y)).sum::<f64>().sqrt();
    let (error, size) = (distance(&found), distance(&vec![0.0; expected.len()]));
    assert!(error <= tolerance * size, "{what}: weights of length {size} are off by {error}");
}

/// An infinite target of a graph made the CPU, which looks for the cause, panic.
#[test]
fn an_infinite_target_ends_the_step_as_on_the_processor() {
    let (_driver, gpu) = with_kernels();
    let mut samples = market(21);
    samples.change_targets(|targets| targets[3] = f32::INFINITY);
    let config = over_graphs(AttentionKind::GatV2);
    let train = SampleRanges::from(TRAIN);
    let run = Run { samples: &samples, train: &train, validation: SampleRanges::NONE, checkpoints: None };
    let refused = |gpu: Option<&Device>| {
        let error = trainer(gpu, &config, &samples).train(&run, &mut |_| ControlFlow::Continue(())).unwrap_err();
        // The loss itself is a sum in another order.
        match error {
            Error::NotFinite { step, tensor, index, .. } => (step, tensor, index),
            other => panic!("{other}"),
        }
    };
    let expected = refused(None);
    for gpu in [&gpu, &Device::cpu()] {
        assert_eq!(refused(Some(gpu)), expected);
    }
}

const KINDS: [AttentionKind; 2] = [AttentionKind::Gat, AttentionKind::GatV2];

/// Training is the same on every device that operations run on.
fn trains_as_the_processor_does(gpu: &Device) {
    let samples = market(21);
    for kind in KINDS {
        check(gpu, &over_graphs(kind), &samples);
        let averaged = with_layers(kind, |graph| {
            (graph.output, graph.output_heads, graph.activation) = (GraphOutput::Attention, 3, GraphActivation::Relu);
            (graph.residual, graph.self_loops) = (false, kind == AttentionKind::Gat);
        });
        check(gpu, &Config { loss: Loss::RankPairwise, dropout: 0.0, ..averaged }, &samples);
    }
    let mut labelled = market(21);
    labelled.label_graphs();
    let mut graph_config = over_graphs(AttentionKind::GatV2);
    (graph_config.model.readout, graph_config.gradient_accumulation_steps) = (Some(Readout::Max), 2);
    graph_config.model.fusion = Fusion::attention(5);
    check(gpu, &graph_config, &labelled);
}

#[test]
fn by_the_plain_forms() {
    trains_as_the_processor_does(&Device::cpu());
}

#[test]
fn by_the_kernels() {
    let (_driver, gpu) = with_kernels();
    trains_as_the_processor_does(&gpu);
}

#[test]
fn every_loss_of_nodes_and_of_graphs() {
    let (nodes, mut graphs) = (market(21), market(21));
    graphs.label_graphs();
    let levels = Ascending::new(&[0.2, 0.5, 0.9]).unwrap();
    let each = [Loss::Huber { delta: 0.3 }, Loss::Quantile { levels }, Loss::CrossEntropy];
    let classes = Loss::Classes(Classes::Thresholds(Ascending::new(&[-0.2, 0.2]).unwrap()));
    let node_losses = [Loss::RankPairwise, Loss::RankListwise { temperature: 0.5 }];
    // Cross entropy takes class labels.
    let [mut nodes_of_classes, mut graphs_of_classes] = [market(21), market(21)];
    graphs_of_classes.label_graphs();
    nodes_of_classes.classify();
    graphs_of_classes.classify();
    for loss in each.into_iter().chain([classes]).chain(node_losses) {
        let samples = if loss == Loss::CrossEntropy { &nodes_of_classes } else { &nodes };
        check(&Device::cpu(), &Config { loss, ..over_graphs(AttentionKind::Gat) }, samples);
    }
    for (loss, readout) in each.into_iter().zip([Readout::Mean, Readout::Sum, Readout::Max]) {
        let mut config = Config { loss, ..over_graphs(AttentionKind::GatV2) };
        config.model.readout = Some(readout);
        let samples = if loss == Loss::CrossEntropy { &graphs_of_classes } else { &graphs };
        check(&Device::cpu(), &config, samples);
        // The outputs by attention itself, and without it.
        config.model.graph.as_mut().unwrap().output = GraphOutput::Attention;
        check(&Device::cpu(), &config, samples);
        config.model = ModelConfig { graph: None, graph_edge_attributes: 0, ..config.model };
        check(&Device::cpu(), &config, samples);
    }
}

#[test]
fn layers_and_encoders_in_any_company() {
    let samples = market(21);
    for kind in KINDS {
        for config in [
            with_layers(kind, |graph| (graph.layers, graph.dropout) = (1, 0.0)),
            with_layers(kind, |graph| (graph.layers, graph.attention_dropout, graph.heads) = (3, 0.0, 1)),
            with_layers(kind, |graph| (graph.self_loops, graph.negative_slope) = (false, -0.3)),
        ] {
            check(&Device::cpu(), &config, &samples);
            let model = ModelConfig { encoder: Encoder::LastBar, graph_edge_attributes: 0, ..config.model };
            check(&Device::cpu(), &Config { model, ..config.clone() }, &samples);
            let fusion = Fusion::Attention { heads: 3, feed_forward: 2 };
            let model = ModelConfig { layer_norm: true, fusion, hidden: 6, ..config.model };
            check(&Device::cpu(), &Config { model, ..config }, &samples);
        }
    }
}

/// As many nodes and edges in each graph, so that all batches of a size take as much.
pub(crate) fn even() -> GraphSamples {
    let (graphs, nodes) = (21, 5);
    let graph = |g: usize| {
        let edges: Vec<(u32, u32)> =
            (0..nodes as u32).flat_map(|to| [(to, (to + 1) % 5), (to, (to + 3) % 5)]).collect();
        let attributes = numbers(g as u64, 2 * edges.len());
        ((g * nodes..(g + 1) * nodes).collect(), edges, attributes, nodes)
    };
    let shape = one_bar(4, 2);
    let inner = InMemory::new(shape, vec![numbers(1, 105 * 4)], numbers(2, 210)).unwrap();
    GraphSamples::new(inner, 2, (0..graphs).map(graph).collect())
}

#[test]
fn a_run_takes_what_was_planned_to_the_byte() {
    let (_driver, gpu) = with_kernels();
    let (nodes, mut graphs) = (even(), even());
    graphs.label_graphs();
    let graph_config = |readout, output| {
        let mut config = with_layers(AttentionKind::GatV2, |graph| graph.output = output);
        config.model.readout = Some(readout);
        config
    };
    let fused = graph_config(Readout::Mean, GraphOutput::Linear);
    let fused = Config { model: ModelConfig { fusion: Fusion::attention(5), ..fused.model }, ..fused };
    let last_bar = with_layers(AttentionKind::Gat, |graph| graph.dropout = 0.0);
    let last_bar = Config {
        model: ModelConfig { encoder: Encoder::LastBar, ..last_bar.model },
        loss: Loss::RankPairwise,
        ..last_bar
    };
    for config in [
        over_graphs(AttentionKind::Gat),
        graph_config(Readout::Max, GraphOutput::Linear),
        graph_config(Readout::Sum, GraphOutput::Attention),
        fused,
        graph_config(Readout::Node, GraphOutput::Attention),
        last_bar,
    ] {
        for keep_graphs in [false, true] {
            let config = Config { max_steps: Some(2), keep_graphs, ..config.clone() };
            let samples = if config.model.readout == Some(Readout::Node) { &nodes } else { &graphs };
            let train_on = SampleRanges::from(TRAIN);
            let plan = GpuFootprint::new(&config, samples, &train_on, &VALIDATION, 1).unwrap();
            gpu.reset_peak();
            train(&mut trainer(Some(&gpu), &config, samples), samples, None, u64::MAX);
            assert_eq!(plan.total_bytes(), gpu.usage().allocated_bytes_peak, "{:?}: {:?}", config.model, plan.tensors);
            assert_eq!(plan.part_bytes("graphs") > 0, keep_graphs);
        }
    }
}

/// The largest graphs were planned to come together.
#[test]
fn batches_of_graphs_of_several_sizes_take_what_was_planned() {
    let (_driver, gpu) = with_kernels();
    let samples = market(21);
    for keep_graphs in [false, true] {
        for encoder in [Encoder::Recurrent, Encoder::LastBar] {
            let base = over_graphs(AttentionKind::Gat);
            let model = ModelConfig { encoder, ..base.model };
            let config = Config { model, keep_graphs, max_steps: Some(15), ..base };
            let train_on = SampleRanges::from(TRAIN);
            let planned = GpuFootprint::new(&config, &samples, &train_on, &VALIDATION, 1).unwrap().total_bytes();
            gpu.reset_peak();
            train(&mut trainer(Some(&gpu), &config, &samples), &samples, None, u64::MAX);
            let taken = gpu.usage().allocated_bytes_peak;
            let what = format!("{taken} of {planned} with {encoder:?}, {keep_graphs}");
            assert!(taken <= planned && taken as f64 > 0.97 * planned as f64, "{what}");
        }
    }
}

/// The backward pass of the largest batch was planned, which is one of the validation.
#[test]
fn a_validation_in_larger_batches_of_graphs_has_no_backward_pass() {
    let (_driver, gpu) = with_kernels();
    let samples = even();
    for keep_graphs in [false, true] {
        let config = Config { keep_graphs, max_steps: Some(2), ..over_graphs(AttentionKind::Gat) };
        let (train_on, validation) = (SampleRanges::from(0..2), SampleRanges::from(2..10));
        let planned = GpuFootprint::new(&config, &samples, &train_on, &validation, 1).unwrap().total_bytes();
        gpu.reset_peak();
        let run = Run { samples: &samples, train: &train_on, validation: &validation, checkpoints: None };
        trainer(Some(&gpu), &config, &samples).train(&run, &mut |_| ControlFlow::Continue(())).unwrap();
        let taken = gpu.usage().allocated_bytes_peak;
        assert!(taken <= planned && taken as f64 > 0.97 * planned as f64, "{taken} of {planned}, {keep_graphs}");
    }
}

/// Samples of a series, and graphs of them.
struct SeriesGraphs {
    series: SeriesInMemory,
    graphs: GraphSamples,
}

impl SeriesGraphs {
    /// Graphs of three samples each, one after another.
    fn triples() -> Self {
        let series = series();
        let edges = vec![(0, 1), (1, 2), (2, 0)];
        // A target of the fourth sample is not known.
        let labelled = |g: usize| if g == 1 { 2 } else { 3 };
        let graph = |g: usize| ((3 * g..3 * (g + 1)).collect(), edges.clone(), numbers(g as u64, 6), labelled(g));
        let nodes = InMemory::new(one_bar(1, 2), vec![numbers(1, 60)], numbers(2, 120)).unwrap();
        SeriesGraphs { series, graphs: GraphSamples::new(nodes, 2, (0..20).map(graph).collect()) }
    }
}

impl Samples for SeriesGraphs {
    fn shape(&self) -> &SampleShape {
        self.series.shape()
    }

    fn len(&self) -> usize {
        self.series.len()
    }

    fn gather(&self, samples: &[usize], batch: &mut Batch) -> Result<(), Box<dyn StdError + Send + Sync>> {
        self.series.gather(samples, batch)
    }

    fn series(&self) -> Option<SeriesView<'_>> {
        self.series.series()
    }

    fn graphs(&self) -> Option<&dyn Graphs> {
        Some(&self.graphs)
    }
}

/// The bars that nodes have in common were planned once for each node.
#[test]
fn bars_that_nodes_have_in_common_are_planned_once() {
    let (_driver, gpu) = with_kernels();
    let samples = SeriesGraphs::triples();
    for (run_length, keep_series, least) in
        [(None, true, 0.97), (None, false, 0.97), (Some(2), true, 0.8), (Some(1), true, 0.6)]
    {
        let config = Config { run_length, keep_series, max_steps: Some(8), ..over_graphs(AttentionKind::Gat) };
        let train_on = SampleRanges::from(0..16);
        let validation = SampleRanges::from(16..20);
        let planned = GpuFootprint::new(&config, &samples, &train_on, &validation, 1).unwrap().total_bytes();
        gpu.reset_peak();
        let run = Run { samples: &samples, train: &train_on, validation: &validation, checkpoints: None };
        trainer(Some(&gpu), &config, &samples).train(&run, &mut |_| ControlFlow::Continue(())).unwrap();
        let taken = gpu.usage().allocated_bytes_peak;
        assert!(taken <= planned, "{taken} of {planned} with runs of {run_length:?}");
        assert!(taken as f64 > least * planned as f64, "{taken} of {planned} with runs of {run_length:?}");
    }
}

/// Batches of 144 to 150 nodes, which are all padded to as many.
#[test]
fn batches_of_other_sizes_replay_one_capture() {
    let (driver, gpu) = with_kernels();
    let sizes: Vec<usize> = (0..18usize).map(|g| 16 + usize::from(g.is_multiple_of(3))).collect();
    let (count, mut first) = (sizes.iter().sum::<usize>(), 0);
    let graphs = sizes.iter().map(|&nodes| {
        let edges = (0..16).flat_map(|to| [(to, (to + 1) % 16), (to, (to + 3) % 16)]).collect();
        first += nodes;
        ((first - nodes..first).collect(), edges, numbers(3, 2 * 32), nodes)
    });
    let inner = InMemory::new(one_bar(4, 2), vec![numbers(1, count * 4)], numbers(2, count * 2)).unwrap();
    let samples = GraphSamples::new(inner, 2, graphs.collect());
    let small = with_layers(AttentionKind::Gat, |graph| {
        (graph.layers, graph.heads, graph.hidden, graph.self_loops) = (1, 1, 2, false);
    });
    let model = ModelConfig { encoder: Encoder::LastBar, ..small.model };
    let train_on = SampleRanges::from(TRAIN);
    for keep_graphs in [false, true] {
        let config = Config { model, keep_graphs, batch_size: 9, max_steps: Some(10), ..small.clone() };
        let run = Run { samples: &samples, train: &train_on, validation: SampleRanges::NONE, checkpoints: None };
        let (mut launches, mut captures) = (Vec::new(), 0);
        let observe = &mut |event: Event<'_>| {
            if let Event::Step(step) = event {
                launches.push(driver.calls("cuLaunchKernel"));
                captures += step.captures.unwrap_or(0);
            }
            ControlFlow::Continue(())
        };
        trainer(Some(&gpu), &config, &samples).train(&run, observe).unwrap();
        // The batch, whatever its size, and the end of a step, if that has enough launches.
        assert!((1..=2).contains(&captures), "{keep_graphs}: {captures}");
        // What a batch brings, and the end: the rest of a batch is some thirty launches.
        assert!(launches[9] - launches[4] <= 5 * 6, "{keep_graphs}: {launches:?}");
    }
}

/// Each batch has an edge more than the one before.
#[test]
fn batches_of_a_few_more_edges_take_no_more_memory() {
    let graph = |g: usize| {
        let edges = (0..16).flat_map(|to| [(to, (to + 1) % 16), (to, (to + 3) % 16)]);
        let edges: Vec<(u32, u32)> = std::iter::once((0, 5)).filter(|_| g % 9 < g / 9).chain(edges).collect();
        let (nodes, attributes): (Vec<usize>, _) = ((16 * g..16 * (g + 1)).collect(), numbers(3, 2 * edges.len()));
        (nodes, edges, attributes, 16)
    };
    let (graphs, gpu) = (90, Device::cpu());
    let count = 16 * graphs;
    let inner = InMemory::new(one_bar(4, 2), vec![numbers(1, count * 4)], numbers(2, count * 2)).unwrap();
    let samples = GraphSamples::new(inner, 2, (0..graphs).map(graph).collect());
    let small = with_layers(AttentionKind::Gat, |graph| (graph.layers, graph.self_loops) = (1, false));
    let model = ModelConfig { encoder: Encoder::LastBar, ..small.model };
    let (max_steps, run_length) = (Some(10), Some(graphs));
    let config = Config { model, keep_graphs: true, batch_size: 9, max_steps, run_length, ..small };
    let train_on = SampleRanges::from(0..graphs);
    let run = Run { samples: &samples, train: &train_on, validation: SampleRanges::NONE, checkpoints: None };
    let mut taken = Vec::new();
    let observe = &mut |event: Event<'_>| {
        if let Event::Step(step) = event {
            taken.push(step.allocated_bytes);
        }
        ControlFlow::Continue(())
    };
    trainer(Some(&gpu), &config, &samples).train(&run, observe).unwrap();
    // 288 edges, and then memory for 304.
    assert_eq!(taken.len(), 10);
    assert!(taken[1..].iter().all(|bytes| *bytes == taken[1]), "{taken:?}");
}

#[test]
fn each_goes_on_where_the_other_stopped() {
    let (_driver, gpu) = with_kernels();
    let (samples, config) = (market(21), Config { loss: Loss::RankPairwise, ..over_graphs(AttentionKind::Gat) });
    let on = |is_gpu: bool| trainer(is_gpu.then_some(&gpu), &config, &samples);
    let mut whole = on(true);
    let (expected, _) = train(&mut whole, &samples, None, u64::MAX);
    for (begins_on_gpu, ends_on_gpu) in [(true, true), (true, false), (false, true)] {
        let folder = tempfile::tempdir().unwrap();
        let checkpoints = Checkpoints::new(folder.path());
        let (mut steps, _) = train(&mut on(begins_on_gpu), &samples, Some(&checkpoints), 3);
        let mut rest = on(ends_on_gpu);
        let train_on = SampleRanges::from(TRAIN);
        let run = Run { samples: &samples, train: &train_on, validation: &VALIDATION, checkpoints: Some(&checkpoints) };
        assert_eq!(rest.resume(&run).unwrap().unwrap().state.step, 3);
        steps.extend(train(&mut rest, &samples, Some(&checkpoints), u64::MAX).0);
        let [found, expected] = [&steps, &expected].map(|steps| steps.iter().map(|step| step.loss).collect::<Vec<_>>());
        assert_close(&format!("{begins_on_gpu} {ends_on_gpu}"), &found, &expected, tolerance(&config));
        if begins_on_gpu && ends_on_gpu {
            assert!(bits(&rest) == bits(&whole), "a run that was interrupted ends in the same bits");
        }
    }
}

/// A predictor of the first weights.
fn predictor(config: &Config, samples: &dyn Samples) -> Predictor {
    let compute = Compute { threads: 1, batch_size: config.batch_size };
    let model = Model::new(samples.shape().clone(), config.model.for_loss(config.loss)).unwrap();
    let weights = model.initial_parameters(&Device::cpu().scope("weights"), config.seed).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    save_weights(&path, &weights).unwrap();
    Predictor::open(&Device::cpu(), model, &path, compute).unwrap()
}

#[test]
fn a_gpu_predicts_as_the_processor_does() {
    let (_driver, gpu) = with_kernels();
    let (nodes, mut graphs) = (market(21), market(21));
    graphs.label_graphs();
    let mut graph_config = with_layers(AttentionKind::GatV2, |graph| graph.output = GraphOutput::Attention);
    graph_config.model.readout = Some(Readout::Mean);
    for (config, samples, int8) in [
        (&over_graphs(AttentionKind::Gat), &nodes, false),
        (&graph_config, &graphs, false),
        (&graph_config, &graphs, true),
    ] {
        let predictor = |samples| {
            let exact = predictor(config, samples);
            if int8 { exact.with_int8().unwrap() } else { exact }
        };
        // A state that lies near the middle of two of the 8191 numbers of eight bits' rows is
        // quantised to either.
        let tolerance = if int8 { 3e-4 } else { tolerance(config) };
        let indices = SampleRanges::from_iter([3, 17, 4, 4, 20, 0, 9]);
        let selection = Selection { samples, indices: &indices };
        let answers = |mut predictor: Predictor| {
            let (mut visited, mut numbers) = (Vec::new(), Vec::new());
            let sink = |indices: &[usize], outputs: &[f32]| {
                visited.extend_from_slice(indices);
                numbers.extend(outputs.iter().map(|&y| f64::from(y)));
                Ok::<(), Error>(())
            };
            predictor.predict(selection, sink).unwrap();
            (visited, numbers, predictor.evaluate(selection, config.loss, None).unwrap())
        };
        let (visited, expected, evaluation) = answers(predictor(samples));
        let (visited_on_gpu, found, found_evaluation) = answers(predictor(samples).on_gpu(&gpu).unwrap());
        assert_eq!(visited_on_gpu, visited);
        assert_close("predictions", &found, &expected, tolerance);
        assert_close("loss", &[found_evaluation.loss], &[evaluation.loss], tolerance);
        assert_eq!(found_evaluation.samples, evaluation.samples);
    }
}
