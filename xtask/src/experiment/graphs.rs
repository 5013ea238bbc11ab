//! Citations and molecules: data that are graphs, with the recipes of the papers.

use anyhow::Result;

use super::dgcnn;
use super::runner::{Runner, mean_and_deviation, number};

/// "Graph attention networks" (2018), section 3.3, transductive: two layers, 8 heads of 8 units,
/// then one head a class; ELU; dropout 0.6 of inputs and attention; Adam with a rate of 0.005 and
/// L2 of 0.0005; patience 100.
const CORA: &[&str] = &[
    "model.graph_layers=2",
    "model.graph_heads=8",
    "model.graph_hidden=8",
    "model.graph_output=attention",
    "model.graph_dropout=0.6",
    "model.graph_attention_dropout=0.6",
    "training.loss=cross_entropy",
    "training.optimizer=adam",
    "training.lr=0.005",
    "training.weight_decay=0.0005",
    "training.clip_norm=none",
    "training.epochs=1000",
    "training.early_stopping=100",
    "gpu_optimization.batch_size=1",
];

/// Accuracy on the 1,000 test papers of Cora, over ten seeds.
pub(super) fn cora(runner: &Runner) -> Result<String> {
    let graphs = runner.file("cora.mbg");
    let input = runner.data("graphs/cora_plain");
    runner.ask(&["graph", "build", &input, "--kind", "edge-list", "--normalize-features", "--out", &graphs])?;
    let mut accuracies = Vec::new();
    for seed in 0..10 {
        let seed_setting = format!("training.seed={seed}");
        let answer = runner.train(&graphs, &format!("seed-{seed}"), &[CORA, &[&seed_setting]].concat())?;
        accuracies.push(number(&answer, "/evaluation/accuracy")?);
    }
    Ok(format!("Cora, accuracy on the test split over ten seeds: {} %", mean_and_deviation(&accuracies, 100.0)))
}

const MUTAG: &[&str] = &[
    "model.graph_layers=3",
    "model.graph_heads=4",
    "model.graph_hidden=16",
    "model.graph_dropout=0",
    "model.readout=sum",
    "training.loss=cross_entropy",
    "training.optimizer=adam",
    "training.lr=0.003",
    "training.weight_decay=0.0001",
    "training.epochs=200",
    "training.early_stopping=50",
    "gpu_optimization.batch_size=32",
    "data.folds=10",
];

/// The recipe of MUTAG for larger graphs: their mean, for less long.
const PROTEINS: &[&str] = &[
    "model.graph_layers=3",
    "model.graph_heads=4",
    "model.graph_hidden=16",
    "model.graph_dropout=0",
    "model.readout=mean",
    "training.loss=cross_entropy",
    "training.optimizer=adam",
    "training.lr=0.003",
    "training.weight_decay=0.0001",
    "training.epochs=100",
    "training.early_stopping=25",
    "gpu_optimization.batch_size=32",
    "data.folds=10",
];

/// Accuracy on the 188 molecules of MUTAG, each by a model that has not seen its fold.
pub(super) fn mutag(runner: &Runner) -> Result<String> {
    let graphs = runner.file("mutag.mbg");
    runner.ask(&["graph", "build", &runner.data("graphs/MUTAG_TU"), "--kind", "tu", "--out", &graphs])?;
    cross_validated(runner, "MUTAG", &graphs, MUTAG)
}

/// Accuracy on the 1,113 proteins of PROTEINS, each by a model that has not seen its fold.
pub(super) fn proteins(runner: &Runner) -> Result<String> {
    let (folder, graphs) = (runner.file("PROTEINS"), runner.file("proteins.mbg"));
    dgcnn::to_tu(&runner.data("graphs/dgcnn_txt/PROTEINS.txt.gz"), &folder, "PROTEINS")?;
    runner.ask(&["graph", "build", &folder, "--kind", "tu", "--out", &graphs])?;
    cross_validated(runner, "PROTEINS", &graphs, PROTEINS)
}

/// Accuracy over all folds, the model's beside that of the most frequent class where the answer has
/// it.
fn cross_validated(runner: &Runner, name: &str, graphs: &str, recipe: &[&str]) -> Result<String> {
    let answer = runner.train(graphs, "folds", &[recipe, &["data.fold_number=all"]].concat())?;
    let percent = |place: &str| -> Result<String> {
        let share = |what: &str| number(&answer, &format!("{place}/accuracy/{what}"));
        Ok(format!("{:.1} ± {:.1} %", 100.0 * share("mean")?, 100.0 * share("deviation")?))
    };
    let baseline =
        percent("/baselines/most_frequent").map_or(String::new(), |share| format!("; most frequent: {share}"));
    Ok(format!("{name}, accuracy over ten folds: {}{baseline}", percent("/model")?))
}

const MOLECULES: &[&str] = &[
    "model.graph_layers=3",
    "model.graph_heads=4",
    "model.graph_hidden=32",
    "model.readout=sum",
    "training.loss=huber",
    "training.huber_delta=5",
    "training.optimizer=adam",
    "training.lr=0.003",
    "training.lr_schedule=cosine",
    "training.weight_decay=0",
    "training.epochs=300",
    "gpu_optimization.batch_size=32",
    "data.split=[0.8, 0.1, 0.1]",
];

/// The error of the atomisation energies of a thousand small molecules, in kcal/mol, beside the
/// mean and a linear model on composition.
pub(super) fn molecules(runner: &Runner) -> Result<String> {
    let graphs = runner.file("gdb1k.mbg");
    let (input, targets) = (runner.data("molecules/gdb1k.sdf.gz"), runner.data("molecules/gdb1k.sdf.csv.gz"));
    runner.ask(&["graph", "build", &input, "--kind", "sdf", "--targets", &targets, "--out", &graphs])?;
    let (mut errors, mut baselines) = (Vec::new(), String::new());
    for seed in 0..3 {
        let seed_setting = format!("training.seed={seed}");
        let answer = runner.train(&graphs, &format!("seed-{seed}"), &[MOLECULES, &[&seed_setting]].concat())?;
        errors.push(number(&answer, "/evaluation/mae/0")?);
        let baseline = |name: &str| number(&answer, &format!("/evaluation/baselines/{name}/mae/0"));
        baselines = format!("the mean {:.1}, linear on composition {:.2}", baseline("mean")?, baseline("linear")?);
    }
    Ok(format!(
        "gdb1k, mean absolute error in kcal/mol over three seeds: {}; {baselines}",
        mean_and_deviation(&errors, 1.0)
    ))
}
