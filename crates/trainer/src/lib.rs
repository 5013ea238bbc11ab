#![doc = include_str!("../README.md")]

mod clip;
mod error;
mod head;
mod loss;
mod lstm;
mod matmul;
mod model;
mod optimizer;
mod order;
mod random;
mod scalar;
mod split;
mod tensor;

pub use clip::{clip_by_norm, global_norm};
pub use error::{Error, Result};
pub use loss::Loss;
pub use lstm::InputGradients;
pub use model::{Model, ModelConfig, Pass, SampleShape, Timeframe};
pub use optimizer::{Moments, Optimizer, OptimizerConfig, OptimizerKind};
pub use order::{EpochOrder, Order};
pub use scalar::Scalar;
pub use split::{Purge, Split, SplitFractions, split};
pub use tensor::{Layout, TensorSet};
