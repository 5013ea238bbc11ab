//! Metrics of predicted quantiles.

use megabatch_nn::loss::{Ascending, pinball};
use serde::Serialize;

/// Errors of quantiles, by level and within it by horizon; NaN, which JSON has null for, where no
/// target is known.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct QuantileErrors {
    /// The levels, ascending.
    pub levels: Vec<f64>,
    /// Mean pinball loss, in the unit of the targets.
    pub pinball_loss: Vec<Vec<f64>>,
    /// Share of the targets at or below the quantile: its level, for a perfect quantile.
    pub coverage: Vec<Vec<f64>>,
    /// By horizon, the share of the targets whose predicted quantiles are out of order.
    pub crossing: Vec<f64>,
}

/// Sums from which [`QuantileErrors`] are made.
#[derive(Clone, Debug)]
pub(super) struct QuantileSums {
    levels: Ascending,
    horizons: Vec<HorizonSum>,
}

#[derive(Clone, Debug)]
struct HorizonSum {
    count: usize,
    /// By level.
    pinball: Vec<f64>,
    covered: Vec<usize>,
    crossed: usize,
}

impl QuantileSums {
    pub(super) fn new(levels: Ascending, horizons: usize) -> Self {
        let level_count = levels.as_slice().len();
        let sum = HorizonSum { count: 0, pinball: vec![0.0; level_count], covered: vec![0; level_count], crossed: 0 };
        QuantileSums { levels, horizons: vec![sum; horizons] }
    }

    /// Adds the quantiles of one target of horizon `k`, counted from 0.
    pub(super) fn add(&mut self, k: usize, quantiles: &[f32], target: f32) {
        let sum = &mut self.horizons[k];
        sum.count += 1;
        sum.crossed += usize::from(quantiles.windows(2).any(|pair| pair[0] > pair[1]));
        for (n, (&y, &level)) in quantiles.iter().zip(self.levels.as_slice()).enumerate() {
            sum.pinball[n] += pinball(f64::from(y) - f64::from(target), level);
            sum.covered[n] += usize::from(target <= y);
        }
    }

    pub(super) fn finish(&self) -> QuantileErrors {
        let levels = self.levels.as_slice();
        let each = |number: &dyn Fn(&HorizonSum, usize) -> f64| {
            let at_level = |n| self.horizons.iter().map(|sum| number(sum, n) / sum.count as f64).collect();
            (0..levels.len()).map(at_level).collect()
        };
        QuantileErrors {
            levels: levels.to_vec(),
            pinball_loss: each(&|sum, n| sum.pinball[n]),
            coverage: each(&|sum, n| sum.covered[n] as f64),
            crossing: self.horizons.iter().map(|sum| sum.crossed as f64 / sum.count as f64).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_two_levels_at_two_horizons() {
        let mut sums = QuantileSums::new(Ascending::new(&[0.25, 0.75]).unwrap(), 2);
        sums.add(0, &[1.0, 3.0], 2.0);
        sums.add(0, &[4.0, 2.0], 2.0);
        let QuantileErrors { levels, pinball_loss, coverage, crossing } = sums.finish();
        assert_eq!(levels, [0.25, 0.75]);
        // 0.25 · 1 and 0.75 · 2 of the lower level; 0.25 · 1 and none of the upper one.
        assert_eq!((pinball_loss[0][0], pinball_loss[1][0]), (0.875, 0.125));
        assert_eq!((coverage[0][0], coverage[1][0]), (0.5, 1.0));
        assert_eq!(crossing[0], 0.5);
        assert!(pinball_loss[0][1].is_nan() && coverage[1][1].is_nan() && crossing[1].is_nan());
    }
}
