//! The output of lines, which one process writes at a time.

use std::fs::{File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use super::growing_file::identity;
use crate::error::{Error, Result};

/// An open file that is locked for this process as long as it is open.
pub(super) struct OutputLock {
    path: PathBuf,
    file: File,
}

impl OutputLock {
    /// Locks `file`, which was opened at `path`.
    ///
    /// # Errors
    /// A usage error where another process has locked it.
    pub(super) fn take(path: &Path, file: File) -> Result<Self> {
        match file.try_lock() {
            // A file system without locks has one user at a time, as far as can be told.
            Ok(()) | Err(TryLockError::Error(_)) => Ok(OutputLock { path: path.to_owned(), file }),
            Err(TryLockError::WouldBlock) => Err(Error::usage(format!(
                "{}: another process is writing this file; wait for it, or name another",
                path.display()
            ))),
        }
    }

    /// Refuses to go on where the path is not this file any longer: nobody would see what is
    /// written.
    ///
    /// # Errors
    /// An error with the path.
    pub(super) fn require_in_place(&self) -> io::Result<()> {
        let own = identity(&self.file.metadata()?);
        if std::fs::metadata(&self.path).is_ok_and(|found| identity(&found) == own) {
            return Ok(());
        }
        Err(io::Error::other(format!(
            "{}: was deleted or replaced while predictions were written to it; begin again",
            self.path.display()
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lock(path: &Path) -> Result<OutputLock> {
        OutputLock::take(path, File::options().append(true).create(true).open(path).unwrap())
    }

    /// Two processes wrote one file.
    #[test]
    fn one_has_an_output_at_a_time() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.csv");
        let first = lock(&path).unwrap();
        let refused = lock(&path).err().unwrap().to_string();
        assert!(refused.contains("out.csv: another process is writing this file"), "{refused}");
        assert!(lock(&folder.path().join("other.csv")).is_ok());
        drop(first);
        assert!(lock(&path).is_ok());
    }

    /// Lines went to a file that had no name any longer.
    #[test]
    fn a_file_that_is_deleted_or_replaced_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let [path, other, link] = ["out.csv", "other.csv", "link.csv"].map(|name| folder.path().join(name));
        std::os::unix::fs::symlink(&path, &link).unwrap();
        let own = lock(&link).unwrap();
        std::fs::write(&path, "one\n").unwrap();
        own.require_in_place().unwrap();
        std::fs::write(&other, "one\n").unwrap();
        std::fs::rename(&other, &path).unwrap();
        let replaced = own.require_in_place().unwrap_err().to_string();
        assert!(replaced.contains("link.csv: was deleted or replaced"), "{replaced}");
        std::fs::remove_file(&path).unwrap();
        assert!(own.require_in_place().is_err());
    }
}
