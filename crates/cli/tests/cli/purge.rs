//! The purge keeps labels of one part away from the bars that a later part looks at.

use std::fmt::Write as _;

use hdf5::File;
use hdf5::types::VarLenUnicode;
use jiff::ToSpan as _;
use jiff::civil::{Weekday, date};
use serde_json::json;

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
    let one = stage.succeeds("leak series.h5 --samples 2 --set data.fold_number=all");
    assert_eq!(one["split"], leak["split"]);
    let folds = "--set data.split=[0.6,0.1,0.3] --set data.walk_forward=3";
    let refitted = INGEST.replace("series.h5", "sixty.h5") + " --train-fraction 0.6";
    stage.succeeds(&refitted);
    assert_eq!(stage.succeeds(&format!("leak sixty.h5 --samples 1 {folds}"))["split"]["splits"], 3);
    // What overlaps is found and counted.
    let [message, _] = stage.fails("leak series.h5 --samples 1 --set data.purge=0s", 3);
    assert!(message.contains(" of 592 samples of validation look back to before 2018-"), "{message}");
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
    let plan = stage.succeeds("plan --data windows.h5");
    assert_eq!((&plan["notes"], &plan["warnings"]), (&json!([]), &json!([])));
    assert_eq!(plan["purge_basis"], "Purge by /samples/label_end_time and /samples/reach_time.");
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
    // `ingest` stored the horizon, and `symbol` says that there is one instrument.
    let plan = stage.succeeds("plan --data windows.h5");
    assert_eq!(plan["warnings"], json!([]));
    let basis = plan["purge_basis"].as_str().unwrap();
    assert!(basis.starts_with("Purge by horizon_bars, 12 bars counted in samples, all of one instrument,"), "{basis}");
    assert!(basis.contains("(no /samples/reach_time)"), "{basis}");
    assert!(stage.said("plan --data windows.h5").contains(basis));
    assert_eq!(stage.succeeds("plan --data windows.h5 --set data.purge=2d")["warnings"], json!([]));
}

/// Bars that labels of [`TwoInstruments`] look ahead.
const HORIZON: usize = 120;
const STEPS: usize = 30;
const MINUTE_NS: i64 = 60_000_000_000;

/// Windows of minutes of two instruments, in order of time. The second one has no bar in two of
/// five minutes, and none in three hours.
struct TwoInstruments {
    time: Vec<i64>,
    reach: Vec<i64>,
    label_end: Vec<i64>,
    instrument: Vec<i32>,
    windows: Vec<f32>,
}

impl TwoInstruments {
    fn new() -> Self {
        let mut samples = Vec::new();
        for instrument in [0, 1] {
            let is_open = |minute: &i64| instrument == 0 || (minute % 5 < 3 && !(1_200..1_380).contains(minute));
            let opens: Vec<i64> = (0..4_000).filter(is_open).map(|minute| minute * MINUTE_NS).collect();
            for last in STEPS - 1..opens.len() - HORIZON {
                let (first, end) = (last + 1 - STEPS, opens[last + HORIZON] + MINUTE_NS);
                let value = |bar: usize| (bar * 2_654_435_761 % 1_009) as f32 + instrument as f32 * 0.5;
                let window: Vec<f32> = (first..=last).map(value).collect();
                samples.push((opens[last] + MINUTE_NS, opens[first], end, instrument, window));
            }
        }
        samples.sort_by_key(|sample| (sample.0, sample.3));
        TwoInstruments {
            time: samples.iter().map(|sample| sample.0).collect(),
            reach: samples.iter().map(|sample| sample.1).collect(),
            label_end: samples.iter().map(|sample| sample.2).collect(),
            instrument: samples.iter().map(|sample| sample.3).collect(),
            windows: samples.into_iter().flat_map(|sample| sample.4).collect(),
        }
    }

    /// Writes `windows.h5` with the objects of `told` that are about the spans of samples.
    fn write(&self, stage: &Stage, told: &[&str]) {
        let samples = self.time.len();
        stage.with_hdf5("windows.h5", |path| {
            let file = File::create(path).unwrap();
            let list = |name: &str, values: &[i64]| {
                file.new_dataset::<i64>().shape([samples]).create(name).unwrap().write_raw(values).unwrap();
            };
            let windows = file.create_group("features").unwrap().new_dataset::<f32>().shape([samples, STEPS, 1]);
            windows.create("M1").unwrap().write_raw(&self.windows).unwrap();
            let targets = file.new_dataset::<f32>().shape([samples, 1]).create("targets").unwrap();
            targets.write_raw(&vec![0.5f32; samples]).unwrap();
            list("timestamps", &self.time);
            let group = file.create_group("samples").unwrap();
            for object in told {
                match *object {
                    "label_end_time" => list("samples/label_end_time", &self.label_end),
                    "reach_time" => list("samples/reach_time", &self.reach),
                    "horizon_bars" => horizon_bars(&file, HORIZON as i64),
                    "instruments" => {
                        let names = ["EURUSD", "USDJPY"].map(|name| name.parse::<VarLenUnicode>().unwrap());
                        let list = file.new_dataset::<VarLenUnicode>().shape([2]).create("instruments").unwrap();
                        list.write_raw(&names).unwrap();
                        let list = group.new_dataset::<i32>().shape([samples]).create("instrument").unwrap();
                        list.write_raw(&self.instrument).unwrap();
                    }
                    other => panic!("{other}"),
                }
            }
        });
    }

    /// Trains on `data` and requires, of the samples in the parts that training had, that no window
    /// of a later part begins before the last label of an earlier one has ended. Returns the parts.
    fn require_apart(&self, stage: &Stage, data: &str, settings: &str) -> [Vec<usize>; 3] {
        stage.succeeds(&format!("train --data {data} --out run --max-steps 1 {SMALL} {settings}"));
        let parts = ["train", "validation", "test"].map(|part| {
            stage.succeeds(&format!("predict --run run --split {part} --out part.csv"));
            let rows = stage.text("part.csv");
            rows.lines().skip(1).map(|row| row.split(',').next().unwrap().parse().unwrap()).collect::<Vec<usize>>()
        });
        std::fs::remove_dir_all(stage.path("run")).unwrap();
        for (earlier, later) in [(0, 1), (0, 2), (1, 2)] {
            let last_label = parts[earlier].iter().map(|&n| self.label_end[n]).max().unwrap();
            let first_bar = parts[later].iter().map(|&n| self.reach[n]).min().unwrap();
            assert!(first_bar >= last_label, "{data}, parts {earlier} and {later}: {first_bar} before {last_label}");
        }
        parts
    }
}

fn horizon_bars(file: &File, bars: i64) {
    file.new_attr::<i64>().create("horizon_bars").unwrap().write_scalar(&bars).unwrap();
}

/// A label of 120 bars was taken for one bar a target: validation windows began two hours before
/// the last training label ended. Two instruments without `/samples/instrument` were counted as
/// one.
#[test]
fn labels_of_windows_stay_out_of_later_parts_by_each_of_the_three_ways() {
    let (stage, bars) = (Stage::new(), TwoInstruments::new());
    bars.write(&stage, &["label_end_time", "reach_time"]);
    let exact = bars.require_apart(&stage, "windows.h5", "");
    assert!(exact.iter().all(|part| part.len() > 400), "{:?}", exact.map(|part| part.len()));
    for told in [["label_end_time", "instruments"], ["horizon_bars", "instruments"]] {
        bars.write(&stage, &told);
        assert_eq!(bars.require_apart(&stage, "windows.h5", ""), exact, "{told:?}");
        bars.require_apart(&stage, "windows.h5", "--set data.walk_forward=2 --set data.walk_forward_number=1");
        assert_eq!(stage.succeeds("plan --data windows.h5")["warnings"], json!([]));
        // The series of the windows is told as much.
        stage.succeeds("convert windows.h5 series.h5");
        assert_eq!(bars.require_apart(&stage, "series.h5", ""), exact, "{told:?}");
        std::fs::remove_file(stage.path("series.h5")).unwrap();
    }
}

/// Other samples were predicted as the test of a run, without a word, and `train --resume` refused.
#[test]
fn parts_are_those_of_training_after_labels_have_become_longer() {
    let (stage, mut bars) = (Stage::new(), TwoInstruments::new());
    bars.write(&stage, &["label_end_time", "reach_time"]);
    stage.succeeds(&format!("train --data windows.h5 --out run --max-steps 1 {SMALL}"));
    let predict = "predict --run run --split test --out part.csv";
    stage.succeeds(predict);
    bars.label_end.iter_mut().for_each(|end| *end += 60 * MINUTE_NS);
    bars.write(&stage, &["label_end_time", "reach_time"]);
    let [message, _] = stage.fails("train --out run --resume --max-steps 2", 2);
    assert!(message.contains("began with other samples to train on and to validate"), "{message}");
    for line in [predict, "eval --run run"] {
        let [message, _] = stage.fails(line, 3);
        assert!(message.contains("windows.h5: its split is not that of training"), "{line}: {message}");
        stage.succeeds(&format!("{line} --force"));
    }
    stage.succeeds("predict --run run --samples 0..3 --out few.csv");
}

#[test]
fn windows_that_do_not_tell_when_their_labels_end_are_not_split() {
    let (stage, bars) = (Stage::new(), TwoInstruments::new());
    bars.write(&stage, &["reach_time"]);
    let train = format!("train --data windows.h5 --out run {SMALL}");
    let ways = [
        "windows.h5 does not tell when its labels end",
        "h5py.File(\"windows.h5\", \"r+\")",
        "\n  f[\"samples/label_end_time\"] = ends  # int64 [N], ns since 1970 UTC",
        "f[\"samples/reach_time\"] = begins  # both; int64 [N]",
        "\n  f.attrs[\"horizon_bars\"] = 120  # an integer: bars from a sample to the end of its farthest target",
        "\n  f[\"instruments\"] = [\"EURUSD\", \"USDJPY\"]; f[\"samples/instrument\"] = numbers  # int32 [N]",
        "such as data.purge=8d",
    ];
    for line in ["plan --data windows.h5", &train, "plan --data windows.h5 --set data.walk_forward=2"] {
        for message in stage.fails(line, 2) {
            for way in ways {
                assert!(message.contains(way), "{line}: no {way} in\n{message}");
            }
        }
    }
    assert!(!stage.path("run").exists());
    let [message, _] = stage.fails("leak windows.h5", 3);
    assert!(message.contains("nothing is proven without the bars") && message.contains(ways[4]), "{message}");
    let problems = stage.succeeds("inspect windows.h5")["problems"].to_string();
    assert!(problems.contains("does not tell when its labels end"), "{problems}");
    // Nothing is held against labels: all samples are for training, or a duration is given.
    let basis = |line: &str| stage.succeeds(&format!("plan --data windows.h5 --set {line}"))["purge_basis"].clone();
    assert_eq!(basis("data.split=[1,0,0]"), serde_json::Value::Null);
    assert_eq!(basis("data.purge=5h"), "Purge by data.purge=5h alone: the file does not tell when its labels end.");
    bars.require_apart(&stage, "windows.h5", "--set data.purge=5h");

    // A series that is made of them does not know more.
    stage.succeeds("convert windows.h5 series.h5");
    let [message, _] = stage.fails("plan --data series.h5", 2);
    assert!(message.contains("series.h5 does not tell when its labels end") && message.contains(ways[4]), "{message}");
    assert!(stage.succeeds("inspect series.h5")["problems"].to_string().contains("when its labels end"));
    stage.succeeds("plan --data series.h5 --set data.purge=5h");
}

#[test]
fn bars_of_several_instruments_are_counted_by_name_alone() {
    let (stage, bars) = (Stage::new(), TwoInstruments::new());
    let begins = "f[\"samples/reach_time\"] = begins";
    let both = format!("f[\"samples/label_end_time\"] = ends; {begins}");
    for (told, missing) in [("horizon_bars", both.as_str()), ("label_end_time", begins)] {
        bars.write(&stage, &[told]);
        let [message, _] = stage.fails("plan --data windows.h5", 2);
        assert!(message.contains("windows.h5 does not name instruments"), "{message}");
        assert!(message.contains("f[\"samples/instrument\"] = numbers  # int32 [N]"), "{message}");
        assert!(message.contains(&format!("\nor\n  {missing}  # int64 [N]")), "{message}");
        bars.require_apart(&stage, "windows.h5", "--set data.purge=5h");
    }
}

/// The last labels of an instrument that ends in training were taken to be as long as the longest
/// known.
#[test]
fn labels_beyond_an_instruments_last_sample_may_end_at_any_time() {
    let (stage, mut bars) = (Stage::new(), TwoInstruments::new());
    // The bars of the second instrument go on after its last sample.
    let kept: Vec<usize> =
        (0..bars.time.len()).filter(|&n| bars.instrument[n] == 0 || bars.time[n] < 1_150 * MINUTE_NS).collect();
    for times in [&mut bars.time, &mut bars.reach, &mut bars.label_end] {
        *times = kept.iter().map(|&n| times[n]).collect();
    }
    bars.instrument = kept.iter().map(|&n| bars.instrument[n]).collect();
    bars.windows = kept.iter().flat_map(|&n| bars.windows[n * STEPS..(n + 1) * STEPS].to_vec()).collect();
    bars.write(&stage, &["horizon_bars", "instruments"]);
    let [message, _] = stage.fails("plan --data windows.h5", 2);
    assert!(message.contains("labels end beyond the last sample of their instrument, from 1970-01-01 1"), "{message}");
    // A fold leaves out these samples alone.
    bars.require_apart(&stage, "windows.h5", "--set data.walk_forward=2 --set data.walk_forward_number=2");
    bars.write(&stage, &["label_end_time", "instruments"]);
    bars.require_apart(&stage, "windows.h5", "");
}

#[test]
fn a_horizon_that_is_no_whole_number_is_refused() {
    let stage = Stage::new();
    stage.succeeds("synth windows.h5 --layout windows --samples 300 --steps 4 --features 2 --targets 1");
    let write = |write: &dyn Fn(&File)| {
        stage.with_hdf5("windows.h5", |path| {
            let file = File::open_rw(path).unwrap();
            file.delete_attr("horizon_bars").unwrap();
            write(&file);
        });
    };
    type Case<'a> = (&'a dyn Fn(&File), &'a str);
    let cases: [Case<'_>; 3] = [
        (&|file| horizon_bars(file, -1), "found -1"),
        (&|file| file.new_attr::<f64>().create("horizon_bars").unwrap().write_scalar(&1.5).unwrap(), "the float 1.5"),
        (
            &|file| {
                let attribute = file.new_attr::<VarLenUnicode>().create("horizon_bars").unwrap();
                attribute.write_scalar(&"120".parse::<VarLenUnicode>().unwrap()).unwrap();
            },
            "the text \"120\"",
        ),
    ];
    for (value, found) in cases {
        write(value);
        let [message, _] = stage.fails("plan --data windows.h5", 3);
        assert!(message.contains("/@horizon_bars: expected an integer from 0 on"), "{message}");
        assert!(message.contains(found) && message.contains("f.attrs[\"horizon_bars\"] = 120"), "{message}");
    }
}

/// Windows that do not tell whose they are may be of several instruments in turn, at other times.
#[test]
fn a_purge_that_rests_on_an_assumption_is_a_warning() {
    let stage = Stage::new();
    stage.succeeds("synth windows.h5 --layout windows --samples 300 --timeframes M1:4 --features 2 --targets 1");
    let warnings = |line: &str| stage.succeeds(line)["warnings"].as_array().unwrap().clone();
    let warned = warnings("plan --data windows.h5");
    let [warning] = warned.as_slice() else { panic!("{warned:?}") };
    let warning = warning.as_str().unwrap();
    assert!(warning.contains("counts bars in samples as if all were of one instrument"), "{warning}");
    assert!(stage.said("plan --data windows.h5").contains(&format!("\nWarning: {warning}.\n")));
    // Told before the first step, and once more with the errors that it is about.
    let train = format!("train --data windows.h5 --out run --max-steps 2 {SMALL}");
    let trained = stage.run(&train).success();
    let output = trained.get_output();
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(stderr.matches(&format!("warning: {warning}\n")).count(), 1, "{stderr}");
    assert!(stdout.contains(&format!("\nwarning: {warning}\n")), "{stdout}");
    assert!(stage.text("run/report.html").contains("as if all were of one instrument"));
    assert_eq!(warnings("plan --data windows.h5 --set data.purge=5m").len(), 0);
    // A program that asks for JSON reads the error alone where the run fails after its warnings.
    let diverging = "--set training.optimizer=sgd --set training.lr=1e30 --set training.clip_norm=none";
    let failed = format!("train --data windows.h5 --out failed --json {SMALL} {diverging} --set training.on_nan=stop");
    let failed = stage.run(&failed).code(5).stdout("");
    let error: serde_json::Value = serde_json::from_slice(&failed.get_output().stderr).expect("one JSON object");
    assert_eq!(error["exit_code"], 5, "{error}");
    // What the file tells is not assumed.
    stage.with_hdf5("windows.h5", |path| {
        let symbol = File::open_rw(path).unwrap().new_attr::<VarLenUnicode>().create("symbol").unwrap();
        symbol.write_scalar(&"EURUSD".parse::<VarLenUnicode>().unwrap()).unwrap();
    });
    assert_eq!(warnings("plan --data windows.h5").len(), 0);
}

/// Windows of five minutes, one a minute, were counted as one bar a sample, without a word.
#[test]
fn samples_without_times_that_are_counted_as_bars_are_a_warning() {
    let stage = Stage::new();
    stage.succeeds("synth windows.h5 --layout windows --samples 1000 --timeframes M5:4 --features 2 --targets 1");
    let warnings = || stage.succeeds("plan --data windows.h5")["warnings"].to_string();
    assert!(!warnings().contains("has no /timestamps"));
    forget(&stage, "windows.h5", &["timestamps"]);
    let warned = warnings();
    assert!(warned.contains("windows.h5 has no /timestamps"), "{warned}");
    assert!(warned.contains("takes each sample for one bar of M5."), "{warned}");
    stage.with_hdf5("windows.h5", |path| {
        let base = File::open_rw(path).unwrap().new_attr::<VarLenUnicode>().create("base").unwrap();
        base.write_scalar(&"M1".parse::<VarLenUnicode>().unwrap()).unwrap();
    });
    assert!(!warnings().contains("has no /timestamps"));
}

/// Writes `windows.h5`: 300 windows of four bars in `/features`, and a target of each.
fn write_windows_without_times(stage: &Stage) {
    stage.with_hdf5("windows.h5", |path| {
        let file = File::create(path).unwrap();
        let windows = file.new_dataset::<f32>().shape([300, 4, 2]).create("features").unwrap();
        windows.write_raw(&vec![0.5f32; 300 * 8]).unwrap();
        file.new_dataset::<f32>().shape([300, 1]).create("targets").unwrap().write_raw(&[0.5f32; 300]).unwrap();
    });
}

/// Windows of longer bars than samples are apart were counted by the sample, with a warning alone.
#[test]
fn windows_without_times_that_stand_at_closes_of_a_base_tell_the_length_of_their_bars() {
    let stage = Stage::new();
    write_windows_without_times(&stage);
    stage.with_hdf5("windows.h5", |path| {
        let file = File::open_rw(path).unwrap();
        horizon_bars(&file, 10);
        let base = file.new_attr::<VarLenUnicode>().create("base").unwrap();
        base.write_scalar(&"M1".parse::<VarLenUnicode>().unwrap()).unwrap();
    });
    let [message, _] = stage.fails("plan --data windows.h5", 2);
    assert!(message.contains("windows.h5 does not tell how far a window of /features reaches back"), "{message}");
    assert!(message.contains("\n  f.move(\"features\", \"M1\")"), "{message}");
    assert!(message.contains("Or give data.purge=0s") && !message.contains("8d"), "{message}");
    stage.with_hdf5("windows.h5", |path| {
        let file = File::open_rw(path).unwrap();
        file.relink("features", "M5").unwrap();
        file.create_group("features").unwrap();
        file.relink("M5", "features/M5").unwrap();
    });
    // Windows reach back over 24 samples: four bars of five minutes, and the one that is open.
    let [train, validation, _] = parts(&stage, "plan --data windows.h5");
    assert_eq!((train, validation), (210, 45 - 33));
}

/// Labels of many bars were taken to be as long as there are targets where windows have no times.
/// The samples of two instruments in turn were counted as bars of one.
#[test]
fn labels_of_windows_without_times_are_as_long_as_the_file_tells() {
    let stage = Stage::new();
    write_windows_without_times(&stage);
    let [message, _] = stage.fails("plan --data windows.h5", 2);
    assert!(message.contains("  f[\"timestamps\"] = times; f[\"samples/label_end_time\"] = ends"), "{message}");
    assert!(message.contains("Or give data.purge=0s") && !message.contains("8d"), "{message}");
    // The list that the message asked for led to the next refusal.
    assert!(message.contains("\n  f.move(\"features\", \"M1\")"), "{message}");
    assert!(message.contains(": needed beside one list\n  f[\"instruments\"]"), "{message}");
    let [message, _] = stage.fails("plan --data windows.h5 --set data.purge=33m", 2);
    assert!(message.contains("which counts samples once f.attrs[\"horizon_bars\"] tells"), "{message}");
    stage.with_hdf5("windows.h5", |path| horizon_bars(&File::open_rw(path).unwrap(), 30));
    let [train, validation, _] = parts(&stage, "plan --data windows.h5");
    assert_eq!((train, validation), (210, 45 - 33));
    stage.with_hdf5("windows.h5", |path| {
        let file = File::open_rw(path).unwrap();
        let names = ["A", "B"].map(|name| name.parse::<VarLenUnicode>().unwrap());
        let list = file.new_dataset::<VarLenUnicode>().shape([2]).create("instruments").unwrap();
        list.write_raw(&names).unwrap();
        let samples = file.create_group("samples").unwrap();
        let list = samples.new_dataset::<i32>().shape([300]).create("instrument").unwrap();
        list.write_raw(&(0..300).map(|n| n % 2).collect::<Vec<i32>>()).unwrap();
    });
    let [message, _] = stage.fails("plan --data windows.h5", 2);
    assert!(message.contains("no samples are left for validation (45 before the purge"), "{message}");
    // The message asked for a list, or a time, that are refused without times of samples.
    stage.with_hdf5("windows.h5", |path| {
        let list = File::open_rw(path).unwrap().dataset("samples/instrument").unwrap();
        list.write_raw(&(0..300).map(|n| n / 150).collect::<Vec<i32>>()).unwrap();
    });
    let [message, _] = stage.fails("plan --data windows.h5", 2);
    assert!(message.contains("from sample 1"), "{message}");
    assert!(message.contains("write f[\"timestamps\"] with h5py"), "{message}");
}

/// Writes `windows.h5`: windows of three bars of an hour in `dataset`, a sample a minute. Labels
/// end half an hour after their samples, or after `horizon_bars` of `base`.
fn write_hours_by_the_minute(stage: &Stage, dataset: &str, told: &[&str], horizon: (i64, &str)) {
    const START: i64 = 1_514_764_800_000_000_000;
    const SAMPLES: usize = 4_000;
    stage.with_hdf5("windows.h5", |path| {
        let file = File::create(path).unwrap();
        let list = |name: &str, minute: &dyn Fn(i64) -> i64| {
            let times: Vec<i64> = (240..).take(SAMPLES).map(|now| START + minute(now) * MINUTE_NS).collect();
            file.new_dataset::<i64>().shape([SAMPLES]).create(name).unwrap().write_raw(&times).unwrap();
        };
        if let Some((group, _)) = dataset.split_once('/') {
            file.create_group(group).unwrap();
        }
        let windows = file.new_dataset::<f32>().shape([SAMPLES, 3, 1]).create(dataset).unwrap();
        windows.write_raw(&(0..3 * SAMPLES).map(|k| (k % 101) as f32).collect::<Vec<f32>>()).unwrap();
        let targets = file.new_dataset::<f32>().shape([SAMPLES, 1]).create("targets").unwrap();
        targets.write_raw(&[0.5f32; SAMPLES]).unwrap();
        list("timestamps", &|now| now);
        file.create_group("samples").unwrap();
        for object in told {
            match *object {
                "label_end_time" => list("samples/label_end_time", &|now| now + 30),
                "reach_time" => list("samples/reach_time", &|now| (now / 60 - 3) * 60),
                "horizon_bars" => horizon_bars(&file, horizon.0),
                "base" => {
                    let attribute = file.new_attr::<VarLenUnicode>().create("base").unwrap();
                    attribute.write_scalar(&horizon.1.parse::<VarLenUnicode>().unwrap()).unwrap();
                }
                other => panic!("{other}"),
            }
        }
    });
}

/// Bars of a timeframe without a name, or of one that is no length, were taken to be as long as
/// samples are apart: validation windows began before the last training label ended.
#[test]
fn windows_of_bars_of_unknown_length_are_not_counted_in_samples() {
    let stage = Stage::new();
    let half_an_hour = (30, "M1");
    let label_ends: [&[&str]; 2] = [&["label_end_time"], &["horizon_bars", "base"]];
    let train = format!("train --data windows.h5 --out run {SMALL}");
    for (dataset, name, way) in [
        ("features", "/features", "\n  f.move(\"features\", \"M1\"); f.move(\"M1\", \"features/M1\")  # or H4"),
        ("features/foo", "foo", "\n  foo under the name M1, H4 or D1"),
    ] {
        for told in label_ends {
            write_hours_by_the_minute(&stage, dataset, told, half_an_hour);
            let refusal = format!("windows.h5 does not tell how far a window of {name} reaches back");
            let list = "f[\"samples/reach_time\"] = begins  # int64 [N]";
            for line in ["plan --data windows.h5", &train, "plan --data windows.h5 --set data.walk_forward=2"] {
                for message in stage.fails(line, 2) {
                    for part in [refusal.as_str(), way, list, "such as data.purge=8d"] {
                        assert!(message.contains(part), "{line}: no {part} in\n{message}");
                    }
                }
            }
            let [message, _] = stage.fails("leak windows.h5", 3);
            assert!(message.contains("nothing is proven") && message.contains(&refusal), "{message}");
            assert_eq!(parts(&stage, "plan --data windows.h5 --set data.purge=270m"), [2800, 331, 331]);
            write_hours_by_the_minute(&stage, dataset, &[told, &["reach_time"][..]].concat(), half_an_hour);
            assert_eq!(parts(&stage, "plan --data windows.h5"), [2800, 340, 340], "{told:?}");
        }
        // Labels that count bars need their length too.
        write_hours_by_the_minute(&stage, dataset, &["horizon_bars", "reach_time"], half_an_hour);
        let [message, _] = stage.fails("plan --data windows.h5", 2);
        assert!(message.contains("does not tell how long the bars are that horizon_bars counts"), "{message}");
        assert!(message.contains("f.attrs[\"base\"] = \"M1\"  # or H4"), "{message}");
    }
    assert!(!stage.path("run").exists());
    for told in label_ends {
        write_hours_by_the_minute(&stage, "features/H1", told, half_an_hour);
        assert_eq!(parts(&stage, "plan --data windows.h5"), [2800, 331, 331], "{told:?}");
    }
    // Samples within the bars do not stand at their closes, whatever the file says.
    write_hours_by_the_minute(&stage, "features/H1", &["horizon_bars", "base"], (1, "H1"));
    assert_eq!(parts(&stage, "plan --data windows.h5"), [2800, 241, 241]);
}

/// A series of such windows had a bar of training labels in its validation.
#[test]
fn a_series_of_bars_of_unknown_length_asks_for_the_purge() {
    let stage = Stage::new();
    stage.succeeds("synth bars.csv --days 4");
    stage.succeeds("ingest bars.csv --out series.h5 --symbol EURUSD --timeframes M15:8 --horizon 2 --stride 15");
    stage.succeeds("convert series.h5 windows.h5 --to windows");
    stage.with_hdf5("windows.h5", |path| File::open_rw(path).unwrap().relink("features/M15", "features/foo").unwrap());
    forget(&stage, "windows.h5", &["/samples/reach_time"]);
    stage.succeeds("convert windows.h5 foo.h5");
    let [message, _] = stage.fails("plan --data foo.h5", 2);
    assert!(message.contains("foo.h5 does not tell how far a window of foo reaches back"), "{message}");
    assert!(message.contains("f.pop(\"checksums\", None); f[\"samples/reach_time\"] = begins"), "{message}");
    let plan = stage.succeeds("plan --data foo.h5 --set data.purge=3h");
    assert!(!plan["notes"].to_string().contains("data.purge leaves"), "{plan}");
}

/// The first bar of a window was the last bar of a training label in a series of such windows.
#[test]
fn a_series_of_windows_without_times_is_split_as_they_are() {
    let stage = Stage::new();
    stage.with_hdf5("windows.h5", |path| {
        let file = File::create(path).unwrap();
        let windows = file.new_dataset::<f32>().shape([300, 8, 1]).create("features").unwrap();
        windows.write_raw(&(0..300).flat_map(|n| n..n + 8).map(|bar| bar as f32).collect::<Vec<f32>>()).unwrap();
        file.new_dataset::<f32>().shape([300, 1]).create("targets").unwrap().write_raw(&[0.5f32; 300]).unwrap();
    });
    stage.succeeds("convert windows.h5 untold.h5");
    let [message, _] = stage.fails("plan --data untold.h5", 2);
    assert!(message.contains("\n  f.attrs[\"horizon_bars\"] = 120"), "{message}");
    // A time in its place leaves no sample.
    assert!(message.contains("Or give data.purge=0s") && !message.contains("8d"), "{message}");
    assert!(!message.contains("label_end_time"), "{message}");
    stage.with_hdf5("windows.h5", |path| horizon_bars(&File::open_rw(path).unwrap(), 30));
    stage.succeeds("convert windows.h5 series.h5");
    for name in ["windows.h5", "series.h5"] {
        assert_eq!(parts(&stage, &format!("plan --data {name}")), [210, 8, 8], "{name}");
        // The series had the assumption and no warning.
        let warnings = stage.succeeds(&format!("plan --data {name}"))["warnings"].to_string();
        assert!(warnings.contains("as if all were of one instrument"), "{name}: {warnings}");
        // Ordinals were counted as nanoseconds.
        let [message, _] = stage.fails(&format!("plan --data {name} --set data.purge=8d"), 2);
        assert!(message.contains(&format!("{name} has ")), "{message}");
        assert!(message.contains(", so that a duration means nothing; use auto"), "{message}");
    }
}

/// The list of label ends was not read, and the message asked for it.
#[test]
fn ends_of_labels_without_times_of_samples_ask_for_these() {
    let (stage, bars) = (Stage::new(), TwoInstruments::new());
    bars.write(&stage, &["label_end_time", "reach_time"]);
    forget(&stage, "windows.h5", &["timestamps"]);
    for line in ["plan --data windows.h5", "plan --data windows.h5 --set data.walk_forward=2"] {
        let [message, _] = stage.fails(line, 2);
        assert!(message.contains("windows.h5 has /samples/label_end_time and no /timestamps"), "{message}");
        assert!(message.contains("\n  f[\"timestamps\"] = times  # int64 [N], ns since 1970 UTC"), "{message}");
        assert!(message.contains("Or give data.purge=0s"), "{message}");
    }
    stage.succeeds("plan --data windows.h5 --set data.purge=0s");
    let problems = stage.succeeds("inspect windows.h5")["problems"].to_string();
    assert!(problems.contains("the file has /samples/label_end_time and no times of its samples"), "{problems}");
    assert!(!problems.contains("does not tell when its labels end"), "{problems}");
    // Times of the beginnings of windows alone are not read either.
    forget(&stage, "windows.h5", &[LABEL_END]);
    let [message, _] = stage.fails("plan --data windows.h5", 2);
    assert!(message.contains("windows.h5 has /samples/reach_time and no /timestamps"), "{message}");
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
        horizon_bars(&file, 1);
    });
    let [message, _] = stage.fails("plan --data windows.h5", 2);
    assert!(message.contains("does not tell how far a window of fast reaches back"), "{message}");
    assert!(message.contains("such as data.purge=8d"), "{message}");
    assert_eq!(parts(&stage, "plan --data windows.h5 --set data.purge=5m"), [42, 5, 5]);
    let [message, _] = stage.fails("plan --data windows.h5 --set data.purge=8d", 2);
    assert!(message.contains("data.purge=8d is longer than the data, which span 59 min 0 s"), "{message}");
    // Times of less than half an hour were 0.0 days and 0.0 hours.
    assert!(stage.said("inspect windows.h5").contains("largest step 60.0 s\n"));
    stage.succeeds("plan --data windows.h5 --set data.split=[1,0,0]");
    stage.with_hdf5("windows.h5", |path| {
        let file = File::open_rw(path).unwrap();
        file.relink("features/fast", "features/M1").unwrap();
        file.relink("features/slow", "features/M5").unwrap();
    });
    let [message, _] = stage.fails("plan --data windows.h5", 2);
    assert!(message.contains("samples reach back up to 2") && message.contains(" min 0 s (their windows"), "{message}");
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
