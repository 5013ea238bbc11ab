//! Training on graphs: on one whose nodes are classified, on many that are classified as wholes.

use std::fmt::Write as _;
use std::fs;

use serde_json::{Value, json};

use crate::stage::Stage;

/// Settings of a small model over graphs.
pub(crate) const MODEL: &str =
    "--set model.hidden=4 --set model.graph_hidden=4 --set model.graph_heads=2 --set model.graph_layers=1";

/// Twenty nodes in two groups. Only the neighbours' features tell a node's group: a model without
/// edges is left to guess.
fn write_groups(stage: &Stage) {
    let (mut edges, mut features, mut labels) =
        ("src,dst\n".to_owned(), "node,a,b\n".to_owned(), "node,label,split\n".to_owned());
    for node in 0..40 {
        let group = node % 2;
        // The first two nodes of each group carry its mark, and send it to all others.
        let (a, b) = if node < 4 { (1 - group, group) } else { (0, 0) };
        writeln!(features, "n{node},{a},{b}").unwrap();
        writeln!(edges, "n{group},n{node}\nn{},n{node}", group + 2).unwrap();
        let split = ["train", "val", "test"][node / 2 % 3];
        writeln!(labels, "n{node},{},{split}", ["even", "odd"][group]).unwrap();
    }
    fs::create_dir(stage.path("groups")).unwrap();
    for (name, text) in [("edges", edges), ("features", features), ("labels", labels)] {
        stage.write(&format!("groups/{name}.csv"), &text);
    }
}

#[test]
fn nodes_are_classified_by_their_neighbours() {
    let stage = Stage::new();
    write_groups(&stage);
    stage.succeeds("graph build groups --kind edge-list --out groups.mbg");
    let recipe = "--set training.loss=cross_entropy --set training.optimizer=adam --set training.lr=0.05 --set training.epochs=60 \
                  --set gpu_optimization.batch_size=1 --set model.graph_output=attention";
    let train = |run: &str, more: &str| {
        stage.succeeds(&format!("train --data groups.mbg --out {run} {recipe} {more}"))["evaluation"].clone()
    };
    let seen = train("seen", "--set model.graph_layers=1");
    assert_eq!((&seen["accuracy"], &seen["split"]), (&json!(1.0), &json!("test")));
    let blind = train("blind", "--set model.graph_layers=0 --set model.graph_output=linear");
    assert!(blind["accuracy"].as_f64().unwrap() < 0.9, "{blind}");
}

/// Rings and stars of five to ten nodes, as a TU dataset.
pub(crate) fn write_shapes(stage: &Stage, graphs: usize) {
    let (mut edges, mut indicators, mut labels, mut first) = (String::new(), String::new(), String::new(), 1);
    for graph in 0..graphs {
        let (nodes, star) = (5 + graph / 4 % 6, graph % 2 == 1);
        for node in 0..nodes {
            writeln!(indicators, "{}", graph + 1).unwrap();
            let (from, to) = (first + node, if star { first } else { first + (node + 1) % nodes });
            if from != to {
                writeln!(edges, "{from}, {to}\n{to}, {from}").unwrap();
            }
        }
        writeln!(labels, "{}", i32::from(star)).unwrap();
        first += nodes;
    }
    let degrees = edges.lines().fold(vec![0; first], |mut degrees, edge| {
        degrees[edge.split(", ").next().unwrap().parse::<usize>().unwrap()] += 1;
        degrees
    });
    let node_labels: String = degrees[1..].iter().map(|&degree: &i32| format!("{}\n", degree.min(3))).collect();
    fs::create_dir(stage.path("shapes")).unwrap();
    let files = [("A", edges), ("graph_indicator", indicators), ("graph_labels", labels), ("node_labels", node_labels)];
    for (name, text) in files {
        stage.write(&format!("shapes/SHAPES_{name}.txt"), &text);
    }
}

#[test]
fn graphs_are_classified_fold_by_fold() {
    let stage = Stage::new();
    write_shapes(&stage, 24);
    stage.succeeds("graph build shapes --kind tu --out shapes.mbg");
    let recipe = "--set training.loss=cross_entropy --set training.optimizer=adam --set training.lr=0.02 --set training.epochs=60 \
                  --set gpu_optimization.batch_size=8 --set data.folds=4 --set model.graph_layers=1";
    let train = |fold: usize| {
        stage.succeeds(&format!("train --data shapes.mbg --out fold-{fold} {recipe} --set data.fold_number={fold}"))
    };
    for fold in [1, 4] {
        let evaluation = train(fold)["evaluation"].clone();
        assert_eq!((&evaluation["samples"], &evaluation["accuracy"]), (&json!(6), &json!(1.0)), "{evaluation}");
    }
    stage.succeeds("predict --run fold-1 --out shapes.csv");
    assert_eq!(stage.text("shapes.csv").lines().count(), 1 + 24);

    // All folds of a file of graphs had to be trained one by one, and put together by hand.
    let all = stage.succeeds(&format!("train --data shapes.mbg --out all {recipe} --set data.fold_number=all"));
    assert_eq!((&all["kind"], all["folds"].as_array().unwrap().len()), (&json!("cross_validation"), 4));
    assert_eq!(all["model"]["accuracy"], json!({ "mean": 1.0, "deviation": 0.0 }), "{all}");
    let tested: u64 = all["folds"].as_array().unwrap().iter().map(|fold| fold["split"]["test"].as_u64().unwrap()).sum();
    assert_eq!(tested, 24);
    assert_eq!(all["folds"][3]["evaluation"], stage.succeeds("eval --run fold-4"));
    let text = stage.said("eval --run all");
    assert!(text.contains("accuracy 100 % ± 0.00 %") && text.contains("over 4 folds"), "{text}");
    assert!(stage.text("all/report.html").contains("accuracy by fold"));
    let saved: serde_json::Value = serde_json::from_str(&stage.text("all/cross-validation.json")).unwrap();
    assert_eq!(saved, all);
    for command in ["plan --data shapes.mbg", "train --data shapes.mbg --out no"] {
        let [message, _] = stage.fails(&format!("{command} --set data.fold_number=all"), 2);
        assert!(
            message.contains("data.fold_number=all: expected a number of folds, such as data.folds=10"),
            "{message}"
        );
    }

    let [message, _] = stage.fails(&format!("train --data shapes.mbg --out no {recipe} --set data.fold_number=5"), 2);
    assert!(message.contains("data.fold_number=5 of data.folds=4 over 24 graphs"), "{message}");
}

/// Files of molecules are often sorted by class. In runs of a batch, 4,110 of them ended at a cross
/// entropy of 1.35 after twelve epochs, where a full shuffle ended at 0.58.
#[test]
fn what_has_nothing_in_common_is_shuffled_fully_by_default() {
    let stage = Stage::new();
    write_shapes(&stage, 24);
    stage.succeeds("graph build shapes --kind tu --out shapes.mbg");
    stage.succeeds("synth windows.h5 --layout windows --samples 90 --steps 10 --features 2 --targets 1");
    stage.succeeds("synth series.h5 --samples 90 --timeframes M1:10 --features 2 --targets 1");
    stage.succeeds("synth apart.h5 --layout windows --samples 9 --steps 1 --features 2 --targets 1");
    let apart = (1, "neighbours have nothing in common");
    for (data, (run_length, reason)) in [
        ("shapes.mbg", apart),
        ("windows.h5", apart),
        ("apart.h5", apart),
        ("series.h5", (16, "windows of neighbours overlap")),
    ] {
        let purge = if data.ends_with(".h5") { "--set data.purge=0s" } else { "" };
        let plan = |more: &str| format!("plan --data {data} --set gpu_optimization.batch_size=16 {purge} {more}");
        let auto = stage.succeeds(&plan(""));
        assert_eq!((&auto["run_length"], &auto["run_length_reason"]), (&json!(run_length), &json!(reason)), "{data}");
        let text = stage.said(&plan(""));
        assert!(text.contains(&format!("runs of {run_length} (auto: {reason})")), "{text}");
        let batch = stage.succeeds(&plan("--set training.run_length=batch"));
        // A batch has no more than the samples to train on.
        let whole = batch["split"]["train"].as_u64().unwrap().min(16);
        assert_eq!((&batch["run_length"], &batch["run_length_reason"]), (&json!(whole), &json!(null)), "{data}");
    }
    // A run from before goes on as it began: its configuration says `batch`.
    let settings = "--set gpu_optimization.batch_size=8 --set training.max_steps=4";
    stage.succeeds(&format!(
        "train --data shapes.mbg --out old {settings} --set training.run_length=batch --max-steps 2"
    ));
    stage.succeeds("train --out old --resume --max-steps 4");
    stage.succeeds(&format!("train --data shapes.mbg --out new {settings} --max-steps 2"));
    stage.succeeds("train --out new --resume --max-steps 4");
    let kept: Value = serde_json::from_str(&stage.text("old/plan.json")).unwrap();
    assert_eq!(kept["run_length"], 8);
}

/// The shapes with a number for each graph, as a table of energies is.
fn write_energies(stage: &Stage, columns: usize) {
    write_shapes(stage, 24);
    let row = |graph: usize| vec![format!("{}", -400.0 - graph as f64); columns].join(", ") + "\n";
    stage.write("shapes/SHAPES_graph_attributes.txt", &(0..24).map(row).collect::<String>());
    stage.succeeds("graph build shapes --kind tu --out energies.mbg");
}

/// `train --data tu.mbg --set model.readout=node` ended with a panic in step 1: "2157 terms of the
/// loss in step 1, and 64 as `Graphs::labelled` has it", exit code 101, and left half a run; `plan`
/// accepted it.
#[test]
fn a_readout_that_is_not_that_of_the_targets_is_refused_before_the_run() {
    let stage = Stage::new();
    write_shapes(&stage, 24);
    stage.succeeds("graph build shapes --kind tu --out shapes.mbg");
    for loss in ["mse", "cross_entropy"] {
        for command in ["plan", "train --out run"] {
            let line = format!("{command} --data shapes.mbg --set model.readout=node --set training.loss={loss}");
            let [message, _] = stage.fails(&line, 2);
            assert!(message.contains("model.readout is node: expected mean, sum or max"), "{line}: {message}");
            assert!(message.contains("have none of their own; or leave it at auto"), "{line}: {message}");
        }
    }
    write_groups(&stage);
    stage.succeeds("graph build groups --kind edge-list --out groups.mbg");
    let [message, _] = stage.fails("train --out run --data groups.mbg --set model.readout=sum", 2);
    assert!(message.contains("model.readout is sum: expected node: each node has targets of its own"), "{message}");
    assert!(!stage.path("run").exists());
}

/// `plan` accepted them, with a GPU too, and training of several folds left a folder that blocked
/// the corrected command.
#[test]
fn settings_that_models_over_graphs_do_not_have_are_refused_by_plan_and_leave_no_folder() {
    let stage = Stage::new();
    write_shapes(&stage, 24);
    stage.succeeds("graph build shapes --kind tu --out shapes.mbg");
    for (setting, expected) in [
        ("training.precision=bf16", "expected fp32 for a model over graphs"),
        ("gpu_optimization.use_amp=true", "expected fp32 for a model over graphs"),
        ("training.gradient_checkpointing=true", "expected false for a model without LSTMs"),
        ("training.carry_state=true", "training.carry_state is true: expected false for a model over graphs"),
        ("training.loss_on=every_step", "training.loss_on is every_step: expected last_step for a model over graphs"),
    ] {
        for command in [
            "plan",
            "plan --device cuda:0 --memory-gb 8",
            "train --out run",
            "train --out run --set data.folds=3 --set data.fold_number=all",
        ] {
            let line = format!("{command} --data shapes.mbg --set {setting}");
            let [message, _] = stage.fails(&line, 2);
            assert!(message.contains(expected) && !message.contains("convert"), "{line}: {message}");
            assert!(!stage.path("run").exists(), "{line}");
        }
    }
    stage.succeeds("synth series.h5 --samples 90 --timeframes M1:10 --features 2 --targets 1");
    let line = "train --out run --data series.h5 --set data.folds=3 --set data.fold_number=all";
    let [message, _] = stage.fails(line, 2);
    assert!(message.contains("would be split as if it were not set"), "{message}");
    assert!(!stage.path("run").exists());
}

/// Energies with `--set training.loss=cross_entropy` gave "validation loss 0.000000, Accuracy
/// 100.00 %", and two columns of them a loss of -3,409.
#[test]
fn cross_entropy_of_numbers_that_are_no_probabilities_is_refused_before_the_run() {
    for columns in [1, 2] {
        let stage = Stage::new();
        write_energies(&stage, columns);
        for command in ["plan", "train --out run"] {
            let line = format!("{command} --data energies.mbg --set training.loss=cross_entropy");
            let [message, _] = stage.fails(&line, 3);
            for part in [
                "energies.mbg: graph 0: targets are -400",
                "expected the probabilities of two classes or more",
                "set training.classes where",
            ] {
                assert!(message.contains(part), "{line}: {message}");
            }
        }
        assert!(!stage.path("run").exists());
        let text = stage.said("plan --data energies.mbg");
        assert!(text.contains("loss      mse; targets: a number"), "{text}");
    }
}

/// `predict` of such a run wrote the logits as `h1,h2`, and spoke of "2 horizons".
#[test]
fn a_classifier_of_graphs_predicts_the_class_and_its_probabilities() {
    let stage = Stage::new();
    write_shapes(&stage, 24);
    stage.succeeds("graph build shapes --kind tu --out shapes.mbg");
    stage.succeeds(&format!("train --data shapes.mbg --out run --max-steps 2 {MODEL}"));
    let said = stage.said("predict --run run --out shapes.csv");
    assert_eq!(said.lines().next(), Some("shapes.csv: 24 predictions of 1 target"));
    let csv = stage.text("shapes.csv");
    let mut lines = csv.lines();
    assert_eq!(lines.next(), Some("sample,h1,h1_p0,h1_p1,target1,target1_value,target2_value"));
    for line in lines {
        let fields: Vec<f64> = line.split(',').map(|field| field.parse().unwrap()).collect();
        assert!((fields[2] + fields[3] - 1.0).abs() < 1e-6, "{line}");
        assert_eq!(fields[1], f64::from(u8::from(fields[3] > fields[2])), "{line}");
    }
    // The sizes are those of the weights.
    stage.succeeds("export --run run --out model.safetensors");
    stage.succeeds("import model.safetensors --data shapes.mbg --out imported");
    assert!(stage.text("imported/config.yaml").contains("graph_hidden: 4"));
    let [message, _] = stage.fails("export --run run --out model.onnx", 2);
    assert!(message.contains("run: its samples are graphs, and only"), "{message}");
    let answer = stage.succeeds("predict --run run --out shapes.h5");
    assert_eq!((&answer["named"], &answer["horizons"]), (&json!(["p0", "p1"]), &json!(1)));
}

/// The text of a page without its style and its tags.
fn visible(html: &str) -> String {
    let body = html.split_once("</style>").unwrap().1;
    body.split('<').map(|part| part.split_once('>').map_or(part, |(_, text)| text)).collect::<Vec<_>>().join(" ")
}

/// A TU dataset was learnt with `mse` on its one-hot labels without a remark, and its plan and
/// report spoke of bars, horizons, windows, a split by time, a purge, "Validation begins never" and
/// "no change".
#[test]
fn graphs_are_spoken_of_in_their_own_words_and_labels_are_learnt_as_classes() {
    let stage = Stage::new();
    write_shapes(&stage, 24);
    stage.succeeds("graph build shapes --kind tu --out shapes.mbg");
    let plan = stage.said("plan --data shapes.mbg --set data.folds=4");
    for part in [
        "24 graphs of ",
        "A node has 3 features, and a graph 2 targets.",
        "Split by chance into 4 folds",
        "loss      cross_entropy; targets: the probabilities of two classes or more",
    ] {
        assert!(plan.contains(part), "{part}: {plan}");
    }
    let trained = stage.said(&format!("train --data shapes.mbg --out run --max-steps 3 --set data.folds=4 {MODEL}"));
    assert!(trained.contains("of 6 graphs; most frequent: 50.0 %."), "{trained}");
    let config = stage.text("run/config.yaml");
    assert!(config.contains("loss: cross_entropy"), "{config}");
    let evaluation = stage.succeeds("eval --run run");
    assert_eq!(evaluation["baselines"]["most_frequent"]["accuracy"], json!(0.5));

    let numbers = Stage::new();
    write_energies(&numbers, 1);
    numbers.succeeds(&format!("train --data energies.mbg --out run --max-steps 3 {MODEL}"));
    let errors = numbers.succeeds("eval --run run");
    assert!(errors["baselines"]["no_change"].is_null() && errors["baselines"]["mean"].is_object(), "{errors}");
    assert_eq!(errors["direction_accuracy"], json!([null]));
    // The log had that of the signs of energies.
    let validations = numbers.metrics("run", "validation");
    assert!(!validations.is_empty());
    for validation in validations {
        assert_eq!(validation["metrics"]["direction_accuracy"], json!([null]));
    }
    let report = |stage: &Stage| visible(&stage.text("run/report.html")).to_lowercase();
    let texts = [
        plan,
        numbers.said("plan --data energies.mbg"),
        stage.said("eval --run run"),
        numbers.said("eval --run run"),
        report(&stage),
        report(&numbers),
    ];
    for text in texts {
        for word in [
            "horizon",
            " bars",
            "never",
            "as windows",
            "purge leaves",
            "by time",
            "direction",
            "no change",
            "samples (",
        ] {
            assert!(!text.contains(word), "{word}: {text}");
        }
    }
    let remark = stage.said("plan --data shapes.mbg --set training.loss=mse");
    assert!(remark.contains("training.loss mse learns the class labels"), "{remark}");
}

/// Graphs without nodes passed `graph build`, `graph verify` and `plan`, and ended a training.
#[test]
fn graphs_without_nodes_are_told_of_before_training() {
    let stage = Stage::new();
    write_shapes(&stage, 24);
    let labels = stage.text("shapes/SHAPES_graph_labels.txt");
    stage.write("shapes/SHAPES_graph_labels.txt", &(labels + "1\n"));
    let built = stage.said("graph build shapes --kind tu --out shapes.mbg");
    assert!(built.contains("1 of the graphs have no nodes, and no model is trained on such: 25"), "{built}");
    for command in ["graph verify shapes.mbg", "plan --data shapes.mbg", "train --data shapes.mbg --out run"] {
        let [message, _] = stage.fails(command, 3);
        assert!(message.contains("shapes.mbg: graph 25 has no nodes, as 1 of the 25 graphs; leave"), "{message}");
    }
    assert!(!stage.path("run").exists());
    let header = "none\n  made up\n\n  0  0  0  0  0  0  0  0  0  0999 V2000\nM  END\n$$$$\n";
    stage.write("none.sdf", header);
    let [message, _] = stage.fails("graph build none.sdf --kind sdf --out none.mbg", 3);
    assert!(message.contains("none.sdf: line 4, column 1: expected an atom at least"), "{message}");
}
