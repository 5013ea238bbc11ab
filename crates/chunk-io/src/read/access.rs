//! Reads of extents, of which the system fetches the next ones once the page cache lacks one.

use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::cache::{fetch_ahead, read_cached};
use super::file::{FileExtent, RawFile};
use super::{NonFinite, ReadContext};
use crate::error::{Error, Result};

/// Bytes that the system prefetches for the next tasks once a task has found the page cache empty:
/// enough for a disk to have several requests queued, few enough to stay in the cache until they
/// are read.
const AHEAD_BYTES: usize = 16 << 20;
/// Each extent is one call.
const EXTENTS_AHEAD_MAX: usize = 256;
/// Bytes of a page of the cache.
const PAGE_BYTES: u64 = 4096;

/// A file during one request with known extents.
pub(super) struct ExtentReader<'a> {
    file: &'a RawFile,
    reading: &'a ReadContext,
    /// In the order in which tasks read them, each with the task's number.
    extents: Vec<(usize, FileExtent)>,
    /// Extents before this one were fetched ahead.
    fetched: AtomicUsize,
    /// True if a task had to wait for the disk.
    cold: AtomicBool,
}

impl<'a> ExtentReader<'a> {
    pub(super) fn new(file: &'a RawFile, reading: &'a ReadContext, extents: Vec<(usize, FileExtent)>) -> Self {
        ExtentReader { file, reading, extents, fetched: AtomicUsize::new(0), cold: AtomicBool::new(false) }
    }

    /// Reads `extent`, a part of those of `task`, to `out`, which is as long.
    pub(super) fn read(&self, task: usize, extent: FileExtent, out: &mut [u8]) -> Result<()> {
        if self.cold.load(Ordering::Relaxed) {
            self.fetch_ahead(task);
        }
        let cached = read_cached(&self.file.file, extent.offset, out).map_err(|error| self.file.failed(error))?;
        if cached == out.len() {
            return Ok(());
        }
        if !self.cold.swap(true, Ordering::Relaxed) {
            self.fetch_ahead(task);
        }
        let read = self.file.file.read_exact_at(&mut out[cached..], extent.offset + cached as u64);
        read.map_err(|error| self.file.failed(error))
    }

    /// Reads `extent`, a part of those of `task`, to the first bytes of `staging`, which grows.
    pub(super) fn read_staged(&self, task: usize, extent: FileExtent, staging: &mut Vec<u8>) -> Result<()> {
        if staging.len() < extent.bytes {
            staging.clear();
            staging.try_reserve_exact(extent.bytes).map_err(|_| self.no_memory(extent))?;
            staging.resize(extent.bytes, 0);
        }
        self.read(task, extent, &mut staging[..extent.bytes])
    }

    pub(super) fn non_finite(&self) -> NonFinite {
        self.reading.options.non_finite
    }

    /// Has the system prefetch what the tasks from `task` on will read, up to [`AHEAD_BYTES`] of
    /// it.
    fn fetch_ahead(&self, task: usize) {
        let first = self.extents.partition_point(|&(owner, _)| owner < task);
        let mut bytes = 0;
        let wanted = self.extents[first..].iter().take(EXTENTS_AHEAD_MAX).take_while(|(_, extent)| {
            bytes += extent.bytes;
            bytes <= AHEAD_BYTES
        });
        let end = first + wanted.count();
        let first = first.max(self.fetched.fetch_max(end, Ordering::Relaxed));
        let Some(wanted) = self.extents.get(first..end) else { return };
        for together in wanted.chunk_by(|(_, a), (_, b)| b.offset >= a.offset && b.offset <= a.end() + PAGE_BYTES) {
            let (offset, end) = (together[0].1.offset, together[together.len() - 1].1.end());
            fetch_ahead(&self.file.file, offset, end - offset);
        }
    }

    fn no_memory(&self, extent: FileExtent) -> Error {
        let source = io::Error::new(io::ErrorKind::OutOfMemory, format!("no memory for {} bytes of it", extent.bytes));
        Error::Io { path: self.file.path.clone(), action: "read the file", source }
    }
}
