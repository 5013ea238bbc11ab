//! The rows of one file, in memory or in a temporary file.

use std::ops::Range;

use crate::error::Result;
use crate::parse::row::{BarRow, RowAdjustment};
use crate::spill::{SpillFile, Spilled};
use crate::time::timestamp::RowTime;

/// Words of a row without adjustment: stamp, line and kind of stamp, five numbers and the spread.
const WORDS: usize = 8;
const ADJUSTED_WORDS: usize = WORDS + 3;

/// Rows in the order of the file, or backward.
#[derive(Debug)]
pub(crate) struct RowStore {
    records: Spilled,
    words: usize,
    is_backward: bool,
}

impl RowStore {
    /// No rows. They spill into `file` where there is one; only those of adjusted prices keep their
    /// adjustment.
    pub(crate) fn new(file: Option<SpillFile>, are_adjusted: bool) -> Self {
        let words = if are_adjusted { ADJUSTED_WORDS } else { WORDS };
        RowStore { records: Spilled::new(words, file), words, is_backward: false }
    }

    pub(crate) fn len(&self) -> usize {
        self.records.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn push(&mut self, row: &BarRow) -> Result<()> {
        self.records.push(&to_words(row)[..self.words])
    }

    /// Row `index`.
    ///
    /// # Panics
    /// When there is no such row.
    pub(crate) fn get(&self, index: usize) -> BarRow {
        self.records.with(self.place(index), from_words)
    }

    pub(crate) fn stamp(&self, index: usize) -> RowTime {
        self.records.with(self.place(index), stamp_of)
    }

    fn place(&self, index: usize) -> usize {
        if self.is_backward { self.len() - 1 - index } else { index }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = BarRow> {
        (0..self.len()).map(|index| self.get(index))
    }

    pub(crate) fn stamps(&self) -> impl Iterator<Item = RowTime> {
        (0..self.len()).map(|index| self.stamp(index))
    }

    /// Gives every row, one after the other, to `change`.
    pub(crate) fn update(&mut self, mut change: impl FnMut(&mut BarRow)) -> Result<()> {
        for index in 0..self.len() {
            let before = self.get(index);
            let mut row = before;
            change(&mut row);
            if row != before {
                self.records.set(self.place(index), &to_words(&row)[..self.words])?;
            }
        }
        self.check()
    }

    /// The rows but those of some ranges, which are in order and apart.
    pub(crate) fn without(&self, dropped: &[Range<usize>]) -> Result<RowStore> {
        let mut kept = RowStore { records: self.records.empty_like(), words: self.words, is_backward: false };
        let mut next = 0;
        for range in dropped {
            (next..range.start).try_for_each(|index| kept.push(&self.get(index)))?;
            next = range.end;
        }
        (next..self.len()).try_for_each(|index| kept.push(&self.get(index)))?;
        self.check()?;
        Ok(kept)
    }

    /// Gives memory back: the rows are complete.
    pub(crate) fn seal(&mut self) -> Result<()> {
        self.records.seal()
    }

    /// Turns the order of the rows round.
    pub(crate) fn reverse(&mut self) {
        self.is_backward = !self.is_backward;
    }

    /// An error where some row could not be read from the temporary file.
    pub(crate) fn check(&self) -> Result<()> {
        self.records.check()
    }
}

fn to_words(row: &BarRow) -> [u64; ADJUSTED_WORDS] {
    let (ns, is_utc) = match row.stamp {
        RowTime::Utc(ns) => (ns, 1),
        RowTime::Wall(ns) => (ns, 0),
    };
    let RowAdjustment { factor, split, dividend } = row.event;
    let numbers = [row.open, row.high, row.low, row.close, row.volume, row.spread, factor, split, dividend];
    let mut words = [0; ADJUSTED_WORDS];
    words[0] = ns.cast_unsigned();
    words[1] = row.line << 1 | is_utc;
    words[2..].iter_mut().zip(numbers).for_each(|(word, number)| *word = number.to_bits());
    words
}

fn stamp_of(words: &[u64]) -> RowTime {
    let ns = words[0].cast_signed();
    if words[1] & 1 == 1 { RowTime::Utc(ns) } else { RowTime::Wall(ns) }
}

fn from_words(words: &[u64]) -> BarRow {
    let number = |place: usize| f64::from_bits(words[place]);
    let event = match words.len() {
        WORDS => RowAdjustment::NONE,
        _ => RowAdjustment { factor: number(8), split: number(9), dividend: number(10) },
    };
    BarRow {
        stamp: stamp_of(words),
        open: number(2),
        high: number(3),
        low: number(4),
        close: number(5),
        volume: number(6),
        spread: number(7),
        event,
        line: words[1] >> 1,
    }
}

#[cfg(test)]
impl From<&[BarRow]> for RowStore {
    fn from(rows: &[BarRow]) -> Self {
        let mut store = RowStore::new(None, true);
        rows.iter().for_each(|row| store.push(row).expect("memory takes all"));
        store
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_come_back_whole_and_in_either_order() {
        let event = RowAdjustment { factor: 0.25, split: 4.0, dividend: 0.1 };
        let first =
            BarRow { volume: 7.5, spread: 0.125, ..BarRow::new(RowTime::Utc(-5), 1.0, 3.0, 0.5, 2.0, u64::MAX >> 1) };
        let second = BarRow { event, ..BarRow::flat(RowTime::Wall(9), 4.0, 8) };
        for are_adjusted in [true, false] {
            let mut store = RowStore::new(None, are_adjusted);
            [first, second].iter().for_each(|row| store.push(row).unwrap());
            let second = if are_adjusted { second } else { BarRow { event: RowAdjustment::NONE, ..second } };
            assert_eq!(store.iter().collect::<Vec<_>>(), [first, second]);
            store.reverse();
            assert_eq!(store.iter().collect::<Vec<_>>(), [second, first]);
            store.update(|row| row.spread += 1.0).unwrap();
            assert_eq!(store.get(1).spread, 1.125);
            assert_eq!(store.stamps().collect::<Vec<_>>(), [RowTime::Wall(9), RowTime::Utc(-5)]);
            for (dropped, left) in [(0..0, vec![RowTime::Wall(9), RowTime::Utc(-5)]), (0..1, vec![RowTime::Utc(-5)])] {
                let kept = store.without(std::slice::from_ref(&dropped)).unwrap();
                assert_eq!(kept.stamps().collect::<Vec<_>>(), left, "{dropped:?}");
            }
        }
    }
}
