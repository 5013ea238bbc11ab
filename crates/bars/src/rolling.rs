//! Moving statistics of a column. Each result at a place depends on that place and earlier ones only.
//!
//! A place at which a statistic is not defined yet holds NaN, and so does one whose window holds NaN. Windows are summed
//! anew at each place: a running sum would be faster and drift.

/// Arithmetic mean of the last `len` values.
pub(crate) fn mean(values: &[f64], len: usize) -> Vec<f64> {
    over_windows(values, len, |window| window.iter().sum::<f64>() / window.len() as f64)
}

/// Population standard deviation of the last `len` values.
pub(crate) fn deviation(values: &[f64], len: usize) -> Vec<f64> {
    over_windows(values, len, |window| {
        let mean = window.iter().sum::<f64>() / window.len() as f64;
        (window.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / window.len() as f64).sqrt()
    })
}

/// Largest of the last `len` values.
pub(crate) fn maximum(values: &[f64], len: usize) -> Vec<f64> {
    over_windows(values, len, |window| window.iter().copied().fold(f64::NEG_INFINITY, f64::max))
}

/// Smallest of the last `len` values.
pub(crate) fn minimum(values: &[f64], len: usize) -> Vec<f64> {
    over_windows(values, len, |window| window.iter().copied().fold(f64::INFINITY, f64::min))
}

/// Exponential mean with weight 2 / (len + 1) on the newest value, begun with the mean of the first `len` values.
pub(crate) fn exponential_mean(values: &[f64], len: usize) -> Vec<f64> {
    smoothed(values, len, 2.0 / (len as f64 + 1.0))
}

/// Wilder's mean: weight 1 / len on the newest value, begun with the mean of the first `len` values.
pub(crate) fn wilder_mean(values: &[f64], len: usize) -> Vec<f64> {
    smoothed(values, len, 1.0 / len as f64)
}

fn over_windows(values: &[f64], len: usize, statistic: impl Fn(&[f64]) -> f64) -> Vec<f64> {
    let undefined = (len - 1).min(values.len());
    let mut results = vec![f64::NAN; undefined];
    results.extend(values.windows(len).map(statistic));
    results
}

/// `s[t] = s[t-1] + weight * (x[t] - s[t-1])`, over the values from the first one that is defined.
fn smoothed(values: &[f64], len: usize, weight: f64) -> Vec<f64> {
    let start = values.iter().position(|value| !value.is_nan()).unwrap_or(values.len());
    let mut results = vec![f64::NAN; values.len()];
    let Some(seed) = values.get(start..start + len) else { return results };
    let mut state = seed.iter().sum::<f64>() / len as f64;
    results[start + len - 1] = state;
    for (result, value) in results.iter_mut().zip(values).skip(start + len) {
        state += weight * (value - state);
        *result = state;
    }
    results
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

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

    /// What bars weigh that lie more than 49 bars back, as `TimeframeSeries::look_back` says it.
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
