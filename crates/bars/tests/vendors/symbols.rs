//! Files with several symbols, in columns or in rows.

use megabatch_bars::{OnError, ReadOptions, read_all};

use crate::written::{read_texts, with_files};
use crate::{Prices, date, days, error_of, recording_of, weekday};

/// A row with empty fields in place of 7 and 9.
fn without_sevens(line: &str) -> String {
    line.split(',').map(|field| if matches!(field, "7" | "9") { "" } else { field }).collect::<Vec<_>>().join(",")
}

/// Header rows of yfinance's frames were refused: "names some columns, but not `date`".
#[test]
fn header_rows_of_yfinance_are_read() {
    let expected = recording_of(&format!(
        "date,open,high,low,close,volume\n{}",
        days(30, |k, Prices { open, high, low, close }| { format!("{open},{high},{low},{close},{k}") })
    ));
    let one = days(30, |k, Prices { open, high, low, close }| format!("{close},{high},{low},{open},{k}"));
    let two = days(30, |k, Prices { open, high, low, close }| format!("{close},7,{high},7,{low},7,{open},7,{k},9"));
    let by_ticker =
        days(30, |k, Prices { open, high, low, close }| format!("7,7,7,7,9,{open},{high},{low},{close},{k}"));
    let names = "Price,Close,High,Low,Open,Volume\nTicker,AAPL,AAPL,AAPL,AAPL,AAPL\n";
    let header_of_two = "Price,Close,Close,High,High,Low,Low,Open,Open,Volume,Volume\n\
                  Ticker,AAPL,MSFT,AAPL,MSFT,AAPL,MSFT,AAPL,MSFT,AAPL,MSFT\nDate,,,,,,,,,,\n";
    let header_by_ticker = "Ticker,MSFT,MSFT,MSFT,MSFT,MSFT,AAPL,AAPL,AAPL,AAPL,AAPL\n\
                      Price,Open,High,Low,Close,Volume,Open,High,Low,Close,Volume\nDate,,,,,,,,,,\n";
    for header in ["Date,,,,,\n", "Datetime,,,,,\n", ""] {
        let recording = recording_of(&format!("{names}{header}{one}"));
        assert_eq!((&recording.bars, recording.summary.files[0].preamble), (&expected.bars, 0), "{header}");
    }
    let unnamed = names.replace("Price,", ",").replace("Ticker,", ",");
    assert_eq!(recording_of(&format!("{unnamed}{one}")).bars, expected.bars);
    for text in [format!("{header_of_two}{two}"), format!("{header_by_ticker}{by_ticker}")] {
        let error = error_of(&text, &ReadOptions::default());
        assert!(error.contains("AAPL.csv: ") && error.contains("AAPL") && error.contains("MSFT"), "{error}");
        assert!(error.contains("several symbols"), "{error}");
        for (symbol, first) in [("AAPL", expected.bars.open[0]), ("MSFT", 7.0)] {
            let options = ReadOptions { symbol: Some(symbol.to_owned()), ..ReadOptions::default() };
            let bars = read_texts(&[("prices.csv", &text)], &options).unwrap().bars;
            assert_eq!((bars.len(), bars.open[0]), (30, first), "{symbol}");
        }
        // A share that is listed late has empty fields until then.
        let late = ReadOptions { symbol: Some("MSFT".to_owned()), ..ReadOptions::default() };
        let mut rows = 0;
        let empty: String = text
            .lines()
            .map(|line| {
                rows += usize::from(line.starts_with('2'));
                let line = if line.starts_with('2') && rows <= 2 { without_sevens(line) } else { line.to_owned() };
                line + "\n"
            })
            .collect();
        assert_eq!(read_texts(&[("prices.csv", &empty)], &late).unwrap().bars.len(), 28);
        let files = [("prices.csv", text.as_bytes())];
        let all = with_files(&files, |paths| read_all(paths, &ReadOptions::default())).unwrap().recordings;
        let found: Vec<_> = all.iter().map(|one| (one.symbol.as_str(), one.bars.len())).collect();
        assert_eq!((found, &all[0].bars), (vec![("AAPL", 30), ("MSFT", 30)], &expected.bars));
    }
}

/// The first row under `Ticker,Date,Open,…` was taken for the tickers of yfinance's frames,
/// whatever its values: "6 instruments (100192192, 2018-01-02, 41.37, …)".
#[test]
fn a_long_table_may_begin_with_its_symbols() {
    let plain = days(30, |k, Prices { open, high, low, close }| format!("{open},{high},{low},{close},{k}"));
    let flat: String = (0..30).map(|k| format!("{},5,5,5,5,7\n", date(weekday(k)))).collect();
    let names = "Date,Open,High,Low,Close,Volume";
    let with_symbol =
        |symbol: &str, rows: &str| rows.lines().map(|row| format!("{symbol},{row}\n")).collect::<String>();
    for rows in [&plain, &flat] {
        let expected = recording_of(&format!("{names}\n{rows}")).bars;
        let (one, other) = (with_symbol("AAPL", rows), with_symbol("MSFT", rows));
        for first in ["Ticker", "Symbol", "exchange"] {
            assert_eq!(recording_of(&format!("{first},{names}\n{one}")).bars, expected, "{first}");
        }
        let text = format!("Ticker,{names}\n{one}{other}");
        let files = [("prices.csv", text.as_bytes())];
        let all = with_files(&files, |paths| read_all(paths, &ReadOptions::default())).unwrap().recordings;
        let found: Vec<_> = all.iter().map(|one| (one.symbol.as_str(), &one.bars)).collect();
        assert_eq!(found, [("AAPL", &expected), ("MSFT", &expected)]);
    }
}

/// A column of symbols was passed over: one series of both came out.
#[test]
fn rows_of_several_symbols_are_those_of_each() {
    let row =
        |symbol: &str, day: usize| format!("{},{},9,1,2,5,{symbol}\n", date(day), if symbol == "AAA" { 2 } else { 3 });
    let header = "date,open,high,low,close,volume,symbol\n";
    let turns: String = (0..20).map(|k| row(["AAA", "BBB"][k % 2], k / 2)).collect();
    let blocks: String = (0..20).map(|k| row(["BBB", "AAA"][k / 10], k % 10)).collect();
    let apart: String = (0..20).map(|k| row(["AAA", "BBB"][k / 10], k)).collect();
    let one: String = (0..20).map(|k| row("AAA", k)).collect();
    let stated = |symbol: &str| ReadOptions { symbol: Some(symbol.to_owned()), ..ReadOptions::default() };
    for rows in [&turns, &blocks, &apart] {
        for name in ["symbol", "Ticker", "<TICKER>", "instrument", "Name"] {
            // Without rows of one time it may be the names of one company.
            if name == "Name" && rows == &apart {
                continue;
            }
            let text = format!("{}{rows}", header.replace("symbol", name));
            let error = error_of(&text, &ReadOptions::default());
            assert!(
                error.contains(&format!("column `{name}`")) && error.contains("AAA") && error.contains("BBB"),
                "{error}"
            );
            assert!(error.contains("line ") && error.contains("state the symbol"), "{error}");
            let error = error_of(&text, &stated("BBC"));
            let expected = "`BBC` is none of the 2 symbols of the file; the nearest are BBB, AAA: state one of them";
            assert!(error.contains(expected) && error.contains(&format!("rename the column `{name}`")), "{error}");
            for (symbol, open) in [("AAA", 2.0), ("BBB", 3.0), ("bbb", 3.0)] {
                let recording = read_texts(&[("all.csv", &text)], &stated(symbol)).unwrap();
                assert_eq!((recording.bars.len(), &recording.bars.open), (10, &vec![open; 10]), "{symbol} {text}");
                assert_eq!(recording.summary.files[0].rows, 10, "others' rows are not counted");
            }
        }
    }
    // A column that nobody knows: the advice was to keep one of two rows of a time.
    let mixed = format!("{}{one}{}", header.replace("symbol", "bolsa"), row("BBB", 3));
    let error = error_of(&mixed, &ReadOptions::default());
    let expected = "symbols apart, if the column `bolsa` has them (AAA, BBB): call it `symbol` in the header";
    assert!(error.contains("line 22") && error.contains(expected), "{error}");
    let skipping = ReadOptions { on_error: OnError::Skip, ..ReadOptions::default() };
    let warnings = read_texts(&[("all.csv", &mixed)], &skipping).unwrap().summary.warnings;
    assert!(
        warnings.iter().any(|warning| warning.contains("column `bolsa` has several names (AAA, BBB)")),
        "{warnings:?}"
    );
    // One symbol may have another name here.
    let text = format!("{header}{one}");
    for options in [ReadOptions::default(), stated("AAA"), stated("Apple")] {
        assert_eq!(read_texts(&[("all.csv", &text)], &options).unwrap().bars.len(), 20);
    }
    // A fault costs the symbol that it is of; a row without a symbol may be anybody's.
    let bad = format!("{header}{}{},0,9,1,2,5,BBB\n", turns, date(12));
    assert_eq!(read_texts(&[("all.csv", &bad)], &stated("AAA")).unwrap().bars.len(), 10);
    assert!(error_of(&bad, &stated("BBB")).contains("line 22"));
    let nameless = format!("{header}{}{},0,9,1,2,5,\n", turns, date(12));
    for symbol in ["AAA", "BBB"] {
        assert!(error_of(&nameless, &stated(symbol)).contains("line 22"), "{symbol}");
    }
}

/// A share whose company was renamed was two instruments.
#[test]
fn a_name_that_changes_within_a_share_is_no_symbol() {
    let row = |day: usize, name: &str| format!("{},2,9,1,2,5,{name}\n", date(day));
    let renamed: String = (0..20).map(|day| row(day, ["Facebook", "Meta", "Facebook"][day / 8])).collect();
    let shared = format!("{renamed}{}", row(16, "Meta"));
    for name in ["Name", "company", "ISIN", "stock"] {
        let header = format!("date,open,high,low,close,volume,{name}\n");
        for (symbol, rows, expected) in [
            (None, &renamed, vec![("META", 20)]),
            (Some("META"), &renamed, vec![("META", 20)]),
            (None, &shared, vec![("Facebook", 12), ("Meta", 9)]),
        ] {
            let text = format!("{header}{rows}");
            let options = ReadOptions { symbol: symbol.map(str::to_owned), ..ReadOptions::default() };
            let files = [("META.csv", text.as_bytes())];
            let all = with_files(&files, |paths| read_all(paths, &options)).unwrap().recordings;
            let found: Vec<_> = all.iter().map(|one| (one.symbol.as_str(), one.bars.len())).collect();
            assert_eq!(found, expected, "{text}");
        }
    }
}
