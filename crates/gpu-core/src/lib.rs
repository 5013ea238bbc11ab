#![doc = include_str!("../README.md")]

mod buffer;
mod device;
mod error;
mod free_memory;
mod host;
pub mod leak;
mod ledger;
pub mod pool;
pub mod recording;
pub mod replay;
mod scope;
pub mod snapshot;
pub mod source;
mod usage;

pub use buffer::Buffer;
pub use device::Device;
pub use error::{Error, Result};
pub use scope::Scope;
pub use usage::Usage;
