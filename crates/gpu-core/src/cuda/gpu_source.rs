//! The memory of a GPU, through the driver's virtual memory management.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use super::Gpu;
use super::context::Context;
use super::copy::{MemoryRegion, On};
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
    /// A granule of our own, through which ranges that overlap are copied.
    scratch: u64,
    memory: VirtualMemory,
    space: AddressSpace,
    granules: BTreeSet<Granule>,
    /// Orders one stream after another. One serves for all: a stream waits for what was recorded
    /// when it was told to.
    event: Event,
    calls: u64,
    /// A failure in a call that has no way to report it. The next one that can does.
    unreported: Option<Refusal>,
    streams: Arc<GpuStreams>,
    context: Arc<Context>,
}

impl GpuSource {
    /// The memory of `gpu`. Takes one granule for itself.
    ///
    /// # Errors
    /// [`Error::Driver`](crate::Error::Driver), also where there is no memory for that granule.
    pub fn new(gpu: &Gpu) -> Result<Self> {
        let context = gpu.context();
        let open = || -> Result<Self, DriverFault> {
            context.enter()?;
            let memory = VirtualMemory::of(context.ordinal());
            let granule_bytes = memory.granule_bytes()?;
            Ok(GpuSource {
                granule_bytes,
                scratch: 0,
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
        let mut source = open().map_err(|fault| context.error(fault))?;
        source.take_scratch().map_err(|fault| context.error(fault))?;
        Ok(source)
    }

    fn take_scratch(&mut self) -> Result<(), DriverFault> {
        let bytes = self.granule_bytes;
        self.scratch = self.call(|_| virtual_memory::reserve(bytes, bytes))?;
        self.space.reserve(self.scratch, bytes);
        let granule = Granule(self.call(|source| source.memory.create(bytes))?);
        self.granules.insert(granule);
        self.map_all(self.scratch, &[granule])
    }

    /// One call to the driver, counted, with the GPU's context current.
    fn call<T>(&mut self, call: impl FnOnce(&Self) -> Result<T, DriverFault>) -> Result<T, DriverFault> {
        self.calls += 1;
        self.context.enter()?;
        call(self)
    }

    /// The same for a call whose caller cannot be told of a failure.
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
        for (at, &granule) in self.slots(address, granules.len()).zip(granules) {
            self.call(|_| virtual_memory::map(at, bytes, granule.0))?;
            *mapped += 1;
        }
        self.call(|source| source.memory.set_access(address, granules.len() * bytes))
    }

    /// Takes `count` mappings away that the GPU does not use.
    fn unmap_each(&mut self, address: u64, count: usize) {
        let bytes = self.granule_bytes;
        // One call a granule: the driver takes back whole mappings, and each granule was mapped by
        // itself.
        for at in self.slots(address, count) {
            // SAFETY: all work that used it is done: `Source::unmap` has waited for it, and in a
            // failed `map` nobody was given the address yet. That nobody comes back to it is the
            // contract of `Source::unmap`.
            self.call_unreported(|_| unsafe { virtual_memory::unmap(at, bytes) });
        }
    }

    fn slots(&self, address: u64, count: usize) -> impl Iterator<Item = u64> + use<> {
        let granule_bytes = self.granule_bytes as u64;
        (0..count as u64).map(move |index| address + index * granule_bytes)
    }

    /// The granules that are mapped anywhere in a range.
    fn granules_within(&self, address: u64, bytes: usize) -> BTreeSet<Granule> {
        self.space.pieces(address, bytes).map(|(granule, ..)| granule).collect()
    }

    /// Copies between ranges that are not the same memory.
    fn copy_apart(&mut self, from: u64, to: u64, bytes: usize) -> Result<(), DriverFault> {
        self.call(|source| {
            let on = On { streams: &source.streams, id: StreamId(0) };
            // SAFETY: both ranges are mapped, as the pool promises, and unmapping waits for the
            // work on them.
            unsafe { on.copy(from, MemoryRegion { address: to, bytes }) }
        })
    }

    /// Copies between ranges of which one begins within the other: piece by piece, from the end
    /// that the copy does not write first.
    fn copy_sliding(&mut self, from: u64, to: u64, bytes: usize) -> Result<(), DriverFault> {
        let distance = from.abs_diff(to) as usize;
        // A piece no longer than the distance does not overlap its copy. Where that would make many
        // pieces, they go through the scratch.
        let through_scratch = distance < self.granule_bytes;
        let piece = if through_scratch { self.granule_bytes } else { distance };
        let pieces = bytes.div_ceil(piece);
        for index in 0..pieces {
            let start = if to < from { index } else { pieces - 1 - index } * piece;
            let (len, offset) = (piece.min(bytes - start), start as u64);
            if through_scratch {
                self.copy_apart(from + offset, self.scratch, len)?;
                self.copy_apart(self.scratch, to + offset, len)?;
            } else {
                self.copy_apart(from + offset, to + offset, len)?;
            }
        }
        Ok(())
    }

    /// Copies between ranges at different addresses that share granules, which no order of pieces
    /// could do in general: through the host.
    fn copy_through_host(&mut self, from: u64, to: u64, bytes: usize) -> Result<(), DriverFault> {
        let mut host = vec![0u8; bytes];
        let start = host.as_mut_ptr();
        self.call(|source| {
            let on = On { streams: &source.streams, id: StreamId(0) };
            // SAFETY: the range is mapped, as the pool promises, and `host` is as long and lives
            // until the work is done, below.
            unsafe { on.download(MemoryRegion { address: from, bytes }, start.cast()) }
        })?;
        self.call(|source| source.context.synchronize())?;
        self.call(|source| {
            let on = On { streams: &source.streams, id: StreamId(0) };
            // SAFETY: the range is mapped, as the pool promises, and `host` lives until the work is
            // done, below.
            unsafe { on.upload(start.cast(), MemoryRegion { address: to, bytes }) }
        })?;
        self.call(|source| source.context.synchronize())
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
        (total_bytes - total_bytes % self.granule_bytes).saturating_sub(self.granule_bytes)
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

    fn copy(&mut self, from: u64, to: u64, bytes: usize) -> Result<(), Refusal> {
        self.report()?;
        if bytes == 0 || from == to {
            return Ok(());
        }
        // The default stream runs it after what was submitted to any stream, and before what is
        // submitted later.
        if from.abs_diff(to) < bytes as u64 {
            self.copy_sliding(from, to, bytes)?;
        } else if self.granules_within(from, bytes).is_disjoint(&self.granules_within(to, bytes)) {
            self.copy_apart(from, to, bytes)?;
        } else {
            self.copy_through_host(from, to, bytes)?;
        }
        Ok(())
    }

    fn is_idle(&mut self, stream: StreamId) -> bool {
        // Memory of the default stream may be in use on any stream, as each is ordered with it.
        let streams: Vec<_> = if stream == StreamId(0) { self.streams.ids().collect() } else { vec![stream] };
        streams.into_iter().all(|id| self.call(|source| source.streams.is_idle(id)).unwrap_or(false))
    }

    fn order(&mut self, waiting: StreamId, on: StreamId) -> Result<(), Refusal> {
        self.report()?;
        // A stream is ordered with itself, and the default stream runs after every other.
        if waiting == on || waiting == StreamId(0) {
            return Ok(());
        }
        self.call(|source| source.event.record_on(source.streams.raw(on), on))?;
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
