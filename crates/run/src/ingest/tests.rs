//! The file is, byte for byte, the one that is made of all bars in memory.

mod context;
mod own_bars;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use megabatch_bars::{Feature, Timeframe};
use megabatch_chunk_io::{Series, SeriesFile, Storage, WriteOptions, write_series};
use megabatch_gpu_core::Device;

use super::recipe::in_memory::{provenance, series_file};
use super::*;
use crate::adapters::series::Origin;
use crate::error::{Kind, Result};
use crate::host::{Cancel, Host, Observer, Progress, Silent, Work};
use crate::text::{DAY_NS, Duration};

/// Writes the series of all bars in memory: the oracle.
fn ingest_in_memory(recipe: &Recipe, out: &Path) -> Result<()> {
    let recipe = recipe.clone().with_files_of_folders(&Silent)?;
    let mut recordings = recipe.read()?;
    let spec = recipe.spec();
    let aligned = recordings.align(&recipe)?;
    let source = provenance(&recipe, &recordings, &aligned)?;
    let series =
        series_file(aligned, Origin { spec: &spec, pip_sizes: &recordings.pip_sizes, source: source.to_string() });
    Ok(write_series(out, &series, &WriteOptions { storage: Storage::Contiguous })?)
}

/// Minutes of `days` days under a name, of which the rows numbered in `lost` are missing.
pub(in crate::ingest) fn bars(
    folder: &Path,
    name: &str,
    days: u32,
    seed: u64,
    lost: &[std::ops::Range<usize>],
) -> PathBuf {
    let mut csv = Vec::new();
    crate::synth::write_csv(&mut csv, days, seed).unwrap();
    let text = String::from_utf8(csv).unwrap();
    let kept = text.lines().enumerate().filter(|(row, _)| lost.iter().all(|lost| !lost.contains(row)));
    let path = folder.join(name);
    fs::write(&path, kept.map(|(_, line)| format!("{line}\n")).collect::<String>()).unwrap();
    path
}

pub(in crate::ingest) fn names_in(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        folder.read_dir().unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

pub(in crate::ingest) fn windows(text: &str) -> Windows {
    text.parse().unwrap()
}

/// Rows of a file with the columns `own` and `note` behind the others. The first of all have no
/// value of `own`.
pub(in crate::ingest) fn with_columns(file: &Path, rows: std::ops::Range<usize>, name: &str) -> PathBuf {
    let text = fs::read_to_string(file).unwrap();
    let (header, lines) = text.split_once('\n').unwrap();
    let row = |(k, line): (usize, &str)| match k {
        0..50 => format!("{line},NaN,x\n"),
        k => format!("{line},{},y\n", (k * 37 % 1_000) as f64 / 8.0 - 60.0),
    };
    let path = file.with_file_name(name);
    let rows: String = lines.lines().enumerate().skip(rows.start).take(rows.len()).map(row).collect();
    fs::write(&path, format!("{header},own,note\n{rows}")).unwrap();
    path
}

/// Features of which two are columns.
pub(in crate::ingest) fn column_features() -> FeatureList {
    "column:own,rsi_14,column:own:mean,log_return".parse().unwrap()
}

/// Compares both ways of writing the series of a recipe.
fn check(folder: &Path, label: &str, recipe: &Recipe) {
    let [streamed, whole] = ["streamed.h5", "whole.h5"].map(|name| folder.join(name));
    let (found, expected) = (ingest(recipe, &streamed, &Host::silent()), ingest_in_memory(recipe, &whole));
    match (found, expected) {
        (Ok(_), Ok(())) => assert!(fs::read(&streamed).unwrap() == fs::read(&whole).unwrap(), "{label}: other bytes"),
        (found, expected) => {
            let texts = (found.err().map(|e| e.to_string()), expected.err().map(|e| e.to_string()));
            assert!(texts.0.is_some() && texts.0 == texts.1, "{label}: {texts:?}");
        }
    }
    assert!(names_in(folder).iter().all(|name| !name.starts_with('.')), "{label}: {:?}", names_in(folder));
}

#[test]
fn the_file_is_that_of_all_bars_in_memory() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str, days, seed, lost: &[std::ops::Range<usize>]| bars(folder.path(), name, days, seed, lost);
    let eur = at("EURUSD.csv", 16, 1, &[5_000..5_090, 9_000..9_030]);
    let gbp = at("GBPUSD.csv", 20, 2, &[1..4_000, 12_000..14_500]);
    let jpy = at("USDJPY.csv", 9, 3, &[]);
    let short = at("AUDUSD.csv", 1, 4, &[]);
    let with_columns = with_columns(&eur, 0..20_000, "EURUSD-own.csv");
    let ask = at("ask.csv", 16, 1, std::slice::from_ref(&(100..300)));
    fs::write(folder.path().join("CHFUSD.csv"), "nothing\n").unwrap();
    let beside = side_by_side(folder.path(), &eur, ["AAA", "BBB"]);
    let all = vec![eur.clone(), gbp.clone(), jpy.clone()];
    let base =
        Recipe { bars: vec![eur.clone()], timeframes: windows("M1:60,M5:24,H1:12"), horizon: 5, ..Recipe::default() };
    let one = |change: &dyn Fn(&mut Recipe)| {
        let mut recipe = base.clone();
        change(&mut recipe);
        recipe
    };
    let several = |change: &dyn Fn(&mut Recipe)| {
        one(&|recipe| {
            recipe.bars.clone_from(&all);
            change(recipe);
        })
    };
    let cases = [
        ("defaults of one", one(&|_| {})),
        ("no base timeframe", one(&|recipe| recipe.timeframes = windows("M15:20,H4:3"))),
        ("all features", one(&|recipe| recipe.features = FeatureList(Feature::ALL.to_vec()))),
        (
            "columns",
            one(&|recipe| {
                recipe.bars = vec![with_columns.clone()];
                recipe.features = column_features();
            }),
        ),
        ("a column that no file has", one(&|recipe| recipe.features = column_features())),
        (
            "days of a broker",
            one(&|recipe| {
                recipe.timeframes = windows("M5:24,H4:5,D1:3");
                recipe.features = FeatureList(vec![Feature::Body, Feature::DaySin]);
                recipe.bins = "new-york+7".parse().unwrap();
            }),
        ),
        ("standard", one(&|recipe| recipe.scaling = Scaling::Standard)),
        ("unscaled", several(&|recipe| recipe.scaling = Scaling::None)),
        ("stride of one", one(&|recipe| recipe.stride = 20)),
        ("increments", one(&|recipe| recipe.target = TargetKind::Increment)),
        ("weekends", one(&|recipe| recipe.weekends = Weekends::NotSpanned)),
        ("short holes", one(&|recipe| recipe.longest_hole = Duration { ns: 60_000_000_000 * 2 })),
        ("several", several(&|_| {})),
        ("log returns", several(&|recipe| recipe.target = TargetKind::LogReturn)),
        ("stride of several", several(&|recipe| recipe.stride = 7)),
        ("small fraction", several(&|recipe| recipe.train_fraction = 0.45)),
        ("too small a fraction", several(&|recipe| recipe.train_fraction = 0.1)),
        (
            "that excludes",
            several(&|recipe| {
                recipe.train_fraction = 0.1;
                recipe.on_error = OnError::Skip;
            }),
        ),
        ("common times", several(&|recipe| recipe.calendar = Calendar::Common)),
        ("one too short", several(&|recipe| recipe.bars.push(short.clone()))),
        (
            "one too short is left out",
            several(&|recipe| {
                recipe.bars.push(short.clone());
                recipe.bars.push(folder.path().join("CHFUSD.csv"));
                recipe.on_error = OnError::Repair;
            }),
        ),
        ("longer than there is", one(&|recipe| recipe.timeframes = windows("D1:400"))),
        ("a timeframe of no multiple", one(&|recipe| recipe.base = Some(Timeframe::M5))),
        (
            "a pair",
            one(&|recipe| {
                recipe.bars.clear();
                (recipe.bid, recipe.ask) = (vec![eur.clone()], vec![ask.clone()]);
                recipe.symbol = Some("EURUSD".to_owned());
                recipe.on_error = OnError::Repair;
                recipe.features = FeatureList(vec![Feature::SpreadPips, Feature::Rsi14]);
            }),
        ),
        (
            "a pair of one side",
            one(&|recipe| {
                recipe.bars.clear();
                (recipe.bid, recipe.ask) = (vec![eur.clone()], vec![gbp.clone()]);
            }),
        ),
        (
            "two symbols in the columns of one file",
            one(&|recipe| {
                recipe.bars = vec![beside.clone()];
                recipe.target = TargetKind::LogReturn;
            }),
        ),
        ("an unknown pip", several(&|recipe| recipe.pip_size = Some("XAUUSD=0.1".parse().unwrap()))),
    ];
    for (label, recipe) in cases {
        check(folder.path(), label, &recipe);
    }
}

#[test]
fn shares_that_begin_and_end_apart_are_those_in_memory() {
    let folder = tempfile::tempdir().unwrap();
    let shares = folder.path().join("shares");
    fs::create_dir(&shares).unwrap();
    for (place, (name, csv)) in crate::synth::share_files(12, 500, 3).into_iter().enumerate() {
        let lines: Vec<&str> = csv.lines().collect();
        let (begin, end) = (1 + 20 * (place % 3), lines.len() - 30 * (place % 2));
        fs::write(shares.join(format!("{name}.csv")), format!("{}\n{}\n", lines[0], lines[begin..end].join("\n")))
            .unwrap();
    }
    let recipe = Recipe {
        bars: vec![shares],
        timeframes: windows("D1:8,W1:3"),
        target: TargetKind::LogReturn,
        horizon: 1,
        ..Recipe::default()
    };
    for (label, calendar, stride) in
        [("all", Calendar::All, 1), ("common", Calendar::Common, 1), ("stride", Calendar::All, 5)]
    {
        check(folder.path(), label, &Recipe { calendar, stride, ..recipe.clone() });
    }
}

/// A file of yfinance's header rows, whose symbols have the bars of `file` and twice their prices.
fn side_by_side(folder: &Path, file: &Path, symbols: [&str; 2]) -> PathBuf {
    let names = ["Open", "High", "Low", "Close", "Volume"];
    let twice = |field: &str| field.parse::<f64>().map_or(String::new(), |price| format!("{:.6}", 2.0 * price));
    let mut text = format!("Price,{0},{0}\n", names.join(","));
    let symbol_fields: Vec<String> = symbols.iter().map(|symbol| vec![*symbol; names.len()].join(",")).collect();
    text.push_str(&format!("Ticker,{}\nDatetime{}\n", symbol_fields.join(","), ",".repeat(2 * names.len())));
    for line in fs::read_to_string(file).unwrap().lines().skip(1) {
        let fields: Vec<&str> = line.split(',').collect();
        let doubled: Vec<String> = fields[1..5].iter().map(|field| twice(field)).collect();
        text.push_str(&format!("{line},{},{}\n", doubled.join(","), fields[5]));
    }
    let path = folder.join("yfinance.csv");
    fs::write(&path, text).unwrap();
    path
}

#[test]
fn columns_of_several_symbols_become_instruments() {
    let folder = tempfile::tempdir().unwrap();
    let file = side_by_side(folder.path(), &bars(folder.path(), "one.csv", 3, 1, &[]), ["AAA", "BBB"]);
    let recipe = Recipe {
        bars: vec![file],
        timeframes: windows("M1:30,M5:6"),
        features: FeatureList(vec![Feature::LogReturn]),
        target: TargetKind::LogReturn,
        horizon: 5,
        ..Recipe::default()
    };
    let out = folder.path().join("out.h5");
    let report = ingest(&recipe, &out, &Host::silent()).unwrap();
    assert_eq!(report.json["symbols"], serde_json::json!(["AAA", "BBB"]));
}

#[test]
fn rows_of_several_symbols_become_instruments() {
    let folder = tempfile::tempdir().unwrap();
    let apart =
        [("AAA", 1), ("BBB", 2)].map(|(symbol, seed)| bars(folder.path(), &format!("{symbol}.csv"), 3, seed, &[]));
    let [first, second] = apart.each_ref().map(|file| fs::read_to_string(file).unwrap());
    let mut text = format!("{},Symbol\n", first.lines().next().unwrap());
    for (one, other) in first.lines().zip(second.lines()).skip(1) {
        text.push_str(&format!("{other},BBB\n{one},AAA\n"));
    }
    let together = folder.path().join("universe.csv");
    fs::write(&together, text).unwrap();
    let recipe = |bars: Vec<PathBuf>| Recipe {
        bars,
        timeframes: windows("M1:30,M5:6"),
        features: FeatureList(vec![Feature::LogReturn]),
        target: TargetKind::LogReturn,
        horizon: 5,
        ..Recipe::default()
    };
    let report = |name: &str, recipe: &Recipe| ingest(recipe, &folder.path().join(name), &Host::silent()).unwrap().json;
    let (one, two) = (report("one.h5", &recipe(vec![together.clone()])), report("two.h5", &recipe(apart.to_vec())));
    assert_eq!(one["symbols"], serde_json::json!(["AAA", "BBB"]));
    assert_eq!((&one["samples"], &one["timeframes"]), (&two["samples"], &two["timeframes"]));
    check(folder.path(), "rows of two symbols", &recipe(vec![together]));
}

/// Bytes of the files that were to be read.
#[derive(Default)]
struct ReadBytes(AtomicU64);

impl Observer for ReadBytes {
    fn begin(&self, work: Work<'_>) -> Box<dyn Progress> {
        if work.label == "read" {
            self.0.fetch_add(work.total, Relaxed);
        }
        Box::new(Silent)
    }

    fn note(&self, _: &str) {}
}

/// Files of two pairs in one folder were joined to the symbol that was stated, and `leak` passed.
#[test]
fn files_that_are_named_after_several_symbols_are_not_joined_to_one() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out.h5");
    let recipe = |names: &[&str], seed: u64| Recipe {
        bars: names.iter().map(|name| bars(folder.path(), name, 2, seed, &[])).collect(),
        symbol: Some("EURUSD".to_owned()),
        overlaps: Overlaps::EqualOnce,
        timeframes: windows("M1:4"),
        ..Recipe::default()
    };
    let joined = recipe(&["bars-2017.csv", "EURUSD_2018.csv", "eurusd_2019.csv"], 1);
    ingest(&joined, &out, &Host::silent()).unwrap();
    let added = append(&recipe(&["GBPUSD_2018.csv"], 2), &["symbol".to_owned()], &out, &Host::silent());
    let anew = ingest(&recipe(&["EURUSD_2018.csv", "GBPUSD_2018.csv"], 1), &out, &Host::silent());
    for error in [added.unwrap_err(), anew.unwrap_err()] {
        let said = error.to_string();
        assert!(error.kind() == Kind::Usage && said.contains("EURUSD_2018.csv is named after EURUSD"), "{said}");
        assert!(said.contains("GBPUSD_2018.csv after GBPUSD; give the files of one symbol"), "{said}");
    }
}

/// A folder of two pairs was refused, also where one of them was stated.
#[test]
fn a_folder_of_several_symbols_gives_the_files_of_the_stated_one() {
    let folder = tempfile::tempdir().unwrap();
    let (days, out) = (folder.path().join("days"), folder.path().join("out.h5"));
    fs::create_dir(&days).unwrap();
    bars(&days, "EURUSD_1.csv", 2, 1, std::slice::from_ref(&(2_000..3_000)));
    bars(&days, "GBPUSD_1.csv", 2, 2, &[]);
    let symbol = Some("EURUSD".to_owned());
    let recipe = Recipe { bars: vec![days.clone()], symbol, timeframes: windows("M1:4"), ..Recipe::default() };
    let notes = Notes::default();
    let host = Host { observer: &notes, ..Host::silent() };
    let made = ingest(&recipe, &out, &host).unwrap();
    assert_eq!(made.json["source"]["instruments"][0]["files"].as_array().unwrap().len(), 1);
    bars(&days, "EURUSD_2.csv", 2, 1, &[]);
    for (stated, has_more) in [(vec!["symbol".to_owned()], true), (Vec::new(), false)] {
        let report = append(&recipe, &stated, &out, &host).unwrap();
        assert_eq!(report.json["appended"]["samples"].as_u64() > Some(0), has_more, "{}", report.text);
    }
    let notes = notes.0.lock().unwrap();
    let told = notes.iter().filter(|note| note.ends_with("are read, and not the others: GBPUSD_1.csv"));
    assert_eq!(told.count(), 3, "{notes:?}");
}

/// Remarks of the work.
#[derive(Default)]
struct Notes(std::sync::Mutex<Vec<String>>);

impl Observer for Notes {
    fn begin(&self, _work: Work<'_>) -> Box<dyn Progress> {
        Box::new(Silent)
    }

    fn note(&self, text: &str) {
        self.0.lock().unwrap().push(text.to_owned());
    }
}

/// Most days of a few months of daily bars were dropped without a word.
#[test]
fn a_long_warm_up_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let recipe = Recipe {
        bars: vec![bars(folder.path(), "USDJPY.csv", 9, 3, &[])],
        timeframes: windows("M1:60,H1:12"),
        horizon: 5,
        ..Recipe::default()
    };
    let notes = |name: &str, recipe: &Recipe| {
        let observer = Notes::default();
        ingest(recipe, &folder.path().join(name), &Host { observer: &observer, ..Host::silent() }).unwrap();
        observer.0.into_inner().unwrap()
    };
    let long = notes("long.h5", &recipe);
    assert_eq!(long.len(), 1, "{long:?}");
    assert!(long[0].starts_with("USDJPY: 49 of "), "{long:?}");
    assert!(long[0].contains(" H1 bars have no row: sma_50_distance reads 49 bars before a row"), "{long:?}");
    let short = Recipe { features: FeatureList(vec![Feature::LogReturn]), ..recipe };
    assert!(notes("short.h5", &short).is_empty());
}

/// A file of several symbols was read for each of them.
#[test]
fn a_file_of_several_symbols_is_read_once() {
    let folder = tempfile::tempdir().unwrap();
    let row =
        |k: usize| format!("2021-{:02}-{:02},1.25,1.75,1.0,1.5,{},S{}\n", 1 + k / 900, 1 + k % 900 / 30, k % 9, k % 30);
    let text: String = (0..9 * 900).filter(|k| k % 900 < 28 * 30).map(row).collect();
    let file = folder.path().join("all.csv");
    fs::write(&file, format!("date,open,high,low,close,volume,Name\n{text}")).unwrap();
    let recipe = Recipe {
        bars: vec![file.clone()],
        timeframes: windows("D1:5"),
        features: FeatureList(vec![Feature::LogReturn]),
        target: TargetKind::LogReturn,
        ..Recipe::default()
    };
    let spool = super::spool::SpoolFolder::open(&folder.path().join("out.h5")).unwrap();
    let observer = ReadBytes::default();
    let read = recipe.read_streamed(&spool, &Host { observer: &observer, ..Host::silent() }).unwrap();
    assert_eq!(read.bars.iter().map(megabatch_bars::BarSource::len).collect::<Vec<_>>(), [9 * 28; 30]);
    let (bytes, size) = (observer.0.into_inner(), file.metadata().unwrap().len());
    assert!(bytes < 2 * size, "{bytes} bytes of a file of {size}");
}

/// A share of which no month had closed ended the ingest of all, beside `--context`.
#[test]
fn an_instrument_without_a_closed_bar_is_left_out_beside_context() {
    let folder = tempfile::tempdir().unwrap();
    let [old, context] = ["EURUSD.csv", "USDJPY.csv"].map(|name| bars(folder.path(), name, 4, 1, &[]));
    let young = bars(folder.path(), "GBPUSD.csv", 4, 2, std::slice::from_ref(&(30..9_999)));
    let recipe = Recipe {
        bars: vec![old, young],
        context: vec![ContextFile { symbol: "USDJPY".to_owned(), path: context }],
        on_error: OnError::Skip,
        timeframes: windows("M1:10,H1:2"),
        features: "log_return".parse().unwrap(),
        target: TargetKind::LogReturn,
        ..Recipe::default()
    };
    let report = ingest(&recipe, &folder.path().join("series.h5"), &Host::silent()).unwrap();
    let source = &report.json["source"];
    assert_eq!(
        (&source["left_out"][0]["symbol"], source["instruments"].as_array().unwrap().len()),
        (&"GBPUSD".into(), 1)
    );
}

/// Any file of the name of a context file that is gone was taken for it.
#[test]
fn a_moved_context_file_is_known_by_its_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let [own, context] = ["EURUSD.csv", "USDJPY.csv"].map(|name| bars(folder.path(), name, 4, 1, &[]));
    let recipe = Recipe {
        bars: vec![own],
        context: vec![ContextFile { symbol: "USDJPY".to_owned(), path: context.clone() }],
        timeframes: windows("M1:10,H1:2"),
        features: "log_return".parse().unwrap(),
        target: TargetKind::LogReturn,
        ..Recipe::default()
    };
    let below = folder.path().join("below");
    fs::create_dir(&below).unwrap();
    let (out, moved) = (below.join("series.h5"), below.join("USDJPY.csv"));
    ingest(&recipe, &out, &Host::silent()).unwrap();
    let found = || Recipe::from_file(&out).unwrap().1.context[0].path.clone();
    fs::rename(&context, &moved).unwrap();
    assert_eq!(found(), moved);
    bars(&below, "USDJPY.csv", 4, 2, &[]);
    assert_eq!(found(), context);
}

/// Writes days of a share. `stamp` gives the time of each by its place and its date.
pub(in crate::ingest) fn days(
    path: PathBuf,
    rows: std::ops::Range<usize>,
    stamp: impl Fn(usize, &str) -> String,
) -> PathBuf {
    let row = |k: usize| {
        // Monday 2018-01-01.
        let day = 17_532 + (k / 5 * 7 + k % 5) as i64;
        let date = crate::text::utc(day * 86_400_000_000_000);
        let close = 100 + k * 7 % 11;
        format!("{},{close},{},{},{close},9\n", stamp(k, &date[..10]), close + 1, close - 1)
    };
    fs::write(&path, format!("date,open,high,low,close,volume\n{}", rows.map(row).collect::<String>())).unwrap();
    path
}

/// EURUSD in points (129613.0) gave errors of 5,270,000 "pips".
#[test]
fn prices_that_are_no_multiple_of_the_known_pip_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let plain = bars(folder.path(), "EURUSD.csv", 3, 1, &[]);
    let in_points = |line: &str| -> String {
        let fields: Vec<&str> = line.split(',').collect();
        let price = |field: &str| field.parse::<f64>().map_or(field.to_owned(), |price| format!("{:.1}", price * 1e5));
        let prices: Vec<String> = fields[1..5].iter().map(|field| price(field)).collect();
        format!("{},{},{}\n", fields[0], prices.join(","), fields[5])
    };
    let text: String = fs::read_to_string(&plain).unwrap().lines().map(in_points).collect();
    let points = folder.path().join("EURUSD_points.csv");
    fs::write(&points, text).unwrap();
    let recipe = |file: &Path| Recipe {
        bars: vec![file.to_owned()],
        timeframes: windows("M1:30,M5:6"),
        horizon: 5,
        ..Recipe::default()
    };
    let out = folder.path().join("out.h5");
    let error = ingest(&recipe(&points), &out, &Host::silent()).unwrap_err();
    assert_eq!(error.kind(), Kind::Data);
    let error = error.to_string();
    assert!(error.starts_with("EURUSD: a close of 1") && error.contains("--pip-size"), "{error}");
    ingest(&recipe(&plain), &out, &Host::silent()).unwrap();
    let sized = Recipe { pip_size: Some("10".parse().unwrap()), ..recipe(&points) };
    ingest(&sized, &out, &Host::silent()).unwrap();
    let returns =
        Recipe { target: TargetKind::LogReturn, features: FeatureList(vec![Feature::LogReturn]), ..recipe(&points) };
    ingest(&returns, &out, &Host::silent()).unwrap();
}

/// A size for a symbol that was left out was taken for that of a misspelled one.
#[test]
fn a_pip_size_of_a_symbol_that_is_left_out_is_known() {
    let folder = tempfile::tempdir().unwrap();
    let (eur, chf) = (bars(folder.path(), "EURUSD.csv", 3, 1, &[]), folder.path().join("CHFUSD.csv"));
    fs::write(&chf, "nothing\n").unwrap();
    let ingested = |sizes: &str| {
        let recipe = Recipe {
            bars: vec![eur.clone(), chf.clone()],
            pip_size: Some(sizes.parse().unwrap()),
            on_error: OnError::Skip,
            timeframes: windows("M1:30,M5:6"),
            horizon: 5,
            ..Recipe::default()
        };
        ingest(&recipe, &folder.path().join("out.h5"), &Host::silent())
    };
    let report = ingested("EURUSD=0.0001,CHFUSD=0.0001").unwrap();
    assert_eq!(report.json["source"]["left_out"][0]["symbol"], "CHFUSD");
    let error = ingested("EURUSD=0.0001,CHFUSX=0.0001").unwrap_err();
    assert_eq!(error.kind(), Kind::Usage);
    let error = error.to_string();
    assert!(error.contains("no bars are of the symbol CHFUSX; there are EURUSD"), "{error}");
}

/// Asks for the end at the n-th look.
pub(in crate::ingest) struct StopsAt {
    pub(in crate::ingest) left: AtomicU64,
}

impl Cancel for StopsAt {
    fn is_requested(&self) -> bool {
        self.left.fetch_update(Relaxed, Relaxed, |left| Some(left.saturating_sub(1))) == Ok(0)
    }
}

#[test]
fn interrupted_work_goes_on_to_the_same_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let files = [1, 2, 3].map(|seed| bars(folder.path(), &format!("S{seed}.csv"), 12, seed, &[]));
    let recipe = Recipe {
        bars: files.to_vec(),
        timeframes: windows("M1:30,M15:4"),
        target: TargetKind::LogReturn,
        horizon: 3,
        ..Recipe::default()
    };
    let [out, whole] = ["out.h5", "whole.h5"].map(|name| folder.path().join(name));
    ingest_in_memory(&recipe, &whole).unwrap();
    let mut interrupted = 0;
    for looks in 0.. {
        let cancel = StopsAt { left: AtomicU64::new(looks * 3) };
        match ingest(&recipe, &out, &Host { cancel: &cancel, ..Host::silent() }) {
            Ok(_) => break,
            Err(error) => {
                assert!(error.kind() == Kind::Cancelled && error.to_string().contains(".out.h5.spool"), "{error}");
            }
        }
        interrupted += 1;
        assert!(!out.exists() && names_in(folder.path()).contains(&".out.h5.spool".to_owned()));
    }
    assert!(interrupted > 3, "interrupted {interrupted} times");
    assert!(fs::read(&out).unwrap() == fs::read(&whole).unwrap(), "other bytes");
    assert!(!names_in(folder.path()).contains(&".out.h5.spool".to_owned()));
}

#[test]
fn what_is_kept_is_read_again_where_it_is_damaged_or_the_files_changed() {
    let folder = tempfile::tempdir().unwrap();
    let file = bars(folder.path(), "EURUSD.csv", 12, 1, &[]);
    let recipe = Recipe { bars: vec![file.clone()], timeframes: windows("M1:30"), horizon: 3, ..Recipe::default() };
    let [out, whole] = ["out.h5", "whole.h5"].map(|name| folder.path().join(name));
    let spool = folder.path().join(".out.h5.spool");
    // Interrupts until so many symbols are kept; the files of their bars.
    let interrupt = |count: usize| {
        for looks in 1.. {
            let cancel = StopsAt { left: AtomicU64::new(looks) };
            let error = ingest(&recipe, &out, &Host { cancel: &cancel, ..Host::silent() }).unwrap_err();
            assert_eq!(error.kind(), Kind::Cancelled);
            let kept = names_in(&spool).into_iter().filter(|name| name.ends_with(".json"));
            let bars: Vec<PathBuf> = kept.map(|name| spool.join(name.replace(".json", ".bars"))).collect();
            if bars.len() == count {
                return bars;
            }
        }
        unreachable!("looks have no end")
    };
    let kept = &interrupt(1)[0];
    let mut bytes = fs::read(kept).unwrap();
    bytes[99] ^= 1;
    fs::write(kept, bytes).unwrap();
    ingest_in_memory(&recipe, &whole).unwrap();
    ingest(&recipe, &out, &Host::silent()).unwrap();
    assert!(fs::read(&out).unwrap() == fs::read(&whole).unwrap(), "damaged bars were used");

    interrupt(1);
    bars(folder.path(), "EURUSD.csv", 13, 1, &[]);
    ingest_in_memory(&recipe, &whole).unwrap();
    interrupt(2);
    ingest(&recipe, &out, &Host::silent()).unwrap();
    assert!(fs::read(&out).unwrap() == fs::read(&whole).unwrap(), "bars of the earlier file were used");
}

#[test]
fn one_process_at_a_time_writes_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = bars(folder.path(), "EURUSD.csv", 2, 1, &[]);
    let out = folder.path().join("out.h5");
    let held = super::spool::SpoolFolder::open(&out).unwrap();
    let recipe = Recipe { bars: vec![file], ..Recipe::default() };
    let error = ingest(&recipe, &out, &Host::silent()).unwrap_err();
    assert!(error.kind() == Kind::Usage && error.to_string().contains("another process"), "{error}");
    held.remove();
    // A link is not followed, and what is not ours stays.
    let spool = folder.path().join(".out.h5.spool");
    fs::create_dir(&spool).unwrap();
    fs::write(spool.join("theirs"), "").unwrap();
    super::spool::SpoolFolder::open(&out).unwrap().remove();
    assert_eq!(names_in(&spool), ["theirs"]);
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink(&spool, folder.path().join(".b.h5.spool")).unwrap();
        assert!(super::spool::SpoolFolder::open(&folder.path().join("b.h5")).is_err());
    }
}
