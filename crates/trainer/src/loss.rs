#![forbid(unsafe_code)]

mod of_graph;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::graph::Readout;
use crate::scalar::Scalar;
pub(crate) use of_graph::{is_labelled, labelled_rows, softmax};

/// What training minimises. The losses that compare the outputs of one row, or the rows of one graph, with each other are for models over
/// graphs. In graphs, nodes whose targets are not all known count nowhere, see [`Graphs::labelled`](crate::Graphs::labelled).
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Loss {
    /// The mean over samples and outputs of the squared error, as `torch.nn.MSELoss`.
    #[default]
    Mse,
    /// The mean over samples and outputs of Huber's function of the error e ("Robust Estimation of a Location Parameter",
    /// 1964), as `torch.nn.HuberLoss`: ½·e² where |e| < `delta`, `delta`·(|e| - ½·`delta`) beyond.
    Huber {
        /// Where the square goes over into a straight line, > 0, in the unit of the targets.
        delta: f64,
    },
    /// The mean over rows of the cross entropy between the targets, which are the probabilities of K classes, and the softmax of the
    /// outputs, as `torch.nn.CrossEntropyLoss`.
    #[serde(rename = "cross_entropy")]
    CrossEntropy,
    /// RankNet's loss (Burges et al., "Learning to Rank using Gradient Descent", 2005) by horizon, mean over horizons and graphs: the mean
    /// over pairs of a graph's nodes of which one has the larger target of ln(1 + e^-d), d being by how much its output is the larger.
    #[serde(rename = "rank_pairwise")]
    RankPairwise,
    /// ListNet's loss (Cao et al., "Learning to Rank: From Pairwise Approach to Listwise Approach", 2007) by horizon, mean over horizons and
    /// graphs: the cross entropy between the probabilities of each node to be on top, once by targets and once by outputs.
    #[serde(rename = "rank_listwise")]
    RankListwise {
        /// What targets are divided by, > 0, in their unit: far above their spread, all nodes are wanted alike. 1 is the paper's.
        temperature: f64,
    },
}

impl Loss {
    /// The configuration's word for it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Loss::Mse => "mse",
            Loss::Huber { .. } => "huber",
            Loss::CrossEntropy => "cross_entropy",
            Loss::RankPairwise => "rank_pairwise",
            Loss::RankListwise { .. } => "rank_listwise",
        }
    }

    /// Refuses a loss that cannot be formed of what is predicted with this readout; none for samples that stand alone.
    pub(crate) fn check_readout(self, readout: Option<Readout>) -> Result<()> {
        let expected = match (self, readout) {
            (Loss::Mse | Loss::Huber { .. }, _) | (_, Some(Readout::Node)) | (Loss::CrossEntropy, Some(_)) => {
                return Ok(());
            }
            (Loss::CrossEntropy, None) => "mse or huber for samples that are not nodes of graphs",
            (_, None) => "mse or huber for samples that are not nodes of graphs, which the ranks are among",
            (_, Some(_)) => "a loss of one graph at a time, where it is the graph that is predicted and has no rank",
        };
        Err(Error::setting("training.loss", &self.name(), expected))
    }

    pub(crate) fn check(self) -> Result<()> {
        match self {
            // Its slope must not vanish in the single precision that gradients are computed in.
            Loss::Huber { delta } if !(delta as f32 > 0.0 && delta.is_finite()) => {
                Err(Error::setting("training.huber_delta", &delta, "a positive number"))
            }
            Loss::RankListwise { temperature } if !(temperature > 0.0 && temperature.is_finite()) => {
                Err(Error::setting("training.rank_temperature", &temperature, "a positive number"))
            }
            _ => Ok(()),
        }
    }

    /// The loss summed over `outputs`, without the division by their number, in double precision.
    ///
    /// # Panics
    /// For a loss that compares outputs with each other; see [`Loss::graph_sum`].
    pub fn sum<S: Scalar, R: Scalar>(self, outputs: &[S], targets: &[R]) -> f64 {
        let errors = outputs.iter().zip(targets).map(|(&y, &target)| y.to_f64() - target.to_f64());
        match self {
            Loss::Mse => errors.map(|error| error * error).sum(),
            Loss::Huber { delta } => errors.map(|error| huber(error, delta)).sum(),
            _ => panic!("{} is a loss of graphs", self.name()),
        }
    }

    /// The gradient of the sum divided by `count`, the number of outputs of the whole batch that `outputs` is a part of.
    ///
    /// # Panics
    /// As [`Loss::sum`].
    pub fn gradient<S: Scalar, R: Scalar>(self, (outputs, targets): (&[S], &[R]), count: usize, d_outputs: &mut [S]) {
        let errors = outputs.iter().zip(targets).map(|(&y, &target)| y - S::from_f64(target.to_f64()));
        match self {
            Loss::Mse => {
                let scale = S::from_f64(2.0 / count as f64);
                d_outputs.iter_mut().zip(errors).for_each(|(d, error)| *d = scale * error);
            }
            Loss::Huber { delta } => {
                let (scale, delta) = (S::from_f64(1.0 / count as f64), S::from_f64(delta));
                d_outputs.iter_mut().zip(errors).for_each(|(d, error)| *d = scale * limited(error, delta));
            }
            _ => panic!("{} is a loss of graphs", self.name()),
        }
    }
}

/// NaN for an error that is NaN.
fn huber(error: f64, delta: f64) -> f64 {
    let size = error.abs();
    if size > delta { delta * (size - 0.5 * delta) } else { 0.5 * (error * error) }
}

/// The slope of Huber's function: `error` within ±`delta`. NaN for an error that is NaN.
fn limited<S: Scalar>(error: S, delta: S) -> S {
    if error > delta {
        delta
    } else if error < -delta {
        -delta
    } else {
        error
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn mse_and_its_gradient() {
        let (y, target) = ([1.0, 2.0, 5.0], [1.0, 0.0, 6.0]);
        assert_eq!(Loss::Mse.sum(&y, &target), 5.0);
        let mut d = [f64::NAN; 3];
        Loss::Mse.gradient((&y, &target), 4, &mut d);
        assert_eq!(d, [0.0, 1.0, -0.5]);
    }

    /// Errors of 0, ±½, ±δ, ±4 for δ = 2, by hand.
    #[test]
    fn huber_and_its_gradient() {
        let loss = Loss::Huber { delta: 2.0 };
        let target = [1.0; 7];
        let y = [1.0, 1.5, 0.5, 3.0, -1.0, 5.0, -3.0];
        let values = [0.0, 0.125, 0.125, 2.0, 2.0, 6.0, 6.0];
        for ((y, target), value) in y.iter().zip(&target).zip(values) {
            assert_eq!(loss.sum(&[*y], &[*target]), value, "{y}");
        }
        let mut d = [f64::NAN; 7];
        loss.gradient((&y, &target), 4, &mut d);
        assert_eq!(d, [0.0, 0.125, -0.125, 0.5, -0.5, 0.5, -0.5]);
    }

    #[test]
    fn at_delta_both_branches_are_one_number() {
        for delta in [0.1, 1.0, 1.345, 7e5] {
            let (below, beyond) = (0.5 * (delta * delta), delta * (delta - 0.5 * delta));
            assert_eq!((huber(delta, delta), huber(-delta, delta)), (beyond, beyond), "{delta}");
            assert_eq!(below, beyond, "{delta}");
            assert_eq!((limited(delta, delta), limited(-delta, delta)), (delta, -delta));
        }
    }

    #[test]
    fn what_is_not_a_number_stays_so() {
        for loss in [Loss::Mse, Loss::Huber { delta: 1.0 }] {
            let mut d = [0.0];
            loss.gradient((&[f32::NAN], &[0.0f32]), 1, &mut d);
            assert!(d[0].is_nan() && loss.sum(&[f32::NAN], &[0.0f32]).is_nan(), "{loss:?}");
        }
    }

    #[test]
    fn a_delta_out_of_range_is_named() {
        for delta in [0.0, -1.0, 1e-60, f64::NAN, f64::INFINITY] {
            let message = Loss::Huber { delta }.check().unwrap_err().to_string();
            assert!(message.starts_with("training.huber_delta is "), "{message}");
        }
        Loss::Huber { delta: 1e-3 }.check().unwrap();
    }

    proptest! {
        #[test]
        fn gradients_are_slopes(
            errors in prop::collection::vec(-5.0f64..5.0, 1..20), delta in 0.01f64..6.0, mse in any::<bool>(),
        ) {
            const STEP: f64 = 1e-6;
            let loss = if mse { Loss::Mse } else { Loss::Huber { delta } };
            let targets = vec![0.25; errors.len()];
            let mut y: Vec<f64> = errors.iter().map(|error| error + 0.25).collect();
            let mut d = vec![0.0; y.len()];
            loss.gradient((&y, &targets), y.len(), &mut d);
            for (index, d) in d.iter().enumerate() {
                let at = y[index];
                let mut mean_at = |x: f64| {
                    y[index] = x;
                    loss.sum(&y, &targets) / y.len() as f64
                };
                let slope = (mean_at(at + STEP) - mean_at(at - STEP)) / (2.0 * STEP);
                y[index] = at;
                // Where the step straddles ±δ the slope is off by up to half the step; a sum of up to 500 rounds by 1e-13.
                prop_assert!((slope - d).abs() < 1e-6, "{} and {}", slope, d);
            }
        }

        #[test]
        fn a_huge_delta_makes_half_the_mean_square(
            errors in prop::collection::vec(-1e3f64..1e3, 1..20),
        ) {
            let huber = Loss::Huber { delta: 1e30 };
            let targets = vec![0.0; errors.len()];
            prop_assert_eq!(huber.sum(&errors, &targets), 0.5 * Loss::Mse.sum(&errors, &targets));
            let (mut half, mut whole) = (vec![0.0; errors.len()], vec![0.0; errors.len()]);
            huber.gradient((&errors, &targets), 8, &mut half);
            Loss::Mse.gradient((&errors, &targets), 8, &mut whole);
            prop_assert!(half.iter().zip(&whole).all(|(half, whole)| *half == 0.5 * whole));
        }
    }
}
