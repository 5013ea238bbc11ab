#![doc = include_str!("../README.md")]

mod buffer;
mod device;
mod error;
mod free_memory;
mod host;
pub mod leak;
pub mod pool;
pub mod recording;
pub mod snapshot;
pub mod source;
mod usage;

pub use buffer::Buffer;
pub use device::{Device, Scope};
pub use error::{Error, Result};
pub use usage::Usage;
