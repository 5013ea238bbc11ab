//! Recording of a pool: the last events, a timeline of its memory, and snapshots at the peak and at
//! failures.

mod trace;
mod trace_event;

use std::fmt;
use std::io::{self, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub use trace::TraceWriter;
pub use trace_event::{BLOCK_BYTES_MAX, TraceEvent};

use crate::pool::{Pool, Stats};
use crate::snapshot::{EventRecorder, FailedRequest, Reason, Snapshot};

/// Current time in microseconds since 1970 UTC.
pub type Clock = Arc<dyn Fn() -> u64 + Send + Sync>;

/// Extent of a recording.
#[derive(Clone)]
pub struct RecordingSettings {
    /// Events that are kept, the last ones; about 100 bytes each.
    pub events_max: usize,
    /// Clock of the recording.
    pub clock: Clock,
}

impl fmt::Debug for RecordingSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecordingSettings").field("events_max", &self.events_max).finish_non_exhaustive()
    }
}

/// An observer of one pool, and the snapshots that it took. Whoever frees blocks calls
/// [`Recording::before_free`] first, whoever is refused memory calls [`Recording::failed`].
pub struct Recording {
    watched: Arc<Mutex<ObservedState>>,
    clock: Clock,
    peak: Option<Snapshot>,
    failure: Option<Snapshot>,
    /// Counters of the pool at its last reset, with their peaks over all resets.
    before_resets: Stats,
}

impl fmt::Debug for Recording {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Recording")
    }
}

/// State that the pool's observer writes.
struct ObservedState {
    recorder: EventRecorder,
    trace: Option<TraceWriter<Box<dyn Write + Send>>>,
}

/// A snapshot of the peak is taken anew when the peak has grown by more than one part in this. So a
/// run has a bounded number of them, whatever its course, and the last one shows all but a
/// hundredth of the highest.
const PEAK_PARTS: usize = 100;

impl Recording {
    /// Observes `pool` from now on; another observer ends.
    pub fn begin(pool: &mut Pool, settings: RecordingSettings) -> Self {
        let RecordingSettings { events_max, clock } = settings;
        let recorder = EventRecorder::begin(events_max, clock(), &pool.segments(), pool.stats().reserved_bytes.now);
        let watched = Arc::new(Mutex::new(ObservedState { recorder, trace: None }));
        let (observed, time) = (Arc::clone(&watched), Arc::clone(&clock));
        pool.set_observer(Some(Box::new(move |event| {
            let mut watched = lock(&observed);
            watched.recorder.note(time(), event);
            watched.trace.iter_mut().for_each(|trace| trace.note(event));
        })));
        Recording { watched, clock, peak: None, failure: None, before_resets: Stats::default() }
    }

    /// Also writes every allocation, free and step to `out`, beginning with the blocks of `pool`
    /// that are live now.
    pub fn write_trace(&mut self, pool: &Pool, out: Box<dyn Write + Send>) {
        lock(&self.watched).trace = Some(TraceWriter::begin(out, &pool.segments()));
    }

    /// To be called when a block of `pool` is about to be freed: a peak ends there.
    pub fn before_free(&mut self, pool: &Pool) {
        let highest = self.peak.as_ref().map_or(0, |peak| peak.totals.allocated_bytes);
        let now = pool.stats().allocated_bytes.now;
        if now > highest + highest / PEAK_PARTS {
            self.peak = Some(self.snapshot(pool, Reason::Peak));
        }
    }

    /// To be called when the peaks of `pool` are about to be reset: those of the recording stay.
    pub(crate) fn before_reset(&mut self, pool: &Pool) {
        self.before_resets = pool.stats().with_peaks(&self.before_resets);
    }

    /// To be called when `pool`, or a budget over it, has refused memory.
    pub fn failed(&mut self, pool: &Pool, shortage: FailedRequest) {
        self.failure = Some(Snapshot { shortage: Some(shortage), ..self.snapshot(pool, Reason::Shortage) });
    }

    /// Snapshot of the pool now.
    pub fn now(&self, pool: &Pool) -> Snapshot {
        self.snapshot(pool, Reason::Asked)
    }

    /// The pool as it was when most was allocated, to a hundredth, with the course of memory and
    /// the peaks of all counters up to now.
    pub fn peak(&mut self, pool: &Pool) -> Snapshot {
        self.before_free(pool);
        let mut peak = self.peak.clone().unwrap_or_else(|| self.now(pool));
        peak.totals.set_peaks(&pool.stats().with_peaks(&self.before_resets));
        peak.timeline = lock(&self.watched).recorder.timeline().clone();
        peak
    }

    /// The pool as it was when it last refused memory; once.
    pub fn take_failure(&mut self) -> Option<Snapshot> {
        self.failure.take()
    }

    /// Brings the trace to its end, where one is written.
    ///
    /// # Errors
    /// The first failure to write it.
    pub fn finish_trace(&mut self) -> io::Result<()> {
        lock(&self.watched).trace.take().map_or(Ok(()), TraceWriter::finish)
    }

    fn snapshot(&self, pool: &Pool, reason: Reason) -> Snapshot {
        Snapshot::take(pool, reason, (self.clock)(), Some(&lock(&self.watched).recorder))
    }
}

/// A thread that panicked while it held the lock left at worst one event half noted.
fn lock(watched: &Mutex<ObservedState>) -> MutexGuard<'_, ObservedState> {
    watched.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
