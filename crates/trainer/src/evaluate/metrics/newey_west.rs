//! The t-statistic of a mean over values in order of time whose targets overlap.

use megabatch_nn::graph::LabelSpan;

/// Largest distance in `spans` between two that overlap; 0 if none do. Spans are in order of time.
pub(crate) fn overlap(spans: &[LabelSpan]) -> usize {
    let mut most = 0;
    for (place, span) in spans.iter().enumerate() {
        while spans.get(place + most + 1).is_some_and(|later| later.start_ns < span.end_ns) {
            most += 1;
        }
    }
    most
}

/// The t-statistic of the mean of `values`, which are in order of time, by Newey and West (1987),
/// "A simple, positive semi-definite, heteroskedasticity and autocorrelation consistent covariance
/// matrix": with d the deviations of the n known values from their mean m, and L = `lag`,
///
/// t = m / √(S / (n (n - 1))), S = Σᵢ dᵢ² + 2 Σⱼ₌₁..L (1 - j / (L + 1)) Σᵢ dᵢ dᵢ₊ⱼ.
///
/// With L = 0 that is mean / standard deviation · √n. A value that is `None` keeps its place and
/// has no deviation. The answer is `None` for fewer than two values, and where S is not above 0.
pub fn t_statistic(values: &[Option<f64>], lag: usize) -> Option<f64> {
    let known: Vec<f64> = values.iter().copied().flatten().collect();
    let count = known.len() as f64;
    let mean = known.iter().sum::<f64>() / count;
    let deviations: Vec<f64> = values.iter().map(|value| value.map_or(0.0, |value| value - mean)).collect();
    let products = |distance: usize| -> f64 {
        let later = deviations.get(distance..).unwrap_or_default();
        deviations.iter().zip(later).map(|(early, late)| early * late).sum()
    };
    let weighted = |distance: usize| (1.0 - distance as f64 / (lag + 1) as f64) * products(distance);
    let furthest = lag.min(values.len().saturating_sub(1));
    let sum = products(0) + 2.0 * (1..=furthest).map(weighted).sum::<f64>();
    let t = mean / (sum / (count * (count - 1.0))).sqrt();
    Some(t).filter(|t| known.len() > 1 && sum > 0.0 && t.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(start_ns: i64, end_ns: i64) -> LabelSpan {
        LabelSpan { start_ns, end_ns }
    }

    /// Evaluation of a rank loss on daily shares with five horizons: the t-statistic of the fifth
    /// horizon was mean / standard deviation · √days, and every day shares four days with the next.
    #[test]
    fn t_of_four_values_by_hand() {
        // Mean 2.5; deviations -1.5, -0.5, 1.5, 0.5; sums of products 5, 0.75 and -2.5.
        let values = [1.0, 2.0, 4.0, 3.0].map(Some);
        for (lag, sum) in [
            (0, 5.0),
            (1, 5.0 + 2.0 * 0.5 * 0.75),
            (2, 5.0 + 2.0 * (2.0 / 3.0 * 0.75 - 1.0 / 3.0 * 2.5)),
            // Distance 3 has the product -0.75; there is no distance 4.
            (4, 5.0 + 2.0 * (0.8 * 0.75 - 0.6 * 2.5 - 0.4 * 0.75)),
        ] {
            let (found, expected) = (t_statistic(&values, lag).unwrap(), 2.5 / (sum / 12.0_f64).sqrt());
            assert!((found - expected).abs() < 1e-12, "lag {lag}: {found} is not {expected}");
        }
    }

    #[test]
    fn a_gap_keeps_its_place() {
        let t = |values: &[Option<f64>], lag| t_statistic(values, lag).unwrap();
        // Deviations -1, none and 1: no product at distance 1, -1 at distance 2.
        let values = [Some(1.0), None, Some(3.0)];
        assert!((t(&values, 0) - 2.0).abs() < 1e-12);
        assert!((t(&values, 1) - 2.0).abs() < 1e-12);
        assert!((t(&values, 2) - 2.0 / (2.0 - 2.0 / 3.0_f64).sqrt() * 2f64.sqrt()).abs() < 1e-12);
    }

    #[test]
    fn there_is_no_t_of_one_value_or_of_equal_ones() {
        for values in [&[][..], &[None], &[Some(1.0)], &[Some(1.0); 3], &[Some(1.0), None]] {
            for lag in [0, 3] {
                assert_eq!(t_statistic(values, lag), None, "{values:?}");
            }
        }
    }

    #[test]
    fn overlap_counts_later_spans_that_begin_before_one_ends() {
        let daily = |days: i64| (0..9).map(|day| span(day, day + days)).collect::<Vec<_>>();
        assert_eq!([1, 2, 5, 99].map(|days| overlap(&daily(days))), [0, 1, 4, 8]);
        assert_eq!(overlap(&[]), 0);
        // The last but one alone reaches over two.
        assert_eq!(overlap(&[span(0, 1), span(1, 2), span(2, 9), span(3, 4), span(4, 5)]), 2);
        // Every fifth day only.
        assert_eq!(overlap(&[span(0, 5), span(5, 10), span(10, 15)]), 0);
    }
}
