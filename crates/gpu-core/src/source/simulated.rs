#![forbid(unsafe_code)]

use super::{Granule, Refusal, Source, StreamId};

/// A device of any size that is pure arithmetic: addresses are numbers, and nothing is behind them.
#[derive(Debug)]
pub struct Simulated {
    granule_bytes: usize,
    capacity_bytes: usize,
    granules: usize,
    granules_total: u64,
    address_next: u64,
    calls: u64,
}

impl Simulated {
    /// A device of `capacity_bytes` in granules of `granule_bytes`.
    pub fn new(capacity_bytes: usize, granule_bytes: usize) -> Self {
        Simulated { granule_bytes, capacity_bytes, granules: 0, granules_total: 0, address_next: 1 << 40, calls: 0 }
    }
}

impl Source for Simulated {
    fn name(&self) -> String {
        "simulated".to_owned()
    }
    fn granule_bytes(&self) -> usize {
        self.granule_bytes
    }
    fn capacity_bytes(&self) -> usize {
        self.capacity_bytes
    }
    fn free_bytes(&mut self) -> Option<usize> {
        Some(self.capacity_bytes - self.granules * self.granule_bytes)
    }
    fn can_alias(&self) -> bool {
        true
    }
    fn reserve(&mut self, bytes: usize) -> Result<u64, Refusal> {
        self.calls += 1;
        let address = self.address_next;
        self.address_next += bytes as u64;
        Ok(address)
    }
    fn release(&mut self, _address: u64, _bytes: usize) {
        self.calls += 1;
    }
    fn create(&mut self) -> Result<Granule, Refusal> {
        self.calls += 1;
        if (self.granules + 1) * self.granule_bytes > self.capacity_bytes {
            return Err(Refusal::OutOfMemory);
        }
        self.granules += 1;
        self.granules_total += 1;
        Ok(Granule(self.granules_total))
    }
    fn destroy(&mut self, _granule: Granule) {
        self.calls += 1;
        self.granules -= 1;
    }
    fn map(&mut self, _address: u64, granules: &[Granule]) -> Result<(), Refusal> {
        self.calls += granules.len() as u64 + 1;
        Ok(())
    }
    fn unmap(&mut self, _address: u64, _bytes: usize) {
        self.calls += 1;
    }
    fn copy(&mut self, _from: u64, _to: u64, _bytes: usize) -> Result<(), Refusal> {
        self.calls += 1;
        Ok(())
    }
    fn is_idle(&mut self, _stream: StreamId) -> bool {
        true
    }
    fn order(&mut self, _waiting: StreamId, _on: StreamId) -> Result<(), Refusal> {
        self.calls += 2;
        Ok(())
    }
    fn synchronize(&mut self) -> Result<(), Refusal> {
        self.calls += 1;
        Ok(())
    }
    fn driver_calls(&self) -> u64 {
        self.calls
    }
}
