#![forbid(unsafe_code)]

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
    /// An option of a builder is out of its range.
    #[error("option {option}: expected {expected}, found {found}")]
    Option {
        /// Which.
        option: &'static str,
        /// Its value.
        found: String,
        /// What it may be.
        expected: &'static str,
    },

    /// What a graph is to be built from does not fit together.
    #[error("{object}: expected {expected}")]
    Data {
        /// What is wrong, and where it is.
        object: String,
        /// What was expected in its place.
        expected: String,
    },
}
