//! The memory of a GPU, through the driver's virtual memory management.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use super::{Granule, Refusal, Source, StreamId};
use crate::cuda::copy::{On, Stretch};
use crate::cuda::virtual_memory::{self, VirtualMemory};
use crate::cuda::{Context, Event, Fault, Gpu, Streams};
use crate::error::Result;

/// The memory of a GPU. A granule is as large as the driver recommends, 2 MiB on the GPUs of today.
pub struct Cuda {
    granule_bytes: usize,
    /// A granule of our own, through which ranges that overlap are copied.
    scratch: u64,
    memory: VirtualMemory,
    reserved: BTreeMap<u64, usize>,
    /// What is mapped, by address.
    mapped: BTreeMap<u64, Granule>,
    granules: BTreeSet<Granule>,
    /// Orders one stream after another. One serves for all: a stream waits for what was recorded when it was told to.
    event: Event,
    calls: u64,
    /// A failure in a call that has no way to report it. The next one that can does.
    unreported: Option<Refusal>,
    streams: Arc<Streams>,
    context: Arc<Context>,
}

impl Cuda {
    /// The memory of `gpu`. Takes one granule for itself.
    ///
    /// # Errors
    /// [`Error::Driver`](crate::Error::Driver), also where there is no memory for that granule.
    pub fn new(gpu: &Gpu) -> Result<Self> {
        let context = gpu.context();
        let open = || -> Result<Self, Fault> {
            context.enter()?;
            let memory = VirtualMemory::of(context.ordinal());
            Ok(Cuda {
                granule_bytes: memory.granule_bytes()?,
                scratch: 0,
                memory,
                reserved: BTreeMap::new(),
                mapped: BTreeMap::new(),
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

    fn take_scratch(&mut self) -> Result<(), Fault> {
        let bytes = self.granule_bytes;
        self.scratch = self.call(|_| virtual_memory::reserve(bytes))?;
        self.reserved.insert(self.scratch, bytes);
        let granule = Granule(self.call(|source| source.memory.create(bytes))?);
        self.granules.insert(granule);
        self.map_all(self.scratch, &[granule])
    }

    /// One call to the driver, counted, with the GPU's context current.
    fn call<T>(&mut self, call: impl FnOnce(&Self) -> Result<T, Fault>) -> Result<T, Fault> {
        self.calls += 1;
        self.context.enter()?;
        call(self)
    }

    /// The same for a call whose caller cannot be told of a failure.
    fn call_unreported(&mut self, call: impl FnOnce(&Self) -> Result<(), Fault>) {
        if let Err(fault) = self.call(call) {
            self.unreported.get_or_insert(fault.into());
        }
    }

    /// What went wrong and was not said yet.
    fn report(&mut self) -> Result<(), Refusal> {
        self.unreported.take().map_or(Ok(()), Err)
    }

    fn map_all(&mut self, address: u64, granules: &[Granule]) -> Result<(), Fault> {
        let bytes = self.granule_bytes;
        for (at, &granule) in self.slots(address, granules.len()).zip(granules) {
            self.call(|_| virtual_memory::map(at, bytes, granule.0))?;
            self.mapped.insert(at, granule);
        }
        self.call(|source| source.memory.set_access(address, granules.len() * bytes))
    }

    /// Takes away what is mapped in a range that the GPU does not use.
    fn unmap_all(&mut self, address: u64, bytes: usize) {
        let granule_bytes = self.granule_bytes;
        // One call a granule: the driver takes back whole mappings, and each granule was mapped by itself.
        for at in self.slots(address, bytes / granule_bytes) {
            if self.mapped.remove(&at).is_some() {
                // SAFETY: the caller sees to it that all work is done, and the pool gives out no block there.
                self.call_unreported(|_| unsafe { virtual_memory::unmap(at, granule_bytes) });
            }
        }
    }

    fn slots(&self, address: u64, count: usize) -> impl Iterator<Item = u64> + use<> {
        let granule_bytes = self.granule_bytes as u64;
        (0..count as u64).map(move |index| address + index * granule_bytes)
    }

    /// The granules that are mapped anywhere in a range.
    fn granules_within(&self, address: u64, bytes: usize) -> BTreeSet<Granule> {
        let first = address - address % self.granule_bytes as u64;
        self.mapped.range(first..address + bytes as u64).map(|(_, &granule)| granule).collect()
    }

    /// Copies between ranges that are not the same memory.
    fn copy_apart(&mut self, from: u64, to: u64, bytes: usize) -> Result<(), Fault> {
        self.call(|source| {
            let on = On { streams: &source.streams, id: StreamId(0) };
            // SAFETY: both ranges are mapped, as the pool promises, and unmapping waits for the work on them.
            unsafe { on.copy(from, Stretch { address: to, bytes }) }
        })
    }

    /// Copies between ranges of which one begins within the other: piece by piece, from the end that the copy does not write first.
    fn copy_sliding(&mut self, from: u64, to: u64, bytes: usize) -> Result<(), Fault> {
        let distance = from.abs_diff(to) as usize;
        // A piece no longer than the distance does not overlap its copy. Where that would make many pieces, they go through the scratch.
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

    /// Copies between ranges at different addresses that share granules, which no order of pieces could do in general: through the host.
    fn copy_through_host(&mut self, from: u64, to: u64, bytes: usize) -> Result<(), Fault> {
        let mut host = vec![0u8; bytes];
        let start = host.as_mut_ptr();
        self.call(|source| {
            let on = On { streams: &source.streams, id: StreamId(0) };
            // SAFETY: the range is mapped, as the pool promises, and `host` is as long and lives until the work is done, below.
            unsafe { on.download(Stretch { address: from, bytes }, start.cast()) }
        })?;
        self.call(|source| source.context.synchronize())?;
        self.call(|source| {
            let on = On { streams: &source.streams, id: StreamId(0) };
            // SAFETY: the range is mapped, as the pool promises, and `host` lives until the work is done, below.
            unsafe { on.upload(start.cast(), Stretch { address: to, bytes }) }
        })?;
        self.call(|source| source.context.synchronize())
    }
}

impl Source for Cuda {
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
        let address = self.call(|_| virtual_memory::reserve(bytes))?;
        self.reserved.insert(address, bytes);
        Ok(address)
    }

    fn release(&mut self, address: u64, bytes: usize) {
        assert_eq!(self.reserved.remove(&address), Some(bytes), "a range is given back as it was reserved");
        // SAFETY: nothing is mapped there any more, as the caller promises, so that nothing can be used.
        self.call_unreported(|_| unsafe { virtual_memory::free_addresses(address, bytes) });
    }

    fn create(&mut self) -> Result<Granule, Refusal> {
        self.report()?;
        let granule = Granule(self.call(|source| source.memory.create(source.granule_bytes))?);
        self.granules.insert(granule);
        Ok(granule)
    }

    fn destroy(&mut self, granule: Granule) {
        assert!(self.granules.remove(&granule), "a granule is destroyed once");
        self.call_unreported(|_| virtual_memory::release(granule.0));
    }

    fn map(&mut self, address: u64, granules: &[Granule]) -> Result<(), Refusal> {
        self.report()?;
        let done = self.map_all(address, granules);
        if done.is_err() {
            // What was mapped before the failure was never accessible to work on the GPU.
            self.unmap_all(address, granules.len() * self.granule_bytes);
        }
        Ok(done?)
    }

    fn unmap(&mut self, address: u64, bytes: usize) {
        self.call_unreported(|source| source.context.synchronize());
        self.unmap_all(address, bytes);
    }

    fn copy(&mut self, from: u64, to: u64, bytes: usize) -> Result<(), Refusal> {
        self.report()?;
        if bytes == 0 || from == to {
            return Ok(());
        }
        // The default stream runs it after what was submitted to any stream, and before what is submitted later.
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

impl Drop for Cuda {
    /// Gives everything back. Nobody could be told of a failure, and after one the driver takes all back when the process ends.
    fn drop(&mut self) {
        let _ = self.context.synchronize();
        let mapped: Vec<u64> = self.mapped.keys().copied().collect();
        mapped.into_iter().for_each(|address| self.unmap_all(address, self.granule_bytes));
        std::mem::take(&mut self.granules).into_iter().for_each(|granule| {
            self.call_unreported(|_| virtual_memory::release(granule.0));
        });
        for (address, bytes) in std::mem::take(&mut self.reserved) {
            // SAFETY: nothing is mapped there any more.
            self.call_unreported(|_| unsafe { virtual_memory::free_addresses(address, bytes) });
        }
    }
}

impl fmt::Debug for Cuda {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cuda({}, {} granules, {} mapped)", self.context.name(), self.granules.len(), self.mapped.len())
    }
}
