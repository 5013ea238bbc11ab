//! Training that walks forward: a run a fold, and their errors together.

use serde_json::Value;

use crate::stage::{SMALL, Stage, dataset, numbers};

/// Three tests of ten samples each.
const WALK: &str = "--set data.walk_forward=3 --set training.epochs=2 --set data.purge=0s";

#[test]
fn every_fold_is_a_run_and_the_errors_come_together() {
    let stage = Stage::with_series();
    let answer = stage.succeeds(&format!("train --data series.h5 --out run {WALK} {SMALL}"));
    let saved: Value = serde_json::from_str(&stage.text("run/walk-forward.json")).unwrap();
    assert_eq!(saved, answer);
    let folds = answer["folds"].as_array().unwrap();
    let counts = |name: &str| folds.iter().map(|fold| fold["split"][name].as_u64().unwrap()).collect::<Vec<_>>();
    assert_eq!((counts("train"), counts("test")), (vec![140, 150, 160], vec![10; 3]));
    let mut rmse = Vec::new();
    for (n, fold) in (1..).zip(folds) {
        assert_eq!(fold["fold"], n);
        assert_eq!(fold["evaluation"], stage.succeeds(&format!("eval --run run/fold-{n}")));
        assert!(stage.text(&format!("run/fold-{n}/report.html")).contains("Loss by step"));
        rmse.push(numbers(&fold["evaluation"]["rmse"])[0]);
    }
    let mean = rmse.iter().sum::<f64>() / 3.0;
    let deviation = (rmse.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / 2.0).sqrt();
    let rmse = &answer["model"]["rmse"][0];
    for (name, expected) in [("mean", mean), ("deviation", deviation)] {
        assert!((rmse[name].as_f64().unwrap() - expected).abs() < 1e-12, "{rmse}");
    }
    assert!(answer["baselines"]["linear"]["mae"][1]["mean"].is_number(), "{answer}");

    // `train` said of it that it "ended before its first checkpoint".
    let [message, _] = stage.fails(&format!("train --data series.h5 --out run {WALK} {SMALL}"), 2);
    assert!(
        message.starts_with("run: holds a finished walk-forward run, whose errors are in walk-forward.json"),
        "{message}"
    );

    // `eval --run run` was refused, and there was no page of all folds.
    let evaluated = stage.succeeds("eval --run run");
    assert_eq!((&evaluated["model"], &evaluated["baselines"]), (&answer["model"], &answer["baselines"]));
    let text = stage.said("eval --run run");
    assert!(text.contains("deviation") && text.contains("mean ± deviation over 3 folds"), "{text}");
    assert!(stage.text("run/report.html").contains("rmse by fold"));
    // `eval --run run --int8` was refused.
    let int8 = stage.succeeds("eval --run run --int8");
    for (n, fold) in (1..).zip(int8["folds"].as_array().unwrap()) {
        let alone = stage.succeeds(&format!("eval --run run/fold-{n} --int8"));
        assert!(fold["int8"].is_object() && fold["int8"] == alone["int8"], "{fold}");
        assert_eq!(fold["evaluation"]["rmse"], alone["rmse"]);
    }
    let text = stage.said("eval --run run --int8");
    assert!(text.contains("over 3 folds") && text.contains("\nfold 3:\nRMSE in eight bits "), "{text}");
    for samples in ["--samples 0..3", "--split train"] {
        let [message, _] = stage.fails(&format!("predict --run run {samples} --out p.csv"), 2);
        let told = "has a model a fold; name one, such as run/fold-1, or run/fold-3, the last, for the latest samples";
        assert!(message.contains(told), "{message}");
    }
    stage.succeeds(&format!("train --data series.h5 --out one {WALK} {SMALL} --set data.walk_forward_number=2"));
    assert!(stage.checkpoint("one", 20) == stage.checkpoint("run/fold-2", 20), "a fold is what it is alone");
}

/// `predict --run run` was refused, and `run.predict()` in Python predicted the tests of all folds.
#[test]
fn the_model_of_each_fold_predicts_its_own_test() {
    let stage = Stage::with_series();
    stage.succeeds(&format!("train --data series.h5 --out run {WALK} {SMALL}"));
    let mut expected = Vec::new();
    for fold in 1..=3 {
        stage.succeeds(&format!("predict --run run/fold-{fold} --split test --out one.csv"));
        let rows = stage.text("one.csv");
        let (header, rows) = rows.split_once('\n').unwrap();
        if fold == 1 {
            expected.push(header.replacen("sample", "sample,fold", 1));
        }
        expected.extend(rows.lines().map(|row| row.replacen(',', &format!(",{fold},"), 1)));
    }
    for split in ["", "--split test"] {
        let answer = stage.succeeds(&format!("predict --run run {split} --out all.csv"));
        assert_eq!((&answer["folds"], &answer["samples"]), (&3.into(), &30.into()));
        assert_eq!(stage.text("all.csv").lines().collect::<Vec<_>>(), expected, "{split}");
    }
    let text = stage.said("predict --run run --out all.h5");
    let told = " by the models of 3 folds, each for the test of its own";
    assert!(text.starts_with("all.h5: 30 predictions of ") && text.contains(told), "{text}");
    assert_eq!(dataset::<i32>(&stage.path("all.h5"), "fold").1, [[1; 10], [2; 10], [3; 10]].concat());
}

#[test]
fn a_walk_that_was_interrupted_goes_on_with_the_fold_that_it_was_in() {
    let stage = Stage::with_series();
    let more = "--set data.walk_forward_window=sliding --set data.walk_forward_overlap=0.5";
    let answer = stage.succeeds(&format!("train --data series.h5 --out run {WALK} {SMALL} {more}"));
    let names = [("run/fold-2", 18), ("run/fold-3", 18)];
    let whole = names.map(|(run, step)| stage.checkpoint(run, step));
    // What a process leaves that is killed in the second epoch of the second fold.
    for gone in ["run/fold-3", "run/fold-2/checkpoints/step-00000018"] {
        std::fs::remove_dir_all(stage.path(gone)).unwrap();
    }
    for gone in ["run/fold-2/evaluation.json", "run/walk-forward.json"] {
        std::fs::remove_file(stage.path(gone)).unwrap();
    }
    let [message, _] = stage.fails(&format!("train --data series.h5 --out run {WALK} {SMALL}"), 2);
    assert!(message.starts_with("run: holds a run of several folds that has not ended; --resume goes on"), "{message}");
    let [message, _] = stage.fails("train --out run --resume --set data.walk_forward=2", 2);
    assert!(message.starts_with("data.walk_forward=2: the run in run began with 3"), "{message}");
    assert_eq!(stage.succeeds("train --out run --resume"), answer);
    assert!(names.map(|(run, step)| stage.checkpoint(run, step)) == whole);
}

/// `plan` looked at the last fold alone, whose training ends last.
#[test]
fn a_fold_before_the_last_that_cannot_be_trained_is_refused_by_plan_too() {
    let stage = Stage::new();
    stage.succeeds("synth bars.csv --days 1");
    stage.succeeds("ingest bars.csv --out series.h5 --symbol EURUSD --timeframes M1:4 --train-fraction 0.75");
    stage.succeeds("plan --data series.h5 --set data.walk_forward=3 --set data.walk_forward_number=3");
    for command in ["plan", "train --out run"] {
        let [message, _] = stage.fails(&format!("{command} --data series.h5 --set data.walk_forward=3"), 3);
        assert!(message.starts_with("fold 1: series.h5: /scaler/M1: fitted on bars up to "), "{command}: {message}");
        assert!(!stage.path("run").exists(), "{command}");
    }
}

#[test]
fn what_is_wrong_with_a_fold_is_told_before_the_first_is_trained() {
    let stage = Stage::with_series();
    for (settings, told) in [
        ("--set data.walk_forward=3 --set data.purge=31d", "no samples are left for"),
        ("--set data.walk_forward=3 --set data.split=[0.8,0.2,0]", "data.split is 0 for the test"),
        ("--set data.walk_forward=3 --set data.walk_forward_number=4", "data.walk_forward_number is 4"),
        ("--set data.walk_forward=3 --init w.safetensors", "--init: each fold begins with weights of its own"),
    ] {
        let [message, _] = stage.fails(&format!("train --data series.h5 --out run {settings}"), 2);
        assert!(message.contains(told), "{settings}: {message}");
        assert!(!stage.path("run").exists(), "{settings}");
    }
}
