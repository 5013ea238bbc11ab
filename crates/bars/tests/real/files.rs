use megabatch_bars::{Bars, Error, FormatName, GapKind, OnError, ReadOptions, Recording, Timeframe, read};

use crate::published;
use crate::whole::{read_pair, resample};

/// One published file: name, rows, format, clock, timeframe.
type Case = (&'static str, u64, FormatName, Option<&'static str>, Timeframe);

const NEW_YORK: Option<&str> = Some("America/New_York");
const BROKER: Option<&str> = Some("new-york+7");

const CASES: [Case; 11] = [
    ("forex_m1/DAT_ASCII_EURUSD_M1_2018.csv.gz", 372_607, FormatName::HistData, NEW_YORK, Timeframe::M1),
    ("forex_m1/DAT_ASCII_GBPUSD_M1_2018.csv.gz", 372_261, FormatName::HistData, NEW_YORK, Timeframe::M1),
    ("forex_m1/DAT_ASCII_USDJPY_M1_2018.csv.gz", 371_800, FormatName::HistData, NEW_YORK, Timeframe::M1),
    ("forex_m1/jaffer_EURUSD_M1_2018-06_mt5tab.csv.gz", 30_203, FormatName::MetaTrader, BROKER, Timeframe::M1),
    ("forex_m1/jeremidaneau_EURUSD1_2022.csv.gz", 34_342, FormatName::MetaTrader, BROKER, Timeframe::M1),
    ("forex_m1/usdjpy-m1-bid-2013.csv.gz", 28_761, FormatName::Iso, None, Timeframe::M1),
    ("forex_m1/usdjpy-m1-ask-2013.csv.gz", 28_761, FormatName::Iso, None, Timeframe::M1),
    ("forex_multitf/sillydev_EURUSD_M1.csv.gz", 50_000, FormatName::Iso, Some("UTC"), Timeframe::M1),
    ("forex_multitf/sillydev_EURUSD_M5.csv.gz", 50_000, FormatName::Iso, Some("UTC"), Timeframe::M5),
    ("forex_multitf/sillydev_EURUSD_H1.csv.gz", 50_000, FormatName::Iso, Some("UTC"), Timeframe::H1),
    ("forex_multitf/sillydev_EURUSD_H4.csv.gz", 22_256, FormatName::Iso, Some("UTC"), Timeframe::H4),
];

/// A good file is read in full whatever is to be done with bad rows, and nothing is put right in
/// it.
#[test]
fn every_published_file_is_read_in_full() {
    for (name, rows, format, zone, base) in CASES {
        let Some(path) = published(name) else { return };
        for on_error in OnError::ALL {
            let options = ReadOptions { on_error, ..ReadOptions::default() };
            let summary = read(&[&path], &options).unwrap_or_else(|error| panic!("{error}")).summary;
            let file = &summary.files[0];
            assert_eq!((file.rows, file.kept, summary.bars.all), (rows, rows, rows), "{name}");
            assert_eq!(
                (file.dropped.len(), file.fixed.len(), file.format, summary.base),
                (0, 0, format, base),
                "{name}"
            );
            assert_eq!(file.zone.as_ref().map(ToString::to_string).as_deref(), zone, "{name}");
            assert!(name.to_uppercase().contains(&summary.symbol) && summary.symbol.len() == 6, "{}", summary.symbol);
            assert_eq!(summary.warnings, [] as [String; 0], "{name}");
        }
    }
}

/// Gaps of minutes, hours, days and months, weekends, flat bars, bars without volume.
#[test]
fn gaps_and_poor_bars_are_counted() {
    use GapKind::{Days, Hours, Minutes, Months};
    let cases = [
        ("forex_m1/DAT_ASCII_EURUSD_M1_2018.csv.gz", [797, 1, 0, 0], 52, 4_729, 372_607),
        ("forex_m1/DAT_ASCII_GBPUSD_M1_2018.csv.gz", [1_030, 1, 0, 0], 52, 6_865, 372_261),
        ("forex_m1/DAT_ASCII_USDJPY_M1_2018.csv.gz", [1_566, 1, 0, 0], 52, 3_679, 371_800),
        ("forex_m1/jaffer_EURUSD_M1_2018-06_mt5tab.csv.gz", [8, 0, 0, 0], 4, 305, 0),
        ("forex_m1/jeremidaneau_EURUSD1_2022.csv.gz", [133, 1, 1, 1], 4, 212, 0),
        ("forex_m1/usdjpy-m1-bid-2013.csv.gz", [34, 0, 0, 0], 4, 0, 28_761),
        ("forex_m1/usdjpy-m1-ask-2013.csv.gz", [34, 0, 0, 0], 4, 116, 28_761),
    ];
    for (name, counts, weekends, flat, without_volume) in cases {
        let Some(path) = published(name) else { return };
        let summary = read(&[path], &ReadOptions::default()).unwrap().summary;
        println!("{summary}");
        let gaps = &summary.gaps;
        assert_eq!([Minutes, Hours, Days, Months].map(|kind| gaps.kind_count(kind)), counts, "{name}");
        assert_eq!((gaps.weekends(), gaps.kind_count(GapKind::ClockChange)), (weekends, 0), "{name}");
        assert_eq!((summary.bars.flat, summary.bars.without_volume), (flat, without_volume), "{name}");
    }
}

#[test]
fn the_clock_of_histdata_is_told_from_its_weeks() {
    let Some(path) = published("forex_m1/DAT_ASCII_EURUSD_M1_2018.csv.gz") else { return };
    let inferred = read(&[&path], &ReadOptions::default()).unwrap();
    let why = &inferred.summary.files[0].zone_why;
    assert!(why.starts_with("52 of 52 weeks close on Friday at 17:00 in New York; as -05:00"), "{why}");
    // 2018-01-01 17:00 in New York is 22:00 UTC.
    assert_eq!(inferred.summary.first_open_time, 1_514_844_000_000_000_000);

    let stated = ReadOptions { zone: Some("-05:00".parse().unwrap()), ..ReadOptions::default() };
    let stated = read(&[&path], &stated).unwrap();
    let warning = &stated.summary.warnings[0];
    assert!(warning.contains("read as -05:00") && warning.contains("as America/New_York it is 52"), "{warning}");
    assert_eq!(stated.summary.first_open_time, inferred.summary.first_open_time);
}

#[test]
fn holes_are_listed_longest_first() {
    let Some(path) = published("forex_m1/jeremidaneau_EURUSD1_2022.csv.gz") else { return };
    let gaps = read(&[path], &ReadOptions::default()).unwrap().summary.gaps;
    let minutes: Vec<i64> = gaps.longest.iter().map(|gap| gap.duration_ns() / 60_000_000_000).collect();
    assert_eq!(minutes[..3], [32 * 1_440 + 237, 6 * 1_440 + 805, 729], "{gaps}");
}

#[test]
fn spreads_of_a_month_are_in_units_of_the_price() {
    let Some(path) = published("forex_m1/jaffer_EURUSD_M1_2018-06_mt5tab.csv.gz") else { return };
    let bars = read(&[path], &ReadOptions::default()).unwrap().bars;
    let points: Vec<i64> = bars.spread.iter().map(|spread| (spread * 1e5).round() as i64).collect();
    // Three bars without a spread, one of 12.3 pips, and most of one or two points.
    let count = |wanted: std::ops::Range<i64>| points.iter().filter(|points| wanted.contains(points)).count();
    assert_eq!((count(0..1), count(1..3), count(123..124), points.len()), (3, 25_141, 1, 30_203));
}

fn bars_of(timeframe: Timeframe) -> Option<Bars> {
    let path = published(&format!("forex_multitf/sillydev_EURUSD_{timeframe}.csv.gz"))?;
    let options = ReadOptions { on_error: OnError::Repair, ..ReadOptions::default() };
    Some(read(&[path], &options).unwrap().bars)
}

/// Each published file is what the next finer one aggregates to: every bin that lies between the
/// finer file's first open and last close, and that the coarser file has reached, is there in both
/// and equal in every number.
#[test]
fn resampling_reproduces_the_published_chain() {
    use Timeframe::{H1, H4, M1, M5, M15};
    // At least this many bars are compared.
    let cases = [(M1, M5, 9_000), (M5, M15, 16_000), (M15, H1, 12_000), (H1, H4, 12_000)];
    for (fine, coarse, compared_min) in cases {
        let (Some(fine), Some(published)) = (bars_of(fine), bars_of(coarse)) else { return };
        let made = resample(&fine, coarse);
        let (start, end) = (fine.open_time[0], fine.close_time(fine.len() - 1));
        let covered = |bars: &Bars| -> Vec<usize> {
            let first = start.max(published.open_time[0]);
            let last = end.min(published.close_time(published.len() - 1));
            (0..bars.len()).filter(|&k| bars.open_time[k] >= first && bars.close_time(k) <= last).collect()
        };
        let (ours, theirs) = (covered(&made), covered(&published));
        println!("{} to {coarse}: {} bars compared", fine.timeframe, ours.len());
        assert!(
            ours.len() >= compared_min && ours.len() == theirs.len(),
            "{coarse}: {} and {}",
            ours.len(),
            theirs.len()
        );
        for (&our, &their) in ours.iter().zip(&theirs) {
            assert_eq!(made.bar(our), published.bar(their), "{coarse}");
        }
    }
}

/// A published folder has five timeframes of one symbol. A stated one is read alone, to the bars of
/// its own file, and each shorter one agrees with it.
#[test]
fn a_stated_timeframe_of_a_folder_is_read_alone() {
    let all =
        ["M1", "M5", "M15", "H1", "H4"].map(|name| published(&format!("forex_multitf/sillydev_EURUSD_{name}.csv.gz")));
    let Some(paths) = all.into_iter().collect::<Option<Vec<_>>>() else { return };
    let options = ReadOptions { base: Some(Timeframe::H1), on_error: OnError::Repair, ..ReadOptions::default() };
    let Recording { bars, summary, .. } = read(&paths, &options).unwrap();
    assert_eq!(Some(bars), bars_of(Timeframe::H1));
    let compared = summary.compared.iter().map(|compared| (compared.timeframe, compared.different.count));
    let expected = [Timeframe::M1, Timeframe::M5, Timeframe::M15, Timeframe::H4].map(|timeframe| (timeframe, 0));
    assert_eq!(compared.collect::<Vec<_>>(), expected);
}

fn read_sides(on_error: OnError) -> Option<Result<Recording, Error>> {
    let bid = published("forex_m1/usdjpy-m1-bid-2013.csv.gz")?;
    let ask = published("forex_m1/usdjpy-m1-ask-2013.csv.gz")?;
    Some(read_pair(&[bid], &[ask], &ReadOptions { on_error, ..ReadOptions::default() }))
}

/// Bid and ask of USDJPY cross at the close of 683 of 28,761 minutes, by a tenth of a pip or two.
#[test]
fn sides_that_cross_are_refused_dropped_or_taken_as_equal() {
    let Some(failed) = read_sides(OnError::Fail) else { return };
    let message = failed.unwrap_err().to_string();
    for part in ["usdjpy-m1-bid", "usdjpy-m1-ask", "2013-02-01T00:53:00Z", "below the bid"] {
        assert!(message.contains(part), "{part} in {message}");
    }
    for (on_error, bars) in [(OnError::Skip, 28_078), (OnError::Repair, 28_761)] {
        let Recording { bars: joined, summary, symbol } = read_sides(on_error).unwrap().unwrap();
        let pair = summary.pair.unwrap();
        assert_eq!((symbol.as_str(), joined.len(), summary.files.len()), ("USDJPY", bars, 2));
        assert_eq!((pair.bid_only.count, pair.ask_only.count, pair.crossed.count), (0, 0, 683));
        assert_eq!(joined.spread.len(), bars);
        assert!(joined.spread.iter().all(|spread| (0.0..0.2).contains(spread)));
    }
}

#[test]
fn prices_are_the_mean_of_both_sides() {
    let Some(joined) = read_sides(OnError::Repair) else { return };
    let joined = joined.unwrap().bars;
    let side = |name: &str| read(&[published(name).unwrap()], &ReadOptions::default()).unwrap().bars;
    let (bid, ask) = (side("forex_m1/usdjpy-m1-bid-2013.csv.gz"), side("forex_m1/usdjpy-m1-ask-2013.csv.gz"));
    assert_eq!(joined.open_time, bid.open_time);
    for k in 0..joined.len() {
        let bar = joined.bar(k);
        assert!((bar.close - (bid.close[k] + ask.close[k]) / 2.0).abs() < 1e-9);
        assert!((bar.high - (bid.high[k] + ask.high[k]) / 2.0).abs() < 1e-9);
        assert_eq!(bar.spread, (ask.close[k] - bid.close[k]).max(0.0));
        assert!(bar.low <= bar.open.min(bar.close) && bar.high >= bar.open.max(bar.close));
    }
}
