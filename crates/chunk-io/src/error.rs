use std::io;
use std::path::{Path, PathBuf};

use serde::Serialize;

/// `Result` with this crate's [`Error`](enum@Error).
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Errors of writing, opening, reading and inspecting files.
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
    #[error("{path}: expected an HDF5 file, found {found}")]
    NotHdf5 {
        /// The file.
        path: PathBuf,
        /// First bytes found.
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
        fault: Box<LayoutFault>,
    },

    /// More samples were asked for than there are, or the caller's memory has another size.
    #[error("{path}: {asked} asked for, but {found}; {fix}")]
    BadRequest {
        /// The file.
        path: PathBuf,
        /// The request.
        asked: String,
        /// Contents of the file, or the caller's memory.
        found: String,
        /// Fix.
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
        /// Action that failed.
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
        /// Action that failed.
        action: &'static str,
        /// HDF5's innermost reason.
        detail: String,
        /// Fix.
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
        /// Bytes of the bars, close times and indices, uncompressed; of the samples examined so
        /// far.
        series_bytes: u64,
        /// Cause as far as known, and fix.
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

    /// Whoever asked for samples wants them no longer.
    #[error("reading was ended before all samples were read")]
    Stopped,

    /// The file has changed since it was opened.
    #[error("{path}: the file changed while it was in use: {what}; open it again when nothing writes to it")]
    Changed {
        /// The file.
        path: PathBuf,
        /// The change, in words.
        what: String,
    },

    /// Values lie beyond the end of the file.
    #[error(
        "{path}: {object}{}: its {bytes} bytes from byte {offset} on pass the end of the file, which has {file_bytes}; the file was cut short or its index is damaged: copy or write it again",
        at_chunk(chunk)
    )]
    BeyondEnd {
        /// The file.
        path: PathBuf,
        /// The dataset.
        object: String,
        /// Indices of the first element of the chunk; empty for a dataset that is not in chunks.
        chunk: Vec<usize>,
        /// Offset in the file.
        offset: u64,
        /// Number of bytes.
        bytes: u64,
        /// Length of the file.
        file_bytes: u64,
    },

    /// A chunk cannot be decoded to its values.
    #[error(
        "{path}: {object}{} (byte {offset} of the file): {detail}; the chunk is damaged: copy or write the file again",
        at_chunk(chunk)
    )]
    DamagedChunk {
        /// The file.
        path: PathBuf,
        /// The dataset.
        object: String,
        /// Indices of the chunk's first element.
        chunk: Vec<usize>,
        /// Offset of the chunk in the file.
        offset: u64,
        /// Fault.
        detail: String,
    },

    /// The index of a dataset's chunks is invalid.
    #[error("{path}: {object}: the index of its chunks is damaged: {detail}; copy or write the file again")]
    DamagedIndex {
        /// The file.
        path: PathBuf,
        /// The dataset.
        object: String,
        /// Fault.
        detail: String,
    },

    /// The chunks of a dataset are so large that decoding one could exhaust the memory.
    #[error(
        "{path}: {object}: a chunk of {chunk:?} elements takes {bytes} bytes decoded, more than the {bytes_max} that a dataset of its size may ask for; write it with chunks of about 1 MiB"
    )]
    ChunkTooLarge {
        /// The file.
        path: PathBuf,
        /// The dataset.
        object: String,
        /// Shape of a chunk.
        chunk: Vec<usize>,
        /// Bytes of a decoded chunk.
        bytes: u64,
        /// Largest size that is decoded.
        bytes_max: u64,
    },

    /// A dataset needs a filter that this build does not have.
    #[error(
        "{path}: {object}: the filter {name} (number {id}) is not built in; write the dataset again with gzip or lzf, for example with h5repack where the filter is installed"
    )]
    FilterMissing {
        /// The file.
        path: PathBuf,
        /// The dataset.
        object: String,
        /// Number under which the filter is registered with The HDF Group.
        id: i32,
        /// Name by its writer.
        name: String,
    },

    /// Rows of a dataset could not be read while they were needed.
    #[error("{object}: rows {first} to {last}: {source}")]
    Rows {
        /// The dataset.
        object: String,
        /// First row that was asked for.
        first: usize,
        /// Last row that was asked for.
        last: usize,
        /// Reason, with the file.
        source: Box<Error>,
    },

    /// Memory could not be allocated.
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
    pub fn fault(&self) -> Option<&LayoutFault> {
        match self {
            Error::Invalid { fault, .. } => Some(fault),
            _ => None,
        }
    }

    /// The error, which names `out` where it would name `draft`: its temporary name is gone when
    /// the error is read.
    pub(crate) fn about(self, draft: &Path, out: &Path) -> Self {
        match self {
            Error::Invalid { path, fault } if path == draft => Error::Invalid { path: out.to_owned(), fault },
            Error::Rows { object, first, last, source } => {
                Error::Rows { object, first, last, source: Box::new(source.about(draft, out)) }
            }
            other => other,
        }
    }

    pub(crate) fn invalid(path: &Path, fault: LayoutFault) -> Self {
        Error::Invalid { path: path.to_owned(), fault: Box::new(fault) }
    }

    pub(crate) fn memory(path: &Path) -> impl Fn(megabatch_gpu_core::Error) -> Self {
        move |source| Error::Memory { path: path.to_owned(), source }
    }

    pub(crate) fn hdf5(path: &Path, object: &str, action: &'static str) -> impl Fn(hdf5::Error) -> Self {
        move |source| {
            let detail = innermost(&source);
            Error::Hdf5 { path: path.to_owned(), object: object.to_owned(), action, fix: fix_of(&detail), detail }
        }
    }
}

/// One place where a file breaks a rule of its layout.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LayoutFault {
    /// Path of the object in the file, such as `/samples/end/M5`.
    pub object: String,
    /// Row along the object's first axis, where one row is at fault.
    pub index: Option<usize>,
    /// Expected by the layout.
    pub expected: String,
    /// Found in the file.
    pub found: String,
    /// Fix.
    pub fix: String,
}

impl std::fmt::Display for LayoutFault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.object)?;
        if let Some(index) = self.index {
            write!(f, "[{index}]")?;
        }
        write!(f, ": expected {}, found {}; {}", self.expected, self.found, self.fix)
    }
}

fn at_chunk(chunk: &[usize]) -> String {
    if chunk.is_empty() { String::new() } else { format!(", chunk at {chunk:?}") }
}

/// Fix for a failure by HDF5's description: a full disk is no damage (errno(3), ENOSPC and EDQUOT).
fn fix_of(detail: &str) -> String {
    let is_full = ["errno = 28,", "errno = 122,"].iter().any(|errno| detail.contains(errno));
    let fix = if is_full {
        "the disk is full: free some space, or write to another disk, and repeat the command"
    } else {
        "the file may be damaged; copy or write it again"
    };
    fix.to_owned()
}

/// The innermost frame of an HDF5 error: its root cause, in HDF5's words.
pub(crate) fn innermost(error: &hdf5::Error) -> String {
    let root = error.stack().and_then(|stack| stack.last().map(|frame| frame.desc().to_owned()));
    root.unwrap_or_else(|| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_told_from_damage() {
        let failed = |errno: u32| format!("file write failed: errno = {errno}, error message = '…', buf = 0x55f7");
        assert!(fix_of(&failed(28)).starts_with("the disk is full"));
        assert!(fix_of(&failed(5)).starts_with("the file may be damaged"));
    }
}
