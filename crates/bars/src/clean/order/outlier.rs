//! Rows whose times leave the order of those around them.

use super::RowSorter;
use super::placed::PlacedRow;
use crate::error::Result;
use crate::error::row_error::RowError;
use crate::parse::row::RowFault;
use crate::time::timestamp::{DAY_NS, RowTime, display_utc};
use crate::time::zone::Occurrence;

/// Most rows in a stretch of outliers; it bounds the look-ahead at each late row.
const OUTLIER_ROWS_MAX: usize = 8;
/// A row that is sorted in must be this close to another bar: no market pauses longer, and a wrong
/// date is usually farther off.
const SORTED_IN_NS_MAX: i64 = 7 * DAY_NS;

impl RowSorter<'_> {
    /// Takes the last bars out if the rows go on before them, so that more rows would be late than
    /// are taken out. Returns true if it did.
    pub(super) fn take_out_outliers(&mut self, open_time: i64, index: usize) -> Result<bool> {
        let kept = match self.bar_at(open_time) {
            Err(kept) if self.placed.len() - kept <= OUTLIER_ROWS_MAX => kept,
            _ => return Ok(false),
        };
        let last = self.placed.last().map_or(open_time, |last| last.open_time);
        let mut before = open_time;
        let is_next = |next: &i64| std::mem::replace(&mut before, *next) < *next && *next <= last;
        let count = self.placed.len() - kept;
        let opens = (index + 1..self.rows.len()).map(|next| self.first_open_time(next));
        if opens.take(count).take_while(is_next).count() < count {
            return Ok(false);
        }
        let outlier = self.placed.split_off(kept);
        if self.ledger.repairs() {
            self.deferred.extend(outlier);
            return Ok(true);
        }
        outlier.into_iter().try_for_each(|found| self.refuse(found.row, left_order(found.open_time, open_time)))?;
        Ok(true)
    }

    /// Open time of a row's bar; of a repeated time, the first.
    fn first_open_time(&self, index: usize) -> i64 {
        if let Some(open_time) = self.clock.session_open(self.rows.stamp(index)) {
            return open_time;
        }
        let utc_ns = match self.rows.stamp(index) {
            RowTime::Utc(ns) => ns,
            RowTime::Wall(ns) => match self.clock.zone.occurrence(ns) {
                Occurrence::Once(ns) | Occurrence::Twice(ns, _) | Occurrence::Never { unmoved: ns } => ns,
            },
        };
        utc_ns - self.clock.stamp_delay_ns
    }

    /// Drops small groups of sorted rows that are far from every bar.
    pub(super) fn without_far_ones(&mut self, deferred: &[PlacedRow]) -> Result<Vec<PlacedRow>> {
        let mut near = Vec::with_capacity(deferred.len());
        for together in deferred.chunk_by(|one, next| next.open_time - one.open_time <= SORTED_IN_NS_MAX) {
            if together.len() > OUTLIER_ROWS_MAX || together.iter().any(|late| self.is_near_a_bar(late.open_time)) {
                near.extend_from_slice(together);
                continue;
            }
            together.iter().try_for_each(|late| self.refuse(late.row, far_from_all(late.open_time)))?;
        }
        Ok(near)
    }

    fn is_near_a_bar(&self, open_time: i64) -> bool {
        let after = self.placed.before(open_time - SORTED_IN_NS_MAX);
        after < self.placed.len() && self.placed.get(after).open_time <= open_time + SORTED_IN_NS_MAX
    }
}

fn left_order(found: i64, next: i64) -> RowFault {
    let (found, next) = (display_utc(found), display_utc(next));
    let expected =
        format!("a bar that opens before {next}, with which the rows go on (this one would open at {found})");
    RowFault { kind: RowError::Outlier, expected }
}

fn far_from_all(found: i64) -> RowFault {
    let expected = format!("a bar within a week of another (this one would open at {})", display_utc(found));
    RowFault { kind: RowError::Outlier, expected }
}
