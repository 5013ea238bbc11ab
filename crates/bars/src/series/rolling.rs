//! Moving statistics of a column. Each result at a place depends on that place and earlier ones
//! only.
//!
//! A place at which a statistic is not defined yet holds NaN, and so does one whose window holds
//! NaN. Windows are summed anew at each place: a running sum would be faster and drift.

/// Arithmetic mean of the last `len` values.
pub(crate) fn mean(values: &[f64], len: usize) -> Vec<f64> {
    over_windows(values, len, |windows| windows.fold(no_sum(), |sum, value| sum + value).map(|sum| sum / len as f64))
}

/// Population standard deviation of the last `len` values.
pub(crate) fn deviation(values: &[f64], len: usize) -> Vec<f64> {
    over_windows(values, len, |windows| {
        let mean = windows.fold(no_sum(), |sum, value| sum + value).map(|sum| sum / len as f64);
        let mut squares = [no_sum(); LANES];
        for column in windows.columns() {
            for lane in 0..LANES {
                squares[lane] += (column[lane] - mean[lane]).powi(2);
            }
        }
        squares.map(|sum| (sum / len as f64).sqrt())
    })
}

/// Largest of the last `len` values.
pub(crate) fn maximum(values: &[f64], len: usize) -> Vec<f64> {
    over_windows(values, len, |windows| windows.fold(f64::NEG_INFINITY, f64::max))
}

/// Smallest of the last `len` values.
pub(crate) fn minimum(values: &[f64], len: usize) -> Vec<f64> {
    over_windows(values, len, |windows| windows.fold(f64::INFINITY, f64::min))
}

/// Windows that are computed side by side, each by itself and in its own order: a sum of one window
/// waits for each of its additions, and eight sums wait together.
const LANES: usize = 8;

/// [`LANES`] windows that begin at neighbouring places.
#[derive(Clone, Copy)]
struct Windows<'a> {
    /// The values of all of them: `len + LANES - 1`.
    values: &'a [f64],
}

impl<'a> Windows<'a> {
    /// The k-th value of every window, for each k.
    fn columns(self) -> impl Iterator<Item = &'a [f64; LANES]> {
        self.values.windows(LANES).map(|column| column.try_into().expect("a value for each lane"))
    }

    fn fold(self, start: f64, step: impl Fn(f64, f64) -> f64) -> [f64; LANES] {
        let mut results = [start; LANES];
        for column in self.columns() {
            for lane in 0..LANES {
                results[lane] = step(results[lane], column[lane]);
            }
        }
        results
    }
}

/// The sum of no values, with which sums of the standard library begin.
fn no_sum() -> f64 {
    std::iter::empty::<f64>().sum()
}

fn over_windows(values: &[f64], len: usize, statistic: impl Fn(Windows<'_>) -> [f64; LANES]) -> Vec<f64> {
    let mut results = Vec::with_capacity(values.len());
    results.resize((len - 1).min(values.len()), f64::NAN);
    let width = len + LANES - 1;
    let mut first = 0;
    while first + width <= values.len() {
        results.extend(statistic(Windows { values: &values[first..first + width] }));
        first += LANES;
    }
    // The last windows stand in front of values that nobody asks for.
    let left = (values.len() + 1).saturating_sub(first + len);
    if left > 0 {
        let mut rest = values[first..].to_vec();
        rest.resize(width, 0.0);
        results.extend(&statistic(Windows { values: &rest })[..left]);
    }
    results
}

/// A mean of one value after another: `s[t] = s[t-1] + weight * (x[t] - s[t-1])`, begun with the
/// plain mean of the first `len` values from the first one that is defined.
#[derive(Clone, Debug)]
pub(crate) struct Smoothed {
    len: usize,
    weight: f64,
    /// The first values, `len` of them once they came.
    seed: Vec<f64>,
    mean: f64,
}

impl Smoothed {
    /// Exponential mean: weight 2 / (len + 1) on the newest value.
    pub(crate) fn exponential(len: usize) -> Self {
        Smoothed::new(len, 2.0 / (len as f64 + 1.0))
    }

    /// Wilder's mean: weight 1 / len on the newest value.
    pub(crate) fn wilder(len: usize) -> Self {
        Smoothed::new(len, 1.0 / len as f64)
    }

    fn new(len: usize, weight: f64) -> Self {
        Smoothed { len, weight, seed: Vec::with_capacity(len), mean: f64::NAN }
    }

    /// The mean up to the last value; NaN where too few came.
    pub(crate) fn mean(&self) -> f64 {
        self.mean
    }

    /// Takes the next value and returns the mean up to it.
    pub(crate) fn next(&mut self, value: f64) -> f64 {
        if self.seed.len() == self.len {
            self.mean += self.weight * (value - self.mean);
        } else if !self.seed.is_empty() || !value.is_nan() {
            self.seed.push(value);
            if self.seed.len() == self.len {
                self.mean = self.seed.iter().sum::<f64>() / self.len as f64;
            }
        }
        self.mean
    }
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Exponential mean with weight 2 / (len + 1) on the newest value, begun with the mean of the
    /// first `len` values.
    pub(in crate::series) fn exponential_mean(values: &[f64], len: usize) -> Vec<f64> {
        over_all(values, Smoothed::exponential(len))
    }

    /// Wilder's mean: weight 1 / len on the newest value, begun with the mean of the first `len`
    /// values.
    pub(in crate::series) fn wilder_mean(values: &[f64], len: usize) -> Vec<f64> {
        over_all(values, Smoothed::wilder(len))
    }

    fn over_all(values: &[f64], mut mean: Smoothed) -> Vec<f64> {
        values.iter().map(|&value| mean.next(value)).collect()
    }

    fn same(found: &[f64], expected: &[f64]) {
        assert_eq!(found.len(), expected.len());
        for (place, (found, expected)) in found.iter().zip(expected).enumerate() {
            let close = (found - expected).abs() <= 1e-12 * expected.abs().max(1.0);
            assert!(close || (found.is_nan() && expected.is_nan()), "{place}: {found} is not {expected}");
        }
    }

    #[test]
    fn known_values() {
        const N: f64 = f64::NAN;
        let values = [N, 1.0, 2.0, 6.0, 4.0];
        same(&mean(&values, 2), &[N, N, 1.5, 4.0, 5.0]);
        same(&deviation(&values, 2), &[N, N, 0.5, 2.0, 1.0]);
        same(&maximum(&values[1..], 3), &[N, N, 6.0, 6.0]);
        same(&minimum(&values[1..], 3), &[N, N, 1.0, 2.0]);
        same(&exponential_mean(&values, 3), &[N, N, N, 3.0, 3.5]);
        same(&wilder_mean(&values, 2), &[N, N, 1.5, 3.75, 3.875]);
        for len in [1, 5, 6] {
            assert_eq!(mean(&values[..0], len).len(), 0);
            assert_eq!(wilder_mean(&values, len).len(), 5);
            assert_eq!(mean(&values, len).len(), 5);
        }
    }

    /// Weight of bars more than 49 bars back, as `SeriesPiece::receptive_start` states it.
    #[test]
    fn the_past_fades() {
        let step: Vec<f64> = (0..1_000).map(|t| if t < 950 { 1.0 } else { 0.0 }).collect();
        let past_weight = |means: Vec<f64>| (means[999] * 1_000.0).round() / 10.0;
        assert_eq!(past_weight(wilder_mean(&step, 14)), 2.5);
        assert_eq!(past_weight(exponential_mean(&step, 26)), 2.1);
        assert_eq!(past_weight(exponential_mean(&step, 50)), 13.5);
        assert_eq!(past_weight(mean(&step, 50)), 0.0);
    }

    proptest! {
        /// Windows side by side give the bits of each window by itself.
        #[test]
        fn lanes_change_no_bit(values in prop::collection::vec(prop_oneof![-10.0f64..10.0, Just(f64::NAN), Just(-0.0)], 0..60), len in 1usize..12) {
            let alone = |statistic: &dyn Fn(&[f64]) -> f64| {
                let undefined = std::iter::repeat_n(f64::NAN, (len - 1).min(values.len()));
                undefined.chain(values.windows(len).map(statistic)).map(f64::to_bits).collect::<Vec<_>>()
            };
            let bits = |found: Vec<f64>| found.into_iter().map(f64::to_bits).collect::<Vec<_>>();
            let mean_of = |window: &[f64]| window.iter().sum::<f64>() / window.len() as f64;
            prop_assert_eq!(bits(mean(&values, len)), alone(&mean_of));
            prop_assert_eq!(bits(deviation(&values, len)), alone(&|window| {
                let mean = mean_of(window);
                (window.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / window.len() as f64).sqrt()
            }));
            prop_assert_eq!(bits(maximum(&values, len)), alone(&|w| w.iter().copied().fold(f64::NEG_INFINITY, f64::max)));
            prop_assert_eq!(bits(minimum(&values, len)), alone(&|w| w.iter().copied().fold(f64::INFINITY, f64::min)));
        }

        /// The recursion is the weighted sum that it stands for: the seed fades by (1 - w) a step.
        #[test]
        fn smoothing_is_a_weighted_sum(values in prop::collection::vec(-10.0f64..10.0, 5..60)) {
            let (len, weight): (usize, f64) = (5, 1.0 / 5.0);
            let seed = values[..len].iter().sum::<f64>() / len as f64;
            let expected: Vec<f64> = (0..values.len()).map(|t| {
                if t < len - 1 { return f64::NAN }
                let faded = |age: usize| (1.0 - weight).powi(age as i32);
                seed * faded(t + 1 - len) + (len..=t).map(|k| weight * faded(t - k) * values[k]).sum::<f64>()
            }).collect();
            same(&wilder_mean(&values, len), &expected);
        }
    }
}
