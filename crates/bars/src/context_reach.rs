//! How far back the features of other instruments look.

/// Reach of the features of another instrument in one timeframe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContextReach {
    /// When each of its bars closes, in order.
    close_time: Vec<i64>,
    /// When the earliest bar opens that the features of each read.
    open_time: Vec<i64>,
}

impl ContextReach {
    /// Reach of bars that close at `close_time`, in order: the features of each read no bar that
    /// opens before its `open_time`.
    ///
    /// # Panics
    /// When the lists are not of the same length.
    pub fn new(close_time: Vec<i64>, open_time: Vec<i64>) -> Self {
        assert_eq!(close_time.len(), open_time.len(), "each bar has both times");
        ContextReach { close_time, open_time }
    }

    /// When the earliest bar opens that the features seen at `time` read; `None` before the first
    /// bar closes.
    pub(crate) fn open_time(&self, time: i64) -> Option<i64> {
        let closed = self.close_time.partition_point(|&close_time| close_time <= time);
        closed.checked_sub(1).map(|last| self.open_time[last])
    }
}
