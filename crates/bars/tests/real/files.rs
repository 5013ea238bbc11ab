use megabatch_bars::{FormatName, OnError, ReadOptions, Timeframe, read};

use crate::published;

/// One published file: name, rows, rows kept, format, clock, timeframe, symbol.
type Case = (&'static str, u64, u64, FormatName, Option<&'static str>, Timeframe, &'static str);

#[test]
fn every_published_file_is_read_in_full() {
    use FormatName::{HistData, Iso, MetaTrader};
    use Timeframe::{H1, H4, M1, M5, M15};
    let new_york = Some("America/New_York");
    let cases: [Case; 12] = [
        ("forex_m1/DAT_ASCII_EURUSD_M1_2018.csv.gz", 372_607, 372_607, HistData, new_york, M1, "EURUSD"),
        ("forex_m1/DAT_ASCII_GBPUSD_M1_2018.csv.gz", 372_261, 372_261, HistData, new_york, M1, "GBPUSD"),
        ("forex_m1/DAT_ASCII_USDJPY_M1_2018.csv.gz", 371_800, 371_800, HistData, new_york, M1, "USDJPY"),
        (
            "forex_m1/jaffer_EURUSD_M1_2018-06_mt5tab.csv.gz",
            30_203,
            30_203,
            MetaTrader,
            Some("new-york+7"),
            M1,
            "EURUSD",
        ),
        ("forex_m1/jeremidaneau_EURUSD1_2022.csv.gz", 34_342, 34_342, MetaTrader, Some("new-york+7"), M1, "EURUSD"),
        ("forex_m1/usdjpy-m1-bid-2013.csv.gz", 28_761, 28_761, Iso, None, M1, "USDJPY"),
        ("forex_m1/usdjpy-m1-ask-2013.csv.gz", 28_761, 28_761, Iso, None, M1, "USDJPY"),
        ("forex_multitf/sillydev_EURUSD_M1.csv.gz", 50_000, 50_000, Iso, Some("UTC"), M1, "EURUSD"),
        ("forex_multitf/sillydev_EURUSD_M5.csv.gz", 50_000, 50_000, Iso, Some("UTC"), M5, "EURUSD"),
        ("forex_multitf/sillydev_EURUSD_M15.csv.gz", 50_000, 49_999, Iso, Some("UTC"), M15, "EURUSD"),
        ("forex_multitf/sillydev_EURUSD_H1.csv.gz", 50_000, 50_000, Iso, Some("UTC"), H1, "EURUSD"),
        ("forex_multitf/sillydev_EURUSD_H4.csv.gz", 22_256, 22_256, Iso, Some("UTC"), H4, "EURUSD"),
    ];
    for (name, rows, kept, format, zone, base, symbol) in cases {
        let Some(path) = published(name) else { return };
        let options = ReadOptions { on_error: OnError::Repair, ..ReadOptions::default() };
        let recording = read(&[path], &options).unwrap_or_else(|error| panic!("{error}"));
        let summary = recording.summary;
        println!("{summary}");
        assert_eq!((summary.rows(), summary.kept(), recording.bars.len() as u64), (rows, kept, kept), "{name}");
        assert_eq!((summary.files[0].format, summary.base, summary.symbol.as_str()), (format, base, symbol), "{name}");
        assert_eq!(summary.files[0].zone.as_ref().map(ToString::to_string).as_deref(), zone, "{name}");
        assert_eq!(summary.warnings, [] as [String; 0], "{name}");
    }
}

#[test]
fn the_clock_of_histdata_is_told_from_its_weeks() {
    let Some(path) = published("forex_m1/DAT_ASCII_EURUSD_M1_2018.csv.gz") else { return };
    let inferred = read(&[&path], &ReadOptions::default()).unwrap();
    let why = &inferred.summary.files[0].zone_why;
    assert!(why.starts_with("52 of 52 weeks close on Friday at 17:00 in New York; as -05:00"), "{why}");
    // 2018-01-01 17:00 in New York is 22:00 UTC.
    assert_eq!(inferred.summary.first_open_time, 1_514_844_000_000_000_000);

    let stated = ReadOptions { zone: Some("-05:00".parse().unwrap()), ..ReadOptions::default() };
    let stated = read(&[&path], &stated).unwrap();
    let warning = &stated.summary.warnings[0];
    assert!(warning.contains("read as -05:00") && warning.contains("as America/New_York it is 52"), "{warning}");
    assert_eq!(stated.summary.first_open_time, inferred.summary.first_open_time);
}

#[test]
fn holes_are_counted_and_named() {
    let Some(path) = published("forex_m1/jeremidaneau_EURUSD1_2022.csv.gz") else { return };
    let gaps = read(&[path], &ReadOptions::default()).unwrap().summary.gaps;
    let largest = gaps.largest.unwrap();
    let days = (largest.to - largest.from) / 86_400_000_000_000;
    println!("{gaps}");
    assert_eq!((days, gaps.weekends), (32, 4));
}
