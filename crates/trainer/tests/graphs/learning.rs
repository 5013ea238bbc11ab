//! Tasks that cannot be solved without the graph are learnt with it, and are not without it.

use megabatch_nn::loss::Loss;
use megabatch_nn::model::{Encoder, GraphConfig, GraphOutput, ModelConfig, Readout};
use megabatch_trainer::{Config, Evaluation, InMemory, OptimizerConfig, OptimizerKind, SampleRanges, Selection};

use crate::made_up::{GraphSamples, numbers, one_bar, trained};

const NODES: usize = 12;

/// `count` rings whose nodes have one number; `target` says what is wanted of a node, from its own
/// number and that of the node so many `hops` away.
fn rings(count: usize, hops: usize, outputs: usize, target: impl Fn(f32, f32) -> Vec<f32>) -> GraphSamples {
    let x = numbers(7, count * NODES);
    let ring = |graph: usize| {
        let nodes: Vec<usize> = (graph * NODES..(graph + 1) * NODES).collect();
        let edges = (0..NODES as u32).map(|to| (to, (to + 1) % NODES as u32)).collect();
        (nodes, edges, Vec::new(), NODES)
    };
    let far = |n: usize| n / NODES * NODES + (n + hops) % NODES;
    let targets = (0..count * NODES).flat_map(|n| target(x[far(n)], x[n])).collect();
    let inner = InMemory::new(one_bar(1, outputs), vec![x], targets).unwrap();
    GraphSamples::new(inner, 0, (0..count).map(ring).collect())
}

/// Attention without self-loops: a node sees its neighbour alone.
fn attention() -> GraphConfig {
    GraphConfig { layers: 1, heads: 2, hidden: 8, self_loops: false, ..GraphConfig::default() }
}

fn config(graph: Option<GraphConfig>, loss: Loss) -> Config {
    let model =
        ModelConfig { encoder: Encoder::LastBar, graph, readout: Some(Readout::Node), ..ModelConfig::default() };
    let optimizer = OptimizerConfig { kind: OptimizerKind::Adam, lr: 0.02, weight_decay: 0.0, ..Default::default() };
    Config { model, optimizer, loss, epochs: 30, batch_size: 4, threads: 1, run_length: Some(1), ..Config::default() }
}

/// Errors on the last fifth of the graphs of a model that was trained on the others.
fn learnt(config: &Config, samples: &GraphSamples) -> Evaluation {
    let (train, test): (SampleRanges, SampleRanges) = (0..samples.graphs.len()).partition(|graph| graph % 5 > 0);
    let (mut trainer, _) = trained(config, samples, &train);
    trainer.evaluate(Selection { samples, indices: &test }, None).unwrap()
}

#[test]
fn numbers_of_neighbours_are_learnt_through_the_graph_alone() {
    let samples = rings(60, 1, 1, |neighbour, _| vec![1.5 * neighbour]);
    let [with, without] = [Some(attention()), None].map(|graph| learnt(&config(graph, Loss::Mse), &samples));
    // The targets' own root mean square is 0.87.
    assert!(with.metrics.rmse[0] < 0.1, "{with:?}");
    assert!(without.metrics.rmse[0] > 0.75, "{without:?}");
    let ic = |evaluation: &Evaluation| evaluation.metrics.information.as_ref().unwrap().rank_ic[0].unwrap();
    assert!(ic(&with) > 0.95 && ic(&without).abs() < 0.5, "{with:?} {without:?}");
}

#[test]
fn ranks_of_neighbours_are_learnt_by_both_losses() {
    // Larger than a loss of ranks could tell from its own multiple.
    let samples = rings(60, 1, 2, |neighbour, own| vec![100.0 * neighbour, -0.01 * neighbour + 0.001 * own]);
    for loss in [Loss::RankPairwise, Loss::RankListwise { temperature: 1.0 }] {
        let information = learnt(&config(Some(attention()), loss), &samples).metrics.information.unwrap();
        assert!(information.rank_ic[0].unwrap() > 0.95, "{loss:?}: {information:?}");
        assert_eq!(information.ic_graphs, [12, 12]);
    }
}

/// The recipe of the paper of GAT for citations, without its dropout, which would leave nothing of
/// one number: two layers, eight heads of eight, ELU, classes straight from the last layer, Adam
/// with L2.
#[test]
fn classes_two_hops_away_are_learnt_by_two_layers_and_not_by_one() {
    let samples = rings(60, 2, 3, |far, _| {
        let class = if far < -0.4 { 0 } else { 1 + usize::from(far > 0.4) };
        (0..3).map(|k| f32::from(u8::from(k == class))).collect()
    });
    let with = |layers| {
        let graph = GraphConfig { layers, heads: 8, hidden: 8, output: GraphOutput::Attention, ..attention() };
        let mut config = config(Some(graph), Loss::CrossEntropy);
        (config.optimizer.weight_decay, config.clip_norm) = (5e-4, None);
        learnt(&config, &samples)
    };
    let [one, two] = [with(1), with(2)];
    assert!(one.metrics.accuracy.unwrap() < 0.6, "{one:?}");
    assert!(two.metrics.accuracy.unwrap() > 0.9, "{two:?}");
    assert!(two.baselines.is_empty() && two.metrics.information.is_none());
}

#[test]
fn graphs_are_predicted_from_their_nodes() {
    for (readout, read) in [
        (Readout::Mean, (|x: &[f32]| x.iter().sum::<f32>() / x.len() as f32) as fn(&[f32]) -> f32),
        (Readout::Sum, |x| x.iter().sum()),
        (Readout::Max, |x| x.iter().copied().fold(f32::MIN, f32::max)),
    ] {
        let sizes: Vec<usize> = (0..100).map(|graph| 1 + graph % 6).collect();
        let count: usize = sizes.iter().sum();
        let x = numbers(3, count);
        let mut targets = vec![0.0; count];
        let mut graphs = Vec::new();
        let mut first = 0;
        for size in sizes {
            targets[first..first + size].fill(read(&x[first..first + size]));
            graphs.push(((first..first + size).collect(), Vec::new(), Vec::new(), 1));
            first += size;
        }
        let samples = GraphSamples::new(InMemory::new(one_bar(1, 1), vec![x], targets).unwrap(), 0, graphs);
        let mut config = config(Some(GraphConfig { self_loops: true, ..attention() }), Loss::Mse);
        config.model.readout = Some(readout);
        let evaluation = learnt(&config, &samples);
        assert_eq!(evaluation.samples, 20);
        let rmse = evaluation.metrics.rmse[0];
        assert!(rmse < 0.1, "{readout:?}: {evaluation:?}");
        // Another way to read the same graphs does not do.
        config.model.readout = Some(if readout == Readout::Sum { Readout::Mean } else { Readout::Sum });
        let other = learnt(&config, &samples).metrics.rmse[0];
        assert!(other > 2.0 * rmse && other > 0.1, "{readout:?}: {other} and {rmse}");
    }
}
