//! The proof that no sample sees a bar that had not closed, and what it refuses to prove.

use std::fs;

use crate::stage::{SERIES, Stage};

const MADE: &str =
    "ingest bars.csv --out series.h5 --symbol EURUSD --timeframes M1:20,M5:6,H1:4 --horizon 5 --stride 11";

/// Three days of bars, and the series made of them.
fn ingested() -> Stage {
    let stage = Stage::new();
    stage.succeeds("synth bars.csv --days 4");
    stage.succeeds(MADE);
    stage
}

#[test]
fn samples_are_proven_at_random_and_around_changes_of_the_clocks() {
    let stage = Stage::new();
    // The bars begin on 1 January 2018; New York changes its clocks on 11 March.
    stage.succeeds("synth bars.csv --days 72");
    stage.succeeds(&MADE.replace("--stride 11", "--stride 60"));
    let answer = stage.succeeds("leak series.h5 --samples 3 --seed 5");
    assert_eq!(answer["clock_changes"], serde_json::json!(["2018-03-11 07:00 UTC"]));
    assert_eq!((&answer["random_samples"], &answer["scalers_proven"]), (&3.into(), &true.into()));
    assert_eq!(
        answer["samples_proven"],
        3 + 2,
        "the change lies in a weekend: the last before it and the first after it"
    );
    assert!(answer["bars_replaced"].as_u64().unwrap() >= 5 * 5, "a horizon of five bars for each");
}

/// `leak --samples 0` said of no samples that each is the same whatever follows it.
#[test]
fn every_instrument_is_proven() {
    let stage = Stage::new();
    for (symbol, seed) in [("EURUSD", 1), ("USDJPY", 2)] {
        stage.succeeds(&format!("synth {symbol}.csv --days 4 --seed {seed}"));
    }
    let made = MADE.replace("bars.csv", "EURUSD.csv USDJPY.csv").replace("--symbol EURUSD ", "");
    let symbols = serde_json::json!(["EURUSD", "USDJPY"]);
    assert_eq!(stage.succeeds(&made)["symbols"], symbols);
    let answer = stage.answers("leak series.h5 --samples 8", 3);
    assert_eq!((&answer["instruments"], &answer["samples_proven"]), (&symbols, &8.into()));
}

/// The series is made again and compared in pieces: four times the bars take the same memory, which
/// in one piece were 220 MB more.
#[test]
#[cfg(target_os = "linux")]
fn memory_does_not_grow_with_bars() {
    let stage = Stage::new();
    let proven = |days: u32| {
        stage.succeeds(&format!("synth bars.csv --days {days}"));
        stage.succeeds("ingest bars.csv --out series.h5 --symbol EURUSD");
        let peak =
            stage.succeeds("leak series.h5 --samples 2 --set data.split=[1,0,0]")["peak_rss_bytes"].as_u64().unwrap();
        (fs::metadata(stage.path("series.h5")).unwrap().len(), peak)
    };
    let ((small, peak_of_small), (large, peak_of_large)) = (proven(60), proven(240));
    assert!(large > small + 50_000_000, "{small} and {large} bytes");
    assert!(peak_of_large < peak_of_small + 32_000_000, "{peak_of_small} and {peak_of_large} bytes");
}

#[test]
fn bars_are_found_where_they_were_moved() {
    let stage = ingested();
    fs::rename(stage.path("bars.csv"), stage.path("moved.csv")).unwrap();
    let [message, _] = stage.fails("leak series.h5", 3);
    assert!(message.contains("bars.csv: ") && message.contains("--source"), "{message}");
    // All else is proven of a file that is too short to be split.
    let proven = stage.answers("leak series.h5 --samples 1 --source moved.csv", 3);
    assert!(proven["split"]["none_because"].as_str().unwrap().contains("no samples are left"), "{proven}");
    stage.succeeds("leak series.h5 --samples 1 --source moved.csv --set data.split=[1,0,0]");
    stage.succeeds("synth other.csv --days 4 --seed 9");
    let [message, _] = stage.fails("leak series.h5 --source other.csv", 3);
    let says = "--source: none of the files has the bytes of /";
    assert!(message.contains(says) && message.contains("/bars.csv, of which series.h5 was made"), "{message}");
}

/// A warning has the path of a file as it was typed, and the bars are read again by the absolute
/// one.
#[test]
fn warnings_that_name_a_file_are_no_difference() {
    let stage = Stage::new();
    stage.succeeds("synth bars.csv --days 4");
    let text = stage.text("bars.csv");
    let (header, rows) = text.split_once('\n').unwrap();
    let rows: String = rows.lines().map(|row| format!("{},-1\n", row.rsplit_once(',').unwrap().0)).collect();
    stage.write("bars.csv", &format!("{header}\n{rows}"));
    let recipe = "--symbol EURUSD --timeframes M1:5,M5:3 --features body --horizon 2";
    let answer = stage.succeeds(&format!("ingest bars.csv --out series.h5 {recipe}"));
    let warnings = answer["source"]["instruments"][0]["warnings"].to_string();
    assert!(warnings.contains("bars.csv has no volume"), "{warnings}");
    stage.succeeds("leak series.h5 --samples 2");
    fs::rename(stage.path("bars.csv"), stage.path("moved.csv")).unwrap();
    stage.succeeds("leak series.h5 --samples 2 --source moved.csv");
}

#[test]
fn bars_and_series_that_do_not_belong_together_are_refused() {
    let stage = ingested();
    let text = stage.text("bars.csv");
    stage.write("bars.csv", &text.replacen("1.", "2.", 1));
    let [message, _] = stage.fails("leak series.h5", 3);
    assert!(message.contains("bars.csv: these are not the bytes that series.h5 was made of"), "{message}");
    stage.write("bars.csv", &text);

    stage.damage("series.h5", |path| {
        let values = hdf5::File::open_rw(path).and_then(|file| file.dataset("series/M5/values")).unwrap();
        let mut changed = values.read_raw::<f32>().unwrap();
        changed[1000] += 1e-6;
        values.write_raw(&changed).unwrap();
    });
    let [message, _] = stage.fails("leak series.h5", 3);
    assert!(
        message.contains("series.h5: /series/M5/values[0]: expected rows 0 to 63 as they were written"),
        "{message}"
    );
    // Without its mark of verification, the file tells nothing of the change.
    stage.with_hdf5("series.h5", |_| ());
    let [message, _] = stage.fails("leak series.h5", 3);
    assert!(message.contains("series.h5: /series/M5/values is not what its bars give"), "{message}");
}

/// It was told of a change of the attribute time_kind.
#[test]
fn a_series_that_was_windows_is_not_proven() {
    let stage = Stage::new();
    stage.succeeds("synth bars.csv --days 8 --seed 5");
    stage.succeeds("ingest bars.csv --out series.h5 --timeframes M1:8,M5:4 --target log_return --horizon 2 --stride 8");
    stage.succeeds("convert series.h5 windows.h5 --to windows");
    stage.succeeds("convert windows.h5 back.h5");
    let [message, _] = stage.fails("leak back.h5 --samples 2", 3);
    assert!(message.contains("back.h5: it was converted from windows"), "{message}");
}

#[test]
fn a_file_that_says_something_else_of_its_bars_is_refused() {
    type Change = (&'static str, fn(&hdf5::File));
    let cases: [Change; 3] = [
        ("the attribute horizon_bars", |file| file.attr("horizon_bars").unwrap().write_scalar(&1_i64).unwrap()),
        ("the attribute pip_size", |file| file.attr("pip_size").unwrap().write_scalar(&1.0_f64).unwrap()),
        ("the account of the bars", |file| {
            let source = file.attr("source").unwrap();
            let text = source.read_scalar::<hdf5::types::VarLenUnicode>().unwrap();
            let changed = text.replace("\"flat\":", "\"flat\":9");
            assert_ne!(changed, text.as_str());
            source.write_scalar(&changed.parse::<hdf5::types::VarLenUnicode>().unwrap()).unwrap();
        }),
    ];
    for (what, change) in cases {
        let stage = ingested();
        stage.with_hdf5("series.h5", |path| change(&hdf5::File::open_rw(path).unwrap()));
        let [message, _] = stage.fails("leak series.h5", 3);
        assert!(message.contains(&format!("series.h5: {what}")), "{message}");
    }
}

#[test]
fn what_was_not_made_of_bars_cannot_be_proven() {
    let stage = Stage::new();
    stage.succeeds(SERIES);
    let [message, _] = stage.fails("leak series.h5", 3);
    assert!(message.contains("series.h5: /@source: expected the recipe by which `ingest` made the file"), "{message}");
}
