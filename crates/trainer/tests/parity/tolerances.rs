//! Tolerances against PyTorch's numbers, and their reasons.

use safetensors::Dtype;

/// The largest error allowed, as a share of the tensor's largest magnitude.
///
/// Double precision leaves only the order of sums, which differs from PyTorch's. In single
/// precision a rounding is 6e-8.
#[derive(Clone, Copy)]
pub(crate) struct Tolerances {
    /// Outputs and states: up to 60 steps feed each other, but the gates' slopes of at most 1/4
    /// damp what they pass on.
    outputs: f64,
    /// Mean of squares of a difference: twice the outputs' share, and outputs may cancel against
    /// targets.
    loss: f64,
    /// Sums over up to 960 steps and samples of products that pass through up to 60 steps twice.
    gradients: f64,
    /// The root of a sum of squares averages the gradients' errors.
    norm: f64,
    /// Adam moves every weight by about the learning rate, whatever its gradient's size, so that
    /// where a gradient is near ε its error shows in full: up to a hundredth of lr = 1e-3, beside
    /// weights of 0.2 and more.
    weights: f64,
    /// First moments are gradients' means.
    first_moments: f64,
    /// Second moments are squares, which double a relative error.
    second_moments: f64,
}

impl Tolerances {
    const DOUBLE: Tolerances = Tolerances {
        outputs: 1e-9,
        loss: 1e-9,
        gradients: 1e-9,
        norm: 1e-9,
        weights: 1e-9,
        first_moments: 1e-9,
        second_moments: 1e-9,
    };
    const SINGLE: Tolerances = Tolerances {
        outputs: 1e-6,
        loss: 1e-6,
        gradients: 5e-6,
        norm: 2e-6,
        weights: 4e-5,
        first_moments: 5e-6,
        second_moments: 1e-5,
    };
    /// The fast form rounds as often as the plain one. Inputs that the fixtures hold in double
    /// precision are rounded to single besides, which shows where Adam divides by a gradient near
    /// ε: the weights may be off by a fiftieth of lr.
    pub(crate) const FAST: Tolerances = Tolerances { weights: 1e-4, ..Tolerances::SINGLE };

    pub(crate) fn of_plain(dtype: Dtype) -> Self {
        if dtype == Dtype::F64 { Tolerances::DOUBLE } else { Tolerances::SINGLE }
    }

    pub(crate) fn of(self, kind: &str) -> f64 {
        match kind {
            "outputs" => self.outputs,
            "loss" => self.loss,
            "gradients" => self.gradients,
            "norm" => self.norm,
            "weights" => self.weights,
            "first moments" => self.first_moments,
            "second moments" => self.second_moments,
            _ => panic!("no tolerance for {kind}"),
        }
    }
}
