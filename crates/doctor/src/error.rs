//! Errors that stop an examination.

use std::io;
use std::path::PathBuf;

/// Errors of the examination itself. A fault of the machine is no error but a
/// [`Finding`](crate::Finding).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A program cannot be started.
    #[error("{program}: cannot be run: {source}", program = .program.display())]
    NotRun {
        /// The program.
        program: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
}
