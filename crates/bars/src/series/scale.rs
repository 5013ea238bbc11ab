use crate::series::feature::Feature;
use crate::unknown_name::named;

/// A spread below this, or below the resolution of single precision at the centre, is rounding and
/// no signal.
pub(crate) const SPREAD_MIN: f64 = 1e-12;

/// Scaling of features to a common size: scaled = (raw - centre) / scale.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scaling {
    /// Centre: the median. Scale: the range between the quartiles, each interpolated linearly. If
    /// half of the values are equal, so that this range is zero, the population standard deviation.
    #[default]
    Robust,
    /// Centre: the mean. Scale: the population standard deviation.
    Standard,
    /// Centre 0, scale 1.
    None,
}

impl Scaling {
    /// The name in configurations and files: `robust`, `standard` or `none`.
    pub const fn name(self) -> &'static str {
        match self {
            Scaling::Robust => "robust",
            Scaling::Standard => "standard",
            Scaling::None => "none",
        }
    }
}

named!(Scaling, "scaling", "robust, standard, none", [Robust, Standard, None]);

/// Centre and scale of each feature of one timeframe of one instrument.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Scaler {
    pub(crate) center: Vec<f64>,
    pub(crate) scale: Vec<f64>,
    /// Features that do not vary, though there are rows.
    pub(crate) constant: Vec<Feature>,
}

impl Scaler {
    /// Centre 0 and scale 1 for each feature.
    pub(crate) fn neutral(features: &[Feature]) -> Self {
        Scaler { center: vec![0.0; features.len()], scale: vec![1.0; features.len()], constant: Vec::new() }
    }
}

/// Scales rows of features in place.
pub(crate) fn scale_rows(rows: &mut [f32], center: &[f64], scale: &[f64]) {
    for row in rows.chunks_exact_mut(center.len()) {
        for ((value, center), scale) in row.iter_mut().zip(center).zip(scale) {
            *value = ((f64::from(*value) - center) / scale) as f32;
        }
    }
}

/// True if values between these two do not vary.
pub(crate) fn is_constant_between(lowest: f64, highest: f64) -> bool {
    highest - lowest <= SPREAD_MIN.max(f64::from(f32::EPSILON) * highest.abs())
}

/// Median and spread of values: the range between their quartiles or, where that is zero, the
/// deviation.
pub(crate) fn median_and_spread(values: &mut [f64]) -> (f64, f64) {
    let [lower, median, upper] = [0.25, 0.5, 0.75].map(|part| quantile(values, part));
    let spread = upper - lower;
    (median, if spread > SPREAD_MIN { spread } else { mean_and_deviation(values).1 })
}

pub(crate) fn mean_and_deviation(values: &[f64]) -> (f64, f64) {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / count;
    (mean, variance.sqrt())
}

/// The value below which `part` of the values lie, interpolated linearly between the two nearest.
/// Reorders the values.
fn quantile(values: &mut [f64], part: f64) -> f64 {
    let position = part * (values.len() - 1) as f64;
    let (_, lower, above) = values.select_nth_unstable_by(position as usize, f64::total_cmp);
    let upper = above.iter().copied().min_by(f64::total_cmp).unwrap_or(*lower);
    *lower + (upper - *lower) * position.fract()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn scaled_values_lie_around_the_centre() {
        let mut rows = [1.0, 0.5, 100.0, 0.25];
        scale_rows(&mut rows, &[3.0, 0.0], &[2.0, 1.0]);
        assert_eq!(rows, [-1.0, 0.5, 48.5, 0.25]);
    }

    proptest! {
        /// Selecting gives the quantile that sorting gives.
        #[test]
        fn quantiles_agree_with_sorting(values in prop::collection::vec(-5.0f64..5.0, 1..50), part in 0.0f64..=1.0) {
            let mut sorted = values.clone();
            sorted.sort_by(f64::total_cmp);
            let position = part * (values.len() - 1) as f64;
            let (low, high) = (sorted[position.floor() as usize], sorted[position.ceil() as usize]);
            let expected = low + (high - low) * position.fract();
            prop_assert!((quantile(&mut values.clone(), part) - expected).abs() < 1e-12);
        }
    }
}
