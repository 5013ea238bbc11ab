#![doc = include_str!("../README.md")]

mod error;
mod gradients;
mod number;
pub mod ops;
mod optimizer;
mod policy;
mod precision;
mod quantized;
mod scaler;
mod stochastic;
mod threads;
mod trace;
mod update;

pub use error::{Error, Result};
pub use gradients::{Examined, Factors, Layout, Place, examine};
pub use number::Number;
pub use optimizer::{OptimizerSettings, Rule};
pub use policy::{Arithmetic, Operation};
pub use precision::{Precision, round_to};
pub use quantized::{Accuracy, QuantizedMatrix};
pub use scaler::{LossScaler, Overflow, ScaleChange, ScalerConfig, ScalerState};
pub use stochastic::{Noise, round_stochastic};
pub use threads::Threads;
pub use trace::{FirstNonFinite, Trace, first_non_finite};
pub use update::{Moments, Step, Tensor, WorkingCopy, update};
