use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

/// Memory use of a device or of one scope on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Bytes in live buffers.
    pub allocated_bytes: usize,
    /// Largest value of `allocated_bytes` since the start or since the last reset of the peaks.
    pub allocated_bytes_peak: usize,
    /// Number of live buffers.
    pub buffers: usize,
    /// Allocations ever made. Grows for ever; a steady state in which it stands still allocates
    /// nothing.
    pub allocations_total: u64,
}

/// The counters behind a [`Usage`], shared by every thread that allocates.
///
/// `Relaxed` suffices throughout: the counters order no other memory, and `fetch_*` on one of them
/// is atomic by itself.
#[derive(Debug, Default)]
pub(crate) struct Counter {
    allocated_bytes: AtomicUsize,
    allocated_bytes_peak: AtomicUsize,
    buffers: AtomicUsize,
    allocations_total: AtomicU64,
}

impl Counter {
    /// Adds `bytes` unless that would pass `limit_bytes`; then nothing changes and the bytes
    /// allocated so far come back.
    pub(crate) fn try_add(&self, bytes: usize, limit_bytes: usize) -> Result<(), usize> {
        let within_limit = |now: usize| now.checked_add(bytes).filter(|&sum| sum <= limit_bytes);
        let before = self.allocated_bytes.fetch_update(Relaxed, Relaxed, within_limit)?;
        self.allocated_bytes_peak.fetch_max(before + bytes, Relaxed);
        self.buffers.fetch_add(1, Relaxed);
        self.allocations_total.fetch_add(1, Relaxed);
        Ok(())
    }

    pub(crate) fn sub(&self, bytes: usize) {
        let before = self.allocated_bytes.fetch_sub(bytes, Relaxed);
        assert!(before >= bytes, "freed {bytes} bytes of {before} allocated");
        self.buffers.fetch_sub(1, Relaxed);
    }

    pub(crate) fn usage(&self) -> Usage {
        Usage {
            allocated_bytes: self.allocated_bytes.load(Relaxed),
            allocated_bytes_peak: self.allocated_bytes_peak.load(Relaxed),
            buffers: self.buffers.load(Relaxed),
            allocations_total: self.allocations_total.load(Relaxed),
        }
    }

    pub(crate) fn reset_peak(&self) {
        self.allocated_bytes_peak.store(self.allocated_bytes.load(Relaxed), Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_request_changes_nothing() {
        let counter = Counter::default();
        counter.try_add(60, 100).unwrap();
        let before = counter.usage();
        assert_eq!(counter.try_add(41, 100), Err(60));
        assert_eq!(counter.try_add(usize::MAX, usize::MAX), Err(60));
        assert_eq!(counter.usage(), before);
        counter.try_add(40, 100).unwrap();
        assert_eq!(counter.usage().allocated_bytes, 100);
    }

    #[test]
    #[should_panic(expected = "freed 2 bytes of 1 allocated")]
    fn freeing_more_than_was_allocated_is_a_bug() {
        let counter = Counter::default();
        counter.try_add(1, 1).unwrap();
        counter.sub(2);
    }
}
