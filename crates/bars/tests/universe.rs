//! Many instruments at once: what is wrong with one costs that one.

mod whole;

use std::path::PathBuf;

use megabatch_bars::{
    Bar, Bars, Error, Feature, OnError, ReadOptions, Result, Scaling, SeriesSpec, StreamedInstrument, TargetKind,
    Timeframe, Universe, Window, bar_files, read_all,
};
use whole::{WholeSeries, align, align_usable, instrument};

const DAY_NS: i64 = 86_400_000_000_000;
const ALPHA_VANTAGE: &str = "timestamp,open,high,low,close,adjusted_close,volume,dividend_amount,split_coefficient\n\
     2021-04-21,4,8,2,4,4,9,0.0,1.0\n2021-04-20,3,3,3,3,3,9,0.0,4.0\n2021-04-19,12,16,8,12,2.9,9,0.5,1.0\n";
const YAHOO: &str = "Date,Open,High,Low,Close,Adj Close,Volume\n2021-04-19,4,8,2,4,2,9\n2021-04-20,4,8,2,4,4,9\n";
const NULLS: &str = "Date,Open,High,Low,Close,Adj Close,Volume\n2021-04-19,4,8,2,4,2,9\n\
                     2021-04-20,null,null,null,null,null,null\n2021-04-21,4,8,2,4,4,9\n2021-04-22,4,8,2,4,4,9\n";
const SAVED_ERROR: &str = "{\nError Message\n}\n";
const CROSSED: &str = "Date,Open,High,Low,Close\n2021-04-19,4,1,8,4\n2021-04-20,4,8,2,4\n2021-04-21,4,8,2,4\n";

/// Reads files of the given names and texts as one folder.
fn read_folder(texts: &[(&str, &str)], options: &ReadOptions) -> Result<Universe> {
    let folder = tempfile::tempdir().unwrap();
    texts.iter().for_each(|(name, text)| std::fs::write(folder.path().join(name), text).unwrap());
    read_all(&bar_files(folder.path()).unwrap(), options)
}

fn treated(on_error: OnError) -> ReadOptions {
    ReadOptions { on_error, ..ReadOptions::default() }
}

fn symbols(universe: &Universe) -> (Vec<&str>, Vec<&str>) {
    (
        universe.recordings.iter().map(|recording| recording.symbol.as_str()).collect(),
        universe.excluded.iter().map(|excluded| excluded.symbol.as_str()).collect(),
    )
}

#[test]
fn headers_of_daily_shares_are_read() {
    // Name, text, symbol, closes, splits and dividends that are told.
    let cases = [
        ("DA-BRK.B-T-2021-04-21.csv", ALPHA_VANTAGE, "BRK.B", vec![2.9, 3.0, 4.0], (1, 1)),
        ("daily_adjusted_IBM.csv", ALPHA_VANTAGE, "IBM", vec![2.9, 3.0, 4.0], (1, 1)),
        ("SNP.csv", YAHOO, "SNP", vec![2.0, 4.0], (0, 0)),
    ];
    for (name, text, symbol, closes, told) in cases {
        let universe = read_folder(&[(name, text)], &ReadOptions::default()).unwrap();
        let recording = &universe.recordings[0];
        let adjusted = recording.summary.files[0].adjusted.as_ref().unwrap();
        assert_eq!((recording.symbol.as_str(), &recording.bars.close), (symbol, &closes), "{name}");
        assert_eq!((adjusted.splits.len(), adjusted.dividends), told, "{name}");
        assert!((recording.bars.high[0] / recording.bars.low[0] - 2.0).abs() < 3.0, "{name}");
    }
}

#[test]
fn rows_of_several_symbols_in_a_file_are_a_universe() {
    let row = |symbol: &str, day: i64| format!("2021-04-{day:02},{day},40,1,2,5,{symbol}\n");
    let header = "date,open,high,low,close,volume,Name\n";
    let days = |symbol| (1..25).map(move |day| row(symbol, day));
    let alone = |symbol| format!("{header}{}", days(symbol).collect::<String>());
    let by_day: String = (1..25).flat_map(|day| ["B", "A", "C"].map(|symbol| row(symbol, day))).collect();
    let by_symbol: String = ["C", "A", "B"].into_iter().flat_map(days).collect();
    let apart =
        read_folder(&[("A.csv", &alone("A")), ("B.csv", &alone("B")), ("C.csv", &alone("C"))], &treated(OnError::Fail));
    let apart = apart.unwrap();
    for rows in [
        by_day,
        by_symbol,
        format!("{by_day}{header}", by_day = days("A").chain(days("B")).chain(days("C")).collect::<String>()),
    ] {
        let together = read_folder(&[("all_stocks.csv", &format!("{header}{rows}"))], &treated(OnError::Fail)).unwrap();
        assert_eq!(symbols(&together), (vec!["A", "B", "C"], vec![]));
        for (one, other) in together.recordings.iter().zip(&apart.recordings) {
            assert_eq!(one.bars, other.bars);
        }
    }
}

/// Each number of the feature was an instrument.
#[test]
fn a_column_that_is_a_feature_names_no_symbols() {
    let rows: String = (1..25).map(|day| format!("2021-04-{day:02},1,1,1,1,5,{}\n", day % 3)).collect();
    let text = format!("date,open,high,low,close,volume,stock\n{rows}");
    for symbol in [None, Some("A".to_owned())] {
        let options = ReadOptions { columns: vec!["stock".to_owned()], symbol, ..ReadOptions::default() };
        let universe = read_folder(&[("A.csv", &text)], &options).unwrap();
        assert_eq!(symbols(&universe), (vec!["A"], vec![]));
        assert_eq!(universe.recordings[0].bars.columns[0][..3], [1.0, 2.0, 0.0]);
    }
}

/// A frame refused them, and of a file each was an instrument.
#[test]
fn symbols_that_differ_in_case_alone_are_refused() {
    let rows: String = ["AAPL", "IBM", "aapl"].map(|symbol| format!("2021-04-01,1,1,1,1,1,{symbol}\n")).concat();
    let text = format!("date,open,high,low,close,volume,symbol\n{rows}");
    let error = read_folder(&[("all.csv", &text)], &treated(OnError::Skip)).unwrap_err().to_string();
    assert!(error.contains("all.csv: the symbols AAPL and aapl differ in the case of letters alone"), "{error}");
}

/// It refused the universe without a word on which ticker it was.
#[test]
fn a_ticker_whose_columns_are_empty_is_named() {
    let header =
        "Price,Open,High,Low,Close,Open,High,Low,Close\nTicker,AAA,AAA,AAA,AAA,BBB,BBB,BBB,BBB\nDate,,,,,,,,\n";
    for empty in [",,,", "NaN,NaN,NaN,NaN"] {
        let rows: String = (1..25).map(|day| format!("2021-04-{day:02},{day},40,1,2,{empty}\n")).collect();
        let text = format!("{header}{rows}");
        let texts = [("prices.csv", &*text)];
        let error = read_folder(&texts, &treated(OnError::Fail)).unwrap_err().to_string();
        assert!(error.starts_with("BBB: ") && error.contains("prices.csv: all 24 rows are empty (a failed"), "{error}");
        for on_error in [OnError::Skip, OnError::Repair] {
            let universe = read_folder(&texts, &treated(on_error)).unwrap();
            assert_eq!(symbols(&universe), (vec!["AAA"], vec!["BBB"]));
            let told = &universe.describe_excluded()[0];
            assert!(told.starts_with("BBB: ") && told.contains("all 24 rows are empty"), "{told}");
        }
    }
    let header = header.replace("AAA,AAA,AAA,AAA", "CCC,CCC,CCC,CCC");
    let rows: String = (1..25).map(|day| format!("2021-04-{day:02},,,,,,,,\n")).collect();
    let error = read_folder(&[("prices.csv", &format!("{header}{rows}"))], &treated(OnError::Skip)).unwrap_err();
    assert!(error.to_string().contains("(BBB, CCC): all 24 rows are empty"), "{error}");
}

#[test]
fn one_file_that_cannot_be_used_costs_its_instrument() {
    // Name and text of a file beside two good ones, and whether it is left out by fail, skip and
    // repair.
    let cases = [
        ("BAD.csv", SAVED_ERROR, [true, true, true]),
        ("BAD.csv", "", [true, true, true]),
        ("BAD.csv", "Date,Last,Open,High,Low\n2018-01-01,1,1,1,1\n", [true, true, true]),
        ("BAD.csv", NULLS, [true, false, false]),
        ("BAD.csv", CROSSED, [true, false, false]),
        ("BAD.csv", YAHOO, [false, false, false]),
    ];
    for (name, text, is_left_out) in cases {
        for (on_error, is_left_out) in OnError::ALL.into_iter().zip(is_left_out) {
            let read = read_folder(&[("AAA.csv", YAHOO), (name, text), ("ZZZ.csv", YAHOO)], &treated(on_error));
            match (is_left_out, on_error) {
                (true, OnError::Fail) => assert!(read.unwrap_err().to_string().contains("BAD.csv"), "{text}"),
                (true, _) => assert_eq!(symbols(&read.unwrap()), (vec!["AAA", "ZZZ"], vec!["BAD"]), "{text}"),
                (false, _) => assert_eq!(symbols(&read.unwrap()), (vec!["AAA", "BAD", "ZZZ"], vec![]), "{text}"),
            }
        }
    }
}

#[test]
fn all_that_cannot_be_used_are_named_at_once() {
    let files = [("A.csv", SAVED_ERROR), ("B.csv", YAHOO), ("C.csv", NULLS), ("D.csv", SAVED_ERROR)];
    let error = read_folder(&files, &ReadOptions::default()).unwrap_err();
    let message = error.to_string();
    assert!(matches!(error, Error::Several { instruments: 4, .. }), "{message}");
    for part in ["3 of 4 instruments", "2 instruments (A, D): no bars", "A.csv", "C.csv: line 3"] {
        assert!(message.contains(part), "{part} in {message}");
    }
    // Nobody is left to go on with.
    let message = read_folder(&[files[0], files[3]], &treated(OnError::Skip)).unwrap_err().to_string();
    assert!(message.contains("2 of 2 instruments"), "{message}");
}

#[test]
fn slips_are_no_errors_of_the_data() {
    let missing = PathBuf::from("no such folder/AAPL.csv");
    assert!(matches!(read_all(&[missing], &treated(OnError::Skip)), Err(Error::Open { .. })));
    let pattern = Some("DA-{}-T".parse().unwrap());
    let options = ReadOptions { symbol_pattern: pattern, ..treated(OnError::Skip) };
    let universe = read_folder(&[("DA-x-T.csv", YAHOO)], &options).unwrap();
    assert_eq!(symbols(&universe), (vec!["X"], vec![]));
    let message = read_folder(&[("x.csv", YAHOO)], &options).unwrap_err().to_string();
    assert!(message.contains("x.csv: its name does not fit `DA-{}-T`"), "{message}");
}

#[test]
fn a_folder_is_its_files_of_bars() {
    let folder = tempfile::tempdir().unwrap();
    let error = bar_files(folder.path()).unwrap_err().to_string();
    assert!(error.contains("no files of bars in the folder"), "{error}");
    // The archive `a.ZIP` has what is beside it.
    for name in [
        "b.CSV",
        "a.csv.gz",
        "c.tsv",
        "d.txt",
        "e.md",
        ".f.csv",
        "g.csv.part",
        ".csv",
        "gz",
        "i.zip",
        "k.parquet",
        "l.PQ",
        "a.ZIP",
        "j.csv.zip",
    ] {
        std::fs::write(folder.path().join(name), "").unwrap();
    }
    std::fs::create_dir(folder.path().join("h.csv")).unwrap();
    let found: Vec<_> = bar_files(folder.path()).unwrap();
    let names: Vec<&str> = found.iter().map(|file| file.file_name().unwrap().to_str().unwrap()).collect();
    assert_eq!(names, ["a.csv.gz", "b.CSV", "c.tsv", "d.txt", "i.zip", "j.csv.zip", "k.parquet", "l.PQ"]);
    assert_eq!(bar_files(&found[1]).unwrap(), [found[1].clone()]);
}

/// Daily bars of the given days.
fn bars(days: impl IntoIterator<Item = i64>) -> Bars {
    let mut bars = Bars::with_capacity(Timeframe::D1, 0);
    for day in days {
        let close = 100.0 * (0.7 * day as f64).sin().exp();
        let (high, low) = (close * 1.1, close * 0.9);
        bars.push(Bar { open_time: day * DAY_NS, open: close, high, low, close, volume: 1.0, ..Bar::default() });
    }
    bars
}

fn spec(stride: usize) -> SeriesSpec {
    SeriesSpec {
        windows: vec![Window { timeframe: Timeframe::D1, seq_len: 3 }],
        features: vec![Feature::LogReturn],
        horizon: 2,
        target_kind: TargetKind::LogReturn,
        stride,
        scaling: Scaling::Standard,
        ..SeriesSpec::default()
    }
}

fn instruments<'a>(named: &[(&'a str, &'a Bars)]) -> Vec<StreamedInstrument<'a>> {
    named.iter().map(|&(name, bars)| instrument(name, bars, 1.0)).collect()
}

/// Days at whose end an instrument has its samples.
fn sample_days(series: &WholeSeries, instrument: i32) -> Vec<i64> {
    let samples = series.sample_time.iter().zip(&series.sample_instrument);
    samples.filter(|&(_, &own)| own == instrument).map(|(&time, _)| time / DAY_NS - 1).collect()
}

#[test]
fn samples_stand_at_common_instants_whatever_bars_are_missing() {
    // The second lacks day 9, which the first has; both lack days 12 and 13; the third begins late.
    let whole = bars((0..40).filter(|day| ![12, 13].contains(day)));
    let torn = bars((0..40).filter(|day| ![9, 12, 13].contains(day)));
    let late = bars((17..40).filter(|&day| day != 30));
    let named = [("W", &whole), ("T", &torn), ("L", &late)];
    let all = align(&instruments(&named), &spec(1)).unwrap();
    for stride in [1usize, 2, 3, 5] {
        let series = align(&instruments(&named), &spec(stride)).unwrap();
        // The first full window ends on day 3; the last sample has two days behind it.
        let union: Vec<i64> = (3..40).filter(|day| ![12, 13].contains(day)).step_by(stride).collect();
        for instrument in 0..3 {
            let possible = sample_days(&all, instrument);
            let expected: Vec<i64> = union.iter().copied().filter(|day| possible.contains(day)).collect();
            assert_eq!(sample_days(&series, instrument), expected, "{stride}");
        }
        // Values are those of the same samples without a stride.
        for n in 0..series.len() {
            let same = |k: &usize| {
                (all.sample_time[*k], all.sample_instrument[*k]) == (series.sample_time[n], series.sample_instrument[n])
            };
            let k = (0..all.len()).find(same).unwrap();
            assert_eq!(series.targets[2 * n..2 * n + 2], all.targets[2 * k..2 * k + 2]);
        }
    }
}

#[test]
fn targets_are_log_returns_of_the_days_that_follow() {
    let days = bars(0..20);
    let series = align(&instruments(&[("A", &days)]), &spec(1)).unwrap();
    for (n, targets) in series.targets.chunks_exact(2).enumerate() {
        let day = (series.sample_time[n] / DAY_NS - 1) as usize;
        let expected = [1, 2].map(|k| (days.close[day + k] / days.close[day]).ln() as f32);
        assert_eq!(targets, expected);
    }
}

#[test]
fn instruments_that_cannot_be_aligned_are_left_out_or_all_named() {
    // Too short for a sample; and, beside two that end before it begins, without a past to fit
    // scalers on.
    let (whole, short, late) = (bars(0..40), bars(0..5), bars(32..44));
    let named = [("A", &whole), ("B", &short), ("C", &late), ("D", &whole)];
    let (series, excluded) = align_usable(&instruments(&named), &spec(1)).unwrap();
    assert_eq!(series, align(&instruments(&[("A", &whole), ("D", &whole)]), &spec(1)).unwrap());
    let reasons: Vec<String> = excluded.iter().map(ToString::to_string).collect();
    assert!(reasons[0].starts_with("B: too few bars for one sample"), "{reasons:?}");
    assert!(reasons[1].starts_with("C: it begins too late: only 0 of its D1 bars"), "{reasons:?}");
    let message = align(&instruments(&named), &spec(1)).unwrap_err().to_string();
    assert!(
        message.starts_with("2 of 4 instruments") && reasons.iter().all(|reason| message.contains(reason)),
        "{message}"
    );
    // One alone speaks for itself, and nobody is left out of nothing.
    assert!(matches!(align_usable(&instruments(&named[1..2]), &spec(1)), Err(Error::TooShort { .. })));
    let unscaled = SeriesSpec { scaling: Scaling::None, ..spec(1) };
    assert_eq!(align_usable(&instruments(&[named[0], named[2]]), &unscaled).unwrap().1.len(), 0);
}
