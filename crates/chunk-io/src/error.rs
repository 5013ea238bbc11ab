#![forbid(unsafe_code)]

use std::io;
use std::path::{Path, PathBuf};

use serde::Serialize;

/// `Result` with this crate's [`Error`](enum@Error).
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What can go wrong when a file is written, opened, read or inspected.
///
/// A failed write leaves whatever was at the path as it was, and no temporary file beside it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Nothing is at the path.
    #[error("{path}: there is no such file; check the path")]
    NotFound {
        /// The path as given.
        path: PathBuf,
    },

    /// The path leads to a folder or to a device.
    #[error("{path}: this is not a file; give the path of an HDF5 file")]
    NotAFile {
        /// The path as given.
        path: PathBuf,
    },

    /// The file has no HDF5 signature at any of the offsets where one may stand.
    #[error(
        "{path}: expected an HDF5 file, found {found}; bars in text form become a series file with `megabatch ingest`"
    )]
    NotHdf5 {
        /// The file.
        path: PathBuf,
        /// What the first bytes look like.
        found: String,
    },

    /// The file is shorter than its own header says.
    #[error(
        "{path}: the file is cut short: it has {bytes} bytes and its header promises more ({detail}); copy or write it again"
    )]
    Truncated {
        /// The file.
        path: PathBuf,
        /// Length of the file in bytes.
        bytes: u64,
        /// HDF5's own words.
        detail: String,
    },

    /// Another process has the file open for writing.
    #[error(
        "{path}: another process has the file open for writing (errno 11, file locking); wait until it closes the file or end that process"
    )]
    Locked {
        /// The file.
        path: PathBuf,
    },

    /// The file, or what was to be written to it, breaks a rule of its layout.
    #[error("{path}: {fault}")]
    Invalid {
        /// The file.
        path: PathBuf,
        /// The rule, the place and the remedy.
        fault: Box<Fault>,
    },

    /// More samples were asked for than there are, or the caller's memory has another size.
    #[error("{path}: {asked} asked for, but {found}; {fix}")]
    BadRequest {
        /// The file.
        path: PathBuf,
        /// What the caller wanted.
        asked: String,
        /// What there is.
        found: String,
        /// What to do.
        fix: String,
    },

    /// The output cannot be created or replaced.
    #[error("{path}: cannot write here: {source}; check that the folder exists and that you may write to it")]
    NotWritable {
        /// The output.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },

    /// The system failed to read or write.
    #[error("{path}: cannot {action}: {source}; check the disk and the permissions")]
    Io {
        /// The file.
        path: PathBuf,
        /// What was being done.
        action: &'static str,
        /// The system's reason.
        source: io::Error,
    },

    /// HDF5 refused an operation.
    #[error("{path}: {object}: HDF5 cannot {action}: {detail}; {fix}")]
    Hdf5 {
        /// The file.
        path: PathBuf,
        /// The object in it.
        object: String,
        /// What was being done.
        action: &'static str,
        /// HDF5's innermost reason.
        detail: String,
        /// What to do.
        fix: String,
    },

    /// A series of these windows would be no smaller than they are.
    #[error(
        "{path}: a series would save nothing: the windows take {windows_bytes} bytes and their bars with indices {series_bytes}; {detail}"
    )]
    NothingSaved {
        /// The windows file.
        path: PathBuf,
        /// Bytes of the windows, uncompressed.
        windows_bytes: u64,
        /// Bytes of the bars, close times and indices, uncompressed; of as many as were looked at when it became clear.
        series_bytes: u64,
        /// What is known about why, and what to do.
        detail: String,
    },

    /// A conversion was broken off by its caller; the same call continues it.
    #[error("{path}: interrupted after {done_bytes} of {total_bytes} bytes; the same command goes on from there")]
    Interrupted {
        /// The file that was to be written.
        path: PathBuf,
        /// Bytes done so far.
        done_bytes: u64,
        /// Bytes to be done in all.
        total_bytes: u64,
    },

    /// Memory could not be had.
    #[error("{path}: {source}")]
    Memory {
        /// The file whose data the memory was for.
        path: PathBuf,
        /// The device's reason.
        source: megabatch_gpu_core::Error,
    },
}

impl Error {
    /// The broken rule, if that is what the error is about.
    pub fn fault(&self) -> Option<&Fault> {
        match self {
            Error::Invalid { fault, .. } => Some(fault),
            _ => None,
        }
    }

    pub(crate) fn invalid(path: &Path, fault: Fault) -> Self {
        Error::Invalid { path: path.to_owned(), fault: Box::new(fault) }
    }

    pub(crate) fn memory(path: &Path) -> impl Fn(megabatch_gpu_core::Error) -> Self {
        move |source| Error::Memory { path: path.to_owned(), source }
    }

    pub(crate) fn hdf5(path: &Path, object: &str, action: &'static str) -> impl Fn(hdf5::Error) -> Self {
        move |source| Error::Hdf5 {
            path: path.to_owned(),
            object: object.to_owned(),
            action,
            detail: innermost(&source),
            fix: "the file may be damaged; copy or write it again".to_owned(),
        }
    }
}

/// One place where a file breaks a rule of its layout.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Fault {
    /// Path of the object in the file, such as `/samples/end/M5`.
    pub object: String,
    /// Row along the object's first axis, where one row is at fault.
    pub index: Option<usize>,
    /// What the layout asks for.
    pub expected: String,
    /// What is there.
    pub found: String,
    /// What to do.
    pub fix: String,
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.object)?;
        if let Some(index) = self.index {
            write!(f, "[{index}]")?;
        }
        write!(f, ": expected {}, found {}; {}", self.expected, self.found, self.fix)
    }
}

/// The innermost frame of an HDF5 error: its root cause, in HDF5's words.
pub(crate) fn innermost(error: &hdf5::Error) -> String {
    let root = error.stack().and_then(|stack| stack.last().map(|frame| frame.desc().to_owned()));
    root.unwrap_or_else(|| error.to_string())
}
