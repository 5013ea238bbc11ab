#![doc = include_str!("../README.md")]

mod accuracy;
mod error;
mod gradients;
pub mod ops;
mod optimizer;
mod precision;
mod quantized;
mod scaler;
mod threads;
mod trace;
mod update;

pub use accuracy::Accuracy;
pub use error::{Error, Result};
pub use gradients::{CheckedGradients, ElementIndex, GradientFactors, unscale_and_check};
pub use optimizer::{OptimizerSettings, Rule};
pub use precision::{Precision, round_to};
pub use quantized::QuantizedMatrix;
pub use scaler::{LossScaler, Overflow, ScaleChange, ScalerConfig, ScalerState};
pub use threads::Threads;
pub use trace::{FirstNonFinite, NonFiniteTrace, first_non_finite};
pub use update::{Moments, OptimizerStep, ParameterTensor, update};
