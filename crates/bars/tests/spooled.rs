//! Bars that are read into a file are those that are read into memory, with the same account.

use std::fmt::Write as _;
use std::io::Write as _;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use flate2::Compression;
use flate2::write::GzEncoder;
use megabatch_bars::{
    BarSource, Bars, Error, FormatName, OnError, Prices, ReadOptions, Recording, Repeats, Result, RowError,
    SpooledRecording, SymbolRows, Timeframe, read, read_spooled,
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

/// Days of three symbols, with `name` around each symbol; the days are in turns, or the symbols one
/// after the other.
fn several_symbols(in_turns: bool, date: fn(usize, usize) -> String, name: &str) -> String {
    let row = |symbol: usize, k: usize| {
        let (low, name) = (10 + symbol * 100 + k, name.replace('_', ["A", "B", "BRK.B"][symbol]));
        format!("{},{low}.5,{},{low},{low}.25,{},{name}\n", date(1 + k / 28, 1 + k % 28), low + 1, 100 + k % 7)
    };
    let rows: String = match in_turns {
        true => (0..80).flat_map(|k| (0..3).map(move |symbol| (symbol, k))).map(|(symbol, k)| row(symbol, k)).collect(),
        false => {
            (0..3).flat_map(|symbol| (0..80).map(move |k| (symbol, k))).map(|(symbol, k)| row(symbol, k)).collect()
        }
    };
    format!("date,open,high,low,close,volume,Name\n{rows}")
}

const ISO: fn(usize, usize) -> String = |month, day| format!("2021-{month:02}-{day:02}");
const DAY_FIRST: fn(usize, usize) -> String = |month, day| format!("{day:02}/{month:02}/2021");
/// No date shows which number is the day.
const UNCLEAR: fn(usize, usize) -> String = |month, day| format!("{:02}/{month:02}/2021", day.min(12));

/// The rows of each symbol, sorted while the file is read once, are those that the whole file gives
/// it: bars, counts, line numbers and errors.
#[test]
fn rows_of_several_symbols_are_those_that_the_whole_file_gives_each() {
    let folder = tempfile::tempdir().unwrap();
    let spool = folder.path().join("spool");
    let go_on = |_| ControlFlow::Continue(());
    let mut texts = Vec::new();
    for in_turns in [true, false] {
        let plain = several_symbols(in_turns, ISO, "_");
        let header = plain.lines().next().unwrap();
        texts.extend([plain.replace('\n', "\r\n"), plain.trim_end().to_owned(), format!("# from a vendor\n\n{plain}")]);
        texts.extend(["\"_\"", "\"_, Inc.\"", "  _ "].map(|name| several_symbols(in_turns, ISO, name)));
        texts.extend([DAY_FIRST, UNCLEAR].map(|date| several_symbols(in_turns, date, "_")));
        for defect in [
            "2021-04-01,0,9,1,2,5,B",
            "2021-04-01,x,y,z,x,5,B",
            "2021-04-01,5,9,1,2,nan,A",
            "2021-01-05,5,9,1,2,7,BRK.B",
            "2021-04-01,5,4,6,5,7,A",
            "2021-04-01,5,9,1,2,7,ZZZ",
            "2021-04-01,x,y,z,x,7,ZZZ",
            "2021-04-01,5,9,1,2,7,",
            "2021-04-01,5,9,1,2",
            "nonsense",
            "",
            header,
            "date,open,low,high,close,volume,Name",
        ] {
            let mut lines: Vec<&str> = plain.lines().collect();
            [200, 100, 70, 30].into_iter().for_each(|place| lines.insert(place, defect));
            texts.push(lines.join("\n"));
        }
        texts.push(plain);
    }
    for text in &texts {
        let plain = write(folder.path(), "all.csv", text);
        let packed = folder.path().join("all.csv.gz");
        let mut encoder = GzEncoder::new(std::fs::File::create(&packed).unwrap(), Compression::fast());
        encoder.write_all(text.as_bytes()).unwrap();
        encoder.finish().unwrap();
        for path in [plain, packed] {
            for (on_error, format) in OnError::ALL.into_iter().zip([None, Some(FormatName::Iso), None]) {
                let options = ReadOptions { on_error, format, ..ReadOptions::default() };
                let mut rows = SymbolRows::in_folder(folder.path()).unwrap();
                let symbols = rows.add(&path, &options, &go_on).unwrap();
                assert_eq!(symbols, options.symbols_of(&path).unwrap());
                assert!(symbols.len() >= 3 && rows.files().eq([path.as_path()]), "{symbols:?}");
                for symbol in symbols {
                    let own = ReadOptions { symbol: Some(symbol), ..options.clone() };
                    check(read(&[&path], &own), rows.read_spooled(&[&path], &own, &spool, &go_on));
                }
            }
        }
    }
}

/// A file of several symbols was read twice for each of them.
#[test]
fn a_file_of_several_symbols_is_read_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = write(folder.path(), "all.csv", &several_symbols(true, DAY_FIRST, "_"));
    let size = path.metadata().unwrap().len();
    let read_bytes = AtomicU64::new(0);
    let count = |bytes| {
        read_bytes.fetch_add(bytes, Ordering::Relaxed);
        ControlFlow::Continue(())
    };
    let mut rows = SymbolRows::in_folder(folder.path()).unwrap();
    let symbols = rows.add(&path, &ReadOptions::default(), &count).unwrap();
    assert_eq!((symbols.len(), read_bytes.swap(0, Ordering::Relaxed)), (3, size));
    std::fs::remove_file(&path).unwrap();
    for symbol in symbols {
        let bytes = rows.bytes(&path, &symbol).unwrap();
        assert!(bytes < size / 2, "{bytes} of {size} bytes");
        let own = ReadOptions { symbol: Some(symbol), ..ReadOptions::default() };
        let recording = rows.read_spooled(&[&path], &own, &folder.path().join("spool"), &count).unwrap();
        assert_eq!((recording.bars.len(), read_bytes.swap(0, Ordering::Relaxed)), (80, bytes));
    }
}
