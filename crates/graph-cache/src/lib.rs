#![doc = include_str!("../README.md")]

pub mod build;
mod builder;
mod error;
mod graph;
mod schema;

pub use builder::{Builder, Identity};
pub use error::{Error, Result};
pub use graph::{Graph, Targets};
pub use schema::{Schema, TargetLevel};
