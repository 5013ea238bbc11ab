use megabatch_bars::{
    Feature, Moment, ReadOptions, Scaling, SeriesSpec, Timeframe, Window, pip_size_of, prove_scalers, read,
};

use crate::published;
use crate::whole::{HOUR_NS, Resampled, align, broker_ahead_ns, go_on, instrument, prove, resample_on};

#[test]
fn a_year_of_minutes_becomes_five_aligned_timeframes() {
    let Some(path) = published("forex_m1/DAT_ASCII_EURUSD_M1_2018.csv.gz") else { return };
    let recording = read(&[path], &ReadOptions::default()).unwrap();
    let name = recording.symbol.as_str();
    let eurusd = instrument(name, &recording.bars, pip_size_of(name).unwrap());
    let series = align(&[eurusd], &SeriesSpec::default()).unwrap();
    assert_eq!(
        (series.header.segments.len(), series.header.excluded.len()),
        (1, 0),
        "no hole of the year is longer than four days"
    );
    // 49 + 48 bars of H4 must close first, and 36 minutes must follow.
    let first = recording.bars.open_time.iter().position(|ns| ns + 60_000_000_000 == series.sample_time[0]).unwrap();
    assert_eq!(series.len(), 372_607 - 36 - first);
    assert_eq!(series.targets.len(), series.len() * 36);
    for timeframe in &series.timeframes {
        assert!(timeframe.values.iter().all(|value| value.is_finite()), "{:?}", timeframe.window);
        for (&end, &time) in timeframe.end.iter().zip(&series.sample_time) {
            let end = end as usize;
            assert!(timeframe.close_time[end] <= time, "{:?}", timeframe.window);
            assert!(timeframe.close_time.get(end + 1).is_none_or(|&next| next > time), "{:?}", timeframe.window);
        }
    }
    let h4 = series.timeframes.last().unwrap();
    assert_eq!((h4.end[0], h4.window(0).len()), (47, 48 * 16));
    // HistData gives no volume.
    let [warning] = &series.header.warnings[..] else { panic!("{:?}", series.header.warnings) };
    assert!(warning.starts_with("relative_volume is constant") && warning.contains("every timeframe"), "{warning}");
}

/// The first samples after the clocks of New York and London were changed in 2018.
#[test]
fn samples_at_changes_of_clocks_are_proven() {
    let Some(path) = published("forex_m1/DAT_ASCII_EURUSD_M1_2018.csv.gz") else { return };
    let recording = read(&[path], &ReadOptions::default()).unwrap();
    let eurusd = instrument("EURUSD", &recording.bars, 1e-4);
    let spec = SeriesSpec::default();
    let series = align(&[eurusd], &spec).unwrap();
    let scalers = series.scalers();
    // 2018-03-11, 2018-03-25, 2018-10-28 and 2018-11-04, each at 22:00 UTC.
    let changes = [1_520_805_600, 1_522_015_200, 1_540_764_000, 1_541_368_800];
    let after = |second: i64| series.sample_time.partition_point(|&time| time < second * 1_000_000_000);
    for n in changes.map(after) {
        let moment = Moment { time: series.sample_time[n], seed: n as u64 };
        let proof = prove(eurusd, &spec, scalers, moment).unwrap();
        let windows: Vec<&[f32]> = series.timeframes.iter().map(|timeframe| timeframe.window(n)).collect();
        assert_eq!(proof.windows, windows);
    }
    let (moment, folder) = (Moment { time: scalers.fit_end_time, seed: 1 }, tempfile::tempdir().unwrap());
    prove_scalers(&[eurusd], &spec, scalers, moment, folder.path(), &go_on).unwrap();
}

/// H4 and D1 by the clock of a broker are those of a plain computation: five days a week, each of
/// which closes at 17:00 in New York.
#[test]
fn days_of_a_year_close_at_five_in_new_york() {
    let Some(path) = published("forex_m1/DAT_ASCII_EURUSD_M1_2018.csv.gz") else { return };
    let recording = read(&[path], &ReadOptions::default()).unwrap();
    let eurusd = instrument("EURUSD", &recording.bars, 1e-4);
    let windows = [(Timeframe::H1, 24), (Timeframe::H4, 6), (Timeframe::D1, 5)];
    let spec = SeriesSpec {
        windows: windows.map(|(timeframe, seq_len)| Window { timeframe, seq_len }).to_vec(),
        bins: "new-york+7".parse().unwrap(),
        features: vec![Feature::Body, Feature::Range],
        scaling: Scaling::None,
        ..SeriesSpec::default()
    };
    let series = align(&[eurusd], &spec).unwrap();
    for (timeframe, rows) in series.timeframes.iter().zip([6_200, 1_500, 250]) {
        let Resampled { bars, close_time } = resample_on(&recording.bars, timeframe.window.timeframe, &broker_ahead_ns);
        let body = |bar: usize| ((bars.close[bar] - bars.open[bar]) / bars.close[bar]) as f32;
        let range = |bar: usize| ((bars.high[bar] - bars.low[bar]) / bars.close[bar]) as f32;
        let values: Vec<f32> = (0..bars.len()).flat_map(|bar| [body(bar), range(bar)]).collect();
        assert!(close_time.len() > rows, "{} rows", close_time.len());
        assert_eq!((&timeframe.close_time, &timeframe.values), (&close_time, &values));
        for (&end, &time) in timeframe.end.iter().zip(&series.sample_time) {
            let end = end as usize;
            assert!(timeframe.close_time[end] <= time && close_time.get(end + 1).is_none_or(|&next| next > time));
        }
    }
    let days = &series.timeframes[2].close_time;
    assert!(days.iter().all(|&time| (time + broker_ahead_ns(time)) % (24 * HOUR_NS) == 0));
    let mut hours: Vec<i64> = days.iter().map(|time| time.rem_euclid(24 * HOUR_NS) / HOUR_NS).collect();
    hours.sort_unstable();
    hours.dedup();
    assert_eq!((hours, days.len()), (vec![21, 22], 260));
}

#[test]
fn a_month_without_bars_parts_a_recording() {
    let Some(path) = published("forex_m1/jeremidaneau_EURUSD1_2022.csv.gz") else { return };
    let recording = read(&[path], &ReadOptions::default()).unwrap();
    let windows = [(Timeframe::M1, 60), (Timeframe::H1, 12)];
    let windows = windows.map(|(timeframe, seq_len)| Window { timeframe, seq_len }).to_vec();
    let spec = SeriesSpec { windows, ..SeriesSpec::default() };
    let series = align(&[instrument("EURUSD", &recording.bars, 1e-4)], &spec).unwrap();
    let all = series.header.segments.iter().chain(&series.header.excluded);
    assert_eq!(all.map(|segment| segment.bars).sum::<usize>(), recording.bars.len());
    assert!(series.header.segments.len() >= 2, "{:?}", series.header);
    for (n, &start) in series.receptive_start.iter().enumerate() {
        let segment = series.header.segments.iter().find(|segment| segment.samples.contains(&n)).unwrap();
        assert!(start >= segment.open_time && series.sample_time[n] <= segment.close_time);
    }
}
