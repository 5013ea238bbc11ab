//! Bars that are read into a file are those that are read into memory, with the same account.

use std::fmt::Write as _;
use std::ops::ControlFlow;
use std::path::Path;

use megabatch_bars::{
    BarSource, Bars, Error, OnError, Prices, ReadOptions, Recording, Repeats, Result, RowError, SpooledRecording,
    Timeframe, read, read_spooled,
};

const ROWS: usize = 30_000;

/// Rows of minutes, some of them defective: copies, other prices at the same time, rows out of
/// order, stray dates, nonsense. `every` is the distance between defects; 0 for none.
fn text(every: usize, is_backward: bool) -> String {
    let mut rows: Vec<String> = Vec::new();
    let mut state = 7_u32;
    for minute in 0..ROWS {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let price = 1.2 + f64::from(state >> 20) / 1e6;
        // A weekend, and a clock that is moved.
        let minute = minute + if minute > 20_000 { 2_880 } else { 0 };
        let row = |minute: usize, price: f64| {
            let (day, minute_of_day) = (25 + minute / 1440, minute % 1440);
            let (month, day) = if day > 31 { (4, day - 31) } else { (3, day) };
            format!(
                "2018.{month:02}.{day:02},{:02}:{:02},{price:.5},{:.5},{:.5},{price:.5},{},0,{}",
                minute_of_day / 60,
                minute_of_day % 60,
                price + 0.0005,
                price - 0.0005,
                state % 9,
                state % 30
            )
        };
        rows.push(row(minute, price));
        if every > 0 && minute % every == every / 2 {
            match minute / every % 6 {
                0 => rows.push(row(minute, price)),
                1 => rows.push(row(minute, price + 0.001)),
                2 => rows.push(row(minute / 2, price)),
                3 => rows.push("2018.05.30,00:00,1,1,1,1,0,0,0".to_owned()),
                4 => rows.push("nonsense".to_owned()),
                _ => {
                    let last = rows.len() - 1;
                    rows.swap(last, last - 3);
                }
            }
        }
    }
    if is_backward {
        rows.reverse();
    }
    let mut text = "date,time,open,high,low,close,tickvol,vol,spread\n".to_owned();
    rows.iter().for_each(|row| writeln!(text, "{row}").unwrap());
    text
}

fn all_bars(recording: &SpooledRecording) -> Bars {
    let mut bars = Bars::with_capacity(Timeframe::M1, 0);
    recording.bars.read(0..recording.bars.len(), &mut bars).unwrap();
    bars
}

fn check(whole: Result<Recording>, spooled: Result<SpooledRecording>) {
    match (whole, spooled) {
        (Ok(mut whole), Ok(spooled)) => {
            whole.bars.spread.resize(whole.bars.len(), 0.0);
            assert_eq!(all_bars(&spooled), whole.bars);
            assert_eq!((spooled.symbol, spooled.summary), (whole.symbol, whole.summary));
        }
        (whole, spooled) => assert_eq!(whole.unwrap_err().to_string(), spooled.unwrap_err().to_string()),
    }
}

fn write(folder: &Path, name: &str, text: &str) -> std::path::PathBuf {
    let path = folder.join(name);
    std::fs::write(&path, text).unwrap();
    path
}

#[test]
fn bars_and_account_are_those_in_memory() {
    let folder = tempfile::tempdir().unwrap();
    let spool = folder.path().join("spool");
    let go_on = |_| ControlFlow::Continue(());
    for (every, is_backward) in [(0, false), (0, true), (97, false), (1_001, true), (5, false)] {
        let path = write(folder.path(), "EURUSD.csv", &text(every, is_backward));
        for on_error in [OnError::Fail, OnError::Skip, OnError::Repair] {
            for repeats in [Repeats::Refuse, Repeats::First, Repeats::Last] {
                let options = ReadOptions { on_error, repeats, ..ReadOptions::default() };
                check(read(&[&path], &options), read_spooled(&[&path], &options, &spool, &go_on));
            }
        }
    }
}

/// Further columns go with their bars: in order or repaired, read backward, adjusted, spooled.
#[test]
fn columns_stay_with_their_bars() {
    let folder = tempfile::tempdir().unwrap();
    let spool = folder.path().join("spool");
    let go_on = |_| ControlFlow::Continue(());
    for (every, is_backward) in [(0, false), (97, false), (1_001, true)] {
        let text = text(every, is_backward);
        // A column that is the open once more, after ten rows without a value.
        let with_columns = |(place, line): (usize, &str)| match (place, line.split(',').nth(2)) {
            (0, _) => format!("{line},again,Adj Close,stock splits"),
            (1..=10, Some(_)) if !is_backward => format!("{line},,0.5,0"),
            (_, Some(open)) => format!("{line},{open},0.5,0"),
            (_, None) => line.to_owned(),
        };
        let path = write(
            folder.path(),
            "EURUSD.csv",
            &text.lines().enumerate().map(with_columns).collect::<Vec<_>>().join("\n"),
        );
        for prices in [Prices::AsQuoted, Prices::AdjustedIfGiven] {
            let columns = vec!["tickvol".to_owned(), "again".to_owned()];
            let options = ReadOptions { on_error: OnError::Repair, prices, columns, ..ReadOptions::default() };
            let whole = read(&[&path], &options).unwrap();
            let (bars, dropped) = (&whole.bars, whole.summary.dropped(RowError::WarmUp));
            assert_eq!(dropped, if is_backward { 0 } else { 10 });
            assert!(bars.len() + 10 >= ROWS && bars.columns[0] == bars.volume);
            if prices == Prices::AsQuoted {
                assert_eq!(bars.columns[1], bars.open);
            }
            assert_eq!(whole.summary.files[0].unused_columns, Vec::<String>::new());
            check(Ok(whole), read_spooled(&[&path], &options, &spool, &go_on));
        }
    }
}

/// A column without a value in the middle stops reading, or costs the row.
#[test]
fn a_column_that_loses_its_value_is_a_fault_of_the_row() {
    let folder = tempfile::tempdir().unwrap();
    let rows = ["00:00,1,1,1,1,0,NaN", "00:01,1,1,1,1,0,5", "00:02,1,1,1,1,0,", "00:03,1,1,1,1,0,7"];
    let text: String = rows.iter().map(|row| format!("2024-01-02 {row}\n")).collect();
    let path = write(folder.path(), "X.csv", &format!("time,open,high,low,close,volume,rsi\n{text}"));
    let options = |on_error| ReadOptions { on_error, columns: vec!["rsi".to_owned()], ..ReadOptions::default() };
    let error = read(&[&path], &options(OnError::Fail)).unwrap_err().to_string();
    assert!(error.contains("X.csv: line 4: column without a value: expected a number for rsi"), "{error}");
    let read = read(&[&path], &options(OnError::Skip)).unwrap();
    assert_eq!(read.bars.columns, [[5.0, 7.0]]);
    assert_eq!([RowError::WarmUp, RowError::NoValue].map(|kind| read.summary.dropped(kind)), [1, 1]);
    let missing = ReadOptions { columns: vec!["ema".to_owned()], ..ReadOptions::default() };
    let error = megabatch_bars::read(&[&path], &missing).unwrap_err().to_string();
    assert!(error.contains("X.csv: no column ema: found the columns time, open, "), "{error}");
}

#[test]
fn several_files_are_joined_as_in_memory() {
    let folder = tempfile::tempdir().unwrap();
    let spool = folder.path().join("spool");
    let whole = text(0, false);
    let (head, rows) = whole.split_once('\n').unwrap();
    let lines: Vec<&str> = rows.lines().collect();
    let part = |name: &str, lines: &[&str]| write(folder.path(), name, &format!("{head}\n{}\n", lines.join("\n")));
    let files = [part("b.csv", &lines[14_000..]), part("a.csv", &lines[..14_000])];
    let options = ReadOptions { symbol: Some("EURUSD".to_owned()), ..ReadOptions::default() };
    let read_bytes = std::sync::atomic::AtomicU64::new(0);
    let count = |bytes| {
        read_bytes.fetch_add(bytes, std::sync::atomic::Ordering::Relaxed);
        ControlFlow::Continue(())
    };
    check(read(&files, &options), read_spooled(&files, &options, &spool, &count));
    let size: u64 = files.iter().map(|file| file.metadata().unwrap().len()).sum();
    assert_eq!(read_bytes.into_inner(), size);
    let overlapping = [part("c.csv", &lines[13_000..]), files[1].clone()];
    let go_on = |_| ControlFlow::Continue(());
    check(read(&overlapping, &options), read_spooled(&overlapping, &options, &spool, &go_on));
}

#[test]
fn reading_ends_where_its_observer_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let path = write(folder.path(), "EURUSD.csv", &text(0, false));
    for last in [0, 100_000] {
        let read = std::sync::atomic::AtomicU64::new(0);
        let observe = |bytes| match read.fetch_add(bytes, std::sync::atomic::Ordering::Relaxed) > last {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        };
        let stopped = read_spooled(&[&path], &ReadOptions::default(), &folder.path().join("spool"), &observe);
        assert!(matches!(stopped, Err(Error::Interrupted)));
    }
}
