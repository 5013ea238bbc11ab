//! Signals that ask the process to stop. The first lets the command end in order; the second ends
//! the process at once, and so does the first where the command does not look for it in time, as
//! when a library never returns.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use megabatch_run::{Context as _, Result};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level;

static ONLY: OnceLock<Interruption> = OnceLock::new();

/// Signals received: one state for the whole process, so that a signal between two runs ends the
/// next.
pub(crate) struct Interruption {
    start: Instant,
    /// The first signal that came; 0 before.
    signal: AtomicI32,
    is_seen: AtomicBool,
    looked_ms: AtomicU64,
    longest_ms: AtomicU64,
    /// Least time that the command may go on without looking.
    patience: Duration,
}

impl Interruption {
    /// Watches from the first call on. The process ends when the command has not looked for a
    /// signal `patience` after it came, or twice the longest time that it went without looking
    /// before.
    ///
    /// # Errors
    /// If the system refuses a handler or a thread.
    pub(crate) fn watch(patience: Duration) -> Result<&'static Self> {
        if let Some(only) = ONLY.get() {
            return Ok(only);
        }
        let signals = Signals::new([SIGINT, SIGTERM]).context("cannot watch for signals")?;
        let only = ONLY.get_or_init(|| Interruption::new(patience));
        let follow = move || only.follow(signals);
        thread::Builder::new().name("signals".to_owned()).spawn(follow).context("cannot watch for signals")?;
        Ok(only)
    }

    /// The signals, once they are watched.
    pub(crate) fn current() -> Option<&'static Self> {
        ONLY.get()
    }

    fn new(patience: Duration) -> Self {
        Interruption {
            start: Instant::now(),
            signal: AtomicI32::new(0),
            is_seen: AtomicBool::new(false),
            looked_ms: AtomicU64::new(0),
            longest_ms: AtomicU64::new(0),
            patience,
        }
    }

    /// True if the command is to stop. Once this was true the command has all the time that it
    /// needs to end in order.
    pub(crate) fn is_asked(&self) -> bool {
        let now_ms = self.start.elapsed().as_millis() as u64;
        let before_ms = self.looked_ms.swap(now_ms, Relaxed);
        self.longest_ms.fetch_max(now_ms.saturating_sub(before_ms), Relaxed);
        let is_asked = self.signal.load(Relaxed) != 0;
        self.is_seen.fetch_or(is_asked, Relaxed);
        is_asked
    }

    /// Time after a signal within which the command may look for it.
    fn grace(&self) -> Duration {
        self.patience.max(2 * Duration::from_millis(self.longest_ms.load(Relaxed)))
    }

    fn follow(&'static self, mut signals: Signals) {
        let mut signals = signals.forever();
        let Some(first) = signals.next() else { return };
        self.signal.store(first, Relaxed);
        let end_late = move || {
            thread::sleep(self.grace());
            if !self.is_seen.load(Relaxed) {
                eprintln!(
                    "megabatch: the work under way did not stop in {:.0} s; ended without it",
                    self.grace().as_secs_f64()
                );
                low_level::exit(128 + first);
            }
        };
        // Without the thread the second signal still ends the process.
        let _ = thread::Builder::new().name("signals".to_owned()).spawn(end_late);
        if let Some(second) = signals.next() {
            low_level::exit(128 + second);
        }
    }
}

/// The first signal that came, if any did.
pub(crate) fn signal() -> Option<i32> {
    Interruption::current().map(|only| only.signal.load(Relaxed)).filter(|&signal| signal != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_waited_for_as_long_as_its_work_suggests() {
        let interruption = Interruption::new(Duration::from_secs(5));
        assert!(!interruption.is_asked());
        assert_eq!(interruption.grace(), Duration::from_secs(5));
        interruption.longest_ms.store(20_000, Relaxed);
        assert_eq!(interruption.grace(), Duration::from_secs(40));
        interruption.signal.store(SIGTERM, Relaxed);
        assert!(!interruption.is_seen.load(Relaxed));
        assert!(interruption.is_asked() && interruption.is_seen.load(Relaxed));
    }
}
