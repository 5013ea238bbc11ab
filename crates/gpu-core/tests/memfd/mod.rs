//! Host memory of Linux that can be stitched: real memory for the tests of stitching without a GPU.

#![allow(unsafe_code, reason = "memory is mapped")]

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::ptr;

use megabatch_gpu_core::source::{Granule, Refusal, Source};
use rustix::fs::{FallocateFlags, MemfdFlags, fallocate, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};

/// Granules of a file in memory (memfd_create(2)): granule `n` is the pages from `n` granules on.
///
/// A granule can be mapped at many addresses at once (`mmap(MAP_FIXED | MAP_SHARED)`). The
/// addresses are pointers into this process.
#[derive(Debug)]
pub(crate) struct Memfd {
    file: OwnedFd,
    granule_bytes: usize,
    capacity_bytes: usize,
    /// Granules that do not exist, the next one last.
    free: Vec<u64>,
    /// Start and length of the system's mapping behind each reservation, by the reservation's
    /// address.
    mappings: BTreeMap<u64, (u64, usize)>,
    calls: u64,
}

impl Memfd {
    /// A file for up to `capacity_bytes`, in granules of `granule_bytes`: a power of two and at
    /// least a page.
    pub(crate) fn new(capacity_bytes: usize, granule_bytes: usize) -> Self {
        let file = memfd_create("megabatch", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&file, capacity_bytes as u64).unwrap();
        let free = (0..(capacity_bytes / granule_bytes) as u64).rev().collect();
        Memfd { file, granule_bytes, capacity_bytes, free, mappings: BTreeMap::new(), calls: 2 }
    }
}

impl Source for Memfd {
    fn name(&self) -> String {
        "memfd".to_owned()
    }

    fn granule_bytes(&self) -> usize {
        self.granule_bytes
    }

    fn capacity_bytes(&self) -> usize {
        self.capacity_bytes
    }

    fn free_bytes(&mut self) -> Option<usize> {
        None
    }

    fn can_alias(&self) -> bool {
        true
    }

    fn reserve(&mut self, bytes: usize) -> Result<u64, Refusal> {
        self.calls += 1;
        // One granule more holds a range that begins at a multiple of a granule.
        let mapped_bytes = bytes + self.granule_bytes;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new mapping at an address of the system's choice replaces nothing.
        let start = unsafe { mmap_anonymous(ptr::null_mut(), mapped_bytes, ProtFlags::empty(), flags) }.unwrap();
        let start = start.expose_provenance() as u64;
        let address = start.next_multiple_of(self.granule_bytes as u64);
        self.mappings.insert(address, (start, mapped_bytes));
        Ok(address)
    }

    fn release(&mut self, address: u64, _bytes: usize) {
        self.calls += 1;
        let (start, mapped_bytes) = self.mappings.remove(&address).expect("what is released was reserved");
        // SAFETY: the system gave the range, and nobody holds a reference into it: the contract of
        // `Source::release`.
        unsafe { munmap(pointer(start), mapped_bytes) }.unwrap();
    }

    fn create(&mut self) -> Result<Granule, Refusal> {
        self.calls += 1;
        self.free.pop().map(Granule).ok_or(Refusal::OutOfMemory)
    }

    fn destroy(&mut self, Granule(number): Granule) {
        self.calls += 1;
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let offset = number * self.granule_bytes as u64;
        fallocate(&self.file, flags, offset, self.granule_bytes as u64).unwrap();
        self.free.push(number);
    }

    fn map(&mut self, address: u64, granules: &[Granule]) -> Result<(), Refusal> {
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED | MapFlags::FIXED);
        for (&Granule(number), page) in granules.iter().zip((address..).step_by(self.granule_bytes)) {
            self.calls += 1;
            let offset = number * self.granule_bytes as u64;
            // SAFETY: the pool maps into reservations of this source only, where nothing is mapped
            // yet, so that only addresses without access are replaced.
            unsafe { mmap(pointer(page), self.granule_bytes, protection, flags, &self.file, offset) }.unwrap();
        }
        Ok(())
    }

    fn unmap(&mut self, address: u64, bytes: usize) {
        self.calls += 1;
        let flags = MapFlags::PRIVATE | MapFlags::FIXED | MapFlags::NORESERVE;
        // SAFETY: the pool unmaps ranges of reservations of this source only, into which nobody
        // holds a reference: the contract of `Source::unmap`. Addresses without access replace
        // them.
        unsafe { mmap_anonymous(pointer(address), bytes, ProtFlags::empty(), flags) }.unwrap();
    }

    fn driver_calls(&self) -> u64 {
        self.calls
    }
}

impl Drop for Memfd {
    fn drop(&mut self) {
        for &(start, mapped_bytes) in self.mappings.values() {
            // SAFETY: as in `release`; the pool, which gave the addresses out, is gone.
            unsafe { munmap(pointer(start), mapped_bytes) }.unwrap();
        }
    }
}

fn pointer(address: u64) -> *mut std::ffi::c_void {
    ptr::with_exposed_provenance_mut(address as usize)
}
