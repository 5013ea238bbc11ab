//! Bars of two timeframes in one file.
//!
//! A longer bar has the time of the first short bar within it, and the close of the last. Taken for
//! a short bar, it would tell prices that are not known yet when that bar closes.

use super::RowSorter;
use crate::clean::spacing::{CHANCE_OF, MIXED};
use crate::error::{Error, Result};
use crate::time::timeframe::Timeframe;

/// Most pairs of rows that are kept as evidence.
const PAIRS_MAX: usize = 4_096;

/// Two different rows of one time.
#[derive(Clone, Copy)]
pub(super) struct RowPair {
    pub(super) open_time: i64,
    pub(super) rows: [usize; 2],
}

/// The first pairs of different rows of one time, as they were found.
#[derive(Default)]
pub(super) struct RowPairs(Vec<RowPair>);

impl RowPairs {
    pub(super) fn push(&mut self, pair: RowPair) {
        if self.0.len() < PAIRS_MAX {
            self.0.push(pair);
        }
    }
}

impl RowSorter<'_> {
    /// An error where repeated times are those of a longer timeframe, and one of the two rows
    /// closes as the longer bar would.
    pub(super) fn refuse_two_timeframes(&self) -> Result<()> {
        let base = self.clock.base;
        let longer = MIXED.into_iter().rev().filter(|longer| *longer > base && longer.is_multiple_of(base));
        for longer in longer {
            let bins = longer.duration_ns() / base.duration_ns();
            let opening = || self.pairs.0.iter().filter(|pair| self.opens_a_bin(pair, longer));
            let (count, by_chance) = (opening().count(), CHANCE_OF.ln() / (bins as f64).ln());
            // A day's repeated times, such as those of a moved clock, are hardly all at its hours.
            if (count as f64) < by_chance || 10 * count < 9 * self.pairs.0.len() {
                continue;
            }
            let closing: Vec<bool> = opening().filter_map(|pair| self.closes_as(pair, longer)).collect();
            let as_longer = closing.iter().filter(|as_longer| **as_longer).count();
            if as_longer as f64 >= by_chance && 2 * as_longer > closing.len() {
                let lines = opening().flat_map(|pair| pair.rows).map(|row| self.rows.get(row).line);
                let line = lines.min().unwrap_or_default();
                return Err(Error::TwoTimeframes {
                    path: self.ledger.path().to_owned(),
                    line,
                    base,
                    longer,
                    rows: count,
                });
            }
        }
        Ok(())
    }

    /// True if a bar of the longer timeframe begins at the pair's time, by the clock of the file.
    fn opens_a_bin(&self, pair: &RowPair, longer: Timeframe) -> bool {
        let ns = self.rows.stamp(pair.rows[0]).ns() - self.clock.stamp_delay_ns;
        longer.bin(ns).start == ns
    }

    /// True if the wider row of the pair closes as the last bar does that the longer bar would
    /// hold; `None` without further bars in it.
    fn closes_as(&self, pair: &RowPair, longer: Timeframe) -> Option<bool> {
        let end = self.placed.before(pair.open_time + longer.duration_ns());
        let last = self.placed.get(end.checked_sub(1)?);
        if last.open_time <= pair.open_time {
            return None;
        }
        let [one, other] = pair.rows.map(|row| self.rows.get(row));
        let wider = if one.high - one.low >= other.high - other.low { one } else { other };
        Some(wider.close == self.rows.get(last.row).close)
    }
}
