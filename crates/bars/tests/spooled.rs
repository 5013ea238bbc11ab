//! Bars that are read into a file are those that are read into memory, with the same account.

use std::fmt::Write as _;
use std::ops::ControlFlow;
use std::path::Path;

use megabatch_bars::{
    BarSource, Bars, Error, OnError, ReadOptions, Recording, Repeats, Result, SpooledRecording, Timeframe, read,
    read_spooled,
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
