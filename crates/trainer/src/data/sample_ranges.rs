//! Indices of samples as runs of consecutive ones.

use std::fmt;
use std::ops::Range;

/// Indices of samples, or graphs, in an order. Consecutive ones are one run of 16 bytes, so that
/// memory grows with runs and not with samples: a part of a split by time has about one run an
/// instrument.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct SampleRanges {
    /// Runs. None is empty, and none begins where the one before it ends.
    runs: Vec<RunStart>,
    len: usize,
}

/// Beginning of a run, which ends where the next one begins.
#[derive(Clone, Copy, PartialEq, Eq)]
struct RunStart {
    /// First sample.
    sample: usize,
    /// Samples of the runs before.
    position: usize,
}

impl SampleRanges {
    /// No samples.
    pub const NONE: &'static SampleRanges = &SampleRanges { runs: Vec::new(), len: 0 };

    /// Number of samples.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The runs, none of which is empty.
    pub fn runs(&self) -> impl DoubleEndedIterator<Item = Range<usize>> + ExactSizeIterator + Clone + '_ {
        (0..self.runs.len()).map(|k| self.run(k))
    }

    /// The samples, one by one.
    pub fn iter(&self) -> impl Iterator<Item = usize> + Clone + '_ {
        self.runs().flatten()
    }

    /// The sample at `position`, found by binary search among the runs.
    ///
    /// # Panics
    /// If the position is not below the number of samples.
    pub fn sample_at(&self, position: usize) -> usize {
        assert!(position < self.len, "position {position} of {}", self.len);
        let run = self.runs[self.run_at(position)];
        run.sample + (position - run.position)
    }

    /// The first sample.
    pub fn first(&self) -> Option<usize> {
        self.runs.first().map(|run| run.sample)
    }

    /// The last sample.
    pub fn last(&self) -> Option<usize> {
        self.runs().next_back().map(|run| run.end - 1)
    }

    /// The samples at these positions.
    ///
    /// # Panics
    /// If the positions end after the last sample.
    pub fn slice(&self, positions: Range<usize>) -> Self {
        assert!(positions.end <= self.len, "positions to {} of {}", positions.end, self.len);
        if positions.is_empty() {
            return SampleRanges::default();
        }
        let runs = (self.run_at(positions.start)..=self.run_at(positions.end - 1)).map(|k| {
            let (run, before) = (self.run(k), self.runs[k].position);
            let first = run.start + positions.start.saturating_sub(before);
            first..run.end.min(run.start + (positions.end - before))
        });
        runs.collect()
    }

    /// Pieces of `size` samples, the last one of the rest.
    ///
    /// # Panics
    /// If the size is 0.
    pub fn chunks(&self, size: usize) -> impl ExactSizeIterator<Item = Self> + '_ {
        let positions = (0..self.len).step_by(size);
        positions.map(move |first| self.slice(first..self.len.min(first.saturating_add(size))))
    }

    /// Iterator state before the first sample.
    pub(crate) fn remaining(&self) -> Remaining<'_> {
        Remaining { samples: self, taken: 0 }
    }

    /// Appends a run.
    pub(crate) fn push(&mut self, run: Range<usize>) {
        if run.is_empty() {
            return;
        }
        if self.last().is_none_or(|last| last + 1 != run.start) {
            self.runs.push(RunStart { sample: run.start, position: self.len });
        }
        self.len += run.len();
    }

    fn run(&self, k: usize) -> Range<usize> {
        let RunStart { sample, position } = self.runs[k];
        let end = self.runs.get(k + 1).map_or(self.len, |next| next.position);
        sample..sample + (end - position)
    }

    /// The run that has `position`.
    fn run_at(&self, position: usize) -> usize {
        self.runs.partition_point(|run| run.position <= position) - 1
    }
}

/// Samples that are taken piece by piece.
pub(crate) struct Remaining<'a> {
    samples: &'a SampleRanges,
    taken: usize,
}

impl Remaining<'_> {
    /// Number of samples taken so far.
    pub(crate) fn taken(&self) -> usize {
        self.taken
    }

    /// The next `count` samples, or the rest.
    pub(crate) fn take(&mut self, count: usize) -> SampleRanges {
        let first = self.taken;
        self.taken = self.samples.len().min(first.saturating_add(count));
        self.samples.slice(first..self.taken)
    }
}

impl fmt::Debug for SampleRanges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.runs()).finish()
    }
}

impl From<Range<usize>> for SampleRanges {
    fn from(run: Range<usize>) -> Self {
        SampleRanges::from_iter([run])
    }
}

impl Extend<Range<usize>> for SampleRanges {
    fn extend<I: IntoIterator<Item = Range<usize>>>(&mut self, runs: I) {
        runs.into_iter().for_each(|run| self.push(run));
    }
}

impl Extend<usize> for SampleRanges {
    fn extend<I: IntoIterator<Item = usize>>(&mut self, samples: I) {
        samples.into_iter().for_each(|sample| self.push(sample..sample + 1));
    }
}

impl<T> FromIterator<T> for SampleRanges
where
    SampleRanges: Extend<T>,
{
    fn from_iter<I: IntoIterator<Item = T>>(samples: I) -> Self {
        let mut ranges = SampleRanges::default();
        ranges.extend(samples);
        ranges
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Lists with runs, in no order, and some samples more than once.
    fn lists() -> impl Strategy<Value = Vec<usize>> {
        let runs = prop::collection::vec((0_usize..60, 0_usize..12), 0..12);
        runs.prop_map(|runs| runs.into_iter().flat_map(|(first, len)| first..first + len).collect())
    }

    #[test]
    fn consecutive_samples_are_one_run() {
        let ranges = SampleRanges::from_iter([3..3, 0..4, 4..5, 7..9, 2..3, 3..4]);
        assert_eq!(format!("{ranges:?}"), "[0..5, 7..9, 2..4]");
        assert_eq!((ranges.len(), ranges.first(), ranges.last()), (9, Some(0), Some(3)));
        assert_eq!(ranges, [0, 1, 2, 3, 4, 7, 8, 2, 3].into_iter().collect());
        let all = SampleRanges::from(0..usize::MAX);
        assert_eq!((all.len(), all.runs().len(), all.sample_at(usize::MAX - 1)), (usize::MAX, 1, usize::MAX - 1));
        assert_eq!((&SampleRanges::from(5..5), SampleRanges::NONE.last()), (SampleRanges::NONE, None));
    }

    proptest! {
        #[test]
        fn ranges_are_as_the_list(
            list in lists(), bounds in any::<[prop::sample::Index; 2]>(), size in 1_usize..20,
        ) {
            let ranges: SampleRanges = list.iter().copied().collect();
            let vec = |ranges: &SampleRanges| ranges.iter().collect::<Vec<_>>();
            prop_assert_eq!((ranges.len(), ranges.is_empty()), (list.len(), list.is_empty()));
            prop_assert_eq!(vec(&ranges), list.clone());
            prop_assert_eq!((0..list.len()).map(|position| ranges.sample_at(position)).collect::<Vec<_>>(), list.clone());
            prop_assert_eq!((ranges.first(), ranges.last()), (list.first().copied(), list.last().copied()));
            let runs: Vec<_> = ranges.runs().collect();
            prop_assert!(runs.iter().all(|run| !run.is_empty()), "{:?}", runs);
            prop_assert!(runs.windows(2).all(|pair| pair[0].end != pair[1].start), "{:?}", runs);
            let [a, b] = bounds.map(|bound| bound.index(list.len() + 1));
            let slice = ranges.slice(a.min(b)..a.max(b));
            prop_assert_eq!(&slice, &list[a.min(b)..a.max(b)].iter().copied().collect());
            let pieces: Vec<Vec<usize>> = ranges.chunks(size).map(|piece| vec(&piece)).collect();
            prop_assert_eq!(pieces, list.chunks(size).map(<[usize]>::to_vec).collect::<Vec<_>>());
        }
    }
}
