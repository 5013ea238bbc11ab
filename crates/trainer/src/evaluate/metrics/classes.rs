//! Metrics of predicted classes.

use megabatch_nn::loss::{Classes, softmax};
use serde::Serialize;

use super::Ratio;

/// Errors of classes, by horizon; NaN, which JSON has null for, where no target is known. Predicted
/// is the most probable class, of those that are equally probable the first.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ClassErrors {
    /// Share of the targets whose class was predicted.
    pub accuracy: Vec<f64>,
    /// Accuracy by class, averaged over the classes that occur: each counts as much as any other,
    /// however often it occurs.
    pub balanced_accuracy: Vec<f64>,
    /// Mean negative logarithm of the probability of the target's class.
    pub cross_entropy: Vec<f64>,
    /// Number of targets by horizon, by the class that came and by the class predicted, `[K, C,
    /// C]`.
    pub confusion: Vec<Vec<Vec<usize>>>,
}

/// Sums from which [`ClassErrors`] are made.
#[derive(Clone, Debug)]
pub(super) struct ClassSums {
    classes: Classes,
    /// By horizon: counts by the class that came and by the one predicted.
    confusion: Vec<Vec<Vec<usize>>>,
    cross_entropy: Vec<f64>,
}

impl ClassSums {
    pub(super) fn new(classes: Classes, horizons: usize) -> Self {
        let counts = vec![vec![0; classes.count()]; classes.count()];
        ClassSums { classes, confusion: vec![counts; horizons], cross_entropy: vec![0.0; horizons] }
    }

    /// Adds the outputs [C] for one target of horizon `k`, counted from 0. Returns the mean over
    /// classes of the squared and of the absolute error of their probabilities.
    pub(super) fn add(&mut self, k: usize, outputs: &[f32], target: f32) -> [f64; 2] {
        let came = self.classes.index(f64::from(target)).expect("targets were checked");
        let outputs: Vec<f64> = outputs.iter().copied().map(f64::from).collect();
        let (shares, log_sum) = softmax(&outputs);
        let predicted = (1..outputs.len()).fold(0, |most, c| if outputs[c] > outputs[most] { c } else { most });
        self.confusion[k][came][predicted] += 1;
        self.cross_entropy[k] += log_sum - outputs[came];
        let errors = || shares.iter().enumerate().map(|(c, share)| share - f64::from(u8::from(c == came)));
        let mean = |sum: f64| sum / shares.len() as f64;
        [mean(errors().map(|error| error * error).sum()), mean(errors().map(f64::abs).sum())]
    }

    /// Targets whose class was predicted, by horizon, as a ratio.
    pub(super) fn hits(&self) -> Vec<Ratio> {
        let hits = |counts: &Vec<Vec<usize>>| Ratio {
            sum: (0..counts.len()).map(|class| counts[class][class]).sum::<usize>() as f64,
            terms: counts.iter().flatten().sum::<usize>() as f64,
        };
        self.confusion.iter().map(hits).collect()
    }

    pub(super) fn finish(&self) -> ClassErrors {
        let count = |row: &Vec<usize>| row.iter().sum::<usize>();
        let right = |counts: &[Vec<usize>]| (0..counts.len()).map(|c| counts[c][c]).sum::<usize>() as f64;
        let all = |counts: &[Vec<usize>]| counts.iter().map(count).sum::<usize>() as f64;
        let balanced = |counts: &Vec<Vec<usize>>| {
            let came = counts.iter().enumerate().filter(|(_, row)| count(row) > 0);
            let shares: Vec<f64> = came.map(|(c, row)| row[c] as f64 / count(row) as f64).collect();
            shares.iter().sum::<f64>() / shares.len() as f64
        };
        ClassErrors {
            accuracy: self.confusion.iter().map(|counts| right(counts) / all(counts)).collect(),
            balanced_accuracy: self.confusion.iter().map(balanced).collect(),
            cross_entropy: self
                .cross_entropy
                .iter()
                .zip(&self.confusion)
                .map(|(sum, counts)| sum / all(counts))
                .collect(),
            confusion: self.confusion.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_counted_by_what_came_and_what_was_predicted() {
        let mut sums = ClassSums::new(Classes::Labels(3), 2);
        // Probabilities of a third each, of which the first class counts; then of nearly one.
        let [squared, absolute] = sums.add(0, &[2.0, 2.0, 2.0], 0.0);
        assert!((squared - 6.0 / 27.0).abs() < 1e-15 && (absolute - 4.0 / 9.0).abs() < 1e-15);
        sums.add(0, &[0.0, 0.0, 0.0], 2.0);
        sums.add(0, &[-50.0, 50.0, -50.0], 2.0);
        sums.add(0, &[50.0, -50.0, -50.0], 0.0);
        let ClassErrors { accuracy, balanced_accuracy, cross_entropy, confusion } = sums.finish();
        // Both of class 0 are right, none of class 2, and class 1 never came.
        assert_eq!((accuracy[0], balanced_accuracy[0]), (0.5, 0.5));
        assert!((cross_entropy[0] - (2.0 * 3f64.ln() + 100.0) / 4.0).abs() < 1e-12, "{cross_entropy:?}");
        assert_eq!(confusion[0], [[2, 0, 0], [0, 0, 0], [1, 1, 0]]);
        assert!(accuracy[1].is_nan() && balanced_accuracy[1].is_nan() && cross_entropy[1].is_nan());
    }
}
