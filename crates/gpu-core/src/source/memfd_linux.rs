//! Host memory of Linux that can be stitched: a file in memory whose pages are mapped wherever they
//! are wanted.

use std::collections::BTreeSet;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::ptr;

use rustix::fs::{FallocateFlags, MemfdFlags, fallocate, ftruncate, memfd_create};
use rustix::io::retry_on_intr;
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous};

use super::address_space::AddressSpace;
use super::granules::Granules;
use super::mappings_linux::{FreeMemory, failed, pointer, refusal, reserve_aligned, runs_max, unreserve};
use super::{Granule, Refusal, Source};
use crate::free_memory;

/// Granules of a file in memory (memfd_create(2)): granule `n` is the pages from `n` granules on.
///
/// A granule can be mapped at many addresses at once (`mmap(MAP_FIXED | MAP_SHARED)`), and its
/// pages take memory only once they are touched. The addresses are pointers into this process.
/// There are no streams: work is done when it has been called.
#[derive(Debug)]
pub struct Memfd {
    file: OwnedFd,
    granule_bytes: usize,
    capacity_bytes: usize,
    space: AddressSpace,
    granules: Granules,
    free: FreeMemory,
    runs_max: usize,
    calls: u64,
}

impl Memfd {
    /// A file for up to `capacity_bytes`, in granules of `granule_bytes`: a power of two and at
    /// least a page.
    ///
    /// # Errors
    /// [`Refusal::Failed`] if the system makes no such file.
    pub fn new(capacity_bytes: usize, granule_bytes: usize) -> Result<Self, Refusal> {
        let page_bytes = rustix::param::page_size();
        assert!(granule_bytes.is_multiple_of(page_bytes), "granules of {granule_bytes} bytes are not of whole pages");
        let file = memfd_create("megabatch", MemfdFlags::CLOEXEC).map_err(failed("memfd_create"))?;
        ftruncate(&file, capacity_bytes as u64).map_err(failed("ftruncate"))?;
        Ok(Memfd {
            file,
            granule_bytes,
            capacity_bytes,
            space: AddressSpace::new(granule_bytes),
            granules: Granules::new(capacity_bytes / granule_bytes),
            free: FreeMemory::default(),
            runs_max: runs_max(),
            calls: 2,
        })
    }

    /// Maps one run of granules that follow one another in the file.
    fn map_run(&mut self, address: u64, run: &[Granule]) -> Result<(), Refusal> {
        self.calls += 1;
        let offset = run[0].0 * self.granule_bytes as u64;
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED | MapFlags::FIXED);
        // SAFETY: `Memfd::map` has asserted that the range lies in a reservation of this source and
        // that nothing is mapped there, so that only a mapping without access is replaced, into
        // which no reference can point.
        let mapped =
            unsafe { mmap(pointer(address), run.len() * self.granule_bytes, protection, flags, &self.file, offset) };
        mapped.map(drop).map_err(refusal("mmap"))
    }

    /// Puts inaccessible addresses in place of whatever is mapped in a range of a reservation.
    fn clear(&mut self, address: u64, bytes: usize) {
        self.calls += 1;
        let flags = MapFlags::PRIVATE | MapFlags::FIXED | MapFlags::NORESERVE;
        // SAFETY: the caller has asserted that the range lies in a reservation of this source.
        // Nobody holds a reference into it: that is the contract of `Source::unmap`, and in a
        // failed `map` nobody was given the addresses yet.
        let cleared = unsafe { mmap_anonymous(pointer(address), bytes, ProtFlags::empty(), flags) };
        // It fails where a mapping would have to be split and the process has too many, for which
        // `runs_max` leaves room.
        cleared.expect("the system replaces a mapping by a reservation");
    }
}

impl Source for Memfd {
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
        true
    }

    fn reserve(&mut self, bytes: usize) -> Result<u64, Refusal> {
        self.calls += 3;
        let address = reserve_aligned(bytes, self.granule_bytes)?;
        self.space.reserve(address, bytes);
        Ok(address)
    }

    fn release(&mut self, address: u64, bytes: usize) {
        self.space.release(address, bytes);
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
        self.calls += 1;
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let (offset, bytes) = (granule.0 * self.granule_bytes as u64, self.granule_bytes as u64);
        let punched = retry_on_intr(|| fallocate(&self.file, flags, offset, bytes));
        // What was not given back would be handed out as zeros later.
        punched.expect("the system takes back the pages of a file in memory");
    }

    fn map(&mut self, address: u64, granules: &[Granule]) -> Result<(), Refusal> {
        granules.iter().for_each(|&granule| self.granules.assert_exists(granule));
        self.space.map(address, granules);
        let bytes = granules.len() * self.granule_bytes;
        if self.space.runs() > self.runs_max {
            self.space.unmap(address, bytes);
            return Err(Refusal::OutOfMemory);
        }
        let mut at = address;
        for run in granules.chunk_by(|below, above| below.0 + 1 == above.0) {
            if let Err(refusal) = self.map_run(at, run) {
                self.clear(address, bytes);
                self.space.unmap(address, bytes);
                return Err(refusal);
            }
            at += (run.len() * self.granule_bytes) as u64;
        }
        Ok(())
    }

    fn unmap(&mut self, address: u64, bytes: usize) {
        self.space.unmap(address, bytes);
        self.clear(address, bytes);
    }

    fn unclean(&mut self, address: u64, bytes: usize) -> Range<u64> {
        super::granules::unclean(&mut self.granules, self.space.pieces(address, bytes), address)
    }

    fn copy(&mut self, from: u64, to: u64, bytes: usize) -> Result<(), Refusal> {
        let granules = |at| self.space.pieces(at, bytes).map(|(granule, ..)| granule).collect::<BTreeSet<_>>();
        let (read, written) = (granules(from), granules(to));
        for &granule in &written {
            self.granules.claim(granule);
        }
        let overlap = from.abs_diff(to) < bytes as u64;
        if !overlap && !read.is_disjoint(&written) {
            // The same pages may be behind different addresses, which no comparison of addresses
            // tells.
            let mut third = vec![0; bytes];
            // SAFETY: the range is mapped, as `pieces` has asserted, and nobody writes it
            // meanwhile: the contract of `Source::copy`.
            unsafe { ptr::copy_nonoverlapping(pointer(from).cast::<u8>(), third.as_mut_ptr(), bytes) };
            // Two copies through a place of its own are one to the compiler, which takes different
            // addresses for different memory.
            let third = std::hint::black_box(third);
            // SAFETY: as above, and nobody reads the range meanwhile.
            unsafe { ptr::copy_nonoverlapping(third.as_ptr(), pointer(to).cast::<u8>(), bytes) };
            return Ok(());
        }
        // SAFETY: as for the third place; the addresses may overlap, as `ptr::copy` allows.
        unsafe { ptr::copy(pointer(from).cast::<u8>(), pointer(to).cast::<u8>(), bytes) };
        Ok(())
    }

    fn driver_calls(&self) -> u64 {
        self.calls
    }
}

impl Drop for Memfd {
    fn drop(&mut self) {
        self.space.reservations().for_each(|(address, bytes)| unreserve(address, bytes));
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn maps() -> usize {
        fs::read_to_string("/proc/self/maps").unwrap().lines().filter(|line| line.contains("memfd:megabatch")).count()
    }

    #[test]
    fn neighbours_are_one_mapping_and_too_many_are_refused() {
        const G: usize = 1 << 16;
        let mut source = Memfd::new(64 * G, G).unwrap();
        let granules: Vec<Granule> = (0..8).map(|_| source.create().unwrap()).collect();
        let address = source.reserve(16 * G).unwrap();
        granules.iter().zip(0..).for_each(|(&granule, k)| source.map(address + k * G as u64, &[granule]).unwrap());
        let backwards: Vec<Granule> = granules.iter().rev().copied().collect();
        let calls = source.driver_calls();
        source.runs_max = 8;
        assert_eq!(source.map(address + 8 * G as u64, &backwards), Err(Refusal::OutOfMemory));
        assert_eq!(source.driver_calls(), calls);
        source.runs_max = 9;
        let before = maps();
        source.map(address + 8 * G as u64, &backwards).unwrap();
        // Other tests of this process map files too, so that only the least is certain.
        assert!(maps() >= 9 && before >= 1);
        source.unmap(address, 16 * G);
        source.map(address, &granules).unwrap();
        assert_eq!(source.driver_calls(), calls + 8 + 1 + 1);
    }
}
