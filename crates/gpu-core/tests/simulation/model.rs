use std::collections::BTreeMap;

use megabatch_gpu_core::pool::BlockId;
use megabatch_gpu_core::source::StreamId;

/// Naive model of a pool.
#[derive(Debug, Default)]
pub(crate) struct Model {
    pub(crate) live: Vec<Live>,
    /// End of each live block by its first address.
    ends: BTreeMap<u64, u64>,
    pub(crate) requested_bytes: usize,
    pub(crate) requested_bytes_peak: usize,
    pub(crate) allocations_total: u64,
    pub(crate) shortages_total: u64,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Live {
    pub(crate) id: BlockId,
    /// Number of the allocation, in the order in which they succeeded.
    pub(crate) number: u64,
    pub(crate) address: u64,
    pub(crate) bytes: usize,
    pub(crate) stream: StreamId,
}

impl Model {
    /// Takes a new block in.
    ///
    /// # Panics
    /// If it shares an address with another.
    pub(crate) fn insert(&mut self, live: Live) {
        self.place(live.address, live.bytes);
        self.live.push(live);
        self.requested_bytes += live.bytes;
        self.requested_bytes_peak = self.requested_bytes_peak.max(self.requested_bytes);
        self.allocations_total += 1;
    }

    pub(crate) fn remove(&mut self, index: usize) -> Live {
        let live = self.live.swap_remove(index);
        self.ends.remove(&live.address);
        self.requested_bytes -= live.bytes;
        live
    }

    /// Asserts that every block is where it was.
    ///
    /// # Panics
    /// If one moved.
    pub(crate) fn assert_in_place(&self, current_address: impl Fn(BlockId) -> u64) {
        for live in &self.live {
            let address = current_address(live.id);
            assert_eq!(address, live.address, "{live:x?} is at {address:#x} now");
        }
    }

    fn place(&mut self, address: u64, bytes: usize) {
        let end = address + bytes as u64;
        let below = self.ends.range(..end).next_back();
        assert!(below.is_none_or(|(_, &end)| end <= address), "{address:#x} + {bytes} shares bytes with {below:x?}");
        self.ends.insert(address, end);
    }
}
