#![doc = include_str!("../README.md")]
mod batches;
mod error;
mod order;
pub mod random;
mod ranks;

pub use batches::{Batches, Batching, LastBatch, StepSamples};
pub use error::{Error, Result};
pub use order::{EpochOrder, Order};
pub use ranks::Rank;
