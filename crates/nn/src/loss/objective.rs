#![forbid(unsafe_code)]

use crate::loss::Loss;
use crate::model::dropout::StepDropout;

/// Loss of a part of a batch, as a function of weights and samples.
#[derive(Clone, Copy, Debug)]
pub struct Objective {
    /// The loss.
    pub loss: Loss,
    /// Divisor of its sum over the whole step.
    pub count: usize,
    /// Position of the batch's first sample in the epoch's order, by which dense training finds its
    /// runs.
    pub position: usize,
    /// Dropout of the step.
    pub dropout: StepDropout,
    /// Factor of the gradients: the loss scale, or 1.
    pub scale: f32,
}
