#![forbid(unsafe_code)]

//! Files that appear whole or not at all: written beside their place, brought to disk, renamed.

use std::io::Write;
use std::path::Path;

pub(crate) use megabatch_atomic_file::folder_of as parent_folder;
use megabatch_atomic_file::{NewFile, sync_folder};

use crate::error::{Error, Result};

/// Writes `bytes` to `path`: a reader, or a crash, finds what was there before or the new file,
/// whole. A symbolic link is written through.
///
/// # Errors
/// [`Error::File`] when the file system refuses; what `path` held before is then still there.
pub fn write_atomically(path: &Path, bytes: &[u8]) -> Result<()> {
    let new = NewFile::create(path).map_err(Error::file(path, "make a file beside it"))?;
    new.file().write_all(bytes).map_err(Error::file(path, "write"))?;
    new.file().sync_all().map_err(Error::file(path, "flush to the disk"))?;
    let target = new.rename().map_err(Error::file(path, "rename into place"))?;
    sync_folder(&target).map_err(Error::file(parent_folder(path), "flush the folder to the disk"))
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
}
