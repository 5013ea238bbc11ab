//! Features of bars as they come, each bar once.
//!
//! ```text
//! recursive features (EMA, Wilder's mean):  from means that go on from bar to bar
//! columns of the bars:                      as they are
//! all others:                               as columns of the last warm_up + 1 bars, which are all
//!                                           that they read
//! ```
//!
//! A table of all bars is the oracle: both are the same to the last bit, because both kinds do the
//! same operations in the same order.

use crate::bars::{Bar, Bars};
use crate::series::feature::Feature;
use crate::series::feature_column::{column, ratio_or};
use crate::series::rolling::Smoothed;
use crate::series::spec::SeriesSpec;

/// The features of one segment of one timeframe.
#[derive(Clone, Debug)]
pub(crate) struct FeatureStream {
    features: Vec<Feature>,
    /// Places among the columns of the bars.
    column_places: Vec<Option<usize>>,
    pip_size: f64,
    /// Bars without a row at the start of a segment: the longest warm-up.
    warm_up: usize,
    /// Bars so far.
    count: usize,
    /// The last bars, at least as many as a feature reads.
    recent: Bars,
    means: Means,
}

impl FeatureStream {
    /// Features of bars that will follow `no_bars`.
    pub(crate) fn new(no_bars: Bars, spec: &SeriesSpec, pip_size: f64) -> Self {
        FeatureStream {
            features: spec.features.clone(),
            column_places: spec.column_places(no_bars.timeframe),
            pip_size,
            warm_up: spec.look_back(),
            count: 0,
            recent: no_bars,
            means: Means::new(),
        }
    }

    /// Bars that are still without a row.
    pub(crate) fn warm_up_left(&self) -> usize {
        self.warm_up.saturating_sub(self.count)
    }

    /// Forgets all bars: a segment begins.
    pub(crate) fn restart(&mut self) {
        self.recent.truncate(0);
        (self.count, self.means) = (0, Means::new());
    }

    /// Takes the next bar and adds its features to `row`, none during the warm-up. True if there
    /// were any.
    pub(crate) fn push(&mut self, bar: Bar, row: &mut Vec<f32>) -> bool {
        self.means.push(&bar, self.recent.close.last().copied());
        self.recent.push(bar);
        self.count += 1;
        let has_row = self.count > self.warm_up;
        if has_row {
            let together = self.features.iter().zip(&self.column_places);
            row.extend(together.map(|(feature, &place)| self.last_of(feature, place) as f32));
        }
        self.forget();
        has_row
    }

    fn last_of(&self, feature: &Feature, column_place: Option<usize>) -> f64 {
        let len = self.recent.len();
        if let Some(place) = column_place {
            return self.recent.columns[place][len - 1];
        }
        self.means.value(feature, self.recent.close[len - 1]).unwrap_or_else(|| {
            let read = self.recent.part(len - 1 - feature.warm_up()..len);
            column(&read, feature, self.pip_size)[feature.warm_up()]
        })
    }

    /// Drops what no feature reads any more, now and then, so that it costs nothing a bar.
    fn forget(&mut self) {
        let (len, read) = (self.recent.len(), self.warm_up + 1);
        if len >= 4 * read {
            self.recent = self.recent.part(len - read..len);
        }
    }
}

/// State of recursive features.
#[derive(Clone, Debug)]
pub(crate) struct Means {
    true_range: Smoothed,
    rise: Smoothed,
    fall: Smoothed,
    ema_12: Smoothed,
    ema_20: Smoothed,
    ema_26: Smoothed,
    ema_50: Smoothed,
    macd_signal: Smoothed,
}

impl Means {
    pub(crate) fn new() -> Self {
        let (wilder, exponential) = (Smoothed::wilder, Smoothed::exponential);
        Means {
            true_range: wilder(14),
            rise: wilder(14),
            fall: wilder(14),
            ema_12: exponential(12),
            ema_20: exponential(20),
            ema_26: exponential(26),
            ema_50: exponential(50),
            macd_signal: exponential(9),
        }
    }

    /// Takes the next bar; `last` is the close of the one before it in the segment.
    pub(crate) fn push(&mut self, bar: &Bar, last: Option<f64>) {
        let change = |value: fn(&Bar, f64) -> f64| last.map_or(f64::NAN, |last| value(bar, last));
        self.true_range.next(change(|bar, last| bar.high.max(last) - bar.low.min(last)));
        self.rise.next(change(|bar, last| (bar.close - last).max(0.0)));
        self.fall.next(change(|bar, last| (last - bar.close).max(0.0)));
        for mean in [&mut self.ema_12, &mut self.ema_20, &mut self.ema_26, &mut self.ema_50] {
            mean.next(bar.close);
        }
        self.macd_signal.next(self.macd());
    }

    fn macd(&self) -> f64 {
        self.ema_12.mean() - self.ema_26.mean()
    }

    /// A recursive feature of the last bar, which closed at `close`; `None` for one that is not
    /// recursive.
    pub(crate) fn value(&self, feature: &Feature, close: f64) -> Option<f64> {
        Some(match feature {
            Feature::Atr14 => self.true_range.mean() / close,
            Feature::Rsi14 => 100.0 * ratio_or(self.rise.mean(), self.rise.mean() + self.fall.mean(), 0.5),
            Feature::Macd => self.macd() / close,
            Feature::MacdSignal => self.macd_signal.mean() / close,
            Feature::MacdHistogram => (self.macd() - self.macd_signal.mean()) / close,
            Feature::Ema20Distance => close / self.ema_20.mean() - 1.0,
            Feature::Ema50Distance => close / self.ema_50.mean() - 1.0,
            _ => return None,
        })
    }
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::series::column_feature::{ColumnFeature, ColumnRule};
    use crate::series::feature_column::tests::FeatureTable;
    use crate::series::spec::Window;
    use crate::time::timeframe::Timeframe;
    use crate::time::timestamp::MINUTE_NS;

    /// Bars of which many are equal to the one before, as in thin markets, and some have neither
    /// volume nor spread.
    pub(in crate::series) fn bars(steps: &[(i8, u8, u8)]) -> Bars {
        let mut bars = Bars::with_capacity(Timeframe::M5, steps.len());
        bars.ensure_columns(1);
        let mut close = 1.25;
        for (k, &(step, range, volume)) in steps.iter().enumerate() {
            let open = close;
            close += f64::from(step / 32) * 1e-5;
            let (high, low) =
                (open.max(close) + f64::from(range) * 1e-6, open.min(close) - f64::from(range / 2) * 1e-6);
            let (volume, spread) = (f64::from(volume / 64), f64::from(volume % 3) * 1e-5);
            bars.push(Bar {
                open_time: 5 * k as i64 * MINUTE_NS,
                open,
                high,
                low,
                close,
                volume,
                spread,
                columns: Box::new([close - 1.25]),
            });
        }
        bars
    }

    /// A series of `features` in the timeframe of [`bars`].
    pub(in crate::series) fn spec(features: &[Feature]) -> SeriesSpec {
        let windows = vec![Window { timeframe: Timeframe::M5, seq_len: 1 }];
        SeriesSpec { windows, features: features.to_vec(), ..SeriesSpec::default() }
    }

    /// Every feature, and a column.
    pub(in crate::series) fn with_column() -> Vec<Feature> {
        let column = Feature::Column(ColumnFeature::new("own", ColumnRule::Last));
        Feature::ALL.into_iter().chain([column]).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// Bar by bar as in a table of all, bit for bit, for features alone and all together.
        #[test]
        fn agrees_with_a_table(
            steps in prop::collection::vec(any::<(i8, u8, u8)>(), 0..400), one in 0..=Feature::ALL.len(), all in any::<bool>(),
        ) {
            let features = if all { with_column() } else { vec![with_column().swap_remove(one)] };
            let bars = bars(&steps);
            let table = FeatureTable::new(&bars, &features, 1e-4);
            let mut stream = FeatureStream::new(bars.part(0..0), &spec(&features), 1e-4);
            // What came before a restart leaves no trace.
            for k in 0..bars.len() {
                stream.push(bars.bar(k), &mut Vec::new());
            }
            stream.restart();
            let mut values = Vec::new();
            for k in 0..bars.len() {
                prop_assert_eq!(stream.push(bars.bar(k), &mut values), k >= table.warm_up);
            }
            let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
            prop_assert_eq!(bits(&values), bits(&table.values));
        }
    }
}
