/// A counter and its peak since the start or the last reset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Peaked {
    /// Current value.
    pub now: usize,
    /// Largest value.
    pub peak: usize,
}

impl Peaked {
    /// Adds to the current value.
    pub(crate) fn add(&mut self, more: usize) {
        self.set(self.now + more);
    }

    /// Sets the current value.
    pub(crate) fn set(&mut self, now: usize) {
        self.now = now;
        self.peak = self.peak.max(now);
    }

    /// Subtracts from the current value.
    pub(crate) fn sub(&mut self, less: usize) {
        self.now -= less;
    }
}

/// Counters of a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Requested bytes of live blocks.
    pub requested_bytes: Peaked,
    /// Bytes of live blocks: requested bytes rounded up to block sizes.
    pub allocated_bytes: Peaked,
    /// Bytes of the granules that the pool holds.
    pub reserved_bytes: Peaked,
    /// Free bytes in granules that also hold live bytes.
    pub inactive_split_bytes: Peaked,
    /// Live blocks.
    pub blocks: Peaked,
    /// Allocations so far.
    pub allocations_total: u64,
    /// Requests for which granules were mapped side by side.
    pub stitches_total: u64,
    /// Granules mapped by stitching, each with one driver call.
    pub stitched_granules_total: u64,
    /// Calls to the driver.
    pub driver_calls_total: u64,
    /// Requests that failed.
    pub shortages_total: u64,
}

impl Stats {
    /// The counters with the larger peaks of both.
    pub(crate) fn with_peaks(mut self, other: &Stats) -> Self {
        for (own, other) in [
            (&mut self.requested_bytes, other.requested_bytes),
            (&mut self.allocated_bytes, other.allocated_bytes),
            (&mut self.reserved_bytes, other.reserved_bytes),
            (&mut self.inactive_split_bytes, other.inactive_split_bytes),
            (&mut self.blocks, other.blocks),
        ] {
            own.peak = own.peak.max(other.peak);
        }
        self
    }

    pub(crate) fn reset_peak(&mut self) {
        for number in [
            &mut self.requested_bytes,
            &mut self.allocated_bytes,
            &mut self.reserved_bytes,
            &mut self.inactive_split_bytes,
            &mut self.blocks,
        ] {
            number.peak = number.now;
        }
    }
}
