use super::address_space::AddressSpace;
use super::granules::Granules;
use super::{Granule, Refusal, Source, StreamId};

const FIRST_ADDRESS: u64 = 1 << 40;

/// A device of any size that is pure arithmetic: addresses are numbers, and nothing is behind them.
/// Its streams are always idle.
///
/// Every misuse of a [`Source`] is a panic: mapping over a mapping, unmapping what is not mapped,
/// destroying a granule that is mapped, anything outside of a reservation.
#[derive(Debug)]
pub struct Simulated {
    granule_bytes: usize,
    capacity_bytes: usize,
    space: AddressSpace,
    granules: Granules,
    address_next: u64,
    calls: u64,
}

impl Simulated {
    /// A device of `capacity_bytes` in granules of `granule_bytes`, a power of two.
    pub fn new(capacity_bytes: usize, granule_bytes: usize) -> Self {
        Simulated {
            granule_bytes,
            capacity_bytes,
            space: AddressSpace::new(granule_bytes),
            granules: Granules::new(capacity_bytes / granule_bytes),
            address_next: FIRST_ADDRESS.next_multiple_of(granule_bytes as u64),
            calls: 0,
        }
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
        Some(self.capacity_bytes - self.granules.len() * self.granule_bytes)
    }

    fn can_alias(&self) -> bool {
        true
    }

    fn reserve(&mut self, bytes: usize) -> Result<u64, Refusal> {
        self.calls += 1;
        let address = self.address_next;
        // A granule between two reservations belongs to neither, so that a step over the end of one
        // is seen.
        let apart = (bytes as u64).checked_add(self.granule_bytes as u64).ok_or(Refusal::OutOfMemory)?;
        self.address_next = address.checked_add(apart).ok_or(Refusal::OutOfMemory)?;
        self.space.reserve(address, bytes);
        Ok(address)
    }

    fn release(&mut self, address: u64, bytes: usize) {
        self.calls += 1;
        self.space.release(address, bytes);
    }

    fn create(&mut self) -> Result<Granule, Refusal> {
        self.calls += 1;
        self.granules.create()
    }

    fn destroy(&mut self, granule: Granule) {
        self.calls += 1;
        let addresses = self.space.addresses_of(granule);
        assert_eq!(addresses, 0, "{granule:?} is destroyed while it is mapped");
        self.granules.destroy(granule);
    }

    fn map(&mut self, address: u64, granules: &[Granule]) -> Result<(), Refusal> {
        self.calls += granules.len() as u64 + 1;
        granules.iter().for_each(|&granule| self.granules.assert_exists(granule));
        self.space.map(address, granules);
        Ok(())
    }

    fn unmap(&mut self, address: u64, bytes: usize) {
        self.calls += 1;
        self.space.unmap(address, bytes);
    }

    fn order(&mut self, _waiting: StreamId, _awaited: StreamId) -> Result<(), Refusal> {
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
