#![doc = include_str!("../README.md")]

pub mod batch;
mod error;
pub mod graph;
pub mod loss;
pub mod memory;
pub mod model;
#[cfg(test)]
#[path = "tests/oracle.rs"]
mod oracle;

pub use error::{Error, Result, quoted};
