//! Blocks of a pool of host memory.

#![allow(unsafe_code, reason = "blocks of a pool are addresses")]

use std::num::NonZero;
use std::ops::DerefMut;
use std::ptr::{self, NonNull};

use crate::cuda::LockedBlock;
use crate::free_memory;
use crate::pool::{AllocationError, AllocationRequest, BlockId, Pool};
#[cfg(target_os = "linux")]
use crate::source::Anonymous;
#[cfg(not(target_os = "linux"))]
use crate::source::Plain;
use crate::source::Source;

/// Alignment of every block in bytes: a cache line, and the width of the widest vector register.
pub(crate) const ALIGN_BYTES: usize = 64;

const ALIGN: NonZero<usize> = NonZero::new(ALIGN_BYTES).unwrap();
/// As on CUDA, and as large as a huge page of x86-64 and ARM.
pub(crate) const GRANULE_BYTES: usize = 2 << 20;
/// Capacity of a pool where the system's memory size is unknown.
const CAPACITY_BYTES_UNKNOWN: usize = 16 << 30;

/// The source of a CPU device's memory, for as much as the system has. On Linux its pages are huge.
pub(crate) fn source() -> Box<dyn Source> {
    let capacity_bytes = free_memory::total_bytes().unwrap_or(CAPACITY_BYTES_UNKNOWN) / GRANULE_BYTES * GRANULE_BYTES;
    #[cfg(target_os = "linux")]
    return Box::new(Anonymous::new(capacity_bytes, GRANULE_BYTES));
    #[cfg(not(target_os = "linux"))]
    Box::new(Plain::new(capacity_bytes, GRANULE_BYTES))
}

/// Bytes that a CPU device takes from the system for blocks of these sizes, asked for in this order
/// and all live at once: whole pages of 2 MiB. Blocks of up to 32 KiB have pages of their own, by
/// size class.
pub fn reserved_bytes(blocks: impl IntoIterator<Item = usize>) -> usize {
    crate::pool::reserved_bytes(blocks, GRANULE_BYTES)
}

/// A live block of host memory: of a pool, to which whoever holds it gives it back, or page-locked.
#[derive(Debug)]
pub(crate) struct HostBlock {
    pub(crate) start: NonNull<u8>,
    owner: HostOwner,
}

/// Owner of a block of host memory.
#[derive(Debug)]
enum HostOwner {
    Pool(BlockId),
    /// Page-locked memory, which ends with the block.
    Locked(#[expect(dead_code, reason = "it is held until the block ends")] Box<LockedBlock>),
    /// There are no bytes.
    Nobody,
}

impl HostBlock {
    /// A block of zeros of a pool over one of this file's sources. The pool is let go before the
    /// bytes are zeroed.
    pub(crate) fn zeroed(
        mut pool: impl DerefMut<Target = Pool>,
        request: &AllocationRequest,
    ) -> Result<Self, AllocationError> {
        if request.bytes == 0 {
            return Ok(HostBlock { start: NonNull::without_provenance(ALIGN), owner: HostOwner::Nobody });
        }
        let id = pool.allocate(request)?;
        let address = pool.address(id);
        let unclean = pool.source_mut().unclean(address, request.bytes);
        drop(pool);
        let bytes = (unclean.end - unclean.start) as usize;
        // SAFETY: the range lies in the block, which is mapped and nobody else's until it is freed.
        unsafe { pointer(unclean.start).write_bytes(0, bytes) };
        Ok(HostBlock { start: pointer(address), owner: HostOwner::Pool(id) })
    }

    /// A block in page-locked memory.
    pub(crate) fn locked(memory: LockedBlock) -> Self {
        HostBlock { start: memory.start(), owner: HostOwner::Locked(Box::new(memory)) }
    }

    /// The block's number in its pool, if it is one of a pool.
    pub(crate) fn id(&self) -> Option<BlockId> {
        match self.owner {
            HostOwner::Pool(id) => Some(id),
            HostOwner::Locked(_) | HostOwner::Nobody => None,
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Buffer, Device};

    #[test]
    fn what_is_reserved_is_known_from_the_sizes_of_the_blocks() {
        for sizes in [
            &[][..],
            &[0],
            &[1],
            &[512, 513, 4096, 4096],
            &[32 << 10, (32 << 10) + 1, 5 << 20],
            &[1024; 3000],
            // The block after the slab does not fit into what is free before it, the last one does.
            &[5 << 20, 512, 2 << 20, 1 << 20],
            &[5 << 20, 512, 1 << 20, 2 << 20],
            &[20 << 20, 100, (20 << 20) + 1, 100, 5000, 33 << 10, 7 << 20, 40_000, 1000],
        ] {
            let device = Device::cpu();
            let scope = device.scope("test");
            let _buffers: Vec<_> = sizes.iter().map(|&bytes| Buffer::<u8>::zeros(&scope, bytes).unwrap()).collect();
            assert_eq!(device.stats().reserved_bytes.now, reserved_bytes(sizes.iter().copied()), "{sizes:?}");
        }
    }

    /// Page faults of this thread that needed no disk.
    #[cfg(target_os = "linux")]
    fn faults() -> u64 {
        let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
        // The tenth field; the second one, in brackets, may have blanks.
        stat.rsplit(')').next().unwrap().split_whitespace().nth(7).unwrap().parse().unwrap()
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_block_that_comes_again_faults_no_page() {
        const BYTES: usize = 24 << 20;
        let device = Device::cpu();
        let scope = device.scope("test");
        let fill = || Buffer::<u8>::zeros(&scope, BYTES).unwrap().as_mut_slice().fill(1);
        fill();
        device.step();
        let before = faults();
        (0..3).for_each(|_| fill());
        // Reading the count itself may fault a few.
        assert!(faults() - before < 100, "{} faults", faults() - before);
    }
}
