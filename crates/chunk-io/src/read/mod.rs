//! Rows of a dataset as f32 in the caller's memory, as fast as they come from the disk.
//!
//! A dataset that lies in its file in one of the usual forms is read past the HDF5 library, which
//! runs under one lock: its place in the file, or the index of its chunks, is asked of the library
//! once ([`read_path`]); from then on rows are positional reads ([`positional`]) or chunks decoded
//! here ([`chunks`]), over several threads. All else goes through the library ([`library`]).

mod access;
#[cfg(target_os = "linux")]
#[path = "cache_linux.rs"]
mod cache;
#[cfg(not(target_os = "linux"))]
#[path = "cache_portable.rs"]
mod cache;
mod chunks;
mod file;
mod index;
mod integers;
mod library;
mod non_finite;
mod parallel;
mod positional;
mod read_path;
mod rows;
mod scratch;
mod span;
mod stored_rows;

use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, PoisonError};

pub(crate) use file::FileIdentity;
pub(crate) use integers::DirectIntegers;
pub(crate) use library::{LibraryRows, ReadFailure, ToF32};
pub use non_finite::NonFinite;
use non_finite::has_non_finite;
pub(crate) use parallel::Done;
pub(crate) use read_path::{DatasetQuery, ReadPath, choose_read_path};
pub(crate) use rows::{RowSelection, cut, take};
use scratch::ThreadBuffers;

/// The flag of a read that nobody stops.
pub(crate) static UNSTOPPED: AtomicBool = AtomicBool::new(false);

/// Options of reading a file; part of [`SourceOptions`](crate::SourceOptions).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FileReadOptions {
    /// 0 for as many as the CPU runs at once.
    pub(crate) threads: usize,
    pub(crate) non_finite: NonFinite,
}

/// State shared by all datasets of one open file.
#[derive(Debug, Default)]
pub(crate) struct ReadContext {
    pub(crate) options: FileReadOptions,
    /// Memory of threads that are not reading now.
    idle: Mutex<Vec<ThreadBuffers>>,
}

impl ReadContext {
    pub(crate) fn new(options: FileReadOptions) -> Self {
        ReadContext { options, ..ReadContext::default() }
    }

    fn threads(&self) -> usize {
        match self.options.threads {
            0 => std::thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get),
            threads => threads,
        }
    }

    fn take_scratch(&self) -> ThreadBuffers {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default()
    }

    fn give_scratch(&self, scratch: ThreadBuffers) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(scratch);
    }
}
