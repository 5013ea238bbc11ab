//! Host memory of Linux in huge pages.

#![allow(unsafe_code, reason = "memory is mapped")]

use std::collections::BTreeMap;
use std::ops::Range;

use rustix::mm::{Advice, MprotectFlags, madvise, mprotect};

use super::address_space::AddressSpace;
use super::granules::Granules;
use super::mappings_linux::{FreeMemory, pointer, refusal, reserve_aligned, runs_max, unreserve};
use super::{Granule, Refusal, Source};
use crate::free_memory;

/// Address ranges of capacity's size in [`Source::address_bytes`], unless the system refuses them.
const RANGES: usize = 4;

/// Granules of anonymous memory (mmap(2), `MAP_ANONYMOUS`), which the system backs with huge pages
/// where it can (madvise(2), `MADV_HUGEPAGE`).
///
/// A granule is the memory at the first address at which it is mapped, and can be mapped nowhere
/// else while it exists: [`Refusal::CannotAlias`]. Its memory goes back to the system when it is
/// destroyed, after which another granule can live there. There are more addresses than memory, so
/// that a block need not lie where others left a gap. Pages take memory once they are touched. The
/// addresses are pointers into this process. There are no streams: work is done when it has been
/// called.
#[derive(Debug)]
pub struct Anonymous {
    granule_bytes: usize,
    capacity_bytes: usize,
    address_bytes: usize,
    space: AddressSpace,
    granules: Granules,
    /// Address of each granule that was mapped.
    places: BTreeMap<Granule, u64>,
    /// The granule that lives at an address, mapped or not.
    tenants: BTreeMap<u64, Granule>,
    free: FreeMemory,
    runs_max: usize,
    calls: u64,
}

impl Anonymous {
    /// A source of up to `capacity_bytes`, in granules of `granule_bytes`: a power of two and at
    /// least a page. Huge pages need granules of their size or more.
    pub fn new(capacity_bytes: usize, granule_bytes: usize) -> Self {
        let page_bytes = rustix::param::page_size();
        assert!(granule_bytes.is_multiple_of(page_bytes), "granules of {granule_bytes} bytes are not of whole pages");
        Anonymous {
            granule_bytes,
            capacity_bytes,
            address_bytes: reservable(capacity_bytes, granule_bytes),
            space: AddressSpace::new(granule_bytes),
            granules: Granules::new(capacity_bytes / granule_bytes),
            places: BTreeMap::new(),
            tenants: BTreeMap::new(),
            free: FreeMemory::default(),
            runs_max: runs_max(),
            calls: 0,
        }
    }

    fn addresses(&self, address: u64) -> impl Iterator<Item = u64> + use<> {
        (address..).step_by(self.granule_bytes)
    }

    fn protect(&mut self, address: u64, bytes: usize, access: MprotectFlags) -> Result<(), Refusal> {
        self.calls += 1;
        // SAFETY: `AddressSpace` has asserted that the range lies in a reservation of this source,
        // whose pages stay what they are. Where access is taken away nobody holds a reference: the
        // contract of `Source::unmap`.
        unsafe { mprotect(pointer(address), bytes, access) }.map_err(refusal("mprotect"))
    }
}

/// The largest of 4, 2 and 1 times `capacity_bytes` that the system reserves. A limited address
/// space, or valgrind, allows fewer addresses; blocks then fill the gaps that others left.
fn reservable(capacity_bytes: usize, granule_bytes: usize) -> usize {
    let mut bytes = capacity_bytes.saturating_mul(RANGES);
    while bytes > capacity_bytes {
        if let Ok(address) = reserve_aligned(bytes, granule_bytes) {
            unreserve(address, bytes);
            break;
        }
        bytes /= 2;
    }
    bytes
}

impl Source for Anonymous {
    fn name(&self) -> String {
        "cpu".to_owned()
    }

    fn granule_bytes(&self) -> usize {
        self.granule_bytes
    }

    fn capacity_bytes(&self) -> usize {
        self.capacity_bytes
    }

    fn address_bytes(&self) -> usize {
        self.address_bytes
    }

    fn free_bytes(&mut self) -> Option<usize> {
        free_memory::free_bytes()
    }

    fn can_alias(&self) -> bool {
        false
    }

    fn reserve(&mut self, bytes: usize) -> Result<u64, Refusal> {
        self.calls += 4;
        let address = reserve_aligned(bytes, self.granule_bytes)?;
        // SAFETY: the advice changes the size of pages, not their bytes. A system without huge
        // pages refuses it, and the pages are small.
        let _ = unsafe { madvise(pointer(address), bytes, Advice::LinuxHugepage) };
        self.space.reserve(address, bytes);
        Ok(address)
    }

    fn release(&mut self, address: u64, bytes: usize) {
        self.space.release(address, bytes);
        let range = address..address + bytes as u64;
        self.places.retain(|_, place| !range.contains(place));
        self.tenants.retain(|place, _| !range.contains(place));
        self.calls += 1;
        unreserve(address, bytes);
    }

    fn create(&mut self) -> Result<Granule, Refusal> {
        self.calls += u64::from(self.free.take_granule(self.granule_bytes)?);
        self.granules.create()
    }

    fn destroy(&mut self, granule: Granule) {
        let addresses = self.space.addresses_of(granule);
        assert_eq!(addresses, 0, "{granule:?} is destroyed while it is mapped");
        self.granules.destroy(granule);
        let Some(place) = self.places.remove(&granule) else { return };
        self.tenants.remove(&place);
        self.calls += 1;
        // SAFETY: the granule is mapped nowhere, so that nobody holds a reference to its bytes,
        // which become zeros.
        let returned = unsafe { madvise(pointer(place), self.granule_bytes, Advice::LinuxDontNeed) };
        // What was not given back would be handed out as zeros later.
        returned.expect("the system takes anonymous pages back");
    }

    fn map(&mut self, address: u64, granules: &[Granule]) -> Result<(), Refusal> {
        for (granule, place) in granules.iter().zip(self.addresses(address)) {
            self.granules.assert_exists(*granule);
            let elsewhere = self.places.get(granule).is_some_and(|&home| home != place);
            if elsewhere || self.tenants.get(&place).is_some_and(|tenant| tenant != granule) {
                return Err(Refusal::CannotAlias);
            }
        }
        self.space.map(address, granules);
        let bytes = granules.len() * self.granule_bytes;
        let mapped = match self.space.runs() > self.runs_max {
            true => Err(Refusal::OutOfMemory),
            false => self.protect(address, bytes, MprotectFlags::READ | MprotectFlags::WRITE),
        };
        if let Err(refusal) = mapped {
            self.space.unmap(address, bytes);
            return Err(refusal);
        }
        for (&granule, place) in granules.iter().zip(self.addresses(address)) {
            self.places.insert(granule, place);
            self.tenants.insert(place, granule);
        }
        Ok(())
    }

    fn unmap(&mut self, address: u64, bytes: usize) {
        self.space.unmap(address, bytes);
        // It fails where a mapping would have to be split and the process has too many, for which
        // `runs_max` leaves room.
        self.protect(address, bytes, MprotectFlags::empty()).expect("the system takes access to a mapping away");
    }

    fn unclean(&mut self, address: u64, bytes: usize) -> Range<u64> {
        super::granules::unclean(&mut self.granules, self.space.pieces(address, bytes), address)
    }

    fn driver_calls(&self) -> u64 {
        self.calls
    }
}

impl Drop for Anonymous {
    fn drop(&mut self) {
        self.space.reservations().for_each(|(address, bytes)| unreserve(address, bytes));
    }
}
