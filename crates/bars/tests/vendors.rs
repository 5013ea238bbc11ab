//! Files as vendors and other programs write them, made up here: what is read, and what is refused.

#[allow(dead_code, reason = "each file of tests uses a part of it")]
mod written;

use megabatch_bars::{OnError, ReadOptions, Recording};
use written::read_texts;

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

/// What remains of yfinance's file when its three header lines are deleted was read as open, high,
/// low and close, and `leak` passed.
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
    let of_two = "Price,Close,Close,High,High,Low,Low,Open,Open,Volume,Volume\n\
                  Ticker,AAPL,MSFT,AAPL,MSFT,AAPL,MSFT,AAPL,MSFT,AAPL,MSFT\nDate,,,,,,,,,,\n";
    let of_tickers = "Ticker,MSFT,MSFT,MSFT,MSFT,MSFT,AAPL,AAPL,AAPL,AAPL,AAPL\n\
                      Price,Open,High,Low,Close,Volume,Open,High,Low,Close,Volume\nDate,,,,,,,,,,\n";
    for header in ["Date,,,,,\n", "Datetime,,,,,\n", ""] {
        let recording = recording_of(&format!("{names}{header}{one}"));
        assert_eq!((&recording.bars, recording.summary.files[0].preamble), (&expected.bars, 0), "{header}");
    }
    let unnamed = names.replace("Price,", ",").replace("Ticker,", ",");
    assert_eq!(recording_of(&format!("{unnamed}{one}")).bars, expected.bars);
    for text in [format!("{of_two}{two}"), format!("{of_tickers}{by_ticker}")] {
        let error = error_of(&text, &ReadOptions::default());
        assert!(error.contains("AAPL.csv: ") && error.contains("AAPL") && error.contains("MSFT"), "{error}");
        assert!(error.contains("several symbols"), "{error}");
        for (symbol, first) in [("AAPL", expected.bars.open[0]), ("MSFT", 7.0)] {
            let options = ReadOptions { symbol: Some(symbol.to_owned()), ..ReadOptions::default() };
            let bars = read_texts(&[("prices.csv", &text)], &options).unwrap().bars;
            assert_eq!((bars.len(), bars.open[0]), (30, first), "{symbol}");
        }
    }
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

/// A column of symbols was passed over: one series of both came out.
#[test]
fn rows_of_several_symbols_are_refused_with_column_and_values() {
    let row = |symbol: &str, day: usize| format!("{},1,2,1,2,5,{symbol}\n", date(day));
    let header = "date,open,high,low,close,volume,symbol\n";
    let turns: String = (0..20).map(|k| row(["AAA", "BBB"][k % 2], k)).collect();
    let apart: String = (0..20).map(|k| row(if k < 10 { "AAA" } else { "BBB" }, k)).collect();
    let one: String = (0..20).map(|k| row("AAA", k)).collect();
    for on_error in OnError::ALL {
        for rows in [&turns, &apart] {
            for symbol in [None, Some("BBB".to_owned())] {
                let error =
                    error_of(&format!("{header}{rows}"), &ReadOptions { on_error, symbol, ..ReadOptions::default() });
                assert!(error.contains("column `symbol`") && error.contains("AAA") && error.contains("BBB"), "{error}");
                assert!(error.contains("line "), "{error}");
            }
        }
        assert_eq!(recording_of(&format!("{header}{one}")).bars.len(), 20);
    }
    for name in ["Ticker", "<TICKER>", "instrument", "Symbol"] {
        let text = format!("{}{turns}", header.replace("symbol", name));
        assert!(error_of(&text, &ReadOptions::default()).contains("AAA"), "{name}");
    }
}
