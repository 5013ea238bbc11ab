#![doc = include_str!("../README.md")]

mod argument;
mod cache;
mod compile;
pub mod driver;
mod error;
mod harness;
mod kernels;
mod rewrite;
mod source_lines;
mod staging;

pub use argument::Arg;
pub use compile::{Checks, CompileOptions};
pub use error::{Error, Result};
pub use harness::Harness;
pub use kernels::{BlockSchedule, Geometry, Kernels};
