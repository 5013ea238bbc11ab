mod classes;
mod correlation;
mod newey_west;
mod quantiles;

use serde::Serialize;

pub use classes::ClassErrors;
pub use correlation::{GraphCorrelations, InformationCoefficients};
pub(crate) use newey_west::overlap;
pub use newey_west::t_statistic;
pub use quantiles::QuantileErrors;

use megabatch_nn::loss::{Loss, is_known, is_labelled, known_targets, softmax};

use classes::ClassSums;
use correlation::Correlations;
use quantiles::QuantileSums;

/// Errors by horizon: element k belongs to target k. They are in the unit of the targets; for a
/// model trained with cross entropy, of the class probabilities. For several quantiles, errors are
/// those of the one nearest to the median ([`Loss::point`]).
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Metrics {
    /// Root of the mean squared error; NaN, which JSON has null for, where no target is known.
    pub rmse: Vec<f64>,
    /// Mean absolute error; likewise.
    pub mae: Vec<f64>,
    /// Among targets that are not zero, the share whose sign was predicted. A prediction of exactly
    /// zero names no direction and counts as wrong. `None` where no target is known or every one
    /// zero, and of probabilities.
    pub direction_accuracy: Vec<Option<f64>>,
    /// Number of known targets, if not all are known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub known_targets: Option<Vec<usize>>,
    /// For a model that predicts a class for each target. The errors above are then those of the
    /// probabilities, averaged over the classes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub classes: Option<Box<ClassErrors>>,
    /// The share of rows whose most probable class is the one predicted, for a model trained with
    /// cross entropy. Of classes that are equally probable the first counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accuracy: Option<f64>,
    /// Number of rows by true and by predicted class, `[C, C]`, for the same models. Files have no
    /// field for it.
    #[serde(skip)]
    pub confusion: Option<Vec<Vec<usize>>>,
    /// For a model that predicts quantiles.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quantiles: Option<Box<QuantileErrors>>,
    /// Correlations within graphs, for a model over graphs that predicts numbers for their nodes.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub information: Option<InformationCoefficients>,
}

/// Sums from which [`Metrics`] are made, in double precision, batch after batch.
#[derive(Clone, Debug)]
pub struct MetricsSum {
    /// Samples with a known target.
    samples: usize,
    horizons: Vec<HorizonSum>,
    /// M, and the index of the output that errors are computed from.
    outputs: (usize, usize),
    /// Sums of predicted quantiles.
    quantiles: Option<QuantileSums>,
    /// Sums of a class for each target.
    classes: Option<ClassSums>,
    /// Rows by true and by predicted class; `None` if targets are not class probabilities.
    confusion: Option<Vec<Vec<usize>>>,
    /// By horizon, once a graph was seen.
    correlations: Vec<Correlations>,
    /// Graphs seen.
    graphs: usize,
    /// Numbers of the graphs with correlations.
    correlated: Vec<usize>,
}

/// Sum over samples and its number of terms.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Ratio {
    pub(crate) sum: f64,
    pub(crate) terms: f64,
}

impl Ratio {
    pub(crate) fn minus(self, other: Ratio) -> Ratio {
        Ratio { sum: self.sum - other.sum, terms: self.terms - other.terms }
    }

    pub(crate) fn mean(self) -> f64 {
        self.sum / self.terms
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct HorizonSum {
    /// Targets that are known.
    count: usize,
    squared: f64,
    absolute: f64,
    /// Targets that are not zero.
    moves: usize,
    /// Nonzero targets whose sign was predicted.
    right: usize,
}

impl MetricsSum {
    /// Empty sums for K = `outputs` horizons.
    pub fn new(outputs: usize) -> Self {
        let horizons = vec![HorizonSum::default(); outputs];
        MetricsSum {
            samples: 0,
            horizons,
            outputs: (1, 0),
            quantiles: None,
            classes: None,
            confusion: None,
            correlations: Vec::new(),
            graphs: 0,
            correlated: Vec::new(),
        }
    }

    /// Empty sums for outputs of a model trained with `loss`.
    pub fn for_loss(loss: Loss, outputs: usize) -> Self {
        MetricsSum {
            outputs: (loss.outputs_per_target(), loss.point()),
            quantiles: match loss {
                Loss::Quantile { levels } => Some(QuantileSums::new(levels, outputs)),
                _ => None,
            },
            classes: match loss {
                Loss::Classes(classes) => Some(ClassSums::new(classes, outputs)),
                _ => None,
            },
            confusion: (loss == Loss::CrossEntropy).then(|| vec![vec![0; outputs]; outputs]),
            ..MetricsSum::new(outputs)
        }
    }

    /// Adds predictions [B, K, M] and their targets [B, K]. Targets of NaN are left out.
    ///
    /// # Panics
    /// For a target that names none of the classes that are predicted.
    pub fn add(&mut self, predictions: &[f32], targets: &[f32]) {
        let (width, point) = self.outputs;
        assert_eq!(predictions.len(), targets.len() * width, "predictions for every target");
        let horizons = self.horizons.len();
        for (y, targets) in predictions.chunks_exact(horizons * width).zip(targets.chunks_exact(horizons)) {
            self.samples += usize::from(known_targets(targets) > 0);
            if let Some(counts) = &mut self.confusion {
                counts[largest(targets)][largest(y)] += 1;
                let outputs: Vec<f64> = y.iter().copied().map(f64::from).collect();
                self.horizons.iter_mut().zip(softmax(&outputs).0).zip(targets).for_each(|((sum, p), &target)| {
                    sum.add_error(p - f64::from(target));
                });
                continue;
            }
            let known = y.chunks_exact(width).zip(targets).enumerate().filter(|(_, (_, target))| is_known(**target));
            for (k, (y, &target)) in known {
                if let Some(classes) = &mut self.classes {
                    let [squared, absolute] = classes.add(k, y, target);
                    self.horizons[k].add_errors(squared, absolute);
                    continue;
                }
                self.horizons[k].add(y[point], target);
                self.quantiles.iter_mut().for_each(|quantiles| quantiles.add(k, y, target));
            }
        }
    }

    /// Adds the predictions for the nodes of one graph [N, K, M] and their targets [N, K]. Nodes
    /// whose targets hold a NaN are left out.
    pub fn add_graph(&mut self, predictions: &[f32], targets: &[f32]) {
        let (horizons, (width, _)) = (self.horizons.len(), self.outputs);
        assert_eq!(predictions.len(), targets.len() * width, "predictions for every target");
        let (y, targets) = labelled(predictions, targets, width, horizons);
        self.add(&y.concat(), &targets.concat());
        self.correlate_labelled(&y, &targets);
    }

    /// Adds the correlations of predictions [N, K, M] with targets [N, K], but not their errors.
    /// Rows whose targets hold a NaN are left out.
    pub(crate) fn correlate(&mut self, predictions: &[f32], targets: &[f32]) {
        let (y, targets) = labelled(predictions, targets, self.outputs.0, self.horizons.len());
        self.correlate_labelled(&y, &targets);
    }

    fn correlate_labelled(&mut self, y: &[&[f32]], targets: &[&[f32]]) {
        let (horizons, (width, point)) = (self.horizons.len(), self.outputs);
        // One row, as of a graph that is predicted as a whole, correlates with nothing.
        let are_numbers = self.confusion.is_none() && self.classes.is_none();
        let number = self.graphs;
        self.graphs += 1;
        if are_numbers && targets.len() > 1 {
            self.correlated.push(number);
            self.correlations.resize_with(horizons, Correlations::default);
            for (k, correlations) in self.correlations.iter_mut().enumerate() {
                let column = |rows: &[&[f32]], column_index: usize| {
                    rows.iter().map(|row| f64::from(row[column_index])).collect::<Vec<_>>()
                };
                correlations.add(&column(y, k * width + point), &column(targets, k));
            }
        }
    }

    /// The correlations within each graph seen that has two labelled nodes or more; graphs are
    /// numbered in the order in which they were added.
    pub fn by_graph(&self) -> Vec<GraphCorrelations> {
        let graphs = self.correlated.iter().enumerate();
        graphs.map(|(place, &graph)| GraphCorrelations::new(&self.correlations, place, graph)).collect()
    }

    /// Number of samples seen that have a known target.
    pub fn samples(&self) -> usize {
        self.samples
    }

    /// The metrics of all samples seen. Where they are graphs, added in order of time, the targets of
    /// horizon k overlap with those of the next `lags[k]` graphs with two labelled nodes or more;
    /// with none, where `lags` is empty.
    pub fn finish(&self, lags: &[usize]) -> Metrics {
        let each = |metric: fn(&HorizonSum) -> f64| self.horizons.iter().map(metric).collect();
        let direction = |sum: &HorizonSum| (sum.moves > 0).then(|| sum.right as f64 / sum.moves as f64);
        Metrics {
            rmse: each(|sum| (sum.squared / sum.count as f64).sqrt()),
            mae: each(|sum| sum.absolute / sum.count as f64),
            direction_accuracy: self.horizons.iter().map(direction).collect(),
            known_targets: self.known_targets(),
            accuracy: self.confusion.as_ref().map(|counts| diagonal(counts) as f64 / self.samples as f64),
            confusion: self.confusion.clone(),
            classes: self.classes.as_ref().map(|classes| Box::new(classes.finish())),
            quantiles: self.quantiles.as_ref().map(|quantiles| Box::new(quantiles.finish())),
            information: (!self.correlations.is_empty())
                .then(|| InformationCoefficients::new(&self.correlations, lags)),
        }
    }

    /// Squared errors seen so far, by horizon.
    pub(crate) fn squared_errors(&self) -> Vec<Ratio> {
        self.horizons.iter().map(|sum| Ratio { sum: sum.squared, terms: sum.count as f64 }).collect()
    }

    /// Correct classes so far, by horizon; one number for rows with one class; empty if numbers are
    /// predicted.
    pub(crate) fn hits(&self) -> Vec<Ratio> {
        match (&self.classes, &self.confusion) {
            (Some(classes), _) => classes.hits(),
            (None, Some(counts)) => vec![Ratio { sum: diagonal(counts) as f64, terms: self.samples as f64 }],
            (None, None) => Vec::new(),
        }
    }

    /// Known targets by horizon; `None` if every sample has all.
    fn known_targets(&self) -> Option<Vec<usize>> {
        let counts: Vec<usize> = self.horizons.iter().map(|sum| sum.count).collect();
        counts.iter().any(|&count| count < self.samples).then_some(counts)
    }
}

impl HorizonSum {
    fn add(&mut self, y: f32, target: f32) {
        self.add_error(f64::from(y) - f64::from(target));
        self.moves += usize::from(target != 0.0);
        self.right += usize::from((y > 0.0 && target > 0.0) || (y < 0.0 && target < 0.0));
    }

    fn add_error(&mut self, error: f64) {
        self.add_errors(error * error, error.abs());
    }

    fn add_errors(&mut self, squared: f64, absolute: f64) {
        self.count += 1;
        self.squared += squared;
        self.absolute += absolute;
    }
}

/// The rows of predictions [N, K, M] and of targets [N, K] whose targets are all known.
fn labelled<'a>(
    predictions: &'a [f32],
    targets: &'a [f32],
    width: usize,
    horizons: usize,
) -> (Vec<&'a [f32]>, Vec<&'a [f32]>) {
    let rows = predictions.chunks_exact(horizons * width).zip(targets.chunks_exact(horizons));
    rows.filter(|(_, targets)| is_labelled(targets)).unzip()
}

/// The place of the largest number, the first of those that are equal.
fn largest(row: &[f32]) -> usize {
    (1..row.len()).fold(0, |most, k| if row[k] > row[most] { k } else { most })
}

/// Rows whose class was predicted.
fn diagonal(confusion: &[Vec<usize>]) -> usize {
    confusion.iter().enumerate().map(|(class, row)| row[class]).sum()
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
        let Metrics { rmse, mae, direction_accuracy, .. } = sum.finish(&[]);
        assert_eq!(rmse, [3f64.sqrt(), (25.0f64 / 3.0).sqrt()]);
        assert_eq!(mae, [5.0 / 3.0, 5.0 / 3.0]);
        assert_eq!(direction_accuracy, [Some(2.0 / 3.0), None]);
    }

    #[test]
    fn classes_are_counted_and_their_probabilities_measured() {
        let mut sum = MetricsSum::for_loss(Loss::CrossEntropy, 2);
        // Probabilities of 1/2 each, of which the first class counts; then a node without a label,
        // and one that is wrong.
        sum.add_graph(&[4.0, 4.0, 9.0, 0.0, 100.0, -100.0], &[1.0, 0.0, f32::NAN, f32::NAN, 0.0, 1.0]);
        let Metrics { rmse, mae, direction_accuracy, accuracy, confusion, information, known_targets, .. } =
            sum.finish(&[]);
        assert_eq!((sum.samples(), accuracy, information, known_targets), (2, Some(0.5), None, None));
        assert_eq!(confusion, Some(vec![vec![1, 0], vec![1, 0]]));
        assert_eq!((rmse, mae), (vec![0.625f64.sqrt(); 2], vec![0.75; 2]));
        assert_eq!(direction_accuracy, [None; 2]);
    }

    #[test]
    fn errors_are_those_of_the_quantile_nearest_to_the_median() {
        let levels = megabatch_nn::loss::Ascending::new(&[0.1, 0.5, 0.9]).unwrap();
        let mut sum = MetricsSum::for_loss(Loss::Quantile { levels }, 2);
        sum.add(&[-9.0, 1.0, 9.0, -9.0, 2.0, 9.0], &[3.0, f32::NAN]);
        let mut point = MetricsSum::new(2);
        point.add(&[1.0, 2.0], &[3.0, f32::NAN]);
        let (found, expected) = (sum.finish(&[]), point.finish(&[]));
        assert_eq!((found.rmse[0], found.mae[0]), (expected.rmse[0], expected.mae[0]));
        assert_eq!(found.direction_accuracy, expected.direction_accuracy);
        let quantiles = found.quantiles.unwrap();
        assert_eq!((quantiles.coverage[0][0], quantiles.coverage[2][0]), (0.0, 1.0));
        assert!(quantiles.coverage[0][1].is_nan() && expected.quantiles.is_none());
        // Two nodes of a graph, in whose points alone there is a correlation.
        sum.add_graph(&[5.0, 1.0, 9.0, 5.0, 2.0, 9.0, 5.0, 2.0, 9.0, 5.0, 1.0, 9.0], &[1.0, 2.0, 2.0, 1.0]);
        assert_eq!(sum.finish(&[]).information.unwrap().ic, [Some(1.0), Some(1.0)]);
    }

    #[test]
    fn keys_of_graphs_are_there_for_graphs_only() {
        let json = |sum: &MetricsSum| serde_json::to_value(sum.finish(&[])).unwrap();
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
    fn correlations_are_kept_graph_by_graph() {
        let mut sum = MetricsSum::new(2);
        // The second graph has one labelled node, and the third equal targets at the second
        // horizon.
        sum.add_graph(&[1.0, 1.0, 2.0, 2.0], &[1.0, 2.0, 2.0, 1.0]);
        sum.add_graph(&[1.0, 1.0, 2.0, 2.0], &[1.0, 2.0, f32::NAN, 1.0]);
        sum.add_graph(&[1.0, 1.0, 2.0, 2.0], &[3.0, 5.0, 1.0, 5.0]);
        let expected = |graph, both: [Option<f64>; 2]| GraphCorrelations {
            graph,
            time_ns: None,
            ic: both.to_vec(),
            rank_ic: both.to_vec(),
        };
        assert_eq!(sum.by_graph(), [expected(0, [Some(1.0), Some(-1.0)]), expected(2, [Some(-1.0), None])]);
        let information = sum.finish(&[]).information.unwrap();
        assert_eq!((information.ic, information.ic_graphs), (vec![Some(0.0), Some(-1.0)], vec![2, 1]));
        assert_eq!(MetricsSum::new(1).by_graph(), []);
    }

    #[test]
    fn targets_that_are_not_known_count_at_no_horizon() {
        let nan = f32::NAN;
        let mut sum = MetricsSum::new(3);
        sum.add(&[1.0, 9.0, 2.0, 9.0, 9.0, 9.0, 1.0, -1.0, 7.0], &[3.0, nan, 2.0, nan, nan, nan, 1.0, 1.0, nan]);
        let Metrics { rmse, mae, direction_accuracy, known_targets, .. } = sum.finish(&[]);
        assert_eq!((sum.samples(), known_targets), (2, Some(vec![2, 1, 1])));
        assert_eq!((rmse, mae), (vec![2f64.sqrt(), 2.0, 0.0], vec![1.0, 2.0, 0.0]));
        assert_eq!(direction_accuracy, [Some(1.0), Some(0.0), Some(1.0)]);

        let mut none = MetricsSum::new(1);
        none.add(&[1.0], &[nan]);
        let json = serde_json::to_value(none.finish(&[])).unwrap();
        assert!(json["rmse"][0].is_null() && json["mae"][0].is_null() && json["direction_accuracy"][0].is_null());
    }

    #[test]
    fn a_prediction_of_zero_is_wrong_and_a_target_of_zero_does_not_count() {
        let mut sum = MetricsSum::new(1);
        // The product of the two smallest numbers rounds to zero; their signs still agree.
        sum.add(&[0.0, 1.0, f32::MIN_POSITIVE], &[1.0, 0.0, f32::MIN_POSITIVE]);
        assert_eq!(sum.finish(&[]).direction_accuracy, [Some(0.5)]);
    }
}
