//! Reads the trace format: one JSON object a line. docs/reference/formats.md has it field by field.

mod error;
mod reader;

use megabatch_gpu_core::recording::TraceEvent;

pub use error::TraceError;
pub use reader::TraceReader;

/// An event and its line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceLine {
    /// Line of the trace, from 1.
    pub number: u64,
    /// The event.
    pub event: TraceEvent,
}
