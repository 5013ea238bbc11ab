use megabatch_bars::{Bars, Error, Feature, Scaling, SeriesSpec, TargetKind, Timeframe};
use proptest::prelude::*;

use crate::drawn::{Draw, MINUTE_NS, bars, base_bar, draws, instrument, sight, spec};
use crate::whole::{align, align_with, resample};

proptest! {
    /// Whatever happens after a sample, prices, volumes and times, it sees the same bits.
    #[test]
    fn the_future_changes_no_sample(draws in draws(1_000), other in draws(1_000), part in 0.0f64..1.0) {
        let before = bars(&draws);
        let series = align(&[instrument(&before)], &spec(Scaling::None)).unwrap();
        let n = (part * series.len() as f64) as usize;
        let t = base_bar(&before, &series, n);
        let mut changed = draws.clone();
        changed[t + 1..].copy_from_slice(&other[t + 1..]);
        let after = align(&[instrument(&bars(&changed))], &spec(Scaling::None)).unwrap();
        prop_assert_eq!(series.sample_time[n], after.sample_time[n]);
        prop_assert_eq!(sight(&series, n), sight(&after, n));
        prop_assert_ne!(&series.targets[n * 5..n * 5 + 5], &after.targets[n * 5..n * 5 + 5]);
    }

    /// Prices after the training span change neither the scalers nor what its samples see.
    #[test]
    fn the_future_changes_no_scaler(draws in draws(1_000), other in draws(1_000)) {
        for scaling in [Scaling::Robust, Scaling::Standard] {
            let before = bars(&draws);
            let series = align(&[instrument(&before)], &spec(scaling)).unwrap();
            let trained = series.sample_time.partition_point(|&time| time < series.scalers().fit_end_time);
            prop_assert_eq!(trained, (series.len() as f64 * 0.7) as usize);
            let t = base_bar(&before, &series, trained - 1);
            let mut changed = draws.clone();
            for (bar, other) in changed.iter_mut().zip(&other).skip(t + 1) {
                *bar = (bar.0, other.1, other.2, other.3, other.4);
            }
            let after = align(&[instrument(&bars(&changed))], &spec(scaling)).unwrap();
            prop_assert_eq!(after.scalers(), series.scalers());
            prop_assert_eq!(sight(&series, trained - 1), sight(&after, trained - 1));
            prop_assert_ne!(&series.timeframes[0].values, &after.timeframes[0].values);
        }
    }

    /// Samples, window ends, times and targets are what a search over all bars gives.
    #[test]
    fn agrees_with_a_search(draws in draws(900), stride in 1usize..7) {
        let bars = bars(&draws);
        let spec = SeriesSpec { stride, target_kind: TargetKind::Increment, ..spec(Scaling::None) };
        let series = align(&[instrument(&bars)], &spec).unwrap();
        let names: Vec<_> = series.timeframes.iter().map(|timeframe| timeframe.window.timeframe.name()).collect();
        prop_assert_eq!(names, ["M1", "M5", "M15"]);
        let warm_up = 49;
        let closed = |track: &Bars, time: i64| (0..track.len()).filter(|&k| track.close_time(k) <= time).count();
        let tracks: Vec<Bars> = series.timeframes.iter().map(|tf| resample(&bars, tf.window.timeframe)).collect();
        let samples: Vec<usize> = (0..bars.len() - 5).filter(|&t| {
            tracks.iter().zip([7, 4, 3]).all(|(track, seq_len)| closed(track, bars.close_time(t)) >= warm_up + seq_len)
        }).step_by(stride).collect();
        prop_assert_eq!(&series.sample_time, &samples.iter().map(|&t| bars.close_time(t)).collect::<Vec<_>>());
        for (track, timeframe) in tracks.iter().zip(&series.timeframes) {
            prop_assert_eq!(&timeframe.open_time(), &track.open_time[warm_up..]);
            prop_assert_eq!(timeframe.values.len(), timeframe.close_time.len() * Feature::ALL.len());
            for (n, &t) in samples.iter().enumerate() {
                prop_assert_eq!(timeframe.end[n] as usize, closed(track, bars.close_time(t)) - 1 - warm_up);
            }
        }
        for (n, &t) in samples.iter().enumerate() {
            for k in 0..5 {
                let expected = ((bars.close[t + k + 1] - bars.close[t + k]) / 0.01) as f32;
                prop_assert_eq!(series.targets[n * 5 + k], expected);
            }
        }
    }
}

#[test]
fn scaled_values_go_back_to_the_raw_ones() {
    let draws: Vec<Draw> = (0..1_000).map(|k| (1, (f64::from(k) * 0.7).sin(), 0.1, 0.2, f64::from(k % 7))).collect();
    let raw = align(&[instrument(&bars(&draws))], &spec(Scaling::None)).unwrap();
    for scaling in [Scaling::Robust, Scaling::Standard] {
        let scaled = align(&[instrument(&bars(&draws))], &spec(scaling)).unwrap();
        let timeframes = raw.timeframes.iter().zip(&scaled.timeframes).zip(&scaled.scalers().timeframes);
        for ((raw, scaled), scaler) in timeframes {
            let width = scaled.width;
            for (index, (raw, value)) in raw.values.iter().zip(&scaled.values).enumerate() {
                let (center, scale) = (scaler.center[index % width], scaler.scale[index % width]);
                let back = f64::from(*value) * scale + center;
                let tolerance = 1e-6 * (center.abs() + scale + f64::from(raw.abs()));
                assert!((back - f64::from(*raw)).abs() < tolerance, "{}: {back} {raw}", Feature::ALL[index % width]);
            }
        }
    }
}

#[test]
fn a_constant_feature_is_warned_of_by_timeframe_and_name() {
    let draws: Vec<Draw> = (0..1_000).map(|k| (1, (f64::from(k) * 0.7).sin(), 0.1, 0.2, 0.0)).collect();
    let series = align(&[instrument(&bars(&draws))], &spec(Scaling::Robust)).unwrap();
    let volumes: Vec<_> = series.header.warnings.iter().filter(|warning| warning.contains("volume")).collect();
    assert_eq!(volumes.len(), 2, "two features: {:?}", series.header.warnings);
    let expected = "log_volume is constant over the training span in every timeframe: it carries nothing";
    assert!(volumes[0].starts_with(expected), "{}", volumes[0]);
    let place = Feature::ALL.iter().position(|feature| *feature == Feature::LogVolume).unwrap();
    let scaler = &series.scalers().timeframes[0];
    assert_eq!((scaler.center[place], scaler.scale[place]), (0.0, 1.0));
}

#[test]
fn a_series_of_one_sample_and_one_bar_less() {
    let draws: Vec<Draw> = vec![(1, 0.1, 0.0, 0.1, 1.0); 2_000];
    // Minute 1,000,001 opens first. The 52nd M15 bar is the last of the three windows to fill.
    let align = |len: usize| align(&[instrument(&bars(&draws[..len]))], &spec(Scaling::None));
    let full = (0..2_000).find(|&len| align(len).is_ok()).unwrap();
    assert_eq!(align(full).unwrap().len(), 1);
    let error = align(full - 1).unwrap_err();
    let message = error.to_string();
    let Error::TooShort { horizon, shortages, segments: 1, .. } = error else { panic!("{message}") };
    assert_eq!((horizon, shortages[2].bars, shortages[2].needed), (5, 51, 52));
    assert!(message.contains("M15 has 51 bars and needs 52") && message.contains("M1 has 7"), "{message}");
    for len in [0, 1, 5, 6] {
        assert!(matches!(align(len), Err(Error::TooShort { .. })), "{len}");
    }
}

/// Scalers read back from a series give that series, and scale other data alike.
#[test]
fn scalers_are_kept_for_other_data() {
    let draws: Vec<Draw> = (0..1_000).map(|k| (1, (f64::from(k) * 0.7).sin(), 0.1, 0.2, f64::from(k % 7))).collect();
    let (whole, later) = (bars(&draws), bars(&draws[100..]));
    let fitted = align(&[instrument(&whole)], &spec(Scaling::Robust)).unwrap();
    let mut again = align_with(&[instrument(&whole)], &spec(Scaling::None), fitted.scalers()).unwrap();
    assert_eq!(again.scalers().kind, Scaling::Robust);
    again.header.warnings.clone_from(&fitted.header.warnings);
    assert_eq!(again, fitted);
    let other = align_with(&[instrument(&later)], &spec(Scaling::Standard), fitted.scalers()).unwrap();
    assert_eq!(other.scalers(), fitted.scalers());
}

#[test]
fn timeframes_below_the_base_are_refused() {
    let draws: Vec<Draw> = vec![(1, 0.1, 0.0, 0.1, 1.0); 100];
    let hours = resample(&bars(&draws), Timeframe::H1);
    let error = align(&[instrument(&hours)], &SeriesSpec::default()).unwrap_err().to_string();
    assert!(error.contains("M1 bars cannot be made from H1 bars"), "{error}");
}

/// Features that read a known number of bars.
fn windowed(features: &[Feature]) -> Vec<Feature> {
    use Feature::*;
    let recursive = [Atr14, Rsi14, Macd, MacdSignal, MacdHistogram, Ema20Distance, Ema50Distance];
    features.iter().filter(|feature| !recursive.contains(feature)).cloned().collect()
}

/// The earliest base bar that opens at `time` or later.
fn first_at(bars: &Bars, time: i64) -> usize {
    bars.open_time.partition_point(|&open_time| open_time < time)
}

proptest! {
    /// Nothing before the receptive field changes a sample; its first bar does.
    #[test]
    fn windowed_features_read_the_receptive_field(draws in draws(1_000), part in 0.0f64..1.0) {
        let spec = SeriesSpec { features: windowed(&Feature::ALL), ..spec(Scaling::None) };
        let before = bars(&draws);
        let series = align(&[instrument(&before)], &spec).unwrap();
        let n = (part * series.len() as f64) as usize;
        let start = series.receptive_start[n];
        let first = first_at(&before, start);
        let with_changes = |from: usize, to: usize| {
            let mut changed = before.clone();
            for column in [&mut changed.open, &mut changed.high, &mut changed.low, &mut changed.close] {
                column[from..to].iter_mut().for_each(|price| *price *= 1.5);
            }
            sight(&align(&[instrument(&changed)], &spec).unwrap(), n)
        };
        prop_assert_eq!(with_changes(0, first), sight(&series, n));
        // The whole of the earliest bar: of the timeframe that reaches back farthest, M15.
        let after = first_at(&before, start.div_euclid(15 * MINUTE_NS) * 15 * MINUTE_NS + 15 * MINUTE_NS);
        prop_assert_ne!(with_changes(first, after), sight(&series, n));
    }

    /// The receptive field begins where a search over the resampled bars finds it.
    #[test]
    fn starts_agree_with_a_search(draws in draws(900)) {
        let bars = bars(&draws);
        let series = align(&[instrument(&bars)], &spec(Scaling::None)).unwrap();
        for (n, &start) in series.receptive_start.iter().enumerate().step_by(7) {
            let opens = series.timeframes.iter().map(|timeframe| {
                let track = resample(&bars, timeframe.window.timeframe);
                let closed = (0..track.len()).filter(|&k| track.close_time(k) <= series.sample_time[n]).count();
                track.open_time[closed - timeframe.window.seq_len - 49]
            });
            prop_assert_eq!(start, opens.min().unwrap().max(bars.open_time[0]));
            prop_assert!(first_at(&bars, start) < base_bar(&bars, &series, n));
        }
    }
}
