#![doc = include_str!("../README.md")]

pub mod batch;
mod error;
pub mod graph;
pub mod loss;
pub mod memory;
pub mod model;
#[cfg(test)]
mod oracle;

pub use error::{Error, Result, quoted};
