//! Host memory as every system has it, which cannot be stitched.

#![allow(unsafe_code, reason = "memory is allocated")]

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::collections::BTreeMap;
use std::ops::Range;
use std::ptr;

use super::address_space::AddressSpace;
use super::granules::Granules;
use super::{Granule, Refusal, Source};
use crate::free_memory;

/// Granules that are places in what the system allocator gave.
///
/// A reservation is one lazily zeroed allocation; creating and mapping a granule is bookkeeping. A
/// granule belongs to the first address at which it is mapped, and can be mapped there only, also
/// after it was unmapped: [`Refusal::CannotAlias`] everywhere else. So memory is given back to the
/// system when a reservation is released, and a granule that is destroyed stays resident until
/// then. The addresses are pointers into this process. There are no streams: work is done when it
/// has been called.
#[derive(Debug)]
pub struct Plain {
    granule_bytes: usize,
    capacity_bytes: usize,
    space: AddressSpace,
    granules: Granules,
    /// The allocation behind each reservation, by the reservation's address.
    allocations: BTreeMap<u64, Allocation>,
    /// Address of each granule that was ever mapped.
    places: BTreeMap<Granule, u64>,
    /// Addresses in reservations at which a granule has lived, whether it still exists or not.
    inhabited: BTreeMap<u64, Granule>,
    calls: u64,
}

/// A piece of memory of the system allocator. Its address is a number, so the source can be sent to
/// another thread.
#[derive(Debug)]
struct Allocation {
    start: usize,
    layout: Layout,
}

impl Plain {
    /// A source of up to `capacity_bytes`, in granules of `granule_bytes`, a power of two.
    pub fn new(capacity_bytes: usize, granule_bytes: usize) -> Self {
        Plain {
            granule_bytes,
            capacity_bytes,
            space: AddressSpace::new(granule_bytes),
            granules: Granules::new(capacity_bytes / granule_bytes),
            allocations: BTreeMap::new(),
            places: BTreeMap::new(),
            inhabited: BTreeMap::new(),
            calls: 0,
        }
    }
}

impl Source for Plain {
    fn name(&self) -> String {
        "cpu".to_owned()
    }

    fn granule_bytes(&self) -> usize {
        self.granule_bytes
    }

    fn capacity_bytes(&self) -> usize {
        self.capacity_bytes
    }

    fn free_bytes(&mut self) -> Option<usize> {
        free_memory::free_bytes()
    }

    fn can_alias(&self) -> bool {
        false
    }

    fn reserve(&mut self, bytes: usize) -> Result<u64, Refusal> {
        // Zeroed memory of ordinary alignment comes straight from the system, untouched. Of a
        // larger alignment it would be written through.
        let all = bytes.checked_add(self.granule_bytes).ok_or(Refusal::OutOfMemory)?;
        let layout = Layout::from_size_align(all, 1).map_err(|_| Refusal::OutOfMemory)?;
        self.calls += 1;
        // SAFETY: the layout's size is at least a granule, not zero.
        let start = unsafe { alloc_zeroed(layout) };
        if start.is_null() {
            return Err(Refusal::OutOfMemory);
        }
        let start = start.expose_provenance();
        let address = start.next_multiple_of(self.granule_bytes) as u64;
        self.space.reserve(address, bytes);
        self.allocations.insert(address, Allocation { start, layout });
        Ok(address)
    }

    fn release(&mut self, address: u64, bytes: usize) {
        self.space.release(address, bytes);
        let range = address..address + bytes as u64;
        self.places.retain(|_, place| !range.contains(place));
        self.inhabited.retain(|place, _| !range.contains(place));
        self.calls += 1;
        self.allocations.remove(&address).expect("a reservation has its allocation").free();
    }

    fn create(&mut self) -> Result<Granule, Refusal> {
        self.granules.create()
    }

    fn destroy(&mut self, granule: Granule) {
        let addresses = self.space.addresses_of(granule);
        assert_eq!(addresses, 0, "{granule:?} is destroyed while it is mapped");
        self.granules.destroy(granule);
        self.places.remove(&granule);
    }

    fn map(&mut self, address: u64, granules: &[Granule]) -> Result<(), Refusal> {
        let places = || (address..).step_by(self.granule_bytes);
        for (granule, place) in granules.iter().zip(places()) {
            self.granules.assert_exists(*granule);
            let taken = self
                .inhabited
                .get(&place)
                .is_some_and(|other| other != granule && self.places.get(other) == Some(&place));
            if taken || self.places.get(granule).is_some_and(|&home| home != place) {
                return Err(Refusal::CannotAlias);
            }
        }
        self.space.map(address, granules);
        for (&granule, place) in granules.iter().zip((address..).step_by(self.granule_bytes)) {
            self.places.insert(granule, place);
            if self.inhabited.insert(place, granule).is_some() {
                self.granules.claim(granule);
            }
        }
        Ok(())
    }

    fn unmap(&mut self, address: u64, bytes: usize) {
        self.space.unmap(address, bytes);
    }

    fn unclean(&mut self, address: u64, bytes: usize) -> Range<u64> {
        super::granules::unclean(&mut self.granules, self.space.pieces(address, bytes), address)
    }

    fn driver_calls(&self) -> u64 {
        self.calls
    }
}

impl Drop for Plain {
    fn drop(&mut self) {
        std::mem::take(&mut self.allocations).into_values().for_each(Allocation::free);
    }
}

impl Allocation {
    fn free(self) {
        // SAFETY: `start` came from `alloc_zeroed` with this layout and its provenance was exposed;
        // the allocation is owned and freed once. Nobody holds a reference into it: the contract of
        // `Source::release`, and when the source is dropped, of its owner.
        unsafe { dealloc(ptr::with_exposed_provenance_mut(self.start), self.layout) }
    }
}
