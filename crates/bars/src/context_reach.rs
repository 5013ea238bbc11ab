//! How far back the features of other instruments look.

/// Reach of the features of another instrument in one timeframe.
///
/// A sample reaches back to the bars that the features of the last closed bar read, however old it
/// is. Only the last bar of all ceases to count once the next one is overdue: every sample from
/// there on has its values, and a constant tells nothing of the labels of one part to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContextReach {
    symbol: String,
    /// When each of its bars closes, in order.
    close_time: Vec<i64>,
    /// When each of them opens.
    open_time: Vec<i64>,
    /// Bars before their own that the features of a bar read.
    warm_up: usize,
    /// When the last bar has been the last for as long as any before it.
    overdue_time: i64,
}

impl ContextReach {
    /// Reach of bars of `symbol` that close at `close_time`, in order: the features of each read
    /// that bar alone, which opens at its `open_time`.
    ///
    /// # Panics
    /// When the lists are not of the same length.
    pub fn new(symbol: String, close_time: Vec<i64>, open_time: Vec<i64>) -> Self {
        assert_eq!(close_time.len(), open_time.len(), "each bar has both times");
        let longest_wait = close_time.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or(0);
        let overdue_time = close_time.last().map_or(i64::MAX, |last| last + longest_wait);
        ContextReach { symbol, close_time, open_time, warm_up: 0, overdue_time }
    }

    /// The features of each bar read `warm_up` bars before it too, and have no value without them.
    pub fn with_warm_up(self, warm_up: usize) -> Self {
        ContextReach { warm_up, ..self }
    }

    /// Its name.
    pub fn symbol(&self) -> &str {
        &self.symbol
    }

    /// When its last bar closes; `None` without bars.
    pub fn last_close_time(&self) -> Option<i64> {
        self.close_time.last().copied()
    }

    /// When its first bar opens; `None` without bars.
    pub fn first_open_time(&self) -> Option<i64> {
        self.open_time.first().copied()
    }

    /// True if a bar closes at `time`.
    pub fn closes_at(&self, time: i64) -> bool {
        self.close_time.binary_search(&time).is_ok()
    }

    /// Number of bars up to and with the first one that has features.
    pub fn bars_needed(&self) -> usize {
        self.warm_up + 1
    }

    /// Number of bars that close by `time`.
    pub fn bars_until(&self, time: i64) -> usize {
        self.close_time.partition_point(|&close_time| close_time <= time)
    }

    /// The longest time that a window reaches back by its features from the close of its first bar.
    pub fn longest_ns(&self) -> i64 {
        let until = self.close_time.iter().skip(1).chain([&self.overdue_time]);
        // The only bar counts nowhere.
        let bars = self.close_time.iter().zip(until).enumerate();
        let counted = bars.filter(|(_, (close, until))| close < until);
        counted.map(|(bar, (_, until))| until - self.earliest(bar)).max().unwrap_or(0)
    }

    /// When the earliest bar opens that the features seen at `time` read; `None` before the first
    /// bar closes, and where the next one is overdue.
    pub(crate) fn open_time(&self, time: i64) -> Option<i64> {
        self.bars_until(time).checked_sub(1).filter(|_| time < self.overdue_time).map(|last| self.earliest(last))
    }

    /// When the earliest bar opens that the features of `bar` read.
    fn earliest(&self, bar: usize) -> i64 {
        self.open_time[bar.saturating_sub(self.warm_up)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reach(bars: &[(i64, i64)]) -> ContextReach {
        let (open_time, close_time) = bars.iter().copied().unzip();
        ContextReach::new("DXY".to_owned(), close_time, open_time)
    }

    /// One that ended in training left no sample to validation.
    #[test]
    fn the_last_bar_counts_until_the_next_is_overdue() {
        // The longest wait is for the bar that closes at 50.
        let found = reach(&[(0, 10), (10, 20), (20, 50), (50, 60)]);
        for (time, open_time) in
            [(9, None), (10, Some(0)), (49, Some(10)), (50, Some(20)), (89, Some(50)), (90, None), (999, None)]
        {
            assert_eq!(found.open_time(time), open_time, "{time}");
        }
        assert_eq!((found.longest_ns(), found.last_close_time()), (40, Some(60)));
    }

    #[test]
    fn a_warm_up_reaches_to_bars_before() {
        let found = reach(&[(0, 10), (10, 20), (20, 50), (50, 60)]).with_warm_up(2);
        for (time, open_time) in [(10, Some(0)), (20, Some(0)), (50, Some(0)), (60, Some(10))] {
            assert_eq!(found.open_time(time), open_time, "{time}");
        }
        assert_eq!((found.longest_ns(), found.bars_needed()), (80, 3));
        assert_eq!((found.first_open_time(), found.closes_at(20), found.closes_at(21)), (Some(0), true, false));
        assert_eq!([9, 10, 59, 60, 90].map(|time| found.bars_until(time)), [0, 1, 3, 4, 4]);
    }

    #[test]
    fn few_bars_reach_nowhere() {
        assert_eq!([reach(&[]), reach(&[(0, 10)])].map(|own| own.open_time(10)), [None, None]);
        assert_eq!((reach(&[]).longest_ns(), reach(&[]).last_close_time()), (0, None));
        // All samples have the values of the one bar.
        assert_eq!((reach(&[(0, 10)]).longest_ns(), reach(&[(0, 10)]).last_close_time()), (0, Some(10)));
    }
}
