use megabatch_bars::{Instrument, ReadOptions, SeriesSpec, align, pip_size_of, read};

use crate::published;

#[test]
fn a_year_of_minutes_becomes_five_aligned_timeframes() {
    let Some(path) = published("forex_m1/DAT_ASCII_EURUSD_M1_2018.csv.gz") else { return };
    let recording = read(&[path], &ReadOptions::default()).unwrap();
    let (name, bars) = (recording.symbol.as_str(), &recording.bars);
    let instrument = Instrument { name, bars, pip_size: pip_size_of(name).unwrap() };
    let series = align(&[instrument], &SeriesSpec::default()).unwrap();
    assert_eq!((series.segments.len(), series.left_out.len()), (1, 0), "no hole of the year is longer than four days");
    // 49 + 48 bars of H4 must close first, and 36 minutes must follow.
    let first = recording.bars.open_time.iter().position(|ns| ns + 60_000_000_000 == series.sample_time[0]).unwrap();
    assert_eq!(series.len(), 372_607 - 36 - first);
    assert_eq!(series.targets.len(), series.len() * 36);
    for timeframe in &series.timeframes {
        assert!(timeframe.values.iter().all(|value| value.is_finite()), "{}", timeframe.timeframe);
        for (&end, &time) in timeframe.end.iter().zip(&series.sample_time) {
            let end = end as usize;
            assert!(timeframe.close_time[end] <= time, "{}", timeframe.timeframe);
            assert!(timeframe.close_time.get(end + 1).is_none_or(|&next| next > time), "{}", timeframe.timeframe);
        }
    }
    let h4 = series.timeframes.last().unwrap();
    assert_eq!((h4.end[0], h4.window(0).len()), (47, 48 * 16));
    // HistData gives no volume.
    assert_eq!(series.warnings.len(), 5);
    assert!(series.warnings.iter().all(|warning| warning.contains("relative_volume is constant")));
}
