#![forbid(unsafe_code)]

use serde::{Deserialize, Serialize};

use crate::scalar::Scalar;

/// What training minimises.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Loss {
    /// The mean over samples and outputs of the squared error.
    #[default]
    Mse,
}

impl Loss {
    /// The loss summed over `outputs`, without the division by their number, in double precision.
    pub fn sum<S: Scalar, R: Scalar>(self, outputs: &[S], targets: &[R]) -> f64 {
        let errors = outputs.iter().zip(targets).map(|(&y, &target)| y.to_f64() - target.to_f64());
        match self {
            Loss::Mse => errors.map(|error| error * error).sum(),
        }
    }

    /// The gradient of the sum divided by `count`, the number of outputs of the whole batch that `outputs` is a part of.
    pub fn gradient<S: Scalar, R: Scalar>(self, (outputs, targets): (&[S], &[R]), count: usize, d_outputs: &mut [S]) {
        match self {
            Loss::Mse => {
                let scale = S::from_f64(2.0 / count as f64);
                for ((d, &y), &target) in d_outputs.iter_mut().zip(outputs).zip(targets) {
                    *d = scale * (y - S::from_f64(target.to_f64()));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mse_and_its_gradient() {
        let (y, target) = ([1.0, 2.0, 5.0], [1.0, 0.0, 6.0]);
        assert_eq!(Loss::Mse.sum(&y, &target), 5.0);
        let mut d = [f64::NAN; 3];
        Loss::Mse.gradient((&y, &target), 4, &mut d);
        assert_eq!(d, [0.0, 1.0, -0.5]);
    }
}
