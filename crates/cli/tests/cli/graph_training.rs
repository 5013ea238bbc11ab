//! Training on graphs: on cross-sections of shares, on one graph whose nodes are classified, on
//! many that are classified as wholes.

use std::fmt::Write as _;
use std::fs;

use safetensors::SafeTensors;
use serde_json::{Value, json};

use crate::stage::Stage;

const MODEL: &str =
    "--set model.hidden=4 --set model.graph_hidden=4 --set model.graph_heads=2 --set model.graph_layers=1";

/// Shares as series and graphs, and a run on both.
pub(crate) fn with_cross_sections() -> Stage {
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

    // Each day has its correlations and its time, and the report shows them with the graph of the
    // last day.
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
    // Days before the first graph have no prediction. Their targets were blank too.
    let days: Vec<Vec<&str>> = all.lines().map(|line| line.split(',').collect()).collect();
    let place = |name: &str| days[0].iter().position(|column| *column == name).unwrap();
    let outside: Vec<_> = days[1..].iter().filter(|row| row[place("h1")] == "NaN").collect();
    assert!(!outside.is_empty() && outside.iter().all(|row| row[place("target2")] != "NaN"), "{outside:?}");
}

/// The data of a run were found from any folder, and its graphs only from the one of training.
#[test]
fn a_run_on_cross_sections_is_found_from_any_folder() {
    let stage = with_cross_sections();
    fs::create_dir(stage.path("below")).unwrap();
    let output = stage.command("eval --run ../run").current_dir(stage.path("below")).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));

    fs::rename(stage.path("shares.mbg"), stage.path("moved.mbg")).unwrap();
    for line in ["eval --run run", "train --out run --resume --max-steps 7"] {
        let [message, _] = stage.fails(line, 3);
        assert!(message.contains("shares.mbg: the graphs that run was trained with are not there"), "{message}");
    }
    stage.succeeds("train --out run --resume --max-steps 7 --set model.graph=moved.mbg");
    stage.succeeds("eval --run run");
}

/// Graphs that ended two years before the test were used for all of it, without a word.
#[test]
fn graphs_that_end_long_before_the_data_are_warned_of() {
    let stage = Stage::new();
    stage.succeeds("synth shares --shares 6 --days 200");
    fs::create_dir(stage.path("early")).unwrap();
    for name in ["A01", "A02", "B01", "B02", "C01", "D01"].map(|name| format!("{name}.csv")) {
        let whole = stage.text(&format!("shares/{name}"));
        let early: String = whole.lines().take(100).flat_map(|line| [line, "\n"]).collect();
        stage.write(&format!("early/{name}"), &early);
    }
    let features = "--features log_return,range --target log_return --horizon 2";
    stage.succeeds(&format!("ingest shares --out shares.h5 --timeframes D1:5 {features}"));
    stage.succeeds("graph build early --kind correlation --lookback 20 --min-observations 10 --k 2 --out early.mbg");
    let warning = "samples come long after the last graph of ";
    let settings = format!(
        "--data shares.h5 --max-steps 2 --set model.graph=early.mbg --set gpu_optimization.batch_size=8 {MODEL}"
    );
    let plan = stage.succeeds(&format!("plan {settings}"));
    assert!(plan["warnings"].to_string().contains(warning), "{plan}");
    let train = format!("train --out run {settings}");
    for line in [&train[..], "eval --run run", "predict --run run --out all.csv"] {
        let output = stage.run(line).success().get_output().clone();
        let told = String::from_utf8(output.stderr).unwrap();
        assert!(told.contains(warning), "{line}: {told}");
    }
}

/// `eval` of an LSTM alone over shares had no IC, so that nothing told if its graph helps.
#[test]
fn a_model_without_a_graph_has_the_coefficients_of_each_day_too() {
    let stage = with_cross_sections();
    stage.succeeds("train --data shares.h5 --out alone --max-steps 6 --set model.hidden=4");
    let evaluation = stage.succeeds("eval --run alone");
    assert_eq!(
        (&evaluation["ic_lags"], &evaluation["graphs"][0]["ic"].as_array().unwrap().len()),
        (&json!([0, 1]), &2)
    );
    let times: Vec<i64> =
        evaluation["graphs"].as_array().unwrap().iter().map(|day| day["time_ns"].as_i64().unwrap()).collect();
    assert!(times.is_sorted_by(|a, b| a < b), "{times:?}");
    assert_eq!(evaluation["samples"].as_u64().unwrap(), 6 * times.len() as u64);
    // In training and after it, alike.
    let in_training: Value = serde_json::from_str(&stage.text("alone/evaluation.json")).unwrap();
    assert_eq!(in_training["ic"], evaluation["ic"]);
    let text = stage.said("eval --run alone");
    assert!(text.contains("correlations of predictions and targets within each day"), "{text}");
    assert!(text.contains("mean, no change: the same for all instruments"), "{text}");
    assert!(stage.text("alone/report.html").contains("Rank IC by day"));
}

/// The ranks of the day that has just closed were not to be had: its targets lie ahead, so that it
/// was no sample. They are those that the day has once its targets are known.
#[test]
fn the_latest_days_are_predicted_as_once_their_targets_are_known() {
    let stage = Stage::new();
    stage.succeeds("synth shares --shares 6 --days 200");
    let names = ["A01", "A02", "B01", "B02", "C01", "D01"].map(|name| format!("{name}.csv"));
    fs::create_dir(stage.path("known")).unwrap();
    for name in &names {
        let whole = stage.text(&format!("shares/{name}"));
        // One share ends long before the others.
        let rows = whole.lines().count() - if name == "B01.csv" { 40 } else { 2 };
        let known: String = whole.lines().take(rows).flat_map(|line| [line, "\n"]).collect();
        fs::write(stage.path(&format!("known/{name}")), known).unwrap();
    }
    let features = "--features log_return,range --target log_return --horizon 2";
    stage.succeeds(&format!("ingest known --out shares.h5 --timeframes D1:5 {features}"));
    stage.succeeds("graph build known --kind correlation --lookback 20 --min-observations 10 --k 2 --out shares.mbg");
    let graph = format!("--set model.graph=shares.mbg --set gpu_optimization.batch_size=8 {MODEL}");
    stage.succeeds(&format!("train --data shares.h5 --out run --max-steps 6 {graph}"));
    stage.succeeds("train --data shares.h5 --out alone --max-steps 6 --set model.hidden=4");
    for run in ["run", "alone"] {
        let told = stage.succeeds(&format!("predict --run {run} --samples latest --out {run}-latest.csv"));
        assert_eq!(told["predictions"], 10, "two days of five shares: {told}");
        let notes = told["notes"].to_string();
        assert!(notes.contains("10 samples from ") && notes.contains("bars of B01 end earlier"), "{notes}");
    }
    for name in names.iter().filter(|name| *name != "B01.csv") {
        fs::copy(stage.path(&format!("shares/{name}")), stage.path(&format!("known/{name}"))).unwrap();
    }
    stage.succeeds("ingest --append known --out shares.h5");
    for run in ["run", "alone"] {
        stage.succeeds(&format!("predict --run {run} --force --out {run}.csv"));
        // Time, instrument and values.
        let rows = |file: &str| -> Vec<String> {
            let numbered = stage.text(file);
            numbered.lines().skip(1).map(|line| line.split_once(',').unwrap().1.to_owned()).collect()
        };
        let (latest, all) = (rows(&format!("{run}-latest.csv")), rows(&format!("{run}.csv")));
        assert_eq!(latest.len(), 10);
        // The targets, which are known now, come after them.
        let is_known = |row: &String| all.iter().any(|known| known.starts_with(&format!("{row},")));
        assert!(latest.iter().all(is_known), "{run}: {latest:?}");
    }
    let [message, _] = stage.fails("predict --run alone --samples latest --data shares.mbg --out x.csv", 3);
    assert!(message.contains("a file of graphs"), "{message}");
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
    assert!(message.contains("shares.mbg: not the data that the run in parts was trained on"), "{message}");
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
    let [message, _] = stage.fails("train --data shapes.mbg --out no --set data.fold_number=all", 2);
    assert!(message.contains("data.fold_number=all: expected a number of folds, such as data.folds=10"), "{message}");

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

/// `training.rank_temperature` was 1, a hundred times the spread of log returns: the loss stayed at
/// ln 87 for 87 shares.
#[test]
fn the_temperature_of_ranks_is_the_spread_of_targets_by_default() {
    let stage = with_cross_sections();
    let settings = format!(
        "--set model.graph=shares.mbg --set gpu_optimization.batch_size=8 {MODEL} --set training.loss=rank_listwise"
    );
    let train = |run: &str, more: &str| {
        stage.succeeds(&format!(
            "train --data shares.h5 --out {run} {settings} --set training.lr=0.01 --max-steps 20 {more}"
        ))
    };
    let auto = train("auto", "");
    let config = stage.text("auto/config.yaml");
    let kept = config.lines().find_map(|line| line.trim().strip_prefix("rank_temperature: ")).unwrap();
    let temperature: f64 = kept.parse().unwrap();
    assert!((1e-4..0.2).contains(&temperature), "{temperature}");
    let told = auto["notes"].to_string();
    assert!(told.contains(&format!("training.rank_temperature is {kept}")), "{told}");
    stage.succeeds("train --out auto --resume --max-steps 21");
    assert_eq!(stage.succeeds("eval --run auto")["samples"], auto["evaluation"]["samples"]);

    let far = train("far", "--set training.rank_temperature=1000");
    let warning = far["warning"].as_str().unwrap();
    assert!(warning.contains("is no better than 1.79"), "{warning}");
    assert!(warning.contains("training.rank_temperature is 1000"), "{warning}");
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

/// `eval` and `predict` blamed the series where the graphs between its samples had changed, and
/// went on with exit code 0.
#[test]
fn a_changed_graph_file_is_named_and_not_evaluated_on() {
    let stage = with_cross_sections();
    stage.succeeds("graph build shares --kind correlation --lookback 20 --min-observations 10 --k 3 --out shares.mbg");
    for line in ["eval --run run", "eval --run run --data shares.h5", "predict --run run --out p.csv"] {
        let [message, _] = stage.fails(line, 3);
        assert!(message.contains("shares.mbg: changed since run was trained on it"), "{line}: {message}");
        assert!(message.contains("--force") && !message.contains("shares.h5"), "{line}: {message}");
        let assert = stage.run(&format!("{line} --force")).success();
        let told = String::from_utf8_lossy(&assert.get_output().stderr).into_owned();
        assert!(told.contains("shares.mbg: changed since run was trained on it"), "{line}: {told}");
    }
    let [message, _] = stage.fails("train --out run --resume --max-steps 8", 3);
    assert!(message.contains("shares.mbg: not the data that the run in run was trained on"), "{message}");
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
