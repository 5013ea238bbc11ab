use std::f64::consts::TAU;

use crate::bars::Bars;
use crate::series::feature::Feature;
use crate::series::rolling::{deviation, maximum, mean, minimum};
use crate::time::timestamp::DAY_NS;

const WEEK_NS: i64 = 7 * DAY_NS;
/// The first Monday after 1970-01-01, a Thursday.
const MONDAY_NS: i64 = 4 * DAY_NS;

/// One feature of every bar, NaN during its warm-up.
///
/// # Panics
/// For a recursive feature: [`Means`](crate::series::feature_stream::Means) computes those. For a
/// column of the bars or of a function.
pub(crate) fn column(bars: &Bars, feature: &Feature, pip_size: f64) -> Vec<f64> {
    let close = &bars.close;
    match feature {
        Feature::LogReturn => log_return(close, 1),
        Feature::LogReturn12 => log_return(close, 12),
        Feature::OpenGap => with_earlier(close, 1, |t, last| bars.open[t] / last - 1.0),
        Feature::Body => each(bars, |t| (close[t] - bars.open[t]) / close[t]),
        Feature::Range => each(bars, |t| (bars.high[t] - bars.low[t]) / close[t]),
        Feature::UpperShadow => each(bars, |t| (bars.high[t] - bars.open[t].max(close[t])) / close[t]),
        Feature::LowerShadow => each(bars, |t| (bars.open[t].min(close[t]) - bars.low[t]) / close[t]),
        Feature::PipChange => with_earlier(close, 1, |t, last| (close[t] - last) / pip_size),
        Feature::Volatility20 => deviation(&log_return(close, 1), 20),
        Feature::Stochastic14 => stochastic(bars, 14),
        Feature::Sma20Distance => distance(close, &mean(close, 20)),
        Feature::Sma50Distance => distance(close, &mean(close, 50)),
        Feature::LogVolume => each(bars, |t| bars.volume[t].ln_1p()),
        Feature::RelativeVolume => {
            let usual = mean(&bars.volume, 20);
            each(bars, |t| ratio_or(bars.volume[t], usual[t], 0.0))
        }
        Feature::SpreadPips => each(bars, |t| bars.bar(t).spread / pip_size),
        Feature::DaySin => each(bars, |t| (TAU * passed(bars.close_time(t), DAY_NS)).sin()),
        Feature::DayCos => each(bars, |t| (TAU * passed(bars.close_time(t), DAY_NS)).cos()),
        Feature::WeekSin => each(bars, |t| (TAU * passed(bars.close_time(t) - MONDAY_NS, WEEK_NS)).sin()),
        Feature::WeekCos => each(bars, |t| (TAU * passed(bars.close_time(t) - MONDAY_NS, WEEK_NS)).cos()),
        Feature::Atr14
        | Feature::Rsi14
        | Feature::Macd
        | Feature::MacdSignal
        | Feature::MacdHistogram
        | Feature::Ema20Distance
        | Feature::Ema50Distance
        | Feature::Column(_)
        | Feature::Function(_) => panic!("{feature} is not computed from the bars at hand"),
    }
}

fn each(bars: &Bars, value: impl Fn(usize) -> f64) -> Vec<f64> {
    (0..bars.len()).map(value).collect()
}

/// A value of each place and of the close `back` places earlier; NaN where there is none.
fn with_earlier(close: &[f64], back: usize, value: impl Fn(usize, f64) -> f64) -> Vec<f64> {
    (0..close.len()).map(|t| t.checked_sub(back).map_or(f64::NAN, |earlier| value(t, close[earlier]))).collect()
}

fn log_return(close: &[f64], back: usize) -> Vec<f64> {
    with_earlier(close, back, |t, earlier| (close[t] / earlier).ln())
}

fn stochastic(bars: &Bars, len: usize) -> Vec<f64> {
    let (highest, lowest) = (maximum(&bars.high, len), minimum(&bars.low, len));
    each(bars, |t| ratio_or(bars.close[t] - lowest[t], highest[t] - lowest[t], 0.5))
}

fn distance(close: &[f64], average: &[f64]) -> Vec<f64> {
    close.iter().zip(average).map(|(close, average)| close / average - 1.0).collect()
}

/// `part / whole`, or `otherwise` where the whole is zero.
pub(crate) fn ratio_or(part: f64, whole: f64, otherwise: f64) -> f64 {
    if whole == 0.0 { otherwise } else { part / whole }
}

/// The part of its period that has passed at `time_ns`, in 0..1.
fn passed(time_ns: i64, period_ns: i64) -> f64 {
    time_ns.rem_euclid(period_ns) as f64 / period_ns as f64
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::bars::Bar;
    use crate::series::rolling::tests::{exponential_mean, wilder_mean};
    use crate::time::timeframe::Timeframe;
    use crate::time::timestamp::MINUTE_NS;

    const PIP: f64 = 0.01;

    /// The features of all bars, from the first bar at which all of them are defined.
    pub(in crate::series) struct FeatureTable {
        /// Number of bars in front that have no row.
        pub(in crate::series) warm_up: usize,
        /// One row a bar, one column a feature: `[bars - warm_up, features]`.
        pub(in crate::series) values: Vec<f32>,
    }

    impl FeatureTable {
        pub(in crate::series) fn new(bars: &Bars, features: &[Feature], pip_size: f64) -> Self {
            let longest = features.iter().map(Feature::warm_up).max().unwrap_or(0);
            let warm_up = longest.min(bars.len());
            let columns: Vec<Vec<f64>> = features.iter().map(|feature| whole_column(bars, feature, pip_size)).collect();
            let rows = (warm_up..bars.len()).flat_map(|t| columns.iter().map(move |column| column[t] as f32));
            FeatureTable { warm_up, values: rows.collect() }
        }
    }

    /// One feature of every bar, recursive ones too.
    fn whole_column(bars: &Bars, feature: &Feature, pip_size: f64) -> Vec<f64> {
        let close = &bars.close;
        match feature {
            Feature::Atr14 => over_close(bars, &wilder_mean(&true_range(bars), 14)),
            Feature::Rsi14 => relative_strength(close, 14),
            Feature::Macd => over_close(bars, &macd(close)),
            Feature::MacdSignal => over_close(bars, &exponential_mean(&macd(close), 9)),
            Feature::MacdHistogram => {
                let macd = macd(close);
                let signal = exponential_mean(&macd, 9);
                each(bars, |t| (macd[t] - signal[t]) / close[t])
            }
            Feature::Ema20Distance => distance(close, &exponential_mean(close, 20)),
            Feature::Ema50Distance => distance(close, &exponential_mean(close, 50)),
            // Bars of tests have no other.
            Feature::Column(_) | Feature::Function(_) => bars.columns[0].clone(),
            _ => column(bars, feature, pip_size),
        }
    }

    fn true_range(bars: &Bars) -> Vec<f64> {
        with_earlier(&bars.close, 1, |t, last| bars.high[t].max(last) - bars.low[t].min(last))
    }

    fn relative_strength(close: &[f64], len: usize) -> Vec<f64> {
        let rises = wilder_mean(&with_earlier(close, 1, |t, last| (close[t] - last).max(0.0)), len);
        let falls = wilder_mean(&with_earlier(close, 1, |t, last| (last - close[t]).max(0.0)), len);
        rises.iter().zip(&falls).map(|(rise, fall)| 100.0 * ratio_or(*rise, rise + fall, 0.5)).collect()
    }

    fn macd(close: &[f64]) -> Vec<f64> {
        exponential_mean(close, 12).iter().zip(exponential_mean(close, 26)).map(|(fast, slow)| fast - slow).collect()
    }

    fn over_close(bars: &Bars, values: &[f64]) -> Vec<f64> {
        values.iter().zip(&bars.close).map(|(value, close)| value / close).collect()
    }

    /// Minutes from numbers in 0..1: a step of the close, an open, two shadows and a volume each.
    fn bars(numbers: &[[f64; 5]]) -> Bars {
        let mut bars = Bars::with_capacity(Timeframe::M1, numbers.len());
        let mut close = 100.0;
        for (minute, [step, open, up, down, volume]) in numbers.iter().enumerate() {
            close += step - 0.5;
            let open = close + open - 0.5;
            let (high, low) = (open.max(close) + up, open.min(close) - down);
            let open_time = minute as i64 * MINUTE_NS;
            bars.push(Bar {
                open_time,
                open,
                high,
                low,
                close,
                volume: (volume * 10.0).floor(),
                spread: up / 10.0,
                ..Bar::default()
            });
        }
        bars
    }

    fn numbers(len: std::ops::Range<usize>) -> impl Strategy<Value = Vec<[f64; 5]>> {
        prop::collection::vec(prop::array::uniform5(0.0f64..1.0), len)
    }

    /// Each windowed feature straight from its formula, at one place.
    fn naive(bars: &Bars, feature: &Feature, t: usize) -> Option<f64> {
        let Bars { open: o, high: h, low: l, close: c, volume: v, .. } = bars;
        let last = |n: usize| t + 1 - n..t + 1;
        let mean = |n: usize, x: &dyn Fn(usize) -> f64| last(n).map(x).sum::<f64>() / n as f64;
        let wilder = |x: &dyn Fn(usize) -> f64| {
            (15..=t).fold((1..15).map(x).sum::<f64>() / 14.0, |mean, k| (13.0 * mean + x(k)) / 14.0)
        };
        let ema = |n: usize, t: usize| {
            let weight = 2.0 / (n as f64 + 1.0);
            (n..=t).fold(c[..n].iter().sum::<f64>() / n as f64, |mean, k| weight * c[k] + (1.0 - weight) * mean)
        };
        let macd = |t: usize| ema(12, t) - ema(26, t);
        let signal = || (34..=t).fold((25..34).map(macd).sum::<f64>() / 9.0, |mean, k| 0.2 * macd(k) + 0.8 * mean);
        Some(match feature {
            Feature::LogReturn => c[t].ln() - c[t - 1].ln(),
            Feature::LogReturn12 => c[t].ln() - c[t - 12].ln(),
            Feature::OpenGap => (o[t] - c[t - 1]) / c[t - 1],
            Feature::PipChange => (c[t] - c[t - 1]) * 100.0,
            Feature::Body => 1.0 - o[t] / c[t],
            Feature::Range => h[t] / c[t] - l[t] / c[t],
            Feature::UpperShadow => ((h[t] - o[t]) / c[t]).min((h[t] - c[t]) / c[t]),
            Feature::LowerShadow => ((o[t] - l[t]) / c[t]).min((c[t] - l[t]) / c[t]),
            Feature::Volatility20 => {
                let square = mean(20, &|k| (c[k] / c[k - 1]).ln().powi(2));
                (square - mean(20, &|k| (c[k] / c[k - 1]).ln()).powi(2)).sqrt()
            }
            Feature::Atr14 => {
                wilder(&|k| (h[k] - l[k]).max((h[k] - c[k - 1]).abs()).max((l[k] - c[k - 1]).abs())) / c[t]
            }
            Feature::Rsi14 => {
                let (rise, fall) = (wilder(&|k| (c[k] - c[k - 1]).max(0.0)), wilder(&|k| (c[k - 1] - c[k]).max(0.0)));
                100.0 - 100.0 / (1.0 + rise / fall)
            }
            Feature::Stochastic14 => {
                let highest = last(14).map(|k| h[k]).fold(0.0, f64::max);
                let lowest = last(14).map(|k| l[k]).fold(1e9, f64::min);
                (c[t] - lowest) / (highest - lowest)
            }
            Feature::Macd => macd(t) / c[t],
            Feature::MacdSignal => signal() / c[t],
            Feature::MacdHistogram => (macd(t) - signal()) / c[t],
            Feature::Sma20Distance => c[t] / mean(20, &|k| c[k]) - 1.0,
            Feature::Sma50Distance => c[t] / mean(50, &|k| c[k]) - 1.0,
            Feature::Ema20Distance => c[t] / ema(20, t) - 1.0,
            Feature::Ema50Distance => c[t] / ema(50, t) - 1.0,
            Feature::LogVolume => (1.0 + v[t]).ln(),
            Feature::RelativeVolume => v[t] / mean(20, &|k| v[k]),
            Feature::SpreadPips => bars.spread[t] * 100.0,
            Feature::DaySin | Feature::DayCos | Feature::WeekSin | Feature::WeekCos => return None,
            Feature::Column(_) | Feature::Function(_) => return None,
        })
    }

    proptest! {
        #[test]
        fn agrees_with_the_formulas(numbers in numbers(1..90)) {
            let bars = bars(&numbers);
            for feature in &Feature::ALL {
                let column = whole_column(&bars, feature, PIP);
                for (t, &found) in column.iter().enumerate() {
                    prop_assert_eq!(found.is_nan(), t < feature.warm_up(), "{} at {}", feature, t);
                    if t >= feature.warm_up() && let Some(expected) = naive(&bars, feature, t) {
                        let tolerance = 1e-8 * expected.abs().max(1.0);
                        prop_assert!((found - expected).abs() < tolerance, "{} at {}: {} {}", feature, t, found, expected);
                    }
                }
            }
        }

        /// Changing every bar after `t` changes no bit at `t` or before.
        #[test]
        fn no_feature_looks_ahead(numbers in numbers(60..90), other in numbers(90..91), t in 0usize..60) {
            let mut changed = numbers.clone();
            changed[t + 1..].copy_from_slice(&other[t + 1..numbers.len()]);
            let (bars, changed) = (bars(&numbers), bars(&changed));
            for feature in &Feature::ALL {
                let (a, b) = (whole_column(&bars, feature, PIP), whole_column(&changed, feature, PIP));
                for k in 0..=t {
                    prop_assert_eq!(a[k].to_bits(), b[k].to_bits(), "{} at {}", feature, k);
                }
            }
        }
    }

    #[test]
    fn flat_bars_without_volume_have_finite_features() {
        let mut bars = Bars::with_capacity(Timeframe::M1, 60);
        for minute in 0..60 {
            let open_time = minute * MINUTE_NS;
            bars.push(Bar { open_time, open: 1.25, high: 1.25, low: 1.25, close: 1.25, ..Bar::default() });
        }
        let table = FeatureTable::new(&bars, &Feature::ALL, PIP);
        assert_eq!((table.warm_up, table.values.len()), (49, 11 * Feature::ALL.len()));
        for (value, feature) in table.values.iter().zip(Feature::ALL.iter().cycle()) {
            let expected = match feature {
                Feature::Rsi14 => 50.0,
                Feature::Stochastic14 => 0.5,
                feature if feature.is_cyclic() => continue,
                _ => 0.0,
            };
            assert_eq!(*value, expected, "{feature}");
        }
    }

    #[test]
    fn times_of_day_and_week_are_those_of_the_close() {
        let mut bars = Bars::with_capacity(Timeframe::H1, 2);
        // 1970-01-05 is a Monday; its sixth hour ends a quarter of the day, Tuesday's 18th a
        // quarter of the week.
        for open_time in [4 * DAY_NS + 5 * DAY_NS / 24, 5 * DAY_NS + 17 * DAY_NS / 24] {
            bars.push(Bar { open_time, open: 1.0, high: 1.0, low: 1.0, close: 1.0, ..Bar::default() });
        }
        let at = |feature: &Feature, t: usize| column(&bars, feature, PIP)[t];
        assert!((at(&Feature::DaySin, 0) - 1.0).abs() < 1e-12 && at(&Feature::DayCos, 0).abs() < 1e-12);
        assert!((at(&Feature::WeekSin, 1) - 1.0).abs() < 1e-12 && at(&Feature::WeekCos, 1).abs() < 1e-12);
    }

    #[test]
    fn fewer_bars_than_the_warm_up_have_no_rows() {
        for len in [0, 1, 49, 50] {
            let table = FeatureTable::new(&bars(&vec![[0.4; 5]; len]), &[Feature::Sma50Distance, Feature::Body], PIP);
            assert_eq!((table.warm_up, table.values.len()), (len.min(49), len.saturating_sub(49) * 2));
        }
    }
}
