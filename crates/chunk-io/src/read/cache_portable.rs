//! Page cache without queries, for other systems.

use std::fs::File;
use std::io;

/// Nothing is known to be cached.
pub(super) fn read_cached(_file: &File, _offset: u64, _out: &mut [u8]) -> io::Result<usize> {
    Ok(0)
}

/// Nothing is fetched ahead.
pub(super) fn fetch_ahead(_file: &File, _offset: u64, _bytes: u64) {}
