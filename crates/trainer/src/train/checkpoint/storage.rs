#![forbid(unsafe_code)]

//! The seam between saving and the file system: what may fail, one operation at a time.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

/// Storage of checkpoints. Each operation may fail before, within or after its effect; only a
/// rename is never half done.
pub(super) trait Storage {
    /// Makes a folder and those that it lies in.
    fn create_folder(&self, folder: &Path) -> io::Result<()>;

    /// Writes a file anew and brings its bytes to disk.
    fn write(&self, path: &Path, bytes: &[u8]) -> io::Result<()>;

    /// Brings a folder's list of files to disk.
    fn sync_folder(&self, folder: &Path) -> io::Result<()>;

    /// Gives a folder another name beside its own, which no other has.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a folder and all that is in it.
    fn remove_folder(&self, folder: &Path) -> io::Result<()>;
}

/// The file system.
pub(super) struct Disk;

impl Storage for Disk {
    fn create_folder(&self, folder: &Path) -> io::Result<()> {
        fs::create_dir_all(folder)
    }

    fn write(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let mut file = File::create(path)?;
        file.write_all(bytes)?;
        file.sync_all()
    }

    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        File::open(folder)?.sync_all()
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove_folder(&self, folder: &Path) -> io::Result<()> {
        fs::remove_dir_all(folder)
    }
}
