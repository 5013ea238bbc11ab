use megabatch_bars::{Bars, Feature, Scaling, SeriesSpec, align, resample};
use proptest::prelude::*;

use crate::made_up::{MINUTE_NS, bars, base_bar, draws, instrument, sight, spec};

/// Features that read a known number of bars.
fn windowed(features: &[Feature]) -> Vec<Feature> {
    use Feature::*;
    let recursive = [Atr14, Rsi14, Macd, MacdSignal, MacdHistogram, Ema20Distance, Ema50Distance];
    features.iter().copied().filter(|feature| !recursive.contains(feature)).collect()
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
        let start = series.receptive_starts()[n];
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
        for (n, start) in series.receptive_starts().into_iter().enumerate().step_by(7) {
            let opens = series.timeframes.iter().map(|timeframe| {
                let track = resample(&bars, timeframe.timeframe).unwrap();
                let closed = (0..track.len()).filter(|&k| track.close_time(k) <= series.sample_time[n]).count();
                track.open_time[closed - timeframe.seq_len - 49]
            });
            prop_assert_eq!(start, opens.min().unwrap().max(bars.open_time[0]));
            prop_assert!(first_at(&bars, start) < base_bar(&bars, &series, n));
        }
    }
}
