//! Counts of events in a series of bars.

use std::fmt;

use crate::time::timestamp::display_utc;

/// Count of an event in a series of bars, and its first occurrence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct EventCount {
    /// Count.
    pub count: u64,
    /// Open time of the first such bar, in nanoseconds since 1970 UTC.
    pub first: Option<i64>,
}

impl EventCount {
    pub(crate) fn add(&mut self, open_time: i64) {
        self.count += 1;
        self.first.get_or_insert(open_time);
    }
}

impl fmt::Display for EventCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.count)?;
        self.first.map_or(Ok(()), |first| write!(f, " (first at {})", display_utc(first)))
    }
}
