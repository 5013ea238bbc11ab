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
    /// When the earliest bar opens that the features of each read.
    open_time: Vec<i64>,
    /// When the last bar has been the last for as long as any before it.
    overdue_time: i64,
}

impl ContextReach {
    /// Reach of bars of `symbol` that close at `close_time`, in order: the features of each read no
    /// bar that opens before its `open_time`.
    ///
    /// # Panics
    /// When the lists are not of the same length.
    pub fn new(symbol: String, close_time: Vec<i64>, open_time: Vec<i64>) -> Self {
        assert_eq!(close_time.len(), open_time.len(), "each bar has both times");
        let longest_wait = close_time.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or(0);
        let overdue_time = close_time.last().map_or(i64::MAX, |last| last + longest_wait);
        ContextReach { symbol, close_time, open_time, overdue_time }
    }

    /// Its name.
    pub fn symbol(&self) -> &str {
        &self.symbol
    }

    /// When its last bar closes; `None` without bars.
    pub fn last_close_time(&self) -> Option<i64> {
        self.close_time.last().copied()
    }

    /// The longest time that a window reaches back by its features from the close of its first bar.
    pub fn longest_ns(&self) -> i64 {
        let until = self.close_time.iter().skip(1).chain([&self.overdue_time]);
        // The only bar counts nowhere.
        let bars = self.close_time.iter().zip(until).zip(&self.open_time);
        let counted = bars.filter(|((close, until), _)| close < until);
        counted.map(|((_, until), open_time)| until - open_time).max().unwrap_or(0)
    }

    /// When the earliest bar opens that the features seen at `time` read; `None` before the first
    /// bar closes, and where the next one is overdue.
    pub(crate) fn open_time(&self, time: i64) -> Option<i64> {
        let closed = self.close_time.partition_point(|&close_time| close_time <= time);
        closed.checked_sub(1).filter(|_| time < self.overdue_time).map(|last| self.open_time[last])
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
    fn few_bars_reach_nowhere() {
        assert_eq!([reach(&[]), reach(&[(0, 10)])].map(|own| own.open_time(10)), [None, None]);
        assert_eq!((reach(&[]).longest_ns(), reach(&[]).last_close_time()), (0, None));
        // All samples have the values of the one bar.
        assert_eq!((reach(&[(0, 10)]).longest_ns(), reach(&[(0, 10)]).last_close_time()), (0, Some(10)));
    }
}
