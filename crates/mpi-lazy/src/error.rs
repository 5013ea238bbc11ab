use std::time::Duration;

use thiserror::Error;

/// `Result` with this crate's [`Error`](enum@Error).
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a job of MPI cannot start or go on.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// No library can be opened.
    #[error("no MPI library: {}", tried.iter().map(|(name, reason)| format!("{name}: {reason}")).collect::<Vec<_>>().join("; "))]
    Absent {
        /// Names and why each failed.
        tried: Vec<(String, String)>,
    },

    /// A library lacks a function, or is of an unknown interface.
    #[error("{library}: {reason}")]
    Unfit {
        /// Its name.
        library: String,
        /// The fault.
        reason: String,
    },

    /// A process can take part in one job.
    #[error("MPI was started in this process before, and can be started once")]
    Again,

    /// A function of MPI failed.
    #[error("{function}: {text}")]
    Failed {
        /// The function.
        function: &'static str,
        /// MPI's text.
        text: String,
    },

    /// Another rank gave no sign of life.
    #[error("rank {rank} was silent for {silence:?}")]
    Lost {
        /// The rank.
        rank: usize,
        /// The deadline.
        silence: Duration,
    },

    /// Nothing came in time.
    #[error("{what} took longer than {waited:?}")]
    Timeout {
        /// The work.
        what: &'static str,
        /// The deadline.
        waited: Duration,
    },

    /// An earlier error ended the job's use.
    #[error("the job ended before: {reason}")]
    Over {
        /// Message of the earlier error.
        reason: String,
    },
}
