use std::fmt;
use std::str::FromStr;

use crate::series::feature::Feature;
use crate::unknown_name::UnknownName;

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

impl fmt::Display for Scaling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Scaling {
    type Err = UnknownName;

    fn from_str(name: &str) -> Result<Self, UnknownName> {
        let all = [Scaling::Robust, Scaling::Standard, Scaling::None];
        all.into_iter().find(|scaling| scaling.name() == name).ok_or_else(|| {
            let expected = all.map(Scaling::name).join(", ");
            UnknownName::new("scaling", name, expected)
        })
    }
}

/// Centre and scale of each feature of one timeframe of one instrument.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Scaler {
    pub(crate) center: Vec<f64>,
    pub(crate) scale: Vec<f64>,
    /// Features that do not vary, though there are rows.
    pub(crate) constant: Vec<Feature>,
}

impl Scaler {
    /// Fits a scaler to rows of features, `[rows, features]`; only [`Scaling::None`] does with
    /// none.
    pub(crate) fn fit(scaling: Scaling, features: &[Feature], rows: &[f32]) -> Self {
        if rows.is_empty() {
            assert_eq!(scaling, Scaling::None, "a scaler is fitted to rows");
            return Scaler {
                center: vec![0.0; features.len()],
                scale: vec![1.0; features.len()],
                constant: Vec::new(),
            };
        }
        let mut scaler = Scaler { center: Vec::new(), scale: Vec::new(), constant: Vec::new() };
        for (place, &feature) in features.iter().enumerate() {
            let mut values: Vec<f64> =
                rows.iter().skip(place).step_by(features.len()).copied().map(f64::from).collect();
            let is_constant = is_constant(&values);
            if is_constant {
                scaler.constant.push(feature);
            }
            let (center, scale) =
                if feature.is_cyclic() { (0.0, 1.0) } else { center_and_spread(scaling, &mut values) };
            scaler.center.push(center);
            scaler.scale.push(if is_constant { 1.0 } else { scale });
        }
        scaler
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

fn is_constant(values: &[f64]) -> bool {
    let lowest = values.iter().copied().fold(f64::INFINITY, f64::min);
    let highest = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    is_constant_between(lowest, highest)
}

/// True if values between these two do not vary.
pub(crate) fn is_constant_between(lowest: f64, highest: f64) -> bool {
    highest - lowest <= SPREAD_MIN.max(f64::from(f32::EPSILON) * highest.abs())
}

pub(crate) fn center_and_spread(scaling: Scaling, values: &mut [f64]) -> (f64, f64) {
    match scaling {
        Scaling::None => (0.0, 1.0),
        Scaling::Standard => mean_and_deviation(values),
        Scaling::Robust => {
            let [lower, median, upper] = [0.25, 0.5, 0.75].map(|part| quantile(values, part));
            let spread = upper - lower;
            (median, if spread > SPREAD_MIN { spread } else { mean_and_deviation(values).1 })
        }
    }
}

fn mean_and_deviation(values: &[f64]) -> (f64, f64) {
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

    const PAIR: [Feature; 2] = [Feature::Body, Feature::DaySin];

    #[test]
    fn known_scalers() {
        let rows = [1.0, 0.5, 2.0, 0.25, 3.0, 0.0, 4.0, 0.125, 100.0, 0.25];
        let cases =
            [(Scaling::Robust, 3.0, 2.0), (Scaling::Standard, 22.0, (1522.0f64).sqrt()), (Scaling::None, 0.0, 1.0)];
        for (scaling, center, scale) in cases {
            let scaler = Scaler::fit(scaling, &PAIR, &rows);
            assert_eq!((scaler.center[0], scaler.center[1], scaler.scale[1]), (center, 0.0, 1.0), "{scaling}");
            assert!((scaler.scale[0] - scale).abs() < 1e-12, "{scaling}: {}", scaler.scale[0]);
            assert_eq!(scaler.constant, []);
            let mut scaled = rows;
            scale_rows(&mut scaled, &scaler.center, &scaler.scale);
            assert!((f64::from(scaled[8]) - (100.0 - center) / scale).abs() < 1e-5);
            assert_eq!(scaled[9], 0.25);
        }
    }

    #[test]
    fn a_constant_feature_keeps_its_size_and_is_named() {
        for scaling in [Scaling::Robust, Scaling::Standard, Scaling::None] {
            let scaler = Scaler::fit(scaling, &PAIR, &[7.0, 1.0, 7.0, 1.0, 7.0, 1.0]);
            let center = if scaling == Scaling::None { 0.0 } else { 7.0 };
            assert_eq!((scaler.center[0], scaler.scale[0]), (center, 1.0), "{scaling}");
            assert_eq!(scaler.constant, PAIR);
        }
        let rounding = Scaler::fit(Scaling::Robust, &PAIR[..1], &[1e-16, 0.0, -1e-16, 2e-16]);
        assert_eq!(rounding.constant, [Feature::Body]);
    }

    #[test]
    fn without_rows_nothing_is_scaled_and_nothing_is_constant() {
        let scaler = Scaler::fit(Scaling::None, &PAIR, &[]);
        assert_eq!((scaler.center, scaler.scale, scaler.constant), (vec![0.0; 2], vec![1.0; 2], vec![]));
    }

    #[test]
    fn mostly_equal_values_are_scaled_by_their_deviation() {
        let scaler = Scaler::fit(Scaling::Robust, &PAIR[..1], &[0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 4.0]);
        assert_eq!((scaler.center[0], scaler.constant.len()), (0.0, 0));
        assert!((scaler.scale[0] - 1.75f64.sqrt()).abs() < 1e-12);
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
