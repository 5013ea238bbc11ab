//! Rows that became bars so far, in order of time.

use crate::error::Result;
use crate::spill::{SpillFile, Spilled};

/// A bar to be: when it opens, and the place of its row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PlacedRow {
    pub(super) open_time: i64,
    pub(super) row: usize,
}

/// Rows in order of time, strictly; the last ones in memory.
pub(super) struct Placed {
    records: Spilled,
    last: Option<PlacedRow>,
}

impl Placed {
    pub(super) fn new(file: Option<SpillFile>) -> Self {
        Placed { records: Spilled::new(2, file), last: None }
    }

    /// No rows, for the same file.
    pub(super) fn empty_like(&self) -> Self {
        Placed { records: self.records.empty_like(), last: None }
    }

    pub(super) fn len(&self) -> usize {
        self.records.len()
    }

    pub(super) fn last(&self) -> Option<PlacedRow> {
        self.last
    }

    pub(super) fn get(&self, place: usize) -> PlacedRow {
        self.records.with(place, |words| PlacedRow { open_time: words[0].cast_signed(), row: words[1] as usize })
    }

    pub(super) fn push(&mut self, placed: PlacedRow) -> Result<()> {
        self.last = Some(placed);
        self.records.push(&[placed.open_time.cast_unsigned(), placed.row as u64])
    }

    /// Puts another row in the place of one of the same time.
    pub(super) fn set_row(&mut self, place: usize, row: usize) -> Result<()> {
        let placed = PlacedRow { row, ..self.get(place) };
        if place + 1 == self.len() {
            self.last = Some(placed);
        }
        self.records.set(place, &[placed.open_time.cast_unsigned(), row as u64])
    }

    /// Number of rows that open before `time`.
    pub(super) fn before(&self, time: i64) -> usize {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = low + (high - low) / 2;
            match self.get(middle).open_time < time {
                true => low = middle + 1,
                false => high = middle,
            }
        }
        low
    }

    /// The place of the bar that opens at `time`, or where it would be.
    pub(super) fn find(&self, time: i64) -> Result<usize, usize> {
        let place = self.before(time);
        if place < self.len() && self.get(place).open_time == time { Ok(place) } else { Err(place) }
    }

    /// Takes the rows from place `first` on, which are few.
    pub(super) fn split_off(&mut self, first: usize) -> Vec<PlacedRow> {
        let taken = (first..self.len()).map(|place| self.get(place)).collect();
        self.records.truncate(first);
        self.last = first.checked_sub(1).map(|last| self.get(last));
        taken
    }

    /// An error where some row could not be read from the temporary file.
    pub(super) fn check(&self) -> Result<()> {
        self.records.check()
    }
}
