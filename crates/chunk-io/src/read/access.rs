//! Reads of extents, through the page cache or past it, by the options and the cache's state.

use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::cache::{fetch_ahead, read_cached};
use super::file::{FileExtent, RawFile};
use super::scratch::{Aligned, PAGE_BYTES};
use super::{Direct, NonFinite, ReadContext};
use crate::error::{Error, Result};

/// Bytes that the system prefetches for the next tasks once a task has found the page cache empty:
/// enough for a disk to have several requests queued, few enough to stay in the cache until they
/// are read.
const AHEAD_BYTES: usize = 16 << 20;
/// Each extent is one call.
const EXTENTS_AHEAD_MAX: usize = 256;

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
    pub(super) fn read(&self, task: usize, extent: FileExtent, out: &mut [u8], staging: &mut Aligned) -> Result<()> {
        let cached = self.read_cached(task, extent, out)?;
        if cached == out.len() {
            return Ok(());
        }
        let rest = FileExtent { offset: extent.offset + cached as u64, bytes: out.len() - cached };
        match self.read_past_cache(rest, staging)? {
            Some(part) => out[cached..].copy_from_slice(staging.part(part)),
            None => self.read_plainly(task, rest, &mut out[cached..])?,
        }
        Ok(())
    }

    /// Reads `extent`, a part of those of `task`, to the thread's own buffer; returns its range
    /// there.
    pub(super) fn read_staged(&self, task: usize, extent: FileExtent, staging: &mut Aligned) -> Result<Range<usize>> {
        let out = staging.sized(extent.bytes).map_err(|_| self.no_memory(extent))?;
        let cached = self.read_cached(task, extent, out)?;
        if cached == extent.bytes {
            return Ok(0..extent.bytes);
        }
        // An attempt overwrites the buffer, even if the file system refuses it.
        let kept = if self.may_pass_cache() { 0 } else { cached };
        if let Some(part) = self.read_past_cache(extent, staging)? {
            return Ok(part);
        }
        let out = staging.sized(extent.bytes).map_err(|_| self.no_memory(extent))?;
        let rest = FileExtent { offset: extent.offset + kept as u64, bytes: extent.bytes - kept };
        self.read_plainly(task, rest, &mut out[kept..])?;
        Ok(0..extent.bytes)
    }

    pub(super) fn non_finite(&self) -> NonFinite {
        self.reading.options.non_finite
    }

    /// Reads the start of `extent` that the page cache holds, if the options consult the cache.
    fn read_cached(&self, task: usize, extent: FileExtent, out: &mut [u8]) -> Result<usize> {
        if self.reading.options.direct == Direct::On && self.may_pass_cache() {
            return Ok(0);
        }
        if self.cold.load(Ordering::Relaxed) {
            self.fetch_ahead(task);
        }
        read_cached(&self.file.file, extent.offset, out).map_err(|error| self.file.failed(error))
    }

    fn read_plainly(&self, task: usize, extent: FileExtent, out: &mut [u8]) -> Result<()> {
        if !self.cold.swap(true, Ordering::Relaxed) {
            self.fetch_ahead(task);
        }
        self.file.file.read_exact_at(out, extent.offset).map_err(|error| self.file.failed(error))
    }

    /// Reads the pages around `extent` past the page cache, and returns its range in `staging`;
    /// `None` if the options exclude it, or if the file system refuses it, which is noted.
    fn read_past_cache(&self, extent: FileExtent, staging: &mut Aligned) -> Result<Option<Range<usize>>> {
        let Some(direct) = self.file.direct.as_ref().filter(|_| self.may_pass_cache()) else { return Ok(None) };
        let start = extent.offset / PAGE_BYTES as u64 * PAGE_BYTES as u64;
        let needed = (extent.end() - start) as usize;
        let out = staging.sized(needed.next_multiple_of(PAGE_BYTES)).map_err(|_| self.no_memory(extent))?;
        let mut filled = 0;
        while filled < needed {
            match direct.read_at(&mut out[filled..], start + filled as u64) {
                Ok(0) => return Err(self.file.failed(io::ErrorKind::UnexpectedEof.into())),
                Ok(bytes) if filled + bytes >= needed => filled = needed,
                // The next read has to start at a page too.
                Ok(bytes) if bytes >= PAGE_BYTES => filled += bytes / PAGE_BYTES * PAGE_BYTES,
                Ok(_) => return Err(self.file.failed(io::ErrorKind::UnexpectedEof.into())),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                    self.reading.note_refusal(&error);
                    return Ok(None);
                }
                Err(error) => return Err(self.file.failed(error)),
            }
        }
        Ok(Some(needed - extent.bytes..needed))
    }

    fn may_pass_cache(&self) -> bool {
        self.file.direct.is_some() && self.reading.direct_refused().is_none()
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
        for together in
            wanted.chunk_by(|(_, a), (_, b)| b.offset >= a.offset && b.offset <= a.end() + PAGE_BYTES as u64)
        {
            let (offset, end) = (together[0].1.offset, together[together.len() - 1].1.end());
            fetch_ahead(&self.file.file, offset, end - offset);
        }
    }

    fn no_memory(&self, extent: FileExtent) -> Error {
        let source = io::Error::new(io::ErrorKind::OutOfMemory, format!("no memory for {} bytes of it", extent.bytes));
        Error::Io { path: self.file.path.clone(), action: "read the file", source }
    }
}
