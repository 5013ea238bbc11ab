//! From bars to what the model sees: checked against the CSV and the HDF5 file, read by nothing of
//! ours.

use crate::stage::{SMALL, Stage, bits, dataset, tensor};

/// Open time in seconds since 1970 and close of each bar of a CSV that `synth` made.
fn closes(stage: &Stage) -> Vec<(i64, f64)> {
    let text = stage.text("bars.csv");
    let bar = |line: &str| {
        let fields: Vec<&str> = line.split(',').collect();
        let time: jiff::civil::DateTime = fields[0].parse().unwrap();
        (time.to_zoned(jiff::tz::TimeZone::UTC).unwrap().timestamp().as_second(), fields[4].parse().unwrap())
    };
    text.lines().skip(1).map(bar).collect()
}

/// Bars of two days as series of two timeframes with `features`.
fn ingested(features: &str) -> (Stage, usize) {
    let stage = Stage::new();
    stage.succeeds("synth bars.csv --days 2 --seed 3");
    let line = "ingest bars.csv --out series.h5 --symbol EURUSD --timeframes H1:4,M1:6,M5:5 --horizon 5 --stride 7";
    let answer = stage.succeeds(&format!("{line} --scaling none --features {features}"));
    let samples = answer["samples"].as_u64().unwrap() as usize;
    (stage, samples)
}

const DUMPED: std::ops::Range<usize> = 11..60;

fn dump(stage: &Stage) -> Vec<u8> {
    stage.succeeds(&format!("inspect series.h5 --dump {}..{} dump.safetensors", DUMPED.start, DUMPED.end));
    stage.read("dump.safetensors")
}

#[test]
fn inspect_tells_what_ingest_made() {
    let (stage, samples) = ingested("log_return,range,rsi_14");
    assert!(samples > 200, "{samples}");
    let answer = stage.succeeds("inspect series.h5");
    assert_eq!(answer["layout"], "series");
    assert_eq!(answer["shape"]["samples"], samples);
    assert_eq!(answer["problems"], serde_json::json!([]));
    let timeframes = answer["timeframes"].as_array().unwrap();
    let windows: Vec<_> =
        timeframes.iter().map(|tf| (tf["name"].as_str().unwrap(), tf["steps"].as_u64().unwrap())).collect();
    assert_eq!(windows, [("M1", 6), ("M5", 5), ("H1", 4)], "shortest first");
    for timeframe in timeframes {
        let names: Vec<_> = timeframe["features"].as_array().unwrap().iter().map(|column| &column["name"]).collect();
        assert_eq!(names, ["log_return", "range", "rsi_14"]);
    }
    assert_eq!(answer["attributes"]["symbol"], "EURUSD");
    assert_eq!(answer["attributes"]["horizon_bars"], 5);
}

/// Bars from January to April, over a change of New York's clock: H4 and D1 by that clock are
/// proven, appended to and shown.
#[test]
fn bins_follow_the_clock_that_is_stated() {
    let stage = Stage::new();
    stage.succeeds("synth all.csv --days 100 --seed 3");
    let text = stage.text("all.csv");
    let cut = text.lines().count() * 9 / 10;
    let lines = |from: usize, to: usize| text.lines().skip(from).take(to - from).map(|line| format!("{line}\n"));
    stage.write("bars.csv", &lines(0, cut).collect::<String>());
    let later = lines(0, 1).chain(lines(cut, usize::MAX));
    stage.write("later.csv", &later.collect::<String>());
    let line = "ingest bars.csv --symbol EURUSD --timeframes H1:4,H4:3,D1:2 --features body --horizon 5 --stride 60";
    let refused = stage.run(&format!("{line} --out series.h5 --bins nowhere")).code(2);
    let message = String::from_utf8(refused.get_output().stderr.clone()).unwrap();
    let expected =
        "unknown time zone `nowhere`: expected UTC, an offset such as +02:00, a name such as America/New_York";
    assert!(message.contains("--bins") && message.contains(expected), "{message}");

    stage.succeeds(&format!("{line} --out utc.h5"));
    stage.succeeds(&format!("{line} --out stated.h5 --bins utc"));
    assert!(stage.read("utc.h5") == stage.read("stated.h5"), "UTC is the default");
    assert_eq!(stage.succeeds("inspect utc.h5")["bins"], serde_json::Value::Null);

    stage.succeeds(&format!("{line} --out series.h5 --bins new-york+7"));
    let hours = |timeframe: &str| {
        let file = hdf5::File::open(stage.path("series.h5")).unwrap();
        let times = file.dataset(&format!("series/{timeframe}/close_time")).and_then(|times| times.read_raw::<i64>());
        let times = times.unwrap().into_iter().map(|time| time / 1_000_000_000);
        // Before and after 11 March.
        let [mut winter, mut summer] = [Vec::new(), Vec::new()];
        for second in times {
            let hours = if second < 1_520_751_600 { &mut winter } else { &mut summer };
            hours.push(second % 86_400 / 3_600);
        }
        [winter, summer].map(|mut hours| {
            hours.sort_unstable();
            hours.dedup();
            hours
        })
    };
    assert_eq!(hours("D1"), [vec![22], vec![21]]);
    // The week begins on Sunday evening and ends on Friday, five hours before midnight UTC.
    assert_eq!(hours("H4"), [vec![2, 6, 10, 14, 18, 22], vec![1, 5, 9, 13, 17, 21]]);
    assert_eq!(stage.succeeds("inspect series.h5")["bins"], "new-york+7");
    assert!(stage.said("inspect series.h5").contains("start by the clock new-york+7\n"));

    let proof = stage.succeeds("leak series.h5 --samples 20");
    assert_eq!(proof["clock_changes"].as_array().unwrap().len(), 2, "{proof}");
    let [message, _] = stage.fails("ingest --append later.csv --symbol EURUSD --out series.h5 --bins utc", 2);
    assert!(message.contains("--bins: series.h5 was made with --bins=new-york+7 and is kept so"), "{message}");
    let before = hours("D1");
    stage.succeeds("ingest --append later.csv --symbol EURUSD --out series.h5");
    assert_eq!((hours("D1"), &stage.succeeds("inspect series.h5")["bins"]), (before, &"new-york+7".into()));
    stage.succeeds("leak series.h5 --samples 5");

    let [message, _] = stage.fails(&format!("{line} --out series.h5 --bins exchange"), 2);
    assert!(message.contains("bins=exchange: the files tell no clock"), "{message}");
    stage.succeeds(&format!("{line} --out named.h5 --zone Europe/Berlin --bins Europe/Berlin"));
    stage.succeeds(&format!("{line} --out exchange.h5 --zone Europe/Berlin --bins exchange"));
    assert!(stage.read("named.h5") == stage.read("exchange.h5"), "the file has the clock of its bars");
    assert_eq!(stage.succeeds("inspect exchange.h5")["bins"], "Europe/Berlin");
    stage.succeeds("ingest --append later.csv --symbol EURUSD --out exchange.h5 --bins exchange");

    // Chicago's clock is moved an hour after New York's.
    stage.succeeds(&format!("{line} --out chicago.h5 --bins America/Chicago+7"));
    assert_eq!(stage.succeeds("inspect chicago.h5")["bins"], "chicago+7");
    let proof = stage.succeeds("leak chicago.h5 --samples 5");
    assert_eq!(proof["clock_changes"].as_array().unwrap().len(), 3, "{proof}");
}

/// The bars of one pair became those of another without a word.
#[test]
fn a_file_that_is_named_after_another_pair_than_is_stated_is_named_with_both() {
    let stage = Stage::new();
    for name in ["EURUSD_2018.csv", "bars.csv"] {
        stage.succeeds(&format!("synth {name} --days 1"));
    }
    let told = |name: &str, symbol: &str| {
        stage.told(&format!("ingest {name} --out series.h5 --symbol {symbol} --timeframes M1:4"))
    };
    let note = "EURUSD_2018.csv is named after EURUSD, and its bars are taken for those of GBPUSD";
    assert!(told("EURUSD_2018.csv", "GBPUSD").contains(note));
    for (name, symbol) in [("EURUSD_2018.csv", "EURUSDm"), ("bars.csv", "GBPUSD")] {
        let told = told(name, symbol);
        assert!(!told.contains("is named after"), "{told}");
    }
}

/// `megabatch inspect EURUSD.csv` said that the file is no HDF5 file.
#[test]
fn inspect_tells_what_is_in_a_file_of_bars() {
    let stage = Stage::new();
    stage.succeeds("synth bars.csv --days 2 --seed 3");
    let answer = stage.succeeds("inspect bars.csv");
    assert_eq!((&answer["base"], &answer["symbol"]), (&serde_json::json!("M1"), &serde_json::json!("BARS")));
    assert_eq!(answer["kept"], closes(&stage).len());
    let text = stage.said("inspect bars.csv");
    assert!(text.contains("bars.csv: iso, ") && text.contains("`megabatch ingest bars.csv --out series.h5`"), "{text}");
}

/// `megabatch inspect` asked for a symbol, which it does not take.
#[test]
fn inspect_tells_the_symbols_of_a_file_of_several() {
    let stage = Stage::new();
    stage.succeeds("synth bars.csv --days 1 --seed 3");
    let text = stage.text("bars.csv");
    let (header, rows) = text.split_once('\n').unwrap();
    let named = |symbol: &str| rows.lines().map(|row| format!("{row},{symbol}\n")).collect::<String>();
    stage.write("all.csv", &format!("{header},symbol\n{}{}", named("BBB"), named("AAA")));
    let answer = stage.succeeds("inspect all.csv");
    let symbols = answer["symbols"].as_array().unwrap();
    assert_eq!(symbols.len(), 2);
    for (found, name) in symbols.iter().zip(["AAA", "BBB"]) {
        assert_eq!((&found["symbol"], &found["bars"]), (&name.into(), &rows.lines().count().into()));
    }
    let text = stage.said("inspect all.csv");
    assert!(text.contains("all.csv: bars of 2 symbols") && text.contains("--symbol AAA"), "{text}");

    // `--all` printed 24 of them.
    let names: Vec<String> = (0..30).map(|n| format!("S{n:02}")).collect();
    let bars: String = names.iter().map(|name| named(name)).collect();
    stage.write("many.csv", &format!("{header},symbol\n{bars}"));
    let text = stage.said("inspect many.csv --all");
    assert!(names.iter().all(|name| text.contains(&format!("\n  {name} "))), "{text}");
    assert!(stage.said("inspect many.csv").contains("more, which --json lists"));

    // The context's name chooses the symbol, and one that is not there is told with those that are.
    let recipe = "--timeframes M1:5 --features body --target log_return --horizon 2";
    stage.succeeds(&format!("ingest bars.csv --out series.h5 --context BBB=all.csv {recipe}"));
    let [_, error] = stage.fails(&format!("ingest bars.csv --out series.h5 --context BBX=all.csv {recipe}"), 3);
    let expected = "`BBX` is none of the 2 symbols of the file; the nearest are BBB, AAA: state one of them";
    assert!(error.contains("context BBX") && error.contains(expected), "{error}");
}

/// A cut list of symbols that cannot be used ended with the number of its lines that were left out.
#[test]
fn inspect_counts_the_symbols_that_cannot_be_used() {
    let stage = Stage::new();
    stage.succeeds("synth bars.csv --days 1 --seed 3");
    let text = stage.text("bars.csv");
    let rows: Vec<&str> = text.lines().skip(1).take(100).collect();
    let named = |symbol: usize| rows.iter().map(|row| format!("{row},G{symbol}\n")).collect::<String>();
    let time = rows[0].split(',').next().unwrap();
    let bad = |symbol: usize| format!("{time},1,2,1,-1,5,B{symbol}\n");
    let (usable, unusable) = ((0..30).map(named).collect::<String>(), (0..13).map(bad).collect::<String>());
    stage.write("all.csv", &format!("time,open,high,low,close,volume,symbol\n{usable}{unusable}"));
    assert_eq!(stage.succeeds("inspect all.csv")["unusable"].as_array().unwrap().len(), 13);
    let text = stage.said("inspect all.csv");
    assert!(text.contains("… and 8 more, which --json lists\n") && text.contains("\n  and 3 more\n"), "{text}");
    assert!(text.lines().count() <= 40, "{text}");
}

/// `megabatch inspect FOLDER` said that this is not a file.
#[test]
fn inspect_tells_what_is_in_each_file_of_a_folder() {
    let stage = Stage::new();
    std::fs::create_dir(stage.path("data")).unwrap();
    stage.succeeds("synth data/EURUSD.csv --days 1");
    stage.succeeds("synth data/series.h5 --samples 200 --timeframes M1:4 --features 3 --targets 2");
    stage.write("data/notes.md", "of no kind");
    let answer = stage.succeeds("inspect data");
    let names = |answer: &serde_json::Value| -> Vec<String> {
        let files = answer["files"].as_array().unwrap();
        files.iter().map(|file| file["file"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names(&answer), ["data/EURUSD.csv", "data/series.h5"]);
    assert_eq!(answer["files"][0]["contents"], stage.succeeds("inspect data/EURUSD.csv"));
    assert!(stage.said("inspect data").contains("data/series.h5: "));
    stage.write("data/junk.csv", "no bars");
    let answer = stage.answers("inspect data", 3);
    assert_eq!(names(&answer)[1], "data/junk.csv");
    let error = answer["files"][1]["error"].as_str().unwrap();
    assert!(error.contains("data/junk.csv: no bars recognised"), "{error}");
}

#[test]
fn windows_are_the_rows_that_had_closed() {
    let (stage, samples) = ingested("log_return,range");
    let dump = dump(&stage);
    let series = stage.path("series.h5");
    let (_, times) = dataset::<i64>(&series, "samples/time");
    assert_eq!(times.len(), samples);
    for (timeframe, steps) in [("M1", 6), ("M5", 5), ("H1", 4)] {
        let (shape, windows) = tensor(&dump, &format!("features.{timeframe}"));
        assert_eq!(shape, [DUMPED.len(), steps, 2]);
        let (_, values) = dataset::<f32>(&series, &format!("series/{timeframe}/values"));
        let (_, close_times) = dataset::<i64>(&series, &format!("series/{timeframe}/close_time"));
        for (n, window) in DUMPED.zip(windows.chunks_exact(steps * 2)) {
            let closed = close_times.iter().filter(|&&close_time| close_time <= times[n]).count();
            let expected = &values[(closed - steps) * 2..closed * 2];
            assert_eq!(bits(window), bits(expected), "{timeframe}, sample {n}");
        }
    }
}

#[test]
fn features_and_targets_follow_from_the_bars() {
    let (stage, _) = ingested("log_return");
    let dump = dump(&stage);
    let bars = closes(&stage);
    let (_, times) = dataset::<i64>(&stage.path("series.h5"), "samples/time");
    let (shape, targets) = tensor(&dump, "targets");
    assert_eq!(shape, [DUMPED.len(), 5]);
    let (_, windows) = tensor(&dump, "features.M1");
    for (n, (targets, window)) in DUMPED.zip(targets.chunks_exact(5).zip(windows.chunks_exact(6))) {
        let t = bars.iter().position(|(open_time, _)| (open_time + 60) * 1_000_000_000 == times[n]).unwrap();
        let close = |bar: usize| bars[bar].1;
        let changes: Vec<f32> = (1..=5).map(|k| ((close(t + k) - close(t)) / 0.0001) as f32).collect();
        assert_eq!(bits(targets), bits(&changes), "sample {n}");
        for (step, &value) in window.iter().enumerate() {
            let bar = t + 1 + step - 6;
            let log_return = (close(bar) / close(bar - 1)).ln();
            // Half an ulp of the f32, and of the quotient, which is near 1.
            let tolerance = log_return.abs() * 2f64.powi(-24) + 1e-15;
            assert!(
                (f64::from(value) - log_return).abs() <= tolerance,
                "sample {n}, step {step}: {value} {log_return}"
            );
        }
    }
}

#[test]
fn both_layouts_of_made_up_samples_train() {
    for (layout, windows) in [
        ("series", "--timeframes M1:4,M5:3"),
        ("windows", "--timeframes M1:4,M5:3"),
        ("windows", "--steps 4"),
        ("windows", "--steps 4 --compression lzf --chunk-rows 7"),
        ("windows", "--steps 4 --compression contiguous"),
    ] {
        let stage = Stage::new();
        let line = format!("synth data.h5 --layout {layout} {windows} --samples 150 --features 3 --targets 2");
        assert_eq!(stage.succeeds(&line)["samples"], 150);
        let answer = stage.succeeds("inspect data.h5");
        assert_eq!((&answer["layout"], &answer["problems"]), (&layout.into(), &serde_json::json!([])), "{line}");
        stage.succeeds(&format!("train --data data.h5 --out run --max-steps 1 {SMALL} --set data.purge=5m"));
        let weights = &stage.checkpoint("run", 1)[0];
        let first = if windows.contains("M1") { "lstm.M1.weight_ih_l0" } else { "lstm.weight_ih_l0" };
        assert_eq!(tensor(weights, first).0, [16, 3], "{line}");
    }
}

#[test]
fn a_model_is_used_on_numbers_of_the_same_meaning_only() {
    let stage = Stage::new();
    stage.succeeds("synth bars.csv --days 3");
    let ingest = "ingest bars.csv --symbol EURUSD --timeframes M1:4 --horizon 2 --stride 7";
    stage.succeeds(&format!("{ingest} --out series.h5 --features body,range"));
    stage.succeeds(&format!("{ingest} --out others.h5 --features body,rsi_14"));
    stage.succeeds(&format!("{ingest} --out steps.h5 --features body,range --target increment"));
    stage.succeeds(&format!("train --data series.h5 --out run --max-steps 1 {SMALL}"));
    for (data, difference) in [
        ("others.h5", "feature 1 of M1 was range in training and is rsi_14 here"),
        ("steps.h5", "the targets were cumulative in training and are increment here"),
    ] {
        let [message, _] = stage.fails(&format!("eval --run run --data {data}"), 3);
        assert!(message.starts_with(&format!("{data}: {difference}")), "{message}");
    }
}

#[test]
fn a_model_on_bars_by_another_clock_is_warned_of() {
    let stage = Stage::new();
    stage.succeeds("synth bars.csv --days 9");
    let ingest =
        "ingest bars.csv --symbol EURUSD --timeframes M1:4,H4:2 --features body --horizon 2 --stride 7 --scaling none";
    stage.succeeds(&format!("{ingest} --bins new-york+7 --out broker.h5"));
    stage.succeeds(&format!("{ingest} --out utc.h5"));
    stage.succeeds(&format!("train --data broker.h5 --out run --max-steps 1 {SMALL}"));
    let warning = "warning: utc.h5: bins were new-york+7 in training and are UTC here: the model sees other bars";
    for line in ["eval --run run --data utc.h5", "predict --run run --data utc.h5 --out p.csv"] {
        let told = stage.told(line);
        assert!(told.contains(warning), "{line}: {told}");
    }
    assert!(!stage.told("eval --run run").contains("bins were"));
}

/// A series whose scalers a run needs was replaced without a word.
#[test]
fn a_series_of_another_recipe_is_replaced_with_a_note() {
    let stage = Stage::new();
    for (seed, name) in ["first", "second"].into_iter().enumerate() {
        stage.succeeds(&format!("synth {name}.csv --days 3 --seed {seed}"));
    }
    let told = |files_and_options: &str| {
        stage.told(&format!("ingest {files_and_options} --out series.h5 --symbol EURUSD --timeframes M1:4"))
    };
    for (line, other) in [
        ("first.csv --horizon 2", None),
        ("first.csv --horizon 2", None),
        ("first.csv --horizon 3 --scaling none", Some("a series with other options (horizon, scaling) was replaced")),
        ("second.csv --horizon 3 --scaling none", Some("a series of other files was replaced")),
    ] {
        let told = told(line);
        match other {
            None => assert!(!told.contains("was replaced"), "{line}: {told}"),
            Some(other) => assert!(told.contains(other) && told.contains("--append adds bars"), "{line}: {told}"),
        }
    }
}

/// The base and overlaps that `ingest --append` records were said to have changed.
#[test]
fn a_series_that_has_grown_is_replaced_with_a_note_on_what_was_changed() {
    let stage = Stage::new();
    stage.succeeds("synth bars.csv --days 3");
    let text = stage.text("bars.csv");
    let rows: Vec<&str> = text.lines().collect();
    stage.write("old.csv", &format!("{}\n", rows[..3000].join("\n")));
    stage.write("new.csv", &format!("{}\n{}\n", rows[0], rows[3000..].join("\n")));
    let ingest = "--out series.h5 --symbol EURUSD --timeframes M1:4";
    stage.succeeds(&format!("ingest old.csv --horizon 2 {ingest}"));
    stage.succeeds("ingest --append new.csv --symbol EURUSD --out series.h5");
    let told = stage.told(&format!("ingest old.csv new.csv --horizon 3 {ingest}"));
    assert!(told.contains("a series with other options (horizon) was replaced"), "{told}");
}

// `megabatch eval --run run --data audusd.h5` of a model of EURUSD said nothing.
#[test]
fn a_model_on_another_instrument_is_doubted() {
    let stage = Stage::new();
    let recipe = "--timeframes M1:6,M5:3 --features body,range --horizon 2";
    for (seed, name) in ["EURUSD", "AUDUSD"].into_iter().enumerate() {
        stage.succeeds(&format!("synth {name}.csv --days 9 --seed {seed}"));
        stage.succeeds(&format!("ingest {name}.csv --out {name}.h5 {recipe}"));
    }
    stage.succeeds(&format!("train --data EURUSD.h5 --out run --max-steps 2 {SMALL}"));
    let doubt = "warning: AUDUSD.h5: the model was trained on EURUSD and is used on AUDUSD: it sees other inputs than it learned; --allow-other-instruments";
    // The latest samples lie in a temporary file, which it named.
    for command in ["eval", "predict --out p.csv", "predict --samples latest --out p.csv"] {
        let told = stage.told(&format!("{command} --run run --data AUDUSD.h5"));
        assert!(told.contains(doubt), "{command}: {told}");
    }
    assert!(stage.said("eval --run run --data AUDUSD.h5").starts_with("errors in pips, horizons in bars of M1\n"));
    for line in ["eval --run run", "eval --run run --data AUDUSD.h5 --allow-other-instruments"] {
        assert!(!stage.told(line).contains("other-instruments"), "{line}");
    }
    // Each of the folds said it.
    stage.succeeds(&format!("train --data EURUSD.h5 --out walk --max-steps 2 --set data.walk_forward=2 {SMALL}"));
    for command in ["eval", "predict --out p.csv"] {
        let told = stage.told(&format!("{command} --run walk --data AUDUSD.h5"));
        assert_eq!(told.matches(doubt).count(), 1, "{command}: {told}");
    }
}

#[test]
fn windows_without_timestamps_are_split_by_position() {
    let stage = Stage::new();
    stage.with_hdf5("windows.h5", |path| {
        let file = hdf5::File::create(path).unwrap();
        let group = file.create_group("features").unwrap();
        for (name, steps) in [("M1", 4), ("M5", 2)] {
            let values = vec![0.25f32; 200 * steps * 3];
            let dataset = group.new_dataset::<f32>().shape([200, steps, 3]).create(name).unwrap();
            dataset.write_raw(&values).unwrap();
        }
        let targets = file.new_dataset::<f32>().shape([200, 2]).create("targets").unwrap();
        targets.write_raw(&vec![0.5f32; 400]).unwrap();
        file.new_attr::<i64>().create("horizon_bars").unwrap().write_scalar(&2).unwrap();
    });
    // Two bars of M5 and four minutes of the next are 14 of M1, one a sample, and two more are
    // labels: 16 samples apart, 15 are left out at each split.
    let plan = stage.succeeds("plan --data windows.h5");
    assert_eq!(plan["split"]["purged"], 30, "{plan}");
    assert_eq!(stage.succeeds("plan --data windows.h5 --set data.purge=0s")["split"]["purged"], 0);
    stage.fails("plan --data windows.h5 --set data.purge=1h", 2);
}

#[test]
fn a_file_of_which_little_is_kept_is_doubted() {
    let stage = Stage::new();
    stage.succeeds("synth bars.csv --days 3");
    let ingest = "ingest bars.csv --out series.h5 --symbol EURUSD --timeframes M1:4 --on-error repair";
    let doubts = |stage: &Stage| stage.succeeds(ingest)["warnings"].to_string().contains("rows were kept");
    assert!(!doubts(&stage));
    let garbage = "not a bar\n".repeat(1000);
    std::fs::write(stage.path("bars.csv"), stage.text("bars.csv") + &garbage).unwrap();
    assert!(doubts(&stage));
}

/// `inspect` of a series of five timeframes printed one warning five times, and `--all` 12 features
/// of 30.
#[test]
fn inspect_tells_a_problem_of_several_tables_once_and_tells_the_problem() {
    let stage = Stage::new();
    stage.succeeds("synth series.h5 --samples 200 --timeframes M1:4,M5:3,M15:2,H1:2,H4:2 --features 30 --targets 36");
    stage.with_hdf5("series.h5", |path| {
        let file = hdf5::File::open_rw(path).unwrap();
        for timeframe in ["M1", "M5", "H4"] {
            let table = file.dataset(&format!("series/{timeframe}/values")).unwrap();
            let mut values = table.read_raw::<f32>().unwrap();
            values.iter_mut().step_by(30).for_each(|value| *value = 1.0);
            table.write_raw(&values).unwrap();
        }
    });
    let tells_the_problem = |text: &str| {
        assert_eq!(text.matches("is constant at 1").count(), 1, "{text}");
        assert!(text.contains("warning: /series/M1/values, /series/M5/values, /series/H4/values: column"), "{text}");
    };
    let text = stage.said("inspect series.h5");
    tells_the_problem(&text);
    assert!(text.lines().count() <= 40 && text.contains("`--all` prints all attributes and "), "{text}");
    for timeframe in ["M1: windows of 4", "M5: windows of 3", "H4: windows of 2"] {
        let line = text.lines().find(|line| line.starts_with(timeframe)).unwrap_or_else(|| panic!("{text}"));
        assert!(line.ends_with(", 30 features"), "{line}");
    }
    let text = stage.said("inspect series.h5 --all");
    tells_the_problem(&text);
    // Each feature of each timeframe, and each target.
    assert!(!text.contains("more, which --json lists") && text.lines().count() > 5 * 30 + 36, "{text}");
    assert_eq!(stage.succeeds("inspect series.h5")["problems"].as_array().unwrap().len(), 3);
}

/// `inspect --all` printed 24 datasets of those that it was said to print.
#[test]
fn inspect_prints_each_dataset_where_all_is_asked_for() {
    let stage = Stage::new();
    let timeframes = "M1:4,M5:3,M15:2,M30:2,H1:2,H4:2,D1:2";
    stage.succeeds(&format!("synth series.h5 --samples 200 --timeframes {timeframes} --features 2 --targets 2"));
    let answer = stage.succeeds("inspect series.h5");
    let datasets = answer["datasets"].as_array().unwrap();
    assert!(datasets.len() > 24, "{datasets:?}");
    let said = format!("`--all` prints all attributes and {} datasets, and ", datasets.len());
    assert!(stage.said("inspect series.h5").contains(&said));
    let text = stage.said("inspect series.h5 --all");
    for dataset in datasets {
        let path = dataset["path"].as_str().unwrap();
        assert!(text.contains(&format!("\n  {path} ")), "{path}: {text}");
    }
}

/// 1,024 threads on two cores were planned and run without a word.
#[test]
fn more_threads_than_cores_are_noted() {
    let stage = Stage::with_series();
    let notes = |threads: &str| stage.succeeds(&format!("plan --data series.h5 {threads}"))["notes"].to_string();
    assert!(notes("--set training.threads=1024").contains("training.threads is 1024 and this machine has"));
    assert!(!notes("").contains("training.threads"));
}

/// Paths of own bars stayed as they were typed.
#[test]
fn own_bars_are_told_with_absolute_paths() {
    let stage = Stage::new();
    stage.succeeds("synth EURUSD_M1.csv --days 4");
    let text = stage.text("EURUSD_M1.csv");
    let hours: Vec<&str> = text.lines().filter(|line| !line.contains(':') || line.contains(":00,")).collect();
    stage.write("EURUSD_H1.csv", &format!("{}\n", hours.join("\n")));
    let recipe = "--timeframes M1:5,H1:3 --features body --horizon 2 --own-bars";
    let answer = stage.succeeds(&format!("ingest EURUSD_M1.csv EURUSD_H1.csv --out series.h5 {recipe}"));
    let own = &answer["source"]["instruments"][0]["own"][0];
    assert_eq!(own["timeframe"], "H1");
    let path = own["files"][0]["file"].as_str().unwrap();
    assert!(path.starts_with('/') && path.ends_with("/EURUSD_H1.csv"), "{path}");
    let follow = &stage.succeeds("plan --data series.h5")["uses"][0];
    assert!(follow.as_str().unwrap().starts_with("no `predict --follow`, which makes longer bars"), "{follow}");
}
