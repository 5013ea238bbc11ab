#![forbid(unsafe_code)]

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::scalar::Scalar;

/// What training minimises.
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
}

impl Loss {
    /// The configuration's word for it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Loss::Mse => "mse",
            Loss::Huber { .. } => "huber",
        }
    }

    pub(crate) fn check(self) -> Result<()> {
        match self {
            // Its slope must not vanish in the single precision that gradients are computed in.
            Loss::Huber { delta } if !(delta as f32 > 0.0 && delta.is_finite()) => {
                Err(Error::setting("training.huber_delta", &delta, "a positive number"))
            }
            Loss::Mse | Loss::Huber { .. } => Ok(()),
        }
    }

    /// The loss summed over `outputs`, without the division by their number, in double precision.
    pub fn sum<S: Scalar, R: Scalar>(self, outputs: &[S], targets: &[R]) -> f64 {
        let errors = outputs.iter().zip(targets).map(|(&y, &target)| y.to_f64() - target.to_f64());
        match self {
            Loss::Mse => errors.map(|error| error * error).sum(),
            Loss::Huber { delta } => errors.map(|error| huber(error, delta)).sum(),
        }
    }

    /// The gradient of the sum divided by `count`, the number of outputs of the whole batch that `outputs` is a part of.
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
