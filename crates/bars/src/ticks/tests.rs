use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::num::NonZeroU64;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;
use proptest::prelude::*;
use tempfile::TempDir;

use crate::error::row_error::{OnError, RowError};
use crate::error::tick_error::TickError;
use crate::error::{Error, Result};
use crate::ticks::aggregator::{Aggregator, Tick, TickBar};
use crate::ticks::bar_rule::BarRule;
use crate::ticks::format::TickFormat;
use crate::ticks::options::{TickOptions, TickPrice, TickVolume};
use crate::ticks::reader::{TickBarReader, TickSummary};
use crate::time::bin_clock::BinClock;
use crate::time::timeframe::Timeframe;
use crate::time::timestamp::{HOUR_NS, MINUTE_NS, display_utc};

const METATRADER: &str = "<DATE>\t<TIME>\t<BID>\t<ASK>\t<LAST>\t<VOLUME>\t<FLAGS>\r\n\
    2018.01.02\t00:00:00.100\t1.20037\t1.20040\t\t\t6\r\n\
    2018.01.02\t00:00:30.000\t\t1.20043\t\t\t4\r\n\
    2018.01.02\t00:01:00.000\t1.20039\t\t\t\t2\r\n";

struct Folder(TempDir);

impl Folder {
    fn new() -> Self {
        Folder(tempfile::tempdir().unwrap())
    }

    fn file(&self, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
        let path = self.0.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        path
    }
}

fn m1() -> TickOptions {
    TickOptions::new(BarRule::Timeframe(Timeframe::M1))
}

fn ticks_each(count: u64) -> TickOptions {
    TickOptions::new(BarRule::Ticks(NonZeroU64::new(count).unwrap()))
}

fn read_files(paths: &[PathBuf], options: &TickOptions) -> Result<(Vec<TickBar>, TickSummary)> {
    let mut reader = TickBarReader::open(paths, options.clone(), &|_| ControlFlow::Continue(()))?;
    let mut bars = Vec::new();
    while let Some(bar) = reader.next_bar()? {
        bars.push(bar);
    }
    Ok((bars, reader.summary()))
}

fn read(text: &str, options: &TickOptions) -> Result<(Vec<TickBar>, TickSummary)> {
    let folder = Folder::new();
    read_files(&[folder.file("ticks.csv", text)], options)
}

/// Open time, prices, volume and spread of a bar, as a line.
fn line(bar: &TickBar) -> String {
    let TickBar { open_time, open, high, low, close, volume, spread, .. } = bar;
    format!("{} {open} {high} {low} {close} {volume} {spread}", display_utc(*open_time))
}

/// Reads ticks and compares format and bars.
fn check(text: &str, options: &TickOptions, format: TickFormat, expected: &[&str]) {
    let (bars, summary) = read(text, options).unwrap();
    assert_eq!(bars.iter().map(line).collect::<Vec<_>>(), expected, "{text}");
    assert_eq!(summary.format, format, "{text}");
    assert_eq!(summary.bars as usize, bars.len());
}

#[test]
fn metatrader_leaves_out_what_has_not_changed() {
    let options = TickOptions { zone: Some("new-york+7".parse().unwrap()), ..m1() };
    // The clock is two hours ahead of UTC in winter.
    let expected = [
        "2018-01-01T22:00:00Z 1.200385 1.2004 1.200385 1.2004 2 0.00006",
        "2018-01-01T22:01:00Z 1.20041 1.20041 1.20041 1.20041 1 0.00004",
    ];
    check(METATRADER, &options, TickFormat::MetaTrader, &expected);
    let bid = TickOptions { price: Some(TickPrice::Bid), ..options.clone() };
    let expected = [
        "2018-01-01T22:00:00Z 1.20037 1.20037 1.20037 1.20037 2 0.00006",
        "2018-01-01T22:01:00Z 1.20039 1.20039 1.20039 1.20039 1 0.00004",
    ];
    check(METATRADER, &bid, TickFormat::MetaTrader, &expected);
    let (_, rows) = METATRADER.split_once('\n').unwrap();
    for header in ["", "Datum\tZeit\tGeld\tBrief\tLetzter\tVolumen\tMarken\r\n"] {
        check(&format!("{header}{rows}"), &bid, TickFormat::MetaTrader, &expected);
    }
    let error = read(METATRADER, &m1()).unwrap_err();
    assert!(matches!(error, Error::Tick(TickError::UnknownZone { .. })), "{error}");

    // Before the first ask there is no mean; that is no fault.
    let late = METATRADER.replace("\t1.20040", "\t");
    let (bars, summary) = read(&late, &options).unwrap();
    assert_eq!((bars[0].ticks, summary.ticks), (1, 2));
    assert_eq!((summary.dropped[0].kind, summary.dropped[0].rows), (RowError::WarmUp, 1));
}

#[test]
fn trades_of_metatrader_are_ticks_where_the_last_price_counts() {
    let text = "<DATE>\t<TIME>\t<BID>\t<ASK>\t<LAST>\t<VOLUME>\t<FLAGS>\n\
        2018.01.02\t00:00:00.100\t99.5\t100.5\t\t\t6\n\
        2018.01.02\t00:00:01.000\t\t\t100\t3\t24\n\
        2018.01.02\t00:00:02.000\t\t101\t\t\t4\n\
        2018.01.02\t00:00:03.000\t\t\t\t2\t16\n";
    let options = TickOptions { zone: Some("UTC".parse().unwrap()), price: Some(TickPrice::Last), ..m1() };
    check(text, &options, TickFormat::MetaTrader, &["2018-01-02T00:00:00Z 100 100 100 100 5 1.5"]);
    let (bars, _) = read(text, &options).unwrap();
    assert_eq!(bars[0].ticks, 2);
}

#[test]
fn dukascopy_has_a_volume_of_each_side() {
    let text = "Gmt time,Ask,Bid,AskVolume,BidVolume\n\
        01.02.2018 22:00:00.123,1.25,1.2498,1.1,2.2\n\
        01.02.2018 22:00:59.999,1.2502,1.25,0.75,0.5\n";
    check(text, &m1(), TickFormat::Dukascopy, &["2018-02-01T22:00:00Z 1.2499 1.2501 1.2499 1.2501 4.55 0.0002"]);
    let local = text.replace("Gmt time", "Time (EET)").replace("01.02.2018", "2018.02.01");
    check(&local, &m1(), TickFormat::Dukascopy, &["2018-02-01T20:00:00Z 1.2499 1.2501 1.2499 1.2501 4.55 0.0002"]);
    let counted = TickOptions { volume: Some(TickVolume::Ticks), ..m1() };
    check(text, &counted, TickFormat::Dukascopy, &["2018-02-01T22:00:00Z 1.2499 1.2501 1.2499 1.2501 2 0.0002"]);
}

#[test]
fn histdata_is_five_hours_behind_all_year() {
    let text = "20180701 170000123,1.20037,1.20100,0\n20180701 170001456,1.20039,1.20100,0\n";
    let expected = "2018-07-01T22:00:00Z 1.200685 1.200695 1.200685 1.200695 2 0.00061";
    check(text, &m1(), TickFormat::HistData, &[expected]);
    let london = TickOptions { zone: Some("london-5".parse().unwrap()), ..m1() };
    let expected = "2018-07-01T21:00:00Z 1.200685 1.200695 1.200685 1.200695 2 0.00061";
    check(text, &london, TickFormat::HistData, &[expected]);
    let (bars, _) = read(text, &ticks_each(1)).unwrap();
    assert_eq!(display_utc(bars[1].open_time), "2018-07-01T22:00:01.456Z");
}

#[test]
fn truefx_has_one_symbol() {
    let text = "EUR/USD,20090501 00:00:00.123,1.32,1.33\nEUR/USD,20090501 00:00:01.5,1.34,1.35\n";
    check(text, &m1(), TickFormat::TrueFx, &["2009-05-01T00:00:00Z 1.325 1.345 1.325 1.345 2 0.01"]);
    let mixed = format!("{text}GBP/USD,20090501 00:00:02.000,1.5,1.6\n");
    let error = read(&mixed, &m1()).unwrap_err().to_string();
    assert!(error.contains("line 3: unreadable row: expected the symbol EUR/USD as in the rows before"), "{error}");
}

#[test]
fn columns_are_found_by_name() {
    let quotes = "timestamp,bid,ask\n1514764800123,1.5,1.75\n1514764801000000,2,2\n";
    check(quotes, &m1(), TickFormat::Csv, &["2018-01-01T00:00:00Z 1.625 2 1.625 2 2 0"]);
    let iso = "time;price;qty\n2018-01-01T00:00:00.5Z;10;0.1\n2018-01-01T00:00:01+01:00;9;0.2\n";
    let error = read(iso, &m1()).unwrap_err().to_string();
    assert!(error.contains("line 3: backward timestamp"), "{error}");
    let iso = iso.replace("+01:00", "");
    check(&iso, &m1(), TickFormat::Csv, &["2018-01-01T00:00:00Z 10 10 9 9 0.3 0"]);
    let futures = "id,price,qty,quote_qty,time,is_buyer_maker\n1,10,2,20,1514764800000,true\n";
    check(futures, &m1(), TickFormat::Csv, &["2018-01-01T00:00:00Z 10 10 10 10 2 0"]);
}

#[test]
fn trades_of_binance_have_no_header() {
    let single = "7,13000.5,0.25,3250.125,1514764800001,True,True\n8,13001,1,13001,1514764800002,False,True\n";
    check(single, &m1(), TickFormat::Binance, &["2018-01-01T00:00:00Z 13000.5 13001 13000.5 13001 1.25 0"]);
    // Aggregated trades since 2025 have microseconds.
    let aggregated = "5,13000.5,0.25,7,7,1514764800000001,True,True\n";
    check(aggregated, &m1(), TickFormat::Binance, &["2018-01-01T00:00:00Z 13000.5 13000.5 13000.5 13000.5 0.25 0"]);
    let (_, summary) = read(single, &m1()).unwrap();
    assert!(!summary.has_spread && summary.mean_spread.is_none());
}

/// Records of a bi5 file, packed.
fn bi5(records: &[(u32, u32, u32, f32, f32)]) -> Vec<u8> {
    let mut plain = Vec::new();
    for (millis, ask, bid, ask_volume, bid_volume) in records {
        plain.extend([*millis, *ask, *bid].map(u32::to_be_bytes).concat());
        plain.extend([*ask_volume, *bid_volume].map(f32::to_be_bytes).concat());
    }
    let mut packed = Vec::new();
    lzma_rs::lzma_compress(&mut plain.as_slice(), &mut packed).unwrap();
    packed
}

#[test]
fn hours_of_dukascopy_are_unpacked() {
    let folder = Folder::new();
    let hours = [
        folder.file("EURUSD/2018/00/02/23h_ticks.bi5", bi5(&[(0, 120_045, 120_041, 1.0, 1.0)])),
        folder.file(
            "EURUSD/2018/00/02/22h_ticks.bi5",
            bi5(&[(500, 120_040, 120_037, 1.1, 2.2), (59_999, 120_043, 120_039, 0.5, 0.5)]),
        ),
        folder.file("EURUSD/2018/00/03/00h_ticks.bi5", ""),
    ];
    let (bars, summary) = read_files(&hours, &m1()).unwrap();
    let expected = [
        "2018-01-02T22:00:00Z 1.200385 1.20041 1.200385 1.20041 4.3 0.00004",
        "2018-01-02T23:00:00Z 1.20043 1.20043 1.20043 1.20043 2 0.00004",
    ];
    assert_eq!(bars.iter().map(line).collect::<Vec<_>>(), expected);
    assert_eq!((summary.format, summary.files_without_ticks), (TickFormat::Bi5, 1));

    let late = folder
        .file("USDJPY/2018/00/02/22h_ticks.bi5", bi5(&[(0, 112_645, 112_640, 1.0, 1.0), (3_600_000, 2, 1, 1.0, 1.0)]));
    let error = read_files(&[late], &m1()).unwrap_err();
    assert!(matches!(error, Error::Tick(TickError::BadRow { line: 2, kind: RowError::Unreadable, .. })), "{error}");
    let cut = folder.file("USDJPY/2018/00/02/23h_ticks.bi5", &bi5(&[(0, 112_645, 112_640, 1.0, 1.0)])[..20]);
    assert!(matches!(read_files(&[cut], &m1()), Err(Error::Open { .. })));
}

#[test]
fn defective_ticks_are_named_or_dropped_and_counted() {
    let good = "2018-01-01 00:00:00,1.5,1.6";
    for (bad, kind, expected) in [
        ("2018-01-01 00:00:01,1.5,x", RowError::Unreadable, "a number as the ask in field 3"),
        ("2018-01-01 00:00:01,1.5,", RowError::Unreadable, "a price (mid)"),
        ("2018-01-01 00:00:01,1.5", RowError::Unreadable, "a field 3, the ask"),
        ("2018-01-01 00:00:61,1.5,1.6", RowError::Unreadable, "a time as in the first row"),
        ("2018-01-01 00:00:01,0,1.6", RowError::Inconsistent, "prices above 0"),
        ("2018-01-01 00:00:01,-1.5,1.6", RowError::Inconsistent, "prices above 0"),
        ("2018-01-01 00:00:01,1.5,inf", RowError::Inconsistent, "prices above 0"),
        ("2018-01-01 00:00:01,1.6,1.5", RowError::Inconsistent, "an ask not below the bid, found 1.5 below 1.6"),
        ("2017-12-31 23:59:59,1.5,1.6", RowError::Backward, "a time not before that of the tick above"),
    ] {
        let text = format!("time,bid,ask\n{good}\n{bad}\n{good}\n");
        match read(&text, &m1()).unwrap_err() {
            Error::Tick(TickError::BadRow { path, line, kind: found, expected: form, text }) => {
                assert!(path.ends_with("ticks.csv"));
                assert_eq!((line, found, form.as_str(), text.as_str()), (3, kind, expected, bad));
            }
            error => panic!("{bad}: {error}"),
        }
        let (bars, summary) = read(&text, &TickOptions { on_error: OnError::Skip, ..m1() }).unwrap();
        assert_eq!((bars.len(), bars[0].ticks, summary.ticks), (1, 2, 2), "{bad}");
        let dropped = &summary.dropped[..];
        assert_eq!((dropped.len(), dropped[0].kind, dropped[0].rows, dropped[0].first_line), (1, kind, 1, 3), "{bad}");
    }
    // An empty ask is the one before.
    let kept = "<DATE>\t<TIME>\t<BID>\t<ASK>\t<LAST>\t<VOLUME>\t<FLAGS>\n\
                2018.07.02\t00:00:01.113\t1.5\t1.60\t\t\t6\n2018.07.02\t00:00:02.113\t1.7\t\t\t\t2\n";
    let error = read(kept, &TickOptions { zone: Some("UTC".parse().unwrap()), ..m1() }).unwrap_err().to_string();
    assert!(error.contains("found 1.60 below 1.70"), "{error}");
    let skipped = "time,bid,ask\n2019-03-10 02:30:00,1.5,1.6\n";
    let new_york = TickOptions { zone: Some("America/New_York".parse().unwrap()), ..m1() };
    let error = read(skipped, &new_york).unwrap_err();
    assert!(matches!(error, Error::Tick(TickError::BadRow { kind: RowError::NoSuchTime, line: 2, .. })), "{error}");
    let nothing = read(skipped, &TickOptions { on_error: OnError::Skip, ..new_york }).unwrap_err().to_string();
    assert!(nothing.contains("none of 1 rows can be used; first: line 2, time that does not exist"), "{nothing}");
    // Two files in one, and an empty line.
    let twice = format!("time,bid,ask\n{good}\n\ntime,bid,ask\n{good}\n");
    assert_eq!(read(&twice, &m1()).unwrap().1.ticks, 2);
}

/// The end of a file that grows was a malformed row, or a time that goes back.
#[test]
fn a_cut_last_line_is_said_to_have_no_end() {
    let why = "this last line has no end, as in a file that is still being written";
    for (cut, expected) in [
        ("2018-01-01 00:00:01,1.", "a field 3, the ask"),
        ("2018-01-0", "a time as in the first row"),
        ("2018-01-01 00:00:00,1.5,1.6", "a time not before that of the tick above"),
    ] {
        let text = format!("time,bid,ask\n2018-01-01 00:00:01,1.5,1.6\n{cut}");
        let error = read(&text, &m1()).unwrap_err().to_string();
        assert!(error.contains("line 3: ") && error.contains(&format!("{expected} ({why})")), "{error}");
        let (_, summary) = read(&text, &TickOptions { on_error: OnError::Skip, ..m1() }).unwrap();
        assert_eq!((summary.ticks, summary.dropped[0].rows), (1, 1));
        assert!(summary.dropped[0].expected.contains(why), "{:?}", summary.dropped);
        let whole = read(&format!("{text}\n"), &m1()).unwrap_err().to_string();
        assert!(whole.contains(expected) && !whole.contains("no end"), "{whole}");
    }
    // A whole row needs no end.
    assert_eq!(read("time,bid,ask\n2018-01-01 00:00:01,1.5,1.6", &m1()).unwrap().1.ticks, 1);
}

#[test]
fn files_are_read_in_order_of_their_first_tick_and_must_not_overlap() {
    let folder = Folder::new();
    let rows = |minutes: [u32; 2]| {
        let rows = minutes.map(|minute| format!("2018-01-01 00:{minute:02}:00,1,1\n"));
        format!("time,bid,ask\n{}", rows.concat())
    };
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    gzip.write_all(rows([0, 3]).as_bytes()).unwrap();
    let first = folder.file("z.csv.gz", gzip.finish().unwrap());
    let second = folder.file("a.csv", rows([3, 5]));
    let empty = folder.file("empty.csv", "time,bid,ask\n");
    let (bars, summary) = read_files(&[second.clone(), empty, first.clone()], &m1()).unwrap();
    let minutes: Vec<i64> = bars.iter().map(|bar| bar.open_time / MINUTE_NS % 60).collect();
    assert_eq!(minutes, [0, 3, 5]);
    assert_eq!((summary.ticks, summary.files, summary.files_without_ticks), (4, 3, 1));
    let overlapping = folder.file("b.csv", rows([2, 9]));
    match read_files(&[overlapping.clone(), first.clone()], &m1()).unwrap_err() {
        Error::Tick(TickError::Overlapping { earlier, later, begins, ends }) => {
            assert_eq!((earlier, later), (first.clone(), overlapping));
            assert_eq!((begins.as_str(), ends.as_str()), ("2018-01-01T00:02:00Z", "2018-01-01T00:03:00Z"));
        }
        error => panic!("{error}"),
    }
    let trades = folder.file("trades.csv", "time,price,qty\n2018-01-02 00:00:00,1,1\n");
    let error = read_files(&[first, trades], &m1()).unwrap_err();
    assert!(matches!(error, Error::Tick(TickError::Unlike { .. })), "{error}");
}

#[test]
fn what_ticks_do_not_have_is_an_error() {
    let trades = "time,price\n2018-01-01 00:00:00,1\n";
    let stated = |price| TickOptions { price: Some(price), ..m1() };
    let error = read(trades, &stated(TickPrice::Bid)).unwrap_err().to_string();
    assert!(error.ends_with("the ticks have no price `bid`: expected one of last"), "{error}");
    let sum = TickOptions { volume: Some(TickVolume::Sum), ..m1() };
    assert!(matches!(read(trades, &sum), Err(Error::Tick(TickError::NoVolume { .. }))));
    let by_volume = TickOptions::new(BarRule::Volume(5.0));
    assert!(matches!(read(trades, &by_volume), Err(Error::Tick(TickError::NoVolume { .. }))));
    assert!(matches!(read(trades, &ticks_each(2)), Err(Error::Tick(TickError::NoFullBar { ticks: 1, .. }))));
    let error = read("time,open,high,low,close\n2018-01-01 00:00,1,1,1,1\n", &m1()).unwrap_err();
    assert!(matches!(error, Error::Tick(TickError::Bars { format: "iso", .. })), "{error}");
    assert!(!error.to_string().contains("header"), "{error}");
    // `ingest` and `ticks` each named the other.
    let named =
        "if they are ticks, write a header above them that names the columns in their order, such as `time,bid,ask`";
    let error = read("2018-01-01 00:00:00,1.1,1.2,1.0,1.1\n", &m1()).unwrap_err().to_string();
    assert!(error.contains("these are bars (iso), not ticks") && error.contains(named), "{error}");
    for text in ["a,b\n1,2\n", "time,price\nnoon,1\n", "2018-01-01 00:00:00,1.1,1.2\n"] {
        let error = read(text, &m1()).unwrap_err();
        assert!(error.to_string().contains("if these are ticks, write a header above them"), "{error}");
        assert!(matches!(error, Error::Tick(TickError::UnknownFormat { .. })), "{text}: {error}");
    }
    for text in ["", "\n\n", "time,price\n"] {
        assert!(matches!(read(text, &m1()), Err(Error::NothingLeft { rows: 0, .. })), "{text:?}");
    }
    let wanted = TickOptions { format: Some(TickFormat::HistData), ..m1() };
    let error = read(trades, &wanted).unwrap_err().to_string();
    assert!(error.contains("tried histdata"), "{error}");
}

#[test]
fn bars_of_ticks_end_with_the_tick_that_fills_them() {
    let rows: String = (0..7).map(|second| format!("2018-01-01 00:00:0{second},{},2\n", second + 1)).collect();
    let text = format!("time,price,qty\n{rows}");
    let closes = |options: &TickOptions| {
        let (bars, summary) = read(&text, options).unwrap();
        let seconds = |ns: i64| ns / 1_000_000_000 % 60;
        let spans = bars.iter().map(|bar| (seconds(bar.open_time), seconds(bar.close_time), bar.volume));
        (spans.collect::<Vec<_>>(), summary.unused_ticks)
    };
    assert_eq!(closes(&ticks_each(3)), (vec![(0, 2, 6.0), (3, 5, 6.0)], 1));
    assert_eq!(closes(&TickOptions::new(BarRule::Volume(3.0))), (vec![(0, 1, 4.0), (2, 3, 4.0), (4, 5, 4.0)], 1));
}

#[test]
fn days_end_on_the_clock_of_bins() {
    let text = "time,price\n2018-01-01 21:59:59,1\n2018-01-01 22:00:00,2\n2018-01-02 21:59:59,3\n";
    let options =
        TickOptions { bins: "new-york+7".parse().unwrap(), ..TickOptions::new(BarRule::Timeframe(Timeframe::D1)) };
    let expected = ["2017-12-31T22:00:00Z 1 1 1 1 1 0", "2018-01-01T22:00:00Z 2 3 2 3 2 0"];
    check(text, &options, TickFormat::Csv, &expected);
}

/// Bars from all ticks at once.
fn oracle(ticks: &[Tick], rule: BarRule, bins: &BinClock) -> Vec<TickBar> {
    let mut groups: BTreeMap<i64, Vec<Tick>> = BTreeMap::new();
    let (mut group, mut volume) = (0, 0.0);
    for (place, tick) in ticks.iter().enumerate() {
        let key = match rule {
            BarRule::Timeframe(timeframe) => bins.bin(timeframe, tick.time_ns).start,
            BarRule::Ticks(count) => (place as u64 / count.get()) as i64,
            BarRule::Volume(_) => group,
        };
        groups.entry(key).or_default().push(*tick);
        volume += tick.volume;
        if matches!(rule, BarRule::Volume(full) if volume >= full) {
            (group, volume) = (group + 1, 0.0);
        }
    }
    let is_whole = |group: &Vec<Tick>| match rule {
        BarRule::Timeframe(_) => true,
        BarRule::Ticks(count) => group.len() as u64 == count.get(),
        BarRule::Volume(full) => group.iter().map(|tick| tick.volume).sum::<f64>() >= full,
    };
    let bar = |group: Vec<Tick>| {
        let (first, last) = (group[0], group[group.len() - 1]);
        let prices = || group.iter().map(|tick| tick.price);
        let (open_time, close_time) = match rule {
            BarRule::Timeframe(timeframe) => {
                let bin = bins.bin(timeframe, first.time_ns);
                (bin.start, bin.end)
            }
            _ => (first.time_ns, last.time_ns),
        };
        TickBar {
            open_time,
            close_time,
            open: first.price,
            high: prices().fold(f64::MIN, f64::max),
            low: prices().fold(f64::MAX, f64::min),
            close: last.price,
            volume: group.iter().map(|tick| tick.volume).sum(),
            spread: group.iter().map(|tick| tick.spread).rfind(|spread| !spread.is_nan()).unwrap_or(0.0),
            ticks: group.len() as u64,
        }
    };
    groups.into_values().filter(is_whole).map(bar).collect()
}

fn rules() -> impl Strategy<Value = BarRule> {
    prop_oneof![
        prop::sample::select(Timeframe::ALL.to_vec()).prop_map(BarRule::Timeframe),
        (1..40_u64).prop_map(|count| BarRule::Ticks(NonZeroU64::new(count).unwrap())),
        (1..60_u32).prop_map(|volume| BarRule::Volume(f64::from(volume))),
    ]
}

fn ticks() -> impl Strategy<Value = Vec<Tick>> {
    let step = prop_oneof![Just(0), 0..MINUTE_NS, 0..40 * HOUR_NS];
    let spread = prop_oneof![Just(f64::NAN), (0..9_u8).prop_map(f64::from)];
    let tick = (step, 1..900_u16, 0..9_u8, spread);
    prop::collection::vec(tick, 1..200).prop_map(|steps| {
        let mut time_ns = 1_520_000_000_000_000_000;
        let tick = |(step, price, volume, spread)| {
            time_ns += step;
            Tick { time_ns, price: f64::from(price), spread, volume: f64::from(volume) }
        };
        steps.into_iter().map(tick).collect()
    })
}

proptest! {
    #[test]
    fn bars_are_those_of_a_search_among_all_ticks(ticks in ticks(), rule in rules(), broker in any::<bool>()) {
        let bins: BinClock = if broker { "new-york+7".parse().unwrap() } else { BinClock::default() };
        let mut aggregator = Aggregator::new(rule, bins.clone(), TickVolume::Sum);
        let mut bars: Vec<TickBar> = ticks.iter().filter_map(|tick| aggregator.push(tick)).collect();
        bars.extend(aggregator.finish());
        prop_assert_eq!(bars, oracle(&ticks, rule, &bins));
    }

    #[test]
    fn any_text_is_read_or_refused(text in "(time,bid,ask|2018010[12] 170000123,1.[0-9],1|[0-9,.:TZ -]{0,30}|\n){0,9}") {
        let _ = read(&text, &TickOptions { on_error: OnError::Skip, ..m1() });
    }
}

#[test]
fn files_that_are_not_there_are_named() {
    let error = read_files(&[Path::new("absent.csv").to_owned()], &m1()).unwrap_err();
    assert!(matches!(error, Error::Open { .. }), "{error}");
}
