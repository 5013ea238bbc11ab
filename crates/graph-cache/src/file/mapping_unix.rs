//! Files mapped into memory.

#![allow(unsafe_code, reason = "files are mapped into memory")]

use std::fs::File;
use std::io;
use std::ops::Deref;
use std::ptr::{self, NonNull};

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use super::FileBytes;

/// A file's bytes where the system maps them.
#[derive(Debug)]
pub(crate) struct Mapping {
    start: NonNull<u8>,
    len: usize,
    /// Holds the shared lock that marks the file as in use.
    file: File,
}

impl Mapping {
    /// Bytes of the file now; memory beyond them cannot be read.
    pub(super) fn file_len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    /// The open file.
    pub(super) fn file(&self) -> io::Result<File> {
        self.file.try_clone()
    }
}

pub(super) fn map(file: File) -> io::Result<FileBytes> {
    let len = usize::try_from(file.metadata()?.len()).map_err(|_| io::ErrorKind::FileTooLarge)?;
    // SAFETY: a new mapping, at an address that the system chooses, takes nothing from anyone.
    let start = unsafe { mmap(ptr::null_mut(), len, ProtFlags::READ, MapFlags::SHARED, &file, 0) }?;
    let start = NonNull::new(start.cast()).expect("the system maps nothing at address 0");
    Ok(FileBytes::Mapped(Mapping { start, len, file }))
}

impl Deref for Mapping {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `len` bytes are mapped for reading until `self` is dropped. Files of graphs are
        // written anew and renamed, never modified in place, so the bytes do not change;
        // `GraphFile::open` requires the same of others.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range was mapped for this mapping alone, and slices of it borrow it.
        let unmapped = unsafe { munmap(self.start.as_ptr().cast(), self.len) };
        debug_assert!(unmapped.is_ok(), "{unmapped:?}");
    }
}

// SAFETY: the bytes are only read, from any thread.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}
