//! Blocks of a pool of host memory.

use std::num::NonZero;
use std::ops::DerefMut;
use std::ptr::{self, NonNull};

use crate::free_memory;
use crate::pool::{AllocationError, AllocationRequest, BlockId, Pool};
#[cfg(target_os = "linux")]
use crate::source::Memfd;
use crate::source::{Plain, Source};

/// Alignment of every block in bytes: a cache line, and the width of the widest vector register.
pub(crate) const ALIGN_BYTES: usize = 64;

const ALIGN: NonZero<usize> = NonZero::new(ALIGN_BYTES).unwrap();
/// As on CUDA, and as large as a huge page of x86-64 and ARM.
const GRANULE_BYTES: usize = 2 << 20;
/// Capacity of a pool where the system's memory size is unknown.
const CAPACITY_BYTES_UNKNOWN: usize = 16 << 30;

/// The source of a CPU device's memory, for as much as the system has.
///
/// On Linux it is a file in memory, so that the CPU stitches as a GPU does. Its pages are small
/// where the system is set up as usual; anonymous memory could have huge ones
/// (`madvise(MADV_HUGEPAGE)`), but training does not notice: 12 steps of the five timeframes of the
/// example `throughput` of megabatch-trainer take the same CPU time on either and on memory of the
/// system allocator (medians of five within 4 %, which is less than runs differ by), and huge pages
/// make a tenth more memory resident.
pub(crate) fn source() -> Box<dyn Source> {
    let capacity_bytes = free_memory::total_bytes().unwrap_or(CAPACITY_BYTES_UNKNOWN) / GRANULE_BYTES * GRANULE_BYTES;
    #[cfg(target_os = "linux")]
    if let Ok(source) = Memfd::new(capacity_bytes, GRANULE_BYTES) {
        return Box::new(source);
    }
    // Linux refuses one allocation of all its memory.
    Box::new(Plain::new(capacity_bytes / 8 * 7 / GRANULE_BYTES * GRANULE_BYTES, GRANULE_BYTES))
}

/// A live block of a pool over host memory, which whoever holds it gives back to the pool.
#[derive(Debug)]
pub(crate) struct HostBlock {
    pub(crate) start: NonNull<u8>,
    /// None for a block of no bytes, which takes no memory.
    pub(crate) id: Option<BlockId>,
}

impl HostBlock {
    /// A block of zeros of a pool over one of this file's sources. The pool is let go before the
    /// bytes are zeroed.
    pub(crate) fn zeroed(
        mut pool: impl DerefMut<Target = Pool>,
        request: &AllocationRequest,
    ) -> Result<Self, AllocationError> {
        if request.bytes == 0 {
            return Ok(HostBlock { start: NonNull::without_provenance(ALIGN), id: None });
        }
        let id = pool.allocate(request)?;
        let address = pool.address(id);
        let unclean = pool.source_mut().unclean(address, request.bytes);
        drop(pool);
        let bytes = (unclean.end - unclean.start) as usize;
        // SAFETY: the range lies in the block, which is mapped and nobody else's until it is freed.
        unsafe { pointer(unclean.start).write_bytes(0, bytes) };
        Ok(HostBlock { start: pointer(address), id: Some(id) })
    }
}

/// The memory at an address that a host source reserved.
pub(crate) fn pointer(address: u64) -> NonNull<u8> {
    NonNull::new(ptr::with_exposed_provenance_mut(address as usize)).expect("no source reserves address 0")
}

// SAFETY: the block is memory without thread affinity that its holder alone uses; access goes
// through `&` and `&mut` of the holder.
unsafe impl Send for HostBlock {}
// SAFETY: as above; a shared reference gives out nothing but an address and a number.
unsafe impl Sync for HostBlock {}
