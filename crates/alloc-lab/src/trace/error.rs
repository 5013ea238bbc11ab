use std::io;

use thiserror::Error;

/// Why a line of a trace cannot be played. Lines are counted from 1; the caller knows the name of
/// the file.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TraceError {
    /// The trace could not be read on.
    #[error("line {line}: {source}")]
    Read {
        /// The line that was being read.
        line: u64,
        /// Error of the system.
        source: io::Error,
    },

    /// No event is that long; the file is no trace, or its line ends are lost.
    #[error(
        "line {line}: expected an event of at most {limit_bytes} bytes, found a longer line; a trace has one JSON object a line"
    )]
    TooLong {
        /// The line.
        line: u64,
        /// Longest line that is read, in bytes.
        limit_bytes: usize,
    },

    /// The line is not a JSON object with values of the right types.
    #[error(r#"line {line}: expected one JSON object such as {{"op":"free","id":7}}: {reason}"#)]
    NotAnObject {
        /// The line.
        line: u64,
        /// Fault.
        reason: String,
    },

    /// The operation is none that traces have.
    #[error("line {line}: expected the op alloc, free or step, found `{op}`")]
    UnknownOp {
        /// The line.
        line: u64,
        /// The operation as it stands there.
        op: String,
    },

    /// The operation lacks a field.
    #[error("line {line}: {op} needs the field `{field}`, which is missing")]
    Missing {
        /// The line.
        line: u64,
        /// The operation; `an event` where that itself is missing.
        op: &'static str,
        /// The field.
        field: &'static str,
    },

    /// A field is not a number, or not one that makes sense there.
    #[error("line {line}: `{field}`: expected a whole number from 0 to {largest}, found {found}")]
    BadNumber {
        /// The line.
        line: u64,
        /// The field.
        field: &'static str,
        /// Largest number that it may be.
        largest: u64,
        /// Value found, as JSON.
        found: String,
    },

    /// A block is asked for under an id that another live block has.
    #[error(
        "line {line}: block {id} is allocated again; it is live since line {since_line}: free it first or take another id"
    )]
    AllocatedTwice {
        /// The line.
        line: u64,
        /// The id.
        id: u64,
        /// Line of the live block's allocation.
        since_line: u64,
    },

    /// A freed block is not live.
    #[error("line {line}: block {id} is freed and is not live: it was never allocated, or freed before")]
    NotLive {
        /// The line.
        line: u64,
        /// The id.
        id: u64,
    },
}
