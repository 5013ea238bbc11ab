#![doc = include_str!("../README.md")]

mod csr;
mod edges;
mod error;
mod index;
mod offsets;
pub mod ops;
mod plan;
mod sort;

pub use csr::{Csc, Csr};
pub use edges::Compressed;
pub use error::{Error, Result};
pub use index::Index;
pub use plan::SegmentPlan;
