//! The samples after the last ones of a series.

use megabatch_chunk_io::{Series, SeriesFile, WriteOptions, write_series};
use megabatch_gpu_core::Device;
use proptest::prelude::*;

use crate::made::{self, Plan, timeframe};

/// Window of a sample in each timeframe: close times and values of its bars.
type Windows = Vec<(Vec<i64>, Vec<f32>)>;

/// Instrument, time and windows of each sample.
fn samples(series: &Series) -> Vec<(String, i64, Windows)> {
    let windows = |sample: usize| {
        let window = |own: &megabatch_chunk_io::SeriesTimeframe| {
            let end = own.sample_end[sample] as usize + 1;
            let (rows, width) = (end - own.steps..end, own.feature_names.len());
            (own.close_time[rows.clone()].to_vec(), own.values[rows.start * width..rows.end * width].to_vec())
        };
        series.timeframes.iter().map(window).collect()
    };
    let name = |sample: usize| {
        let named = series.instruments.as_ref();
        named.map_or(String::new(), |named| named.names[named.sample_instrument[sample] as usize].clone())
    };
    series.sample_time.iter().enumerate().map(|(sample, &time)| (name(sample), time, windows(sample))).collect()
}

/// The samples of `series` for which `keeps` is true.
fn part(series: &Series, keeps: impl Fn(usize) -> bool) -> Series {
    fn kept<T: Copy>(list: &[T], width: usize, keeps: &impl Fn(usize) -> bool) -> Vec<T> {
        list.chunks_exact(width)
            .enumerate()
            .filter(|(row, _)| keeps(*row))
            .flat_map(|(_, row)| row.iter().copied())
            .collect()
    }
    let mut part = series.clone();
    let horizons = series.targets.len() / series.sample_time.len();
    for times in [&mut part.sample_time, &mut part.sample_reach_time, &mut part.sample_label_end_time] {
        *times = kept(times, 1, &keeps);
    }
    part.sample_weight = kept(&part.sample_weight, 1, &keeps);
    part.targets = kept(&part.targets, horizons, &keeps);
    if let Some(instruments) = &mut part.instruments {
        instruments.sample_instrument = kept(&instruments.sample_instrument, 1, &keeps);
    }
    for own in &mut part.timeframes {
        own.sample_end = kept(&own.sample_end, 1, &keeps);
    }
    part
}

fn latest(series: &Series, lag_minutes: i64) -> Option<Series> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("series.h5");
    write_series(&path, series, &WriteOptions::default()).unwrap();
    let file = SeriesFile::open(&path, &Device::cpu().scope("data")).unwrap();
    let latest = file.latest(lag_minutes * 60_000_000_000).unwrap();
    // It is a series that a file may hold.
    latest
        .iter()
        .for_each(|latest| write_series(folder.path().join("latest.h5"), latest, &WriteOptions::default()).unwrap());
    latest
}

fn plan(base_bars: &[usize], steps: [usize; 2]) -> Plan {
    let timeframes = vec![timeframe("M1", 1, steps[0], 3), timeframe("M5", 5, steps[1], 2)];
    Plan { timeframes, base_bars: base_bars.to_vec(), ..Plan::small() }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Samples that were left out at the end come back, with the windows that they had.
    #[test]
    fn the_samples_after_the_last_ones_come_back(
        bars in prop::collection::vec(30usize..60, 1..4), steps in [1usize..9, 1..4], left_out in 1usize..9,
    ) {
        let whole = made::series(&plan(&bars, steps));
        let end = whole.sample_time.iter().max().unwrap() - left_out as i64 * 60_000_000_000;
        let labelled = part(&whole, |sample| whole.sample_time[sample] <= end);
        let last_of = |name: &str| samples(&labelled).into_iter().filter(|(own, ..)| own == name).map(|(_, time, _)| time).max();
        let later = |(name, time, _): &(String, i64, Windows)| last_of(name).is_some_and(|last| *time > last);
        let expected: Vec<_> = samples(&whole).into_iter().filter(later).collect();
        let found = latest(&labelled, 0).unwrap();
        prop_assert_eq!(samples(&found), expected);
        prop_assert!(found.targets.iter().all(|target| target.is_nan()));
        prop_assert_eq!(&found.attributes, &whole.attributes);
    }
}

#[test]
fn a_series_whose_samples_go_up_to_its_last_bar_has_none() {
    assert_eq!(latest(&made::series(&Plan::two_instruments()), 0), None);
}

/// A share that was listed until an earlier day is not among the latest.
#[test]
fn instruments_that_end_earlier_have_none() {
    let whole = made::series(&plan(&[40, 30], [4, 2]));
    let end = whole.sample_time.iter().max().unwrap() - 60_000_000_000;
    let is_first = |sample: usize| whole.instruments.as_ref().unwrap().sample_instrument[sample] == 0;
    // The second has unlabelled bars too, long before the first's.
    let labelled = part(&whole, |sample| {
        whole.sample_time[sample] <= if is_first(sample) { end } else { end - 15 * 60_000_000_000 }
    });
    let found = latest(&labelled, 0).unwrap();
    assert_eq!(found.instruments.as_ref().unwrap().sample_instrument, [0]);
    assert_eq!(found.timeframes[0].instrument_start, [0, 4, 4]);
    // Its bars end nine minutes before the last sample.
    for (lag_minutes, expected) in [(8, &[0][..]), (9, &[0, 1, 1, 1, 1, 1, 1])] {
        assert_eq!(latest(&labelled, lag_minutes).unwrap().instruments.unwrap().sample_instrument, expected);
    }
}

/// A stretch of bars after a hole, too short for a sample, is no continuation.
#[test]
fn bars_of_a_later_segment_are_not_joined() {
    let whole = made::series(&plan(&[40, 40], [4, 2]));
    let end = whole.sample_time.iter().max().unwrap() - 6 * 60_000_000_000;
    let mut labelled = part(&whole, |sample| whole.sample_time[sample] <= end);
    // The second instrument's last three minutes.
    labelled.timeframes[0].segment_start.push(77);
    let found = latest(&labelled, 0).unwrap();
    let count = |instrument: i32| {
        found.instruments.as_ref().unwrap().sample_instrument.iter().filter(|&&own| own == instrument).count()
    };
    assert_eq!((count(0), count(1)), (6, 3));
}
