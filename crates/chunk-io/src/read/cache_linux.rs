//! Linux's page cache: queries and advice.

use std::fs::File;
use std::io::{self, IoSliceMut};
use std::num::NonZeroU64;

use rustix::fs::{Advice, fadvise};
use rustix::io::{Errno, ReadWriteFlags, preadv2};

/// Reads what the page cache holds from `offset` on, up to the first page that it does not, and
/// returns the number of bytes; 0 if the file system does not support the query.
pub(super) fn read_cached(file: &File, offset: u64, out: &mut [u8]) -> io::Result<usize> {
    match preadv2(file, &mut [IoSliceMut::new(out)], offset, ReadWriteFlags::NOWAIT) {
        Ok(bytes) => Ok(bytes),
        Err(Errno::AGAIN | Errno::OPNOTSUPP | Errno::INVAL | Errno::NOSYS | Errno::INTR) => Ok(0),
        Err(error) => Err(error.into()),
    }
}

/// Has the system fetch a part of the file that will be read soon. It is a hint: where it fails,
/// reading is as slow as without.
pub(super) fn fetch_ahead(file: &File, offset: u64, bytes: u64) {
    let _ = fadvise(file, offset, NonZeroU64::new(bytes), Advice::WillNeed);
}
