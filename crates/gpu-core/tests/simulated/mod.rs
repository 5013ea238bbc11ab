//! A simulated device with streams whose work is pending, bytes, other users and faults.

mod clocks;
#[cfg(test)]
mod tests;
mod uses;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use megabatch_gpu_core::source::{Granule, Refusal, Simulated, Source, StreamId};

use self::clocks::StreamClocks;
use self::uses::{Uses, Work};

/// Byte of a granule that nobody has written yet, and of one that was destroyed.
const POISON: u8 = 0xC5;

/// [`Simulated`], whose misuse is a panic, with bytes and streams.
///
/// A handle: a test keeps a clone of the one that it gives to the pool, and through it injects
/// faults, lets other users take memory, submits work to streams and looks at bytes.
#[derive(Clone, Debug)]
pub(crate) struct SimulatedDevice {
    state: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    memory: Simulated,
    held_by_others_bytes: usize,
    /// The granule at each mapped address.
    seen: BTreeMap<u64, Granule>,
    fault: Option<InjectedFault>,
    refusals_total: u64,
    completion: Completion,
    clocks: StreamClocks,
    uses: Uses,
    /// The bytes of each granule that exists.
    bytes: BTreeMap<Granule, Box<[u8]>>,
}

/// Completion of submitted work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Completion {
    /// At its submission.
    Immediate,
    /// By a call of [`SimulatedDevice::complete`].
    Manual,
}

#[derive(Debug)]
struct InjectedFault {
    calls_before: u64,
    refusal: Refusal,
}

impl SimulatedDevice {
    /// A device of `capacity_bytes` in granules of `granule_bytes`, a power of two, which are
    /// poisoned until they are written.
    pub(crate) fn new(capacity_bytes: usize, granule_bytes: usize, completion: Completion) -> Self {
        let state = State {
            memory: Simulated::new(capacity_bytes, granule_bytes),
            held_by_others_bytes: 0,
            seen: BTreeMap::new(),
            fault: None,
            refusals_total: 0,
            completion,
            clocks: StreamClocks::default(),
            uses: Uses::default(),
            bytes: BTreeMap::new(),
        };
        SimulatedDevice { state: Arc::new(Mutex::new(state)) }
    }

    /// Refuses the `nth` call from now on (1 is the next) among those that can be refused, once.
    /// `stop_faults` takes it back.
    pub(crate) fn fail_call(&self, nth: u64, refusal: Refusal) {
        assert!(nth > 0, "calls are counted from 1");
        self.state().fault = Some(InjectedFault { calls_before: nth - 1, refusal });
    }

    /// Refuses nothing any more; returns whether a refusal was still to come.
    pub(crate) fn stop_faults(&self) -> bool {
        self.state().fault.take().is_some()
    }

    /// Calls refused by `fail_call` so far.
    pub(crate) fn refusals_total(&self) -> u64 {
        self.state().refusals_total
    }

    /// Sets the bytes that other users of the device hold. Existing granules stay, even if the two
    /// together pass the capacity.
    pub(crate) fn set_held_by_others_bytes(&self, bytes: usize) {
        self.state().held_by_others_bytes = bytes;
    }

    /// Granules that exist.
    pub(crate) fn granules(&self) -> usize {
        self.state().bytes.len()
    }

    /// The granules behind a range of mapped bytes, in its order.
    pub(crate) fn granules_behind(&self, address: u64, bytes: usize) -> Vec<Granule> {
        self.state().pieces(address, bytes).into_iter().map(|(granule, ..)| granule).collect()
    }

    /// Submits work on a range of mapped bytes to a stream.
    ///
    /// # Panics
    /// If a byte of the range, through this or another address, was used by work on another stream
    /// that is not done and that this work is not ordered after: the memory was handed on too
    /// early.
    pub(crate) fn submit(&self, stream: StreamId, address: u64, bytes: usize) {
        let state = &mut *self.state();
        let ticket = state.clocks.submit(stream);
        for (granule, offset, len) in state.pieces(address, bytes) {
            let range = offset..offset + len;
            for before in state.uses.overlapping(granule, &range) {
                let in_order = state.clocks.runs_after(stream, before.stream, before.ticket);
                assert!(in_order, "{stream:?} uses {granule:?} {range:?}, and is not ordered after {before:?}");
            }
            if state.completion == Completion::Manual {
                state.uses.note(granule, range, Work { stream, ticket });
            }
        }
        if state.completion == Completion::Immediate {
            state.clocks.complete(stream);
        }
    }

    /// Completes the work submitted to a stream so far, and the work that it waited for.
    pub(crate) fn complete(&self, stream: StreamId) {
        self.state().clocks.complete(stream);
    }

    /// Writes bytes, at once.
    ///
    /// # Panics
    /// If nothing is mapped there.
    pub(crate) fn write(&self, address: u64, mut bytes: &[u8]) {
        let state = &mut *self.state();
        for (granule, offset, len) in state.pieces(address, bytes.len()) {
            let (head, tail) = bytes.split_at(len);
            let to = state.bytes.get_mut(&granule).expect("a mapped granule exists");
            to[offset..offset + len].copy_from_slice(head);
            bytes = tail;
        }
    }

    /// Reads bytes, at once.
    ///
    /// # Panics
    /// If nothing is mapped there.
    pub(crate) fn read(&self, address: u64, mut bytes: &mut [u8]) {
        let state = &*self.state();
        for (granule, offset, len) in state.pieces(address, bytes.len()) {
            let (head, tail) = bytes.split_at_mut(len);
            head.copy_from_slice(&state.bytes[&granule][offset..offset + len]);
            bytes = tail;
        }
    }

    /// The state, also after a panic of this or another test's assertion.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The state in a call that can be refused.
    fn call(&self) -> Result<MutexGuard<'_, State>, Refusal> {
        let mut state = self.state();
        match &mut state.fault {
            Some(InjectedFault { calls_before: 0, .. }) => {
                state.refusals_total += 1;
                Err(state.fault.take().expect("just seen").refusal)
            }
            Some(fault) => {
                fault.calls_before -= 1;
                Ok(state)
            }
            None => Ok(state),
        }
    }
}

impl Source for SimulatedDevice {
    fn name(&self) -> String {
        self.state().memory.name()
    }

    fn granule_bytes(&self) -> usize {
        self.state().memory.granule_bytes()
    }

    fn capacity_bytes(&self) -> usize {
        self.state().memory.capacity_bytes()
    }

    fn free_bytes(&mut self) -> Option<usize> {
        Some(self.state().free_bytes())
    }

    fn can_alias(&self) -> bool {
        true
    }

    fn reserve(&mut self, bytes: usize) -> Result<u64, Refusal> {
        self.call()?.memory.reserve(bytes)
    }

    fn release(&mut self, address: u64, bytes: usize) {
        self.state().memory.release(address, bytes);
    }

    fn create(&mut self) -> Result<Granule, Refusal> {
        let state = &mut *self.call()?;
        let granule_bytes = state.memory.granule_bytes();
        if state.free_bytes() < granule_bytes {
            return Err(Refusal::OutOfMemory);
        }
        let granule = state.memory.create()?;
        state.bytes.insert(granule, vec![POISON; granule_bytes].into());
        Ok(granule)
    }

    fn destroy(&mut self, granule: Granule) {
        let state = &mut *self.state();
        state.memory.destroy(granule);
        state.uses.forget(granule);
        state.bytes.remove(&granule);
    }

    fn map(&mut self, address: u64, granules: &[Granule]) -> Result<(), Refusal> {
        let state = &mut *self.call()?;
        state.memory.map(address, granules)?;
        let pages = (address..).step_by(state.memory.granule_bytes());
        state.seen.extend(pages.zip(granules.iter().copied()));
        Ok(())
    }

    fn unmap(&mut self, address: u64, bytes: usize) {
        let state = &mut *self.state();
        state.clocks.complete_all();
        state.memory.unmap(address, bytes);
        for page in (address..address + bytes as u64).step_by(state.memory.granule_bytes()) {
            state.seen.remove(&page);
        }
    }

    fn is_idle(&mut self, stream: StreamId) -> bool {
        self.state().clocks.is_idle(stream)
    }

    fn order(&mut self, waiting: StreamId, awaited: StreamId) -> Result<(), Refusal> {
        let state = &mut *self.call()?;
        state.memory.order(waiting, awaited)?;
        state.clocks.order(waiting, awaited);
        if state.completion == Completion::Immediate {
            state.clocks.complete(waiting);
        }
        Ok(())
    }

    fn synchronize(&mut self) -> Result<(), Refusal> {
        let state = &mut *self.call()?;
        state.memory.synchronize()?;
        state.clocks.complete_all();
        Ok(())
    }

    fn driver_calls(&self) -> u64 {
        self.state().memory.driver_calls()
    }
}

impl State {
    fn free_bytes(&self) -> usize {
        let held = self.bytes.len() * self.memory.granule_bytes();
        self.memory.capacity_bytes().saturating_sub(held).saturating_sub(self.held_by_others_bytes)
    }

    /// The pieces of any range of bytes, granule by granule: the granule, the offset in it and the
    /// length.
    ///
    /// # Panics
    /// If something in the range is not mapped.
    fn pieces(&self, address: u64, bytes: usize) -> Vec<(Granule, usize, usize)> {
        let (granule_bytes, end) = (self.memory.granule_bytes() as u64, address + bytes as u64);
        let pages = (address - address % granule_bytes..end).step_by(granule_bytes as usize);
        let piece = |page: u64| {
            let granule = self.seen.get(&page).unwrap_or_else(|| panic!("{page:#x} is used, but nothing is mapped"));
            let (from, to) = (address.max(page), end.min(page + granule_bytes));
            (*granule, (from - page) as usize, (to - from) as usize)
        };
        pages.map(piece).collect()
    }
}
