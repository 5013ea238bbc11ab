//! Files of several instruments: what comes out tells them apart.

use serde_json::{Value, json};

use crate::stage::{SMALL, Stage, dataset, numbers};

/// The instruments, in the order of the file.
const NAMES: [&str; 2] = ["EURUSD", "USDJPY"];

/// `series.h5` of two instruments of the same days, so that each part of the split has samples of
/// both.
fn two() -> Stage {
    let stage = Stage::new();
    for (seed, name) in NAMES.into_iter().enumerate() {
        stage.succeeds(&format!("synth {name}.csv --days 6 --seed {seed}"));
    }
    let timeframes = "--timeframes M1:6,M5:4 --horizon 2 --stride 17";
    stage.succeeds(&format!("ingest EURUSD.csv USDJPY.csv --out series.h5 {timeframes}"));
    stage
}

/// The same, and `run`, a model that has seen a few batches of it.
fn two_and_a_run() -> Stage {
    let stage = two();
    stage.succeeds(&format!("train --data series.h5 --out run --max-steps 3 {SMALL}"));
    stage
}

fn sample_instruments(stage: &Stage) -> Vec<i32> {
    dataset::<i32>(&stage.path("series.h5"), "samples/instrument").1
}

fn members(stage: &Stage, file: &str) -> Vec<String> {
    let mut names = hdf5::File::open(stage.path(file)).and_then(|file| file.member_names()).unwrap();
    names.sort();
    names
}

#[test]
fn classes_that_are_learned_as_numbers_are_told() {
    let stage = Stage::new();
    stage.succeeds("synth EURUSD.csv --days 6");
    stage.succeeds(
        "ingest EURUSD.csv --out series.h5 --timeframes M1:6 --target triple_barrier:5:5:pips --horizon 20 --stride 17",
    );
    let told = |settings: &str| stage.succeeds(&format!("plan --data series.h5 {settings}"))["notes"].to_string();
    let text = "training.loss mse learns the classes -1, 0 and 1 as numbers";
    assert!(told("").contains(text));
    assert!(!told("--set training.loss=cross_entropy --set training.thresholds=[-0.5,0.5]").contains(text));
}

/// The test of the first days of a file was told to be one, by a model that was trained on them.
#[test]
fn errors_on_times_of_training_are_doubted_where_the_data_are_others() {
    let stage = two_and_a_run();
    let first = |name: &str, lines: usize| {
        let text = stage.text(name);
        stage.write(
            &format!("early/{name}"),
            &text.lines().take(lines).map(|line| format!("{line}\n")).collect::<String>(),
        );
    };
    std::fs::create_dir(stage.path("early")).unwrap();
    NAMES.iter().for_each(|name| first(&format!("{name}.csv"), 3000));
    let ingest = "--timeframes M1:6,M5:4 --horizon 2 --stride 17";
    stage.succeeds(&format!("ingest early --out early.h5 {ingest}"));
    let notes = |line: &str| stage.succeeds(line)["notes"].as_array().cloned().unwrap_or_default();
    let told = notes("eval --run run --data early.h5");
    assert_eq!(told.len(), 1, "{told:?}");
    let text = told[0].as_str().unwrap();
    assert!(text.contains("until which the run was trained and its checkpoint chosen on other data"), "{text}");
    assert_eq!(notes("eval --run run"), [] as [Value; 0]);
    std::fs::rename(stage.path("series.h5"), stage.path("moved.h5")).unwrap();
    assert_eq!(notes("eval --run run --data moved.h5"), [] as [Value; 0]);
}

#[test]
fn predictions_name_the_instrument_of_each_sample() {
    let stage = two_and_a_run();
    let all = sample_instruments(&stage);
    // A range that begins in the first and ends in the second.
    let second = all.iter().position(|&instrument| instrument == 1).unwrap();
    let range = second - 5..second + 7;
    for file in ["part.csv", "part.h5"] {
        stage.succeeds(&format!("predict --run run --samples {}..{} --out {file}", range.start, range.end));
    }
    let csv = stage.text("part.csv");
    let mut lines = csv.lines();
    assert_eq!(lines.next(), Some("sample,time,instrument,h1,h2,target1,target2"));
    let named: Vec<&str> = lines.map(|line| line.split(',').nth(2).unwrap()).collect();
    assert_eq!(named, [[NAMES[0]; 5].as_slice(), &[NAMES[1]; 7]].concat());

    assert_eq!(members(&stage, "part.h5"), ["instrument", "instruments", "predictions", "sample", "timestamps"]);
    assert_eq!(dataset::<i32>(&stage.path("part.h5"), "instrument"), (vec![12], all[range].to_vec()));
    let (_, names) = dataset::<hdf5::types::VarLenUnicode>(&stage.path("part.h5"), "instruments");
    assert_eq!(names.iter().map(hdf5::types::VarLenUnicode::as_str).collect::<Vec<_>>(), NAMES);
}

/// Files that ended minutes apart had predictions of the one that ended last alone.
#[test]
fn the_latest_samples_are_those_of_each_instrument() {
    let stage = two_and_a_run();
    let text = stage.text("USDJPY.csv");
    let lines: Vec<&str> = text.lines().collect();
    stage.write("USDJPY.csv", &lines[..lines.len() - 40].join("\n"));
    let timeframes = "--timeframes M1:6,M5:4 --horizon 2 --stride 17";
    stage.succeeds(&format!("ingest EURUSD.csv USDJPY.csv --out later.h5 {timeframes}"));
    let told = stage.succeeds("predict --run run --data later.h5 --samples latest --out latest.csv");
    assert!(!told["notes"].to_string().contains("end earlier"), "{told}");
    let csv = stage.text("latest.csv");
    let mut named: Vec<&str> = csv.lines().skip(1).map(|line| line.split(',').nth(2).unwrap()).collect();
    named.dedup();
    assert_eq!(named, NAMES);
}

#[test]
fn predictions_of_one_instrument_name_none() {
    let stage = Stage::with_run();
    stage.succeeds("predict --run run --samples 0..3 --out part.csv");
    stage.succeeds("predict --run run --samples 0..3 --out part.h5");
    assert_eq!(stage.text("part.csv").lines().next(), Some("sample,time,h1,h2,target1,target2"));
    assert_eq!(members(&stage, "part.h5"), ["predictions", "sample", "timestamps"]);
}

#[test]
fn inspect_counts_each_instrument_apart() {
    let stage = two();
    let series = stage.path("series.h5");
    let answer = stage.succeeds("inspect series.h5");
    let all = sample_instruments(&stage);
    let (_, times) = dataset::<i64>(&series, "samples/time");
    for (k, (name, pip_size)) in NAMES.into_iter().zip([0.0001, 0.01]).enumerate() {
        let found = &answer["instruments"][k];
        let own: Vec<i64> = all
            .iter()
            .zip(&times)
            .filter(|(instrument, _)| **instrument as usize == k)
            .map(|(_, &time)| time)
            .collect();
        let bars = ["M1", "M5"].map(|timeframe| {
            let (_, starts) = dataset::<i64>(&series, &format!("series/{timeframe}/instrument_start"));
            (timeframe.to_owned(), json!(starts[k + 1] - starts[k]))
        });
        let expected = json!({
            "name": name,
            "bars": Value::Object(bars.into_iter().collect()),
            "samples": own.len(),
            "first_sample_time": own.first(),
            "last_sample_time": own.last(),
            "pip_size": pip_size,
        });
        assert_eq!(*found, expected);
    }

    let text = stage.said("inspect series.h5");
    let words = |start: &str| -> Vec<String> {
        let line = text.lines().find(|line| line.trim_start().starts_with(start));
        let line = line.unwrap_or_else(|| panic!("{start}: {text}"));
        line.split_whitespace().map(str::to_owned).collect()
    };
    assert_eq!(words("M1 bars").join(" "), "M1 bars M5 bars samples first sample last sample pip size");
    let row = words("USDJPY");
    let found = &answer["instruments"][1];
    assert_eq!(row[1..4], [&found["bars"]["M1"], &found["bars"]["M5"], &found["samples"]].map(Value::to_string));
    assert_eq!(row.last().map(String::as_str), Some("0.01"));
}

#[test]
fn inspect_names_no_instruments_where_the_file_does_not() {
    let stage = Stage::with_series();
    assert_eq!(stage.succeeds("inspect series.h5")["instruments"], json!([]));
    assert!(!stage.said("inspect series.h5").contains("instruments"));
}

#[test]
fn numbers_of_any_size_stand_apart_in_what_inspect_prints() {
    let stage = Stage::new();
    stage.with_hdf5("windows.h5", |path| {
        let file = hdf5::File::create(path).unwrap();
        let values: Vec<f32> = (0..40).map(|k| if k % 2 == 0 { -2_050_000.0 } else { 2_290_000.0 }).collect();
        let features = file.new_dataset::<f32>().shape([20, 2, 1]).create("features").unwrap();
        features.write_raw(&values).unwrap();
        let targets = file.new_dataset::<f32>().shape([20, 1]).create("targets").unwrap();
        targets.write_raw(&[0.5f32; 20]).unwrap();
    });
    let text = stage.said("inspect windows.h5");
    let row = text.lines().find(|line| line.contains("feature_0")).unwrap_or_else(|| panic!("{text}"));
    let cells: Vec<&str> = row.split_whitespace().collect();
    assert_eq!(cells, ["feature_0", "-2050000.0000", "2290000.0000", "120000.0000", "2170000.0000"]);
}

#[test]
fn inspect_says_how_to_leave_a_constant_feature_out() {
    let stage = Stage::new();
    stage.with_hdf5("windows.h5", |path| {
        let file = hdf5::File::create(path).unwrap();
        let features = file.new_dataset::<f32>().shape([20, 2, 1]).create("features").unwrap();
        features.write_raw(&[3.0f32; 40]).unwrap();
        let targets = file.new_dataset::<f32>().shape([20, 1]).create("targets").unwrap();
        targets.write_raw(&(0..20).map(|k| k as f32).collect::<Vec<_>>()).unwrap();
    });
    let answer = stage.succeeds("inspect windows.h5");
    let problems = answer["problems"].as_array().unwrap();
    let constant = problems.iter().find(|problem| problem["message"] == "column feature_0 is constant at 3").unwrap();
    assert!(constant["fix"].as_str().unwrap().contains("`ingest --features …`"), "{constant}");
}

/// The mean over all samples of a metric that is one over each instrument's.
fn together(answer: &Value, metric: impl Fn(&Value) -> f64) -> f64 {
    let instruments = answer["instruments"].as_object().unwrap().values();
    let sum: f64 = instruments.map(|found| found["samples"].as_f64().unwrap() * metric(found)).sum();
    sum / answer["samples"].as_f64().unwrap()
}

#[test]
fn errors_are_told_of_each_instrument_too() {
    let stage = two_and_a_run();
    let answer = stage.succeeds("eval --run run --split all");
    let all = sample_instruments(&stage);
    for (k, name) in NAMES.into_iter().enumerate() {
        let own = all.iter().filter(|&&found| found as usize == k).count();
        assert_eq!(answer["instruments"][name]["samples"], own, "{name}");
    }
    let near = |found: f64, expected: f64| assert!((found / expected - 1.0).abs() < 1e-12, "{found} {expected}");
    for k in 0..2 {
        let mae = |found: &Value| numbers(&found["mae"])[k];
        near(together(&answer, mae), mae(&answer));
        let squared = |found: &Value| numbers(&found["baselines"]["linear"]["rmse"])[k].powi(2);
        near(together(&answer, squared), squared(&answer));
        assert_ne!(mae(&answer["instruments"][NAMES[0]]), mae(&answer["instruments"][NAMES[1]]));
    }
    let text = stage.said("eval --run run");
    assert!(text.contains("by instrument") && NAMES.iter().all(|name| text.contains(name)), "{text}");
    assert!(stage.text("run/report.html").contains("Errors by instrument"));
    let saved: Value = serde_json::from_str(&stage.text("run/evaluation.json")).unwrap();
    assert!(saved["instruments"][NAMES[1]]["direction_accuracy"].is_array(), "{saved}");
}

/// Predictions of windows named no instrument, and errors were those of all together.
#[test]
fn windows_of_several_instruments_tell_them_apart() {
    let stage = two_and_a_run();
    stage.succeeds("convert series.h5 windows.h5 --to windows");
    stage.succeeds("predict --run run --out series.csv");
    stage.succeeds("predict --run run --data windows.h5 --out windows.csv");
    let named = |file: &str| -> Vec<String> {
        stage.text(file).lines().map(|line| line.split(',').nth(2).unwrap().to_owned()).collect()
    };
    assert_eq!(named("windows.csv"), named("series.csv"));
    assert_eq!(named("windows.csv")[0], "instrument");

    stage.succeeds("predict --run run --data windows.h5 --out predicted.h5");
    assert_eq!(dataset::<i32>(&stage.path("predicted.h5"), "instrument").1, sample_instruments(&stage));

    let samples = |line: &str| {
        let answer = stage.succeeds(line);
        NAMES.map(|name| answer["instruments"][name]["samples"].clone())
    };
    let own = samples("eval --run run --split all");
    assert!(own.iter().all(|samples| samples.as_u64() > Some(0)), "{own:?}");
    assert_eq!(samples("eval --run run --data windows.h5 --split all"), own);
}
