#![forbid(unsafe_code)]

use std::fmt;

/// A number and the largest it has been since the start or the last reset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Peaked {
    /// Current value.
    pub now: usize,
    /// The largest it was.
    pub peak: usize,
}

impl Peaked {
    /// Adds to what it is.
    pub(crate) fn add(&mut self, more: usize) {
        self.set(self.now + more);
    }

    /// Says what it is.
    pub(crate) fn set(&mut self, now: usize) {
        self.now = now;
        self.peak = self.peak.max(now);
    }

    /// Takes from what it is.
    pub(crate) fn sub(&mut self, less: usize) {
        self.now -= less;
    }
}

/// Counters of a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Bytes that were asked for and not freed.
    pub requested_bytes: Peaked,
    /// Bytes of live blocks: what was asked for, rounded up to what a block can be.
    pub allocated_bytes: Peaked,
    /// Bytes of the granules that the pool holds.
    pub reserved_bytes: Peaked,
    /// Free bytes in granules that also hold live bytes.
    pub inactive_split_bytes: Peaked,
    /// Live blocks.
    pub blocks: Peaked,
    /// Blocks ever given.
    pub allocations_total: u64,
    /// Requests for which granules were mapped side by side.
    pub stitches_total: u64,
    /// Granules that were mapped for them: a call to the driver each.
    pub stitched_granules_total: u64,
    /// Bytes copied by compaction.
    pub copied_bytes_total: u64,
    /// Calls to the driver.
    pub driver_calls_total: u64,
    /// Requests that failed.
    pub shortages_total: u64,
}

impl Stats {
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

/// Counters of a pool for out-of-memory reports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Physical memory that the pool may hold.
    pub capacity_bytes: usize,
    /// Bytes of live blocks.
    pub allocated_bytes: usize,
    /// Bytes of the granules that the pool holds.
    pub reserved_bytes: usize,
    /// Bytes held and not live.
    pub free_bytes: usize,
    /// Longest run of free bytes at consecutive addresses.
    pub largest_free_block_bytes: usize,
    /// Bytes of held granules without any live byte: what stitching could use.
    pub whole_free_granules_bytes: usize,
    /// Bytes that the device has and that others hold (other processes, contexts), where it can be
    /// told.
    pub held_by_others_bytes: Option<usize>,
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Counts { capacity_bytes, allocated_bytes, reserved_bytes, free_bytes, .. } = self;
        let (largest, fragmentation) = (self.largest_free_block_bytes, self.fragmentation());
        write!(
            f,
            "of {capacity_bytes} bytes {reserved_bytes} are reserved, of which {allocated_bytes} are allocated and {free_bytes} free "
        )?;
        write!(f, "(largest free block {largest}, fragmentation {fragmentation:.2})")?;
        match self.held_by_others_bytes {
            Some(others) => write!(f, "; others hold {others}"),
            None => Ok(()),
        }
    }
}

impl Counts {
    /// 1 − largest free block / free bytes; 0 when nothing is free.
    pub fn fragmentation(&self) -> f64 {
        match self.free_bytes {
            0 => 0.0,
            free => 1.0 - self.largest_free_block_bytes as f64 / free as f64,
        }
    }
}
