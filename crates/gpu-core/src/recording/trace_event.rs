use std::io::{self, Write};

use crate::source::StreamId;

/// Largest block that a trace may ask for, in bytes: all the memory that 48-bit addresses reach.
pub const BLOCK_BYTES_MAX: usize = 1 << 48;

/// A request of a program to its allocator: a line of a trace, which docs/reference/formats.md
/// describes field by field.
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

impl TraceEvent {
    /// Writes the event as a line of a trace.
    ///
    /// # Errors
    /// Errors of writing to `out`.
    pub fn write_line(&self, out: &mut impl Write) -> io::Result<()> {
        match *self {
            TraceEvent::Alloc { id, bytes, stream: StreamId(stream) } => {
                writeln!(out, r#"{{"op":"alloc","id":{id},"bytes":{bytes},"stream":{stream}}}"#)
            }
            TraceEvent::Free { id } => writeln!(out, r#"{{"op":"free","id":{id}}}"#),
            TraceEvent::Step => writeln!(out, r#"{{"op":"step"}}"#),
        }
    }
}
