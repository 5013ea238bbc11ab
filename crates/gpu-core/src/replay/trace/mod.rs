//! The trace format: one JSON object a line. docs/reference/formats.md has it field by field.

mod error;
mod read;

use std::io::{self, Write};

pub use error::TraceError;
pub use read::TraceReader;

use crate::source::StreamId;

/// Largest block that a trace may ask for, in bytes: all the memory that 48-bit addresses reach.
pub const BLOCK_BYTES_MAX: usize = 1 << 48;

/// A request of a program to its allocator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceEvent {
    /// A block of `bytes` is wanted, for work on `stream`.
    Alloc {
        /// Identifier of the block until it is freed; then another block may have it.
        id: u64,
        /// Size in bytes.
        bytes: usize,
        /// The stream whose work uses it.
        stream: StreamId,
    },
    /// The block `id` is no longer wanted.
    Free {
        /// The block.
        id: u64,
    },
    /// A step of the work ends.
    Step,
}

/// An event and its line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceLine {
    /// Line of the trace, from 1.
    pub number: u64,
    /// The event.
    pub event: TraceEvent,
}

/// Writes one event as a line of a trace.
///
/// # Errors
/// Errors of writing to `out`.
pub fn write(out: &mut impl Write, event: &TraceEvent) -> io::Result<()> {
    match *event {
        TraceEvent::Alloc { id, bytes, stream: StreamId(stream) } => {
            writeln!(out, r#"{{"op":"alloc","id":{id},"bytes":{bytes},"stream":{stream}}}"#)
        }
        TraceEvent::Free { id } => writeln!(out, r#"{{"op":"free","id":{id}}}"#),
        TraceEvent::Step => writeln!(out, r#"{{"op":"step"}}"#),
    }
}
