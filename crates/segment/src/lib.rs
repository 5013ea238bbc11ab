#![doc = include_str!("../README.md")]

mod csr;
mod error;
mod index;
pub mod ops;
mod plan;
mod sort;
pub mod tensor;

pub use csr::{Compressed, Csc, Csr};
pub use error::{Error, Result};
pub use index::Index;
pub use plan::SegmentPlan;
