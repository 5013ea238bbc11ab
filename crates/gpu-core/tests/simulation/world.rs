use std::collections::BTreeSet;
use std::sync::Arc;

use megabatch_gpu_core::pool::{AllocationError, AllocationRequest, BlockState, Pool, PoolSettings};
use megabatch_gpu_core::source::{Refusal, Source, StreamId};

use crate::memory::Memory;
use crate::model::{Live, Model};
use crate::script::Event;

/// Events between two full walks.
const WALK_EVENTS: u64 = 1000;
/// Value written over a block before it is freed.
const POISON: u64 = u64::MAX / 2;

/// A pool and its model, to which the same things happen.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) pool: Pool,
    memory: Memory,
    model: Model,
    owner: Arc<str>,
    granule_bytes: usize,
    events_total: u64,
    /// Calls that the simulation had refused before this event.
    refusals_before: u64,
}

impl World {
    pub(crate) fn new(source: Box<dyn Source>, memory: Memory) -> Self {
        let granule_bytes = source.granule_bytes();
        World {
            pool: Pool::new(source, PoolSettings { capacity_bytes: None }),
            memory,
            model: Model::default(),
            owner: "simulation".into(),
            granule_bytes,
            events_total: 0,
            refusals_before: 0,
        }
    }

    pub(crate) fn live_bytes(&self) -> usize {
        self.model.requested_bytes
    }

    /// Lets an event happen to both and compares them.
    pub(crate) fn happen(&mut self, event: &Event) {
        self.refusals_before = self.refusals();
        match event {
            &Event::Allocate { bytes, stream } => self.allocate(bytes, stream),
            Event::Free(index) if !self.model.live.is_empty() => self.free(index % self.model.live.len()),
            Event::Work(index) if !self.model.live.is_empty() => {
                let live = self.model.live[index % self.model.live.len()];
                self.memory.submit(live.stream, live.address, live.bytes);
            }
            Event::Free(_) | Event::Work(_) => (),
            Event::Step => self.pool.step(),
            Event::EmptyCache => self.empty_cache(),
            _ => self.device(event),
        }
        self.compare();
        if self.faulted() {
            self.assert_contents();
        }
        self.events_total += 1;
        if self.events_total.is_multiple_of(WALK_EVENTS) {
            self.walk();
        }
    }

    /// Gives everything back and asserts that nothing is left.
    pub(crate) fn end(mut self) {
        if let Memory::Simulated(device) = &self.memory {
            device.set_held_by_others_bytes(0);
            device.stop_faults();
        }
        while !self.model.live.is_empty() {
            self.free(self.model.live.len() - 1);
        }
        self.compare();
        self.walk();
        self.pool.empty_cache();
        assert_eq!(self.pool.stats().reserved_bytes.now, 0, "granules stay although nothing lives");
        self.walk();
    }

    fn allocate(&mut self, bytes: usize, stream: StreamId) {
        let request = AllocationRequest { bytes, stream, owner: Arc::clone(&self.owner) };
        match self.pool.allocate(&request) {
            Ok(id) => {
                let live =
                    Live { id, number: self.model.allocations_total, address: self.pool.address(id), bytes, stream };
                self.model.insert(live);
                self.memory.submit(stream, live.address, live.bytes);
                self.memory.stamp(live.address, live.bytes, live.number);
            }
            Err(shortage) => {
                self.model.shortages_total += 1;
                self.assert_due(bytes, &shortage);
            }
        }
    }

    /// Asserts that a request could not have been met by rearranging granules. Nothing is promised
    /// for a source that cannot map a granule twice.
    fn assert_due(&mut self, bytes: usize, shortage: &AllocationError) {
        let reserved = self.pool.stats().reserved_bytes.now;
        match shortage {
            AllocationError::NotNow(counts) => {
                let free = self.pool.source_mut().free_bytes().unwrap_or(usize::MAX);
                let have = (reserved + (counts.capacity_bytes - reserved).min(free)) / self.granule_bytes;
                let touched = self.granules_touched();
                let needed = touched + bytes.div_ceil(self.granule_bytes);
                let enough = self.pool.source().can_alias() && needed <= have;
                assert!(
                    !enough || self.faulted(),
                    "{bytes} bytes, {touched} of {have} granules are touched: {counts:?}"
                );
            }
            AllocationError::NeverFits { largest_bytes } => {
                assert!(bytes > *largest_bytes, "{shortage:?} for {bytes} bytes");
            }
            AllocationError::Source(refusal) => assert!(self.faulted(), "{refusal}"),
        }
    }

    fn free(&mut self, index: usize) {
        let live = self.model.remove(index);
        self.memory.assert_stamped(live.address, live.bytes, live.number);
        self.memory.submit(live.stream, live.address, live.bytes);
        self.memory.stamp(live.address, live.bytes, POISON);
        self.pool.free(live.id);
    }

    fn empty_cache(&mut self) {
        let before = self.pool.stats().reserved_bytes.now;
        let given_back = self.pool.empty_cache();
        assert_eq!(before - given_back, self.pool.stats().reserved_bytes.now);
        let touched = self.granules_touched();
        let all = before - given_back == touched * self.granule_bytes;
        assert!(
            all || self.faulted(),
            "of {before} bytes {given_back} are given back, and {touched} granules hold live bytes"
        );
    }

    /// Event of the device; nothing, where it is not simulated.
    fn device(&mut self, event: &Event) {
        let Memory::Simulated(device) = &self.memory else { return };
        match event {
            Event::Complete(stream) => device.complete(*stream),
            Event::Others { bytes } => device.set_held_by_others_bytes(*bytes),
            Event::Fault { call, refusal } => device.fail_call(*call, refusal.clone()),
            other => unreachable!("{other:?} does not happen to the device"),
        }
    }

    /// Refuses the call to the driver of this number from now on.
    pub(crate) fn refuse_call(&mut self, call: u64, refusal: Refusal) {
        self.device(&Event::Fault { call, refusal });
    }

    /// True if a call was refused in this event because the simulation wanted it.
    fn faulted(&self) -> bool {
        self.refusals() > self.refusals_before
    }

    fn refusals(&self) -> u64 {
        match &self.memory {
            Memory::Simulated(device) => device.refusals_total(),
            Memory::Host => 0,
        }
    }

    /// Granules that hold a byte of a live block: counted where the device can tell, and else what
    /// the pool says.
    fn granules_touched(&self) -> usize {
        let counts = self.pool.counts();
        let said = (counts.reserved_bytes - counts.whole_free_granules_bytes) / self.granule_bytes;
        if let Memory::Simulated(device) = &self.memory {
            let granules = |live: &Live| device.granules_behind(live.address, live.bytes);
            let touched: BTreeSet<_> = self.model.live.iter().flat_map(granules).collect();
            assert_eq!(touched.len(), said, "{counts:?}");
        }
        said
    }

    /// The cheap checks after each event.
    fn compare(&mut self) {
        let (stats, model) = (self.pool.stats(), &self.model);
        assert_eq!(stats.requested_bytes.now, model.requested_bytes);
        assert_eq!(stats.requested_bytes.peak, model.requested_bytes_peak);
        assert_eq!(stats.blocks.now, model.live.len());
        assert_eq!(stats.allocations_total, model.allocations_total);
        assert_eq!(stats.shortages_total, model.shortages_total);
        assert!(stats.requested_bytes.now <= stats.allocated_bytes.now);
        assert!(stats.allocated_bytes.now + stats.inactive_split_bytes.now <= stats.reserved_bytes.now, "{stats:?}");
        if let Memory::Simulated(device) = &self.memory {
            assert_eq!(stats.reserved_bytes.now, device.granules() * self.granule_bytes);
        }
    }

    /// The checks that look at everything.
    fn walk(&mut self) {
        self.pool.check();
        self.model.assert_in_place(|id| self.pool.address(id));
        self.assert_contents();
        let segments = self.pool.segments();
        let blocks = segments.iter().flat_map(|segment| &segment.blocks);
        let mut shown: Vec<_> = blocks.filter(|block| block.state == BlockState::Live).collect();
        shown.sort_by_key(|block| block.id);
        let mut live: Vec<_> = self.model.live.iter().collect();
        live.sort_by_key(|live| live.id);
        assert_eq!(shown.len(), live.len());
        for (shown, live) in shown.into_iter().zip(live) {
            assert_eq!((shown.id, shown.address, shown.requested_bytes), (Some(live.id), live.address, live.bytes));
            assert!(shown.bytes >= live.bytes && shown.stream == live.stream);
        }
    }

    fn assert_contents(&self) {
        self.model.live.iter().for_each(|live| self.memory.assert_stamped(live.address, live.bytes, live.number));
    }
}
