//! Daily files of the shares of an index, as Alpha Vantage gives them: one is a saved error, some
//! begin late, one ends early, shares are split.

use std::io::Read;
use std::path::Path;

use flate2::read::GzDecoder;
use megabatch_bars::{
    Error, Feature, OnError, Prices, ReadOptions, SeriesSpec, StreamedInstrument, TargetKind, Timeframe, Universe,
    Window, bar_files, read_all, return_panel,
};
use tempfile::TempDir;

use crate::published;
use crate::whole::{align_usable, instrument};

const DAY_NS: i64 = 86_400_000_000_000;
/// Files, and days of those that have all.
const FILES: usize = 505;
const DAYS: usize = 1_334;
const LATE: [&str; 17] = [
    "AMCR", "BKR", "CARR", "CTVA", "DOW", "DXC", "EVRG", "FOX", "FOXA", "FTV", "IR", "LIN", "LW", "OTIS", "UA", "VTRS",
    "WLTW",
];

/// The files of the archive in a folder of their own; `None`, said aloud, where there is no
/// archive.
fn unpacked() -> Option<TempDir> {
    let archive = published("stocks/pooksoft_sp500_daily_2016-2021.tar.gz")?;
    let mut bytes = Vec::new();
    GzDecoder::new(std::fs::File::open(archive).unwrap()).read_to_end(&mut bytes).unwrap();
    let folder = tempfile::tempdir().unwrap();
    // POSIX ustar: a header of 512 bytes, with the name in front and the size in octal digits at
    // 124, and the file in whole blocks.
    let mut rest = &bytes[..];
    while let Some(name) = rest[..100].split(|&byte| byte == 0).next().filter(|name| !name.is_empty()) {
        let octal = std::str::from_utf8(&rest[124..135]).unwrap();
        let size = usize::from_str_radix(octal, 8).unwrap();
        let name = Path::new(std::str::from_utf8(name).unwrap()).file_name().unwrap_or_default().to_owned();
        if rest[156] == b'0' {
            std::fs::write(folder.path().join(name), &rest[512..512 + size]).unwrap();
        }
        rest = &rest[512 + size.div_ceil(512) * 512..];
    }
    Some(folder)
}

/// The shares as their files quote them, or adjusted. A defective row is left out.
fn shares(prices: Prices) -> Option<Universe> {
    let folder = unpacked()?;
    let files = bar_files(folder.path()).unwrap();
    Some(read_all(&files, &ReadOptions { prices, on_error: OnError::Skip, ..ReadOptions::default() }).unwrap())
}

#[test]
fn a_whole_index_is_read_by_rule_and_accounted_for() {
    let Some(folder) = unpacked() else { return };
    let files = bar_files(folder.path()).unwrap();
    assert_eq!(files.len(), FILES);

    // The one saved error does not stop the others, and stops all only where errors shall.
    let failed = read_all(&files, &ReadOptions::default()).unwrap_err().to_string();
    let universe = read_all(&files, &ReadOptions { on_error: OnError::Skip, ..ReadOptions::default() }).unwrap();
    assert!(failed.contains("DA-BF.B-T-2021-04-21.csv: no bars recognised"), "{failed}");
    let excluded: Vec<&str> = universe.excluded.iter().map(|excluded| excluded.symbol.as_str()).collect();
    assert_eq!((universe.recordings.len(), excluded), (FILES - 1, vec!["BF.B"]));

    let symbols = |found: Vec<&megabatch_bars::Recording>| -> Vec<String> {
        found.iter().map(|recording| recording.symbol.clone()).collect()
    };
    assert_eq!(symbols(universe.listed_late().collect()), LATE);
    assert_eq!(symbols(universe.ended_early().collect()), ["VAR"]);
    let whole = universe.recordings.iter().filter(|recording| recording.bars.len() == DAYS).count();
    assert_eq!(whole, FILES - 1 - LATE.len() - 1);

    let adjusted: Vec<_> = universe.recordings.iter().map(|r| r.summary.files[0].adjusted.as_ref().unwrap()).collect();
    let splits: usize = adjusted.iter().map(|adjusted| adjusted.splits.len()).sum();
    let dividends: u64 = adjusted.iter().map(|adjusted| adjusted.dividends).sum();
    assert_eq!((splits, dividends), (46, 8_203));
    let aapl = universe.recordings.iter().find(|recording| recording.symbol == "AAPL").unwrap();
    let (first, account) = (aapl.bars.bar(0), aapl.summary.files[0].adjusted.as_ref().unwrap());
    assert_eq!((first.close, account.splits[0].coefficient), (24.361_340_008_5, 4.0));
    // All prices of a bar are scaled by the same factor: 102.61, 105.368, 102.0 and 105.35 as
    // quoted.
    for (adjusted, quoted) in [(first.open, 102.61), (first.high, 105.368), (first.low, 102.0)] {
        assert!((adjusted / quoted - account.first_factor).abs() < 1e-12);
    }
    assert_eq!(account.last_factor, 1.0);
}

#[test]
fn splits_are_no_returns() {
    let (Some(quoted), Some(adjusted)) = (shares(Prices::AsQuoted), shares(Prices::default())) else { return };
    let jumps = |universe: &Universe| {
        let jumps = universe.recordings.iter().flat_map(|recording| recording.summary.jumps.clone());
        let jumps: Vec<_> = jumps.collect();
        (jumps.len(), jumps.iter().filter(|jump| jump.split.is_some()).count())
    };
    assert_eq!(jumps(&quoted), (34, 30));
    assert_eq!(jumps(&adjusted), (1, 1));
}

#[test]
fn the_panel_has_all_days_of_all_shares() {
    let Some(universe) = shares(Prices::default()) else { return };
    let pairs: Vec<_> =
        universe.recordings.iter().map(|recording| (recording.symbol.as_str(), &recording.bars)).collect();
    let panel = return_panel(&pairs).unwrap();
    assert_eq!((panel.names.len(), panel.times.len(), panel.values.len()), (FILES - 1, DAYS, (FILES - 1) * DAYS));
    assert!(panel.names.is_sorted() && panel.excluded.is_empty() && panel.days_excluded.is_empty());
    let bars: usize = pairs.iter().map(|(_, bars)| bars.len()).sum();
    assert_eq!(panel.values.iter().filter(|value| value.is_finite()).count(), bars - pairs.len());
    // 2020-08-31, the day of AAPL's split 4:1: from 124.1826… to 128.3928… adjusted.
    let day = panel.open_times.iter().position(|&open_time| open_time == 18_505 * DAY_NS).unwrap();
    assert_eq!(panel.times[day], 18_506 * DAY_NS);
    let aapl = panel.names.iter().position(|name| name == "AAPL").unwrap();
    assert!((panel.values[aapl * DAYS + day] - 0.033_35).abs() < 1e-4, "{}", panel.values[aapl * DAYS + day]);
}

#[test]
fn samples_of_all_shares_stand_at_common_instants() {
    let Some(universe) = shares(Prices::default()) else { return };
    let instruments: Vec<StreamedInstrument<'_>> =
        universe.recordings.iter().map(|recording| instrument(&recording.symbol, &recording.bars, 1.0)).collect();
    let spec = |stride| SeriesSpec {
        windows: vec![Window { timeframe: Timeframe::D1, seq_len: 60 }],
        features: Feature::DEFAULT.to_vec(),
        horizon: 5,
        target_kind: TargetKind::LogReturn,
        stride,
        ..SeriesSpec::default()
    };
    let (daily, excluded) = align_usable(&instruments, &spec(1)).unwrap();
    let named: Vec<&str> = excluded.iter().map(|excluded| excluded.symbol.as_str()).collect();
    assert_eq!(named, ["VTRS", "AMCR", "CARR", "OTIS"]);
    assert!(matches!(excluded[0].reason, Error::TooShort { .. }));
    assert!(matches!(excluded[1].reason, Error::TooFewToFit { .. }));
    let instants = |times: &[i64]| {
        let mut instants = times.to_vec();
        instants.sort_unstable();
        instants.dedup();
        instants
    };
    // 49 days warm the features up, the 60th after them is the first full window, and five days
    // follow the last sample.
    assert_eq!(instants(&daily.sample_time).len(), DAYS - 49 - 59 - 5);
    let (weekly, _) = align_usable(&instruments, &spec(5)).unwrap();
    let every_fifth: Vec<i64> = instants(&daily.sample_time).into_iter().step_by(5).collect();
    assert_eq!(instants(&weekly.sample_time), every_fifth);
    // A bar closes at the midnight after its day, when New York has long closed.
    assert!(daily.sample_time.iter().all(|time| time % DAY_NS == 0));
}

/// Without names the order of open and close shows in the bars of every share that has enough.
#[test]
fn exchanged_open_and_close_of_any_share_are_seen() {
    let Some(quoted) = shares(Prices::AsQuoted) else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("X.csv");
    for recording in quoted.recordings.iter().step_by(4).filter(|recording| recording.bars.len() > 100) {
        let bars = &recording.bars;
        let text = |is_exchanged: bool| -> String {
            let row = |bar: megabatch_bars::Bar| {
                let (first, last) = if is_exchanged { (bar.close, bar.open) } else { (bar.open, bar.close) };
                format!("{},{first},{},{},{last},{}\n", bar.open_time / 1_000_000_000, bar.high, bar.low, bar.volume)
            };
            (0..bars.len()).map(|index| row(bars.bar(index))).collect()
        };
        std::fs::write(&path, text(false)).unwrap();
        let right = megabatch_bars::read(&[&path], &ReadOptions::default()).unwrap();
        assert_eq!(&right.bars, bars, "{}", recording.symbol);
        std::fs::write(&path, text(true)).unwrap();
        let error = megabatch_bars::read(&[&path], &ReadOptions::default()).unwrap_err();
        assert!(error.to_string().contains("open and close are probably exchanged"), "{}: {error}", recording.symbol);
    }
}
