//! Close times of bars that lie apart, as those do at which samples of several instruments end that
//! take turns in time.

use std::ops::Range;

use super::columns::SeriesColumn;
use super::open::SeriesFile;
use crate::error::Result;

/// Bars between two that are read with them rather than passed over: a page of their times.
const GAP_MAX: usize = 512;

/// Ranges of bars, ascending and apart.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct BarRanges(Vec<Range<usize>>);

impl BarRanges {
    /// The bars that `ends` give, each with the one after it, of a timeframe of `bars`; ends that
    /// are no bars are left out.
    pub(super) fn around(ends: &[i64], bars: usize) -> Self {
        let bar = |&end: &i64| usize::try_from(end).ok().filter(|&end| end < bars);
        let mut ends: Vec<usize> = ends.iter().filter_map(bar).collect();
        ends.sort_unstable();
        let mut ranges: Vec<Range<usize>> = Vec::new();
        for end in ends {
            let after = bars.min(end + 2);
            match ranges.last_mut() {
                Some(last) if end <= last.end + GAP_MAX => last.end = after,
                _ => ranges.push(end..after),
            }
        }
        BarRanges(ranges)
    }

    /// Number of bars.
    pub(super) fn len(&self) -> usize {
        self.0.iter().map(ExactSizeIterator::len).sum()
    }
}

/// Close times of the bars of ranges.
pub(super) struct BarTimes {
    ranges: BarRanges,
    /// Place of the first time of each range.
    places: Vec<usize>,
    times: Vec<i64>,
}

impl BarTimes {
    /// The close time of a bar, if it is in a range.
    pub(super) fn at(&self, bar: usize) -> Option<i64> {
        let range = self.ranges.0.partition_point(|range| range.start <= bar).checked_sub(1)?;
        let place = self.places[range] + bar - self.ranges.0[range].start;
        self.ranges.0[range].contains(&bar).then(|| self.times[place])
    }
}

impl SeriesFile {
    /// Close times of `bars` of a timeframe, in any order, read from the file in few pieces.
    ///
    /// # Errors
    /// [`Error::Rows`](crate::Error::Rows).
    ///
    /// # Panics
    /// For a bar that the timeframe does not have.
    pub fn read_close_times(&self, timeframe: usize, bars: &[usize]) -> Result<Vec<i64>> {
        let places: Vec<i64> = bars.iter().map(|&bar| bar as i64).collect();
        let times = self.read_bar_times(timeframe, BarRanges::around(&places, self.bars(timeframe)))?;
        Ok(bars.iter().map(|&bar| times.at(bar).expect("a bar of the timeframe")).collect())
    }

    /// Reads close times of bars of a timeframe from the file.
    pub(super) fn read_bar_times(&self, k: usize, ranges: BarRanges) -> Result<BarTimes> {
        let mut times = vec![0; ranges.len()];
        let mut places = Vec::with_capacity(ranges.0.len());
        let mut place = 0;
        for range in &ranges.0 {
            places.push(place);
            let part = &mut times[place..place + range.len()];
            self.read_stored_column(SeriesColumn::CloseTime(k), range.clone(), part)?;
            place += range.len();
        }
        Ok(BarTimes { ranges, places, times })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_of_instruments_that_take_turns_are_read_once() {
        // Eight instruments of 100,000 bars; sample n ends at bar n / 8 of instrument n % 8.
        let ends: Vec<i64> = (4_000..12_000).map(|n| n % 8 * 100_000 + n / 8).collect();
        let ranges = BarRanges::around(&ends, 800_000);
        assert_eq!(ranges.0.len(), 8);
        assert_eq!((ranges.0[7].clone(), ranges.len()), (700_500..701_501, 8 * 1_001));
    }

    #[test]
    fn ranges_have_each_bar_and_the_next_and_pass_over_wide_gaps() {
        for (ends, bars, expected) in [
            (&[][..], 10, vec![]),
            (&[-1, 10, i64::MAX], 10, vec![]),
            (&[9, 3, 3], 10, vec![(3, 10)]),
            (&[0, 514], 2_000, vec![(0, 516)]),
            (&[515, 0, 1_999], 2_000, vec![(0, 2), (515, 517), (1_999, 2_000)]),
        ] {
            let found: Vec<_> = BarRanges::around(ends, bars).0.iter().map(|range| (range.start, range.end)).collect();
            assert_eq!(found, expected, "{ends:?}");
        }
    }

    #[test]
    fn times_are_those_of_their_bars() {
        let ranges = BarRanges(vec![3..5, 9..12]);
        let times = BarTimes { ranges, places: vec![0, 2], times: vec![30, 40, 90, 100, 110] };
        let found: Vec<Option<i64>> = (0..14).map(|bar| times.at(bar)).collect();
        for (bar, found) in found.into_iter().enumerate() {
            let expected = [3, 4, 9, 10, 11].contains(&bar).then_some(bar as i64 * 10);
            assert_eq!(found, expected, "{bar}");
        }
    }
}
