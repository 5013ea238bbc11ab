use megabatch_amp::Precision;
use megabatch_nn::batch::Runs;
use megabatch_nn::loss::Loss;

use super::ops::Arithmetic;
use super::tuning::Tuning;

/// Choices of the CUDA engine that a model leaves open.
#[derive(Clone, Copy, Debug)]
pub struct ComputeConfig {
    /// Loss of the outputs.
    pub loss: Loss,
    /// Precision of the operands of products and of the recurrence.
    pub precision: Precision,
    /// Arithmetic of fp32 products.
    pub arithmetic: Arithmetic,
    /// Choice among kernels.
    pub autotune: Tuning,
    /// Runs of dense training; `None` where each window is a sequence.
    pub runs: Option<Runs>,
    /// True if one LSTM layer at a time has cell states and gates, and the backward pass computes
    /// those of the layers below the top one again. Gradients are equal bit for bit.
    pub gradient_checkpointing: bool,
    /// True if outputs between LSTM layers are dropped in training.
    pub drops_between_layers: bool,
    /// True if the optimizer keeps means of gradients and of their squares.
    pub has_moments: bool,
}

impl ComputeConfig {
    /// Predictions in `precision`, without measuring kernels.
    pub fn for_prediction(precision: Precision) -> Self {
        ComputeConfig {
            loss: Loss::Mse,
            precision,
            arithmetic: Arithmetic::Exact,
            autotune: Tuning::Off,
            runs: None,
            gradient_checkpointing: false,
            drops_between_layers: false,
            has_moments: false,
        }
    }
}
