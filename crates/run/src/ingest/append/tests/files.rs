//! Files that grew, changed or are gone since, and files of bars that are not those of the series.

use std::io::Write as _;

use super::*;
use crate::host::{Observer, Progress, Work};

#[test]
fn sources_that_are_gone_or_have_other_rows_are_named() {
    let stage = Stage::new();
    let (whole, old) = [&stage.whole, &stage.old].map(|path| fs::read_to_string(path).unwrap()).into();
    let last_row = old.lines().last().unwrap();
    let (time, prices) = last_row.split_once(',').unwrap();
    let day = &time[..10];
    // The last bar of the file with another open, and one that is gone.
    let mut other = prices.split(',').map(str::to_owned).collect::<Vec<_>>();
    other.swap(0, 3);
    assert_ne!(other[0], other[3]);
    let other = whole.replacen(last_row, &format!("{time},{}", other.join(",")), 1);
    let lost: String =
        whole.lines().enumerate().filter(|(k, _)| *k != 3_000).map(|(_, row)| format!("{row}\n")).collect();
    let lost_day = &whole.lines().nth(3_000).unwrap()[..10];
    let later = whole.lines().take(1).chain(whole.lines().skip(CUT)).map(|row| format!("{row}\n")).collect();
    let shorter = whole.lines().take(CUT - 1).map(|row| format!("{row}\n")).collect();
    for (text, said) in [
        (other, day),
        (lost, lost_day),
        (later, "the first bar of EURUSD opens at 2018-01-01 "),
        (shorter, "would be lost"),
    ] {
        fs::write(&stage.old, text).unwrap();
        let found = stage.refuses(stage.old.clone(), Kind::Data);
        assert!(found.contains("EURUSD-old.csv: these are not the rows") && found.contains(said), "{said}: {found}");
        let begins_later = found.contains("begins later than it did: keep earlier exports under their own names");
        assert_eq!(begins_later, said.starts_with("the first bar"), "{found}");
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
        let scalers = ExistingSeries::open(&stage.out).unwrap().scalers;
        fs::write(&stage.old, if is_rewritten { whole.replace('\n', "\r\n") } else { whole.clone() }).unwrap();
        let report = appended(std::slice::from_ref(&stage.old), &stage.out).unwrap();
        let found = &report.json["appended"];
        let (named, other) = if is_rewritten { ("rewritten", "grown") } else { ("grown", "rewritten") };
        assert_eq!(
            (&found[named][0], &found[other]),
            (&stage.old.display().to_string().into(), &serde_json::json!([]))
        );
        assert_eq!(found["bars"]["EURUSD"], rows_in(&stage.whole) - CUT);
        assert_eq!((found["files"].as_array().unwrap().len(), found["files_read_again"].as_u64()), (0, Some(1)));
        assert!(fs::read(&stage.out).unwrap() == ingested_anew(&stage.out, &scalers), "other bytes");
        leak::prove(&stage.out, &leak::Options { samples: 2, ..leak::Options::default() }, &Host::silent()).unwrap();
        let again = appended(std::slice::from_ref(&stage.old), &stage.out).unwrap();
        assert_eq!(again.json["appended"]["samples"], 0);
    }
}

/// A recipe of days of a share.
fn daily(file: PathBuf) -> Recipe {
    Recipe { timeframes: windows("D1:5"), features: "log_return".parse().unwrap(), ..base(vec![file]) }
}

/// A series in `folder` of the first `count` days of a share, by their dates.
fn days_series(folder: &Path, count: usize) -> PathBuf {
    let (old, out) = (days(folder.join("KO-old.csv"), 0..count, |_, date| date.to_owned()), folder.join("series.h5"));
    ingest(&daily(old), &out, &Host::silent()).unwrap();
    out
}

/// Appends the days of `file`, of which the one at place `last` closes last.
fn append_days(file: PathBuf, last: usize, out: &Path) -> CommandReport {
    let report = append(&daily(file), &[], out, &Host::silent()).unwrap();
    let closes = (17_532 + last / 5 * 7 + last % 5 + 1) as i64 * 86_400_000_000_000;
    assert_eq!(report.json["source"]["instruments"][0]["last_close_time_ns"], closes, "{}", report.text);
    report
}

/// A last day that stood at 15:30 opened then, and the row of the next day was refused.
#[test]
fn a_day_that_carries_a_time_of_day_is_appended_as_that_of_its_date() {
    let folder = tempfile::tempdir().unwrap();
    let out = days_series(folder.path(), 60);
    for (name, rows) in [("KO-1.csv", 60..61), ("KO-2.csv", 59..63)] {
        let last = rows.end - 1;
        let live = |k: usize, date: &str| if k == last { format!("{date} 15:30") } else { date.to_owned() };
        let report = append_days(days(folder.path().join(name), rows, live), last, &out);
        let warnings = report.json["warnings"].to_string();
        assert!(
            warnings.contains("15:30:00, and nearly all other bars, given or recorded before, are midnights"),
            "{warnings}"
        );
    }
    leak::prove(&out, &leak::Options { samples: 2, ..leak::Options::default() }, &Host::silent()).unwrap();
}

/// A day a night at London's midnight was refused after dates once its summer began, on 2018-03-25.
#[test]
fn midnights_of_an_exchange_are_appended_to_dates() {
    let folder = tempfile::tempdir().unwrap();
    let out = days_series(folder.path(), 59);
    let midnight = |k: usize, date: &str| format!("{date} 00:00:00+0{}:00", if k < 60 { 0 } else { 1 });
    for last in 59..64 {
        append_days(days(folder.path().join(format!("KO-{last}.csv")), last - 1..last + 1, midnight), last, &out);
    }
    leak::prove(&out, &leak::Options { samples: 2, ..leak::Options::default() }, &Host::silent()).unwrap();
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
    let scalers = ExistingSeries::open(&out).unwrap().scalers;
    put(&eur, "EURUSD-2.csv", CUT..rows_in(&eur));
    put(&gbp, "GBPUSD-1.csv", 0..rows_in(&gbp));
    let report = appended(std::slice::from_ref(&days), &out).unwrap();
    let found = &report.json["appended"];
    let named = |name: &str| serde_json::json!([days.join(name).display().to_string()]);
    assert_eq!((&found["files"], &found["grown"]), (&named("EURUSD-2.csv"), &named("GBPUSD-1.csv")));
    assert!(fs::read(&out).unwrap() == ingested_anew(&out, &scalers), "other bytes");
    // A file of another symbol came into the folder.
    put(&gbp, "USDJPY-1.csv", 0..CUT);
    let said = appended(&[days], &out).unwrap_err().to_string();
    assert!(said.contains("USDJPY-1.csv: bars of USDJPY"), "{said}");
}

/// An export in mid-session ends with an unfinished bar, at which the next export was refused.
#[test]
fn an_unfinished_last_bar_goes_on_in_the_next_export() {
    for is_same_file in [false, true] {
        let stage = Stage::new();
        let text = fs::read_to_string(&stage.old).unwrap();
        let (before, last) = text.trim_end().rsplit_once('\n').unwrap();
        let fields: Vec<&str> = last.split(',').collect();
        let end_with = |open: &str| {
            let last = format!("{},{open},{open},{open},{open},1", fields[0]);
            fs::write(&stage.old, format!("{before}\n{last}\n")).unwrap();
            ingest(&base(vec![stage.old.clone()]), &stage.out, &Host::silent()).unwrap();
        };
        let next = || match is_same_file {
            true => part(&stage.whole, "EURUSD-old.csv", 0..rows_in(&stage.whole)),
            false => stage.rest(CUT - 10),
        };
        end_with(fields[1]);
        let scalers = ExistingSeries::open(&stage.out).unwrap().scalers;
        let report = appended(&[next()], &stage.out).unwrap();
        assert_eq!(report.json["appended"]["bars"]["EURUSD"], rows_in(&stage.whole) - CUT);
        assert!(fs::read(&stage.out).unwrap() == ingested_anew(&stage.out, &scalers), "other bytes");
        leak::prove(&stage.out, &leak::Options { samples: 2, ..leak::Options::default() }, &Host::silent()).unwrap();

        // A bar with another open is another one.
        end_with(&format!("{}1", fields[1]));
        let said = stage.refuses(next(), Kind::Data);
        assert!(said.contains("this bar of 20") || said.contains("would become another one"), "{said}");
    }
}

/// A file that is not there was a new symbol, by its name.
#[test]
fn a_file_that_is_not_there_is_no_new_symbol() {
    let stage = Stage::new();
    let said = stage.refuses(stage.folder.path().join("NOTHERE-1.csv"), Kind::Data);
    assert!(said.contains("NOTHERE-1.csv: cannot be opened: ") && !said.contains("new symbol"), "{said}");
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
    let scalers = ExistingSeries::open(&out).unwrap().scalers;
    let new = part(&bid, "bid-new.csv", CUT - 20..rows_in(&bid));
    part(&ask, "ask-old.csv", 0..rows_in(&ask));
    let recipe = sides(new, old[1].clone());
    let report = append(&recipe, &["symbol".to_owned()], &out, &Host::silent()).unwrap();
    assert_eq!(report.json["appended"]["grown"], serde_json::json!([old[1].display().to_string()]));
    // Rows of the ask, of which the header is none.
    assert_eq!(report.json["source"]["instruments"][0]["bars"]["all"], rows_in(&ask) - 1);
    assert!(fs::read(&out).unwrap() == ingested_anew(&out, &scalers), "other bytes");
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
            let report = appended(&[new], &stage.out).unwrap();
            assert_eq!(report.json["appended"]["bars"]["EURUSD"], rows);
            let scalers = ExistingSeries::open(&stage.out).unwrap().scalers;
            assert!(fs::read(&stage.out).unwrap() == ingested_anew(&stage.out, &scalers), "other bytes");
        } else {
            let said = stage.refuses(new, Kind::Data);
            assert!(said.contains(name) && said.contains("these are M5 bars") && said.contains("M1 bars"), "{said}");
        }
    }
}

/// Rows of two days were appended as two minutes.
#[test]
fn rows_of_days_are_not_appended_to_minutes() {
    let stage = Stage::new();
    let days = "date,open,high,low,close,volume\n2020-01-01,1.2,1.3,1.1,1.2,5\n2020-01-02,1.2,1.3,1.1,1.2,5\n";
    let new = stage.out.with_file_name("EURUSD-new.csv");
    fs::write(&new, days).unwrap();
    let said = stage.refuses(new, Kind::Data);
    assert!(said.contains("EURUSD-new.csv: line 2: a date without a time of day"), "{said}");
}

/// A day's row behind minutes was appended as their bar at midnight.
#[test]
fn a_date_beside_written_midnights_is_not_appended() {
    let stage = Stage::new();
    let row = |time: &str| format!("2020-01-{time},1.2,1.3,1.1,1.2,5\n");
    let rows = ["02 00:00", "02 00:01", "02 00:02", "03"].map(row).concat();
    let new = stage.out.with_file_name("EURUSD-new.csv");
    fs::write(&new, format!("date,open,high,low,close,volume\n{rows}")).unwrap();
    let said = stage.refuses(new, Kind::Data);
    assert!(said.contains("EURUSD-new.csv: line 5: a date alone"), "{said}");
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
    let report = appended(&[stage.rest(CUT)], &stage.out).unwrap();
    assert_eq!(report.json["appended"]["bars"]["EURUSD"], rows_in(&stage.whole) - CUT);
    assert_eq!(report.json["appended"]["grown"][0], hours.display().to_string());
    assert_eq!(report.json["source"]["instruments"][0]["compared"][0]["timeframe"], "H1");
    leak::prove(&stage.out, &leak::Options { samples: 2, ..leak::Options::default() }, &Host::silent()).unwrap();

    // Bars that were compared are not read in silence where their file has others since.
    let stage = Stage::new();
    let other = every(&stage.whole, "EURUSD-other.csv", 60, 0..10);
    ingest(&base(vec![stage.old.clone(), other]), &stage.out, &Host::silent()).unwrap();
    every(&stage.whole, "EURUSD-other.csv", 1, 0..10);
    let said = stage.refuses(stage.rest(CUT), Kind::Data);
    assert!(said.contains("EURUSD-other.csv: its bars were compared and not read"), "{said}");
}

/// Adds rows to a file while scalers are fitted.
struct GrowsLater {
    path: PathBuf,
    rows: String,
}

impl Observer for GrowsLater {
    fn begin(&self, work: Work<'_>) -> Box<dyn Progress> {
        if work.label == "fit" {
            let mut file = fs::File::options().append(true).open(&self.path).unwrap();
            file.write_all(self.rows.as_bytes()).unwrap();
        }
        Host::silent().observer.begin(work)
    }

    fn note(&self, text: &str) {
        Host::silent().observer.note(text);
    }
}

/// Rows that a context got after it was read were taken for rows that were in the series.
#[test]
fn rows_that_a_context_gets_while_a_series_is_made_are_appended() {
    let folder = tempfile::tempdir().unwrap();
    let [own, path] = ["EURUSD.csv", "DXY.csv"].map(|name| bars(folder.path(), name, 4, 1, &[]));
    let text = fs::read_to_string(&path).unwrap();
    let end = text.match_indices('\n').nth(rows_in(&path) - 500).unwrap().0 + 1;
    fs::write(&path, &text[..end]).unwrap();
    let recipe = Recipe {
        symbol_pattern: None,
        features: "log_return".parse().unwrap(),
        context: vec![ContextFile { symbol: "DXY".to_owned(), path: path.clone() }],
        ..base(vec![own])
    };
    let out = folder.path().join("series.h5");
    let observer = GrowsLater { path, rows: text[end..].to_owned() };
    ingest(&recipe, &out, &Host { observer: &observer, ..Host::silent() }).unwrap();
    for is_known in [false, true] {
        let report = append(&recipe, &[], &out, &Host::silent()).unwrap();
        assert_eq!(report.text.contains("nothing was written"), is_known, "{}", report.text);
    }
    leak::prove(&out, &leak::Options { samples: 2, ..leak::Options::default() }, &Host::silent()).unwrap();
}
