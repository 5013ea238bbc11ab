//! A file under its temporary name.

use std::collections::BTreeSet;
use std::error::Error;
use std::ffi::OsString;
use std::fmt;
use std::fs::{self, File, TryLockError};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tempfile::{Builder, NamedTempFile};

use crate::sibling::is_at;
use crate::stale::{SUFFIX, remove_stale};
use crate::target::{check_replaceable, folder_of, resolve_target, sync_folder};

/// Writes `bytes` to `path`, so that a reader, or a crash, finds the old file or the whole new one.
///
/// # Errors
/// The first step that failed; `path` then still holds the old file, unless only bringing the
/// folder to disk failed.
pub fn write(path: &Path, bytes: &[u8]) -> Result<(), WriteError> {
    let new = NewFile::create(path).map_err(WriteError::at(path, "make a file beside it"))?;
    new.file().write_all(bytes).map_err(WriteError::at(path, "write"))?;
    new.publish(path)
}

/// A step of a write that failed.
#[derive(Debug)]
pub struct WriteError {
    /// The file, as the caller named it, or its folder.
    pub path: PathBuf,
    /// The step, such as `rename into place`.
    pub action: &'static str,
    /// Error of the system.
    pub source: io::Error,
}

impl WriteError {
    fn at(path: &Path, action: &'static str) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| WriteError { path, action, source }
    }
}

impl fmt::Display for WriteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: cannot {}", self.path.display(), self.action)
    }
}

impl Error for WriteError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.source)
    }
}

/// Another process may take a new file for one that was left, in the moment before it is locked.
/// That is rare; so many times in a row it is a fault of the file system.
const ATTEMPTS_MAX: usize = 8;

/// A file that is written beside its target and takes the target's place when it is whole. Dropped
/// before that, it is removed.
#[derive(Debug)]
pub struct NewFile {
    target: PathBuf,
    temporary: NamedTempFile,
    listed: Listed,
}

/// Temporary files of this process.
static UNFINISHED: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

/// Entry of a temporary file in the list, for as long as it may have to be removed.
#[derive(Debug)]
struct Listed {
    path: PathBuf,
}

impl Listed {
    /// Creates a temporary file for `target` and its entry. The list is held meanwhile, so that
    /// [`remove_unfinished`] never runs between the two.
    fn create(target: &Path) -> io::Result<(NamedTempFile, Self)> {
        let mut list = unfinished();
        let file = create_locked(target)?;
        let path = file.path().to_owned();
        list.insert(path.clone());
        Ok((file, Listed { path }))
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        unfinished().remove(&self.path);
    }
}

fn unfinished() -> MutexGuard<'static, BTreeSet<PathBuf>> {
    UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Removes the temporary files that this process is writing, for a program that ends at once, as
/// after a signal. No file begins or is finished afterwards: whoever tries waits for that end.
pub fn remove_unfinished() {
    let list = unfinished();
    for path in list.iter() {
        // What is gone has its place, or was removed.
        let _ = fs::remove_file(path);
    }
    std::mem::forget(list);
}

impl NewFile {
    /// Creates the temporary file for a write to `path`, and removes those of earlier writes whose
    /// process was killed.
    ///
    /// # Errors
    /// Errors of [`resolve_target`], [`check_replaceable`] and the file system.
    pub fn create(path: &Path) -> io::Result<Self> {
        let target = resolve_target(path)?;
        check_replaceable(&target)?;
        remove_stale(&target);
        let (temporary, listed) = Listed::create(&target)?;
        Ok(NewFile { target, temporary, listed })
    }

    /// The temporary path, for a library that opens files by name.
    pub fn temporary_path(&self) -> &Path {
        self.temporary.path()
    }

    /// The open temporary file.
    pub fn file(&self) -> &File {
        self.temporary.as_file()
    }

    /// Gives the file its place. The caller has brought its bytes to disk, and calls
    /// [`sync_folder`](crate::sync_folder) after it with the path that is returned, the target's.
    ///
    /// # Errors
    /// Errors of the file system; the temporary file is removed then, and the target stays as it
    /// was.
    pub fn rename(self) -> io::Result<PathBuf> {
        let NewFile { target, temporary, listed } = self;
        temporary.persist(&target).map_err(|refused| refused.error)?;
        drop(listed);
        Ok(target)
    }

    /// Brings the file to disk, to its place, and the folder to disk; errors name `path`.
    ///
    /// # Errors
    /// As [`write()`].
    pub fn publish(self, path: &Path) -> Result<(), WriteError> {
        self.file().sync_all().map_err(WriteError::at(path, "flush to the disk"))?;
        let target = self.rename().map_err(WriteError::at(path, "rename into place"))?;
        sync_folder(&target).map_err(WriteError::at(folder_of(path), "flush the folder to the disk"))
    }
}

/// A temporary file with a shared lock, which tells other processes that this one is alive. It is
/// shared because readers of the finished file may ask for such a lock too, while a process that
/// was forked meanwhile still holds this one.
fn create_locked(target: &Path) -> io::Result<NamedTempFile> {
    let mut prefix = OsString::from(".");
    prefix.push(target.file_name().unwrap_or_default());
    prefix.push(".");
    let mut builder = Builder::new();
    builder.prefix(&prefix).suffix(SUFFIX);
    // Private to their owner by default; these become ordinary files, from whose permissions the
    // system takes the umask.
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    for _ in 0..ATTEMPTS_MAX {
        let file = builder.tempfile_in(folder_of(target))?;
        match file.as_file().try_lock_shared() {
            Ok(()) if is_at(file.path(), file.as_file()) => return Ok(file),
            Ok(()) | Err(TryLockError::WouldBlock) => {}
            // A file system without locks: nothing is ever taken for stale there.
            Err(TryLockError::Error(_)) => return Ok(file),
        }
    }
    Err(io::Error::new(ErrorKind::AlreadyExists, "its temporary file was removed again and again"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names_in(folder: &Path) -> Vec<OsString> {
        let mut names: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_file_is_replaced_whole_or_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        write(&path, b"old").unwrap();
        write(&path, b"new").unwrap();
        NewFile::create(&path).unwrap().file().write_all(b"half").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(names_in(folder.path()), ["file"]);
        // What a signal would remove is what is being written.
        let listed = || unfinished().iter().filter(|path| path.starts_with(folder.path())).count();
        assert_eq!(listed(), 0);
        let new = NewFile::create(&path).unwrap();
        assert_eq!(listed(), 1);
        new.publish(&path).unwrap();
        assert_eq!(listed(), 0);
    }

    // A signal between a file's creation and its entry in the list left the file.
    #[test]
    fn no_temporary_file_lacks_its_entry_while_the_list_is_held() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::thread::scope(|scope| {
            let creating = scope.spawn(|| (0..500).for_each(|_| drop(NewFile::create(&path).unwrap())));
            while !creating.is_finished() {
                let list = unfinished();
                for name in names_in(folder.path()) {
                    assert!(list.contains(&folder.path().join(&name)), "{} is not in the list", name.display());
                }
                drop(list);
                std::thread::yield_now();
            }
        });
    }

    // `megabatch ingest bars.csv --out link.h5` with a link made a file of the link and left the
    // file that it led to.
    #[cfg(unix)]
    #[test]
    fn a_link_stays_and_the_file_that_it_leads_to_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let [file, link] = ["file", "link"].map(|name| folder.path().join(name));
        fs::write(&file, "old").unwrap();
        std::os::unix::fs::symlink("file", &link).unwrap();
        write(&link, b"new").unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read(&file).unwrap(), b"new");
    }

    #[cfg(unix)]
    #[test]
    fn a_file_is_as_readable_as_any_other_and_its_name_may_be_no_text() {
        use std::os::unix::ffi::OsStrExt as _;
        use std::os::unix::fs::PermissionsExt as _;

        let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
        let folder = tempfile::tempdir().unwrap();
        let [plain, ours] =
            [&b"plain"[..], b"ours\xff"].map(|name| folder.path().join(std::ffi::OsStr::from_bytes(name)));
        fs::write(&plain, "").unwrap();
        write(&ours, b"").unwrap();
        assert_eq!(mode(&ours), mode(&plain));
    }
}
