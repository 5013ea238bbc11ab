#![forbid(unsafe_code)]

//! Files and folders that appear whole or not at all: written beside their place, brought to disk, renamed.

use std::fs::File;
use std::io::Write;
use std::path::Path;

use tempfile::{Builder, TempDir};

use crate::error::{Error, Result};

/// Writes `bytes` to `path`: a reader, or a crash, finds what was there before or the new file, whole.
///
/// # Errors
/// [`Error::File`] when the file system refuses; what `path` held before is then still there.
pub fn write_atomically(path: &Path, bytes: &[u8]) -> Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut file = builder(0o666).tempfile_in(folder).map_err(Error::file(path, "make a file beside it"))?;
    file.write_all(bytes).map_err(Error::file(path, "write"))?;
    file.as_file().sync_all().map_err(Error::file(path, "flush to the disk"))?;
    file.persist(path).map_err(|error| Error::file(path, "rename into place")(error.error))?;
    sync_folder(folder)
}

/// A folder in `folder` that is removed when it is dropped, unless it has been renamed.
pub(crate) fn unfinished_folder(folder: &Path, prefix: &str) -> Result<TempDir> {
    builder(0o777).prefix(prefix).tempdir_in(folder).map_err(Error::file(folder, "make a folder in the folder"))
}

/// Brings a folder's list of files to disk.
pub(crate) fn sync_folder(folder: &Path) -> Result<()> {
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(Error::file(folder, "flush the folder to the disk"))
}

/// Temporary files are private to their owner unless told otherwise; these become ordinary ones, of which the system takes
/// the umask off.
fn builder(mode: u32) -> Builder<'static, 'static> {
    let mut builder = Builder::new();
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(mode));
    #[cfg(not(unix))]
    let _ = mode;
    builder
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_whole_and_nothing_is_left_beside_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        write_atomically(&path, b"old").unwrap();
        write_atomically(&path, b"new").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"new");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);

        let blocked = path.join("below a file");
        let error = write_atomically(&blocked, b"").unwrap_err().to_string();
        assert!(error.contains("below a file"), "{error}");
    }

    #[cfg(unix)]
    #[test]
    fn files_and_folders_are_as_readable_as_any_other() {
        use std::os::unix::fs::PermissionsExt;

        let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
        let folder = tempfile::tempdir().unwrap();
        let [plain, ours] = ["plain", "ours"].map(|name| folder.path().join(name));
        std::fs::write(&plain, "").unwrap();
        write_atomically(&ours, b"").unwrap();
        assert_eq!(mode(&ours), mode(&plain));
        let plain = folder.path().join("plain folder");
        std::fs::create_dir(&plain).unwrap();
        assert_eq!(mode(unfinished_folder(folder.path(), "x").unwrap().path()), mode(&plain));
    }
}
