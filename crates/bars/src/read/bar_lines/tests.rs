use std::fs;

use super::*;
use crate::bars::Bars;
use crate::parse::options::StampedAt;
use crate::read::read;
use crate::time::timestamp::{HOUR_NS, MINUTE_NS};

/// The bars and the complaints of lines; the error of the first that stops them.
fn streamed(text: &str, options: &ReadOptions, known_until: Option<i64>) -> Result<(Vec<Bar>, Vec<String>)> {
    let mut lines = BarLines::new(Path::new("live"), options, Timeframe::M1, known_until);
    let mut bars = Vec::new();
    for line in text.split_inclusive('\n') {
        bars.extend(lines.push(line.as_bytes())?);
    }
    lines.finish()?;
    Ok((bars, lines.take_complaints()))
}

fn in_zone(zone: &str) -> ReadOptions {
    ReadOptions { zone: Some(zone.parse().unwrap()), base: Some(Timeframe::M1), ..ReadOptions::default() }
}

/// Bars that [`read`] makes of the same text as a file.
fn read_whole(text: &str, options: &ReadOptions) -> Vec<Bar> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("X.csv");
    fs::write(&path, text).unwrap();
    let bars = read(&[path], options).unwrap().bars;
    (0..bars.len()).map(|k| bars.bar(k)).collect()
}

#[test]
fn lines_give_the_bars_of_a_file() {
    let header = "\u{feff}note of the vendor\ntime,close,low,high,open,volume\r\n2018-01-02 00:00,1.1,1,1.2,1.05,7\r\n\r\n\
                  time,close,low,high,open,volume\n2018-01-02 00:01,1.1,1,1.2,1.05,\"1,234\"";
    // Two files in one, each with its mark and header.
    let joined = "\u{feff}time,open,high,low,close\n2018-01-02 00:00,1,1,1,1\n\
                  \u{feff}time,open,high,low,close\n2018-01-02 00:01,1,1,1,1\n";
    let metatrader = "2018.06.01,17:00,1.1,1.2,1,1.15,7\n2018.06.01,17:01,1.1,1.2,1,1.15,7\n";
    let adjusted = "2018-01-01 10:00,4,8,2,4,9\n";
    // The hour from 01:00 comes twice in New York on 2018-11-04; a minute is missing in both
    // passes.
    let mut autumn = String::new();
    for (hour, minutes) in [(0, 58..60), (1, 0..31), (1, 32..60), (1, 0..50), (1, 55..60), (2, 0..3)] {
        minutes.for_each(|minute| autumn.push_str(&format!("20181104 {hour:02}{minute:02}00;1;2;1;2;0\n")));
    }
    // Two hours without trade between two bars with volume.
    let filled: String = (0..122)
        .map(|k| {
            let (prices, volume) = if k % 121 == 0 { ("1,2,1,2", 5) } else { ("2,2,2,2", 0) };
            format!("2018-01-01 {:02}:{:02},{prices},{volume}\n", 10 + k / 60, k % 60)
        })
        .collect();
    for (text, options) in [
        (filled.as_str(), in_zone("UTC")),
        (header, in_zone("+02:00")),
        (joined, in_zone("UTC")),
        (metatrader, in_zone("new-york+7")),
        (metatrader, ReadOptions { stamped_at: StampedAt::Close, ..in_zone("UTC") }),
        (adjusted, in_zone("UTC")),
        ("1514764800,1,1,1,1\n1514764860,1,1,1,1\n", in_zone("UTC")),
        (
            "31/01/2018 17:00,1,1,1,1,0\n31/01/2018 17:01,1,1,1,1,0\n",
            ReadOptions { date_order: Some(crate::time::date_order::DateOrder::DayFirst), ..in_zone("UTC") },
        ),
        (&autumn, in_zone("America/New_York")),
        (
            "time,open,high,low,close,stock\n2018-01-31 17:00,1,1,1,1,3\n2018-01-31 17:01,1,1,1,1,3.5\n",
            ReadOptions { columns: vec!["stock".to_owned()], ..in_zone("UTC") },
        ),
        (
            "31-Jan-2018 17:00,1,1,1,1,0\n31-Jan-2018 17:01,1,1,1,1,0\n",
            ReadOptions { base: Some(Timeframe::M1), ..in_zone("UTC") },
        ),
        (
            "20180131 17:00:00 US/Eastern,1,1,1,1,0\n20180131 17:01:00 US/Eastern,1,1,1,1,0\n",
            ReadOptions { base: Some(Timeframe::M1), ..ReadOptions::default() },
        ),
        (
            "Time (EET),open,high,low,close\n2018.01.31 17:00,1,1,1,1\n2018.01.31 17:01,1,1,1,1\n",
            ReadOptions { base: Some(Timeframe::M1), ..ReadOptions::default() },
        ),
    ] {
        let (bars, complaints) = streamed(text, &options, None).unwrap();
        let expected = read_whole(text, &options);
        assert!(expected.len() > usize::from(text != adjusted) && complaints.is_empty(), "{text}");
        assert_eq!(bars, expected, "{text}");
        // Wherever it goes on from, what follows is the same.
        for known in 0..expected.len() {
            let (rest, _) = streamed(text, &options, Some(expected[known].open_time)).unwrap();
            assert!(rest == expected[known + 1..], "{text}");
        }
    }
    // A stream that begins after a bar of the second pass goes on in it.
    let expected = read_whole(&autumn, &in_zone("America/New_York"));
    let known = expected.len() - 10;
    let rest: String = autumn.split_inclusive('\n').skip(known + 1).collect();
    let (bars, _) = streamed(&rest, &in_zone("America/New_York"), Some(expected[known].open_time)).unwrap();
    assert_eq!(bars, expected[known + 1..]);
}

const GOOD: &str = "2018-01-02 00:05,1,2,1,2,0\n";

#[test]
fn a_row_that_cannot_be_used_stops_with_its_line_or_is_dropped_with_a_complaint() {
    for (line, kind) in [
        ("what is this", "unreadable row: expected 5 fields or more, and there are 1"),
        ("what,is,this,or,that", "unreadable row: expected a timestamp of format iso in field 1"),
        ("2018-01-02 00:06,1,2,3,2,0", "inconsistent prices: expected a low at or below open and close"),
        (
            "2018-01-02 00:05,1,2,1,1,0",
            "duplicate timestamp: expected one row for the bar that opens at 2018-01-02T00:05:00Z",
        ),
        ("2018-01-02 00:04,1,2,1,2,0", "backward timestamp: expected a bar that opens after 2018-01-02T00:05:00Z"),
    ] {
        let text = format!("{GOOD}{line}\n2018-01-02 00:07,1,2,1,2,0\n");
        let error = streamed(&text, &in_zone("UTC"), None).unwrap_err().to_string();
        assert!(error.starts_with(&format!("live: line 2: {kind}")) && error.contains(line), "{error}");
        let (bars, complaints) =
            streamed(&text, &ReadOptions { on_error: OnError::Skip, ..in_zone("UTC") }, None).unwrap();
        assert_eq!((bars.len(), complaints.len()), (2, 1), "{line}");
        assert!(complaints[0].starts_with(&format!("live: line 2: {kind}")) && complaints[0].ends_with("dropped"));
    }
    let spring = "20180311 015900;1;2;1;2;0\n20180311 020000;1;2;1;2;0\n";
    let error = streamed(spring, &in_zone("America/New_York"), None).unwrap_err().to_string();
    assert!(error.contains("line 2: time that does not exist"), "{error}");
}

#[test]
fn a_daily_bar_is_of_its_session() {
    let known = 17_532 * DAY_NS; // Monday 2018-01-01
    for (stamp, days) in [
        ("2018-01-02", 1),
        ("2018-01-01 23:00:00+00:00", 1),
        ("2018-01-02 00:00:00-05:00", 1),
        ("2018-01-02 14:30:00+00:00", 1),
        ("2018-01-01", 0),
    ] {
        for stamped_at in [StampedAt::Open, StampedAt::Close] {
            let options = ReadOptions { stamped_at, ..in_zone("America/New_York") };
            let mut lines = BarLines::new(Path::new("live"), &options, Timeframe::D1, Some(known));
            let bars = lines.push(format!("{stamp},1,2,1,2").as_bytes()).unwrap();
            let opens: Vec<i64> = bars.iter().map(|bar| bar.open_time).collect();
            let expected: &[i64] = if days == 0 { &[] } else { &[known + DAY_NS] };
            assert_eq!(opens, expected, "{stamp}");
        }
    }
}

/// The row of a day that had not ended was dated a day late.
#[test]
fn a_day_that_carries_a_time_of_day_is_that_of_its_date() {
    let known = 17_532 * DAY_NS; // Monday 2018-01-01
    let options = in_zone("America/New_York");
    let mut lines = BarLines::new(Path::new("live"), &options, Timeframe::D1, Some(known));
    let stamps = ["2018-01-02", "2018-01-03", "2018-01-04", "2018-01-05 15:30:00"];
    let bars: Vec<Bar> =
        stamps.iter().flat_map(|stamp| lines.push(format!("{stamp},1,2,1,2").as_bytes()).unwrap()).collect();
    assert_eq!(bars.iter().map(|bar| (bar.open_time - known) / DAY_NS).collect::<Vec<_>>(), [1, 2, 3, 4]);
    let told = "live: line 4 is at 2018-01-05 15:30:00, and nearly all other bars, given or recorded before, are midnights: \
                it is the row of 2018-01-05; later rows with a time of day become days in the same way";
    assert_eq!(lines.take_notes(), [told]);
    // A note for each of the days to come told nothing new.
    for stamp in ["2018-01-08 15:30:00", "2018-01-09 15:30:00"] {
        assert_eq!(lines.push(format!("{stamp},1,2,1,2").as_bytes()).unwrap().len(), 1, "{stamp}");
    }
    assert!(lines.take_notes().is_empty());

    // Monday at 16:00 in New York, which is 21:00 in UTC.
    let mut lines = BarLines::new(Path::new("live"), &in_zone("UTC"), Timeframe::D1, Some(known));
    let stamps = ["2018-01-02", "2018-01-03", "2018-01-04", "2018-01-05", "2018-01-08 16:00:00-05:00"];
    let bars: Vec<Bar> =
        stamps.iter().flat_map(|stamp| lines.push(format!("{stamp},1,2,1,2").as_bytes()).unwrap()).collect();
    assert_eq!(bars.iter().map(|bar| (bar.open_time - known) / DAY_NS).collect::<Vec<_>>(), [1, 2, 3, 4, 7]);
    assert_eq!(lines.take_notes().len(), 1);

    // The bars before show the midnights.
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("X.csv");
    let row = |day: i64| format!("2017-12-{day} 00:00:00-05:00,1,2,1,2\n");
    fs::write(&path, (18..23).chain(25..30).map(row).collect::<String>()).unwrap();
    let days = ReadOptions { base: Some(Timeframe::D1), ..options };
    let summary = read(&[path], &days).unwrap().summary;
    let known = known - 3 * DAY_NS;
    assert_eq!(summary.last_bar.open_time, known);
    for (stamp, is_noted) in [("2018-01-01 15:30:00-05:00", true), ("2018-01-01 00:00:00-05:00", false)] {
        let mut lines = BarLines::new(Path::new("live"), &days, Timeframe::D1, Some(known)).following(&summary);
        let bars = lines.push(format!("{stamp},1,2,1,2").as_bytes()).unwrap();
        assert_eq!(bars.iter().map(|bar| bar.open_time).collect::<Vec<_>>(), [known + 3 * DAY_NS], "{stamp}");
        assert_eq!(lines.take_notes().len(), usize::from(is_noted));
    }
}

/// The last known day, given again by its close, was taken for the day after it.
#[test]
fn a_close_that_repeats_the_last_known_day_is_passed_over() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("X.csv");
    let row = |day: usize, time: &str| format!("2017-12-{day}{time},{day},{day},{day},{day}\n");
    let past = [18, 19, 20, 21, 22, 25, 26, 27, 28];
    fs::write(&path, past.map(|day| row(day, "")).concat()).unwrap();
    let options = ReadOptions { base: Some(Timeframe::D1), ..in_zone("UTC") };
    let past = read(&[path], &options).unwrap();
    let known = past.summary.last_bar.open_time;
    let lines = BarLines::new(Path::new("live"), &options, Timeframe::D1, Some(known)).following(&past.summary);
    let mut lines = lines.comparing_with(KnownBars::new(&past.bars));
    assert!(lines.push(row(28, " 21:00:00+00:00").trim().as_bytes()).unwrap().is_empty());
    let bars = lines.push(row(29, " 21:00:00+00:00").trim().as_bytes()).unwrap();
    assert_eq!(bars.iter().map(|bar| bar.open_time - known).collect::<Vec<_>>(), [DAY_NS]);
}

/// A close was rounded to the nearest midnight in UTC, and a midnight in the East was of the day
/// before.
#[test]
fn a_day_is_told_as_by_the_days_before() {
    let known = 17_529 * DAY_NS; // Friday 2017-12-29
    let past = ["18", "19", "20", "21", "22", "25", "26", "27", "28", "29"];
    let coming = ["01", "02", "03", "04", "05", "08"];
    for (zone, before, then) in [
        // Closes, in UTC as well.
        ("UTC", " 16:00:00-05:00", " 16:00:00-05:00"),
        ("UTC", " 15:15:00-06:00", " 15:15:00-06:00"),
        ("UTC", " 17:30:00+01:00", " 17:30:00+01:00"),
        ("UTC", " 16:30:00+00:00", " 16:30:00+00:00"),
        ("UTC", " 21:00:00+00:00", " 21:00:00+00:00"),
        ("UTC", " 16:00:00", " 16:00:00"),
        ("Asia/Tokyo", " 15:00:00", " 15:00:00"),
        ("UTC", "", " 21:00:00+00:00"),
        // Closes after opens.
        ("UTC", " 09:30:00-05:00", " 16:00:00-05:00"),
        ("UTC", " 09:00:00+01:00", " 17:30:00+01:00"),
        // Midnights and dates after opens and closes.
        ("UTC", " 16:00:00-05:00", " 00:00:00-05:00"),
        ("UTC", " 16:30:00+00:00", ""),
        ("UTC", " 22:00:00+01:00", " 00:00:00+01:00"),
        ("UTC", " 09:00:00+09:00", " 00:00:00+09:00"),
        ("UTC", " 15:00:00+09:00", " 00:00:00+09:00"),
        ("UTC", " 10:00:00+11:00", " 00:00:00+11:00"),
        ("UTC", " 16:00:00+11:00", " 00:00:00+11:00"),
        ("UTC", " 09:30:00+09:00", " 00:00:00+09:00"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("X.csv");
        fs::write(&path, past.map(|day| format!("2017-12-{day}{before},1,2,1,2\n")).concat()).unwrap();
        let options = ReadOptions { base: Some(Timeframe::D1), ..in_zone(zone) };
        let summary = read(&[path], &options).unwrap().summary;
        assert_eq!(summary.last_bar.open_time, known, "{before}");
        let mut lines = BarLines::new(Path::new("live"), &options, Timeframe::D1, Some(known)).following(&summary);
        let mut days = Vec::new();
        for day in coming {
            let bars = lines.push(format!("2018-01-{day}{then},1,2,1,2").as_bytes()).unwrap();
            days.extend(bars.iter().map(|bar| (bar.open_time - known) / DAY_NS));
        }
        assert_eq!(days, [3, 4, 5, 6, 7, 10], "{before} {then}");
    }
}

#[test]
fn a_weekly_bar_is_of_its_week() {
    let known = 17_532 * DAY_NS; // Monday 2018-01-01
    let options = in_zone("America/New_York");
    for stamp in ["2018-01-08", "2018-01-07 23:00:00+00:00", "2018-01-08 00:00:00-05:00"] {
        let mut lines = BarLines::new(Path::new("live"), &options, Timeframe::W1, Some(known));
        let bars = lines.push(format!("{stamp},1,2,1,2").as_bytes()).unwrap();
        assert_eq!(bars.iter().map(|bar| bar.open_time).collect::<Vec<_>>(), [known + 7 * DAY_NS], "{stamp}");
    }
}

/// The row of a Wednesday closed a week after its own.
#[test]
fn the_row_of_a_week_that_has_not_ended_is_that_of_its_monday() {
    let known = 17_532 * DAY_NS; // Monday 2018-01-01
    let options = in_zone("America/New_York");
    for (stamps, days, is_noted) in [
        (&["2018-01-08", "2018-01-17"][..], &[7, 14][..], true),
        (&["2018-01-10 15:00:00-05:00"], &[7], true),
        // That week is known.
        (&["2018-01-03"], &[2], false),
        (&["2018-01-08", "2018-01-10"], &[7, 9], false),
    ] {
        let mut lines = BarLines::new(Path::new("live"), &options, Timeframe::W1, Some(known));
        let bars: Vec<Bar> =
            stamps.iter().flat_map(|stamp| lines.push(format!("{stamp},1,2,1,2").as_bytes()).unwrap()).collect();
        let found: Vec<i64> = bars.iter().map(|bar| (bar.open_time - known) / DAY_NS).collect();
        assert_eq!(found, days, "{stamps:?}");
        let notes = lines.take_notes();
        let is_told = |note: &String| note.contains("all other rows are of Mondays");
        assert_eq!(notes.iter().any(is_told), is_noted, "{notes:?}");
    }
}

#[test]
fn a_volume_may_be_missing_until_there_is_one() {
    let text = "2018-01-02 00:05,1,2,1,2,-1\n2018-01-02 00:06,1,2,1,2,7\n2018-01-02 00:07,1,2,1,2,-1\n";
    let options = ReadOptions { on_error: OnError::Skip, ..in_zone("UTC") };
    let (bars, complaints) = streamed(text, &options, None).unwrap();
    assert_eq!(bars.iter().map(|bar| bar.volume).collect::<Vec<_>>(), [0.0, 7.0]);
    assert!(complaints[0].contains("line 3: inconsistent prices: expected a volume"), "{complaints:?}");
}

// The clock of the bars before was taken for that of rows whose header names another one.
#[test]
fn a_clock_of_the_header_counts_before_that_of_the_bars_before() {
    let base = ReadOptions { base: Some(Timeframe::M1), ..ReadOptions::default() };
    let before = ReadOptions { fallback_zone: Some("+05:00".parse().unwrap()), ..base };
    let stated = ReadOptions { zone: Some("+01:00".parse().unwrap()), ..before.clone() };
    for (header, options, hour) in [
        ("Time (EET)", &before, 8),
        ("Time (UTC)", &before, 10),
        ("Time", &before, 5),
        ("Time (EET)", &stated, 9),
        ("Time", &stated, 9),
    ] {
        let text = format!(
            "{header},Open,High,Low,Close,Volume\n2018.01.31 10:00:00,1,2,1,2,7\n2018.01.31 10:01:00,1,2,1,2,7\n"
        );
        let open_time = 17_562 * DAY_NS + hour * HOUR_NS;
        let mut lines = BarLines::new(Path::new("live"), options, Timeframe::M1, None);
        let bars: Vec<Bar> = text.lines().flat_map(|line| lines.push(line.as_bytes()).unwrap()).collect();
        assert_eq!(bars[0].open_time, open_time, "{header}");
        let notes = lines.take_notes();
        assert_eq!(notes.len(), usize::from(hour == 8 || hour == 10), "{notes:?}");
        // The fallback is not the clock of the bars before where the format is stated.
        assert!(notes.iter().all(|note| note.ends_with(", and would be taken for +05:00 without it")), "{notes:?}");
        assert_eq!(read_whole(&text, options)[0].open_time, open_time, "{header}");
    }
}

// Flat bars of a weekend were bars until one had a volume.
#[test]
fn volumes_of_the_bars_before_show_what_fills_a_closed_market() {
    // From Friday 2018-11-23 22:00 on, three hours.
    let row = |k: i64| {
        let time = display_utc(17_858 * DAY_NS + 22 * HOUR_NS + k * HOUR_NS / 60);
        format!("{time},2,2,2,2,0")
    };
    for (had_volume, expected) in [(true, 60), (false, 180)] {
        let lines = BarLines::new(Path::new("live"), &in_zone("UTC"), Timeframe::M1, None);
        let mut lines = if had_volume { lines.following_volumes() } else { lines };
        let bars: usize = (0..180).map(|k| lines.push(row(k).as_bytes()).unwrap().len()).sum();
        assert_eq!(bars, expected);
    }
}

// The first hour of rows that go on within a weekend of flat bars was predicted, and an hour behind
// a missing one was not.
#[test]
fn fillers_go_on_from_the_bars_before() {
    // Minutes from Friday 2018-11-23 22:00 on.
    let open_time = |minute: i64| 17_858 * DAY_NS + 22 * HOUR_NS + minute * HOUR_NS / 60;
    let flat = |minute: i64, price: f64, volume: f64| Bar {
        open_time: open_time(minute),
        open: price,
        high: price,
        low: price,
        close: price,
        volume,
        ..Bar::default()
    };
    for (known_count, fillers, first, price, expected) in [
        (40, 0, 40, 2, 20),
        (40, 0, 30, 2, 20),
        // A minute is missing.
        (40, 0, 41, 2, 60),
        (40, 0, 40, 3, 60),
        (60, 0, 60, 2, 0),
        (60, 0, 59, 2, 0),
        (60, 0, 90, 2, 60),
        // Fillers were dropped behind the first hour.
        (60, 30, 90, 2, 0),
        (60, 30, 80, 2, 0),
        (60, 30, 30, 2, 0),
        (60, 30, 95, 2, 60),
        (60, 30, 90, 3, 60),
    ] {
        let mut known = Bars::with_capacity(Timeframe::M1, 0);
        known.push(flat(-1, 2.0, 7.0));
        (0..known_count).for_each(|minute| known.push(flat(minute, 2.0, 0.0)));
        let known_until = known.open_time.last().copied();
        let lines = BarLines::new(Path::new("live"), &in_zone("UTC"), Timeframe::M1, known_until);
        let mut lines = lines.following_volumes().comparing_with(KnownBars::new(&known));
        lines.known_fillers = fillers;
        let row = |minute: i64| format!("{},{price},{price},{price},{price},0", display_utc(open_time(minute)));
        let bars: usize = (first..first + 150).map(|k| lines.push(row(k).as_bytes()).unwrap().len()).sum();
        assert_eq!(bars, expected, "{known_count} {fillers} {first} {price}");
    }
    // Saturday 2018-11-24 and Sunday after a Friday.
    let days = ReadOptions { base: Some(Timeframe::D1), ..in_zone("UTC") };
    let mut known = Bars::with_capacity(Timeframe::D1, 0);
    known.push(Bar { open_time: 17_858 * DAY_NS, ..flat(0, 2.0, 7.0) });
    let lines = BarLines::new(Path::new("live"), &days, Timeframe::D1, known.open_time.last().copied());
    let mut lines = lines.following_volumes().comparing_with(KnownBars::new(&known));
    lines.push(b"date,open,high,low,close,volume").unwrap();
    for (day, bars) in [(24, 0), (25, 0), (26, 1)] {
        let row = format!("2018-11-{day},2,2,2,2,{}", if day == 26 { 7 } else { 0 });
        assert_eq!(lines.push(row.as_bytes()).unwrap().len(), bars, "{day}");
    }
}

// The volumes of the bars before are in the account of reading them.
#[test]
fn the_account_of_the_bars_before_tells_of_their_volumes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("X.csv");
    for (volume, expected) in [(7, true), (0, false)] {
        fs::write(&path, format!("2018-01-02 00:05,1,2,1,2,{volume}\n2018-01-02 00:06,1,2,1,2,0\n")).unwrap();
        let summary = read(&[&path], &in_zone("UTC")).unwrap().summary;
        let lines = BarLines::new(Path::new("live"), &in_zone("UTC"), Timeframe::M1, None).following(&summary);
        assert_eq!(lines.had_volume, expected, "{volume}");
    }
}

// Fillers behind the last bar are in the account of reading the bars before.
#[test]
fn the_account_of_the_bars_before_tells_of_fillers_at_their_end() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("X.csv");
    let flat = |minute: i64| format!("2018-01-02 {:02}:{:02},2,2,2,2,0\n", minute / 60, minute % 60);
    for (minutes, last, expected) in
        [(60, "", 0), (90, "", 30), (90, "2018-01-02 01:30,2,3,2,3,7\n", 0), (90, "2018-01-02 01:30,3,3,3,3,0\n", 0)]
    {
        let rows: String = (0..minutes).map(flat).collect();
        fs::write(&path, format!("2018-01-01 23:59,1,2,1,2,7\n{rows}{last}")).unwrap();
        let summary = read(&[&path], &in_zone("UTC")).unwrap().summary;
        let lines = BarLines::new(Path::new("live"), &in_zone("UTC"), Timeframe::M1, None).following(&summary);
        assert_eq!(lines.known_fillers, expected, "{minutes} {last}");
    }
}

/// Features of the volume were those of a volume of 0.
#[test]
fn a_volume_that_features_need_is_in_every_row() {
    let named = |names: &str, row: &str| format!("time,open,high,low,close{names}\n2018-01-02 00:05,1,2,1,2{row}\n");
    for (text, bars) in
        [(named(",volume", ",0"), 1), (named(",volume", ",nan"), 0), (named(",volume", ","), 0), (named("", ""), 0)]
    {
        let mut lines = BarLines::new(Path::new("live"), &in_zone("UTC"), Timeframe::M1, None).requiring_volume();
        let found: Vec<Result<Vec<Bar>>> = text.split_inclusive('\n').map(|line| lines.push(line.as_bytes())).collect();
        match &found[1] {
            Ok(found) => assert_eq!(found.len(), bars, "{text}"),
            Err(error) => {
                let expected = "live: line 2: column without a value: expected a volume, from which features";
                assert!(bars == 0 && error.to_string().starts_with(expected), "{error}");
            }
        }
    }
}

// A row without prices was refused for its volume.
#[test]
fn a_row_without_prices_is_refused_for_these() {
    let mut lines = BarLines::new(Path::new("live"), &in_zone("UTC"), Timeframe::M1, None).requiring_volume();
    lines.push(b"time,open,high,low,close,volume").unwrap();
    lines.push(b"2018-01-02 00:04,1,2,1,2,7").unwrap();
    let error = lines.push(b"2018-01-02 00:05,nan,nan,nan,nan,nan").unwrap_err().to_string();
    assert!(error.contains("expected prices that are finite and above zero"), "{error}");
}

// Volumes of 0 alone were followed without a word.
#[test]
fn bars_none_of_which_has_a_volume_are_warned_of_where_features_need_it() {
    for (volumes, is_needed, expected) in
        [([0, 0, 0], true, true), ([0, 7, 0], true, false), ([7, 0, 0], true, false), ([0, 0, 0], false, false)]
    {
        let lines = BarLines::new(Path::new("live"), &in_zone("UTC"), Timeframe::M1, None);
        let mut lines = if is_needed { lines.requiring_volume() } else { lines };
        // The first bar is flat: a volume of 0 is that of a quiet minute.
        for ((minute, volume), high) in (5..).zip(volumes).zip([1, 2, 2]) {
            lines.push(format!("2018-01-02 00:0{minute},1,{high},1,1,{volume}").as_bytes()).unwrap();
        }
        let warnings = lines.take_warnings();
        assert_eq!(warnings.len(), usize::from(expected), "{volumes:?}: {warnings:?}");
        assert!(warnings.iter().all(|one| one.contains("no bar up to the one that opens at 2018-01-02T00:06:00Z has")));
    }
}

#[test]
fn a_copy_of_the_last_row_is_dropped_in_every_mode() {
    for on_error in OnError::ALL {
        let options = ReadOptions { on_error, ..in_zone("UTC") };
        let (bars, complaints) =
            streamed(&format!("{GOOD}{GOOD}2018-01-02 00:07,1,2,1,2,0\n"), &options, None).unwrap();
        assert_eq!((bars.len(), complaints.len()), (2, 0), "{on_error}");
    }
}

/// A row that was being written was called unreadable, with the advice to drop it.
#[test]
fn a_last_line_without_end_is_said_to_be_unfinished() {
    let rows = "2018-01-02 00:05,1,2,1,2,7\n2018-01-02 00:06,1,2,1,2,7\n";
    for (last, is_cut) in
        [("2018-01-02 00:07,1,2", true), ("2018-01-02 00:07,1,2,1,2,2e", true), ("2018-01-02 00:07,x,2,1,2,7", false)]
    {
        for ends in [false, true] {
            let mut lines = BarLines::new(Path::new("live"), &in_zone("UTC"), Timeframe::M1, None);
            rows.lines().for_each(|line| drop(lines.push(line.as_bytes()).unwrap()));
            let pushed = if ends { lines.push(last.as_bytes()) } else { lines.push_without_end(last.as_bytes()) };
            let expected =
                if is_cut && !ends { "live: line 3: unfinished last row: " } else { "live: line 3: unreadable row: " };
            let error = pushed.unwrap_err().to_string();
            assert!(error.starts_with(expected), "{last}: {error}");
        }
    }
}

/// A part of a row right behind the header was called unreadable, or no bar at all.
#[test]
fn a_part_of_the_first_row_is_said_to_be_unfinished() {
    let header = "time,open,high,low,close,volume\n";
    let failed = |header: &str, last: &str, ends: bool| {
        let mut lines = BarLines::new(Path::new("live"), &in_zone("UTC"), Timeframe::M1, None);
        header.lines().for_each(|line| drop(lines.push(line.as_bytes()).unwrap()));
        let pushed = if ends { lines.push(last.as_bytes()) } else { lines.push_without_end(last.as_bytes()) };
        pushed.and_then(|_| lines.finish()).unwrap_err().to_string()
    };
    for last in ["2018-01-02 00:05,1,2,1,2", "2018-01-02 00:05,1,2", "2018-0", "2018-01-02 00:05,1,2,1,2,2e"] {
        let error = failed(header, last, false);
        assert!(error.starts_with("live: line 2: unfinished last row: expected "), "{last}: {error}");
        assert!(error.contains("(this last line has no end, as in a file that is still being written)"), "{error}");
        assert!(!failed(header, last, true).contains("unfinished"), "{last}");
    }
    assert!(failed("1\n2\n", "3", false).starts_with("live: no bars recognised"));
    assert!(failed("", header.trim_end(), false).contains("the file has a header and no row"));
}

#[test]
fn headers_and_volumes_in_a_stream_are_refused_as_in_a_file() {
    let other = format!("{GOOD}time,close,high,low,open,volume\n2018-01-02 00:07,1,2,1,2,0\n");
    let error = streamed(&other, &in_zone("UTC"), None).unwrap_err();
    assert!(error.to_string().starts_with("live: line 2: a header in the middle"), "{error}");
    let symbols = "time,open,high,low,close,ticker\n2018-01-02 00:05,1,2,1,2,A\n2018-01-02 00:06,1,2,1,2,B\n";
    let error = streamed(symbols, &in_zone("UTC"), None).unwrap_err();
    assert!(error.to_string().starts_with("live: line 3: the column `ticker` has several symbols"), "{error}");
    let for_one_symbol = ReadOptions { symbol: Some("A".to_owned()), ..in_zone("UTC") };
    assert_eq!(streamed(symbols, &for_one_symbol, None).unwrap().0.len(), 1, "rows of another symbol are passed over");
    // The bars of another symbol that comes first were taken for those of the symbol.
    let second = ReadOptions { symbol: Some("B".to_owned()), ..in_zone("UTC") };
    let (bars, complaints) = streamed(symbols, &second, None).unwrap();
    assert_eq!((bars.len(), complaints.len()), (1, 0), "{complaints:?}");
    let volume = streamed("2018-01-02,1,2,1,2,500,0\n", &in_zone("UTC"), None).unwrap_err();
    assert!(volume.to_string().starts_with("live: line 1: the columns have no names"), "{volume}");
}

#[test]
fn bars_of_another_timeframe_are_refused_and_holes_are_not() {
    let row = |minute: usize| format!("2018-01-02 {:02}:{:02},1,2,1,2,7\n", minute / 60, minute % 60);
    let rows = |minutes: &[usize]| minutes.iter().map(|&minute| row(minute)).collect::<String>();
    let hours: Vec<usize> = (0..8).map(|hour| 60 * hour).collect();
    let error = streamed(&rows(&hours), &in_zone("UTC"), None).unwrap_err();
    assert!(matches!(error, Error::OtherTimeframe { base: Timeframe::M1, .. }), "{error}");
    for holes in [&[0, 1, 61, 121, 181, 241][..], &[0, 5, 7, 12, 14, 60, 120]] {
        assert_eq!(streamed(&rows(holes), &in_zone("UTC"), None).unwrap().0.len(), holes.len());
    }
    let mut lines = BarLines::new(Path::new("live"), &in_zone("UTC"), Timeframe::H1, None);
    let found = (0..6).find_map(|minute| lines.push(row(minute).as_bytes()).err());
    assert!(matches!(found, Some(Error::OtherTimeframe { base: Timeframe::H1, .. })), "{found:?}");
}

/// A day's row behind minutes was their bar at midnight.
#[test]
fn a_stream_with_written_midnights_has_no_dates_alone() {
    let text = "2018-01-02 00:00,1,2,1,2,7\n2018-01-02 00:01,1,2,1,2,7\n\
                2018-01-02 00:02,1,2,1,2,7\n2018-01-03,1,2,1,2,7\n";
    let error = streamed(text, &in_zone("UTC"), None).unwrap_err();
    assert!(error.to_string().contains("live: line 4: a date alone"), "{error}");
    // The first one is read, with a warning.
    let mut lines = BarLines::new(Path::new("live"), &in_zone("UTC"), Timeframe::M1, None);
    let rows = text.lines().skip(1).map(|row| lines.push(row.as_bytes()).unwrap().len());
    assert_eq!(rows.sum::<usize>(), 3);
    let warnings = lines.take_warnings();
    assert!(warnings.iter().any(|text| text.contains("line 3 has a date without a time of day")), "{warnings:?}");
    // None is read behind a midnight with a time of day.
    lines.push(b"2018-01-04 00:00,1,2,1,2,7").unwrap();
    assert!(lines.push(b"2018-01-05,1,2,1,2,7").is_err());
}

/// A day was taken for a minute.
#[test]
fn a_date_alone_is_no_bar_of_minutes() {
    let days = "date,open,high,low,close\n2018-01-02,1,2,1,2\n";
    let known = 17_532 * DAY_NS; // 2018-01-01
    let two_days = format!("{days}2018-01-03,1,2,1,2\n");
    for known_until in [None, Some(known), Some(known + DAY_NS)] {
        let error = streamed(&two_days, &in_zone("UTC"), known_until).unwrap_err();
        assert!(matches!(error, Error::LongerBars { line: 3, base: Timeframe::M1, .. }), "{error}");
    }
    for known_until in [None, Some(known)] {
        let error = streamed(days, &in_zone("UTC"), known_until).unwrap_err();
        assert!(matches!(error, Error::LongerBars { line: 2, base: Timeframe::M1, .. }), "{error}");
    }
    // A stream may begin at midnight: its next row shows it, or the bars before.
    let opens = |text: &str, known_until| -> Vec<i64> {
        let (bars, _) = streamed(text, &in_zone("UTC"), known_until).unwrap();
        bars.iter().map(|bar| (bar.open_time - known - DAY_NS) / MINUTE_NS).collect()
    };
    let minutes = format!("{days}2018-01-02 00:01,1,2,1,2\n2018-01-02 00:02,1,2,1,2\n");
    assert_eq!(opens(&minutes, None), [0, 1, 2]);
    assert_eq!(opens(&minutes, Some(known)), [0, 1, 2]);
    assert_eq!(opens(&minutes, Some(known + DAY_NS)), [1, 2]);
    assert_eq!(opens(days, Some(known + DAY_NS - MINUTE_NS)), [0]);
    assert!(opens(days, Some(known + DAY_NS)).is_empty());
    // A fault of the next row leaves the midnight, and that of a midnight the next row.
    let mut lines = BarLines::new(Path::new("live"), &in_zone("UTC"), Timeframe::M1, None);
    let mut found = Vec::new();
    for line in [days.trim_end(), "2018-01-02 00:01,1,1,2,2", "2018-01-02 00:02,1,2,1,2"] {
        let bars = line.lines().flat_map(|line| lines.push(line.as_bytes()).unwrap_or_default());
        found.push(bars.map(|bar| (bar.open_time - known - DAY_NS) / MINUTE_NS).collect::<Vec<_>>());
    }
    assert_eq!(found, [vec![], vec![], vec![0, 2]]);
    let mut lines = BarLines::new(Path::new("live"), &in_zone("UTC"), Timeframe::M1, None);
    lines.push(b"date,open,high,low,close").unwrap();
    lines.push(b"2018-01-02,1,1,2,2").unwrap_err();
    assert_eq!(lines.push(b"2018-01-02 00:01,1,2,1,2").unwrap().len(), 1);
    lines.finish().unwrap();
    // Some programs leave out the time of day of a midnight.
    let midnight = "time,open,high,low,close\n2018-01-01 23:59,1,2,1,2\n2018-01-02,1,2,1,2\n";
    assert_eq!(streamed(midnight, &in_zone("UTC"), None).unwrap().0.len(), 2);
    let mut lines = BarLines::new(Path::new("live"), &in_zone("UTC"), Timeframe::D1, None);
    let bars: usize = days.split_inclusive('\n').map(|line| lines.push(line.as_bytes()).unwrap().len()).sum();
    assert_eq!(bars, 1);
}

#[test]
fn repairs_and_repeats_are_as_stated() {
    let exchanged = format!("{GOOD}2018-01-02 00:06,1,1,2,2,0\n");
    let (bars, _) = streamed(&exchanged, &ReadOptions { on_error: OnError::Repair, ..in_zone("UTC") }, None).unwrap();
    assert_eq!((bars.len(), bars[1].high, bars[1].low), (2, 2.0, 1.0));
    let repeated = format!("{GOOD}2018-01-02 00:05,1,2,1,1,0\n");
    let (bars, complaints) =
        streamed(&repeated, &ReadOptions { repeats: Repeats::Last, ..in_zone("UTC") }, None).unwrap();
    assert_eq!((bars.len(), bars[0].close, complaints.len()), (1, 2.0, 0), "the first one was given already");
}

#[test]
fn what_a_stream_cannot_show_has_to_be_stated() {
    let base = ReadOptions { base: Some(Timeframe::M1), ..ReadOptions::default() };
    let error = |text: &str, options: &ReadOptions| streamed(text, options, None).unwrap_err().to_string();
    assert!(error(GOOD, &base).starts_with("zone is not stated, and line 1 of live has a time without offset"));
    assert_eq!(streamed("2018-01-02 00:05Z,1,2,1,2,0\n", &base, None).unwrap().0.len(), 1);
    assert!(error("03/04/2018 17:00,1,1,1,1,0\n", &in_zone("UTC")).contains("either the day or the month comes first"));
    let adjusted = ReadOptions { prices: crate::parse::options::Prices::Adjusted, ..in_zone("UTC") };
    assert!(error(GOOD, &adjusted).contains("no adjusted close"));
    // Neither too late nor at the end without a word.
    assert!(error("nothing\n", &base).starts_with("live: no bars recognised"));
    let mut lines = BarLines::new(Path::new("live"), &base, Timeframe::M1, None);
    let failed = (0..HEAD_LINES_MAX).find_map(|k| lines.push(b"nothing").err().map(|_| k));
    assert_eq!(failed, Some(HEAD_LINES_MAX - 1));
    assert_eq!(streamed("\n\n", &base, None).unwrap().0.len(), 0);
}

#[test]
fn rows_of_a_symbol_in_another_form_are_warned_of() {
    let options = ReadOptions { symbol: Some("BRK.B".to_owned()), ..in_zone("UTC") };
    for (name, expected) in
        [("BRK.B", None), ("brk-b", Some("live: rows of brk-b are taken for those of BRK.B")), ("AAPL", None)]
    {
        let mut lines = BarLines::new(Path::new("live"), &options, Timeframe::M1, None);
        lines.push(b"time,open,high,low,close,ticker").unwrap();
        for minute in 5..8 {
            lines.push(format!("2018-01-02 00:0{minute},1,2,1,2,{name}").as_bytes()).unwrap();
        }
        let warnings = lines.take_warnings();
        assert_eq!(warnings.iter().map(String::as_str).collect::<Vec<_>>(), Vec::from_iter(expected), "{name}");
    }
}

// A file whose column `company` has another name than the symbol gave no bar.
#[test]
fn a_column_such_as_company_may_have_another_name() {
    let options = ReadOptions { symbol: Some("META".to_owned()), ..in_zone("UTC") };
    let text = |rows: &[(usize, &str)]| {
        let rows = rows.iter().map(|(minute, name)| format!("2018-01-02 00:0{minute},1,2,1,2,{name}\n"));
        format!("time,open,high,low,close,company\n{}", rows.collect::<String>())
    };
    let renamed = text(&[(5, "Facebook"), (6, "Facebook"), (7, "Facebook Inc")]);
    let (bars, complaints) = streamed(&renamed, &options, None).unwrap();
    assert_eq!((bars, complaints.len()), (read_whole(&renamed, &options), 0));
    let mut lines = BarLines::new(Path::new("live"), &options, Timeframe::M1, None);
    renamed.lines().for_each(|line| drop(lines.push(line.as_bytes()).unwrap()));
    assert_eq!(lines.take_warnings(), ["live: rows of Facebook are taken for those of META"]);
    // Rows of one time are of several instruments. A file shows it before its first row is read.
    let both = text(&[(5, "AAPL"), (5, "META"), (6, "AAPL"), (6, "META")]);
    let error = streamed(&both, &options, None).unwrap_err();
    assert!(error.to_string().starts_with("live: line 3: the column `company` has several symbols"), "{error}");
    // The bar of AAPL was taken for one of META.
    let error = streamed(&text(&[(5, "AAPL"), (6, "META")]), &options, None).unwrap_err();
    assert!(error.to_string().starts_with("live: line 3: the column `company` has several symbols"), "{error}");
    let (bars, _) = streamed(&text(&[(5, "META"), (6, "AAPL")]), &options, None).unwrap();
    assert_eq!(bars.len(), 1);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("both.csv");
    fs::write(&path, &both).unwrap();
    let mut lines = BarLines::new(&path, &options, Timeframe::M1, None).in_file(&path);
    let bars: Vec<Bar> = both.lines().flat_map(|line| lines.push(line.as_bytes()).unwrap()).collect();
    assert_eq!(bars, read_whole(&both, &options));
    // The remark was counted as a dropped row.
    assert_eq!(lines.take_complaints(), Vec::<String>::new());
    assert_eq!(lines.take_notes(), ["rows of other symbols than META, such as AAPL, are passed over"]);
}

// Adjusted days after the known ones were followed without a word; a dividend between both changes
// the prices.
#[test]
fn adjusted_days_without_a_known_one_are_warned_of() {
    let known_until = 17_533 * DAY_NS;
    let mut known = Bars::with_capacity(Timeframe::D1, 0);
    known.push(Bar { open_time: known_until, open: 2.0, high: 4.0, low: 1.0, close: 2.0, ..Bar::default() });
    let options = ReadOptions { base: Some(Timeframe::D1), ..in_zone("UTC") };
    let quoted = ReadOptions { prices: crate::parse::options::Prices::AsQuoted, ..options.clone() };
    for (options, first, expected) in [(&options, 3, 1), (&options, 2, 0), (&quoted, 3, 0)] {
        let lines = BarLines::new(Path::new("live"), options, Timeframe::D1, Some(known_until));
        let mut lines = lines.comparing_with(KnownBars::new(&known));
        lines.push(b"date,open,high,low,close,adj close,volume").unwrap();
        for day in first..6 {
            lines.push(format!("2018-01-0{day},4,8,2,4,2,9").as_bytes()).unwrap();
        }
        let warnings = lines.take_warnings();
        assert_eq!(warnings.len(), expected, "{warnings:?}");
        assert!(warnings.iter().all(|one| one.contains("the bars from 2018-01-03T00:00:00Z on have no bar")));
    }
}

// Quoted prices went on with adjusted ones without a word.
#[test]
fn quoted_days_after_adjusted_ones_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("X.csv");
    let options = ReadOptions { base: Some(Timeframe::D1), ..in_zone("UTC") };
    let quoted = ReadOptions { prices: crate::parse::options::Prices::AsQuoted, ..options.clone() };
    let (with, without) = (
        ["date,open,high,low,close,adj close", "2018-01-08,4,8,2,4,2"],
        ["date,open,high,low,close", "2018-01-08,4,8,2,4"],
    );
    for (adjusted, options, text, is_refused) in [
        ("2", &options, without, true),
        ("2", &options, with, false),
        ("4", &options, without, false),
        ("2", &quoted, without, false),
    ] {
        let rows = (1..6).map(|day| format!("2018-01-0{day},4,8,2,4,{adjusted}\n"));
        fs::write(&path, format!("{}\n{}", with[0], rows.collect::<String>())).unwrap();
        let summary = read(&[&path], options).unwrap().summary;
        let known = summary.last_bar.open_time;
        let mut lines = BarLines::new(Path::new("live"), options, Timeframe::D1, Some(known)).following(&summary);
        assert_eq!(lines.push(text[0].as_bytes()).unwrap().len(), 0);
        // A bar that was known before counts as it was.
        let earlier = text[1].replace("2018-01-08", "2018-01-05");
        assert_eq!(lines.push(earlier.as_bytes()).unwrap().len(), 0);
        match lines.push(text[1].as_bytes()) {
            Ok(bars) => assert_eq!((bars.len(), is_refused), (1, false), "{text:?}"),
            Err(error) => {
                let error = error.to_string();
                assert!(is_refused && error.starts_with("live: line 3: column without a value: "), "{error}");
                assert!(error.contains("an adjusted close") && error.contains("the last times 0.5000"), "{error}");
            }
        }
    }
}

// Rows that were changed since, or of another instrument, were passed over without a word.
#[test]
fn other_bars_than_those_before_are_warned_of() {
    let known_until = 17_533 * DAY_NS + 5 * 60_000_000_000;
    let mut known = Bars::with_capacity(Timeframe::M1, 0);
    known.push(Bar {
        open_time: known_until,
        open: 1.0,
        high: 2.0,
        low: 1.0,
        close: 2.0,
        volume: 8.0,
        ..Bar::default()
    });
    for (first, next, expected) in [
        ("1,2,1,2.0000000000001", "2,3,2,3", None),
        (
            "1,2,1,1.5",
            "2,3,2,3",
            Some(
                "line 1: the bar that opens at 2018-01-02T00:05:00Z has the close 1.5, and the bars before have 2 there",
            ),
        ),
        ("1,2,1,2", "40,41,40,40", Some("2018-01-02T00:06:00Z closes at 40, and the bar before it at 2: ")),
    ] {
        let lines = BarLines::new(Path::new("live"), &in_zone("UTC"), Timeframe::M1, Some(known_until));
        let mut lines = lines.comparing_with(KnownBars::new(&known));
        let text = format!("2018-01-02 00:05,{first},7\n2018-01-02 00:06,{next},7\n2018-01-02 00:07,{next},7\n");
        let bars: usize = text.lines().map(|line| lines.push(line.as_bytes()).unwrap().len()).sum();
        let warnings = lines.take_warnings();
        assert_eq!((bars, warnings.len()), (2, usize::from(expected.is_some())), "{warnings:?}");
        assert!(expected.is_none_or(|expected| warnings[0].contains(expected)), "{warnings:?}");
    }
    // The prices of another pair.
    for (symbol, base, time, close, expected) in [
        ("EURUSD", Timeframe::M1, "2018-01-02 00:06", "2.15", 1),
        ("XAUUSD", Timeframe::M1, "2018-01-02 00:06", "2.15", 0),
        ("EURUSD", Timeframe::M1, "2018-02-02 00:05", "2.15", 1),
        ("EURUSD", Timeframe::M1, "2018-02-02 00:06", "2.15", 0),
        ("USDTRY", Timeframe::D1, "2018-01-03 00:00", "2.15", 0),
        ("USDTRY", Timeframe::D1, "2018-01-03 00:00", "2.25", 1),
    ] {
        let options = ReadOptions { symbol: Some(symbol.to_owned()), base: Some(base), ..in_zone("UTC") };
        let lines = BarLines::new(Path::new("live"), &options, base, Some(known_until));
        let mut lines = lines.comparing_with(KnownBars::new(&known));
        let row = format!("{time},{close},{close},{close},{close},7");
        assert_eq!(lines.push(row.as_bytes()).unwrap().len(), 1);
        assert_eq!(lines.take_warnings().len(), expected, "{symbol} {time} {close}");
    }
    // The last bar was unfinished: its row is no other bar.
    for (row, is_finished) in
        [("1,2.5,1,1.5,9", true), ("1,2,1,2,9", true), ("1,2,1,2,8", false), ("1.1,2.5,1,1.5,9", false)]
    {
        let lines = BarLines::new(Path::new("live"), &in_zone("UTC"), Timeframe::M1, Some(known_until));
        let mut lines = lines.comparing_with(KnownBars::new(&known));
        assert_eq!(lines.push(format!("2018-01-02 00:05,{row}").as_bytes()).unwrap().len(), 0);
        let finished = lines.take_finished_bar();
        assert_eq!(finished.is_some(), is_finished, "{row}");
        assert_eq!(finished.is_some_and(|bar| lines.has_known_prices(&bar)), row == "1,2,1,2,9", "{row}");
        assert_eq!(lines.take_warnings().len(), usize::from(row.starts_with("1.1")), "{row}");
    }
    // The other row of a time that comes twice was told as a change.
    let options = ReadOptions { repeats: Repeats::Last, ..in_zone("UTC") };
    let lines = BarLines::new(Path::new("live"), &options, Timeframe::M1, Some(known_until));
    let mut lines = lines.comparing_with(KnownBars::new(&known));
    for close in ["1.5", "2"] {
        assert_eq!(lines.push(format!("2018-01-02 00:05,1,2,1,{close},7").as_bytes()).unwrap().len(), 0);
    }
    assert_eq!(lines.take_warnings(), Vec::<String>::new());
}

// The winter of a broker fits several clocks. The summer that followed was read an hour off.
#[test]
fn weeks_that_end_as_on_another_clock_are_warned_of() {
    // The clock of the broker is two hours ahead of UTC all year.
    let winter = ["01.05,23:58", "01.05,23:59", "01.08,00:00", "01.12,23:59", "01.15,00:00"];
    let summer = ["06.01,22:59", "06.03,23:00", "06.08,22:59", "06.10,23:00"];
    for (zone, summer_rows, expected) in [
        ("new-york+7", 0, None),
        ("new-york+7", 2, None),
        (
            "new-york+7",
            4,
            Some("only 2 of 4 weeks close on Friday at 17:00 in New York; as +02:00 it is 4: check the time zone"),
        ),
        ("+02:00", 4, None),
    ] {
        let mut lines = BarLines::new(Path::new("live"), &in_zone(zone), Timeframe::M1, None);
        for time in winter.iter().chain(&summer[..summer_rows]) {
            let bars = lines.push(format!("2018.{time},2,3,1,2,7").as_bytes()).unwrap();
            assert_eq!(bars.len(), 1, "{zone}: {time}");
        }
        let warnings = lines.take_warnings();
        assert_eq!(warnings.len(), usize::from(expected.is_some()), "{zone}: {warnings:?}");
        assert!(expected.is_none_or(|text| warnings[0].contains(text)), "{zone}: {warnings:?}");
    }
}

// Shares close at 16:00 in New York, which is 21:00 in UTC by its winter's clock: 17:00 in summer.
#[test]
fn weeks_of_shares_are_not_taken_for_those_of_another_clock() {
    // Half hours of two weeks from Monday 2018-06-11 on, 09:30 to 16:00.
    let half_ns = HOUR_NS / 2;
    let mut known = Bars::with_capacity(Timeframe::M30, 0);
    for day in (0..12).filter(|day| day % 7 < 5) {
        for half in 27..40 {
            let open_time = (17_693 + day) * DAY_NS + half * half_ns;
            known.push(Bar { open_time, open: 2.0, high: 3.0, low: 1.0, close: 2.0, volume: 7.0, ..Bar::default() });
        }
    }
    let rows =
        ["06.22,15:00", "06.22,15:30", "06.25,09:30", "06.29,15:30", "07.02,09:30", "07.06,15:30", "07.09,09:30"];
    for has_history in [true, false] {
        let mut lines = BarLines::new(Path::new("live"), &in_zone("America/New_York"), Timeframe::M30, None);
        if has_history {
            lines = lines.comparing_with(KnownBars::new(&known));
        }
        for time in rows {
            lines.push(format!("2018.{time},2,3,1,2,7").as_bytes()).unwrap();
        }
        assert_eq!(lines.take_warnings().len(), usize::from(!has_history));
    }
}

/// Hours of Mondays to Fridays of three weeks from a Monday on, in days since 1970, without those
/// of the day `missing`.
fn weeks_from(monday: i64, missing: Option<i64>) -> Bars {
    let days = (0..19).filter(|day| day % 7 < 5 && Some(*day) != missing);
    let mut bars = Bars::with_capacity(Timeframe::H1, 0);
    for open_time in days.flat_map(|day| (0..24).map(move |hour| (monday + day) * DAY_NS + hour * HOUR_NS)) {
        bars.push(Bar { open_time, open: 2.0, high: 3.0, low: 1.0, close: 2.0, volume: 7.0, ..Bar::default() });
    }
    bars
}

// A live file without its Friday was followed without a word.
#[test]
fn a_day_that_is_missing_is_warned_of() {
    // From Mondays 2018-01-01, 2017-12-04 and 2018-10-15 on.
    let (known, december, october) = (weeks_from(17_532, None), weeks_from(17_504, None), weeks_from(17_819, None));
    let few = {
        let mut few = known.clone();
        few.truncate(24);
        few
    };
    for (bars, first, expected) in [
        // The last known hour is that of Friday 2018-01-19.
        (&known, "2018-01-22 00:00", None),
        (&known, "2018-01-23 00:00", Some("there is no bar from 2018-01-20T00:00:00Z to 2018-01-23T00:00:00Z, and")),
        (&known, "2018-01-22 01:00", Some("there is no bar from 2018-01-20T00:00:00Z to 2018-01-22T01:00:00Z, and")),
        // New York's clock is moved on Sunday.
        (&october, "2018-11-05 01:00", None),
        (&october, "2018-11-05 02:00", Some("there is no bar from 2018-11-03T00:00:00Z to 2018-11-05T02:00:00Z, and")),
        (&few, "2018-01-05 00:00", None),
        // Monday is Christmas Day.
        (&december, "2017-12-26 00:00", None),
    ] {
        let lines = BarLines::new(Path::new("live"), &in_zone("UTC"), Timeframe::H1, bars.open_time.last().copied());
        let mut lines = lines.comparing_with(KnownBars::new(bars));
        assert_eq!(lines.push(format!("{first},2,3,1,2,7").as_bytes()).unwrap().len(), 1);
        let warnings = lines.take_warnings();
        assert_eq!(warnings.len(), usize::from(expected.is_some()), "{warnings:?}");
        assert!(expected.is_none_or(|expected| warnings[0].contains(expected)), "{warnings:?}");
    }
}

// A pause of a weekday is shorter than one of a weekend, and was followed without a word.
#[test]
fn a_weekday_that_is_missing_is_warned_of() {
    // From Mondays 2018-01-01 and 2018-06-11 on.
    let (january, june, with_a_pause) =
        (weeks_from(17_532, None), weeks_from(17_693, None), weeks_from(17_532, Some(9)));
    let missing = "there is no bar from 2018-01-23T00:00:00Z to 2018-01-24T00:00:00Z, and the bars before have no pause of that length within a week";
    for (bars, days, expected) in [
        (&january, &["2018-01-22", "2018-01-23", "2018-01-24"][..], None),
        (&january, &["2018-01-22", "2018-01-24", "2018-01-25"], Some(missing)),
        (&with_a_pause, &["2018-01-22", "2018-01-24", "2018-01-25"], None),
        // Independence Day.
        (&june, &["2018-07-02", "2018-07-03", "2018-07-05"], None),
    ] {
        let lines = BarLines::new(Path::new("live"), &in_zone("UTC"), Timeframe::H1, bars.open_time.last().copied());
        let mut lines = lines.comparing_with(KnownBars::new(bars));
        for (day, hour) in days.iter().flat_map(|day| (0..24).map(move |hour| (day, hour))) {
            assert_eq!(lines.push(format!("{day} {hour:02}:00,2,3,1,2,7").as_bytes()).unwrap().len(), 1);
        }
        let warnings = lines.take_warnings();
        assert_eq!(warnings.len(), usize::from(expected.is_some()), "{days:?}: {warnings:?}");
        assert!(expected.is_none_or(|expected| warnings[0].contains(expected)), "{warnings:?}");
    }
}

// Some hours of a Thursday are shorter than a day, and were missing without a word.
#[test]
fn hours_that_are_missing_are_warned_of() {
    let half_ns = HOUR_NS / 2;
    // Half hours of three weeks from Monday 2018-01-01 on: of all day, and of shares.
    let weeks = |halves: std::ops::Range<i64>| {
        let mut bars = Bars::with_capacity(Timeframe::M30, 0);
        for day in (0..19).filter(|day| day % 7 < 5) {
            for half in halves.clone() {
                let open_time = (17_532 + day) * DAY_NS + half * half_ns;
                bars.push(Bar { open_time, open: 2.0, high: 3.0, low: 1.0, close: 2.0, volume: 7.0, ..Bar::default() });
            }
        }
        bars
    };
    // Half hours of rows from Monday 2018-01-22 on.
    let rows = |known: &Bars, halves: &[std::ops::Range<i64>]| {
        let lines = BarLines::new(Path::new("live"), &in_zone("UTC"), Timeframe::M30, known.open_time.last().copied());
        let mut lines = lines.comparing_with(KnownBars::new(known));
        for half in halves.iter().cloned().flatten() {
            let row = format!("{},2,3,1,2,7", display_utc(17_553 * DAY_NS + half * half_ns));
            assert_eq!(lines.push(row.as_bytes()).unwrap().len(), 1);
        }
        lines.take_warnings()
    };
    let (all_day, shares) = (weeks(0..48), weeks(29..42));
    for (known, halves, expected) in [
        (&all_day, &[0..20, 21..48][..], None),
        (&all_day, &[0..20, 31..48], Some(("10:00:00Z to 2018-01-22T15:30:00Z", "day"))),
        (&all_day, &[0..46, 52..60], Some(("23:00:00Z to 2018-01-23T02:00:00Z", "week"))),
        (&shares, &[29..42, 77..90], None),
        (&shares, &[29..31, 40..42, 77..90], Some(("15:30:00Z to 2018-01-22T20:00:00Z", "day"))),
        (&shares, &[29..42, 80..90], Some(("21:00:00Z to 2018-01-23T16:00:00Z", "week"))),
    ] {
        let warnings = rows(known, halves);
        assert_eq!(warnings.len(), usize::from(expected.is_some()), "{warnings:?}");
        assert!(
            expected.is_none_or(|(times, place)| {
                let said = format!(
                    "no bar from 2018-01-22T{times}, and the bars before have no pause of that length within a {place}:"
                );
                warnings[0].contains(&said)
            }),
            "{warnings:?}"
        );
    }
}
