//! Files from one layout into the other: what the command says, and what is left when it is killed.

use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::stage::{SMALL, Stage, dataset};

const SERIES: &str = "synth series.h5 --samples 300 --timeframes M1:48,M5:24 --features 6 --targets 3";

#[test]
fn a_series_becomes_windows_and_windows_a_series() {
    let stage = Stage::new();
    stage.succeeds(SERIES);
    let there = stage.succeeds("convert series.h5 windows.h5 --to windows --storage contiguous");
    assert_eq!((&there["from"], &there["to"]), (&"series".into(), &"windows".into()));
    assert_eq!((&there["samples"], &there["verified"]), (&300.into(), &true.into()));
    let back = stage.succeeds("convert windows.h5 back.h5");
    assert_eq!((&back["to"], &back["bars"]), (&"series".into(), &serde_json::json!({ "M1": 347, "M5": 84 })));
    assert!(back["ratio"].as_f64().unwrap() > 5.0, "{back}");
    assert_eq!(back["bytes_after"], std::fs::metadata(stage.path("back.h5")).unwrap().len());
    for name in ["series.h5", "windows.h5", "back.h5"] {
        stage.succeeds(&format!("inspect {name} --dump 0..300 {name}.safetensors"));
    }
    assert!(stage.read("series.h5.safetensors") == stage.read("windows.h5.safetensors"));
    assert!(stage.read("series.h5.safetensors") == stage.read("back.h5.safetensors"));
}

/// Two equal shapes were said to differ: the series has a name for the windows without one.
#[test]
fn a_model_of_windows_without_a_name_says_so_on_their_series() {
    let stage = Stage::new();
    stage.succeeds("synth series.h5 --samples 300 --timeframes M1:6 --features 2 --targets 1");
    stage.succeeds("convert series.h5 windows.h5 --to windows");
    stage.with_hdf5("windows.h5", |path| {
        let file = hdf5::File::open_rw(path).unwrap();
        file.relink("features/M1", "windows").unwrap();
        file.unlink("features").unwrap();
        file.relink("windows", "features").unwrap();
        file.unlink("feature_names").unwrap();
    });
    stage.succeeds(&format!("train --data windows.h5 --out run --max-steps 1 --set data.purge=10m {SMALL}"));
    stage.succeeds("convert windows.h5 named.h5");
    for message in stage.fails("predict --run run --data named.h5 --out predictions.csv", 3) {
        assert!(message.contains("features [6, 2], targets [1] (a timeframe without a name), but"), "{message}");
        assert!(message.contains("features [6, 2], targets [1] (a timeframe named features);"), "{message}");
    }
}

/// The place of a sample in a series without times was a moment of 1970 in predictions.
#[test]
fn ordinal_times_are_numbers_in_predictions() {
    let stage = Stage::new();
    stage.succeeds("synth series.h5 --samples 300 --timeframes M1:6 --features 2 --targets 1");
    stage.succeeds(&format!("train --data series.h5 --out run --max-steps 1 {SMALL}"));
    stage.succeeds("convert series.h5 windows.h5 --to windows");
    stage.with_hdf5("windows.h5", |path| hdf5::File::open_rw(path).unwrap().unlink("timestamps").unwrap());
    stage.succeeds("convert windows.h5 ordinal.h5");
    stage.succeeds("predict --run run --data ordinal.h5 --out predictions.csv");
    let times: Vec<i64> = stage
        .text("predictions.csv")
        .lines()
        .skip(1)
        .map(|line| line.split(',').nth(1).unwrap().parse().unwrap())
        .collect();
    assert_eq!(times, dataset::<i64>(&stage.path("ordinal.h5"), "samples/time").1);
}

#[test]
fn the_layout_stays_where_the_storage_is_chosen() {
    let stage = Stage::new();
    stage.succeeds(SERIES);
    let stored = stage.succeeds("convert series.h5 out.h5 --chunk-rows 16 --compression lzf");
    assert_eq!((&stored["from"], &stored["to"]), (&"series".into(), &"series".into()));
    let inspected = stage.succeeds("inspect out.h5");
    let values =
        inspected["datasets"].as_array().unwrap().iter().find(|dataset| dataset["path"] == "/series/M1/values");
    assert_eq!(values.unwrap()["chunk"], serde_json::json!([16, 6]));
    let windows = stage.succeeds("convert series.h5 out.h5 --to windows --storage contiguous");
    assert_eq!(windows["to"], "windows");
    let text = stage.said("convert out.h5 again.h5");
    assert!(text.contains("M1: 347 bars") && text.contains("verified: every table was read back"), "{text}");
}

#[test]
fn what_cannot_be_converted_says_why() {
    let stage = Stage::new();
    stage.succeeds("synth random.h5 --layout windows --samples 40 --timeframes M1:8 --features 2 --targets 1");
    stage.succeeds(SERIES);
    for (line, exit_code, expected) in [
        ("convert random.h5 out.h5", 3, "a series would save nothing"),
        ("convert series.h5 series.h5", 2, "this is the file that is read"),
        ("convert series.h5 out.txt", 2, "expected .h5 or .hdf5"),
        ("convert series.h5 out.h5 --storage contiguous --compression lzf", 2, "contiguous tables have no chunks"),
        ("convert absent.h5 out.h5", 3, "there is no such file"),
    ] {
        for message in stage.fails(line, exit_code) {
            assert!(message.contains(expected), "{line}: {message}");
        }
    }
    let names: Vec<_> = stage.contents().into_keys().collect();
    assert_eq!(names, [stage.path("random.h5"), stage.path("series.h5")]);
}

#[test]
fn a_conversion_that_is_killed_goes_on_and_leaves_nothing_behind() {
    let stage = Stage::new();
    stage.succeeds("synth series.h5 --samples 3000 --timeframes M1:120,M5:60 --features 16 --targets 3");
    let line = "convert series.h5 windows.h5 --chunk-rows 4 --compression gzip:9 --memory 1MiB";
    stage.succeeds(&line.replace("windows.h5", "whole.h5"));
    let mut process = stage.command(line).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let spool = stage.path(".windows.h5.convert");
    let begun = Instant::now();
    while std::fs::metadata(&spool).map_or(0, |spool| spool.len()) < 100_000 {
        assert!(begun.elapsed() < Duration::from_secs(60) && process.try_wait().unwrap().is_none(), "nothing to kill");
        std::thread::yield_now();
    }
    process.kill().unwrap();
    process.wait().unwrap();
    assert!(!stage.path("windows.h5").exists());

    let done = stage.succeeds(line);
    assert_eq!(done["continued"], true);
    assert!(stage.read("windows.h5") == stage.read("whole.h5"), "another file than the whole conversion's");
    let names: Vec<_> = stage.contents().into_keys().collect();
    assert_eq!(names, ["series.h5", "whole.h5", "windows.h5"].map(|name| stage.path(name)));
}
