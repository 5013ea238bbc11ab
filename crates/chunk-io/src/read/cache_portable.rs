//! Page cache without queries, for other systems.

use std::fs::File;
use std::io;
use std::path::Path;

/// Nothing is known to be cached.
pub(super) fn read_cached(_file: &File, _offset: u64, _out: &mut [u8]) -> io::Result<usize> {
    Ok(0)
}

/// Nothing is fetched ahead.
pub(super) fn fetch_ahead(_file: &File, _offset: u64, _bytes: u64) {}

/// There are no reads past the page cache.
pub(super) fn open_direct(_path: &Path) -> io::Result<File> {
    Err(io::ErrorKind::Unsupported.into())
}
