//! Bars and times without trade.

use std::ops::Range;

use crate::parse::row::BarRow;
use crate::time::timestamp::RowTime;

/// Stretches of time, on the clock of a file, that fillers of a closed market take.
#[derive(Clone, Debug, Default)]
pub(crate) struct QuietTimes(Vec<Range<i64>>);

impl QuietTimes {
    /// Stretches in any order.
    pub(crate) fn new(mut stretches: Vec<Range<i64>>) -> Self {
        stretches.sort_unstable_by_key(|stretch| (stretch.start, stretch.end));
        stretches.dedup_by(|next, last| {
            let overlaps = next.start <= last.end;
            if overlaps {
                last.end = last.end.max(next.end);
            }
            overlaps
        });
        QuietTimes(stretches)
    }

    /// True if a row of that time shows nothing about the hours of trade.
    pub(crate) fn contains(&self, stamp: RowTime) -> bool {
        let after = self.0.partition_point(|stretch| stretch.start <= stamp.ns());
        after.checked_sub(1).is_some_and(|place| self.0[place].contains(&stamp.ns()))
    }
}

impl BarRow {
    /// True for a flat bar without volume.
    pub(crate) fn is_quiet(&self) -> bool {
        self.volume == 0.0 && [self.open, self.low, self.close].iter().all(|price| *price == self.high)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stretches_may_come_in_any_order_and_overlap() {
        let quiet = QuietTimes::new(vec![10..12, 1..3, 2..5, 3..4]);
        let found: Vec<i64> = (0..13).filter(|&ns| quiet.contains(RowTime::Wall(ns))).collect();
        assert_eq!(found, [1, 2, 3, 4, 10, 11]);
    }
}
