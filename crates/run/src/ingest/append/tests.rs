//! A series to which bars were appended is, byte for byte, that of all bars with its scalers.

use std::collections::BTreeSet;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;

use megabatch_bars::{Feature, OnError, Scalers, TargetKind, Weekends, align_with};
use megabatch_chunk_io::{AttributeValue, SeriesFile, Storage, WriteOptions, write_series};
use megabatch_gpu_core::Device;
use proptest::prelude::*;

use super::*;
use crate::adapters::series::Origin;
use crate::error::Kind;
use crate::ingest::recipe::in_memory::series_file;
use crate::ingest::tests::{StopsAt, bars, names_in, windows};
use crate::ingest::{Calendar, FeatureList, ingest};
use crate::leak;
use crate::text::utc;

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

fn appended(files: &[PathBuf], out: &Path) -> Result<Findings> {
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
fn of_all_bars(path: &Path, scalers: &Scalers) -> Vec<u8> {
    let kept = KeptSeries::open(path).unwrap();
    let Some(AttributeValue::Text(source)) = kept.attribute("source") else { panic!("no account") };
    let recordings = kept.recipe.read().unwrap();
    let spec = kept.recipe.spec();
    let aligned = align_with(&recordings.instruments(), &spec, scalers).unwrap();
    let series = series_file(aligned, Origin { spec: &spec, pip_sizes: &recordings.pip_sizes, source });
    let whole = path.with_file_name("whole.h5");
    write_series(&whole, &series, &WriteOptions { storage: Storage::Contiguous }).unwrap();
    fs::read(&whole).unwrap()
}

/// Recipes whose samples before a moment are decided by the bars before it, and then two that all
/// instruments share.
fn changed(recipe: &mut Recipe, which: usize) {
    match which {
        0 => {}
        1 => recipe.weekends = Weekends::NotSpanned,
        2 => recipe.target = TargetKind::Increment,
        3 => recipe.timeframes = windows("M5:24,H1:6"),
        4 => recipe.on_error = OnError::Skip,
        5 => recipe.on_error = OnError::Repair,
        6 => recipe.scaling = super::super::Scaling::Standard,
        7 => recipe.longest_hole = crate::text::Duration { ns: 120_000_000_000 },
        8 => recipe.calendar = Calendar::Common,
        _ => recipe.stride = 7,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn appended_bars_give_the_series_of_all_bars(
        shares in prop::array::uniform3(0.6f64..0.999), overlap in 0usize..300, which in 0usize..10,
        is_one in any::<bool>(), is_twice in any::<bool>(),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        // The second has a hole, and the third gets no bars.
        let all = [("EURUSD-all.csv", 1, 0..0), ("GBPUSD-all.csv", 2, 4_000..4_100), ("USDJPY-all.csv", 3, 0..0)]
            .map(|(name, seed, lost)| bars(folder.path(), name, 10, seed, std::slice::from_ref(&lost)));
        if which == 4 || which == 5 {
            let text = fs::read_to_string(&all[0]).unwrap();
            let defective: String = text.lines().enumerate().map(|(k, row)| if k % 997 == 500 { "20180101 nothing\n".to_owned() } else { format!("{row}\n") }).collect();
            fs::write(&all[0], defective).unwrap();
        }
        let count = if is_one { 1 } else { 3 };
        let (mut old, mut new) = (Vec::new(), [Vec::new(), Vec::new()]);
        for (k, whole) in all[..count].iter().enumerate() {
            let symbol = ["EURUSD", "GBPUSD", "USDJPY"][k];
            let rows = rows_in(whole);
            let cut = (shares[k] * rows as f64) as usize;
            old.push(part(whole, &format!("{symbol}-old.csv"), 0..cut));
            if k < 2 {
                let middle = if is_twice { cut + (rows - cut) / 2 } else { rows };
                new[0].push(part(whole, &format!("{symbol}-new.csv"), cut.saturating_sub(overlap)..middle));
                if is_twice {
                    new[1].push(part(whole, &format!("{symbol}-newest.csv"), middle - overlap.min(middle)..rows));
                }
            }
        }
        let mut recipe = base(old);
        changed(&mut recipe, which);
        let out = at("series.h5");
        ingest(&recipe, &out, &Host::silent()).unwrap();
        let scalers = KeptSeries::open(&out).unwrap().scalers;
        for new in new.iter().filter(|new| !new.is_empty()) {
            let before = fs::read(&out).unwrap();
            match appended(new, &out) {
                Ok(_) => {}
                // What instruments share, others' bars change.
                Err(error) if which >= 8 && !is_one => {
                    let said = error.to_string();
                    prop_assert!(said.contains("would"), "{said}");
                    prop_assert!(fs::read(&out).unwrap() == before);
                    return Ok(());
                }
                Err(error) => panic!("{which}: {error}"),
            }
            prop_assert_eq!(&KeptSeries::open(&out).unwrap().scalers, &scalers);
            if recipe.calendar == Calendar::All || is_one {
                prop_assert!(fs::read(&out).unwrap() == of_all_bars(&out, &scalers), "{}: other bytes", which);
            }
        }
        let options = leak::Options { samples: 2, ..leak::Options::default() };
        leak::prove(&out, &options, &Host::silent()).unwrap();
        prop_assert!(names_in(folder.path()).iter().all(|name| !name.starts_with('.')));
    }
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
    let findings = appended(std::slice::from_ref(&new), &stage.out).unwrap();
    let appended_json = &findings.json["appended"];
    assert_eq!(appended_json["bars"]["EURUSD"], rows);
    assert_eq!(appended_json["samples"], rows);
    assert_eq!(appended_json["files"][0], new.display().to_string());
    assert!(findings.text.contains("read again from 1 file"), "{}", findings.text);
    let files = &findings.json["source"]["instruments"][0]["files"];
    assert_eq!(files.as_array().unwrap().len(), 2);
    assert_eq!(files[1]["dropped"]["copy of an earlier row"]["rows"], 10);

    // The same file again changes nothing.
    let before = fs::read(&stage.out).unwrap();
    let again = appended(&[new], &stage.out).unwrap();
    assert_eq!(again.json["appended"]["files"], serde_json::json!([]));
    stage.require_untouched(&before);
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
fn sources_that_are_gone_or_have_other_rows_are_named() {
    let stage = Stage::new();
    let (whole, old) = [&stage.whole, &stage.old].map(|path| fs::read_to_string(path).unwrap()).into();
    let last_row = old.lines().last().unwrap();
    let (time, prices) = last_row.split_once(',').unwrap();
    let day = &time[..10];
    // The bar that was open when the file was written, another one before it, and one that is gone.
    let mut unfinished = prices.split(',').map(str::to_owned).collect::<Vec<_>>();
    unfinished[3] = unfinished[0].clone();
    let unfinished = whole.replacen(last_row, &format!("{time},{}", unfinished.join(",")), 1);
    let lost: String =
        whole.lines().enumerate().filter(|(k, _)| *k != 3_000).map(|(_, row)| format!("{row}\n")).collect();
    let lost_day = &whole.lines().nth(3_000).unwrap()[..10];
    let later = whole.lines().take(1).chain(whole.lines().skip(CUT)).map(|row| format!("{row}\n")).collect();
    let shorter = whole.lines().take(CUT - 1).map(|row| format!("{row}\n")).collect();
    for (text, said) in [
        (unfinished, day),
        (lost, lost_day),
        (later, "the first bar of EURUSD opens at 2018-01-01 "),
        (shorter, "would be lost"),
    ] {
        fs::write(&stage.old, text).unwrap();
        let found = stage.refuses(stage.old.clone(), Kind::Data);
        assert!(found.contains("EURUSD-old.csv: these are not the rows") && found.contains(said), "{said}: {found}");
    }
    fs::remove_file(&stage.old).unwrap();
    let said = stage.refuses(stage.rest(CUT), Kind::Data);
    assert!(said.contains("EURUSD-old.csv: ") && said.contains("put it back"), "{said}");
}

/// Yesterday's file with more rows, its last line ended or not; and other bytes of the same rows.
#[test]
fn sources_may_grow_in_place() {
    for (has_end, is_rewritten) in [(true, false), (false, false), (true, true)] {
        let stage = Stage::new();
        let (whole, old) = [&stage.whole, &stage.old].map(|path| fs::read_to_string(path).unwrap()).into();
        if !has_end {
            fs::write(&stage.old, old.trim_end()).unwrap();
            ingest(&base(vec![stage.old.clone()]), &stage.out, &Host::silent()).unwrap();
        }
        let scalers = KeptSeries::open(&stage.out).unwrap().scalers;
        fs::write(&stage.old, if is_rewritten { whole.replace('\n', "\r\n") } else { whole.clone() }).unwrap();
        let findings = appended(std::slice::from_ref(&stage.old), &stage.out).unwrap();
        let found = &findings.json["appended"];
        let (named, other) = if is_rewritten { ("rewritten", "grown") } else { ("grown", "rewritten") };
        assert_eq!(
            (&found[named][0], &found[other]),
            (&stage.old.display().to_string().into(), &serde_json::json!([]))
        );
        assert_eq!(found["bars"]["EURUSD"], rows_in(&stage.whole) - CUT);
        assert_eq!((found["files"].as_array().unwrap().len(), found["files_read_again"].as_u64()), (0, Some(1)));
        assert!(fs::read(&stage.out).unwrap() == of_all_bars(&stage.out, &scalers), "other bytes");
        leak::prove(&stage.out, &leak::Options { samples: 2, ..leak::Options::default() }, &Host::silent()).unwrap();
        let again = appended(std::slice::from_ref(&stage.old), &stage.out).unwrap();
        assert_eq!(again.json["appended"]["samples"], 0);
    }
}

/// The folder of a symbol's days is named again; one day more is in it, and one file has grown.
#[test]
fn a_folder_may_be_named_again() {
    let folder = tempfile::tempdir().unwrap();
    let [eur, gbp] =
        [("EURUSD-all.csv", 1), ("GBPUSD-all.csv", 2)].map(|(name, seed)| bars(folder.path(), name, 8, seed, &[]));
    let days = folder.path().join("days");
    fs::create_dir(&days).unwrap();
    let put = |whole: &Path, name: &str, range: Range<usize>| {
        fs::rename(part(whole, name, range), days.join(name)).unwrap();
    };
    put(&eur, "EURUSD-1.csv", 0..CUT);
    put(&gbp, "GBPUSD-1.csv", 0..CUT);
    let out = folder.path().join("series.h5");
    ingest(&base(vec![days.clone()]), &out, &Host::silent()).unwrap();
    let scalers = KeptSeries::open(&out).unwrap().scalers;
    put(&eur, "EURUSD-2.csv", CUT..rows_in(&eur));
    put(&gbp, "GBPUSD-1.csv", 0..rows_in(&gbp));
    let findings = appended(std::slice::from_ref(&days), &out).unwrap();
    let found = &findings.json["appended"];
    let named = |name: &str| serde_json::json!([days.join(name).display().to_string()]);
    assert_eq!((&found["files"], &found["grown"]), (&named("EURUSD-2.csv"), &named("GBPUSD-1.csv")));
    assert!(fs::read(&out).unwrap() == of_all_bars(&out, &scalers), "other bytes");
    // A file of another symbol came into the folder.
    put(&gbp, "USDJPY-1.csv", 0..CUT);
    let said = appended(&[days], &out).unwrap_err().to_string();
    assert!(said.contains("USDJPY-1.csv: bars of USDJPY"), "{said}");
}

/// Both sides come in files of their own, and one of them has grown.
#[test]
fn bid_and_ask_are_appended_to_both_sides() {
    let folder = tempfile::tempdir().unwrap();
    let bid = bars(folder.path(), "bid.csv", 8, 1, &[]);
    let ask = bars(folder.path(), "ask.csv", 8, 1, std::slice::from_ref(&(7_000..7_050)));
    let text = fs::read_to_string(&ask).unwrap();
    // A pip more than the bid.
    let dearer = |row: &str| {
        let fields = row.split(',').enumerate().map(|(k, field)| match field.parse::<f64>() {
            Ok(price) if (1..5).contains(&k) => format!("{:.5}", price + 0.0001),
            _ => field.to_owned(),
        });
        format!("{}\n", fields.collect::<Vec<_>>().join(","))
    };
    fs::write(&ask, text.lines().map(dearer).collect::<String>()).unwrap();
    let out = folder.path().join("series.h5");
    let sides = |bid: PathBuf, ask: PathBuf| Recipe {
        bid: vec![bid],
        ask: vec![ask],
        symbol: Some("EURUSD".to_owned()),
        symbol_pattern: None,
        ..base(Vec::new())
    };
    let old = [part(&bid, "bid-old.csv", 0..CUT), part(&ask, "ask-old.csv", 0..CUT)];
    ingest(&sides(old[0].clone(), old[1].clone()), &out, &Host::silent()).unwrap();
    let scalers = KeptSeries::open(&out).unwrap().scalers;
    let new = part(&bid, "bid-new.csv", CUT - 20..rows_in(&bid));
    part(&ask, "ask-old.csv", 0..rows_in(&ask));
    let recipe = sides(new, old[1].clone());
    let findings = append(&recipe, &["symbol".to_owned()], &out, &Host::silent()).unwrap();
    assert_eq!(findings.json["appended"]["grown"], serde_json::json!([old[1].display().to_string()]));
    // Rows of the ask, of which the header is none.
    assert_eq!(findings.json["source"]["instruments"][0]["bars"]["all"], rows_in(&ask) - 1);
    assert!(fs::read(&out).unwrap() == of_all_bars(&out, &scalers), "other bytes");
}

/// Rows of a file whose minute is a multiple of `step`, those numbered in `range`.
fn every(whole: &Path, name: &str, step: usize, range: Range<usize>) -> PathBuf {
    let text = fs::read_to_string(whole).unwrap();
    let path = whole.with_file_name(name);
    let rows = text.lines().skip(CUT + 500).filter(|row| row[14..16].parse::<usize>().unwrap() % step == 0);
    fs::write(&path, rows.skip(range.start).take(range.len()).map(|row| format!("{row}\n")).collect::<String>())
        .unwrap();
    path
}

/// Bars of a few minutes with gaps are bars of the series; longer ones are refused, and none is
/// left out.
#[test]
fn few_bars_are_read_as_bars_of_the_series_and_longer_ones_refused() {
    for (name, rows, is_read) in [
        ("EURUSD-new.csv", 1, true),
        ("EURUSD-new.csv", 6, true),
        ("EURUSD-new.csv", 12, false),
        ("EURUSD-M5.csv", 6, false),
        ("EURUSD-M5.csv", 1, false),
    ] {
        let stage = Stage::new();
        let new = every(&stage.whole, name, 5, 0..rows);
        if is_read {
            let findings = appended(&[new], &stage.out).unwrap();
            assert_eq!(findings.json["appended"]["bars"]["EURUSD"], rows);
            let scalers = KeptSeries::open(&stage.out).unwrap().scalers;
            assert!(fs::read(&stage.out).unwrap() == of_all_bars(&stage.out, &scalers), "other bytes");
        } else {
            let said = stage.refuses(new, Kind::Data);
            assert!(said.contains(name) && said.contains("these are M5 bars") && said.contains("M1 bars"), "{said}");
        }
    }
}

#[test]
fn bars_off_the_grid_of_the_series_are_refused_by_time() {
    let folder = tempfile::tempdir().unwrap();
    let whole = bars(folder.path(), "EURUSD-all.csv", 30, 1, &[]);
    let old = every(&whole, "EURUSD-old.csv", 5, 0..3_000);
    let out = folder.path().join("series.h5");
    let recipe = Recipe { timeframes: windows("M5:30,H1:4"), ..base(vec![old]) };
    ingest(&recipe, &out, &Host::silent()).unwrap();
    let later = every(&whole, "EURUSD-later.csv", 1, 15_200..20_000);
    let text = fs::read_to_string(&later).unwrap();
    let hour = || text.lines().skip_while(|row| &row[14..16] != "00");
    let at = |minute: &str| hour().find(|row| &row[14..16] == minute).unwrap();
    let new = folder.path().join("EURUSD-new.csv");
    for (minutes, bar, reason) in [
        (vec!["02", "07"], "02", "at another time within its bin"),
        (vec!["05", "06"], "06", "before the one ahead of it closes"),
    ] {
        let rows: Vec<&str> = minutes.iter().map(|minute| at(minute)).collect();
        fs::write(&new, format!("{}\n", rows.join("\n"))).unwrap();
        let before = fs::read(&out).unwrap();
        let said = appended(std::slice::from_ref(&new), &out).unwrap_err().to_string();
        assert!(said.contains(reason) && said.contains("EURUSD-new.csv") && said.contains(&at(bar)[..16]), "{said}");
        assert!(fs::read(&out).unwrap() == before);
    }
    fs::write(&new, format!("{}\n", at("10"))).unwrap();
    assert_eq!(appended(&[new], &out).unwrap().json["appended"]["bars"]["EURUSD"], 1);
}

/// A file of longer bars goes on being compared, also where it has grown.
#[test]
fn longer_files_of_before_go_on_being_compared() {
    let stage = Stage::new();
    let hours = every(&stage.whole, "EURUSD-hours.csv", 60, 0..10);
    ingest(&base(vec![stage.old.clone(), hours.clone()]), &stage.out, &Host::silent()).unwrap();
    every(&stage.whole, "EURUSD-hours.csv", 60, 0..14);
    let findings = appended(&[stage.rest(CUT)], &stage.out).unwrap();
    assert_eq!(findings.json["appended"]["bars"]["EURUSD"], rows_in(&stage.whole) - CUT);
    assert_eq!(findings.json["appended"]["grown"][0], hours.display().to_string());
    assert_eq!(findings.json["source"]["instruments"][0]["compared"][0]["timeframe"], "H1");
    leak::prove(&stage.out, &leak::Options { samples: 2, ..leak::Options::default() }, &Host::silent()).unwrap();

    // Few rows were compared, as nothing said that they are minutes; they are not taken for minutes
    // in silence.
    let stage = Stage::new();
    let few = every(&stage.whole, "EURUSD-few.csv", 5, 0..6);
    ingest(&base(vec![stage.old.clone(), few]), &stage.out, &Host::silent()).unwrap();
    let said = stage.refuses(stage.rest(CUT), Kind::Data);
    assert!(said.contains("EURUSD-few.csv: its bars were compared and not read"), "{said}");
}

/// Every array of a file under its name.
fn arrays(path: &Path) -> Vec<(String, Vec<u8>)> {
    let file = SeriesFile::open(path, &Device::cpu().scope("test")).unwrap();
    let series = file.read().unwrap();
    let bytes = |numbers: &[i64]| numbers.iter().flat_map(|number| number.to_le_bytes()).collect::<Vec<u8>>();
    let bits = |numbers: &[f32]| numbers.iter().flat_map(|number| number.to_le_bytes()).collect::<Vec<u8>>();
    let mut arrays = vec![
        ("/samples/time".to_owned(), bytes(&series.sample_time)),
        ("/samples/reach_time".to_owned(), bytes(&series.sample_reach_time)),
        ("/samples/label_end_time".to_owned(), bytes(&series.sample_label_end_time)),
        ("/targets".to_owned(), bits(&series.targets)),
    ];
    if let Some(instruments) = &series.instruments {
        arrays.push(("/instruments".to_owned(), instruments.names.join(",").into_bytes()));
        let of_samples: Vec<i64> = instruments.sample_instrument.iter().map(|&place| i64::from(place)).collect();
        arrays.push(("/samples/instrument".to_owned(), bytes(&of_samples)));
    }
    for timeframe in &series.timeframes {
        let name = &timeframe.name;
        arrays.push((format!("/series/{name}/values"), bits(&timeframe.values)));
        arrays.push((format!("/series/{name}/close_time"), bytes(&timeframe.close_time)));
        arrays.push((format!("/series/{name}/instrument_start"), bytes(&timeframe.instrument_start)));
        arrays.push((format!("/series/{name}/segment_start"), bytes(&timeframe.segment_start)));
        arrays.push((format!("/samples/end/{name}"), bytes(&timeframe.sample_end)));
        let scaler = timeframe.scaler.as_ref().unwrap();
        for (array, numbers) in [("center", &scaler.center), ("scale", &scaler.scale)] {
            let bits = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
            arrays.push((format!("/scaler/{name}/{array}"), bits));
        }
    }
    arrays
}

/// A day is cut off at several places, within an hour and four hours, and appended; the series of
/// all bars that `ingest` makes with the same scalers has the same arrays.
#[test]
fn the_arrays_are_those_of_a_series_that_was_ingested_whole() {
    let folder = tempfile::tempdir().unwrap();
    let symbols = ["EURUSD", "GBPUSD", "USDJPY"];
    let all: Vec<PathBuf> = symbols
        .iter()
        .zip([&[][..], &[4_000..4_100, 9_100..9_400], &[]])
        .zip(1..)
        .map(|((symbol, lost), seed)| bars(folder.path(), &format!("{symbol}-all.csv"), 12, seed, lost))
        .collect();
    let defective = folder.path().join("EURUSD-defective.csv");
    let text = fs::read_to_string(&all[0]).unwrap();
    let row = |(k, row): (usize, &str)| match k % 997 {
        500 => "20180101 nothing\n".to_owned(),
        501 => format!("{row}\n{row}\n"),
        _ => format!("{row}\n"),
    };
    fs::write(&defective, text.lines().enumerate().map(row).collect::<String>()).unwrap();
    let one = &all[..1];
    type Change = fn(&mut Recipe);
    let cases: [(&str, &[PathBuf], Change); 6] = [
        ("one", one, |_| {}),
        ("one with a stride", one, |recipe| recipe.stride = 3),
        ("split at weekends", one, |recipe| recipe.weekends = Weekends::NotSpanned),
        ("increments", one, |recipe| recipe.target = TargetKind::Increment),
        ("repaired", std::slice::from_ref(&defective), |recipe| recipe.on_error = OnError::Repair),
        ("three", &all, |_| {}),
    ];
    for (label, files, change) in cases {
        // The last minute before the weekend, of a bin of one, five and 60 minutes, and in between.
        for cut in [7_000, 7_103, 7_117, 7_176, 8_500] {
            let mut recipe = Recipe { timeframes: windows("M1:30,M5:6,H1:3,H4:2"), ..base(Vec::new()) };
            let features = [Feature::LogReturn, Feature::Rsi14, Feature::RelativeVolume, Feature::DaySin];
            recipe.features = FeatureList(features.to_vec());
            change(&mut recipe);
            let (mut old, mut new) = (Vec::new(), Vec::new());
            for (file, symbol) in files.iter().zip(symbols) {
                old.push(part(file, &format!("{symbol}-old.csv"), 0..cut));
                new.push(part(file, &format!("{symbol}-new.csv"), cut..rows_in(file)));
            }
            let [out, whole] = ["out.h5", "whole.h5"].map(|name| folder.path().join(name));
            ingest(&Recipe { bars: old.clone(), ..recipe.clone() }, &out, &Host::silent()).unwrap();
            let before = KeptSeries::open(&out).unwrap();
            let (samples, fit_end) = (before.samples(), before.scalers.fit_end_time);
            drop(before);
            let findings = append(&base(new.clone()), &[], &out, &Host::silent()).unwrap();

            // The fraction of all samples that ends where that of the old ones did.
            let series = KeptSeries::open(&out).unwrap();
            let mut times = vec![0; series.samples()];
            series.read_sample_times(&mut times);
            drop(series);
            let share = |times: &[i64]| {
                let trained = times.iter().filter(|time| **time < fit_end).count();
                (trained as f64 + 0.5) / times.len() as f64
            };
            let instants: Vec<i64> = times.iter().copied().collect::<BTreeSet<_>>().into_iter().collect();
            recipe.train_fraction = share(&times).max(share(&instants));
            ingest(&Recipe { bars: [old, new].concat(), ..recipe }, &whole, &Host::silent()).unwrap();
            let expected = KeptSeries::open(&whole).unwrap();
            assert_eq!(expected.scalers.fit_end_time, fit_end, "{label}: the training span");
            drop(expected);
            for ((name, found), (_, expected)) in arrays(&out).into_iter().zip(arrays(&whole)) {
                assert!(found == expected, "{label}, cut {cut}: {name}");
            }
            assert_eq!(findings.json["samples"].as_u64(), Some(times.len() as u64));
            assert!(times.len() > samples, "{label}: no sample came into being");
        }
    }
}

/// Samples whose targets the last bars of before did not reach come into being.
#[test]
fn samples_whose_targets_were_not_known_come_into_being() {
    let stage = Stage::new();
    let times = |path: &Path| {
        let series = KeptSeries::open(path).unwrap();
        let mut times = vec![0; series.samples()];
        series.read_sample_times(&mut times);
        times
    };
    let before = times(&stage.out);
    appended(&[stage.rest(CUT)], &stage.out).unwrap();
    let after = times(&stage.out);
    let text = fs::read_to_string(&stage.old).unwrap();
    // Each of the last bars, of which there were fewer than the horizon has after them.
    let opens = text.lines().rev().take(5).map(|row| &row[..16]);
    let has = |times: &[i64], open: &str| times.iter().any(|time| utc(time - 60_000_000_000).starts_with(open));
    for open in opens {
        assert!(!has(&before, open) && has(&after, open), "{open}");
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
        ("zone", &|recipe| recipe.zone = Some("UTC".parse().unwrap()), "without --zone"),
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
    let scalers = KeptSeries::open(&stage.out).unwrap().scalers;
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
    assert!(fs::read(&stage.out).unwrap() == of_all_bars(&stage.out, &scalers), "other bytes");
}
