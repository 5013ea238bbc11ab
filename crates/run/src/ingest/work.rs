//! Progress and cancellation of ingest.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use crate::host::{Host, Progress, Work};

/// One pass over files or bars, by any number of threads.
pub(crate) struct Pass<'a> {
    host: &'a Host<'a>,
    progress: Mutex<Box<dyn Progress>>,
    done: AtomicU64,
}

impl<'a> Pass<'a> {
    /// A pass over `total` units begins.
    pub(crate) fn begin(host: &'a Host<'a>, label: &'static str, unit: &'static str, total: u64) -> Self {
        let progress = host.observer.begin(Work { label, total, unit });
        Pass { host, progress: Mutex::new(progress), done: AtomicU64::new(0) }
    }

    /// Units that an earlier process has done.
    pub(crate) fn skip(&self, units: u64) {
        let first = self.done.fetch_add(units, Relaxed) + units;
        self.progress.lock().unwrap_or_else(PoisonError::into_inner).begin_at(first);
    }

    /// `units` more are done.
    pub(crate) fn advance(&self, units: u64) -> ControlFlow<()> {
        let done = self.done.fetch_add(units, Relaxed) + units;
        // Whoever finds the display taken leaves it to the next.
        if let Ok(mut progress) = self.progress.try_lock() {
            progress.at(done, "");
        }
        if self.host.cancel.is_requested() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}
