//! Signals that ask the process to stop: SIGINT, SIGTERM and, unless it is ignored as under
//! `nohup`, SIGHUP, which a terminal that is closed sends. The first lets a command that looks for
//! it end in order; a command that does not is ended at once, with a word, and its temporary files
//! are removed. So are those that take too long, as when a library never returns, and any by a
//! second signal.

use std::fs;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use megabatch_run::{Context as _, Result, remove_unfinished};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level;

use crate::standard_error::tell;

static ONLY: OnceLock<Interruption> = OnceLock::new();

/// Signals received: one state for the whole process, so that a signal between two runs ends the
/// next.
pub(crate) struct Interruption {
    start: Instant,
    /// The first signal; 0 before it.
    signal: AtomicI32,
    /// Time of the first check that saw the signal; 0 before it.
    seen_ms: AtomicU64,
    looked_ms: AtomicU64,
    longest_ms: AtomicU64,
    /// Time that the command may go on between two checks; 0 for one that never checks.
    patience_ms: AtomicU64,
}

impl Interruption {
    /// Begins to listen, for a command that does not check for signals itself.
    ///
    /// # Errors
    /// If the system refuses a handler or a thread.
    pub(crate) fn listen() -> Result<&'static Self> {
        if let Some(only) = ONLY.get() {
            return Ok(only);
        }
        let hangup = (!is_ignored(SIGHUP)).then_some(SIGHUP);
        let signals = Signals::new([SIGINT, SIGTERM].into_iter().chain(hangup));
        let signals = signals.context("cannot watch for signals")?;
        let only = ONLY.get_or_init(Interruption::new);
        let follow = move || only.follow(signals);
        thread::Builder::new().name("signals".to_owned()).spawn(follow).context("cannot watch for signals")?;
        Ok(only)
    }

    /// The command checks for signals from now on. The process ends if the command has not checked
    /// within `patience` after a signal, or not ended within `patience` after that check. Twice the
    /// longest interval between two checks counts where it is longer.
    ///
    /// # Errors
    /// As [`Interruption::listen`].
    pub(crate) fn watch(patience: Duration) -> Result<()> {
        let only = Interruption::listen()?;
        only.patience_ms.fetch_max(u64::try_from(patience.as_millis()).unwrap_or(u64::MAX), Relaxed);
        Ok(())
    }

    /// The state, once signals are listened for.
    pub(crate) fn current() -> Option<&'static Self> {
        ONLY.get()
    }

    fn new() -> Self {
        Interruption {
            start: Instant::now(),
            signal: AtomicI32::new(0),
            seen_ms: AtomicU64::new(0),
            looked_ms: AtomicU64::new(0),
            longest_ms: AtomicU64::new(0),
            patience_ms: AtomicU64::new(0),
        }
    }

    /// True if the command is to stop. From the first such answer on it has as long to end as it
    /// had to ask.
    pub(crate) fn is_asked(&self) -> bool {
        let now_ms = self.start.elapsed().as_millis() as u64;
        let before_ms = self.looked_ms.swap(now_ms, Relaxed);
        self.longest_ms.fetch_max(now_ms.saturating_sub(before_ms), Relaxed);
        let is_asked = self.signal.load(Relaxed) != 0;
        if is_asked {
            // Later checks win no more time: they may be those of a wait that never ends.
            let _later = self.seen_ms.compare_exchange(0, now_ms.max(1), Relaxed, Relaxed);
        }
        is_asked
    }

    /// Time after a signal within which the command must check for it, and then end.
    fn grace(&self) -> Duration {
        match self.patience_ms.load(Relaxed) {
            0 => Duration::ZERO,
            patience_ms => Duration::from_millis(patience_ms.max(2 * self.longest_ms.load(Relaxed))),
        }
    }

    /// Time until the process is ended, `since` a signal.
    fn time_left(&self, since: Duration, now: Duration) -> Duration {
        let seen = Duration::from_millis(self.seen_ms.load(Relaxed));
        (since.max(seen) + self.grace()).saturating_sub(now)
    }

    fn follow(&'static self, mut signals: Signals) {
        let mut signals = signals.forever();
        let Some(first) = signals.next() else { return };
        self.signal.store(first, Relaxed);
        if self.grace().is_zero() {
            end(first, &format!("megabatch: ended by {}", name(first)));
        }
        let since = self.start.elapsed();
        let end_late = move || {
            loop {
                let left = self.time_left(since, self.start.elapsed());
                if left.is_zero() {
                    break;
                }
                thread::sleep(left);
            }
            let waited_s = (self.start.elapsed() - since).as_secs_f64();
            end(first, &format!("megabatch: the work under way did not stop in {waited_s:.0} s; ended without it"));
        };
        // Without the thread the second signal still ends the process.
        let _ = thread::Builder::new().name("signals".to_owned()).spawn(end_late);
        // A terminal that is closed may send its signal twice, by the system and by the shell.
        if let Some(second) = signals.find(|&signal| signal != SIGHUP) {
            end(second, &format!("megabatch: ended by {}, before the work under way had stopped", name(second)));
        }
    }
}

/// Ends the process with a message, and removes unfinished files.
fn end(signal: i32, word: &str) {
    remove_unfinished();
    tell(word);
    low_level::exit(128 + signal);
}

fn name(signal: i32) -> &'static str {
    low_level::signal_name(signal).unwrap_or("a signal")
}

/// True if the process was started with `signal` ignored, where the system tells.
fn is_ignored(signal: i32) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}

/// The first signal, if any.
pub(crate) fn signal() -> Option<i32> {
    Interruption::current().map(|only| only.signal.load(Relaxed)).filter(|&signal| signal != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_waited_for_as_long_as_its_work_suggests() {
        let interruption = Interruption::new();
        assert!(!interruption.is_asked() && interruption.grace().is_zero());
        interruption.patience_ms.store(5_000, Relaxed);
        assert_eq!(interruption.grace(), Duration::from_secs(5));
        interruption.longest_ms.store(20_000, Relaxed);
        assert_eq!(interruption.grace(), Duration::from_secs(40));
        interruption.signal.store(SIGTERM, Relaxed);
        assert!(interruption.is_asked() && interruption.seen_ms.load(Relaxed) > 0);
    }

    /// A wait for a batch looked for the signal, and was then given all the time of the world.
    #[test]
    fn a_command_that_has_seen_its_signal_is_waited_for_as_long_again_and_no_longer() {
        let interruption = Interruption::new();
        interruption.patience_ms.store(60_000, Relaxed);
        let left_s =
            |since_s, now_s| interruption.time_left(Duration::from_secs(since_s), Duration::from_secs(now_s)).as_secs();
        assert_eq!((left_s(100, 100), left_s(100, 130), left_s(100, 160)), (60, 30, 0));
        interruption.seen_ms.store(110_000, Relaxed);
        assert_eq!((left_s(100, 130), left_s(100, 160), left_s(100, 170)), (40, 10, 0));
        // Of two checks the first counts.
        interruption.signal.store(SIGTERM, Relaxed);
        assert!(interruption.is_asked());
        assert_eq!(left_s(100, 170), 0);
    }
}
