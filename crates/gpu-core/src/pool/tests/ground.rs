//! A source for the pool's tests that holds the contract of [`Source`] against the pool, keeps a
//! mark for every unit of memory, and fails on demand.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};

use super::super::UNIT_BYTES;
use crate::source::{Granule, Refusal, Source, StreamId};

/// A handle to a [`State`], which a test keeps while the pool has another.
#[derive(Clone, Debug)]
pub(super) struct Ground(Arc<Mutex<State>>);

#[derive(Debug)]
pub(super) struct State {
    granule_bytes: usize,
    /// Granules that the device has in total.
    granules: usize,
    pub(super) can_alias: bool,
    /// Granules that others hold.
    pub(super) held_by_others: usize,
    /// Streams with work to do.
    pub(super) busy: BTreeSet<StreamId>,
    /// Fails the call after so many that may fail.
    pub(super) fail_after: Option<u64>,
    /// By granule: how often it is mapped, and the marks of its units.
    memory: BTreeMap<u64, (usize, Vec<u64>)>,
    /// By address: the granule mapped there.
    mapped: BTreeMap<u64, u64>,
    reserved: BTreeMap<u64, usize>,
    address_next: u64,
    granule_next: u64,
    pub(super) calls: u64,
    pub(super) orders: Vec<(StreamId, StreamId)>,
}

impl Ground {
    pub(super) fn new(granules: usize, granule_bytes: usize) -> Self {
        Ground(Arc::new(Mutex::new(State {
            granule_bytes,
            granules,
            can_alias: true,
            held_by_others: 0,
            busy: BTreeSet::new(),
            fail_after: None,
            memory: BTreeMap::new(),
            mapped: BTreeMap::new(),
            reserved: BTreeMap::new(),
            address_next: 1 << 32,
            granule_next: 0,
            calls: 0,
            orders: Vec::new(),
        })))
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    /// Writes a mark to every unit of a range.
    pub(super) fn mark(&self, address: u64, bytes: usize, mark: u64) {
        let mut state = self.state();
        for unit_address in (address..address + bytes as u64).step_by(UNIT_BYTES) {
            *state.unit(unit_address) = mark;
        }
    }

    /// Asserts that every unit of a range bears the mark.
    pub(super) fn assert_marked(&self, address: u64, bytes: usize, mark: u64) {
        let mut state = self.state();
        for unit_address in (address..address + bytes as u64).step_by(UNIT_BYTES) {
            assert_eq!(*state.unit(unit_address), mark, "contents at {unit_address:#x}");
        }
    }

    /// The granules behind a range.
    pub(super) fn granules(&self, address: u64, bytes: usize) -> BTreeSet<u64> {
        let state = self.state();
        let granule_bytes = state.granule_bytes as u64;
        let first = address / granule_bytes * granule_bytes;
        (first..address + bytes as u64).step_by(state.granule_bytes).map(|page| state.mapped[&page]).collect()
    }
}

impl State {
    fn unit(&mut self, address: u64) -> &mut u64 {
        let offset = address % self.granule_bytes as u64;
        let granule = self.mapped[&(address - offset)];
        let (_, marks) = self.memory.get_mut(&granule).expect("what is mapped exists");
        &mut marks[offset as usize / UNIT_BYTES]
    }

    fn called(&mut self) {
        self.calls += 1;
    }

    fn may_fail(&mut self) -> Result<(), Refusal> {
        self.called();
        match &mut self.fail_after {
            Some(0) => {
                self.fail_after = None;
                Err(Refusal::Failed { call: "test", reason: "injected".to_owned() })
            }
            Some(calls) => {
                *calls -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }

    fn pages(&self, address: u64, bytes: usize) -> impl Iterator<Item = u64> + use<> {
        let granule_bytes = self.granule_bytes;
        assert!(address.is_multiple_of(granule_bytes as u64) && bytes.is_multiple_of(granule_bytes) && bytes > 0);
        let (&start, &len) = self.reserved.range(..=address).next_back().expect("the range is reserved");
        assert!(address + bytes as u64 <= start + len as u64, "the range is reserved");
        (address..address + bytes as u64).step_by(granule_bytes)
    }
}

impl Source for Ground {
    fn name(&self) -> String {
        "ground".to_owned()
    }

    fn granule_bytes(&self) -> usize {
        self.state().granule_bytes
    }

    fn capacity_bytes(&self) -> usize {
        let state = self.state();
        state.granules * state.granule_bytes
    }

    fn free_bytes(&mut self) -> Option<usize> {
        let state = self.state();
        Some((state.granules - state.held_by_others - state.memory.len()) * state.granule_bytes)
    }

    fn can_alias(&self) -> bool {
        self.state().can_alias
    }

    fn reserve(&mut self, bytes: usize) -> Result<u64, Refusal> {
        let mut state = self.state();
        state.may_fail()?;
        let address = state.address_next;
        state.address_next += (bytes + state.granule_bytes) as u64;
        state.reserved.insert(address, bytes);
        Ok(address)
    }

    fn release(&mut self, address: u64, bytes: usize) {
        let mut state = self.state();
        state.called();
        assert_eq!(state.reserved.remove(&address), Some(bytes));
        assert_eq!(state.mapped.range(address..address + bytes as u64).count(), 0, "nothing is mapped any more");
    }

    fn create(&mut self) -> Result<Granule, Refusal> {
        let mut state = self.state();
        state.may_fail()?;
        if state.memory.len() + state.held_by_others >= state.granules {
            return Err(Refusal::OutOfMemory);
        }
        state.granule_next += 1;
        let granule = state.granule_next;
        let marks = vec![0; state.granule_bytes / UNIT_BYTES];
        state.memory.insert(granule, (0, marks));
        Ok(Granule(granule))
    }

    fn destroy(&mut self, granule: Granule) {
        let mut state = self.state();
        state.called();
        let (mapped, _) = state.memory.remove(&granule.0).expect("a granule is destroyed once");
        assert_eq!(mapped, 0, "a granule that is destroyed is mapped nowhere");
    }

    fn map(&mut self, address: u64, granules: &[Granule]) -> Result<(), Refusal> {
        let mut state = self.state();
        state.may_fail()?;
        let pages = state.pages(address, granules.len() * state.granule_bytes);
        for (page, granule) in pages.zip(granules) {
            assert!(state.mapped.insert(page, granule.0).is_none(), "nothing was mapped there");
            state.memory.get_mut(&granule.0).expect("a granule that is mapped exists").0 += 1;
            assert!(state.can_alias || state.memory[&granule.0].0 == 1);
        }
        Ok(())
    }

    fn unmap(&mut self, address: u64, bytes: usize) {
        let mut state = self.state();
        state.called();
        for page in state.pages(address, bytes) {
            let granule = state.mapped.remove(&page).expect("what is unmapped was mapped");
            state.memory.get_mut(&granule).expect("what is mapped exists").0 -= 1;
        }
    }

    fn is_idle(&mut self, stream: StreamId) -> bool {
        !self.state().busy.contains(&stream)
    }

    fn order(&mut self, waiting: StreamId, awaited: StreamId) -> Result<(), Refusal> {
        let mut state = self.state();
        state.may_fail()?;
        state.orders.push((waiting, awaited));
        Ok(())
    }

    fn synchronize(&mut self) -> Result<(), Refusal> {
        let mut state = self.state();
        state.may_fail()?;
        state.busy.clear();
        Ok(())
    }

    fn driver_calls(&self) -> u64 {
        self.state().calls
    }
}
