//! Reading small files that are written here: joining, clocks, and what is refused.

use std::path::PathBuf;

use megabatch_bars::{
    Error, FormatName, Mend, OnError, Prices, ReadOptions, Recording, Repeats, Result, StampedAt, Timeframe, Trouble, read,
    read_all, read_pair,
};

const MINUTE_NS: i64 = 60_000_000_000;
/// 2018-07-02 00:00 UTC, a Monday.
const MONDAY_NS: i64 = 1_530_489_600_000_000_000;

/// Writes each text to a file of its name and reads them all.
fn read_texts(files: &[(&str, &str)], options: &ReadOptions) -> Result<Recording> {
    let folder = tempfile::tempdir().unwrap();
    let write = |(name, text): &(&str, &str)| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let paths: Vec<PathBuf> = files.iter().map(write).collect();
    read(&paths, options)
}

fn minutes(clock: &str, count: usize) -> String {
    (0..count).map(|minute| format!("2018-07-02 {clock}:{minute:02},1,1,1,1,2\n")).collect()
}

fn repair() -> ReadOptions {
    ReadOptions { on_error: OnError::Repair, ..ReadOptions::default() }
}

#[test]
fn files_are_joined_in_order_of_time() {
    let (early, late) = (minutes("00", 3), minutes("01", 2));
    let files = [("EURUSD_b.csv", late.as_str()), ("EURUSD_a.csv", early.as_str())];
    let recording = read_texts(&files, &ReadOptions::default()).unwrap();
    let opens: Vec<i64> = recording.bars.open_time.iter().map(|ns| (ns - MONDAY_NS) / MINUTE_NS).collect();
    assert_eq!(opens, [0, 1, 2, 60, 61]);
    assert_eq!(recording.summary.files[0].path.file_name().unwrap(), "EURUSD_a.csv");
    assert_eq!((recording.symbol.as_str(), recording.summary.gaps.count()), ("EURUSD", 1));
}

#[test]
fn files_that_do_not_belong_together_are_refused() {
    let (early, late) = (minutes("00", 3), minutes("01", 2));
    let overlap = read_texts(&[("EURUSD_a.csv", &early), ("EURUSD_b.csv", &early)], &ReadOptions::default());
    let overlap = overlap.unwrap_err().to_string();
    for part in ["EURUSD_a.csv", "EURUSD_b.csv", "2018-07-02T00:00:00Z", "2018-07-02T00:02:00Z"] {
        assert!(overlap.contains(part), "{part} in {overlap}");
    }
    let mixed = [("EURUSD.csv", early.as_str()), ("GBPUSD.csv", late.as_str())];
    assert!(matches!(read_texts(&mixed, &ReadOptions::default()), Err(Error::MixedSymbols { .. })));
    let named = ReadOptions { symbol: Some("BASKET".to_owned()), ..ReadOptions::default() };
    assert_eq!(read_texts(&mixed, &named).unwrap().symbol, "BASKET");
    assert!(matches!(read_texts(&[], &named), Err(Error::NoFiles)));
}

#[test]
fn a_missing_file_is_named() {
    let error = read(&["no/such/EURUSD.csv"], &ReadOptions::default()).unwrap_err();
    assert!(matches!(error, Error::Open { .. }));
    assert!(error.to_string().contains("no/such/EURUSD.csv"), "{error}");
}

#[test]
fn a_file_of_which_nothing_is_left_is_an_error() {
    let text = "2018-07-02 00:00,2,1,1,1,2\n2018-07-02 00:01,2,1,1,1,2\n";
    let error = read_texts(&[("EURUSD.csv", text)], &repair()).unwrap_err().to_string();
    for part in ["none of 2 rows", "line 1, inconsistent prices", "a high at or above open and close"] {
        assert!(error.contains(part), "{part} in {error}");
    }
    let empty = read_texts(&[("EURUSD.csv", "")], &repair());
    assert!(matches!(empty, Err(Error::UnknownFormat { .. })));
}

#[test]
fn of_rows_out_of_order_the_first_wins() {
    let text = "2018-07-02 00:00,1,1,1,1,2\n2018-07-02 00:02,1,1,1,1,2\n2018-07-02 00:03,1,1,1,1,2\n\
                2018-07-02 00:02,7,7,7,7,7\n2018-07-02 00:01,7,7,7,7,7\n2018-07-02 00:04,1,1,1,1,2\n";
    let recording = read_texts(&[("EURUSD.csv", text)], &repair()).unwrap();
    let kinds: Vec<_> = recording.summary.files[0].dropped.iter().map(|d| (d.trouble, d.rows, d.first_line)).collect();
    assert_eq!(kinds, [(Trouble::Duplicate, 1, 4), (Trouble::Backward, 1, 5)]);
    assert_eq!(recording.bars.close, [1.0; 4]);
    let error = read_texts(&[("EURUSD.csv", text)], &ReadOptions::default()).unwrap_err().to_string();
    assert!(error.contains("line 4: duplicate timestamp") && error.contains("`2018-07-02 00:02,7"), "{error}");
}

#[test]
fn a_file_written_newest_first_is_turned_round() {
    let text: String = minutes("00", 5).lines().rev().map(|line| format!("{line}\n")).collect();
    let recording = read_texts(&[("EURUSD.csv", &text)], &ReadOptions::default()).unwrap();
    assert_eq!((recording.bars.len(), recording.bars.open_time[0]), (5, MONDAY_NS));
    assert!(recording.summary.warnings[0].contains("newest first"));
}

#[test]
fn times_are_read_by_the_stated_clock_and_end_of_bar() {
    let text = minutes("12", 3);
    let cases = [
        (None, StampedAt::Open, 12 * 60),
        (Some("+02:00"), StampedAt::Open, 10 * 60),
        (Some("America/New_York"), StampedAt::Open, 16 * 60),
        (Some("new-york+7"), StampedAt::Close, 9 * 60 - 1),
    ];
    for (zone, stamped_at, minute) in cases {
        let zone = zone.map(|name| name.parse().unwrap());
        let options = ReadOptions { zone, stamped_at, ..ReadOptions::default() };
        let bars = read_texts(&[("EURUSD.csv", &text)], &options).unwrap().bars;
        assert_eq!((bars.open_time[0] - MONDAY_NS) / MINUTE_NS, minute, "{options:?}");
        assert_eq!(bars.close_time(0), bars.open_time[0] + MINUTE_NS);
    }
}

#[test]
fn an_offset_in_the_file_counts_whatever_is_stated() {
    let text = "time,open,high,low,close\n2018-07-02T02:00:00+02:00,1,1,1,1\n2018-07-02T00:01:00Z,1,1,1,1\n";
    let options = ReadOptions { zone: Some("-05:00".parse().unwrap()), ..ReadOptions::default() };
    let recording = read_texts(&[("EURUSD.csv", text)], &options).unwrap();
    assert_eq!(recording.bars.open_time, [MONDAY_NS, MONDAY_NS + MINUTE_NS]);
    assert_eq!(recording.bars.volume, [0.0; 2]);
    assert_eq!(recording.summary.files[0].zone, None);
    assert!(recording.summary.warnings[0].contains("the stated zone -05:00 was not used"));
}

#[test]
fn a_stated_base_that_does_not_occur_is_refused() {
    let text = minutes("00", 5);
    let options = ReadOptions { base: Some(Timeframe::H1), ..ReadOptions::default() };
    assert!(matches!(read_texts(&[("EURUSD.csv", &text)], &options), Err(Error::WrongBase { .. })));
}

#[test]
fn the_summary_tells_all() {
    let text = format!("{}garbage\n2018-07-02 00:09,1,1,1,1,2\n", minutes("00", 5));
    let summary = read_texts(&[("EURUSD.csv", &text)], &repair()).unwrap().summary.to_string();
    let lines: Vec<&str> = summary.lines().collect();
    assert_eq!(lines[0], "EURUSD: 6 M1 bars from 2018-07-02T00:00:00Z to 2018-07-02T00:10:00Z");
    assert!(lines[1].ends_with(
        "EURUSD.csv: iso, 7 rows, 6 kept, 1 dropped as unreadable row (first in line 6); times are UTC (the default of timestamps without offset)"
    ));
    assert_eq!(lines[2], "  gaps: 1, the longest 4 min from 2018-07-02T00:05:00Z; weekends: 0");
}
