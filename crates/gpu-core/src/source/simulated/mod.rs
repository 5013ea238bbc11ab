#![forbid(unsafe_code)]

mod clocks;
#[cfg(test)]
mod tests;
mod uses;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use self::clocks::StreamClocks;
use self::uses::{Uses, Work};
use super::address_space::AddressSpace;
use super::granules::Granules;
use super::{Granule, Refusal, Source, StreamId};

/// Byte of a granule that nobody has written yet, and of one that was destroyed.
const POISON: u8 = 0xC5;
const FIRST_ADDRESS: u64 = 1 << 40;

/// A device of any size that is pure arithmetic: addresses are numbers, and nothing is behind them
/// unless bytes are asked for.
///
/// Every misuse of a [`Source`] is a panic: mapping over a mapping, unmapping what is not mapped,
/// destroying a granule that is mapped, anything outside of a reservation. A handle: a test keeps a
/// clone of the one that it gives to the pool, and through it injects faults, lets other users take
/// memory, submits work to streams and looks at bytes.
#[derive(Clone, Debug)]
pub struct Simulated {
    device: Arc<Mutex<SimulatedDevice>>,
}

#[derive(Debug)]
struct SimulatedDevice {
    granule_bytes: usize,
    capacity_bytes: usize,
    held_by_others_bytes: usize,
    space: AddressSpace,
    granules: Granules,
    address_next: u64,
    calls: u64,
    fault: Option<InjectedFault>,
    refusals_total: u64,
    /// True if submitted work is done at once.
    completion: Completion,
    clocks: StreamClocks,
    uses: Uses,
    /// The bytes of each granule, where they are kept.
    bytes: Option<BTreeMap<Granule, Box<[u8]>>>,
}

/// Completion of submitted work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Completion {
    /// At its submission.
    Immediate,
    /// By a call of [`Simulated::complete`].
    Manual,
}

#[derive(Debug)]
struct InjectedFault {
    calls_before: u64,
    refusal: Refusal,
}

impl Simulated {
    /// A device of `capacity_bytes` in granules of `granule_bytes`, a power of two. Its streams are
    /// always idle, and it keeps no bytes.
    pub fn new(capacity_bytes: usize, granule_bytes: usize) -> Self {
        let device = SimulatedDevice {
            granule_bytes,
            capacity_bytes,
            held_by_others_bytes: 0,
            space: AddressSpace::new(granule_bytes),
            granules: Granules::new(capacity_bytes / granule_bytes),
            address_next: FIRST_ADDRESS.next_multiple_of(granule_bytes as u64),
            calls: 0,
            fault: None,
            refusals_total: 0,
            completion: Completion::Immediate,
            clocks: StreamClocks::default(),
            uses: Uses::default(),
            bytes: None,
        };
        Simulated { device: Arc::new(Mutex::new(device)) }
    }

    /// Sets when work that is submitted from now on is done.
    #[cfg(any(test, feature = "conformance"))]
    pub fn set_completion(&self, completion: Completion) {
        self.device().completion = completion;
    }

    /// Keeps the bytes of every granule that is created from now on, poisoned until they are
    /// written.
    #[cfg(any(test, feature = "conformance"))]
    pub fn keep_bytes(&self) {
        self.device().bytes.get_or_insert_default();
    }

    /// Refuses the `nth` call from now on (1 is the next) among those that can be refused, once.
    /// `stop_faults` takes it back.
    #[cfg(any(test, feature = "conformance"))]
    pub fn fail_call(&self, nth: u64, refusal: Refusal) {
        assert!(nth > 0, "calls are counted from 1");
        self.device().fault = Some(InjectedFault { calls_before: nth - 1, refusal });
    }

    /// Refuses nothing any more; returns whether a refusal was still to come.
    #[cfg(any(test, feature = "conformance"))]
    pub fn stop_faults(&self) -> bool {
        self.device().fault.take().is_some()
    }

    /// Calls refused by `fail_call` so far.
    pub fn refusals_total(&self) -> u64 {
        self.device().refusals_total
    }

    /// Sets the bytes that other users of the device hold. Existing granules stay, even if the two
    /// together pass the capacity.
    #[cfg(any(test, feature = "conformance"))]
    pub fn set_held_by_others_bytes(&self, bytes: usize) {
        self.device().held_by_others_bytes = bytes;
    }

    /// Granules that exist.
    pub fn granules(&self) -> usize {
        self.device().granules.len()
    }

    /// The granules behind a range of mapped bytes, in its order.
    #[cfg(any(test, feature = "conformance"))]
    pub fn granules_behind(&self, address: u64, bytes: usize) -> Vec<Granule> {
        self.device().space.pieces(address, bytes).map(|(granule, ..)| granule).collect()
    }

    /// Submits work on a range of mapped bytes to a stream.
    ///
    /// # Panics
    /// If a byte of the range, through this or another address, was used by work on another stream
    /// that is not done and that this work is not ordered after: the memory was handed on too
    /// early.
    pub fn submit(&self, stream: StreamId, address: u64, bytes: usize) {
        let device = &mut *self.device();
        let ticket = device.clocks.submit(stream);
        for (granule, offset, len) in device.space.pieces(address, bytes) {
            let range = offset..offset + len;
            for before in device.uses.overlapping(granule, &range) {
                let in_order = device.clocks.runs_after(stream, before.stream, before.ticket);
                assert!(in_order, "{stream:?} uses {granule:?} {range:?}, and is not ordered after {before:?}");
            }
            if device.completion == Completion::Manual {
                device.uses.note(granule, range, Work { stream, ticket });
            }
        }
        if device.completion == Completion::Immediate {
            device.clocks.complete(stream);
        }
    }

    /// Completes the work submitted to a stream so far, and the work that it waited for.
    pub fn complete(&self, stream: StreamId) {
        self.device().clocks.complete(stream);
    }

    /// Writes bytes, at once.
    ///
    /// # Panics
    /// If the device keeps none or nothing is mapped there.
    pub fn write(&self, address: u64, mut bytes: &[u8]) {
        let device = &mut *self.device();
        let store = device.bytes.as_mut().expect("the device keeps bytes");
        for (granule, offset, len) in device.space.pieces(address, bytes.len()) {
            let (head, tail) = bytes.split_at(len);
            store.get_mut(&granule).expect("a mapped granule exists")[offset..offset + len].copy_from_slice(head);
            bytes = tail;
        }
    }

    /// Reads bytes, at once.
    ///
    /// # Panics
    /// If the device keeps none or nothing is mapped there.
    pub fn read(&self, address: u64, mut bytes: &mut [u8]) {
        let device = &*self.device();
        let store = device.bytes.as_ref().expect("the device keeps bytes");
        for (granule, offset, len) in device.space.pieces(address, bytes.len()) {
            let (head, tail) = bytes.split_at_mut(len);
            head.copy_from_slice(&store[&granule][offset..offset + len]);
            bytes = tail;
        }
    }

    /// The state, also after a panic of this or another test's assertion.
    fn device(&self) -> MutexGuard<'_, SimulatedDevice> {
        self.device.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The state in a call that can be refused; counts it as so many calls to the driver.
    fn call(&self, calls: usize) -> Result<MutexGuard<'_, SimulatedDevice>, Refusal> {
        let mut device = self.device();
        device.calls += calls as u64;
        match &mut device.fault {
            Some(InjectedFault { calls_before: 0, .. }) => {
                device.refusals_total += 1;
                Err(device.fault.take().expect("just seen").refusal)
            }
            Some(fault) => {
                fault.calls_before -= 1;
                Ok(device)
            }
            None => Ok(device),
        }
    }
}

impl Source for Simulated {
    fn name(&self) -> String {
        "simulated".to_owned()
    }

    fn granule_bytes(&self) -> usize {
        self.device().granule_bytes
    }

    fn capacity_bytes(&self) -> usize {
        self.device().capacity_bytes
    }

    fn free_bytes(&mut self) -> Option<usize> {
        Some(self.device().free_bytes())
    }

    fn can_alias(&self) -> bool {
        true
    }

    fn reserve(&mut self, bytes: usize) -> Result<u64, Refusal> {
        let mut device = self.call(1)?;
        let address = device.address_next;
        // A granule between two reservations belongs to neither, so that a step over the end of one
        // is seen.
        let apart = (bytes as u64).checked_add(device.granule_bytes as u64).ok_or(Refusal::OutOfMemory)?;
        device.address_next = address.checked_add(apart).ok_or(Refusal::OutOfMemory)?;
        device.space.reserve(address, bytes);
        Ok(address)
    }

    fn release(&mut self, address: u64, bytes: usize) {
        let mut device = self.device();
        device.calls += 1;
        device.space.release(address, bytes);
    }

    fn create(&mut self) -> Result<Granule, Refusal> {
        let device = &mut *self.call(1)?;
        if device.free_bytes() < device.granule_bytes {
            return Err(Refusal::OutOfMemory);
        }
        let granule = device.granules.create()?;
        if let Some(bytes) = &mut device.bytes {
            bytes.insert(granule, vec![POISON; device.granule_bytes].into());
        }
        Ok(granule)
    }

    fn destroy(&mut self, granule: Granule) {
        let device = &mut *self.device();
        device.calls += 1;
        let addresses = device.space.addresses_of(granule);
        assert_eq!(addresses, 0, "{granule:?} is destroyed while it is mapped");
        device.granules.destroy(granule);
        device.uses.forget(granule);
        device.bytes.as_mut().map(|bytes| bytes.remove(&granule));
    }

    fn map(&mut self, address: u64, granules: &[Granule]) -> Result<(), Refusal> {
        let mut device = self.call(granules.len() + 1)?;
        granules.iter().for_each(|&granule| device.granules.assert_exists(granule));
        device.space.map(address, granules);
        Ok(())
    }

    fn unmap(&mut self, address: u64, bytes: usize) {
        let mut device = self.device();
        device.calls += 1;
        device.clocks.complete_all();
        device.space.unmap(address, bytes);
    }

    fn is_idle(&mut self, stream: StreamId) -> bool {
        self.device().clocks.is_idle(stream)
    }

    fn order(&mut self, waiting: StreamId, awaited: StreamId) -> Result<(), Refusal> {
        let mut device = self.call(2)?;
        device.clocks.order(waiting, awaited);
        if device.completion == Completion::Immediate {
            device.clocks.complete(waiting);
        }
        Ok(())
    }

    fn synchronize(&mut self) -> Result<(), Refusal> {
        self.call(1)?.clocks.complete_all();
        Ok(())
    }

    fn driver_calls(&self) -> u64 {
        self.device().calls
    }
}

impl SimulatedDevice {
    fn free_bytes(&self) -> usize {
        let held = self.granules.len() * self.granule_bytes;
        self.capacity_bytes.saturating_sub(held).saturating_sub(self.held_by_others_bytes)
    }
}
