//! Files as vendors and other programs write them, made up here: what is read, and what is refused.

mod symbols;
#[allow(dead_code, reason = "each file of tests uses a part of it")]
#[path = "../written/mod.rs"]
mod written;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::ops::Range;

use megabatch_bars::{
    FormatName, OnError, Overlaps, ReadOptions, Recording, Repeats, RowError, RowFix, Timeframe, read, read_all,
};
use written::{read_texts, repair, with_files};

const DAY_NS: i64 = 86_400_000_000_000;

const MINUTE_NS: i64 = 60_000_000_000;

/// 2024-01-01 00:00 UTC, a Monday.
const MONDAY_NS: i64 = 1_704_067_200_000_000_000;

/// A repeatable number between -1 and 1.
fn noise(seed: usize) -> f64 {
    let mixed = (seed as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (mixed >> 11) as f64 / (1_u64 << 52) as f64 - 1.0
}

/// Prices of a bar.
#[derive(Clone, Copy)]
struct Prices {
    open: f64,
    high: f64,
    low: f64,
    close: f64,
}

/// A walk of daily bars of a share.
fn walk(bars: usize) -> Vec<Prices> {
    let mut last = 100.0;
    let bar = |k: usize| {
        let open = last * (1.0 + 0.004 * noise(4 * k));
        let close = open * (1.0 + 0.02 * noise(4 * k + 1));
        last = close;
        let (top, bottom) = (f64::max(open, close), f64::min(open, close));
        let high = top * (1.0 + 0.005 * noise(4 * k + 2).abs());
        Prices { open, high, low: bottom * (1.0 - 0.005 * noise(4 * k + 3).abs()), close }
    };
    (0..bars).map(bar).collect()
}

/// The `k`-th weekday from 2024-01-01 on, as days since then.
fn weekday(k: usize) -> usize {
    k / 5 * 7 + k % 5
}

/// The date that many days after 2024-01-01.
fn date(days: usize) -> String {
    let mut left = days;
    let (mut year, mut month) = (2024, 1);
    loop {
        let len = match month {
            2 if year % 4 == 0 => 29,
            2 => 28,
            4 | 6 | 9 | 11 => 30,
            _ => 31,
        };
        if left < len {
            return format!("{year}-{month:02}-{:02}", left + 1);
        }
        left -= len;
        (year, month) = if month == 12 { (year + 1, 1) } else { (year, month + 1) };
    }
}

/// Daily rows of a walk, in which `row` writes what follows the date.
fn days(bars: usize, row: impl Fn(usize, Prices) -> String) -> String {
    walk(bars).into_iter().enumerate().map(|(k, prices)| format!("{},{}\n", date(weekday(k)), row(k, prices))).collect()
}

fn error_of(text: &str, options: &ReadOptions) -> String {
    read_texts(&[("AAPL.csv", text)], options).expect_err(text).to_string()
}

fn recording_of(text: &str) -> Recording {
    read_texts(&[("AAPL.csv", text)], &ReadOptions::default()).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

/// Minutes of three weeks of a currency on a clock, with flat bars without volume where the market
/// is closed, if they are `filled`.
fn weeks_of_minutes(is_filled: bool, clock_hours: i64, volume: u32) -> String {
    let mut text = String::new();
    let mut last = 1.1;
    for minute in (0..3 * 7 * 24 * 60_i64).step_by(5) {
        // New York is five hours behind UTC in January.
        let week_minute = (minute + 19 * 60 - 24 * 60).rem_euclid(7 * 24 * 60);
        let is_open = !((4 * 24 + 17) * 60..(6 * 24 + 17) * 60).contains(&week_minute);
        if !is_open && !is_filled {
            continue;
        }
        let close = if is_open { last + 0.0001 * noise(minute as usize) } else { last };
        let at = minute + 60 * clock_hours;
        let (day, time) = (at.div_euclid(1440), at.rem_euclid(1440));
        let stamp = format!("{} {:02}:{:02}", date(day as usize).replace('-', "."), time / 60, time % 60);
        let (high, low) = (last.max(close), last.min(close));
        let volume = if is_open { volume } else { 0 };
        writeln!(text, "{},{last:.6},{high:.6},{low:.6},{close:.6},{volume}", stamp.replace(' ', ",")).unwrap();
        last = format!("{close:.6}").parse().unwrap();
    }
    text
}

fn date_before(day: usize) -> String {
    if day == 0 { "2023-12-31".to_owned() } else { date(day - 1) }
}

/// The rows under yfinance's three header lines, which have the close first, were read as open,
/// high, low and close without them, and `leak` passed.
#[test]
fn exchanged_open_and_close_without_names_are_refused() {
    let volume = |k: usize| 224_000 + 37 * k;
    let ohlc = days(250, |k, Prices { open, high, low, close }| {
        format!("{open:.4},{high:.4},{low:.4},{close:.4},{}", volume(k))
    });
    let chlo = days(250, |k, Prices { open, high, low, close }| {
        format!("{close:.4},{high:.4},{low:.4},{open:.4},{}", volume(k))
    });
    let newest_first: String = chlo.lines().rev().map(|line| format!("{line}\n")).collect();
    for on_error in OnError::ALL {
        for text in [&chlo, &newest_first] {
            let error = error_of(text, &ReadOptions { on_error, ..ReadOptions::default() });
            assert!(error.contains("AAPL.csv: ") && error.contains("open and close are probably exchanged"), "{error}");
            assert!(error.contains("from field 2 and the close from field 5"), "{error}");
            assert!(error.contains("`date,close,high,low,open,volume`"), "{error}");
            assert!(error.contains("`date,open,high,low,close,volume`"), "{error}");
        }
    }
    let right = recording_of(&ohlc);
    assert_eq!((right.bars.len(), right.summary.warnings.len()), (250, 0));
    // Names are believed; a name that is probably wrong is warned of.
    let named = recording_of(&format!("date,close,high,low,open,volume\n{chlo}"));
    assert_eq!((&named.bars, named.summary.warnings.len()), (&right.bars, 0));
    let wrong = recording_of(&format!("date,open,high,low,close,volume\n{chlo}"));
    assert!(
        wrong.summary.warnings[0].contains("are the names of these two columns right?"),
        "{:?}",
        wrong.summary.warnings
    );
}

/// pandas' `to_csv()` writes the index as a column without a name.
#[test]
fn an_index_column_of_pandas_is_passed_over_or_is_the_time() {
    let plain = days(9, |k, Prices { open, high, low, close }| format!("{open},{high},{low},{close},{k}"));
    let header = "Date,Open,High,Low,Close,Volume";
    let expected = recording_of(&format!("{header}\n{plain}"));
    let numbered: String = plain.lines().enumerate().map(|(k, line)| format!("{k},{line}\n")).collect();
    for text in [
        format!(",{header}\n{numbered}"),
        format!("Unnamed: 0,{header}\n{numbered}"),
        format!("index,{header}\n{numbered}"),
        format!(",Open,High,Low,Close,Volume\n{plain}"),
    ] {
        assert_eq!(recording_of(&text).bars, expected.bars, "{text}");
    }
}

/// Weekends filled with flat bars hid the ends of the weeks: the clock was taken for UTC without a
/// word, and a third of the targets was 0.
#[test]
fn fillers_of_weekends_are_dropped_and_hide_no_clock() {
    let with_weekends = weeks_of_minutes(false, 2, 7);
    let plain = read_texts(&[("EURUSD.csv", &with_weekends)], &ReadOptions::default()).unwrap();
    let filled = weeks_of_minutes(true, 2, 7);
    for on_error in OnError::ALL {
        let options = ReadOptions { on_error, ..ReadOptions::default() };
        let Recording { bars, summary, .. } = read_texts(&[("EURUSD.csv", &filled)], &options).unwrap();
        assert_eq!(summary.files[0].zone, plain.summary.files[0].zone, "{summary}");
        let dropped = summary.dropped(RowError::Filler);
        let fillers = (filled.lines().count() - with_weekends.lines().count()) as u64;
        // The first hour of a run cannot be known for one when it is seen.
        assert_eq!(dropped, fillers - 3 * 12, "{summary}");
        assert_eq!(bars.len() as u64, plain.bars.len() as u64 + 3 * 12);
        assert!(
            summary.warnings.iter().any(|text| text.contains(&format!("{dropped} flat bars without volume"))),
            "{summary}"
        );
        assert_eq!(summary.gaps.weekends(), 3);
        // A file a day, the days of a weekend among them.
        let mut days: BTreeMap<&str, String> = BTreeMap::new();
        filled.lines().for_each(|line| days.entry(&line[..10]).or_default().extend([line, "\n"]));
        let names: Vec<String> = days.keys().map(|day| format!("EURUSD_{day}.csv")).collect();
        let files: Vec<(&str, &str)> =
            names.iter().map(String::as_str).zip(days.values().map(String::as_str)).collect();
        let by_day = read_texts(&files, &options).unwrap();
        let found = (by_day.summary.dropped(RowError::Filler), by_day.bars.len());
        assert_eq!(found, (dropped, bars.len()), "{}", by_day.summary);
    }
    // Without any volume half a day has to pass.
    let summary =
        read_texts(&[("EURUSD.csv", &weeks_of_minutes(true, 2, 0))], &ReadOptions::default()).unwrap().summary;
    assert_eq!(summary.dropped(RowError::Filler), 3 * 36 * 12, "{summary}");
    // Trade at one price for a while is none.
    let quiet: String = (0..11).map(|k| format!("2024.01.01,00:{:02},1,1,1,1,0\n", 5 * k)).collect();
    let busy = "2024.01.01,00:55,1,2,1,2,3\n2024.01.01,01:00,1,2,1,2,3\n";
    let summary = read_texts(&[("EURUSD.csv", &format!("{quiet}{busy}"))], &ReadOptions::default()).unwrap().summary;
    assert_eq!((summary.dropped(RowError::Filler), summary.bars.all), (0, 13));
}

/// MetaTrader's files without a weekend were taken for UTC without a word.
#[test]
fn a_clock_without_evidence_is_warned_of() {
    let metatrader: String = (0..30).map(|k| format!("2024.01.02,00:{k:02},1,2,1,2,3\n")).collect();
    let iso: String = (0..30).map(|k| format!("2024-01-02 00:{k:02},1,2,1,2,3\n")).collect();
    let offset: String = (0..30).map(|k| format!("2024-01-02 00:{k:02}Z,1,2,1,2,3\n")).collect();
    let shares: String = (0..40)
        .flat_map(|day| (0..7).map(move |hour| format!("{} {:02}:30,1,2,1,2,3\n", date(weekday(day)), 9 + hour)))
        .collect();
    for (text, is_warned) in [(&metatrader, true), (&iso, true), (&shares, true), (&offset, false)] {
        let warnings = recording_of(text).summary.warnings;
        let found = warnings.iter().any(|text| text.contains("clock") && text.contains("state"));
        assert_eq!(found, is_warned, "{warnings:?}\n{text}");
        let options = ReadOptions { zone: Some("new-york+7".parse().unwrap()), ..ReadOptions::default() };
        let stated = read_texts(&[("AAPL.csv", text)], &options).unwrap().summary.warnings;
        assert!(stated.iter().all(|text| !text.contains("evidence")), "{stated:?}");
    }
}

/// The adjusted close of rows of 8 or 9 columns without names became the volume.
#[test]
fn a_column_without_a_name_that_moves_as_the_close_is_no_volume() {
    let rows = |after_close: &dyn Fn(usize, f64) -> String| {
        days(40, |k, Prices { open, high, low, close }| {
            format!("{open:.3},{high:.3},{low:.3},{close:.3},{}", after_close(k, close))
        })
    };
    let volume = |k: usize| 1_200_345 + 977 * (k % 7);
    let adjusted = |close: f64| format!("{:.4}", 0.97 * close);
    for extra in [",0.0", ",0.0,1.0", ",0.0,0.0,x"] {
        let text = rows(&|k, close| format!("{},{}{extra}", adjusted(close), volume(k)));
        let bars = recording_of(&text).bars;
        assert!((bars.close[0] / walk(40)[0].close - 0.97).abs() < 1e-4, "{extra}");
        assert_eq!(bars.volume[1], volume(1) as f64, "{extra}");
        let text = rows(&|k, _| format!("{},0{extra}", volume(k)));
        let error = error_of(&text, &ReadOptions::default());
        assert!(error.contains("field 6") && error.contains("date,open,high,low,close,volume,openint"), "{error}");
    }
    // With a time of day, and in the last of six columns, the sixth is read as the volume.
    let timed = rows(&|k, close| format!("{},{}", adjusted(close), volume(k))).replace(",", " 00:00:00,");
    let timed: String = timed
        .lines()
        .map(|line| {
            format!(
                "{}\n",
                line.replacen(" 00:00:00,", "\u{1}", 1).replace(" 00:00:00,", ",").replace('\u{1}', " 00:00:00,")
            )
        })
        .collect();
    for text in [timed, rows(&|_, close| adjusted(close))] {
        let error = error_of(&text, &ReadOptions::default());
        assert!(error.contains("field 6 moves as the close does") && error.contains("adj close"), "{error}");
    }
}

/// Binance's files went from thousandths to millionths of a second.
#[test]
fn each_epoch_time_has_its_own_unit() {
    let start = MONDAY_NS / 1_000_000;
    let row = |k: i64, digits: &str| format!("{}{digits},1,2,1,2,3\n", start + 60_000 * k);
    let text: String = (0..10).map(|k| row(k, if k < 5 { "" } else { "000" })).collect();
    let Recording { bars, summary, .. } = recording_of(&text);
    assert_eq!((bars.len(), bars.timeframe, summary.files[0].format), (10, Timeframe::M1, FormatName::Epoch));
    assert_eq!(bars.open_time[9], MONDAY_NS + 9 * MINUTE_NS);
}

/// A volume that is nothing throughout made every bar unusable, under every treatment.
#[test]
fn a_volume_that_is_nothing_throughout_is_none() {
    for nothing in ["-1", "", "NaN", "-", "null", "N/A", "-1.0"] {
        let rows = days(12, |_, Prices { open, high, low, close }| format!("{open},{high},{low},{close},{nothing}"));
        for header in ["date,open,high,low,close,volume\n", ""] {
            let Recording { bars, summary, .. } = recording_of(&format!("{header}{rows}"));
            assert_eq!((bars.len(), bars.volume[3]), (12, 0.0), "{nothing}");
            assert!(
                summary.warnings.iter().any(|text| text.contains("no volume")),
                "{nothing}: {:?}",
                summary.warnings
            );
        }
    }
    // In single rows it is a defect.
    let rows = days(12, |k, Prices { open, high, low, close }| {
        format!("{open},{high},{low},{close},{}", if k == 5 { "-1" } else { "7" })
    });
    assert!(error_of(&rows, &ReadOptions::default()).contains("line 6: inconsistent prices: expected a volume"));
    let skipped =
        read_texts(&[("AAPL.csv", &rows)], &ReadOptions { on_error: OnError::Skip, ..ReadOptions::default() });
    assert_eq!(skipped.unwrap().bars.len(), 11);
}

#[test]
fn volumes_are_read_as_they_are_written_and_named() {
    for (text, expected) in [
        ("14.80M", 14.8e6),
        ("3.5K", 3500.0),
        ("1.2B", 1.2e9),
        ("\"1,234.5K\"", 1_234_500.0),
        ("7e3", 7000.0),
        ("2k", 2000.0),
    ] {
        let rows = days(3, |_, Prices { open, high, low, close }| format!("{open},{high},{low},{close},{text}"));
        for header in ["Volume BTC", "Volume_(BTC)", "Vol.", "Volume (USD)", "Volume USDT", "Base Volume"] {
            let bars = recording_of(&format!("Date,Open,High,Low,Close,{header}\n{rows}")).bars;
            assert!((bars.volume[0] - expected).abs() < 1e-6, "{text} {header} {}", bars.volume[0]);
        }
    }
    // Of several, the coin's own comes first, as it does in these files.
    let rows = days(3, |_, Prices { open, high, low, close }| format!("{open},{high},{low},{close},2,99"));
    assert_eq!(recording_of(&format!("Date,Open,High,Low,Close,Volume BTC,Volume USD\n{rows}")).bars.volume[0], 2.0);
    // A price has no such ending.
    assert!(error_of("2024-01-01,1K,1K,1K,1K,5\n", &ReadOptions::default()).contains("no bars recognised"));
    let investing = "\"Date\",\"Price\",\"Open\",\"High\",\"Low\",\"Vol.\",\"Change %\"\n\
                     \"01/16/2024\",\"2.0\",\"1.5\",\"3.0\",\"1.0\",\"14.80M\",\"0.5%\"\n\
                     \"01/17/2024\",\"2.5\",\"2.0\",\"3.0\",\"1.0\",\"1.80M\",\"0.5%\"\n";
    let bars = recording_of(investing).bars;
    assert_eq!((bars.close[0], bars.open[0], bars.volume[0]), (2.0, 1.5, 14.8e6));
}

/// One bar of 1,440 that was 15 s late refused the file, without a line.
#[test]
fn a_bar_off_the_grid_is_named_and_repaired_or_dropped() {
    let rows = |second: &str, at: usize| -> String {
        (0..240)
            .map(|k| {
                let second = if k == at { second } else { "00" };
                format!("2024-01-01 {:02}:{:02}:{second},1,2,1,2,3\n", k / 60, k % 60)
            })
            .collect()
    };
    for (second, repaired) in [("15", 240), ("12", 240), ("31", 239)] {
        for at in [59, 100, 239] {
            let text = rows(second, at);
            let error = error_of(&text, &ReadOptions::default());
            assert!(
                error.contains(&format!("AAPL.csv: line {}: ", at + 1)) && error.contains(&format!(":{second}")),
                "{error}"
            );
            let skipped =
                read_texts(&[("AAPL.csv", &text)], &ReadOptions { on_error: OnError::Skip, ..ReadOptions::default() });
            let summary = skipped.unwrap().summary;
            assert_eq!((summary.bars.all, summary.dropped(RowError::OffGrid)), (239, 1));
            let Recording { bars, summary, .. } = read_texts(&[("AAPL.csv", &text)], &repair()).unwrap();
            assert_eq!(bars.len(), repaired, "{second} {at}");
            assert_eq!(summary.fixed(RowFix::OnGrid), repaired as u64 - 239);
            assert!(bars.open_time.iter().all(|ns| ns % MINUTE_NS == 0));
        }
    }
    // A stretch of rows on another grid is no slip of one row.
    let shifted: String = (0..400)
        .map(|k| {
            let minute = 60 * k + if (200..210).contains(&k) { 30 } else { 0 };
            format!("{} {:02}:{:02},1,2,1,2,3\n", date(minute / 1440), minute / 60 % 24, minute % 60)
        })
        .collect();
    assert_eq!(recording_of(&shifted).bars.len(), 400);
}

/// Daily bars at an exchange's midnight had keys of the day before.
#[test]
fn a_daily_bar_is_of_its_session() {
    let rows = |stamp: &dyn Fn(usize) -> String| -> String {
        let header = "date,open,high,low,close,volume\n".to_owned();
        header + &(0..60).map(|k| format!("{},1,2,1,2,3\n", stamp(weekday(k)))).collect::<String>()
    };
    let plain = recording_of(&rows(&date)).bars;
    // Midnight in Berlin, with a change of clocks in between, in Tokyo, in New York; and the open
    // in New York.
    for (label, text) in [
        ("Berlin", rows(&|day| format!("{} {}:00:00+00:00", date_before(day), if day < 60 { 23 } else { 22 }))),
        ("Tokyo", rows(&|day| format!("{} 15:00:00+00:00", date_before(day)))),
        ("New York", rows(&|day| format!("{} 00:00:00-0{}:00", date(day), if day < 60 { 5 } else { 4 }))),
        ("open", rows(&|day| format!("{} {}:30:00+00:00", date(day), if day < 60 { 14 } else { 13 }))),
    ] {
        assert_eq!(recording_of(&text).bars, plain, "{label}");
    }
    let zone = ReadOptions { zone: Some("America/New_York".parse().unwrap()), ..ReadOptions::default() };
    assert_eq!(read_texts(&[("AAPL.csv", &rows(&date))], &zone).unwrap().bars, plain);
    // Bars of every day of the week are what their times say.
    let coin: String = (0..60).map(|day| format!("{} 23:00:00+00:00,1,2,1,2,3\n", date(day))).collect();
    assert_eq!(recording_of(&coin).bars.open_time[0], MONDAY_NS + 23 * 60 * MINUTE_NS);
    // A universe of both stampings has common days.
    let [berlin, plain] = [rows(&|day| format!("{} 23:00:00+00:00", date_before(day))), rows(&date)];
    let files = [("SAP.csv", berlin.as_bytes()), ("AAPL.csv", plain.as_bytes())];
    let universe = with_files(&files, |paths| read_all(paths, &ReadOptions::default())).unwrap();
    let times: Vec<_> = universe.recordings.iter().map(|one| one.bars.open_time.clone()).collect();
    assert_eq!(times[0], times[1]);
    assert_eq!(times[0][0] % DAY_NS, 0);
}

/// Midnights of London that were appended to dates opened at 23:00 of the day before, and those of
/// Tokyo were refused.
#[test]
fn dates_and_midnights_of_an_exchange_are_of_one_series() {
    let rows = |places: Range<usize>, stamp: &dyn Fn(usize) -> String| -> String {
        let header = "date,open,high,low,close,volume\n".to_owned();
        header + &places.map(|k| format!("{},1,2,1,2,3\n", stamp(weekday(k)))).collect::<String>()
    };
    // London's summer begins on 2025-03-30, 454 days after the first.
    let is_winter = |day: usize| day < 454;
    let london = |day: usize| match is_winter(day) {
        true => format!("{} 00:00:00+00:00", date(day)),
        false => format!("{} 23:00:00+00:00", date_before(day)),
    };
    let tokyo = |day: usize| format!("{} 15:00:00+00:00", date_before(day));
    let kolkata = |day: usize| format!("{} 18:30:00+00:00", date_before(day));
    let new_york = |day: usize| format!("{} 0{}:00:00+00:00", date(day), if is_winter(day) { 5 } else { 4 });
    let options = ReadOptions {
        symbol: Some("VOD".to_owned()),
        base: Some(Timeframe::D1),
        overlaps: Overlaps::EqualOnce,
        ..ReadOptions::default()
    };
    let stamps: [&dyn Fn(usize) -> String; 4] = [&london, &tokyo, &kolkata, &new_york];
    for stamp in stamps {
        // Months in two files, and nights that bring a day and the one before.
        for parts in [&[250..325, 325..400][..], &[323..325, 324..326, 325..327, 326..328]] {
            let (begin, end) = (parts[0].start, parts.last().unwrap().end);
            let mut texts = vec![rows(0..begin + 1, &date)];
            texts.extend(parts.iter().map(|places| rows(places.clone(), stamp)));
            let names = ["a.csv", "b.csv", "c.csv", "d.csv", "e.csv"];
            let files: Vec<_> = names.into_iter().zip(texts.iter().map(String::as_str)).collect();
            let expected = read_texts(&[("a.csv", &rows(0..end, &date))], &options).unwrap().bars;
            assert_eq!(read_texts(&files, &options).unwrap().bars, expected, "{}", stamp(begin));
        }
    }
}

/// Days of a share, whose times are as `stamp` makes them of their place and day.
fn share(stamp: &dyn Fn(usize, usize) -> String) -> String {
    let row = |k: usize| format!("{},1,2,1,2,3\n", stamp(k, weekday(k)));
    format!("date,open,high,low,close,volume\n{}", (0..60).map(row).collect::<String>())
}

/// One row at 15:30 moved all days to 05:00 UTC.
#[test]
fn a_day_that_carries_a_time_of_day_is_that_of_its_date() {
    let dates = share(&|_, day| date(day));
    let plain = recording_of(&dates).bars;
    let zone = ReadOptions { zone: Some("America/New_York".parse().unwrap()), ..ReadOptions::default() };
    for (place, time) in [(59, "15:30:00"), (20, "09:30:00")] {
        let time_at = |k: usize| if k == place { time } else { "00:00:00" };
        let offset = |day: usize| if day < 60 { "-05:00" } else { "-04:00" };
        for (label, text) in [
            ("dates", share(&|k, day| if k == place { format!("{} {time}", date(day)) } else { date(day) })),
            ("a clock", share(&|k, day| format!("{} {}", date(day), time_at(k)))),
            ("offsets", share(&|k, day| format!("{} {}{}", date(day), time_at(k), offset(day)))),
        ] {
            let recording = read_texts(&[("AAPL.csv", &text)], &zone).unwrap();
            assert_eq!(recording.bars, plain, "{label} {time}");
            let (begin, end) =
                (format!("AAPL.csv: line {} is at 2024-", place + 2), format!("the row of {}", date(weekday(place))));
            let is_told = |warning: &String| warning.contains(&begin) && warning.ends_with(&end);
            assert!(recording.summary.warnings.iter().any(is_told), "{:?}", recording.summary.warnings);
        }
    }
    // A file of one row follows the clock of the others.
    let live = "date,open,high,low,close,volume\n2024-03-25 15:30:00,1,2,1,2,3\n";
    let stated = ReadOptions { symbol: Some("AAPL".to_owned()), base: Some(Timeframe::D1), ..zone };
    let opens = read_texts(&[("a.csv", &dates), ("b.csv", live)], &stated).unwrap().bars.open_time;
    assert_eq!((opens.len(), opens[60]), (61, MONDAY_NS + 84 * DAY_NS));
}

/// Rows at 16:00 in New York beside dates were a day late, unless there were five of them.
#[test]
fn a_row_that_states_its_offset_is_of_its_date_beside_dates() {
    let plain = recording_of(&share(&|_, day| date(day))).bars;
    for (count, time) in [(1, "16:00:00-04:00"), (4, "16:00:00-04:00"), (5, "16:00:00-04:00"), (1, "19:47:00+00:00")] {
        let stamp = |k: usize, day: usize| match k < 60 - count {
            true => date(day),
            false => format!("{} {time}", date(day)),
        };
        let Recording { bars, summary, .. } = recording_of(&share(&stamp));
        assert_eq!(bars, plain, "{count} {time}");
        let is_told =
            |warning: &String| warning.contains("nearly all other bars, given or recorded before, are midnights");
        let told: Vec<&String> = summary.warnings.iter().filter(|&warning| is_told(warning)).collect();
        let [told] = told[..] else { panic!("{:?}", summary.warnings) };
        let more = if count == 1 { "" } else { "more rows with a time of day became days in the same way" };
        assert!(told.ends_with(more) && (count > 1) == told.contains(" more rows "), "{told}");
    }
}

/// Three closes at 19:00 in New York, which is midnight in UTC, were a day late beside dates, and
/// so were closes at 16:00 in London in winter. Midnights of Nepal and Adelaide were a day early.
#[test]
fn closes_are_of_their_dates_beside_files_of_dates() {
    let rows = |places: Range<usize>, time: &str| -> String {
        let row = |k: usize| format!("{}{time},1,2,1,2,3\n", date(weekday(k)));
        format!("date,open,high,low,close,volume\n{}", places.map(row).collect::<String>())
    };
    let stated = ReadOptions { symbol: Some("AAPL".to_owned()), base: Some(Timeframe::D1), ..ReadOptions::default() };
    let dates = rows(0..60, "");
    for count in [1, 3, 5, 70] {
        let opens = |time: &str| {
            let later = rows(60..60 + count, time);
            read_texts(&[("a.csv", dates.as_str()), ("b.csv", later.as_str())], &stated).unwrap().bars.open_time
        };
        let expected = opens("");
        let closes = [" 19:00:00-05:00", " 16:00:00+00:00[local]", " 23:00:00Z[Europe/London]"];
        let midnights = [" 00:00:00+05:45", " 00:00:00+09:30"];
        for time in closes.into_iter().chain(midnights) {
            assert_eq!(opens(time), expected, "{count} {time}");
        }
    }
}

/// Closes in London, +01:00 in summer and +00:00 in winter of one file, were a day late in winter
/// beside dates.
#[test]
fn an_offset_of_0_among_those_of_london_is_of_its_clock() {
    let stated = ReadOptions { symbol: Some("AAPL".to_owned()), base: Some(Timeframe::D1), ..ReadOptions::default() };
    // The file ends in the first week of winter.
    let text = |places: Range<usize>, time: &dyn Fn(bool) -> String| -> String {
        let row = |k: usize| {
            let day = date(weekday(k));
            format!("{day}{},1,2,1,2,3\n", time(day.as_str() < "2024-10-27"))
        };
        format!("date,open,high,low,close,volume\n{}", places.map(row).collect::<String>())
    };
    let dates = text(0..190, &|_| String::new());
    let opens = |time: &dyn Fn(bool) -> String| {
        let later = text(190..220, time);
        read_texts(&[("a.csv", dates.as_str()), ("b.csv", later.as_str())], &stated).unwrap().bars.open_time
    };
    let expected = opens(&|_| String::new());
    for time in ["16:00:00", "21:00:00", "23:00:00"] {
        let found = opens(&|is_summer| format!(" {time}{}", if is_summer { "+01:00" } else { "+00:00" }));
        assert_eq!(found, expected, "{time}");
    }
}

#[test]
fn two_rows_of_one_day_are_repeated_bars() {
    let text = share(&|_, day| date(day)) + "2024-03-22 15:30:00,1,2,1,1.5,3\n";
    let read_by = |repeats| read_texts(&[("AAPL.csv", &text)], &ReadOptions { repeats, ..ReadOptions::default() });
    let error = read_by(Repeats::Refuse).unwrap_err().to_string();
    assert!(error.contains("line 62: duplicate timestamp"), "{error}");
    assert_eq!(read_by(Repeats::Last).unwrap().bars.close[59], 1.5);
}

#[test]
fn days_that_begin_at_an_hour_and_weeks_keep_a_time_of_day() {
    let coin = |day: usize| format!("{} {}:00:00+00:00,1,2,1,2,3\n", date(day), if day == 59 { 10 } else { 22 });
    let opens = recording_of(&(0..60).map(coin).collect::<String>()).bars.open_time;
    assert_eq!((opens[58] % DAY_NS, opens[59] % DAY_NS), (22 * 60 * MINUTE_NS, 10 * 60 * MINUTE_NS));
    let week = |k: usize| format!("{} {},1,2,1,2,3\n", date(7 * k), if k == 8 { "15:30" } else { "00:00" });
    let weeks: String = (0..9).map(week).collect();
    let bars = read_texts(&[("AAPL.csv", &weeks)], &beside(Timeframe::D1)).unwrap().bars;
    assert_eq!((bars.timeframe, bars.open_time[8] % DAY_NS), (Timeframe::W1, (15 * 60 + 30) * MINUTE_NS));
}

/// Options for bars beside shorter ones.
fn beside(shortest: Timeframe) -> ReadOptions {
    ReadOptions { beside: Some(shortest), ..ReadOptions::default() }
}

/// Days that begin after midnight UTC ended hours before they had.
#[test]
fn a_day_beside_shorter_bars_opens_no_earlier_than_its_time() {
    let new_york = share(&|_, day| format!("{} 00:00:00-05:00", date(day)));
    let tokyo = share(&|_, day| format!("{} 15:00:00+00:00", date_before(day)));
    let dates = share(&|_, day| date(day));
    for (text, zone, hours) in [
        (&new_york, None, 5),
        (&tokyo, None, 0),
        (&dates, None, 0),
        (&dates, Some("America/New_York"), 5),
        (&dates, Some("Asia/Tokyo"), 0),
    ] {
        for (beside, hours) in [(None, 0), (Some(Timeframe::D1), 0), (Some(Timeframe::H1), hours)] {
            let zone = zone.map(|zone| zone.parse().unwrap());
            let options = ReadOptions { beside, zone, ..ReadOptions::default() };
            let bars = read_texts(&[("AAPL.csv", text)], &options).unwrap().bars;
            assert_eq!(bars.open_time[0], MONDAY_NS + hours * 60 * MINUTE_NS, "{beside:?} {text}");
        }
    }
}

/// Weeks of New York were warned of at changes of its clock, and those without a zone closed hours
/// before them.
#[test]
fn a_weekly_bar_is_of_its_week() {
    let rows = |stamp: &dyn Fn(usize) -> String| -> String {
        let header = "date,open,high,low,close,volume\n".to_owned();
        header + &(0..50).map(|k| format!("{},1,2,1,2,3\n", stamp(7 * k))).collect::<String>()
    };
    let new_york = rows(&|day| format!("{} 00:00:00-0{}:00", date(day), if (70..308).contains(&day) { 4 } else { 5 }));
    let berlin =
        rows(&|day| format!("{} {}:00:00+00:00", date_before(day), if (91..301).contains(&day) { 22 } else { 23 }));
    let opens: Vec<i64> = (0..50).map(|week| MONDAY_NS + 7 * week * DAY_NS).collect();
    for text in [&rows(&date), &new_york, &berlin] {
        let Recording { bars, summary, .. } = read_texts(&[("AAPL.csv", text)], &ReadOptions::default()).unwrap();
        assert_eq!((bars.timeframe, &bars.open_time), (Timeframe::W1, &opens), "{text}");
        assert!(summary.warnings.iter().all(|warning| !warning.contains("before the W1")), "{:?}", summary.warnings);
    }
    // Beside shorter bars it opens no earlier than its time.
    let recording = read_texts(&[("AAPL.csv", &new_york)], &beside(Timeframe::D1)).unwrap();
    assert_eq!(recording.bars.open_time[0], MONDAY_NS + 5 * 60 * MINUTE_NS);
    assert!(recording.summary.warnings.iter().all(|warning| !warning.contains("before the W1")));
    let own_weeks = ReadOptions { own_bars: vec![Timeframe::W1], ..ReadOptions::default() };
    let days = share(&|_, day| date(day));
    let own = read_texts(&[("AAPL_D1.csv", &days), ("AAPL_W1.csv", &new_york)], &own_weeks).unwrap().summary.own;
    assert_eq!(own[0].summary.first_open_time, MONDAY_NS + 5 * 60 * MINUTE_NS);
}

/// A week of which a file had a row on Wednesday closed a week after that.
#[test]
fn the_row_of_a_week_that_has_not_ended_is_that_of_its_monday() {
    let rows = |weeks: Range<usize>, last: Option<usize>| -> String {
        let row = |day: usize| format!("{},1,2,1,2,3\n", date(day));
        let rows: String = weeks.map(|week| row(7 * week)).chain(last.map(row)).collect();
        format!("date,open,high,low,close,volume\n{rows}")
    };
    let options = ReadOptions {
        symbol: Some("AAPL".to_owned()),
        base: Some(Timeframe::W1),
        overlaps: Overlaps::EqualOnce,
        ..ReadOptions::default()
    };
    let read_weeks = |files: &[(&str, &str)]| read_texts(files, &options).unwrap();
    let live = rows(0..20, Some(142));
    let Recording { bars, summary, .. } = read_weeks(&[("a.csv", &live)]);
    assert_eq!(bars, read_weeks(&[("a.csv", &rows(0..21, None))]).bars);
    let told = "a.csv: line 22 is of 2024-05-22, and all other rows are of Mondays: it is the row of the week from 2024-05-20 on";
    assert!(summary.warnings.iter().any(|warning| warning.ends_with(told)), "{:?}", summary.warnings);
    let day = rows(0..0, Some(7 * 23 + 3));
    let expected = read_weeks(&[("a.csv", &rows(0..24, None))]).bars;
    assert_eq!(read_weeks(&[("a.csv", &rows(0..23, None)), ("b.csv", &day)]).bars, expected);
    // Later files have that week, and there were two of it.
    for (later, weeks) in [(rows(20..21, None), 21), (rows(0..23, Some(7 * 23 + 2)), 24), (rows(21..24, None), 24)] {
        let joined = read_weeks(&[("a.csv", &live), ("b.csv", &later)]);
        assert_eq!(joined.bars, read_weeks(&[("a.csv", &rows(0..weeks, None))]).bars);
        assert!(joined.summary.warnings.iter().any(|warning| warning.ends_with(told)));
    }
    // The file has a row of its Monday, too.
    let twice = read_weeks(&[("a.csv", &rows(0..21, Some(142)))]);
    let opens: Vec<i64> = twice.bars.open_time.iter().rev().take(2).map(|time| (time - MONDAY_NS) / DAY_NS).collect();
    assert_eq!(opens, [142, 140]);
    assert!(twice.summary.warnings.iter().all(|warning| !warning.contains("rows are of Mondays")));
}

/// Days at midnights of an exchange were refused beside hours, as files that overlap, once its
/// clock was changed.
#[test]
fn days_of_an_exchange_stand_beside_hours() {
    let row = |day: usize, hour: usize| format!("{} {hour}:00:00+00:00,1,2,1,2,3\n", date(day));
    let hours: String = (0..60).flat_map(|k| (14..20).map(move |hour| row(weekday(k), hour))).collect();
    let hours = format!("date,open,high,low,close,volume\n{hours}");
    let new_york = share(&|_, day| format!("{} 0{}:00:00+00:00", date(day), if day < 70 { 5 } else { 4 }));
    let london = share(&|_, day| match day < 70 {
        true => format!("{} 00:00:00+00:00", date(day)),
        false => format!("{} 23:00:00+00:00", date_before(day)),
    });
    for days in [&new_york, &london] {
        let read_with = |own_bars: Vec<Timeframe>| {
            let options = ReadOptions { own_bars, ..ReadOptions::default() };
            read_texts(&[("AAPL_H1.csv", &hours), ("AAPL_D1.csv", days)], &options).unwrap().summary
        };
        let own = read_with(vec![Timeframe::D1]).own;
        let found = &own[0].summary;
        assert_eq!((own.len(), found.bars.all, found.first_open_time), (1, 60, MONDAY_NS));
        let compared = read_with(Vec::new()).compared;
        assert_eq!((compared.len(), compared[0].timeframe), (1, Timeframe::D1));
    }
}

/// Own bars whose header names a clock were read by that of the shorter bars.
#[test]
fn a_header_names_the_clock_of_own_bars() {
    let rows = |time: &str, first: usize, step: usize| -> String {
        let row = |k: usize| {
            let hour = first + k * step;
            format!("{} {:02}:00,1,2,1,2,3\n", date(hour / 24), hour % 24)
        };
        format!("{time},open,high,low,close,volume\n{}", (0..12).map(row).collect::<String>())
    };
    let (hours, four_hours) = (rows("time", 0, 1), rows("Time (EET)", 2, 4));
    for (stated, opens, why) in [(None, 0, "the header names it"), (Some("UTC"), 2 * 60, "as stated")] {
        let zone = stated.map(|zone| zone.parse().unwrap());
        let options = ReadOptions { own_bars: vec![Timeframe::H4], zone, ..ReadOptions::default() };
        let files = [("EURUSD_H1.csv", &*hours), ("EURUSD_H4.csv", &*four_hours)];
        let own = read_texts(&files, &options).unwrap().summary.own;
        let found = (own[0].summary.first_open_time - MONDAY_NS, &*own[0].summary.files[0].zone_why);
        assert_eq!(found, (opens * MINUTE_NS, why));
    }
}

#[test]
fn dates_are_read_however_they_are_written() {
    let bars = |header: &str, stamps: [&str; 2]| {
        recording_of(&format!("{header}{},1,2,1,2,3\n{},1,2,1,2,3\n", stamps[0], stamps[1]))
    };
    let minute = MONDAY_NS + MINUTE_NS;
    let five = 5 * 60 * MINUTE_NS;
    let plain = "time,open,high,low,close,volume\n";
    for (header, stamps, first) in [
        ("", ["2024/1/1 0:01", "2024/1/1 0:02"], minute),
        ("", ["2024-1-1 00:01", "2024-1-1 00:02"], minute),
        ("", ["2024-01-01  00:01", "2024-01-01  00:02"], minute),
        ("", ["20240101  00:01:00", "20240101  00:02:00"], minute + five),
        ("", ["20240101 00:01:00 US/Eastern", "20240101 00:02:00 US/Eastern"], minute + five),
        (plain, ["2024-01-01 00:01:00 America/New_York", "2024-01-01 00:02:00 America/New_York"], minute + five),
        ("", ["01-Jan-2024 00:01", "01-Jan-2024 00:02"], minute),
        ("", ["1 January 2024 00:01", "1 January 2024 00:02"], minute),
        ("Date,Timestamp,Open,High,Low,Close,Volume\n", ["2024-01-01,00:01:00", "2024-01-01,00:02:00"], minute),
        ("Time (EET),Open,High,Low,Close,Volume\n", ["2024.01.01 02:01:00", "2024.01.01 02:02:00"], minute),
        ("Time (UTC),Open,High,Low,Close,Volume\n", ["2024.01.01 00:01:00", "2024.01.01 00:02:00"], minute),
    ] {
        let recording = bars(header, stamps);
        assert_eq!(recording.bars.open_time, [first, first + MINUTE_NS], "{header}{stamps:?}");
    }
    // The hour that a named zone repeats is told apart as ever.
    let autumn: String = [(0, 0..60), (1, 0..60), (1, 0..60), (2, 0..5)]
        .into_iter()
        .flat_map(|(hour, minutes)| {
            minutes.map(move |minute| format!("20241103 {hour:02}:{minute:02}:00 US/Eastern,1,2,1,2,{hour}\n"))
        })
        .collect();
    assert_eq!(recording_of(&autumn.replace(",1\n", ",3\n").replacen(",3\n", ",4\n", 60)).bars.len(), 185);
    let mixed = "20240101 00:01:00 US/Eastern,1,2,1,2,3\n20240101 00:02:00 US/Central,1,2,1,2,3\n";
    let error = error_of(mixed, &ReadOptions::default());
    assert!(error.contains("line 2: ") && error.contains("US/Eastern"), "{error}");
}

/// "No bars recognised" named neither a row nor a field.
#[test]
fn a_refusal_shows_the_row_and_the_field() {
    for (text, says) in [
        ("2nd of May 2024,1,2,1,2,3\n", "line 1: field 1, `2nd of May 2024`, is no time"),
        ("date,open,high,low,close\nyesterday,1,2,1,2\n", "line 2: field 1, `yesterday`, is no time"),
        ("date,open,high,low,close\n2024-01-01,1,x,1,2\n", "line 2: field 3, `x`, is no number for high"),
        (
            "#,a,b\ndate,open,high,low,close\n2024-01-01 25:00,1,2,1,2\n",
            "line 3: field 1, `2024-01-01 25:00`, is no time",
        ),
    ] {
        let error = error_of(text, &ReadOptions::default());
        assert!(error.contains("no bars recognised") && error.contains(says), "{error}");
    }
    let error = error_of("2024-01-01 00:00,1,2,1,2,3\n2024-01-01 00:01,1,oops,1,2,3\n", &ReadOptions::default());
    assert!(
        error.contains("line 2: unreadable row: expected a number for high in field 3, which is `oops`"),
        "{error}"
    );
}

/// MetaTrader's export of ticks was read as bars, and `repair` "mended" them.
#[test]
fn ticks_are_no_bars() {
    let metatrader: String = (0..40)
        .map(|k| {
            format!(
                "2024.01.02\t00:00:{k:02}.123\t{0}\t{1}\t{0}\t0\t6\n",
                1.1 + f64::from(k) * 1e-5,
                1.1002 + f64::from(k) * 1e-5
            )
        })
        .collect();
    let dukascopy: String = (0..40).map(|k| format!("2024-01-02 00:00:{k:02},1.1002,1.1001,1.2,1.1\n")).collect();
    let quotes: String = (0..40).map(|k| format!("2024.01.02\t00:00:{k:02}.123\t1.1001\t1.1003\t\t\t6\n")).collect();
    let other_words = "Datum\tZeit\tGeld\tBrief\tLetzter\tVolumen\tMarken\n";
    for (header, rows, format) in [
        ("<DATE>\t<TIME>\t<BID>\t<ASK>\t<LAST>\t<VOLUME>\t<FLAGS>\n", &metatrader, "metatrader"),
        ("", &metatrader, "metatrader"),
        (other_words, &metatrader, "metatrader"),
        ("", &quotes, "metatrader"),
        (other_words, &quotes, "metatrader"),
        ("Gmt time,Ask,Bid,AskVolume,BidVolume\n", &dukascopy, "dukascopy"),
    ] {
        for on_error in OnError::ALL {
            let error = error_of(&format!("{header}{rows}"), &ReadOptions { on_error, ..ReadOptions::default() });
            assert!(error.contains(&format!("these are ticks ({format}), not bars")), "{error}");
        }
    }
}

/// Bars whose columns other words name are read by position.
#[test]
fn unknown_words_leave_the_columns_to_their_positions() {
    let text = "Data,Otwarcie,Najwyzszy,Najnizszy,Zamkniecie,Wolumen\n2024-01-02,1,2,1,2,3\n2024-01-03,1,2,1,2,3\n";
    assert_eq!(recording_of(text).bars.volume, [3.0; 2]);
    let texts = [("a.csv", text.as_bytes())];
    assert!(with_files(&texts, |paths| read(paths, &ReadOptions::default())).is_ok());
}
