//! A series to which bars are appended: answers, refusals and interruptions.

mod clocks;
mod equality;
mod files;
mod symbols;

use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;

use megabatch_bars::{Scalers, TargetKind};
use megabatch_chunk_io::{AttributeValue, Storage, WriteOptions, write_series};

use super::*;
use crate::adapters::series::Origin;
use crate::error::Kind;
use crate::ingest::ingest;
use crate::ingest::recipe::in_memory::series_file;
use crate::ingest::tests::{StopsAt, bars, days, names_in, windows};
use crate::leak;

fn base(bars: Vec<PathBuf>) -> Recipe {
    Recipe {
        bars,
        timeframes: windows("M1:30,M15:4"),
        target: TargetKind::LogReturn,
        horizon: 5,
        symbol_pattern: Some("{}-*".parse().unwrap()),
        ..Recipe::default()
    }
}

fn appended(files: &[PathBuf], out: &Path) -> Result<CommandReport> {
    append(&base(files.to_vec()), &[], out, &Host::silent())
}

/// The rows `range` of a file of bars, in a file of their own.
fn part(whole: &Path, name: &str, range: Range<usize>) -> PathBuf {
    let text = fs::read_to_string(whole).unwrap();
    let path = whole.with_file_name(name);
    let rows = text.lines().skip(range.start).take(range.len());
    fs::write(&path, rows.map(|row| format!("{row}\n")).collect::<String>()).unwrap();
    path
}

fn rows_in(file: &Path) -> usize {
    fs::read_to_string(file).unwrap().lines().count()
}

/// Bytes of the series of all bars in memory, scaled as the file at `path`, with its account.
fn ingested_anew(path: &Path, scalers: &Scalers) -> Vec<u8> {
    let kept = ExistingSeries::open(path).unwrap();
    let Some(AttributeValue::Text(source)) = kept.attribute("source") else { panic!("no account") };
    let recordings = kept.recipe.read().unwrap();
    let spec = kept.recipe.spec();
    let aligned = recordings.align_with(&spec, scalers).unwrap();
    let series = series_file(aligned, Origin { spec: &spec, pip_sizes: &recordings.pip_sizes, source });
    let whole = path.with_file_name("whole.h5");
    write_series(&whole, &series, &WriteOptions { storage: Storage::Contiguous }).unwrap();
    fs::read(&whole).unwrap()
}

/// A series of the first rows of one symbol, and the rest in a file.
struct Stage {
    folder: tempfile::TempDir,
    whole: PathBuf,
    old: PathBuf,
    out: PathBuf,
}

const CUT: usize = 6_000;

impl Stage {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let whole = bars(folder.path(), "EURUSD-all.csv", 8, 1, &[]);
        let old = part(&whole, "EURUSD-old.csv", 0..CUT);
        let out = folder.path().join("series.h5");
        ingest(&base(vec![old.clone()]), &out, &Host::silent()).unwrap();
        Stage { folder, whole, old, out }
    }

    fn rest(&self, first: usize) -> PathBuf {
        part(&self.whole, "EURUSD-new.csv", first..rows_in(&self.whole))
    }

    /// The error of appending `file`, which leaves the series as it was and nothing beside it.
    fn refuses(&self, file: PathBuf, kind: Kind) -> String {
        let before = fs::read(&self.out).unwrap();
        let error = appended(&[file], &self.out).unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        self.require_untouched(&before);
        error.to_string()
    }

    fn require_untouched(&self, before: &[u8]) {
        assert!(fs::read(&self.out).unwrap() == before, "the series was changed");
        let names = names_in(self.folder.path());
        assert!(names.iter().all(|name| !name.starts_with('.')), "{names:?}");
    }
}

#[test]
fn the_answer_says_what_was_appended() {
    let stage = Stage::new();
    let new = stage.rest(CUT - 10);
    let rows = rows_in(&stage.whole) - CUT;
    let report = appended(std::slice::from_ref(&new), &stage.out).unwrap();
    let appended_json = &report.json["appended"];
    assert_eq!(appended_json["bars"]["EURUSD"], rows);
    assert_eq!(appended_json["samples"], rows);
    assert_eq!(appended_json["files"][0], new.display().to_string());
    assert!(report.text.contains("read again from 1 file"), "{}", report.text);
    let files = &report.json["source"]["instruments"][0]["files"];
    assert_eq!(files.as_array().unwrap().len(), 2);
    assert_eq!(files[1]["dropped"]["copy of an earlier row"]["rows"], 10);

    // The same file again changes nothing.
    let before = fs::read(&stage.out).unwrap();
    let again = appended(&[new], &stage.out).unwrap();
    assert_eq!(again.json["appended"]["files"], serde_json::json!([]));
    stage.require_untouched(&before);
}

/// Features of the volume were those of a volume of 0 from the new bars on, without a word.
#[test]
fn new_bars_without_volumes_are_warned_of() {
    let stage = Stage::new();
    let new = stage.rest(CUT);
    let text = fs::read_to_string(&new).unwrap();
    let without = text.lines().map(|row| format!("{}\n", row.rsplit_once(',').unwrap().0));
    fs::write(&new, without.collect::<String>()).unwrap();
    let report = appended(&[new], &stage.out).unwrap();
    let rows = rows_in(&stage.whole) - CUT;
    let warning =
        format!("EURUSD: none of its {rows} new bars has a volume, and those before have: relative_volume is");
    assert!(report.text.contains(&warning), "{}", report.text);
}

/// Days after the last one of adjusted prices were appended without a word; a dividend between both
/// downloads was a loss.
#[test]
fn daily_bars_without_one_in_common_are_warned_of() {
    let folder = tempfile::tempdir().unwrap();
    let row = |k: usize| {
        let close = 100.0 + (k as f64 * 0.7).sin();
        format!("2018-{:02}-{:02},100,102,98,{close:.4},{}\n", 1 + k / 28, 1 + k % 28, 1_000 + k % 7)
    };
    let write = |name: &str, rows: Range<usize>| {
        let path = folder.path().join(name);
        fs::write(&path, format!("date,open,high,low,close,volume\n{}", rows.map(row).collect::<String>())).unwrap();
        path
    };
    let daily = |bars| Recipe { timeframes: windows("D1:5"), horizon: 2, ..base(bars) };
    let out = folder.path().join("series.h5");
    let old = ["AAA-old.csv", "BBB-old.csv"].map(|name| write(name, 0..200));
    for (first, expected) in [
        ([200, 200], Some("2 of 2 instruments (AAA, BBB) have no bar in common")),
        ([199, 200], Some("1 of 2 instruments (BBB) have no bar in common")),
        ([199, 100], None),
        // The bars in common may be all that another new file has.
        ([200, 199], None),
    ] {
        ingest(&daily(old.to_vec()), &out, &Host::silent()).unwrap();
        let mut new = vec![write("AAA-new.csv", first[0]..260), write("BBB-new.csv", first[1]..260)];
        if first == [200, 199] {
            new.push(write("AAA-again.csv", 150..200));
        }
        let report = append(&daily(new), &[], &out, &Host::silent()).unwrap();
        let warnings: Vec<&str> =
            report.json["warnings"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
        let found = warnings.iter().find(|warning| warning.contains("in common"));
        assert_eq!(found.is_some(), expected.is_some(), "{warnings:?}");
        assert!(expected.is_none_or(|text| found.is_some_and(|found| found.starts_with(text))), "{warnings:?}");
    }
}

/// Prices as quoted went on behind adjusted ones: the step of the factor was a return.
#[test]
fn days_without_an_adjusted_close_are_refused_behind_adjusted_ones() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, rows: Range<usize>, header: &str, numbers: &dyn Fn(f64) -> String| {
        let row = |k: usize| {
            let close = (1e4 * (100.0 + (k as f64 * 0.7).sin())).round() / 1e4;
            format!("2018-{:02}-{:02},{},{}\n", 1 + k / 28, 1 + k % 28, numbers(close), 1_000 + k % 7)
        };
        let path = folder.path().join(name);
        fs::write(&path, format!("date,{header},volume\n{}", rows.map(row).collect::<String>())).unwrap();
        path
    };
    let (quoted, with_adjusted) = ("open,high,low,close", "open,high,low,close,adj close");
    let daily = |file: PathBuf| Recipe { timeframes: windows("D1:5"), horizon: 2, ..base(vec![file]) };
    let out = folder.path().join("series.h5");
    for (factor, is_refused) in [(0.96, true), (1.0, false)] {
        let adjusted = |close: f64| format!("100,102,98,{close},{:.9}", factor * close);
        let as_quoted = |close: f64| format!("100,102,98,{close}");
        // Adjusted prices under the names of others.
        let downloaded = |close: f64| {
            let [open, high, low, close] = [100.0, 102.0, 98.0, close].map(|price| factor * price);
            format!("{open:.9},{high:.9},{low:.9},{close:.9}")
        };
        let old = write("KO-old.csv", 0..200, with_adjusted, &adjusted);
        let make = || {
            ingest(&daily(old.clone()), &out, &Host::silent()).unwrap();
        };
        make();
        let before = fs::read(&out).unwrap();
        let new = write("KO-new.csv", 200..220, quoted, &as_quoted);
        match append(&daily(new), &[], &out, &Host::silent()) {
            Ok(report) => assert!(!is_refused, "{}", report.text),
            Err(error) => {
                assert!(is_refused && error.kind() == Kind::Data, "{error}");
                let said = error.to_string();
                assert!(said.contains("KO-new.csv: expected an adjusted close, such as in Adj Close"), "{said}");
                assert!(said.contains("the last times 0.9600; nothing was written"), "{said}");
                assert!(fs::read(&out).unwrap() == before, "the series was changed");
            }
        }
        // Bars in common show that prices are adjusted alike.
        for (rows, header, numbers) in
            [(200..220, with_adjusted, &adjusted as &dyn Fn(f64) -> String), (195..220, quoted, &downloaded)]
        {
            make();
            let report = append(&daily(write("KO-new.csv", rows, header, numbers)), &[], &out, &Host::silent());
            assert_eq!(report.unwrap().json["appended"]["bars"]["KO"], 20);
        }
    }
}

/// A day on which a ticker has no prices.
#[test]
fn a_new_row_without_prices_is_a_missing_bar_of_its_ticker() {
    let folder = tempfile::tempdir().unwrap();
    let row = |k: usize| {
        let bar = format!("100,102,98,{:.4},{}", 100.0 + (k as f64 * 0.7).sin(), 1_000 + k % 7);
        let other = if k == 200 { ",,,," } else { bar.as_str() };
        format!("2018-{:02}-{:02},{bar},{other}\n", 1 + k / 28, 1 + k % 28)
    };
    let write = |name: &str, rows: Range<usize>| {
        let path = folder.path().join(name);
        let names = ["Open,High,Low,Close,Volume"; 2].join(",");
        let tickers = ["AAA", "BBB"].map(|name| [name; 5].join(",")).join(",");
        let rows: String = rows.map(row).collect();
        fs::write(&path, format!("Price,{names}\nTicker,{tickers}\nDate,,,,,,,,,,\n{rows}")).unwrap();
        path
    };
    let daily = |bars| Recipe { timeframes: windows("D1:5"), horizon: 2, symbol_pattern: None, ..base(bars) };
    let out = folder.path().join("series.h5");
    ingest(&daily(vec![write("old.csv", 0..200)]), &out, &Host::silent()).unwrap();
    let report = append(&daily(vec![write("new.csv", 200..201)]), &[], &out, &Host::silent()).unwrap();
    assert_eq!(report.json["appended"]["bars"], json!({ "AAA": 1, "BBB": 0 }));
    let warnings: Vec<&str> = report.json["warnings"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    let told = |symbol: &str, said: &str| warnings.iter().any(|one| one.starts_with(symbol) && one.contains(said));
    assert!(told("BBB: ", "new.csv has no bar of it: 1 row without prices (a failed download?)"), "{warnings:?}");
    assert!(told("1 of 2 instruments (AAA) ", "in common"), "{warnings:?}");
    let report = append(&daily(vec![write("later.csv", 201..210)]), &[], &out, &Host::silent()).unwrap();
    assert_eq!(report.json["appended"]["bars"], json!({ "AAA": 9, "BBB": 9 }));
}

#[test]
fn bars_that_change_what_was_are_refused_by_row() {
    let stage = Stage::new();
    // Another close in a bar that the series has.
    let new = stage.rest(CUT - 5);
    let text = fs::read_to_string(&new).unwrap();
    let row = text.lines().nth(2).unwrap();
    let (head, volume) = row.rsplit_once([',', ';']).unwrap();
    let separator = &row[head.len()..=head.len()];
    let other = format!("{head}{separator}{}1", volume.trim());
    fs::write(&new, text.replacen(row, &other, 1)).unwrap();
    let said = stage.refuses(new, Kind::Data);
    assert!(said.contains("EURUSD-new.csv: line 3: this bar of 20"), "{said}");

    // A hole that is filled: before the first sample a bar changes, and behind it a target does
    // first.
    for (lost, said) in [(400..403, "/series/M1/values: row "), (4_000..4_003, "sample ")] {
        let holed = Stage::new();
        let text = fs::read_to_string(&holed.old).unwrap();
        let rows = text.lines().enumerate().filter(|(row, _)| !lost.contains(row));
        fs::write(&holed.old, rows.map(|(_, row)| format!("{row}\n")).collect::<String>()).unwrap();
        ingest(&base(vec![holed.old.clone()]), &holed.out, &Host::silent()).unwrap();
        let found = holed.refuses(holed.rest(lost.start - 10), Kind::Data);
        assert!(found.contains(said) && found.contains("would become another one"), "{found}");
    }
}

#[test]
fn other_symbols_choices_and_files_are_refused() {
    let stage = Stage::new();
    let other = bars(stage.folder.path(), "GBPUSD-all.csv", 2, 1, &[]);
    let said = stage.refuses(other.clone(), Kind::Data);
    assert!(said.contains("bars of GBPUSD") && said.contains("ingest all files anew"), "{said}");

    let before = fs::read(&stage.out).unwrap();
    let new = stage.rest(CUT);
    let with = |change: &dyn Fn(&mut Recipe), stated: &str| {
        let mut recipe = base(vec![new.clone()]);
        change(&mut recipe);
        append(&recipe, &[stated.to_owned()], &stage.out, &Host::silent())
    };
    for (stated, change, was) in [
        ("stride", (&|recipe: &mut Recipe| recipe.stride = 3) as &dyn Fn(&mut Recipe), "with --stride=1"),
        ("zone", &|recipe| recipe.zone = Some("+02:00".parse().unwrap()), "without --zone"),
        ("horizon", &|recipe| recipe.horizon = 36, "with --horizon=5"),
    ] {
        let error = with(change, stated).unwrap_err();
        assert_eq!(error.kind(), Kind::Usage);
        assert!(error.to_string().contains(&format!("--{stated}: ")) && error.to_string().contains(was), "{error}");
        stage.require_untouched(&before);
    }
    let none = append(&base(vec![new.clone()]), &[], &stage.folder.path().join("none.h5"), &Host::silent());
    assert!(none.unwrap_err().to_string().contains("no series to append to"));
    let mut sides = Recipe { bid: vec![new.clone()], ask: vec![new.clone()], ..base(Vec::new()) };
    sides.symbol_pattern = None;
    let error = append(&sides, &[], &stage.out, &Host::silent()).unwrap_err();
    assert!(error.to_string().contains("made of bars"), "{error}");
    stage.require_untouched(&before);
    // An option that is the same may be stated.
    assert!(with(&|_| {}, "horizon").is_ok());
}

#[test]
fn an_interrupted_append_leaves_the_series_and_goes_on() {
    let stage = Stage::new();
    let (new, before) = (stage.rest(CUT - 100), fs::read(&stage.out).unwrap());
    let scalers = ExistingSeries::open(&stage.out).unwrap().scalers;
    let mut interrupted = 0;
    for looks in 0.. {
        let cancel = StopsAt { left: AtomicU64::new(looks) };
        match append(&base(vec![new.clone()]), &[], &stage.out, &Host { cancel: &cancel, ..Host::silent() }) {
            Ok(_) => break,
            Err(error) => assert_eq!(error.kind(), Kind::Cancelled, "{error}"),
        }
        interrupted += 1;
        assert!(fs::read(&stage.out).unwrap() == before, "the series was changed");
    }
    assert!(interrupted > 2, "interrupted {interrupted} times");
    assert!(fs::read(&stage.out).unwrap() == ingested_anew(&stage.out, &scalers), "other bytes");
}
