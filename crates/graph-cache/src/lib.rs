#![doc = include_str!("../README.md")]

mod builder;
mod error;
pub mod export;
mod graph;
pub mod import;
mod schema;

pub use builder::{Builder, Identity};
pub use error::{Error, Result};
pub use graph::{Graph, Targets};
pub use schema::{Schema, TargetLevel};
