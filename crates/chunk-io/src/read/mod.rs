//! Rows of a dataset as f32 in the caller's memory, as fast as they come from the disk.
//!
//! A dataset that lies in its file in one of the usual forms is read past the HDF5 library, which
//! runs under one lock: its place in the file, or the index of its chunks, is asked of the library
//! once ([`placement`]); from then on rows are positional reads ([`positional`]) or chunks decoded
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
use std::sync::{Mutex, OnceLock, PoisonError};

use serde::Serialize;

pub(crate) use file::FileIdentity;
pub(crate) use integers::DirectIntegers;
pub(crate) use library::{LibraryRows, ReadFailure, ToF32};
pub use non_finite::NonFinite;
use non_finite::breaks;
pub(crate) use parallel::Done;
pub(crate) use read_path::{DatasetQuery, ReadPath, choose_read_path};
pub(crate) use rows::{RowSelection, cut, take};
use scratch::ThreadBuffers;

/// The flag of a read that nobody stops.
pub(crate) static UNSTOPPED: AtomicBool = AtomicBool::new(false);

/// Reads past the page cache (`O_DIRECT`). Where the file system refuses them, data are read as
/// with `Off`, and [`Source::notes`](crate::Source::notes) says so.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Direct {
    /// Through the page cache, which keeps data for the next read as long as memory allows.
    #[default]
    Off,
    /// Reads cached pages through the page cache and the rest past it.
    WhenCold,
    /// Always past it.
    On,
}

/// Options of reading a file; part of [`SourceOptions`](crate::SourceOptions).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FileReadOptions {
    /// 0 for as many as the CPU runs at once.
    pub(crate) threads: usize,
    pub(crate) direct: Direct,
    pub(crate) non_finite: NonFinite,
}

/// State shared by all datasets of one open file.
#[derive(Debug, Default)]
pub(crate) struct ReadContext {
    pub(crate) options: FileReadOptions,
    /// Memory of threads that are not reading now.
    idle: Mutex<Vec<ThreadBuffers>>,
    direct_refused: OnceLock<String>,
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

    /// Reason for which reads past the page cache were given up; `None` if they were not.
    pub(crate) fn direct_refused(&self) -> Option<&str> {
        self.direct_refused.get().map(String::as_str)
    }

    fn note_refusal(&self, reason: &std::io::Error) {
        self.direct_refused.get_or_init(|| {
            format!("reads past the page cache are refused by the file system ({reason}); the page cache is used")
        });
    }

    fn take_scratch(&self) -> ThreadBuffers {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default()
    }

    fn give_scratch(&self, scratch: ThreadBuffers) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(scratch);
    }
}
