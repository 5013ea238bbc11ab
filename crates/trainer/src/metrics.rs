#![forbid(unsafe_code)]

use serde::Serialize;

/// Errors by horizon: element k belongs to target k. In the unit of the targets.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Metrics {
    /// Root of the mean squared error.
    pub rmse: Vec<f64>,
    /// Mean absolute error.
    pub mae: Vec<f64>,
    /// Among targets that are not zero, the share whose sign was predicted. A prediction of exactly zero names no direction and
    /// counts as wrong. `None` where every target is zero.
    pub direction_accuracy: Vec<Option<f64>>,
}

/// Sums from which [`Metrics`] are made, in double precision, batch after batch.
#[derive(Clone, Debug)]
pub struct MetricsSum {
    samples: usize,
    horizons: Vec<HorizonSum>,
}

#[derive(Clone, Copy, Debug, Default)]
struct HorizonSum {
    squared: f64,
    absolute: f64,
    /// Targets that are not zero, and those of them whose sign was predicted.
    moves: usize,
    right: usize,
}

impl MetricsSum {
    /// Nothing seen yet, for K = `outputs` horizons.
    pub fn new(outputs: usize) -> Self {
        MetricsSum { samples: 0, horizons: vec![HorizonSum::default(); outputs] }
    }

    /// Adds predictions and their targets, [B, K] both.
    pub fn add(&mut self, predictions: &[f32], targets: &[f32]) {
        assert_eq!(predictions.len(), targets.len(), "a prediction for every target");
        let outputs = self.horizons.len();
        self.samples += targets.len() / outputs;
        for (y, target) in predictions.chunks_exact(outputs).zip(targets.chunks_exact(outputs)) {
            for ((sum, &y), &target) in self.horizons.iter_mut().zip(y).zip(target) {
                let error = f64::from(y) - f64::from(target);
                sum.squared += error * error;
                sum.absolute += error.abs();
                sum.moves += usize::from(target != 0.0);
                sum.right += usize::from((y > 0.0 && target > 0.0) || (y < 0.0 && target < 0.0));
            }
        }
    }

    /// Number of samples seen.
    pub fn samples(&self) -> usize {
        self.samples
    }

    /// The metrics of all samples seen.
    pub fn finish(&self) -> Metrics {
        let count = self.samples as f64;
        let each = |metric: fn(&HorizonSum, f64) -> f64| self.horizons.iter().map(|sum| metric(sum, count)).collect();
        let direction = |sum: &HorizonSum| (sum.moves > 0).then(|| sum.right as f64 / sum.moves as f64);
        Metrics {
            rmse: each(|sum, count| (sum.squared / count).sqrt()),
            mae: each(|sum, count| sum.absolute / count),
            direction_accuracy: self.horizons.iter().map(direction).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_by_horizon_of_two_batches() {
        let mut sum = MetricsSum::new(2);
        sum.add(&[1.0, 0.0, -1.0, 0.0], &[2.0, 0.0, 1.0, 0.0]);
        sum.add(&[3.0, 5.0], &[1.0, 0.0]);
        assert_eq!(sum.samples(), 3);
        let Metrics { rmse, mae, direction_accuracy } = sum.finish();
        assert_eq!(rmse, [3f64.sqrt(), (25.0f64 / 3.0).sqrt()]);
        assert_eq!(mae, [5.0 / 3.0, 5.0 / 3.0]);
        assert_eq!(direction_accuracy, [Some(2.0 / 3.0), None]);
    }

    #[test]
    fn a_prediction_of_zero_is_wrong_and_a_target_of_zero_does_not_count() {
        let mut sum = MetricsSum::new(1);
        // The product of the two smallest numbers rounds to zero; their signs still agree.
        sum.add(&[0.0, 1.0, f32::MIN_POSITIVE], &[1.0, 0.0, f32::MIN_POSITIVE]);
        assert_eq!(sum.finish().direction_accuracy, [Some(0.5)]);
    }
}
