//! Training on graphs: on cross-sections of shares, on one graph whose nodes are classified, on many that are classified as wholes.

use std::fmt::Write as _;
use std::fs;

use safetensors::SafeTensors;
use serde_json::{Value, json};

use crate::stage::Stage;

const MODEL: &str =
    "--set model.hidden=4 --set model.graph_hidden=4 --set model.graph_heads=2 --set model.graph_layers=1";

/// Shares as series and graphs, and a run on both.
fn with_cross_sections() -> Stage {
    let stage = Stage::new();
    stage.succeeds("synth shares --shares 6 --days 200");
    let features = "--features log_return,range --target log_return --horizon 2";
    stage.succeeds(&format!("ingest shares --out shares.h5 --timeframes D1:5 {features}"));
    stage.succeeds("graph build shares --kind correlation --lookback 20 --min-observations 10 --k 2 --out shares.mbg");
    stage.succeeds(&format!(
        "train --data shares.h5 --out run --max-steps 6 --set model.graph=shares.mbg --set gpu_optimization.batch_size=8 {MODEL}"
    ));
    stage
}

#[test]
fn cross_sections_are_trained_on_evaluated_and_predicted_by_sample() {
    let stage = with_cross_sections();
    let plan: Value = serde_json::from_str(&stage.text("run/plan.json")).unwrap();
    assert_eq!((&plan["data"]["unit"], &plan["model"]["readout"]), (&json!("cross-section"), &json!("node")));
    let (units, samples) = (plan["data"]["units"].as_u64().unwrap(), plan["data"]["samples"].as_u64().unwrap());
    assert!(units < samples / 5, "{units} of {samples}");

    let evaluation = stage.succeeds("eval --run run");
    assert_eq!(evaluation["ic"].as_array().unwrap().len(), 2);
    assert_eq!(evaluation["ic_graphs"][0], plan["split"]["test"]);
    assert_eq!(evaluation["samples"].as_u64().unwrap(), 6 * plan["split"]["test"].as_u64().unwrap());
    let text = stage.said("eval --run run");
    assert!(text.contains("rank IC linear") && text.contains("at the first horizon, mean over"), "{text}");

    // Each day has its correlations and its time, and the report shows them with the graph of the last day.
    let days = evaluation["graphs"].as_array().unwrap();
    assert_eq!(days.len() as u64, plan["split"]["test"].as_u64().unwrap());
    let times: Vec<i64> = days.iter().map(|day| day["time_ns"].as_i64().unwrap()).collect();
    assert!(times.is_sorted() && times[0] >= plan["split"]["test_start_ns"].as_i64().unwrap(), "{times:?}");
    let ics: Vec<f64> = days.iter().filter_map(|day| day["ic"][0].as_f64()).collect();
    let (mean, told) = (ics.iter().sum::<f64>() / ics.len() as f64, evaluation["ic"][0].as_f64().unwrap());
    assert!((mean - told).abs() < 1e-12, "{mean} is not {told}");
    // Two days of returns of neighbouring days share one: t was mean / deviation · √days, as if
    // they did not.
    assert_eq!(evaluation["ic_lags"], json!([0, 1]));
    for (k, lag) in [(0, 0), (1, 1)] {
        let ics: Vec<f64> = days.iter().map(|day| day["ic"][k].as_f64().unwrap()).collect();
        let (count, mean) = (ics.len() as f64, ics.iter().sum::<f64>() / ics.len() as f64);
        let product = |distance: usize| -> f64 {
            ics.iter().zip(&ics[distance..]).map(|(early, late)| (early - mean) * (late - mean)).sum()
        };
        let sum = product(0) + if lag == 1 { product(1) } else { 0.0 };
        let (t, found) = (mean / (sum / (count * (count - 1.0))).sqrt(), evaluation["ic_t"][k].as_f64().unwrap());
        assert!((t - found).abs() < 1e-9, "horizon {k}: {found} is not {t}");
    }
    let page = stage.text("run/report.html");
    for part in ["id=\"information\"", "Rank IC by day", "id=\"graph\"", "6 instruments", "A01: "] {
        assert!(page.contains(part), "{part}: {page}");
    }

    // What is predicted of a sample does not depend on which others are asked for.
    stage.succeeds("predict --run run --out all.csv");
    stage.succeeds("predict --run run --samples 40..45 --out some.csv");
    let (all, some) = (stage.text("all.csv"), stage.text("some.csv"));
    assert_eq!(all.lines().count() as u64, 1 + samples);
    assert_eq!(some.lines().skip(1).collect::<Vec<_>>(), all.lines().skip(41).take(5).collect::<Vec<_>>());
    assert!(some.lines().nth(1).unwrap().contains(",A01,"), "{some}");
}

/// Walk-forward of a loss of ranks printed RMSE alone, of which `eval` says that it means nothing.
#[test]
fn folds_of_a_loss_of_ranks_are_told_by_their_coefficients() {
    let stage = with_cross_sections();
    let settings = format!("--set model.graph=shares.mbg --set gpu_optimization.batch_size=8 {MODEL}");
    let walk = "--set training.loss=rank_pairwise --set data.walk_forward=2 --max-steps 3";
    let answer = stage.succeeds(&format!("train --data shares.h5 --out walk {settings} {walk}"));
    for key in ["ic", "rank_ic"] {
        assert!(answer["model"][key][0]["mean"].is_number(), "{key}: {answer}");
        assert!(answer["t_over_folds"][key][1].is_number(), "{key}: {answer}");
    }
    assert_eq!((&answer["over_days"][0]["lag"], &answer["over_days"][1]["lag"]), (&json!(0), &json!(1)));
    let text = stage.said("eval --run walk");
    for part in ["rank IC linear", "deviation", "Over the days of all tests: rank IC "] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(!text.to_lowercase().contains("rmse"), "{text}");
    let page = stage.text("walk/report.html");
    assert!(page.contains("rank IC by fold") && page.contains("Rank IC by day"), "{page}");
    let report = stage.text("walk/fold-1/report.html");
    assert!(report.contains("<dt>Rank IC</dt>") && !report.contains("RMSE"), "{report}");

    stage.succeeds(&format!(
        "train --data shares.h5 --out one {settings} --set training.loss=rank_pairwise --max-steps 3"
    ));
    let compared = stage.succeeds("compare one walk");
    assert_eq!(compared["runs"][0]["evaluation"]["model"].as_object().unwrap().len(), 2, "{compared}");
}

#[test]
fn a_run_on_cross_sections_goes_on_where_it_stopped() {
    let stage = with_cross_sections();
    let settings = format!("--set model.graph=shares.mbg --set gpu_optimization.batch_size=8 {MODEL}");
    stage.succeeds(&format!("train --data shares.h5 --out parts --max-steps 3 --set training.max_steps=3 {settings}"));
    stage.succeeds("train --out parts --resume --max-steps 6");
    let weights = |run: &str| {
        stage.succeeds(&format!("export --run {run} --checkpoint last --out {run}.safetensors"));
        stage.read(&format!("{run}.safetensors"))
    };
    let parts = weights("parts");
    assert_eq!(parts, weights("run"));
    let tensors = SafeTensors::deserialize(&parts).unwrap();
    assert!(tensors.names().iter().any(|name| name.starts_with("graph.0.")), "{:?}", tensors.names());

    // Other graphs are other data.
    stage.succeeds("graph build shares --kind correlation --lookback 20 --min-observations 10 --k 3 --out shares.mbg");
    let [message, _] = stage.fails("train --out parts --resume --max-steps 8", 3);
    assert!(message.contains("these are not the samples that the run in parts was trained on"), "{message}");
}

#[test]
fn graphs_that_do_not_belong_to_the_data_are_refused() {
    let stage = with_cross_sections();
    stage.succeeds("synth other.h5 --samples 60 --timeframes M1:4 --features 3 --targets 2");
    for (line, part) in [
        ("train --data other.h5 --out no --set model.graph=shares.mbg", "is no series of several instruments"),
        ("train --data shares.mbg --out no", "have 0 features a node and 0 targets"),
        ("train --data shares.h5 --out no --set model.graph=absent.mbg", "absent.mbg"),
        ("train --data shares.mbg --out no --set model.graph=shares.mbg", "leave model.graph at none"),
    ] {
        let output = stage.run(line).failure();
        let message = String::from_utf8_lossy(&output.get_output().stderr).into_owned();
        assert!(message.contains(part), "{line}: {message}");
        assert!(!stage.path("no").exists(), "{line}");
    }
}

/// Twenty nodes in two groups. Only the neighbours' features tell a node's group: a model without edges is left to guess.
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

/// Twelve rings and twelve stars of five to ten nodes, as a TU dataset.
fn write_shapes(stage: &Stage) {
    let (mut edges, mut of_graph, mut labels, mut first) = (String::new(), String::new(), String::new(), 1);
    for graph in 0..24 {
        let (nodes, star) = (5 + graph / 4, graph % 2 == 1);
        for node in 0..nodes {
            writeln!(of_graph, "{}", graph + 1).unwrap();
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
    let files = [("A", edges), ("graph_indicator", of_graph), ("graph_labels", labels), ("node_labels", node_labels)];
    for (name, text) in files {
        stage.write(&format!("shapes/SHAPES_{name}.txt"), &text);
    }
}

#[test]
fn graphs_are_classified_fold_by_fold() {
    let stage = Stage::new();
    write_shapes(&stage);
    stage.succeeds("graph build shapes --kind tu --out shapes.mbg");
    let recipe = "--set training.loss=cross_entropy --set training.optimizer=adam --set training.lr=0.02 --set training.epochs=60 \
                  --set gpu_optimization.batch_size=8 --set data.folds=4 --set model.graph_layers=1";
    let train = |fold: usize| {
        stage.succeeds(&format!("train --data shapes.mbg --out fold-{fold} {recipe} --set data.fold={fold}"))
    };
    for fold in [0, 3] {
        let evaluation = train(fold)["evaluation"].clone();
        assert_eq!((&evaluation["samples"], &evaluation["accuracy"]), (&json!(6), &json!(1.0)), "{evaluation}");
    }
    stage.succeeds("predict --run fold-0 --out shapes.csv");
    assert_eq!(stage.text("shapes.csv").lines().count(), 1 + 24);

    // All folds of a file of graphs had to be trained one by one, and put together by hand.
    let all = stage.succeeds(&format!("train --data shapes.mbg --out all {recipe} --set data.fold=all"));
    assert_eq!((&all["kind"], all["folds"].as_array().unwrap().len()), (&json!("cross_validation"), 4));
    assert_eq!(all["model"]["accuracy"], json!({ "mean": 1.0, "deviation": 0.0 }), "{all}");
    let tested: u64 = all["folds"].as_array().unwrap().iter().map(|fold| fold["split"]["test"].as_u64().unwrap()).sum();
    assert_eq!(tested, 24);
    assert_eq!(all["folds"][3]["evaluation"], stage.succeeds("eval --run fold-3"));
    let text = stage.said("eval --run all");
    assert!(text.contains("accuracy 100.00 % ± 0.00 %") && text.contains("over 4 folds"), "{text}");
    assert!(stage.text("all/report.html").contains("accuracy by fold"));
    let saved: serde_json::Value = serde_json::from_str(&stage.text("all/cross-validation.json")).unwrap();
    assert_eq!(saved, all);
    let [message, _] = stage.fails("train --data shapes.mbg --out no --set data.fold=all", 2);
    assert!(message.contains("data.fold=all: expected a number of folds, such as data.folds=10"), "{message}");

    let [message, _] = stage.fails(&format!("train --data shapes.mbg --out no {recipe} --set data.fold=4"), 2);
    assert!(message.contains("data.fold=4 of data.folds=4 over 24 graphs"), "{message}");
}
