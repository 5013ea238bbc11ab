//! Sources of a pool's memory: address ranges that are reserved, and physical granules that are
//! mapped into them.

pub(crate) mod address_space;
#[cfg(target_os = "linux")]
mod anonymous_linux;
mod granules;
#[cfg(target_os = "linux")]
mod mappings_linux;
mod plain;
mod simulated;

use std::ops::Range;

#[cfg(target_os = "linux")]
pub use anonymous_linux::Anonymous;
pub use plain::Plain;
pub use simulated::Simulated;

pub use crate::error::Refusal;

/// A stream of a device: its work runs in the order of submission. 0 is the default stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(pub u32);

/// One granule of physical memory, by the name its source gave it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Granule(pub u64);

/// Physical memory of one device and the addresses at which it is seen.
///
/// Every method either does all of what it says or nothing. Addresses and lengths are multiples of
/// [`Source::granule_bytes`]. What the pool asks for is always within what it reserved; a source
/// may assert it.
pub trait Source: Send + std::fmt::Debug {
    /// Name of the memory in messages: `cuda:0`, `cpu`.
    fn name(&self) -> String;

    /// Size of a granule in bytes, a power of two.
    fn granule_bytes(&self) -> usize;

    /// Physical memory in bytes that could be created if nothing else used the device.
    fn capacity_bytes(&self) -> usize;

    /// Addresses in bytes that a pool may reserve for it: the capacity, or more where addresses
    /// cost nothing, so that blocks need not fill the gaps that others left.
    fn address_bytes(&self) -> usize {
        self.capacity_bytes()
    }

    /// Physical memory in bytes that the device says is free now, where it can tell.
    fn free_bytes(&mut self) -> Option<usize>;

    /// True if a granule can be mapped at several addresses at once, which stitching needs.
    fn can_alias(&self) -> bool;

    /// Reserves an address range; nothing is mapped in it. Returns its first address.
    fn reserve(&mut self, bytes: usize) -> Result<u64, Refusal>;

    /// Gives an address range back, in which nothing is mapped any more.
    fn release(&mut self, address: u64, bytes: usize);

    /// Creates one granule. Its contents are undefined.
    fn create(&mut self) -> Result<Granule, Refusal>;

    /// Gives a granule back that is mapped nowhere.
    fn destroy(&mut self, granule: Granule);

    /// Maps `granules` side by side from `address` on, readable and writable. Nothing was mapped
    /// there.
    fn map(&mut self, address: u64, granules: &[Granule]) -> Result<(), Refusal>;

    /// Unmaps a range after the device's work on it; the source waits if it must.
    fn unmap(&mut self, address: u64, bytes: usize);

    /// The part of a mapped range of bytes, on any boundaries, that has to be zeroed before all of
    /// it is zeros: the shortest one outside of which the bytes are still the zeros that they were
    /// created as. The caller may write the whole range from then on. A source that cannot tell
    /// says that all of it has to be.
    fn unclean(&mut self, address: u64, bytes: usize) -> Range<u64> {
        address..address + bytes as u64
    }

    /// True if all work submitted to `stream` so far is done, waits for other streams included.
    /// Does not wait.
    ///
    /// This method and the two that follow are, where a source does not say otherwise, those of
    /// host memory: there are no streams, and work is done when it has been called.
    fn is_idle(&mut self, _stream: StreamId) -> bool {
        true
    }

    /// Orders later work of `waiting` after the work submitted to `awaited` so far (an event
    /// recorded on one and waited for by the other). The caller does not wait.
    fn order(&mut self, _waiting: StreamId, _awaited: StreamId) -> Result<(), Refusal> {
        Ok(())
    }

    /// Waits until all work submitted to every stream is done.
    fn synchronize(&mut self) -> Result<(), Refusal> {
        Ok(())
    }

    /// Calls made to the driver (or the system) so far. What the pool can answer by itself makes
    /// none.
    fn driver_calls(&self) -> u64;
}
