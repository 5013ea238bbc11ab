//! The memory of a GPU, through the driver's virtual memory management.

#![allow(unsafe_code, reason = "the driver is called")]

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use super::Gpu;
use super::context::Context;
use super::event::Event;
use super::fault::DriverFault;
use super::stream::GpuStreams;
use super::virtual_memory::{self, VirtualMemory};
use crate::error::Result;
use crate::source::address_space::AddressSpace;
use crate::source::{Granule, Refusal, Source, StreamId};

/// The memory of a GPU. A granule is as large as the driver recommends, 2 MiB on the GPUs of today.
pub struct GpuSource {
    granule_bytes: usize,
    memory: VirtualMemory,
    space: AddressSpace,
    granules: BTreeSet<Granule>,
    /// Orders one stream after another. One event serves all: a stream waits for the recording at
    /// the moment of the order.
    event: Event,
    calls: u64,
    /// A failure in a call that has no way to report it. The next one that can does.
    unreported: Option<Refusal>,
    streams: Arc<GpuStreams>,
    context: Arc<Context>,
}

impl GpuSource {
    /// The memory of `gpu`.
    ///
    /// # Errors
    /// [`Error::Driver`](crate::Error::Driver) where a call fails.
    pub fn new(gpu: &Gpu) -> Result<Self> {
        let context = gpu.context();
        let open = || -> Result<Self, DriverFault> {
            context.enter()?;
            let memory = VirtualMemory::new(context.ordinal());
            let granule_bytes = memory.granule_bytes()?;
            Ok(GpuSource {
                granule_bytes,
                memory,
                space: AddressSpace::new(granule_bytes),
                granules: BTreeSet::new(),
                event: Event::new(context)?,
                calls: 2,
                unreported: None,
                streams: Arc::clone(gpu.streams()),
                context: Arc::clone(context),
            })
        };
        open().map_err(|fault| context.error(fault))
    }

    /// One call to the driver, counted, with the GPU's context current.
    fn call<T>(&mut self, call: impl FnOnce(&Self) -> Result<T, DriverFault>) -> Result<T, DriverFault> {
        self.calls += 1;
        self.context.enter()?;
        call(self)
    }

    /// A call whose failure its caller cannot learn: the next call that can fail reports it.
    fn call_unreported(&mut self, call: impl FnOnce(&Self) -> Result<(), DriverFault>) {
        if let Err(fault) = self.call(call) {
            self.unreported.get_or_insert(fault.into());
        }
    }

    /// First error that was not reported yet.
    fn report(&mut self) -> Result<(), Refusal> {
        self.unreported.take().map_or(Ok(()), Err)
    }

    /// Maps granules and makes them accessible, or changes nothing.
    fn map_all(&mut self, address: u64, granules: &[Granule]) -> Result<(), DriverFault> {
        self.space.map(address, granules);
        let mut mapped = 0;
        let done = self.map_each(address, granules, &mut mapped);
        if done.is_err() {
            self.unmap_each(address, mapped);
            self.space.unmap(address, granules.len() * self.granule_bytes);
        }
        done
    }

    fn map_each(&mut self, address: u64, granules: &[Granule], mapped: &mut usize) -> Result<(), DriverFault> {
        let bytes = self.granule_bytes;
        for (page, &granule) in self.slots(address, granules.len()).zip(granules) {
            self.call(|_| virtual_memory::map(page, bytes, granule.0))?;
            *mapped += 1;
        }
        self.call(|source| source.memory.set_access(address, granules.len() * bytes))
    }

    /// Takes `count` mappings away that the GPU does not use.
    fn unmap_each(&mut self, address: u64, count: usize) {
        let bytes = self.granule_bytes;
        // One call a granule: the driver takes back whole mappings, and each granule was mapped by
        // itself.
        for page in self.slots(address, count) {
            // SAFETY: all work that used it is done: `Source::unmap` has waited for it, and in a
            // failed `map` nobody was given the address yet. That nobody comes back to it is the
            // contract of `Source::unmap`.
            self.call_unreported(|_| unsafe { virtual_memory::unmap(page, bytes) });
        }
    }

    fn slots(&self, address: u64, count: usize) -> impl Iterator<Item = u64> + use<> {
        let granule_bytes = self.granule_bytes as u64;
        (0..count as u64).map(move |index| address + index * granule_bytes)
    }
}

impl Source for GpuSource {
    fn name(&self) -> String {
        self.context.name().to_owned()
    }

    fn granule_bytes(&self) -> usize {
        self.granule_bytes
    }

    fn capacity_bytes(&self) -> usize {
        let total_bytes = self.context.properties().total_bytes;
        total_bytes - total_bytes % self.granule_bytes
    }

    fn free_bytes(&mut self) -> Option<usize> {
        self.call(|source| source.context.memory()).ok().map(|memory| memory.free_bytes)
    }

    fn can_alias(&self) -> bool {
        true
    }

    fn reserve(&mut self, bytes: usize) -> Result<u64, Refusal> {
        self.report()?;
        let address = self.call(|source| virtual_memory::reserve(bytes, source.granule_bytes))?;
        self.space.reserve(address, bytes);
        Ok(address)
    }

    fn release(&mut self, address: u64, bytes: usize) {
        self.space.release(address, bytes);
        // SAFETY: nothing is mapped there any more, as was asserted, so that nothing can be used.
        self.call_unreported(|_| unsafe { virtual_memory::free_addresses(address, bytes) });
    }

    fn create(&mut self) -> Result<Granule, Refusal> {
        self.report()?;
        let granule = Granule(self.call(|source| source.memory.create(source.granule_bytes))?);
        self.granules.insert(granule);
        Ok(granule)
    }

    fn destroy(&mut self, granule: Granule) {
        assert_eq!(self.space.addresses_of(granule), 0, "{granule:?} is destroyed while it is mapped");
        assert!(self.granules.remove(&granule), "{granule:?} does not exist");
        self.call_unreported(|_| virtual_memory::release(granule.0));
    }

    fn map(&mut self, address: u64, granules: &[Granule]) -> Result<(), Refusal> {
        self.report()?;
        Ok(self.map_all(address, granules)?)
    }

    fn unmap(&mut self, address: u64, bytes: usize) {
        self.space.unmap(address, bytes);
        self.call_unreported(|source| source.context.synchronize());
        self.unmap_each(address, bytes / self.granule_bytes);
    }

    fn is_idle(&mut self, stream: StreamId) -> bool {
        // Memory of the default stream may be in use on any stream, as each is ordered with it.
        let streams: Vec<_> = if stream == StreamId(0) { self.streams.ids().collect() } else { vec![stream] };
        streams.into_iter().all(|id| self.call(|source| source.streams.is_idle(id)).unwrap_or(false))
    }

    fn order(&mut self, waiting: StreamId, awaited: StreamId) -> Result<(), Refusal> {
        self.report()?;
        // A stream is ordered with itself, and the default stream runs after all of ours.
        if waiting == awaited || (waiting == StreamId(0) && !self.streams.is_external(awaited)) {
            return Ok(());
        }
        self.call(|source| source.event.record_on(source.streams.raw(awaited), awaited))?;
        Ok(self.call(|source| source.event.order(source.streams.raw(waiting), waiting))?)
    }

    fn synchronize(&mut self) -> Result<(), Refusal> {
        self.report()?;
        Ok(self.call(|source| source.context.synchronize())?)
    }

    fn driver_calls(&self) -> u64 {
        self.calls
    }
}

impl Drop for GpuSource {
    /// Gives everything back. Nobody could be told of a failure, and after one the driver takes all
    /// back when the process ends.
    fn drop(&mut self) {
        let _ = self.context.synchronize();
        let mapped: Vec<u64> = self.space.seen().collect();
        mapped.into_iter().for_each(|address| self.unmap_each(address, 1));
        for granule in std::mem::take(&mut self.granules) {
            self.call_unreported(|_| virtual_memory::release(granule.0));
        }
        let reserved: Vec<_> = self.space.reservations().collect();
        for (address, bytes) in reserved {
            // SAFETY: nothing is mapped there any more.
            self.call_unreported(|_| unsafe { virtual_memory::free_addresses(address, bytes) });
        }
    }
}

impl fmt::Debug for GpuSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "GpuSource({}, {} granules of {} bytes)",
            self.context.name(),
            self.granules.len(),
            self.granule_bytes
        )
    }
}
