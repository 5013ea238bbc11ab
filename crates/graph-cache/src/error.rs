#![forbid(unsafe_code)]

use std::io;
use std::path::PathBuf;

use thiserror::Error;

/// `Result` with this crate's [`Error`](enum@Error).
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What can be wrong with graphs and with the files that hold them.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// The arrays of a graph do not describe one.
    #[error("graph {graph:?}: {source}")]
    Csr {
        /// Key of the graph, empty where it has none yet.
        graph: String,
        /// Which array, and where.
        source: megabatch_segment::Error,
    },

    /// The system failed to read or write a file.
    #[error("{}: cannot {action}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What was to be done.
        action: &'static str,
        /// What the system said.
        source: io::Error,
    },

    /// A field of a text is not what stands there in the format.
    #[error("{}: line {line}, column {column}: expected {expected}, found `{found}`", path.display())]
    Field {
        /// The file.
        path: PathBuf,
        /// Line from 1.
        line: u64,
        /// Column from 1: of fields in a delimited text, of characters in one of fixed columns.
        column: usize,
        /// What a right file has there.
        expected: String,
        /// The field, shortened.
        found: String,
    },

    /// A file contradicts itself, or another of the same graphs.
    #[error("{}: {found}; expected {expected}", path.display())]
    Contradiction {
        /// The file.
        path: PathBuf,
        /// What is there.
        found: String,
        /// What a right file has, and what to do.
        expected: String,
    },

    /// A format has no place for what the graphs hold.
    #[error("graphs with {what} cannot be exported as {format}: {remedy}")]
    NotExportable {
        /// The format.
        format: &'static str,
        /// What the graphs have, or lack.
        what: String,
        /// What to do instead.
        remedy: &'static str,
    },
}
