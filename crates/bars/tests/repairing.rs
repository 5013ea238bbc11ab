//! One defect a file, read under each [`OnError`].

mod whole;
mod written;

use megabatch_bars::{ColumnFault, Error, OnError, Prices, ReadOptions, Repeats, RowError, RowFix, Timeframe, read};
use proptest::prelude::*;
use whole::read_pair;
use written::{minutes, read_texts, repair, with_files};

/// Rows between three good minutes and three more; the error under `fail`; bars and the dropped
/// kind under `skip`; bars and the dropped or fixed kind under `repair`.
struct Case {
    rows: &'static str,
    fails: RowError,
    skipped: u64,
    repaired: (u64, Result<RowFix, RowError>),
}

const CASES: [Case; 8] = [
    Case {
        rows: "null,null,null,null,null,null",
        fails: RowError::Unreadable,
        skipped: 6,
        repaired: (6, Err(RowError::Unreadable)),
    },
    Case {
        rows: "2018-07-02 00:03,1,1,1,1,-2",
        fails: RowError::Inconsistent,
        skipped: 6,
        repaired: (6, Err(RowError::Inconsistent)),
    },
    Case {
        rows: "2018-07-02 00:03,1,2,1.5,2,2",
        fails: RowError::Inconsistent,
        skipped: 6,
        repaired: (6, Err(RowError::Inconsistent)),
    },
    Case {
        rows: "2018-07-02 00:03,1,0.5,2,1,2",
        fails: RowError::Inconsistent,
        skipped: 6,
        repaired: (7, Ok(RowFix::Exchanged)),
    },
    Case {
        rows: "2018-07-02 00:03,1,0.99999999,1,1,2",
        fails: RowError::Inconsistent,
        skipped: 6,
        repaired: (7, Ok(RowFix::Widened)),
    },
    Case {
        rows: "2018-07-02 00:01,1,2,1,1,2",
        fails: RowError::Duplicate,
        skipped: 6,
        repaired: (6, Err(RowError::Duplicate)),
    },
    Case {
        rows: "2018-07-01 23:59,1,1,1,1,2",
        fails: RowError::Backward,
        skipped: 6,
        repaired: (7, Ok(RowFix::Sorted)),
    },
    Case {
        rows: "2018-07-02 00:01:30,1,1,1,1,2",
        fails: RowError::Backward,
        skipped: 6,
        repaired: (6, Err(RowError::Backward)),
    },
];

#[test]
fn every_defect_has_its_rule() {
    for Case { rows, fails, skipped, repaired } in CASES {
        let text = format!("{}{rows}\n{}", minutes("00", 3), minutes("01", 3));
        let read_with =
            |on_error| read_texts(&[("EURUSD.csv", &text)], &ReadOptions { on_error, ..ReadOptions::default() });
        let error = read_with(OnError::Fail).unwrap_err().to_string();
        assert!(error.contains(&format!("line 4: {fails}")) && error.contains(rows), "{error}");
        let summary = read_with(OnError::Skip).unwrap().summary;
        assert_eq!((summary.bars.all, summary.dropped(fails)), (skipped, 1), "{rows}");
        let summary = read_with(OnError::Repair).unwrap().summary;
        let counted = match repaired.1 {
            Ok(fix) => summary.fixed(fix),
            Err(kind) => summary.dropped(kind),
        };
        assert_eq!((summary.bars.all, counted), (repaired.0, 1), "{rows}");
        assert_eq!(summary.rows(), 7);
    }
}

/// `megabatch ingest DAT_ASCII_EURUSD_M1_2019.csv` stopped at "copy of an earlier row", as
/// HistData's files of 2019 have an hour twice, the same in every number.
#[test]
fn exact_copies_are_dropped_and_counted_in_every_mode() {
    let text = format!("{}{}{}", minutes("00", 3), minutes("00", 3), minutes("01", 3));
    for on_error in OnError::ALL {
        let summary = read_texts(&[("EURUSD.csv", &text)], &ReadOptions { on_error, ..ReadOptions::default() });
        let summary = summary.unwrap().summary;
        assert_eq!((summary.rows(), summary.bars.all, summary.dropped(RowError::Copy)), (9, 6, 3), "{on_error}");
        assert!(summary.to_string().contains("3 dropped as copy of an earlier row (first in line 4)"));
    }
}

#[test]
fn noise_is_rounded_off_only_when_repairing() {
    let text = "2018-07-02 00:00,1.16879,1.1687900000000002,1.16879,1.16879,1\n2018-07-02 00:01,1.5,1.5,1.5,1.5,1\n";
    for (on_error, high, fixed) in [(OnError::Fail, 1.168_790_000_000_000_2, 0), (OnError::Repair, 1.168_79, 1)] {
        let options = ReadOptions { on_error, ..ReadOptions::default() };
        let recording = read_texts(&[("EURUSD.csv", text)], &options).unwrap();
        assert_eq!((recording.bars.high[0], recording.summary.fixed(RowFix::Rounded)), (high, fixed));
    }
}

#[test]
fn corrected_rows_at_the_end_of_a_file_count_where_that_is_said() {
    let text = format!("{}2018-07-02 00:01,7,7,7,7,7\n", minutes("00", 3));
    for (repeats, close) in [(Repeats::First, 1.0), (Repeats::Last, 7.0)] {
        let options = ReadOptions { repeats, ..ReadOptions::default() };
        let recording = read_texts(&[("EURUSD.csv", &text)], &options).unwrap();
        assert_eq!((recording.bars.close[1], recording.summary.dropped(RowError::Duplicate)), (close, 1));
    }
    let error = read_texts(&[("EURUSD.csv", &text)], &ReadOptions::default()).unwrap_err().to_string();
    assert!(error.contains("line 2 is another") && error.contains("choose the row that counts"), "{error}");
}

#[test]
fn a_row_out_of_place_does_not_hide_that_the_newest_comes_first() {
    let mut rows: Vec<String> = minutes("00", 9).lines().rev().map(|line| format!("{line}\n")).collect();
    rows.swap(3, 4);
    let summary = read_texts(&[("EURUSD.csv", &rows.concat())], &repair()).unwrap().summary;
    assert!(summary.files[0].newest_first);
    assert_eq!((summary.bars.all, summary.fixed(RowFix::Sorted)), (9, 1));
}

#[test]
fn minutes_of_one_side_only_are_dropped_and_counted() {
    let bid = minutes("00", 4);
    let ask = bid.replace(",1,1,1,1,", ",1.5,1.5,1.5,1.5,");
    let ask = format!("{}{}", &ask[ask.len() / 4..], minutes("01", 1));
    let files = [("EURUSD_bid.csv", bid.as_bytes()), ("EURUSD_ask.csv", ask.as_bytes())];
    let joined = with_files(&files, |paths| read_pair(&paths[..1], &paths[1..], &ReadOptions::default())).unwrap();
    assert_eq!(
        (joined.bars.close, joined.bars.spread, joined.bars.volume),
        (vec![1.25; 3], vec![0.5; 3], vec![4.0; 3])
    );
    let pair = joined.summary.pair.unwrap();
    assert_eq!((pair.bid_only.count, pair.ask_only.count, pair.crossed.count), (1, 1, 0));
    let text = pair.to_string();
    assert!(text.starts_with("2 bars of one side only dropped: bid 1 (first at 2018-07-02T00:00:00Z)"), "{text}");
}

/// The days of a context beside them were taken to end with days in UTC, a bar later.
#[test]
fn days_of_both_sides_open_before_their_own_time() {
    let day = |day: u32| format!("2018-07-{day:02} 00:00:00-04:00,1,1,1,1,2\n");
    let bid: String = (2..=6).chain(9..=13).map(day).collect();
    let ask = bid.replace(",1,1,1,1,", ",1.5,1.5,1.5,1.5,");
    let files = [("EURUSD_bid.csv", bid.as_bytes()), ("EURUSD_ask.csv", ask.as_bytes())];
    let joined = with_files(&files, |paths| read_pair(&paths[..1], &paths[1..], &ReadOptions::default())).unwrap();
    assert_eq!((joined.bars.len(), joined.summary.early_ns), (10, 4 * 3_600_000_000_000));
}

#[test]
fn sides_that_cross_are_refused_dropped_or_taken_as_equal() {
    let bid = minutes("00", 3);
    let ask = bid.replace("00:01,1,1,1,1,", "00:01,1,1,0.5,0.5,");
    let files = [("EURUSD_bid.csv", bid.as_bytes()), ("EURUSD_ask.csv", ask.as_bytes())];
    let joined = |on_error| {
        let options = ReadOptions { on_error, ..ReadOptions::default() };
        with_files(&files, |paths| read_pair(&paths[..1], &paths[1..], &options))
    };
    assert!(matches!(joined(OnError::Fail), Err(Error::Crossed { bid: 1.0, ask: 0.5, .. })));
    for (on_error, bars) in [(OnError::Skip, 2), (OnError::Repair, 3)] {
        let recording = joined(on_error).unwrap();
        assert_eq!((recording.bars.len(), recording.summary.pair.unwrap().crossed.count), (bars, 1));
        assert!(recording.bars.spread.iter().all(|&spread| spread == 0.0));
    }
}

#[test]
fn sides_that_do_not_belong_together_are_refused() {
    let (minute, hour) = (minutes("00", 3), minutes("01", 3));
    let hours = "2018-07-02 00:00,1,1,1,1,2\n2018-07-02 01:00,1,1,1,1,2\n";
    let cases = [
        ("EURUSD_ask.csv", hour.as_str(), "not one bar of both opens at the same time"),
        ("EURUSD_ask.csv", hours, "one has M1 bars and the other H1"),
        ("GBPUSD_ask.csv", minute.as_str(), "holds GBPUSD"),
    ];
    for (name, ask, says) in cases {
        let files = [("EURUSD_bid.csv", minute.as_bytes()), (name, ask.as_bytes())];
        let error = with_files(&files, |paths| read_pair(&paths[..1], &paths[1..], &ReadOptions::default()));
        let error = error.unwrap_err().to_string();
        assert!(error.contains(says) && error.contains("EURUSD_bid.csv"), "{error}");
    }
}

/// Lines that are nearly rows.
fn nearly_rows() -> impl Strategy<Value = String> {
    let line = prop_oneof![
        4 => (0..90u8, 0..4u8).prop_map(|(minute, price)| {
            format!("2018-11-04 {:02}:{:02},1,{price},1,1,2", minute / 60, minute % 60)
        }),
        1 => "[-0-9:., a-z\"\t;/]{0,40}",
        1 => (0..90u8).prop_map(|bar| format!("2018-11-03 {:02}:00,1,1,1,1,0", bar % 24)),
        1 => (0..20u8).prop_map(|day| format!("{day}/{}/2018 1:00 PM,1,1,1,1", day / 2)),
        1 => Just("15304896001,1,1,1,1".to_owned()),
        1 => prop::sample::select(vec![
            "1850-01-01 00:00,1,1,1,1,2", "2140-12-31 23:59,1e308,1e308,1e-308,1,1e308", "2018-11-04 01:00,1.1000000000000001,1e308,1e-9,1,0",
            "2018-11-04 00:05,1,1,1,1,-1", "2018-11-04 00:06,1,1,1,1,1.5M", "2018-11-04 00:07 US/Eastern,1,1,1,1,2",
            "2018-11-04 00:07:15,1,1,1,1,2", "04-Nov-2018 00:09,1,2,1,1,2", ",2018-11-04,1,1,1,1,-", "Price,Open,High,Low,Close",
            "Ticker,A,A,B,B", "time,open,high,low,close,symbol", "2018-11-04 00:08,1,1,1,1,2,A",
        ]).prop_map(str::to_owned),
        1 => Just("date,open,high,low,close,spread".to_owned()),
    ];
    prop::collection::vec(line, 0..30).prop_map(|lines| lines.join("\n"))
}

proptest! {
    /// Whatever the bytes, reading ends in bars that keep their invariants or in an error, and no
    /// row is lost from count.
    #[test]
    fn any_file_is_read_or_refused(
        text in nearly_rows(), bytes in prop::collection::vec(any::<u8>(), 0..40), zone in prop::bool::ANY,
    ) {
        let zone = zone.then(|| "America/New_York".parse().unwrap());
        for on_error in OnError::ALL {
            let options = ReadOptions { on_error, zone: zone.clone(), ..ReadOptions::default() };
            for bytes in [text.as_bytes(), &bytes, &[text.as_bytes(), &bytes].concat()] {
                let Ok(recording) = with_files(&[("EURUSD.csv", bytes)], |paths| read(paths, &options)) else { continue };
                let (bars, file) = (&recording.bars, &recording.summary.files[0]);
                let dropped: u64 = file.dropped.iter().map(|tally| tally.rows).sum();
                prop_assert_eq!(file.kept + dropped, file.rows);
                prop_assert!(bars.open_time.is_sorted_by(|a, b| a < b));
                for bar in (0..bars.len()).map(|k| bars.bar(k)) {
                    prop_assert!(bar.low > 0.0 && bar.low <= bar.open.min(bar.close) && bar.high >= bar.open.max(bar.close));
                }
                let _ = recording.summary.to_string();
            }
        }
    }
}

#[test]
fn columns_in_another_order_are_refused_whatever_is_wanted() {
    // Places of open, high, low and close.
    for order in [[3, 2, 1, 0], [0, 3, 1, 2], [1, 0, 2, 3]] {
        let price = |minute: usize, place: usize| [2, 5, 1, 4][order[place]] + minute % 3;
        let row = |minute: usize| {
            let prices: Vec<String> = (0..4).map(|place| price(minute, place).to_string()).collect();
            format!("2018-07-02 00:{minute:02},{},2\n", prices.join(","))
        };
        let text: String = (0..60).map(row).collect();
        for on_error in OnError::ALL {
            let options = ReadOptions { on_error, ..ReadOptions::default() };
            let error = read_texts(&[("EURUSD.csv", &text)], &options).unwrap_err();
            let Error::Columns { fault, .. } = &error else { panic!("{error}") };
            assert!(matches!(**fault, ColumnFault::Order { misfits: 60, rows: 60, first_line: 1, .. }), "{error}");
            let error = error.to_string();
            assert!(error.contains("another order") && error.contains("header"), "{error}");
        }
    }
}

#[test]
fn sides_in_each_others_place_or_twice_the_same_are_refused_whatever_is_wanted() {
    let bid = minutes("00", 5);
    // The ask is above the bid but for one close.
    let ask = bid.replace(",1,1,1,1,", ",2,2,2,2,").replacen("2,2,2,2,", "2,2,0.5,0.5,", 1);
    let files = [("EURUSD_bid.csv", bid.as_bytes()), ("EURUSD_ask.csv", ask.as_bytes())];
    for on_error in OnError::ALL {
        let options = ReadOptions { on_error, ..ReadOptions::default() };
        let joined = |[bid, ask]: [usize; 2]| {
            with_files(&files, |paths| read_pair(&paths[bid..=bid], &paths[ask..=ask], &options))
                .unwrap_err()
                .to_string()
        };
        let exchanged = joined([1, 0]);
        assert!(exchanged.contains("at 4 of 5 bars: are bid and ask exchanged?"), "{on_error}: {exchanged}");
        let twice = joined([0, 0]);
        assert!(twice.contains("all 5 bars") && twice.contains("was one side named twice?"), "{on_error}: {twice}");
    }
}

#[test]
fn one_stray_time_costs_one_row() {
    let rows: Vec<String> = minutes("00", 50).lines().map(|line| format!("{line}\n")).collect();
    for stray in ["2031-01-01 00:00", "1970-01-01 00:00"] {
        let text = format!("{}{stray},1,1,1,1,2\n{}", rows[..20].concat(), rows[20..].concat());
        for on_error in [OnError::Skip, OnError::Repair] {
            let options = ReadOptions { on_error, ..ReadOptions::default() };
            let summary = read_texts(&[("EURUSD.csv", &text)], &options).unwrap().summary;
            assert_eq!((summary.bars.all, summary.gaps.count(), summary.fixed(RowFix::Sorted)), (50, 0, 0), "{stray}");
        }
        let error = read_texts(&[("EURUSD.csv", &text)], &ReadOptions::default()).unwrap_err().to_string();
        assert!(error.contains("line 21: ") && error.contains(stray), "{error}");
    }
    for text in [
        format!("1970-01-01 00:00,1,1,1,1,2\n{}", rows.concat()),
        format!("{}2031-01-01 00:00,1,1,1,1,2\n", rows.concat()),
    ] {
        let warnings = read_texts(&[("EURUSD.csv", &text)], &ReadOptions::default()).unwrap().summary.warnings;
        assert!(
            warnings.iter().any(|warning| warning.contains("1 bar lies more than a year from the others")),
            "{warnings:?}"
        );
    }
}

#[test]
fn a_shuffled_file_is_sorted_on_its_stated_base() {
    let mut rows: Vec<String> = minutes("00", 40).lines().map(|line| format!("{line}\n")).collect();
    rows.sort_by_key(|row| row[15..16].parse::<u8>().unwrap() % 2);
    let options = ReadOptions { base: Some(Timeframe::M1), ..repair() };
    let summary = read_texts(&[("EURUSD.csv", &rows.concat())], &options).unwrap().summary;
    assert_eq!((summary.bars.all, summary.gaps.count()), (40, 0));
}

/// A file of daily bars with volume and open interest and without a header was taken for Yahoo's:
/// exit 0 with prices multiplied by volume / close, in the default mode.
#[test]
fn a_volume_is_not_taken_for_an_adjusted_close() {
    let day = |day: usize, sixth: &str| format!("2018-07-{:02},10,11,9,10,{sixth},0\n", day + 2);
    let volumes: String = (0..20).map(|k| day(k, &(1000 + 37 * k).to_string())).collect();
    let near: String = (0..20).map(|k| day(k, ["31", "12", "55"][k % 3])).collect();
    let zero: String = (0..20).map(|k| day(k, if k == 7 { "0" } else { "9.5" })).collect();
    for (text, line) in [(volumes.as_str(), 1), (&near, 2), (&zero, 8)] {
        for (on_error, prices) in
            OnError::ALL.into_iter().zip([Prices::AdjustedIfGiven, Prices::AsQuoted, Prices::Adjusted])
        {
            let options = ReadOptions { on_error, prices, ..ReadOptions::default() };
            let error = read_texts(&[("AAPL.csv", text)], &options).unwrap_err();
            let error = error.to_string();
            assert!(error.contains(&format!("AAPL.csv: line {line}: ")) && error.contains("field 6 "), "{error}");
            assert!(error.contains("`date,open,high,low,close,volume,openint`"), "{error}");
        }
    }
    let named = format!("date,open,high,low,close,volume,openint\n{volumes}");
    let bars = read_texts(&[("AAPL.csv", &named)], &ReadOptions::default()).unwrap().bars;
    assert_eq!((bars.close[0], bars.volume[1]), (10.0, 1037.0));
    let yahoo: String = (0..20).map(|k| day(k, if k < 9 { "5" } else { "10" })).collect();
    let bars = read_texts(&[("AAPL.csv", &yahoo)], &ReadOptions::default()).unwrap().bars;
    assert_eq!((bars.close[0], bars.close[19]), (5.0, 10.0));
}

/// Two files put one behind the other, the second with open and close exchanged: 2,747 rows were
/// read from the wrong columns under `--on-error skip`, with exit 0 and one unreadable row.
#[test]
fn another_header_further_down_is_refused_in_every_mode() {
    let header = "time,open,high,low,close,volume\n";
    for (second, says) in [
        ("time,close,high,low,open,volume", "names other columns"),
        ("Time,Open,High,Low,Close,Spread,Volume", "names other columns"),
        ("time,open,high,low,last,volume", "names some columns, but not `close`"),
    ] {
        for first in [header, ""] {
            let text = format!("{first}{}{second}\n{}", minutes("00", 3), minutes("01", 3));
            for on_error in OnError::ALL {
                let options = ReadOptions { on_error, ..ReadOptions::default() };
                let error = read_texts(&[("EURUSD.csv", &text)], &options).unwrap_err().to_string();
                let line = if first.is_empty() { 4 } else { 5 };
                assert!(error.contains(&format!("EURUSD.csv: line {line}: ")) && error.contains(says), "{error}");
                assert!(error.contains("cut the file in two"), "{error}");
            }
        }
    }
    // The same names in another spelling are no row.
    for first in [header, ""] {
        let text = format!("{first}{}Date;Open;High;Low;Close;Volume\n{}", minutes("00", 3), minutes("01", 3));
        let text = text.replace(';', ",");
        let summary = read_texts(&[("EURUSD.csv", &text)], &ReadOptions::default()).unwrap().summary;
        assert_eq!((summary.rows(), summary.kept()), (6, 6));
    }
}
