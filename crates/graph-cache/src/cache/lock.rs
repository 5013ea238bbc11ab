//! Lock of the one process that may build a file.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use megabatch_atomic_file::{beside, is_at, open_sibling};

use super::{BuildProgress, Watch, go_on};
use crate::error::{Error, Result};

/// A lock on a file beside the one that is built. The system releases it when a process ends; the
/// lock file may be left behind and is used again.
#[derive(Debug)]
pub(super) struct Lock {
    path: PathBuf,
    /// Locked as long as it is open.
    _file: File,
}

impl Lock {
    /// Waits for the lock of the file at `path`; `None` if another process had it meanwhile, and
    /// may have built the file.
    pub(super) fn take(path: &Path, progress: Watch<'_>) -> Result<Option<Self>> {
        let failed = |source| Error::Io { path: path.to_owned(), action: "lock it for building", source };
        let (lock_path, file) = open(path).map_err(failed)?;
        match file.try_lock() {
            Ok(()) if is_at(&lock_path, &file) => Ok(Some(Lock { path: lock_path, _file: file })),
            Ok(()) => Ok(None),
            Err(TryLockError::WouldBlock) => {
                go_on(progress(BuildProgress::Waiting))?;
                file.lock().map_err(failed)?;
                Ok(None)
            }
            Err(TryLockError::Error(source)) => Err(failed(source)),
        }
    }

    /// The lock of the file at `path`, if it is free.
    pub(super) fn try_take(path: &Path) -> io::Result<Option<Self>> {
        let (lock_path, file) = open(path)?;
        let is_mine = file.try_lock().is_ok() && is_at(&lock_path, &file);
        Ok(is_mine.then(|| Lock { path: lock_path, _file: file }))
    }
}

impl Drop for Lock {
    /// A process that waits for the removed lock file notices and begins again.
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

fn open(path: &Path) -> io::Result<(PathBuf, File)> {
    let lock_path = beside(path, "lock");
    let file = open_sibling(&lock_path)?;
    Ok((lock_path, file))
}

#[cfg(test)]
mod tests {
    use std::ops::ControlFlow;

    use super::*;

    #[test]
    fn one_has_the_right_at_a_time() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.mbg");
        let mut unasked = |progress| panic!("{progress:?}");
        let lock = Lock::take(&path, &mut unasked).unwrap().unwrap();
        assert!(Lock::try_take(&path).unwrap().is_none());
        assert!(Lock::try_take(&folder.path().join("b.mbg")).unwrap().is_some());
        let waiter = std::thread::scope(|scope| {
            let (sender, waits) = std::sync::mpsc::channel();
            let path = &path;
            let waiter = scope.spawn(move || {
                let mut tell = |progress| {
                    sender.send(progress).unwrap();
                    ControlFlow::Continue(())
                };
                Lock::take(path, &mut tell)
            });
            assert_eq!(waits.recv(), Ok(BuildProgress::Waiting));
            drop(lock);
            waiter.join().unwrap()
        });
        assert!(waiter.unwrap().is_none(), "the file that was waited for is gone");
        drop(Lock::take(&path, &mut unasked).unwrap().unwrap());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn what_a_killed_process_left_is_used_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.mbg");
        fs::write(beside(&path, "lock"), "").unwrap();
        assert!(Lock::take(&path, &mut |progress| panic!("{progress:?}")).unwrap().is_some());
    }
}
