//! Differences of values of functions that rounding explains.

use crate::series::functions::FunctionColumn;

/// Difference that rounding explains, as a share of the values and of their spread.
const DOUBLE_ROUNDING: f64 = 1e-9;
const SINGLE_ROUNDING: f64 = 1e-5;
/// Most spreads that the largest value counts for.
const OUTLIERS: f64 = 100.0;

/// Difference of two values that rounding explains.
pub(crate) struct Tolerance {
    share: f64,
    /// Interquartile range of the column, or its range where that is zero; the largest value that
    /// came out, if it is larger, up to [`OUTLIERS`] times as much.
    spread: f64,
}

impl Tolerance {
    /// For the values of `column` beside those that came out, `found`.
    pub(crate) fn new(column: &FunctionColumn, found: &[f64]) -> Self {
        let mut values: Vec<f64> = column.values.iter().copied().filter(|value| value.is_finite()).collect();
        values.sort_unstable_by(f64::total_cmp);
        let range =
            |low: usize, high: usize| values.get(high).zip(values.get(low)).map_or(0.0, |(high, low)| high - low);
        let last = values.len().saturating_sub(1);
        let quartiles = range(last / 4, last - last / 4);
        let spread = if quartiles > 0.0 { quartiles } else { range(0, last) };
        // Whoever transforms all bars at once rounds by the size of the largest.
        let largest =
            found.iter().filter(|value| value.is_finite()).fold(0.0_f64, |largest, value| largest.max(value.abs()));
        let spread = spread.max(largest.min(OUTLIERS * spread));
        Tolerance { share: if column.is_single { SINGLE_ROUNDING } else { DOUBLE_ROUNDING }, spread }
    }

    pub(crate) fn between(&self, one: f64, other: f64) -> f64 {
        self.share * (one.abs().max(other.abs()) + self.spread)
    }

    pub(crate) fn allows(&self, one: f64, other: f64) -> bool {
        is_same(one, other) || (one - other).abs() <= self.between(one, other)
    }
}

/// True for one number, and for two NaN.
pub(crate) fn is_same(one: f64, other: f64) -> bool {
    one == other || (one.is_nan() && other.is_nan())
}
