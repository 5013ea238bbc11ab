//! Reading small files that are written here: joining, clocks, and what is refused.

mod whole;
mod written;

use megabatch_bars::{
    Bar, Error, FormatName, OnError, Overlaps, Prices, ReadOptions, Recording, RowError, StampedAt, Timeframe, Zone,
    read, read_all,
};
use whole::resample;
use written::{minutes, read_texts, repair, with_files};

const MINUTE_NS: i64 = 60_000_000_000;
/// 2018-07-02 00:00 UTC, a Monday.
const MONDAY_NS: i64 = 1_530_489_600_000_000_000;

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

/// `megabatch ingest AAPL.csv --features default,column:sentiment` panicked where the column was
/// empty in every row.
#[test]
fn a_column_without_any_value_leaves_nothing() {
    let text = "time,open,high,low,close,sentiment\n2018-07-02 00:00,1,1,1,1,\n2018-07-02 00:01,1,1,1,1,\n";
    for on_error in OnError::ALL {
        let options = ReadOptions { on_error, columns: vec!["sentiment".to_owned()], ..ReadOptions::default() };
        let error = read_texts(&[("AAPL.csv", text)], &options).unwrap_err();
        assert!(matches!(error, Error::NothingLeft { rows: 2, .. }), "{error}");
        assert!(error.to_string().contains("first: line 2, "), "{error}");
    }
}

/// A label that ended in the hour which the clock repeats was taken to end in its first pass, an
/// hour too early, and one that began in the second pass was refused.
#[test]
fn a_label_that_ends_in_a_repeated_hour_ends_in_its_second_pass() {
    let times = ["01:30", "02:00", "02:30", "02:00", "02:30", "03:00"];
    let row = |k: usize| format!("2018-10-28 {},1,1,1,1,0,2018-10-28 {}\n", times[k], times[(k + 1).min(5)]);
    let text = format!("time,open,high,low,close,y,t1\n{}", (0..6).map(row).collect::<String>());
    let options = ReadOptions {
        zone: Some("Europe/Berlin".parse().unwrap()),
        target_columns: vec!["y".to_owned()],
        label_end_column: Some("t1".to_owned()),
        ..ReadOptions::default()
    };
    let bars = read_texts(&[("EURUSD.csv", &text)], &options).unwrap().bars;
    let half_hours = |ns: i64| (ns - bars.open_time[0]) / (30 * MINUTE_NS);
    assert_eq!(bars.open_time.iter().map(|&ns| half_hours(ns)).collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5]);
    let ends: Vec<i64> = bars.columns[1].iter().map(|&ns| half_hours(ns as i64)).collect();
    assert_eq!(ends, [4, 5, 4, 5, 6, 6]);
}

/// Such a row was said to have inconsistent prices.
#[test]
fn a_label_that_ends_before_its_bar_is_a_defect_of_its_own() {
    let row = |minute: usize, end: usize| format!("2018-07-02 00:0{minute},1,1,1,1,0,2018-07-02 00:0{end}\n");
    let text = format!("time,open,high,low,close,y,t1\n{}{}{}", row(0, 1), row(1, 0), row(2, 2));
    let read_with = |on_error| {
        let options = ReadOptions {
            on_error,
            target_columns: vec!["y".to_owned()],
            label_end_column: Some("t1".to_owned()),
            ..ReadOptions::default()
        };
        read_texts(&[("EURUSD.csv", &text)], &options)
    };
    let error = read_with(OnError::Fail).unwrap_err().to_string();
    assert!(
        error.contains("line 3: label that ends before its bar: expected a label that ends with its bar"),
        "{error}"
    );
    let summary = read_with(OnError::Skip).unwrap().summary;
    assert_eq!((summary.bars.all, summary.dropped(RowError::LabelEnd)), (2, 1));
}

/// Rows of files with tabs lost their last fields where these were empty.
#[test]
fn a_row_may_end_with_empty_fields_whatever_is_between_them() {
    let text = "Date,Open,High,Low,Close,Volume\n2018-07-02,1,1,1,1,\n2018-07-03,1,1,1,1,\n";
    for delimiter in [",", "\t"] {
        let recording = read_texts(&[("AAPL.csv", &text.replace(',', delimiter))], &ReadOptions::default()).unwrap();
        assert_eq!((recording.bars.len(), &recording.bars.volume[..]), (2, &[0.0, 0.0][..]), "{delimiter:?}");
    }
}

/// Volumes behind the 4,096th field were 0, and the number in which a line was cut was read.
#[test]
fn a_table_of_a_thousand_symbols_is_read_to_its_end() {
    let symbols: Vec<String> = (0..1_000).map(|symbol| format!("S{symbol:03}")).collect();
    let fields = ["Close", "High", "Low", "Open", "Volume"];
    let all = |cell: &dyn Fn(&str, &str) -> String| -> String {
        let cells = fields.iter().flat_map(|field| symbols.iter().map(move |symbol| cell(field, symbol)));
        cells.map(|cell| format!(",{cell}")).collect()
    };
    let names = all(&|field, _| field.to_owned());
    let tickers = all(&|_, symbol| symbol.to_owned());
    let row = |day: usize| {
        let cells = all(&|field, _| if field == "Volume" { "12345600".to_owned() } else { "101.25".to_owned() });
        format!("2018-07-{day:02}{cells}\n")
    };
    let rows: String = (2..7).map(row).collect();
    let text = format!("Price{names}\nTicker{tickers}\nDate{}\n{rows}", ",".repeat(5_000));
    let options = ReadOptions { symbol: Some("S999".to_owned()), ..ReadOptions::default() };
    let recording = read_texts(&[("prices.csv", &text)], &options).unwrap();
    assert_eq!(recording.bars.volume, [12_345_600.0; 5]);
}

#[test]
fn a_file_of_which_nothing_is_left_is_an_error() {
    let text = "2018-07-02 00:00,2,1,1,1,2\n2018-07-02 00:01,2,1,1,1,2\n";
    let error = read_texts(&[("EURUSD.csv", text)], &repair()).unwrap_err().to_string();
    for part in ["none of 2 rows", "line 1, inconsistent prices", "a high at or above open and close"] {
        assert!(error.contains(part), "{part} in {error}");
    }
    let empty = read_texts(&[("EURUSD.csv", "")], &repair());
    assert!(matches!(empty, Err(Error::NoRows { found: "the file is empty", .. })));
    let header = read_texts(&[("EURUSD.csv", "time,open,high,low,close\n")], &ReadOptions::default());
    assert!(matches!(header, Err(Error::NoRows { found: "the file has a header and no row", .. })));
}

/// Shuffled rows were stray timestamps one by one: of a year twelve bars were left, with exit 0.
#[test]
fn rows_in_no_order_of_time_are_refused_in_every_mode() {
    let rows: Vec<String> = minutes("00", 59).lines().map(|line| format!("{line}\n")).collect();
    let shuffled: String = (0..59).map(|k| rows[k * 29 % 59].as_str()).collect();
    for (header, says) in [("time,open,high,low,close,volume\n", "sort them by `time`"), ("", "sort them by field 1")] {
        let text = format!("{header}{shuffled}");
        for on_error in OnError::ALL {
            let options = ReadOptions { on_error, ..ReadOptions::default() };
            let error = read_texts(&[("EURUSD.csv", &text)], &options).unwrap_err();
            assert!(matches!(error, Error::Unsorted { steps: 58, .. }), "{error}");
            let error = error.to_string();
            assert!(error.contains("EURUSD.csv: the rows are in no order of time") && error.contains(says), "{error}");
        }
    }
}

#[test]
fn a_file_written_newest_first_is_turned_round() {
    let text: String = minutes("00", 5).lines().rev().map(|line| format!("{line}\n")).collect();
    let options = ReadOptions { zone: Some(Zone::utc()), ..ReadOptions::default() };
    let recording = read_texts(&[("EURUSD.csv", &text)], &options).unwrap();
    assert_eq!((recording.bars.len(), recording.bars.open_time[0]), (5, MONDAY_NS));
    let Recording { summary, .. } = &recording;
    assert!(
        summary.files[0].newest_first && summary.to_string().contains(", newest first") && summary.warnings.is_empty()
    );
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

/// Rows of HistData on the clock of New York: three minutes from 17:00 of a day of March 2018 on,
/// and three before 17:00 of another one.
fn week_of_march(sunday: u32, last_day: u32) -> String {
    let row = |day: u32, minute: u32| format!("201803{day:02} {minute}00;1.2;1.3;1.1;1.2;0\n");
    let first = (1700..1703).map(|minute| row(sunday, minute));
    first.chain((1657..1660).map(|minute| row(last_day, minute))).collect()
}

/// No file had the end of a week, and all were read by the clock -05:00.
#[test]
fn weekends_between_files_show_the_clock() {
    let weeks = [(4, 9), (11, 16), (18, 23), (25, 30)].map(|(sunday, friday)| week_of_march(sunday, friday));
    let [first, second, third, last] = weeks.each_ref().map(String::as_str);
    let (two_weeks, until_thursday) = ([first, second].concat(), week_of_march(4, 8));
    let (two_weeks, until_thursday) = (two_weeks.as_str(), until_thursday.as_str());
    let (found, default) = ("America/New_York", "-05:00");
    for (texts, zone, why) in [
        (vec![last, first, third, second], found, "3 of 3 weeks close on Friday"),
        // Both weeks and one of them again.
        (vec![two_weeks, second], found, "1 of 1 weeks close on Friday"),
        (vec![first, third], default, "the format's default: there is no end of a week"),
        (vec![until_thursday, second], default, "the format's default: there is no end of a week"),
    ] {
        let names: Vec<String> = (0..texts.len()).map(|k| format!("EURUSD_{k}.csv")).collect();
        let files: Vec<(&str, &str)> = names.iter().map(String::as_str).zip(texts).collect();
        let options =
            ReadOptions { base: Some(Timeframe::M1), overlaps: Overlaps::EqualOnce, ..ReadOptions::default() };
        let summary = read_texts(&files, &options).unwrap().summary;
        for file in &summary.files {
            assert_eq!(file.zone.as_ref().map(ToString::to_string).as_deref(), Some(zone), "{}", file.zone_why);
            assert!(file.zone_why.starts_with(why), "{}", file.zone_why);
        }
    }
}

/// They came a day early, and beside shorter bars a sample saw a day before it had closed.
#[test]
fn bars_of_days_are_dated_by_their_day_whichever_end_is_stamped() {
    let row = |day: &i64| format!("2018-07-{day:02},1,2,1,2,3\n");
    let days: Vec<i64> = (2..7).chain(9..14).collect();
    let text = format!("date,open,high,low,close,volume\n{}", days.iter().map(row).collect::<String>());
    let expected: Vec<i64> = days.iter().map(|day| MONDAY_NS + (day - 2) * 24 * 60 * MINUTE_NS).collect();
    for stamped_at in [StampedAt::Open, StampedAt::Close] {
        let options = ReadOptions { stamped_at, ..ReadOptions::default() };
        let bars = read_texts(&[("KO.csv", &text)], &options).unwrap().bars;
        assert_eq!((bars.timeframe, bars.open_time), (Timeframe::D1, expected.clone()), "{stamped_at:?}");
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
    let text = "2018-07-02 00:00,1,1,1,1,1\n2018-07-02 00:05,1,1,1,1,1\n";
    let options = ReadOptions { base: Some(Timeframe::M1), ..ReadOptions::default() };
    assert!(matches!(read_texts(&[("EURUSD.csv", text)], &options), Err(Error::WrongBase { .. })));
}

#[test]
fn the_summary_tells_all() {
    let text = format!("{}garbage\n2018-07-02 00:09,1,1,1,1,2\n2018-07-02 00:08,1,1,1,1,2\n", minutes("00", 5));
    let summary = read_texts(&[("EURUSD.csv", &text)], &repair()).unwrap().summary.to_string();
    let lines: Vec<&str> = summary.lines().collect();
    assert_eq!(lines[0], "EURUSD: 7 M1 bars from 2018-07-02T00:00:00Z to 2018-07-02T00:10:00Z");
    assert!(lines[1].ends_with(
        "EURUSD.csv: iso, 8 rows, 7 kept, 1 dropped as unreadable row (first in line 6), 1 sorted in (first in line 8); \
         times are UTC (the default of timestamps without offset)"
    ));
    assert_eq!(lines[2], "  1 gap: 1 of minutes; the longest 3 min from 2018-07-02T00:05:00Z; 0 weekends");
    assert_eq!(lines[3], "  flat bars: all; without volume: none; with a spread: none");
}

#[test]
fn times_are_read_however_they_are_written() {
    let cases = [
        ("1530489600,1,1,1,1\n1530489660,1,1,1,1", FormatName::Epoch),
        ("unix,open,high,low,close\n1530489600000,1,1,1,1\n1530489660000,1,1,1,1", FormatName::Epoch),
        ("1530489600000000,1,1,1,1\n1530489660000000,1,1,1,1", FormatName::Epoch),
        ("2/7/2018 00:00,1,1,1,1\n2/7/2018 00:01,1,1,1,1\n13/7/2018 00:00,1,1,1,1", FormatName::YearLast),
        ("7/2/2018 12:00 AM,1,1,1,1\n7/2/2018 12:01 AM,1,1,1,1\n7/13/2018 1:00 PM,1,1,1,1", FormatName::YearLast),
        (
            "Gmt time,Open,High,Low,Close\n02.07.2018 00:00:00.000,1,1,1,1\n02.07.2018 00:01:00.000,1,1,1,1",
            FormatName::YearLast,
        ),
        ("2018/07/02 00:00,1,1,1,1\n2018/07/02 00:01,1,1,1,1", FormatName::Iso),
    ];
    for (text, format) in cases {
        let recording = read_texts(&[("EURUSD.csv", text)], &ReadOptions::default()).unwrap();
        assert_eq!(recording.bars.open_time[..2], [MONDAY_NS, MONDAY_NS + MINUTE_NS], "{text}");
        assert_eq!(recording.summary.files[0].format, format, "{text}");
    }
}

#[test]
fn dates_of_two_readings_need_to_be_told_which() {
    let text = "02/07/2018 00:00,1,1,1,1\n02/07/2018 00:01,1,1,1,1";
    let error = read_texts(&[("EURUSD.csv", text)], &ReadOptions::default()).unwrap_err();
    assert!(matches!(error, Error::UnknownDateOrder { .. }));
    for (order, day) in [("day-first", 0), ("month-first", -145)] {
        let options = ReadOptions { date_order: Some(order.parse().unwrap()), ..ReadOptions::default() };
        let bars = read_texts(&[("EURUSD.csv", text)], &options).unwrap().bars;
        assert_eq!((bars.open_time[0] - MONDAY_NS) / (1_440 * MINUTE_NS), day, "{order}");
    }
}

#[test]
fn exports_of_metatrader_are_read_in_their_encoding() {
    let text = "\u{feff}<DATE>\t<TIME>\t<OPEN>\t<HIGH>\t<LOW>\t<CLOSE>\t<TICKVOL>\t<VOL>\t<SPREAD>\r\n\
                2018.07.02\t00:00:00\t1.16879\t1.16906\t1.16852\t1.16855\t8\t0\t47\r\n\
                2018.07.02\t00:01:00\t1.16871\t1.16884\t1.16871\t1.16879\t13\t0\t31\r\n";
    let utf_16: Vec<u8> = text.encode_utf16().flat_map(u16::to_le_bytes).collect();
    for bytes in [text.as_bytes(), &utf_16] {
        let bars = with_files(&[("EURUSD.csv", bytes)], |paths| read(paths, &ReadOptions::default())).unwrap().bars;
        assert_eq!((bars.open_time[0], bars.volume[1], bars.spread), (MONDAY_NS, 13.0, vec![0.000_47, 0.000_31]));
    }
}

#[test]
fn a_last_line_that_is_being_written_is_said_to_have_no_end() {
    let why = "(this last line has no end, as in a file that is still being written)";
    // Among the lines that show the format, and behind them.
    for rows in [4, 59] {
        for (cut, expected) in [
            ("2018-07-02 03:00,1,1", "5 fields or more, and there are 3"),
            ("2018-07-02 03:00,1,1,1,1,2e", "a number for volume in field 6, which is `2e`"),
        ] {
            let text = format!("{}{}{cut}", minutes("00", rows), minutes("02", if rows > 4 { 20 } else { 0 }));
            let read_text = |text: &str, options: &ReadOptions| read_texts(&[("EURUSD.csv", text)], options);
            let error = read_text(&text, &ReadOptions::default()).unwrap_err().to_string();
            assert!(error.contains(&format!("unfinished last row: expected {expected} {why}")), "{error}");
            let skip = ReadOptions { on_error: OnError::Skip, ..ReadOptions::default() };
            assert_eq!(read_text(&text, &skip).unwrap().summary.dropped(RowError::Unfinished), 1);
            let whole = read_text(&format!("{text}\n"), &ReadOptions::default()).unwrap_err().to_string();
            assert!(whole.contains(expected) && !whole.contains("no end"), "{whole}");
        }
        // Right behind the header it was called unreadable.
        let error = read_texts(
            &[("EURUSD.csv", "time,open,high,low,close,volume\n2018-07-02 03:00,1,1,1,1")],
            &ReadOptions::default(),
        );
        let error = error.unwrap_err().to_string();
        assert!(error.contains("line 2: unfinished last row: expected a number for volume in field 6"), "{error}");
        // It was told to become whole, which it is.
        for row in ["2018-07-02 03:00,1,1,1,0.5,2", "2018-07-02 03:00,null,null,null,null,null"] {
            let text = format!("{}{row}", minutes("00", rows));
            let error = read_texts(&[("EURUSD.csv", &text)], &ReadOptions::default()).unwrap_err().to_string();
            assert!(!error.contains("no end") && !error.contains("unfinished"), "{error}");
        }
    }
}

#[test]
fn what_stands_before_a_header_or_repeats_it_is_no_row() {
    let header = "Date,Open,High,Low,Close\n";
    let text = format!(
        "https://example.org\n\nEURUSD, all times are UTC\n{header}{}{header}{}",
        minutes("00", 2),
        minutes("01", 1)
    );
    let summary = read_texts(&[("EURUSD.csv", &text)], &ReadOptions::default()).unwrap().summary;
    assert_eq!((summary.rows(), summary.kept(), summary.files[0].preamble), (3, 3, 2));
    let without_header = format!("https://example.org\n{}", minutes("00", 2));
    let error = read_texts(&[("EURUSD.csv", &without_header)], &ReadOptions::default()).unwrap_err().to_string();
    assert!(error.contains("line 1: unreadable row"), "{error}");
}

#[test]
fn prices_are_adjusted_where_that_is_wanted() {
    let text = "date,open,high,low,close,adj close,volume\n2018-07-02,4,8,2,4,2,9\n2018-07-03,4,8,2,4,4,9\n";
    let with = |prices| ReadOptions { prices, ..ReadOptions::default() };
    let adjusted = with(Prices::Adjusted);
    for (prices, close, is_told) in [
        (Prices::AdjustedIfGiven, [2.0, 4.0], true),
        (Prices::Adjusted, [2.0, 4.0], true),
        (Prices::AsQuoted, [4.0, 4.0], false),
    ] {
        let recording = read_texts(&[("AAPL.csv", text)], &with(prices)).unwrap();
        assert_eq!((&recording.bars.close[..], recording.summary.files[0].adjusted.is_some()), (&close[..], is_told));
    }
    assert_eq!(read_texts(&[("AAPL.csv", &minutes("00", 2))], &ReadOptions::default()).unwrap().bars.len(), 2);
    let error = read_texts(&[("AAPL.csv", &minutes("00", 2))], &adjusted).unwrap_err().to_string();
    assert!(error.contains("AAPL.csv: there is no adjusted close"), "{error}");
}

#[test]
fn several_symbols_are_read_in_one_call() {
    let (early, late) = (minutes("00", 3), minutes("01", 2));
    let texts = [("GBPUSD.csv", &early), ("EURUSD_2.csv", &late), ("EURUSD_1.csv", &early)];
    let files = texts.map(|(name, text)| (name, text.as_bytes()));
    let recordings = with_files(&files, |paths| read_all(paths, &ReadOptions::default())).unwrap().recordings;
    let found: Vec<_> = recordings.iter().map(|recording| (recording.symbol.as_str(), recording.bars.len())).collect();
    assert_eq!(found, [("EURUSD", 5), ("GBPUSD", 3)]);
    assert!(matches!(read_all::<&str>(&[], &ReadOptions::default()), Err(Error::NoFiles)));
}

#[test]
fn a_quoted_volume_with_thousands_is_read_whole() {
    let text = "2018-07-02 00:00,1,1,1,1,\"1,234\"\n\"2018-07-02 00:01,1,1,1,1,\"\"5,678\"\"\"\n";
    let bars = read_texts(&[("EURUSD.csv", text)], &ReadOptions::default()).unwrap().bars;
    assert_eq!((bars.close, bars.volume), (vec![1.0; 2], vec![1234.0, 5678.0]));
    let text = "2018-07-02 00:00,\"1,1789\",\"1,1790\",\"1,1788\",\"1,1789\",5\n";
    let error = read_texts(&[("EURUSD.csv", text)], &ReadOptions::default()).unwrap_err().to_string();
    assert!(error.contains("decimal commas"), "{error}");
}

/// `megabatch ingest EURUSD_M1.csv EURUSD_M5.csv` was refused as files that overlap, and other
/// names gave an instrument each.
#[test]
fn the_shortest_of_several_timeframes_is_read_and_the_others_are_compared() {
    let minute = |minute: usize| {
        let price = 1.0 + (minute % 7) as f64 / 10.0;
        format!("2018-07-02 00:{minute:02},{price:.2},{:.2},{:.2},{:.2},1\n", price + 0.5, price - 0.25, price + 0.1)
    };
    let minutes: String = (0..30).map(minute).collect();
    let shorter = read_texts(&[("EURUSD_M1.csv", &minutes)], &ReadOptions::default()).unwrap().bars;
    let longer = resample(&shorter, Timeframe::M5);
    let row = |bar: Bar| {
        let minute = (bar.open_time - MONDAY_NS) / MINUTE_NS;
        format!("2018-07-02 00:{minute:02},{:.2},{:.2},{:.2},{:.2},5\n", bar.open, bar.high, bar.low, bar.close)
    };
    let five: String = (0..longer.len()).map(|index| row(longer.bar(index))).collect();
    let later = "2018-07-02 00:30,1,1,1,1,5\n";
    let cases = [
        (format!("{five}{later}"), (6, 0, 1), None),
        (five.replace(",5\n", "1,5\n"), (0, 6, 0), Some("6 of 6 M5 bars have other prices than the M1 bars make")),
    ];
    for (five, (same, different, not_covered), warning) in cases {
        let files = [("EURUSD_M5.csv", five.as_str()), ("EURUSD_M1.csv", minutes.as_str())];
        let options = ReadOptions { zone: Some(Zone::utc()), ..ReadOptions::default() };
        let Recording { bars, summary, .. } = read_texts(&files, &options).unwrap();
        assert_eq!((&bars, summary.files.len(), summary.compared.len()), (&shorter, 1, 1));
        let compared = &summary.compared[0];
        assert_eq!((compared.same, compared.different.count, compared.not_covered), (same, different, not_covered));
        assert!(summary.to_string().contains("EURUSD_M5.csv: "), "{summary}");
        let told = summary.to_string().contains(", 1 in periods that the M1 bars do not cover whole");
        assert_eq!(told, not_covered == 1, "{summary}");
        match warning {
            None => assert_eq!(summary.warnings, [] as [String; 0]),
            Some(text) => {
                assert!(summary.warnings.iter().any(|warning| warning.contains(text)), "{:?}", summary.warnings);
            }
        }
    }
}

/// A broker's days begin at 21:00 or 22:00 UTC: every daily bar of its files was told to have other
/// prices than its hours make.
#[test]
fn daily_bars_are_compared_by_the_clock_of_the_shorter_ones() {
    let hour = |hour: usize| {
        let price = 1.0 + (hour * 7919 % 613) as f64 / 1000.0;
        let (day, hour) = (2 + hour / 24, hour % 24);
        format!("2018.07.{day:02},{hour:02}:00,{price:.3},{:.3},{:.3},{price:.3},1\n", price + 0.2, price - 0.1)
    };
    let hours: Vec<String> = (0..5 * 24).map(hour).collect();
    let day = |rows: &[String]| {
        let rows: Vec<Vec<&str>> = rows.iter().map(|row| row.trim().split(',').collect()).collect();
        let prices = |place: usize| rows.iter().map(move |row| row[place].to_owned());
        let (high, low) = (prices(3).max().unwrap(), prices(4).min().unwrap());
        format!("{},00:00,{},{high},{low},{},24\n", rows[0][0], rows[0][2], rows[23][5])
    };
    let days: String = hours.chunks(24).map(day).collect();
    let files = [("EURUSD60.csv", hours.concat()), ("EURUSD1440.csv", days)];
    let files = files.each_ref().map(|(name, text)| (*name, text.as_str()));
    let options = ReadOptions { zone: Some("new-york+7".parse().unwrap()), ..ReadOptions::default() };
    let summary = read_texts(&files, &options).unwrap().summary;
    let compared = &summary.compared[0];
    assert_eq!((compared.timeframe, compared.same, compared.different.count), (Timeframe::D1, 5, 0));
}

/// One to four closes of New York beside dates were bars of the next day.
#[test]
fn closes_in_utc_beside_dates_are_of_their_date() {
    // March 2018 begins on a Thursday; the last date is Tuesday the 13th.
    let prices = |day: u32| format!("{0},{1},{2},{0},1", 100 + day, 102 + day, 99 + day);
    let dates: String = (1..=13)
        .filter(|day| ![3, 4, 10, 11].contains(day))
        .map(|day| format!("2018-03-{day:02},{}\n", prices(day)))
        .collect();
    // The date of a row and the day whose prices it has.
    let rows = |hour: u32, days: &[[u32; 2]]| -> String {
        days.iter().map(|[date, day]| format!("2018-03-{date:02}T{hour}:00:00Z,{}\n", prices(*day))).collect()
    };
    let own = |days: &[u32]| days.iter().map(|day| [*day, *day]).collect::<Vec<_>>();
    let east = |days: &[u32]| days.iter().map(|day| [*day - 1, *day]).collect::<Vec<_>>();
    for (closes, last_day, count) in [
        (own(&[14]), 14, 10),
        (own(&[14, 15]), 15, 11),
        (own(&[14, 15, 16]), 16, 12),
        (own(&[15, 16]), 16, 11),
        // Rows of known dates.
        (own(&[13]), 13, 9),
        (own(&[13, 14]), 14, 10),
        (own(&[9, 12, 13, 14]), 14, 10),
        // Midnights of Dubai and Moscow.
        (east(&[14]), 14, 10),
        (east(&[13, 14, 15]), 15, 11),
        (east(&[14, 15]), 15, 11),
    ] {
        for hour in [20, 21] {
            let later = rows(hour, &closes);
            let label = format!("{hour}: {closes:?}");
            let as_one = format!("{dates}{later}");
            let files = [("EURUSD_1.csv", dates.as_str()), ("EURUSD_2.csv", later.as_str())];
            let options = ReadOptions { overlaps: Overlaps::EqualOnce, ..ReadOptions::default() };
            let mut read = vec![read_texts(&files, &options).unwrap()];
            // Two rows of a date are an error in one file.
            if count == 9 + closes.len() {
                read.push(read_texts(&[("EURUSD_1.csv", as_one.as_str())], &options).unwrap());
            }
            for Recording { bars, summary, .. } in read {
                assert_eq!(bars.len(), count, "{label}");
                let last = (*bars.open_time.last().unwrap(), *bars.close.last().unwrap());
                let expected = (17_590 + i64::from(last_day)) * 24 * 3_600_000_000_000;
                assert_eq!(last, (expected, f64::from(100 + last_day)), "{label}");
                let is_close = closes[0][0] == closes[0][1];
                assert_eq!(summary.to_string().contains("it is the row of 2018-03-"), is_close, "{summary}");
            }
        }
    }
}

/// 2,000 minutes and a file of six rows five minutes apart gave 2,000 bars, whatever was stated.
#[test]
fn bars_are_left_out_only_where_they_are_evidently_longer() {
    let rows = |first: usize, step: usize, count: usize| -> String {
        let row = |minute: usize| format!("2018-07-02 {:02}:{:02},2,4,1,2,1\n", minute / 60, minute % 60);
        (0..count).map(|place| row(first + place * step)).collect()
    };
    let base = rows(0, 1, 600);
    let stated = ReadOptions { base: Some(Timeframe::M1), ..ReadOptions::default() };
    for (name, step, count, is_read) in [
        ("EURUSD_2.csv", 5, 6, true),
        ("EURUSD_2.csv", 5, 8, true),
        ("EURUSD_2.csv", 5, 9, false),
        ("EURUSD_2.csv", 2, 4, true),
        ("EURUSD_2.csv", 60, 3, true),
        ("EURUSD_2.csv", 60, 4, false),
        ("EURUSD_2.csv", 7, 9, true),
        ("EURUSD_M5.csv", 5, 6, false),
        ("EURUSD_M5.csv", 5, 1, false),
        ("EURUSD_H1.csv", 5, 6, true),
        ("EURUSD_M1.csv", 5, 6, true),
    ] {
        let later = rows(700, step, count);
        let files = [("EURUSD_1.csv", base.as_str()), (name, later.as_str())];
        // An append states the timeframe: it reads what was read before.
        for options in [&stated, &ReadOptions::default()] {
            let Recording { bars, summary, .. } = read_texts(&files, options).unwrap();
            let expected = if is_read { (600 + count, 0) } else { (600, 1) };
            let label = format!("{name}: {count} rows of {step} minutes, {:?}", options.base);
            assert_eq!((bars.len(), summary.compared.len()), expected, "{label}");
        }
    }
    // A file of one bar has the stated timeframe, and none of its own.
    let files = [("EURUSD_1.csv", base.as_str()), ("EURUSD_2.csv", &rows(700, 1, 1))];
    assert_eq!(read_texts(&files, &stated).unwrap().bars.len(), 601);
}

/// Days, weeks and months of a few rows were taken for bars of five minutes.
#[test]
fn rows_of_days_are_no_bars_of_minutes() {
    let row = |k: usize| format!("2018.07.02,{:02}:{:02},2,4,1,2,1\n", k / 12, k % 12 * 5);
    let fives: String = (0..200).map(row).collect();
    let days =
        "<DATE>\t<OPEN>\t<HIGH>\t<LOW>\t<CLOSE>\t<TICKVOL>\n2018.07.03\t2\t4\t1\t2\t1\n2018.07.04\t2\t4\t1\t2\t1\n";
    let (midnight, months) =
        ("2018.07.03,00:00,2,4,1,2,1\n", "2018.07.03,00:00,2,4,1,2,1\n2018.08.03,00:00,2,4,1,2,1\n");
    let few_days: String = (7..11).map(|month| format!("2018.{month:02}.03,00:00,2,4,1,2,1\n")).collect();
    let stated = ReadOptions { base: Some(Timeframe::M5), overlaps: Overlaps::EqualOnce, ..ReadOptions::default() };
    for options in [&stated, &ReadOptions { overlaps: Overlaps::EqualOnce, ..ReadOptions::default() }] {
        let read_beside =
            |name: &str, text: &str| read_texts(&[("EURUSD_M5.csv", fives.as_str()), (name, text)], options);
        for (name, text, timeframe) in [
            ("EURUSD_D1_fix.csv", few_days.as_str(), Timeframe::D1),
            ("EURUSD_Daily_201807030000_201807040000.csv", days, Timeframe::D1),
            ("EURUSD1440.csv", midnight, Timeframe::D1),
            ("EURUSD240.csv", midnight, Timeframe::H4),
            ("EURUSD_Weekly_201807030000_201807030000.csv", midnight, Timeframe::W1),
        ] {
            let Recording { bars, summary, .. } = read_beside(name, text).unwrap();
            assert_eq!((bars.len(), summary.compared.len()), (200, 1), "{name}");
            assert_eq!(summary.compared[0].timeframe, timeframe, "{name}");
        }
        for (name, text, expected) in [
            ("EURUSD_new.csv", days, "EURUSD_new.csv: line 2: a date without a time of day is that of a bar of a day"),
            ("EURUSD_H4.csv", days, "EURUSD_H4.csv: line 2: a date without a time of day"),
            ("EURUSD43200.csv", months, "EURUSD43200.csv: line 1: its bars are of months"),
            ("EURUSD_MN1.csv", midnight, "EURUSD_MN1.csv: line 1: its bars are of months"),
        ] {
            let error = read_beside(name, text).unwrap_err();
            assert!(matches!(error, Error::LongerBars { base: Timeframe::M5, .. }), "{name}: {error}");
            assert!(error.to_string().contains(expected) && error.to_string().contains("M5"), "{name}: {error}");
            // To name it so helps no file of months.
            assert_eq!(error.to_string().contains("as EURUSD_D1.csv"), text == days, "{name}: {error}");
        }
        // A month behind weeks.
        let weeks = [2, 9, 16, 23, 30].map(|day| format!("2018.07.{day:02},00:00,2,4,1,2,1\n")).concat();
        let month = "2018.10.01,00:00,2,4,1,2,1\n";
        let other = ReadOptions { base: options.base.and(Some(Timeframe::W1)), ..options.clone() };
        let error = read_texts(&[("EURUSD_W1.csv", weeks.as_str()), ("EURUSD_MN1.csv", month)], &other).unwrap_err();
        assert!(matches!(error, Error::LongerBars { base: Timeframe::W1, .. }), "{error}");
        // A midnight may have no time of day, and its next bar shows it.
        let ends = "2018-07-03 23:55,2,4,1,2,1\n2018-07-04,2,4,1,2,1\n";
        let error = read_beside("EURUSD_new.csv", ends).unwrap_err();
        assert!(error.to_string().contains("EURUSD_new.csv: line 2: a date alone, where other midnights"), "{error}");
        let goes_on = format!("{ends}2018-07-04 00:05,2,4,1,2,1\n");
        assert_eq!(read_beside("EURUSD_new.csv", &goes_on).unwrap().bars.len(), 203);
    }
}

/// Programs leave out the time of day where every row of a file is at midnight.
#[test]
fn a_date_alone_that_goes_on_with_a_series_is_its_bar_at_midnight() {
    for (base, step) in [(Timeframe::H1, 1), (Timeframe::H4, 4)] {
        let row = |day: usize, hour: usize| match hour {
            0 => format!("2018-07-{day:02},2,4,1,2,1\n"),
            _ => format!("2018-07-{day:02} {hour:02}:00,2,4,1,2,1\n"),
        };
        let days = |days: &[usize]| -> String {
            days.iter().flat_map(|&day| (0..24).step_by(step).map(move |hour| row(day, hour))).collect()
        };
        let options = ReadOptions { base: Some(base), ..ReadOptions::default() };
        let read_behind = |earlier: &str, date: &str, later: &str| {
            let date = format!("{date},2,4,1,2,1\n");
            let files = [("EURUSD_1.csv", earlier), ("EURUSD_2.csv", date.as_str()), ("EURUSD_3.csv", later)];
            read_texts(&files[..if later.is_empty() { 2 } else { 3 }], &options)
        };
        let two_weeks = days(&[2, 3, 4, 5, 6, 9, 10, 11, 12, 13]);
        for (earlier, date) in [(days(&[2]), "2018-07-03"), (two_weeks.clone(), "2018-07-16")] {
            let count = earlier.lines().count();
            assert_eq!(read_behind(&earlier, date, "").unwrap().bars.len(), count + 1, "{base} {date}");
            let later = format!("{date} {step:02}:00,2,4,1,2,1\n");
            assert_eq!(read_behind(&earlier, date, &later).unwrap().bars.len(), count + 2, "{base} {date}");
        }
        for (earlier, date) in [(days(&[2]), "2018-07-04"), (two_weeks, "2018-07-15")] {
            let error = read_behind(&earlier, date, "").unwrap_err();
            assert!(matches!(error, Error::LongerBars { line: 1, .. }), "{base} {date}: {error}");
        }
    }
}

/// A day's row at the end of hours was their bar at midnight, whose close was seen 23 hours early.
#[test]
fn a_date_alone_is_a_midnight_where_no_other_shows_that_it_is_a_day() {
    for (base, step) in [(Timeframe::H1, 1), (Timeframe::H4, 4)] {
        let row = |time: &str| format!("2018-07-{time},2,4,1,2,1\n");
        let hours = |day: usize, first: usize| -> String {
            (first..24).step_by(step).map(|hour| row(&format!("{day:02} {hour:02}:00"))).collect()
        };
        let (written, by_day) = (hours(2, 0), hours(3, step));
        let date = row("04");
        let next = format!("{date}{}", row(&format!("04 {step:02}:00")));
        let options = ReadOptions { base: Some(base), ..ReadOptions::default() };
        // The rows of two files, and if the date is refused, or doubted.
        for (first, second, refused, doubted) in [
            ("", format!("{written}{by_day}{date}"), true, false),
            ("", format!("{written}{by_day}{next}"), true, false),
            ("", format!("{}{by_day}{date}", row("03")), false, false),
            ("", format!("{by_day}{next}"), false, false),
            ("", format!("{by_day}{date}"), false, true),
            (written.as_str(), format!("{by_day}{date}"), true, false),
            (written.as_str(), format!("{by_day}{next}"), false, false),
        ] {
            let line = second.lines().position(|line| line.starts_with("2018-07-04,")).unwrap() + 1;
            let files = [("EURUSD_1.csv", first), ("EURUSD_2.csv", second.as_str())];
            let told = format!("EURUSD_2.csv: line {line}");
            match read_texts(&files[usize::from(first.is_empty())..], &options) {
                Ok(recording) => {
                    let warnings = &recording.summary.warnings;
                    assert!(!refused, "{base}: {second}");
                    let is_doubt = |text: &String| text.contains(&told) && text.contains("is taken for the");
                    assert_eq!(warnings.iter().any(is_doubt), doubted, "{warnings:?}");
                }
                Err(error) => {
                    assert!(refused && error.to_string().contains(&told), "{base}: {error}");
                    assert!(error.to_string().contains("write its time of day"), "{error}");
                }
            }
        }
    }
}

/// 30 minutes beside 12 bars of M5 gave 36 bars of M5, and 30 minutes with one gap of five gave 30.
#[test]
fn beside_a_stated_timeframe_shorter_bars_are_compared_and_never_read() {
    let bars = |minutes: &[usize], step: usize| -> String {
        let row = |&minute: &usize| {
            let (open, close) = (1.0 + minute as f64 / 100.0, 1.0 + (minute + step) as f64 / 100.0);
            format!("2018-07-02 {:02}:{:02},{open},{close},{open},{close},1\n", minute / 60, minute % 60)
        };
        minutes.iter().map(row).collect()
    };
    let fives = bars(&(0..12).map(|bar| bar * 5).collect::<Vec<_>>(), 5);
    let read_beside = |name: &str, minutes: &[usize], step| {
        let files = [("EURUSD_M5.csv", &*fives), (name, &*bars(minutes, step))];
        read_texts(&files, &ReadOptions { base: Some(Timeframe::M5), ..ReadOptions::default() })
    };
    let series = read_texts(&[("EURUSD_M5.csv", &fives)], &ReadOptions::default()).unwrap().bars;
    let thirty: Vec<usize> = (20..50).collect();
    for (name, minutes, step, same, different, not_covered) in [
        ("EURUSD_all.csv", &thirty[..], 1, 6, 0, 6),
        ("EURUSD_all.csv", &thirty, 2, 0, 6, 6),
        ("EURUSD_M1.csv", &[20, 21], 1, 0, 0, 12),
    ] {
        let Recording { bars, summary, .. } = read_beside(name, minutes, step).unwrap();
        assert_eq!((&bars, summary.files.len(), summary.compared.len()), (&series, 1, 1), "{name}");
        let compared = &summary.compared[0];
        let found = (compared.same, compared.different.count, compared.not_covered);
        assert_eq!((compared.timeframe, found), (Timeframe::M1, (same, different, not_covered)), "{name}");
        let line = format!("{name}: M1 bars compared with 12 bars of M5 and not read: {same} the same");
        assert!(summary.to_string().contains(&line), "{summary}");
        let warned = summary.warnings.iter().any(|text| text.contains("6 of 6 M5 bars have other prices than the M1"));
        assert_eq!(warned, different > 0, "{summary}");
    }
    // Bars of five minutes are no two bars and a half.
    let said = read_beside("EURUSD_all.csv", &[20, 22, 24, 26, 28], 2).unwrap_err().to_string();
    assert!(said.contains("EURUSD_all.csv: most of its bars are less than M5 apart, such as 2 min"), "{said}");

    let (twos, fives) = (
        bars(&(0..75).map(|bar| bar * 2).collect::<Vec<_>>(), 2),
        bars(&(0..30).map(|bar| bar * 5).collect::<Vec<_>>(), 5),
    );
    let stated = ReadOptions { base: Some(Timeframe::M2), ..ReadOptions::default() };
    let read = read_texts(&[("EURUSD_M2.csv", &*twos), ("EURUSD_M5.csv", &*fives)], &stated).unwrap().summary;
    let compared = &read.compared[0];
    let found = (compared.timeframe, compared.same, compared.different.count, compared.not_covered);
    assert_eq!(found, (Timeframe::M5, 0, 0, 30), "{read}");

    let with_a_gap: Vec<usize> = (0..15).chain(19..34).collect();
    for (name, minutes) in [("EURUSD_all.csv", &with_a_gap[..]), ("EURUSD_M1.csv", &[20, 21])] {
        let stated = ReadOptions { base: Some(Timeframe::M5), ..ReadOptions::default() };
        let said = read_texts(&[(name, &bars(minutes, 1))], &stated).unwrap_err().to_string();
        assert!(said.contains(name) && said.contains("stated to be M5") && said.contains("true timeframe"), "{said}");
    }
}

/// Half an hour of bars near `price`.
fn flat_minutes(hour: u32, price: f64) -> String {
    let (high, low) = (price + 0.0002, price - 0.0002);
    let row = |minute: u32| format!("2018-07-02 {hour:02}:{minute:02},{price},{high:.4},{low:.4},{price},5\n");
    (0..30).map(row).collect()
}

/// Bars of another pair, in a file whose name does not tell it, made targets of 1,700 pips.
#[test]
fn a_step_of_a_pair_between_two_files_is_told_with_both() {
    let (early, late) = (flat_minutes(0, 1.23), flat_minutes(1, 1.4));
    for (symbol, expected) in [("EURUSD", 1), ("XAUUSD", 0)] {
        let zone = Some("UTC".parse().unwrap());
        let named = ReadOptions { symbol: Some(symbol.to_owned()), zone, ..ReadOptions::default() };
        let recording = read_texts(&[("a.csv", &early), ("b.csv", &late)], &named).unwrap();
        let warnings = recording.summary.warnings;
        let told: Vec<&String> = warnings.iter().filter(|warning| warning.contains("from 1.23 to 1.4 at ")).collect();
        assert_eq!(told.len(), expected, "{symbol}: {warnings:?}");
        let names_both = |warning: &&String| {
            warning.contains("2018-07-02T01:00:00Z")
                && warning.contains("a.csv ends before it")
                && warning.contains("b.csv goes on after it")
        };
        assert!(told.iter().all(names_both), "{told:?}");
    }
}

/// An export of later bars was named, and so were files beside a step within another one.
#[test]
fn a_step_is_told_with_the_files_that_have_its_bars() {
    let (early, late) = (flat_minutes(0, 1.23), flat_minutes(1, 1.4));
    let part: String = late.lines().skip(10).take(10).map(|row| format!("{row}\n")).collect();
    let all = format!("{early}{late}");
    let named = ReadOptions {
        symbol: Some("EURUSD".to_owned()),
        zone: Some("UTC".parse().unwrap()),
        overlaps: Overlaps::EqualOnce,
        ..ReadOptions::default()
    };
    let files = [("a.csv", &*early), ("b.csv", &*late), ("c.csv", &*part), ("d.csv", &*all)];
    for (count, ends) in [(3, Some("b.csv goes on after it: are both of one instrument?)")), (4, None)] {
        let warnings = read_texts(&files[..count], &named).unwrap().summary.warnings;
        let told: Vec<&String> = warnings.iter().filter(|warning| warning.contains("from 1.23 to 1.4 at ")).collect();
        assert_eq!(told.len(), 1, "{warnings:?}");
        assert!(ends.is_none_or(|ends| told[0].ends_with(ends)), "{told:?}");
        assert_eq!(told[0].contains("goes on after it"), ends.is_some(), "{told:?}");
    }
}
