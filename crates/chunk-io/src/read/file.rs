use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use hdf5::Dataset;
use hdf5::file::FileDriver;

use crate::error::{Error, Result};
use crate::stored::file_of_hdf5;

/// Identity of an open file, to notice that it was replaced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FileIdentity {
    device: u64,
    inode: u64,
    pub(crate) bytes: u64,
    modified_ns: (i64, i64),
}

impl FileIdentity {
    pub(crate) fn from_metadata(metadata: &Metadata) -> Self {
        FileIdentity {
            device: metadata.dev(),
            inode: metadata.ino(),
            bytes: metadata.len(),
            modified_ns: (metadata.mtime(), metadata.mtime_nsec()),
        }
    }

    fn same_file(&self, other: &FileIdentity) -> bool {
        (self.device, self.inode) == (other.device, other.inode)
    }

    /// Difference between `now` and the file that was opened, in words.
    fn difference(&self, now: &FileIdentity) -> String {
        if !self.same_file(now) {
            "another file is in its place".to_owned()
        } else if self.bytes != now.bytes {
            format!("it had {} bytes and has {}", self.bytes, now.bytes)
        } else {
            "it was written to".to_owned()
        }
    }
}

/// Bytes of a file, from `offset` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileExtent {
    pub(crate) offset: u64,
    pub(crate) bytes: usize,
}

impl FileExtent {
    /// One past the last byte.
    pub(crate) fn end(&self) -> u64 {
        self.offset.saturating_add(self.bytes as u64)
    }
}

/// The file that holds a dataset's values, by handles of our own.
#[derive(Debug)]
pub(crate) struct RawFile {
    pub(super) path: PathBuf,
    pub(super) file: File,
    identity: FileIdentity,
}

impl RawFile {
    /// The file from which HDF5 reads `dataset`, which an external link may have led to. `main` is
    /// the file that was opened by name, as it was then.
    ///
    /// `None` if HDF5 does not read it by plain system calls, or may have values of it in memory
    /// that are not written yet.
    pub(super) fn open(dataset: &Dataset, main: &FileIdentity) -> Result<Option<Self>> {
        let Ok(hdf5_file) = dataset.file() else { return Ok(None) };
        let sec2 = hdf5_file.access_plist().is_ok_and(|access| matches!(access.get_driver(), Ok(FileDriver::Sec2)));
        if !sec2 || !hdf5_file.is_read_only() {
            return Ok(None);
        }
        let path = PathBuf::from(dataset.filename());
        let failed = |source| Error::Io { path: path.clone(), action: "open the file", source };
        let file = File::open(&path).map_err(failed)?;
        let identity = FileIdentity::from_metadata(&file.metadata().map_err(failed)?);
        let by_hdf5 =
            FileIdentity::from_metadata(&file_of_hdf5(&hdf5_file).and_then(|file| file.metadata()).map_err(failed)?);
        // The state of a linked file when `main` was opened is not known.
        let expected = if by_hdf5.same_file(main) { main } else { &by_hdf5 };
        if *expected != identity {
            return Err(Error::Changed { what: expected.difference(&identity), path });
        }
        Ok(Some(RawFile { path, file, identity }))
    }

    /// Length of the file in bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.identity.bytes
    }

    /// Refuses a file that was written to since its index was read.
    pub(super) fn require_unchanged(&self) -> Result<()> {
        let now = FileIdentity::from_metadata(&self.file.metadata().map_err(|error| self.failed(error))?);
        if now == self.identity {
            return Ok(());
        }
        Err(Error::Changed { path: self.path.clone(), what: self.identity.difference(&now) })
    }

    pub(super) fn failed(&self, source: io::Error) -> Error {
        let path = self.path.clone();
        match source.kind() {
            io::ErrorKind::UnexpectedEof => Error::Changed { path, what: "it became shorter".to_owned() },
            _ => Error::Io { path, action: "read the file", source },
        }
    }
}
