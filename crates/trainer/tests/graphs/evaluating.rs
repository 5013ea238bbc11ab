//! Predictions, errors and correlations over graphs, beside baselines, and what they take.

use megabatch_gpu_core::Device;
use megabatch_nn::graph::Graphs;
use megabatch_nn::loss::Loss;
use megabatch_nn::model::{Encoder, Model, ModelConfig, Readout};
use megabatch_nn_cpu::Compute;
use megabatch_trainer::{
    Config, Error, InMemory, Predictor, SampleRanges, Samples, Selection, cross_sectional_deviation, uninformed_loss,
};

use crate::baselines::{fit_for, fit_numbers};
use crate::made_up::{GraphSamples, market, numbers, one_bar, trained};

fn config() -> Config {
    let model = ModelConfig {
        hidden: 4,
        graph: Some(megabatch_nn::model::GraphConfig { heads: 2, hidden: 3, ..Default::default() }),
        readout: Some(Readout::Node),
        ..ModelConfig::default()
    };
    Config { model, batch_size: 4, threads: 2, ..Config::default() }
}

#[test]
fn targets_of_graphs_have_a_deviation_and_a_loss_without_information() {
    let (a, b) = (0.01f32, 0.03f32);
    let targets = vec![a, -a, 0.0, b, b + 2.0 * a, f32::NAN];
    let inner = InMemory::new(one_bar(1, 1), vec![vec![0.0; 6]], targets).unwrap();
    // Three nodes; two known ones and one that is not; and one by itself, of which there is no
    // deviation.
    let graphs =
        vec![(vec![0, 1, 2], vec![], vec![], 3), (vec![3, 4, 5], vec![], vec![], 2), (vec![0], vec![], vec![], 1)];
    let samples = GraphSamples::new(inner, 0, graphs);
    let select = |indices| Selection { samples: &samples, indices };
    let [all, first, last] = [0..3, 0..1, 2..3].map(SampleRanges::from);
    let device = Device::cpu();
    let deviation = cross_sectional_deviation(&device, select(&all)).unwrap().unwrap();
    let expected = ((1e-4 + 2e-4) / 2.0f64).sqrt();
    assert!((deviation - expected).abs() < 1e-6 * expected, "{deviation} for {expected}");
    assert_eq!(cross_sectional_deviation(&device, select(&last)).unwrap(), None);
    let listwise = Loss::RankListwise { temperature: 1.0 };
    let none = |loss, indices| uninformed_loss(&device, select(indices), loss).unwrap();
    let expected = (3.0f64.ln() + 2.0f64.ln()) / 2.0;
    assert!((none(listwise, &all).unwrap() - expected).abs() < 1e-12);
    assert!((none(Loss::RankPairwise, &first).unwrap() - 2.0f64.ln()).abs() < 1e-12);
    assert_eq!((none(listwise, &last), none(Loss::Mse, &first)), (None, None));
}

#[test]
fn an_exported_model_predicts_the_nodes_of_the_graphs_asked_for() {
    let samples = market(20);
    let (mut trainer, _) = trained(&config(), &samples, &SampleRanges::from(0..12));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.safetensors");
    trainer.save_weights(&path).unwrap();
    let model = Model::new(samples.shape().clone(), config().model).unwrap();
    let compute = Compute { threads: 3, batch_size: 3 };
    let mut predictor = Predictor::open(&Device::cpu(), model, &path, compute).unwrap();
    let indices = SampleRanges::from_iter([17, 3, 10, 3, 12]);
    let selection = Selection { samples: &samples, indices: &indices };
    let (mut nodes, mut outputs) = (Vec::new(), Vec::new());
    let sink = |indices: &[usize], predictions: &[f32]| {
        assert_eq!(indices.len() * 2, predictions.len());
        nodes.extend_from_slice(indices);
        outputs.extend_from_slice(predictions);
        Ok::<(), Error>(())
    };
    predictor.predict(selection, sink).unwrap();
    let expected: Vec<usize> = indices.iter().flat_map(|graph| samples.graphs[graph].nodes.clone()).collect();
    assert_eq!(nodes, expected);

    let mut targets =
        megabatch_trainer::Batch::new(&Device::cpu().scope("test"), samples.shape(), nodes.len()).unwrap();
    targets.resize(nodes.len());
    samples.gather(&nodes, &mut targets).unwrap();
    let view = targets.view();
    let rows = outputs.chunks_exact(2).zip(view.targets().chunks_exact(2)).filter(|(_, targets)| !targets[1].is_nan());
    let errors: Vec<f64> =
        rows.flat_map(|(y, t)| [f64::from(y[0]) - f64::from(t[0]), f64::from(y[1]) - f64::from(t[1])]).collect();
    let mse = errors.iter().map(|error| error * error).sum::<f64>() / errors.len() as f64;
    let evaluation = trainer.evaluate(selection, None).unwrap();
    assert_eq!(evaluation.samples * 2, errors.len());
    assert!((evaluation.loss - mse).abs() < 1e-12 * mse, "{evaluation:?}");
    assert_eq!(predictor.evaluate(selection, Loss::Mse, None).unwrap(), evaluation);
    let information = evaluation.metrics.information.unwrap();
    let ranked = indices.iter().filter(|&graph| samples.labelled(graph) >= 2).count();
    assert!((1..5).contains(&ranked), "one has no label");
    assert_eq!(information.ic_graphs, [ranked; 2]);
    let json = serde_json::to_value(trainer.evaluate(selection, None).unwrap()).unwrap();
    for key in ["rmse", "ic", "ic_std", "ic_t", "rank_ic", "rank_ic_std", "rank_ic_t", "ic_graphs"] {
        assert_eq!(json[key].as_array().unwrap().len(), 2, "{key}");
    }

    let nothing =
        trainer.evaluate(Selection { indices: &SampleRanges::from_iter([10]), ..selection }, None).unwrap_err();
    assert!(matches!(nothing, Error::NothingLeft { part: "evaluation", before: 1, after: 0, .. }), "{nothing}");
}

#[test]
fn baselines_are_of_labelled_nodes_and_of_graphs() {
    let samples = market(20);
    let train = SampleRanges::from(0..14);
    let selection = Selection { samples: &samples, indices: &train };
    let (mut trainer, _) = trained(&config(), &samples, &train);
    let baselines = fit_numbers(&Device::cpu(), selection).unwrap();
    let evaluation = trainer.evaluate(selection, Some(&baselines)).unwrap();
    let linear = &evaluation.baselines["linear"];
    assert!(linear.rmse[0] < evaluation.baselines["mean"].rmse[0], "{evaluation:?}");
    assert!(linear.information.as_ref().unwrap().ic[0].unwrap() > 0.0);
    let mean = evaluation.baselines["mean"].information.as_ref().unwrap();
    assert_eq!((mean.ic[0], mean.ic_graphs[0]), (None, 0), "what is the same for all has no correlation");

    // Graphs whose target is linear in the sum, and in the mean, of what their nodes have.
    for (readout, share) in [(Readout::Sum, false), (Readout::Mean, true)] {
        let x = numbers(5, 60);
        let mut targets = Vec::new();
        let mut graphs = Vec::new();
        for size in [1, 2, 3, 4, 5, 1, 2, 3, 4, 5] {
            let nodes: Vec<usize> = (targets.len()..targets.len() + size).collect();
            let sum: f32 = nodes.iter().map(|node| x[node * 2] - 2.0 * x[node * 2 + 1]).sum();
            targets.extend(vec![0.5 + if share { sum / size as f32 } else { sum }; size]);
            graphs.push((nodes, Vec::new(), Vec::new(), 1));
        }
        let inner = InMemory::new(one_bar(2, 1), vec![x], targets).unwrap();
        let samples = GraphSamples::new(inner, 0, graphs);
        let indices = SampleRanges::from(0..10);
        let selection = Selection { samples: &samples, indices: &indices };
        let model = ModelConfig { encoder: Encoder::LastBar, readout: Some(readout), ..ModelConfig::default() };
        let (mut trainer, _) = trained(&Config { model, ..config() }, &samples, &indices);
        let baselines = fit_for(&Device::cpu(), selection, Some(readout), Loss::Mse).unwrap();
        let evaluation = trainer.evaluate(selection, Some(&baselines)).unwrap();
        assert!(evaluation.baselines["linear"].rmse[0] < 1e-5, "{readout:?}: {evaluation:?}");
        assert_eq!(evaluation.samples, 10);
    }
}
