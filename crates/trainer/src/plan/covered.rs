//! Windows and bars that batches cover, counted once where windows have them in common.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound::{Excluded, Unbounded};

/// Number of distinct windows, and of the bars that they cover.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Covered {
    pub(super) windows: usize,
    pub(super) bars: usize,
}

impl Covered {
    pub(super) fn plus(self, other: Self) -> Self {
        Covered { windows: self.windows + other.windows, bars: self.bars + other.bars }
    }

    fn minus(self, other: Self) -> Self {
        Covered { windows: self.windows - other.windows, bars: self.bars - other.bars }
    }

    pub(super) fn times(self, count: usize) -> Self {
        Covered { windows: self.windows * count, bars: self.bars * count }
    }

    pub(super) fn min(self, other: Self) -> Self {
        Covered { windows: self.windows.min(other.windows), bars: self.bars.min(other.bars) }
    }

    pub(super) fn max(self, other: Self) -> Self {
        Covered { windows: self.windows.max(other.windows), bars: self.bars.max(other.bars) }
    }
}

/// The most of any `len` consecutive windows, window by window.
#[derive(Clone, Debug)]
pub(super) struct MostCovered {
    steps: usize,
    pub(super) len: usize,
    last_end: Option<i64>,
    /// Additions of the last windows to those before them.
    added: VecDeque<Covered>,
    now: Covered,
    pub(super) most: Covered,
}

impl MostCovered {
    pub(super) fn new(steps: usize, len: usize) -> Self {
        let (now, most) = (Covered::default(), Covered::default());
        MostCovered { steps, len, last_end: None, added: VecDeque::new(), now, most }
    }

    /// Takes the next window, which ends at bar `end`.
    pub(super) fn push(&mut self, end: i64) {
        let alone = Covered { windows: 1, bars: self.steps };
        let Some(before) = self.last_end.replace(end) else {
            (self.now, self.most) = (alone, alone);
            return;
        };
        // A list that goes back covers what it covers once more. Ends in a file are not checked
        // yet.
        let adds = match end.saturating_sub(before) {
            0 => Covered::default(),
            gap if gap > 0 => Covered { windows: 1, bars: self.steps.min(gap as usize) },
            _ => alone,
        };
        self.now = self.now.plus(adds);
        self.added.push_back(adds);
        if self.added.len() >= self.len {
            let leaves = self.added.pop_front().expect("one was added");
            self.now = self.now.minus(leaves);
        }
        self.most = self.most.max(self.now);
    }
}

/// The most of the windows of any `len` consecutive graphs, graph by graph.
pub(super) struct MostCoveredByGraphs {
    steps: usize,
    pub(super) len: usize,
    /// Ends of the windows of the last graphs.
    graphs: VecDeque<Vec<i64>>,
    /// Number of these windows by their end.
    counts: BTreeMap<i64, usize>,
    now: Covered,
    pub(super) most: Covered,
}

impl MostCoveredByGraphs {
    pub(super) fn new(steps: usize, len: usize) -> Self {
        let (now, most) = (Covered::default(), Covered::default());
        MostCoveredByGraphs { steps, len, graphs: VecDeque::new(), counts: BTreeMap::new(), now, most }
    }

    /// Takes the next graph, whose windows have these `ends`.
    pub(super) fn push(&mut self, ends: Vec<i64>) {
        if self.graphs.len() == self.len {
            for end in self.graphs.pop_front().unwrap_or_default() {
                self.remove(end);
            }
        }
        for &end in &ends {
            let count = self.counts.entry(end).or_default();
            *count += 1;
            if *count == 1 {
                self.now = self.now.plus(self.covered_alone(end));
            }
        }
        self.graphs.push_back(ends);
        self.most = self.most.max(self.now);
    }

    fn remove(&mut self, end: i64) {
        let count = self.counts.get_mut(&end).expect("it was added");
        *count -= 1;
        if *count == 0 {
            self.counts.remove(&end);
            self.now = self.now.minus(self.covered_alone(end));
        }
    }

    /// Part of the window that ends at `end` which no other window covers.
    fn covered_alone(&self, end: i64) -> Covered {
        let before = self.counts.range(..end).next_back().map(|(&end, _)| end);
        let after = self.counts.range((Excluded(end), Unbounded)).next().map(|(&end, _)| end);
        let bars_between = |before: Option<i64>, after: i64| {
            before.map_or(self.steps, |before| self.steps.min(after.saturating_sub(before) as usize))
        };
        let bars_without = after.map_or(0, |after| bars_between(before, after));
        let bars_with = bars_between(before, end) + after.map_or(0, |after| bars_between(Some(end), after));
        Covered { windows: 1, bars: bars_with - bars_without }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    /// The most of any `len` consecutive windows of four bars, which end at `ends`.
    fn most(ends: &[i64], len: usize) -> Covered {
        let mut most = MostCovered::new(4, len);
        ends.iter().for_each(|&end| most.push(end));
        most.most
    }

    #[test]
    fn what_windows_have_in_common_is_counted_once() {
        let ends = [9, 9, 10, 14, 14, 30, 9];
        for (len, windows, bars) in [(1, 1, 4), (2, 2, 8), (3, 3, 12), (4, 3, 12), (5, 4, 16), (7, 5, 17), (9, 5, 17)] {
            assert_eq!(most(&ends, len), Covered { windows, bars }, "{len} at once");
        }
        assert_eq!(most(&[], 3), Covered::default());
        // Ends that no series has.
        assert_eq!(most(&[i64::MIN, i64::MAX, i64::MIN], 3), Covered { windows: 3, bars: 12 });
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// Windows of graphs in any order, bar by bar.
        #[test]
        fn windows_of_graphs_are_counted_to_the_bar(
            graphs in prop::collection::vec(prop::collection::vec(0i64..60, 1..6), 0..12),
            (len, steps) in (1usize..5, 1usize..9),
        ) {
            let mut counted = MostCoveredByGraphs::new(steps, len);
            graphs.iter().for_each(|ends| counted.push(ends.clone()));
            let mut most = Covered::default();
            for last in 0..graphs.len() {
                let ends: BTreeSet<i64> = graphs[(last + 1).saturating_sub(len)..=last].iter().flatten().copied().collect();
                let bars: BTreeSet<i64> = ends.iter().flat_map(|&end| end + 1 - steps as i64..=end).collect();
                most = Covered { windows: most.windows.max(ends.len()), bars: most.bars.max(bars.len()) };
            }
            prop_assert_eq!(counted.most, most);
        }
    }
}
