#![doc = include_str!("../README.md")]

mod error;
mod heartbeat;
mod job;
mod library;

pub use error::{Error, Result};
pub use job::{Job, Recovery, library_names};
