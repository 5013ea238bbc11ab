#![forbid(unsafe_code)]

//! Files that appear whole or not at all: written beside their place, brought to disk, renamed.

use std::fs::File;
use std::io::Write;
use std::path::Path;

use tempfile::Builder;

use crate::error::{Error, Result};

/// Writes `bytes` to `path`: a reader, or a crash, finds what was there before or the new file, whole.
///
/// # Errors
/// [`Error::File`] when the file system refuses; what `path` held before is then still there.
pub fn write_atomically(path: &Path, bytes: &[u8]) -> Result<()> {
    let folder = parent_folder(path);
    let mut file = builder().tempfile_in(folder).map_err(Error::file(path, "make a file beside it"))?;
    file.write_all(bytes).map_err(Error::file(path, "write"))?;
    file.as_file().sync_all().map_err(Error::file(path, "flush to the disk"))?;
    file.persist(path).map_err(|error| Error::file(path, "rename into place")(error.error))?;
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(Error::file(folder, "flush the folder to the disk"))
}

/// The folder that a file or folder lies in.
pub(crate) fn parent_folder(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Temporary files are private to their owner unless told otherwise; these become ordinary ones, of which the system takes
/// the umask off.
fn builder() -> Builder<'static, 'static> {
    let mut builder = Builder::new();
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
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
    fn a_file_is_as_readable_as_any_other() {
        use std::os::unix::fs::PermissionsExt;

        let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
        let folder = tempfile::tempdir().unwrap();
        let [plain, ours] = ["plain", "ours"].map(|name| folder.path().join(name));
        std::fs::write(&plain, "").unwrap();
        write_atomically(&ours, b"").unwrap();
        assert_eq!(mode(&ours), mode(&plain));
    }

    #[test]
    fn every_path_lies_in_a_folder() {
        for (path, folder) in [("a/b", "a"), ("/a", "/"), ("a", "."), ("a/b/", "a")] {
            assert_eq!(parent_folder(Path::new(path)), Path::new(folder));
        }
    }
}
