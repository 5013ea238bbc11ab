//! The purge keeps labels of one part away from the bars that a later part looks at.

use std::fmt::Write as _;

use hdf5::File;
use hdf5::types::VarLenUnicode;
use jiff::ToSpan as _;
use jiff::civil::{Weekday, date};

use crate::stage::{SMALL, Stage};

/// Quarter hours of a share that trades in New York, six and a half hours a day.
fn share(days: usize) -> String {
    let mut text = "time,open,high,low,close,volume\n".to_owned();
    let (mut state, mut price, mut day) = (7_u64, 100.0, date(2018, 1, 1));
    let trades = |day: jiff::civil::Date| !matches!(day.weekday(), Weekday::Saturday | Weekday::Sunday);
    for _ in 0..days {
        let open = day.at(14, 30, 0, 0);
        for bar in 0..26 {
            state = (state * 1_103_515_245 + 12_345) % (1 << 31);
            let draw = state >> 16;
            let close = price * (1.0 + ((draw % 201) as f64 - 100.0) * 1e-5);
            let (high, low) = (f64::max(price, close) + 0.01, f64::min(price, close) - 0.01);
            let time = open.saturating_add((15 * bar).minutes()).strftime("%Y-%m-%d %H:%M");
            writeln!(text, "{time},{price:.4},{high:.4},{low:.4},{close:.4},{}", 1000 + draw % 500).unwrap();
            price = close;
        }
        day = day.tomorrow().unwrap();
        while !trades(day) {
            day = day.tomorrow().unwrap();
        }
    }
    text
}

const INGEST: &str = "ingest share.csv --out series.h5 --symbol SHARE --zone UTC --target log_return \
                      --features body,range --timeframes H4:10 --horizon 130";

/// A series of four-hour bars, each of which has fewer quarter hours than it has room for.
fn shares() -> Stage {
    let stage = Stage::new();
    stage.write("share.csv", &share(160));
    stage.succeeds(INGEST);
    stage
}

/// Has the file no longer say how far its samples look, as versions before wrote it.
fn forget(stage: &Stage, name: &str, objects: &[&str]) {
    stage.with_hdf5(name, |path| {
        let file = File::open_rw(path).unwrap();
        objects.iter().for_each(|object| file.unlink(object).unwrap());
    });
}

const LABEL_END: &str = "/samples/label_end_time";

fn parts(stage: &Stage, line: &str) -> [u64; 3] {
    let plan = stage.succeeds(line);
    ["train", "validation", "test"].map(|part| plan["split"][part].as_u64().unwrap())
}

/// `plan` of `ingest share.csv --timeframes H4:10 --horizon 130` kept 422 samples to validate and
/// 416 to test: labels of 130 quarter hours, five days, were taken to end after ten bars of four
/// hours, three and a half days, as if these were full.
#[test]
fn labels_that_count_bars_of_another_timeframe_stay_out_of_validation() {
    let stage = shares();
    assert_eq!(parts(&stage, "plan --data series.h5"), [2763, 370, 369]);
    let leak = stage.succeeds("leak series.h5 --samples 2");
    assert_eq!((&leak["split"]["splits"], &leak["split"]["samples"]), (&1.into(), &3502.into()));
    let folds = "--set data.split=[0.6,0.1,0.3] --set data.walk_forward=3";
    let refitted = INGEST.replace("series.h5", "sixty.h5") + " --train-fraction 0.6";
    stage.succeeds(&refitted);
    assert_eq!(stage.succeeds(&format!("leak sixty.h5 --samples 1 {folds}"))["split"]["splits"], 3);
    // What overlaps is found and counted.
    let [message, _] = stage.fails("leak series.h5 --samples 1 --set data.purge=0s", 3);
    assert!(message.contains(" of 592 samples of validation look back to before 2018-"), "{message}");
    let [message, _] = stage.fails("leak series.h5 --samples 1 --set data.purge_reckoning=bars", 3);
    assert!(message.contains("52 of 422 samples of validation look back to before 2018-"), "{message}");
}

#[test]
fn a_file_that_does_not_tell_its_labels_ends_is_purged_of_more() {
    let stage = shares();
    let notes = |line: &str| stage.succeeds(line)["notes"].to_string();
    assert_eq!(notes("plan --data series.h5"), "[]");
    forget(&stage, "series.h5", &[LABEL_END]);
    let [train, validation, test] = parts(&stage, "plan --data series.h5");
    assert_eq!(train, 2763);
    assert!(validation <= 370 && test <= 369 && validation > 300, "{validation}, {test}");
    assert!(notes("plan --data series.h5").contains("series.h5 does not tell when its labels end"));
    stage.succeeds("leak series.h5 --samples 1");
}

/// A window over a weekend reaches further back than its bars are long: `plan` of the windows of a
/// series kept 30 samples to validate that the series itself left out.
#[test]
fn windows_are_purged_over_weekends() {
    let stage = Stage::new();
    stage.succeeds("synth bars.csv --days 40");
    stage
        .succeeds("ingest bars.csv --out series.h5 --symbol EURUSD --timeframes M15:40,H1:30 --horizon 12 --stride 15");
    stage.succeeds("convert series.h5 windows.h5 --to windows");
    let series_parts = parts(&stage, "plan --data series.h5");
    assert_eq!(parts(&stage, "plan --data windows.h5"), series_parts, "what the series tells comes along");
    assert_eq!(stage.succeeds("plan --data windows.h5")["notes"], serde_json::json!([]));
    stage.succeeds("convert windows.h5 back.h5");
    assert_eq!(parts(&stage, "plan --data back.h5"), series_parts);

    forget(&stage, "windows.h5", &[LABEL_END, "/samples/reach_time"]);
    stage.succeeds("convert windows.h5 plain.h5");
    let [train, validation, test] = parts(&stage, "plan --data windows.h5");
    let plain_parts = parts(&stage, "plan --data plain.h5");
    assert_eq!(train, series_parts[0]);
    assert!(
        validation <= plain_parts[1] && test <= plain_parts[2] && validation > 0,
        "{validation}, {test}: {plain_parts:?}"
    );
    let warnings = stage.succeeds("plan --data windows.h5")["warnings"].to_string();
    assert!(warnings.contains("windows.h5 does not tell when its labels end"), "{warnings}");
    assert_eq!(stage.succeeds("plan --data windows.h5 --set data.purge=2d")["warnings"], serde_json::json!([]));
}

/// Minutes of two instruments in turn, one of which has no bar in every other minute: the window
/// of four of its bars reaches back over twice as many times as the purge counts.
#[test]
fn a_purge_that_rests_on_an_assumption_is_a_warning() {
    let stage = Stage::new();
    let write = |has_instruments: bool, horizon_bars: Option<i64>| {
        stage.with_hdf5("windows.h5", |path| {
            let file = File::create(path).unwrap();
            let windows = file.create_group("features").unwrap().new_dataset::<f32>().shape([300, 4, 2]);
            windows.create("M1").unwrap().write_raw(&vec![0.5f32; 300 * 8]).unwrap();
            file.new_dataset::<f32>().shape([300, 1]).create("targets").unwrap().write_raw(&[0.5f32; 300]).unwrap();
            let times: Vec<i64> = (0..300).map(|k| (k - k / 3) * 60_000_000_000).collect();
            file.new_dataset::<i64>().shape([300]).create("timestamps").unwrap().write_raw(&times).unwrap();
            if let Some(bars) = horizon_bars {
                file.new_attr::<i64>().create("horizon_bars").unwrap().write_scalar(&bars).unwrap();
            }
            if has_instruments {
                let rows: Vec<i32> = (0..300).map(|k| i32::from(k % 3 == 1)).collect();
                let names = ["EURUSD", "USDJPY"].map(|name| name.parse::<VarLenUnicode>().unwrap());
                let list = file.new_dataset::<VarLenUnicode>().shape([2]).create("instruments").unwrap();
                list.write_raw(&names).unwrap();
                let samples = file.create_group("samples").unwrap();
                samples.new_dataset::<i32>().shape([300]).create("instrument").unwrap().write_raw(&rows).unwrap();
            }
        });
    };
    let warnings = |line: &str| stage.succeeds(line)["warnings"].as_array().unwrap().clone();
    write(false, None);
    let warned = warnings("plan --data windows.h5");
    let [warning] = warned.as_slice() else { panic!("{warned:?}") };
    let warning = warning.as_str().unwrap();
    assert!(warning.contains("takes each to end 1 sample later"), "{warning}");
    assert!(warning.contains("as if all samples were of one instrument"), "{warning}");
    assert!(stage.said("plan --data windows.h5").contains(&format!("\nWarning: {warning}.\n")));
    // Told before the first step, and once more with the errors that it is about.
    let train = format!("train --data windows.h5 --out run --max-steps 2 {SMALL}");
    let trained = stage.run(&train).success();
    let output = trained.get_output();
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(stderr.matches(&format!("warning: {warning}\n")).count(), 1, "{stderr}");
    assert!(stdout.contains(&format!("\nwarning: {warning}\n")), "{stdout}");
    assert!(stage.text("run/report.html").contains("takes each to end 1 sample later"));
    assert_eq!(warnings("plan --data windows.h5 --set data.purge=5m").len(), 0);
    // A program that asks for JSON reads the error alone where the run fails after its warnings.
    let diverging = "--set training.optimizer=sgd --set training.lr=1e30 --set training.clip_norm=none";
    let failed = format!("train --data windows.h5 --out failed --json {SMALL} {diverging} --set training.on_nan=stop");
    let failed = stage.run(&failed).code(5).stdout("");
    let error: serde_json::Value = serde_json::from_slice(&failed.get_output().stderr).expect("one JSON object");
    assert_eq!(error["exit_code"], 5, "{error}");
    // What the file tells is not assumed.
    write(true, Some(5));
    let warned = warnings("plan --data windows.h5");
    let warning = warned[0].as_str().unwrap();
    assert!(warning.contains("takes each to end 5 samples later") && !warning.contains("as if"), "{warning}");
}

/// Labels of many bars were taken to be as long as there are targets where windows have no times.
#[test]
fn labels_of_windows_without_times_are_as_long_as_the_file_tells() {
    let stage = Stage::new();
    stage.with_hdf5("windows.h5", |path| {
        let file = File::create(path).unwrap();
        let windows = file.new_dataset::<f32>().shape([300, 4, 2]).create("features").unwrap();
        windows.write_raw(&vec![0.5f32; 300 * 8]).unwrap();
        file.new_dataset::<f32>().shape([300, 1]).create("targets").unwrap().write_raw(&[0.5f32; 300]).unwrap();
        file.new_attr::<i64>().create("horizon_bars").unwrap().write_scalar(&30).unwrap();
    });
    let [train, validation, _] = parts(&stage, "plan --data windows.h5");
    assert_eq!((train, validation), (210, 45 - 33));
}

#[test]
fn windows_of_unknown_length_ask_for_the_purge() {
    let stage = Stage::new();
    stage.with_hdf5("windows.h5", |path| {
        let file = File::create(path).unwrap();
        let group = file.create_group("features").unwrap();
        for name in ["fast", "slow"] {
            let dataset = group.new_dataset::<f32>().shape([60, 4, 2]).create(name).unwrap();
            dataset.write_raw(&vec![0.5f32; 60 * 8]).unwrap();
        }
        file.new_dataset::<f32>().shape([60, 1]).create("targets").unwrap().write_raw(&[0.5f32; 60]).unwrap();
        let times: Vec<i64> = (0..60).map(|k| k * 60_000_000_000).collect();
        file.new_dataset::<i64>().shape([60]).create("timestamps").unwrap().write_raw(&times).unwrap();
    });
    let [message, _] = stage.fails("plan --data windows.h5", 2);
    assert!(message.contains("does not tell how far a window of fast reaches back"), "{message}");
    assert!(message.contains("such as data.purge=8d"), "{message}");
    assert_eq!(parts(&stage, "plan --data windows.h5 --set data.purge=5m"), [42, 5, 5]);
    stage.succeeds("plan --data windows.h5 --set data.split=[1,0,0]");
}

/// Versions before counted bars. A run that began so keeps the samples that its checkpoints speak
/// of.
#[test]
fn a_run_of_before_goes_on_with_its_samples() {
    let stage = shares();
    forget(&stage, "series.h5", &[LABEL_END]);
    let settings = format!("--set training.epochs=1 {SMALL} --set data.purge_reckoning=bars");
    stage.succeeds(&format!("train --data series.h5 --out run {settings} --max-steps 2"));
    let before = stage.succeeds("eval --run run --split validation");
    assert_eq!(before["samples"], 422);
    let saved = stage.text("run/config.yaml");
    assert!(saved.contains("  purge_reckoning: bars\n"));
    stage.write("run/config.yaml", &saved.replace("  purge_reckoning: bars\n", ""));
    let answer = stage.succeeds("train --out run --resume --max-steps 3");
    assert_eq!(answer["steps"], 3);
    assert!(answer["notes"].to_string().contains("train anew for errors that hold"), "{answer}");
    assert!(stage.text("run/config.yaml").contains("  purge_reckoning: bars\n"));
    // Begun anew, or judged by what is known now, it has fewer.
    stage.write("run/config.yaml", &saved.replace("  purge_reckoning: bars\n", ""));
    assert!(stage.succeeds("eval --run run --split validation")["samples"].as_u64() < Some(422));
}

/// 200 samples in `data.h5`. The targets of `samples` are unknown.
fn unknown_targets(layout: &str, samples: impl Iterator<Item = usize>) -> Stage {
    let stage = Stage::new();
    stage
        .succeeds(&format!("synth data.h5 --layout {layout} --samples 200 --timeframes M1:4 --features 3 --targets 2"));
    stage.with_hdf5("data.h5", |path| {
        let targets = File::open_rw(path).unwrap().dataset("targets").unwrap();
        let mut values = targets.read_raw::<f32>().unwrap();
        samples.for_each(|sample| values[sample * 2..][..2].fill(f32::NAN));
        targets.write_raw(&values).unwrap();
    });
    stage
}

/// `train` found validation targets that are all NaN after the first epoch, and those of the test
/// at the end of the run.
#[test]
fn parts_without_a_known_target_are_refused_before_the_first_step() {
    for (layout, part, from, to) in [
        ("series", "validation", 140, 170),
        ("windows", "validation", 140, 170),
        ("windows", "test", 170, 200),
        ("series", "training", 0, 140),
    ] {
        let stage = unknown_targets(layout, from..to);
        for command in ["plan --data data.h5", "train --data data.h5 --out run"] {
            let [message, _] = stage.fails(command, 3);
            assert!(message.contains(&format!("is known, so that {part} has no loss")), "{message}");
        }
        assert!(!stage.path("run").exists());
    }
}

/// Unknown targets in the evenly spaced samples alone failed a run at its first validation, or at
/// its end, and again whenever it was resumed.
#[test]
fn an_estimate_without_a_known_target_is_refused_before_the_first_step() {
    for (layout, known, fault, fix) in [
        ("series", 155..160, "to validate", "training.validation_samples"),
        ("windows", 185..190, "to test", "training.test_samples"),
    ] {
        let part = if known.start < 170 { 140..170 } else { 170..200 };
        let stage = unknown_targets(layout, part.filter(|sample| !known.contains(sample)));
        for command in ["plan --data data.h5", "train --data data.h5 --out run"] {
            let [message, _] = stage.fails(&format!("{command} --set {fix}=4"), 3);
            assert!(
                message.contains("data.h5: none of the targets of the 4 samples that are taken")
                    && message.contains(fault),
                "{message}"
            );
            assert!(message.contains(&format!("; set {fix}=all, or another number")), "{message}");
        }
        assert!(!stage.path("run").exists());
        stage.succeeds(&format!("plan --data data.h5 --set {fix}=all"));
    }
}
