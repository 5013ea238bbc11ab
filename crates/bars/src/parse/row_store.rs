//! The rows of one file, in memory or in a temporary file.

use std::ops::Range;

use crate::error::Result;
use crate::parse::row::{BarRow, RowAdjustment};
use crate::spill::{SpillFile, Spilled};
use crate::time::timestamp::{MINUTE_NS, RowTime};

/// Words of a row without adjustment: stamp; line, kind of stamp and offset; five numbers and the
/// spread.
const WORDS: usize = 8;
/// Unit of offsets.
const QUARTER_NS: i64 = 15 * MINUTE_NS;
/// The byte of a row that states no offset.
const NO_OFFSET: i8 = i8::MIN;
/// Place of the kind of stamp, behind the byte of the offset.
const KIND_BIT: u32 = 8;
const LINE_BIT: u32 = KIND_BIT + 1;
/// Words of the adjustment.
const ADJUSTMENT_WORDS: usize = 3;

/// Rows in the order of the file, or backward.
#[derive(Debug)]
pub(crate) struct RowStore {
    records: Spilled,
    shape: RowShape,
    is_backward: bool,
    /// Words of the row that is added.
    words: Vec<u64>,
}

/// Parts of the rows of a file beside prices, volume and spread.
#[derive(Clone, Debug, Default)]
pub(crate) struct RowShape {
    /// True if they keep the adjustment of their prices.
    pub(crate) are_adjusted: bool,
    /// Names of further columns that must have values.
    pub(crate) columns: Vec<String>,
    /// Number of further columns behind them, which may have none.
    pub(crate) targets: usize,
    /// True if the last of these is the time of the bar that decides the targets.
    pub(crate) has_label_end: bool,
}

impl RowShape {
    fn words(&self) -> usize {
        self.first_column() + self.columns.len() + self.targets
    }

    /// Place of the first further column among the words of a row.
    fn first_column(&self) -> usize {
        WORDS + if self.are_adjusted { ADJUSTMENT_WORDS } else { 0 }
    }
}

impl RowStore {
    /// No rows. They spill into `file` where there is one.
    pub(crate) fn new(file: Option<SpillFile>, shape: RowShape) -> Self {
        RowStore { records: Spilled::new(shape.words(), file), shape, is_backward: false, words: Vec::new() }
    }

    /// Names of further columns that must have values.
    pub(crate) fn columns(&self) -> &[String] {
        &self.shape.columns
    }

    /// True if the last column is the time of the bar that decides the targets, as it stands in the
    /// file.
    pub(crate) fn has_label_end(&self) -> bool {
        self.shape.has_label_end
    }

    /// Number of further columns.
    pub(crate) fn width(&self) -> usize {
        self.shape.columns.len() + self.shape.targets
    }

    pub(crate) fn len(&self) -> usize {
        self.records.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn push(&mut self, row: &BarRow) -> Result<()> {
        self.shape.to_words(row, &mut self.words);
        self.records.push(&self.words)
    }

    /// Row `index`.
    ///
    /// # Panics
    /// When there is no such row.
    pub(crate) fn get(&self, index: usize) -> BarRow {
        self.records.with(self.place(index), |words| self.shape.row(words))
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
            let mut row = before.clone();
            change(&mut row);
            if row != before {
                self.shape.to_words(&row, &mut self.words);
                self.records.set(self.place(index), &self.words)?;
            }
        }
        self.check()
    }

    /// The rows but those of some ranges, which are in order and apart.
    pub(crate) fn without(&self, dropped: &[Range<usize>]) -> Result<RowStore> {
        let mut kept = RowStore {
            records: self.records.empty_like(),
            shape: self.shape.clone(),
            is_backward: false,
            words: Vec::new(),
        };
        let mut next = 0;
        for range in dropped {
            (next..range.start).try_for_each(|index| kept.push(&self.get(index)))?;
            next = range.end;
        }
        (next..self.len()).try_for_each(|index| kept.push(&self.get(index)))?;
        self.check()?;
        Ok(kept)
    }

    /// The rows without further columns.
    pub(crate) fn without_columns(&self) -> Result<RowStore> {
        let shape = RowShape { columns: Vec::new(), targets: 0, has_label_end: false, ..self.shape };
        let records = self.records.empty_with_words(shape.words());
        let mut kept = RowStore { records, shape, is_backward: false, words: Vec::new() };
        self.iter().try_for_each(|row| kept.push(&BarRow { columns: Box::default(), ..row }))?;
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

impl RowShape {
    fn to_words(&self, row: &BarRow, words: &mut Vec<u64>) {
        let (ns, is_utc) = match row.stamp {
            RowTime::Utc(ns) => (ns, 1),
            RowTime::Wall(ns) => (ns, 0),
        };
        let RowAdjustment { factor, split, dividend } = row.event;
        words.clear();
        let quarters = row.east_ns.and_then(|east_ns| i8::try_from(east_ns / QUARTER_NS).ok()).unwrap_or(NO_OFFSET);
        let line = row.line << LINE_BIT | is_utc << KIND_BIT | u64::from(quarters.cast_unsigned());
        words.extend([ns.cast_unsigned(), line]);
        let mut push = |numbers: &[f64]| words.extend(numbers.iter().map(|number| number.to_bits()));
        push(&[row.open, row.high, row.low, row.close, row.volume, row.spread]);
        if self.are_adjusted {
            push(&[factor, split, dividend]);
        }
        push(&row.columns);
    }

    /// The further columns of a row.
    #[inline]
    fn values(&self, words: &[u64]) -> Box<[f64]> {
        // Most rows have none, and are read often.
        if self.words() == self.first_column() {
            return Box::default();
        }
        words[self.first_column()..].iter().map(|&word| f64::from_bits(word)).collect()
    }

    fn row(&self, words: &[u64]) -> BarRow {
        let number = |place: usize| f64::from_bits(words[place]);
        let event = match self.are_adjusted {
            false => RowAdjustment::NONE,
            true => RowAdjustment { factor: number(8), split: number(9), dividend: number(10) },
        };
        let [quarters, ..] = words[1].to_le_bytes();
        let quarters = Some(quarters.cast_signed()).filter(|&quarters| quarters != NO_OFFSET);
        BarRow {
            stamp: stamp_of(words),
            east_ns: quarters.map(|quarters| i64::from(quarters) * QUARTER_NS),
            open: number(2),
            high: number(3),
            low: number(4),
            close: number(5),
            volume: number(6),
            spread: number(7),
            columns: self.values(words),
            event,
            line: words[1] >> LINE_BIT,
        }
    }
}

fn stamp_of(words: &[u64]) -> RowTime {
    let ns = words[0].cast_signed();
    if words[1] >> KIND_BIT & 1 == 1 { RowTime::Utc(ns) } else { RowTime::Wall(ns) }
}

#[cfg(test)]
impl From<&[BarRow]> for RowStore {
    fn from(rows: &[BarRow]) -> Self {
        let names = 0..rows.first().map_or(0, |row| row.columns.len());
        let columns = names.map(|k| format!("c{k}")).collect();
        let mut store = RowStore::new(None, RowShape { columns, are_adjusted: true, ..RowShape::default() });
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
        let columns: Box<[f64]> = Box::new([-0.5, 1e300]);
        let first = BarRow {
            volume: 7.5,
            spread: 0.125,
            columns: columns.clone(),
            east_ns: Some(-14 * QUARTER_NS),
            ..BarRow::new(RowTime::Utc(-5), 1.0, 3.0, 0.5, 2.0, u64::MAX >> LINE_BIT)
        };
        let second = BarRow { event, columns, ..BarRow::flat(RowTime::Wall(9), 4.0, 8) };
        for are_adjusted in [true, false] {
            let columns = vec!["a".to_owned()];
            let mut store = RowStore::new(None, RowShape { are_adjusted, columns, targets: 1, has_label_end: false });
            [&first, &second].into_iter().for_each(|row| store.push(row).unwrap());
            let event = if are_adjusted { event } else { RowAdjustment::NONE };
            let second = BarRow { event, ..second.clone() };
            assert_eq!(store.iter().collect::<Vec<_>>(), [first.clone(), second.clone()]);
            store.reverse();
            assert_eq!(store.iter().collect::<Vec<_>>(), [second.clone(), first.clone()]);
            store.update(|row| row.spread += 1.0).unwrap();
            assert_eq!(store.get(1).spread, 1.125);
            store.update(|row| row.east_ns = row.east_ns.map(|_| 0)).unwrap();
            assert_eq!(store.iter().map(|row| row.east_ns).collect::<Vec<_>>(), [None, Some(0)]);
            assert_eq!(store.stamps().collect::<Vec<_>>(), [RowTime::Wall(9), RowTime::Utc(-5)]);
            for (dropped, left) in [(0..0, vec![RowTime::Wall(9), RowTime::Utc(-5)]), (0..1, vec![RowTime::Utc(-5)])] {
                let kept = store.without(std::slice::from_ref(&dropped)).unwrap();
                assert_eq!(kept.stamps().collect::<Vec<_>>(), left, "{dropped:?}");
            }
        }
    }
}
