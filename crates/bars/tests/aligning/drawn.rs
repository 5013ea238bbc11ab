//! Bars drawn at random, and what the tests compare.

use megabatch_bars::{
    Bar, Bars, Feature, GapPolicy, Scaling, SeriesSpec, StreamedInstrument, Timeframe, Weekends, Window,
};
use proptest::prelude::*;

use crate::whole::{self, WholeSeries};

pub(crate) const MINUTE_NS: i64 = 60_000_000_000;
pub(crate) const PIP: f64 = 0.01;

/// One base bar drawn at random: minutes since the bar before, change of the close, open, shadows,
/// volume.
pub(crate) type Draw = (i64, f64, f64, f64, f64);

pub(crate) fn bars(draws: &[Draw]) -> Bars {
    let mut bars = Bars::with_capacity(Timeframe::M1, draws.len());
    let (mut minute, mut close) = (1_000_000, 100.0);
    for (step, change, offset, shadow, volume) in draws {
        minute += step;
        close += change;
        let open = close + offset;
        let (high, low) = (open.max(close) + shadow, open.min(close) - shadow);
        let (open_time, spread) = (minute * MINUTE_NS, shadow / 10.0);
        bars.push(Bar { open_time, open, high, low, close, volume: *volume, spread, ..Bar::default() });
    }
    bars
}

/// Bars of which a tenth come after a gap of up to `gap_max` minutes.
fn draws_with_gaps(len: impl Into<prop::collection::SizeRange>, gap_max: i64) -> impl Strategy<Value = Vec<Draw>> {
    let step = prop_oneof![9 => Just(1i64), 1 => 1..gap_max + 2];
    prop::collection::vec((step, -0.5f64..0.5, -0.5f64..0.5, 0.0f64..0.5, 0.0f64..9.0), len)
}

pub(crate) fn draws(len: usize) -> impl Strategy<Value = Vec<Draw>> {
    draws_with_gaps(len, 38)
}

/// Up to five stretches of bars with gaps of at most four minutes, and longer holes between them:
/// some so short that the bins of M15 reach over them.
pub(crate) fn torn_draws() -> impl Strategy<Value = Vec<Draw>> {
    let stretch = (5i64..400, draws_with_gaps(1..700, 4));
    prop::collection::vec(stretch, 1..5).prop_map(|stretches| {
        let joined = stretches.into_iter().map(|(hole, mut stretch)| {
            stretch[0].0 = hole + 1;
            stretch
        });
        joined.flatten().collect()
    })
}

/// Three timeframes with short windows and every feature.
pub(crate) fn spec(scaling: Scaling) -> SeriesSpec {
    let windows = [(Timeframe::M15, 3), (Timeframe::M1, 7), (Timeframe::M5, 4)];
    SeriesSpec {
        windows: windows.map(|(timeframe, seq_len)| Window { timeframe, seq_len }).to_vec(),
        features: Feature::ALL.to_vec(),
        horizon: 5,
        scaling,
        ..SeriesSpec::default()
    }
}

/// The same with features that are soon warm, and segments that end at a hole of more than four
/// minutes.
pub(crate) fn torn_spec(scaling: Scaling) -> SeriesSpec {
    let holes = GapPolicy { longest_ns: 4 * MINUTE_NS, weekends: Weekends::Spanned };
    SeriesSpec { features: Feature::ALL.into_iter().filter(|f| f.warm_up() <= 14).collect(), holes, ..spec(scaling) }
}

pub(crate) fn instrument(bars: &Bars) -> StreamedInstrument<'_> {
    whole::instrument("DRAWN", bars, PIP)
}

pub(crate) fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

/// Windows of sample `n` in all timeframes.
pub(crate) fn sight(series: &WholeSeries, n: usize) -> Vec<Vec<u32>> {
    series.timeframes.iter().map(|timeframe| bits(timeframe.window(n))).collect()
}

/// The base bar at which sample `n` stands.
pub(crate) fn base_bar(bars: &Bars, series: &WholeSeries, n: usize) -> usize {
    bars.open_time.binary_search(&(series.sample_time[n] - MINUTE_NS)).unwrap()
}

/// Some of the bars, as a recording of their own.
pub(crate) fn part(bars: &Bars, range: std::ops::Range<usize>) -> Bars {
    let mut part = Bars::with_capacity(bars.timeframe, range.len());
    range.for_each(|k| part.push(bars.bar(k)));
    part
}
