#![doc = include_str!("../README.md")]
mod allocator;
pub mod corpus;
mod outcome;
mod policy;
mod pooled;
mod pytorch;
mod replay;
mod trace;

pub use outcome::{OutOfMemory, ReplayOutcome};
pub use policy::{Limits, Policy};
pub use replay::replay;
pub use trace::{TraceError, TraceLine, TraceReader};
