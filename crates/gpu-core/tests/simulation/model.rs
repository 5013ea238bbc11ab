use std::collections::BTreeMap;

use megabatch_gpu_core::pool::{BlockId, Mobility};
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
    pub(crate) mobility: Mobility,
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

    /// Takes over where the blocks are now.
    ///
    /// # Panics
    /// If two share an address, or if one moved that may not: all of them unless `may_move`, and
    /// else those that are fixed.
    pub(crate) fn refresh(&mut self, may_move: bool, address_of: impl Fn(BlockId) -> u64) {
        let mut moved = false;
        for live in &mut self.live {
            let address = address_of(live.id);
            let may_move = may_move && live.mobility == Mobility::Relocatable;
            assert!(address == live.address || may_move, "{live:x?} is at {address:#x} now");
            moved |= address != live.address;
            live.address = address;
        }
        if moved {
            self.ends.clear();
            for k in 0..self.live.len() {
                self.place(self.live[k].address, self.live[k].bytes);
            }
        }
    }

    fn place(&mut self, address: u64, bytes: usize) {
        let end = address + bytes as u64;
        let below = self.ends.range(..end).next_back();
        assert!(below.is_none_or(|(_, &end)| end <= address), "{address:#x} + {bytes} shares bytes with {below:x?}");
        self.ends.insert(address, end);
    }
}
