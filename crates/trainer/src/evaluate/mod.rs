//! A model in use, and its errors beside those of baselines.

pub(crate) mod baseline;
mod by_time;
pub(crate) mod evaluation;
mod information;
pub(crate) mod metrics;
pub(crate) mod pass;
pub(crate) mod predictions;
pub(crate) mod predictor;
pub(crate) mod selection;
pub(crate) mod shared;
mod standard_error;
mod sums;
#[cfg(any(test, feature = "conformance"))]
#[path = "tests/whole_parts.rs"]
mod whole_parts;

pub use information::{cross_sectional_deviation, uninformed_loss};
pub use standard_error::StandardErrors;
