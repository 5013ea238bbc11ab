#![forbid(unsafe_code)]

mod correlation;

use serde::Serialize;

pub use correlation::InformationCoefficients;

use crate::loss::{Loss, is_labelled, softmax};
use correlation::Correlations;

/// Errors by horizon: element k belongs to target k. In the unit of the targets; of a model trained with cross entropy, of the probabilities
/// of the classes.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Metrics {
    /// Root of the mean squared error.
    pub rmse: Vec<f64>,
    /// Mean absolute error.
    pub mae: Vec<f64>,
    /// Among targets that are not zero, the share whose sign was predicted. A prediction of exactly zero names no direction and
    /// counts as wrong. `None` where every target is zero, and of probabilities.
    pub direction_accuracy: Vec<Option<f64>>,
    /// The share of rows whose most probable class is the one predicted, for a model trained with cross entropy. Of classes that are equally
    /// probable the first counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accuracy: Option<f64>,
    /// Correlations within graphs, for a model over graphs that predicts numbers for their nodes.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub information: Option<InformationCoefficients>,
}

/// Sums from which [`Metrics`] are made, in double precision, batch after batch.
#[derive(Clone, Debug)]
pub struct MetricsSum {
    samples: usize,
    horizons: Vec<HorizonSum>,
    /// Rows whose class was predicted; none where targets are not probabilities of classes.
    classified: Option<usize>,
    /// By horizon, once a graph was seen.
    correlations: Vec<Correlations>,
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
        let horizons = vec![HorizonSum::default(); outputs];
        MetricsSum { samples: 0, horizons, classified: None, correlations: Vec::new() }
    }

    /// The same for outputs that were trained with `loss`, which says what they mean.
    pub fn of_loss(loss: Loss, outputs: usize) -> Self {
        let classified = (loss == Loss::CrossEntropy).then_some(0);
        MetricsSum { classified, ..MetricsSum::new(outputs) }
    }

    /// Adds predictions and their targets, [B, K] both.
    pub fn add(&mut self, predictions: &[f32], targets: &[f32]) {
        assert_eq!(predictions.len(), targets.len(), "a prediction for every target");
        let outputs = self.horizons.len();
        self.samples += targets.len() / outputs;
        for (y, target) in predictions.chunks_exact(outputs).zip(targets.chunks_exact(outputs)) {
            if let Some(right) = &mut self.classified {
                *right += usize::from(largest(y) == largest(target));
                let outputs: Vec<f64> = y.iter().copied().map(f64::from).collect();
                self.horizons.iter_mut().zip(softmax(&outputs).0).zip(target).for_each(|((sum, p), &target)| {
                    sum.add_error(p - f64::from(target));
                });
                continue;
            }
            for ((sum, &y), &target) in self.horizons.iter_mut().zip(y).zip(target) {
                sum.add_error(f64::from(y) - f64::from(target));
                sum.moves += usize::from(target != 0.0);
                sum.right += usize::from((y > 0.0 && target > 0.0) || (y < 0.0 && target < 0.0));
            }
        }
    }

    /// Adds the predictions for the nodes of one graph and their targets, [N, K] both. Nodes whose targets hold a NaN are left out.
    pub fn add_graph(&mut self, predictions: &[f32], targets: &[f32]) {
        assert_eq!(predictions.len(), targets.len(), "a prediction for every target");
        let outputs = self.horizons.len();
        let rows = predictions.chunks_exact(outputs).zip(targets.chunks_exact(outputs));
        let (y, targets): (Vec<&[f32]>, Vec<&[f32]>) = rows.filter(|(_, targets)| is_labelled(targets)).unzip();
        self.add(&y.concat(), &targets.concat());
        // One row, as of a graph that is predicted as a whole, correlates with nothing.
        if self.classified.is_none() && targets.len() > 1 {
            self.correlations.resize_with(outputs, Correlations::default);
            for (k, correlations) in self.correlations.iter_mut().enumerate() {
                let column = |rows: &[&[f32]]| rows.iter().map(|row| f64::from(row[k])).collect::<Vec<_>>();
                correlations.add(&column(&y), &column(&targets));
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
            accuracy: self.classified.map(|right| right as f64 / count),
            information: (!self.correlations.is_empty()).then(|| InformationCoefficients::of(&self.correlations)),
        }
    }
}

impl HorizonSum {
    fn add_error(&mut self, error: f64) {
        self.squared += error * error;
        self.absolute += error.abs();
    }
}

/// The place of the largest number, the first of those that are equal.
fn largest(row: &[f32]) -> usize {
    (1..row.len()).fold(0, |most, k| if row[k] > row[most] { k } else { most })
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
        let Metrics { rmse, mae, direction_accuracy, .. } = sum.finish();
        assert_eq!(rmse, [3f64.sqrt(), (25.0f64 / 3.0).sqrt()]);
        assert_eq!(mae, [5.0 / 3.0, 5.0 / 3.0]);
        assert_eq!(direction_accuracy, [Some(2.0 / 3.0), None]);
    }

    #[test]
    fn classes_are_counted_and_their_probabilities_measured() {
        let mut sum = MetricsSum::of_loss(Loss::CrossEntropy, 2);
        // Probabilities of 1/2 each, of which the first class counts; then a node without a label, and one that is wrong.
        sum.add_graph(&[4.0, 4.0, 9.0, 0.0, 100.0, -100.0], &[1.0, 0.0, f32::NAN, f32::NAN, 0.0, 1.0]);
        let Metrics { rmse, mae, direction_accuracy, accuracy, information } = sum.finish();
        assert_eq!((sum.samples(), accuracy, information), (2, Some(0.5), None));
        assert_eq!((rmse, mae), (vec![0.625f64.sqrt(); 2], vec![0.75; 2]));
        assert_eq!(direction_accuracy, [None; 2]);
    }

    #[test]
    fn keys_of_graphs_are_there_for_graphs_only() {
        let json = |sum: &MetricsSum| serde_json::to_value(sum.finish()).unwrap();
        let mut sum = MetricsSum::new(1);
        sum.add(&[1.0, 2.0], &[1.0, 3.0]);
        assert_eq!(json(&sum).as_object().unwrap().len(), 3);
        sum.add_graph(&[1.0, 2.0, 9.0], &[1.0, 3.0, f32::NAN]);
        let json = json(&sum);
        assert_eq!((&json["ic"][0], &json["rank_ic"][0], &json["ic_graphs"][0]), (&1.0.into(), &1.0.into(), &1.into()));
        assert!(json["ic_t"][0].is_null() && json["ic_std"][0].is_null() && json["rank_ic_t"][0].is_null());
        assert_eq!((sum.samples(), json.get("accuracy")), (4, None));
    }

    #[test]
    fn a_prediction_of_zero_is_wrong_and_a_target_of_zero_does_not_count() {
        let mut sum = MetricsSum::new(1);
        // The product of the two smallest numbers rounds to zero; their signs still agree.
        sum.add(&[0.0, 1.0, f32::MIN_POSITIVE], &[1.0, 0.0, f32::MIN_POSITIVE]);
        assert_eq!(sum.finish().direction_accuracy, [Some(0.5)]);
    }
}
