use std::collections::BTreeSet;
use std::ops::Range;

use super::{Granule, Refusal};

/// The granules of a source that numbers them from 0: which exist, and which still are as the
/// system gave them.
#[derive(Debug)]
pub(super) struct Granules {
    capacity: usize,
    /// State of each granule that ever existed.
    states: Vec<GranuleState>,
    destroyed: BTreeSet<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GranuleState {
    Destroyed,
    /// Every byte is zero, and nobody was given one to write.
    Fresh,
    Used,
}

impl Granules {
    pub(super) fn new(capacity: usize) -> Self {
        Granules { capacity, states: Vec::new(), destroyed: BTreeSet::new() }
    }

    pub(super) fn len(&self) -> usize {
        self.states.len() - self.destroyed.len()
    }

    /// A granule of zeros with the lowest free number: granules that are created one after another
    /// are neighbours.
    pub(super) fn create(&mut self) -> Result<Granule, Refusal> {
        if self.len() == self.capacity {
            return Err(Refusal::OutOfMemory);
        }
        let number = self.destroyed.pop_first().unwrap_or_else(|| {
            self.states.push(GranuleState::Destroyed);
            self.states.len() as u64 - 1
        });
        self.states[number as usize] = GranuleState::Fresh;
        Ok(Granule(number))
    }

    pub(super) fn destroy(&mut self, granule: Granule) {
        self.assert_exists(granule);
        self.states[granule.0 as usize] = GranuleState::Destroyed;
        self.destroyed.insert(granule.0);
    }

    /// Notes that a granule's bytes may differ from zero from now on; returns whether they could
    /// before.
    pub(super) fn claim(&mut self, granule: Granule) -> bool {
        self.assert_exists(granule);
        std::mem::replace(&mut self.states[granule.0 as usize], GranuleState::Used) == GranuleState::Used
    }

    pub(super) fn assert_exists(&self, granule: Granule) {
        let state = self.states.get(granule.0 as usize);
        assert!(state.is_some_and(|&state| state != GranuleState::Destroyed), "{granule:?} does not exist");
    }
}

/// Answer of [`Source::unclean`](super::Source::unclean) for a range that starts at `address` and
/// lies in these pieces of granules.
pub(super) fn unclean(
    granules: &mut Granules,
    pieces: impl Iterator<Item = (Granule, usize, usize)>,
    address: u64,
) -> Range<u64> {
    let mut start = address;
    let mut unclean: Option<Range<u64>> = None;
    for (granule, _, len) in pieces {
        let end = start + len as u64;
        if granules.claim(granule) {
            unclean = Some(unclean.map_or(start, |range| range.start)..end);
        }
        start = end;
    }
    unclean.unwrap_or(address..address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_reused_lowest_first() {
        let mut granules = Granules::new(3);
        for number in 0..3 {
            assert_eq!(granules.create(), Ok(Granule(number)));
        }
        assert_eq!(granules.create(), Err(Refusal::OutOfMemory));
        granules.destroy(Granule(2));
        granules.destroy(Granule(0));
        assert_eq!((granules.len(), granules.create()), (1, Ok(Granule(0))));
    }

    #[test]
    fn a_granule_is_fresh_until_it_is_claimed_and_again_when_created() {
        let mut granules = Granules::new(1);
        let granule = granules.create().unwrap();
        assert!(!granules.claim(granule));
        assert!(granules.claim(granule));
        granules.destroy(granule);
        let granule = granules.create().unwrap();
        assert!(!granules.claim(granule));
    }

    #[test]
    #[should_panic(expected = "Granule(0) does not exist")]
    fn a_granule_is_destroyed_once() {
        let mut granules = Granules::new(1);
        let granule = granules.create().unwrap();
        granules.destroy(granule);
        granules.destroy(granule);
    }
}
