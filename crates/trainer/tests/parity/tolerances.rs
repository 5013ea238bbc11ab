//! Tolerances against PyTorch's numbers, and their reasons.

/// The largest error allowed, as a share of the tensor's largest magnitude. A rounding of single
/// precision is 6e-8.
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
    /// A trainer in single precision. Its inputs are rounded to it where the fixture holds doubles,
    /// which shows where Adam divides by a gradient near ε: weights may be off by a fiftieth of lr.
    pub(crate) const ENGINE: Tolerances = Tolerances {
        outputs: 1e-6,
        loss: 1e-6,
        gradients: 5e-6,
        norm: 2e-6,
        weights: 1e-4,
        first_moments: 5e-6,
        second_moments: 1e-5,
    };
    /// Clipping and optimizer steps alone. Every gradient is that of double precision rounded once,
    /// and three steps round weights and moments a few times each. What is computed in double
    /// precision differs by the order of sums.
    pub(crate) const OPTIMIZER: Tolerances = Tolerances {
        outputs: 1e-12,
        loss: 1e-12,
        gradients: 2e-7,
        norm: 1e-7,
        weights: 3e-7,
        first_moments: 3e-7,
        second_moments: 6e-7,
    };

    pub(crate) fn get(self, kind: &str) -> f64 {
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
