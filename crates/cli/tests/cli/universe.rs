//! Folders of daily shares: one file that cannot be used costs its own share.

use std::fs;

use serde_json::json;

use crate::stage::{Stage, dataset};

const MADE: &str = "--timeframes D1:5 --features log_return,range --target log_return --horizon 2";

/// A share of `days` days from the `first`-th of 2020 on, as Alpha Vantage writes it, newest first:
/// split 2:1 on its 30th day.
fn share(first: i64, days: i64, phase: f64) -> String {
    let header = "timestamp,open,high,low,close,adjusted_close,volume,dividend_amount,split_coefficient\n";
    let row = |k: i64| {
        let day = jiff::civil::date(2020, 1, 1).checked_add(jiff::Span::new().days(first + k)).unwrap();
        let adjusted = 50.0 + 10.0 * (0.37 * k as f64 + phase).sin();
        let (quoted, split) = (if k < 30 { 2.0 * adjusted } else { adjusted }, if k == 30 { 2.0 } else { 1.0 });
        let (high, low) = (1.01 * quoted, 0.99 * quoted);
        format!("{day},{quoted},{high},{low},{quoted},{adjusted},{},0.0,{split}\n", 1_000 + k)
    };
    header.to_owned() + &(0..days).rev().map(row).collect::<String>()
}

/// Ten shares, one of them listed late, and three that `skip` leaves out.
fn universe() -> Stage {
    let stage = Stage::new();
    fs::create_dir(stage.path("shares")).unwrap();
    let write = |name: &str, text: &str| {
        fs::write(stage.path(&format!("shares/DA-{name}-T-2021-04-21.csv")), text).unwrap();
    };
    (0..9).for_each(|k| write(&format!("S{k}"), &share(0, 120, f64::from(k))));
    write("LATE", &share(20, 100, 0.5));
    write("BF.B", "{\nError Message\n}\n");
    write("SHORT", &share(0, 4, 0.0));
    write("NEW", &share(100, 20, 0.0));
    stage
}

#[test]
fn a_folder_becomes_one_series_without_the_shares_that_cannot_be_in_it() {
    let stage = universe();
    let [failed, _] = stage.fails(&format!("ingest shares --out series.h5 {MADE}"), 3);
    assert!(failed.contains("DA-BF.B-T") && !stage.path("series.h5").exists(), "{failed}");

    let answer = stage.succeeds(&format!("ingest shares --out series.h5 --on-error skip {MADE}"));
    let universe = &answer["universe"];
    let left_out: Vec<&str> =
        universe["left_out"].as_array().unwrap().iter().map(|share| share["symbol"].as_str().unwrap()).collect();
    assert_eq!(left_out, ["BF.B", "NEW", "SHORT"]);
    assert_eq!((&universe["instruments"], &universe["listed_late"]), (&json!(10), &json!(["LATE"])));
    assert_eq!(universe["splits"].as_array().unwrap().len(), 10);
    assert_eq!(universe["splits"][1], json!({ "symbol": "S0", "date": "2020-01-31", "coefficient": 2.0 }));

    // Every share has its samples at instants of all, and no split is a return.
    let series = stage.path("series.h5");
    let (_, times) = dataset::<i64>(&series, "samples/time");
    let mut instants = times.clone();
    instants.sort_unstable();
    instants.dedup();
    assert_eq!(answer["instants"], instants.len());
    let (_, targets) = dataset::<f32>(&series, "targets");
    assert!(targets.iter().all(|target| target.abs() < 0.3));
    assert_eq!(stage.succeeds("inspect series.h5")["instruments"][0]["pip_size"], json!(null));
    let (short, all) = (stage.said("inspect series.h5"), stage.said("inspect series.h5 --all"));
    assert!(short.lines().count() <= 40 && short.contains("\n10 instruments\n"), "{short}");
    assert!(!short.contains("\n  S8 ") && all.contains("\n  S8 "), "{short}\n{all}");
}

/// Minutes of a year a folder: those of one year were read, and nobody was told.
#[test]
fn folders_of_bars_that_are_not_read_are_named() {
    let stage = universe();
    for (folder, name) in [("2019", "S0.csv"), ("2020", "S0.csv"), ("notes", "read.me")] {
        fs::create_dir(stage.path(&format!("shares/{folder}"))).unwrap();
        fs::write(stage.path(&format!("shares/{folder}/{name}")), share(0, 120, 1.0)).unwrap();
    }
    let told = stage.told(&format!("ingest shares --out series.h5 --on-error skip {MADE}"));
    let expected =
        "shares: bars in its folders 2019, 2020 are not read; name those that are meant, such as shares/2019";
    assert!(told.contains(expected), "{told}");
}

#[test]
fn a_folder_is_told_in_a_few_lines() {
    let stage = universe();
    let text = stage.said(&format!("ingest shares --out series.h5 --on-error skip {MADE}"));
    for part in [
        "10 instruments: 1180 bars from 2020-01-01",
        "listed late, 1: LATE from 2020-01-21 (100 bars)",
        "written newest first and turned round: 10 files",
        "prices of 10 files adjusted, for 10 splits and 0 dividends",
        "left out, 3:",
        "  BF.B: ",
        "  SHORT: too few bars for one sample",
        "of 10 instruments at",
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
    assert!(text.lines().count() < 40, "{text}");
}

/// Validation and test were of one pair alone, and training of the other, without a word.
#[test]
fn instruments_of_other_years_are_told() {
    let stage = Stage::new();
    fs::create_dir(stage.path("shares")).unwrap();
    stage.write("shares/EARLY.csv", &share(0, 100, 0.5));
    stage.write("shares/LATE.csv", &share(300, 100, 1.5));
    let warnings = stage.succeeds(&format!("ingest shares --out series.h5 {MADE}"))["warnings"].to_string();
    assert!(warnings.contains("no two of EARLY, LATE have a sample at the same time"), "{warnings}");
}

/// Warnings about files had no symbol in the JSON.
#[test]
fn warnings_about_one_of_several_shares_name_it() {
    let stage = Stage::new();
    fs::create_dir(stage.path("shares")).unwrap();
    let split = |k: i64| if k < 60 { 100.0 } else { 50.0 };
    let row = |k: i64| {
        let day = jiff::civil::date(2020, 1, 1).checked_add(jiff::Span::new().days(k)).unwrap();
        let price = split(k) + 0.1 * (0.37 * k as f64).sin();
        format!("{day},{price},{},{},{price},{}\n", price + 0.2, price - 0.2, 1_000 + k)
    };
    let rows: String = (0..120).map(row).collect();
    stage.write("shares/SPLIT.csv", &format!("date,open,high,low,close,volume\n{rows}"));
    let warnings = |files: &str| {
        let answer = stage.succeeds(&format!("ingest {files} --out series.h5 {MADE}"));
        answer["warnings"].as_array().unwrap().clone()
    };
    let alone = warnings("shares/SPLIT.csv");
    assert!(alone[0].as_str().unwrap().starts_with("the price goes from "), "{alone:?}");
    stage.write("shares/AA.csv", &share(0, 120, 0.5));
    let both = warnings("shares");
    assert!(both.contains(&json!(format!("SPLIT: {}", alone[0].as_str().unwrap()))), "{both:?}");
}

/// A share of another exchange made 550 instants with a single node, told by `train` alone as "none
/// of its targets is known".
#[test]
fn instants_of_one_instrument_alone_are_counted_and_can_be_dropped() {
    let stage = Stage::new();
    fs::create_dir(stage.path("shares")).unwrap();
    // The others have no bar on every fifth day, and EVERY has.
    let without_fifth = |text: String| -> String {
        let rows = text.lines().enumerate().filter(|(k, _)| k % 5 != 3 || *k == 0);
        rows.map(|(_, row)| format!("{row}\n")).collect()
    };
    (0..4).for_each(|k| stage.write(&format!("shares/S{k}.csv"), &without_fifth(share(0, 120, f64::from(k)))));
    stage.write("shares/EVERY.csv", &share(0, 120, 0.5));
    let warning = |options: &str| -> String {
        let answer = stage.succeeds(&format!("ingest shares --out series.h5 {MADE} {options}"));
        let warnings = answer["warnings"].as_array().unwrap();
        let told: Vec<&str> = warnings.iter().filter_map(|warning| warning.as_str()).collect();
        told.join("\n")
    };
    let all = warning("");
    assert!(all.contains("instants have a sample of one instrument alone (EVERY "), "{all}");
    assert!(all.contains("--calendar common"), "{all}");
    let common = warning("--calendar common");
    assert!(!common.contains("alone") && common.contains("24 of 120 bars dropped"), "{common}");
    stage.succeeds("leak series.h5 --samples 5");
}

/// Yahoo's header has no columns of splits and dividends: "adjusted, for 0 splits and 0 dividends".
#[test]
fn adjustments_that_a_file_does_not_name_are_counted_by_the_factor() {
    let stage = universe();
    for k in 0..9 {
        let name = format!("shares/DA-S{k}-T-2021-04-21.csv");
        let yahoo: String = stage
            .text(&name)
            .lines()
            .map(|line| format!("{}\n", line.split(',').take(7).collect::<Vec<_>>().join(",")))
            .collect();
        stage.write(&name, &yahoo);
    }
    let text = stage.said(&format!("ingest shares --out series.h5 --on-error skip {MADE}"));
    let told =
        "prices of 9 files adjusted, for splits and dividends that they do not name; their factors change 9 times";
    assert!(text.contains(told) && text.contains("prices of 1 files adjusted, for 1 splits and 0 dividends"), "{text}");
}

#[test]
fn what_was_left_out_is_left_out_of_the_proof() {
    let stage = universe();
    stage.succeeds(&format!("ingest shares --out series.h5 --on-error skip --stride 3 {MADE}"));
    let answer = stage.succeeds("leak series.h5 --samples 5");
    assert_eq!(answer["instruments"].as_array().unwrap().len(), 10);
    // Wherever the files lie.
    std::fs::rename(stage.path("shares"), stage.path("moved")).unwrap();
    stage.succeeds("leak series.h5 --samples 5 --source moved");
}
