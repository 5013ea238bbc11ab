use std::collections::BTreeMap;
use std::ops::Range;

/// A set of addresses, kept as ranges that neither overlap nor touch.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Intervals(BTreeMap<u64, u64>);

impl Intervals {
    /// The ranges in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = Range<u64>> {
        self.0.iter().map(|(&start, &end)| start..end)
    }

    pub(super) fn add(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let touching: Vec<Range<u64>> = self.touching(range.start, range.end).collect();
        let mut whole = range;
        for old in touching {
            self.0.remove(&old.start);
            whole = whole.start.min(old.start)..whole.end.max(old.end);
        }
        self.0.insert(whole.start, whole.end);
    }

    pub(super) fn remove(&mut self, range: &Range<u64>) {
        let cut: Vec<Range<u64>> = self.touching(range.start, range.end).collect();
        for old in cut {
            self.0.remove(&old.start);
            self.add(old.start..old.end.min(range.start));
            self.add(old.start.max(range.end)..old.end);
        }
    }

    /// The parts of `range` that are in the set.
    pub(super) fn overlap(&self, range: &Range<u64>) -> Vec<Range<u64>> {
        let parts = self.touching(range.start, range.end).map(|old| old.start.max(range.start)..old.end.min(range.end));
        parts.filter(|part| !part.is_empty()).collect()
    }

    /// The parts of `range` that are not in the set.
    pub(super) fn missing(&self, range: &Range<u64>) -> Vec<Range<u64>> {
        let mut rest = Intervals::default();
        rest.add(range.clone());
        self.overlap(range).iter().for_each(|part| rest.remove(part));
        rest.iter().collect()
    }

    /// The ranges that overlap or touch `start..end`.
    fn touching(&self, start: u64, end: u64) -> impl Iterator<Item = Range<u64>> {
        let before = self.0.range(..start).next_back().filter(|(_, old_end)| **old_end >= start);
        let after = if start <= end { Some(self.0.range(start..=end)) } else { None };
        before.into_iter().chain(after.into_iter().flatten()).map(|(&start, &end)| start..end)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Ranges behave as the set of their addresses does.
        #[test]
        fn ranges_agree_with_a_set_of_addresses(
            changes in prop::collection::vec((0u64..40, 0u64..10, any::<bool>()), 0..30),
            (start, len) in (0u64..40, 0u64..10),
        ) {
            let (mut ranges, mut set) = (Intervals::default(), BTreeSet::new());
            for (start, len, added) in changes {
                let range = start..start + len;
                if added {
                    ranges.add(range.clone());
                    set.extend(range);
                } else {
                    ranges.remove(&range);
                    set.retain(|address| !range.contains(address));
                }
                prop_assert_eq!(ranges.iter().flatten().collect::<BTreeSet<_>>(), set.clone());
                let all: Vec<_> = ranges.iter().collect();
                prop_assert!(all.windows(2).all(|pair| pair[0].end < pair[1].start));
            }
            let asked = start..start + len;
            let (inside, outside): (Vec<u64>, Vec<u64>) = asked.clone().partition(|address| set.contains(address));
            prop_assert_eq!(ranges.overlap(&asked).into_iter().flatten().collect::<Vec<_>>(), inside);
            prop_assert_eq!(ranges.missing(&asked).into_iter().flatten().collect::<Vec<_>>(), outside);
        }
    }
}
