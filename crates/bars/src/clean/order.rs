//! The rows of one file put in order of time.
//!
//! ```text
//! for each row in the order of the file:
//!     its time is once on the zone's clock:   that
//!     never (skipped in spring):              no such time
//!     twice (in autumn):                      the first, or the second in a second pass
//!     later than all bars so far:             a bar
//!     the time of a bar:                      a copy of it, or a duplicate
//!     between bars, and more rows after it
//!     fit in there than bars are later:       those bars are outliers; repairs defer them
//!     between bars otherwise:                 backward; repairs defer it
//! deferred rows: sorted, then inserted where they overlap no bar and are near to one
//! different rows of one time, where they are bars of two timeframes: refused with the file
//! rows before the first at which all further columns have values: dropped
//! ```

use self::placed::{Placed, PlacedRow};
use self::two_timeframes::{RowPair, RowPairs};
use crate::bars::Bar;
use crate::clean::sessions::RowDays;
use crate::error::Result;
use crate::error::row_error::{RowError, RowFix};
use crate::parse::ledger::RowLedger;
use crate::parse::lines::text_of_line;
use crate::parse::options::Repeats;
use crate::parse::row::{BarRow, RowFault};
use crate::parse::row_store::RowStore;
use crate::spill::SpillFile;
use crate::time::timeframe::Timeframe;
use crate::time::timestamp::{RowTime, display_utc};
use crate::time::zone::{Occurrence, Zone};

/// Converts times of rows to open times of bars.
#[derive(Clone, Copy)]
pub(crate) struct RowClock<'a> {
    pub(crate) zone: &'a Zone,
    pub(crate) base: Timeframe,
    /// Delay of a bar's stamp after its open.
    pub(crate) stamp_delay_ns: i64,
    pub(crate) repeats: Repeats,
    /// Days of daily bars, and first days of weekly ones.
    pub(crate) days: RowDays,
    /// True if shorter bars stand beside: a day then tells no open before the stamp.
    pub(crate) beside_shorter: bool,
}

impl RowClock<'_> {
    /// When a daily or weekly bar opens, in UTC, if its day tells it.
    fn session_open(&self, stamp: RowTime) -> Option<i64> {
        let open_time = self.days.open_time(stamp, self.stamp_delay_ns)?;
        (!self.beside_shorter || open_time >= self.open_by_stamp(stamp)).then_some(open_time)
    }

    /// When the bar of a row opens, in UTC, where its time occurs once.
    pub(crate) fn open_time(&self, row: &BarRow) -> i64 {
        self.stamped_open(row.stamp)
    }

    /// When the last bar that is stamped so opens, in UTC: no target may reach further than told.
    fn last_open(&self, stamp: RowTime) -> i64 {
        match stamp {
            RowTime::Wall(ns) if self.session_open(stamp).is_none() => match self.zone.occurrence(ns) {
                Occurrence::Twice(_, second) => second - self.stamp_delay_ns,
                _ => self.stamped_open(stamp),
            },
            _ => self.stamped_open(stamp),
        }
    }

    /// When the first bar that is stamped so opens, in UTC.
    fn stamped_open(&self, stamp: RowTime) -> i64 {
        self.session_open(stamp).unwrap_or_else(|| self.open_by_stamp(stamp))
    }

    /// Time by which a bar opens before its stamp. Its day may have trades until that long after.
    pub(crate) fn early_ns(&self, stamp: RowTime) -> i64 {
        self.open_by_stamp(stamp) - self.stamped_open(stamp)
    }

    /// The same, whatever the day tells.
    fn open_by_stamp(&self, stamp: RowTime) -> i64 {
        let utc_ns = match stamp {
            RowTime::Utc(ns) => ns,
            RowTime::Wall(ns) => self.zone.utc_ns(ns),
        };
        utc_ns - self.stamp_delay_ns
    }

    /// Turns the last column of `bar`, the time in `row` of the bar that decides the targets, into
    /// the close time of that bar.
    fn close_label(&self, row: &BarRow, bar: &mut Bar) -> Result<(), RowFault> {
        let Some(end) = bar.columns.last_mut().filter(|end| !end.is_nan()) else { return Ok(()) };
        let stamp = match row.stamp {
            RowTime::Utc(_) => RowTime::Utc(*end as i64),
            RowTime::Wall(_) => RowTime::Wall(*end as i64),
        };
        let end_open = self.last_open(stamp);
        if end_open < bar.open_time {
            let (found, own) = (display_utc(end_open), display_utc(bar.open_time));
            let expected = format!("a label that ends with its bar, of {own}, or later, and not with that of {found}");
            return Err(RowFault { kind: RowError::LabelEnd, expected });
        }
        *end = (end_open + self.base.duration_ns()) as f64;
        Ok(())
    }
}

/// Puts rows in order of time, strictly, gives them and their bars to `take`, and accounts for
/// every row that does not become a bar of its own. Places of rows spill into `file` where there is
/// one; rows out of order stay in memory.
pub(crate) fn in_order(
    rows: &RowStore,
    clock: RowClock<'_>,
    ledger: &mut RowLedger,
    file: Option<SpillFile>,
    mut take: impl FnMut(&BarRow, Bar) -> Result<()>,
) -> Result<()> {
    let placed = Placed::new(file);
    let pairs = RowPairs::default();
    let mut order = RowSorter { rows, clock, ledger, placed, pairs, deferred: Vec::new(), pass: None };
    for index in 0..rows.len() {
        order.add(index)?;
    }
    order.insert_deferred()?;
    order.refuse_two_timeframes()?;
    let mut have_values = false;
    for place in 0..order.placed.len() {
        let PlacedRow { open_time, row: index } = order.placed.get(place);
        let row = rows.get(index);
        let mut bar = row.bar(open_time);
        let checked = row.check_columns(rows.columns(), &mut have_values).and_then(|()| match rows.has_label_end() {
            true => clock.close_label(&row, &mut bar),
            false => Ok(()),
        });
        match checked {
            Ok(()) => take(&row, bar)?,
            Err(fault) if fault.kind == RowError::WarmUp => order.ledger.drop_row(row.line, fault.kind),
            Err(fault) => order.refuse(index, fault)?,
        }
    }
    rows.check()?;
    order.placed.check()
}

struct RowSorter<'a> {
    rows: &'a RowStore,
    clock: RowClock<'a>,
    ledger: &'a mut RowLedger,
    placed: Placed,
    pairs: RowPairs,
    /// Rows out of order, in the order of the file.
    deferred: Vec<PlacedRow>,
    /// The last stretch of rows that went back into an hour which the clock shows twice.
    pass: Option<RepeatedHour>,
}

/// A stretch of rows that goes back into an hour which the clock shows twice.
#[derive(Clone, Copy)]
struct RepeatedHour {
    /// The place of the first row after it.
    end: usize,
    /// True if the rows are of the hour's second pass. They are not where they repeat the rows of
    /// the first pass (then the hour was written twice), nor where they go back by a few bars only
    /// (then rows are out of order).
    is_second: bool,
}

impl RowSorter<'_> {
    fn add(&mut self, index: usize) -> Result<()> {
        let Some(opens) = self.open_time(index) else { return self.refuse(index, no_such_time(self.clock.zone)) };
        let is_late = self.placed.last().is_some_and(|last| opens.time <= last.open_time);
        if is_late && !self.take_out_outliers(opens.time, index)? {
            return self.add_late(opens.time, index);
        }
        self.placed.push(PlacedRow { open_time: opens.time, row: index })?;
        if opens.in_second_pass {
            self.ledger.fix(self.rows.get(index).line, RowFix::SecondPass);
        }
        Ok(())
    }

    /// When the bar of a row opens, in UTC; `None` for a time that the clock skips.
    fn open_time(&mut self, index: usize) -> Option<OpenTime> {
        if let Some(time) = self.clock.session_open(self.rows.stamp(index)) {
            return Some(OpenTime { time, in_second_pass: false });
        }
        let (utc_ns, in_second_pass) = match self.rows.stamp(index) {
            RowTime::Utc(ns) => (ns, false),
            RowTime::Wall(ns) => match self.clock.zone.occurrence(ns) {
                Occurrence::Once(utc_ns) => (utc_ns, false),
                Occurrence::Twice(first, _) if !self.is_in_second_pass(index, first) => (first, false),
                Occurrence::Twice(_, second) => (second, true),
                // The date of a daily bar is no time of day, so a skipped midnight is no error.
                Occurrence::Never { unmoved } if self.clock.base >= Timeframe::D1 => (unmoved, false),
                Occurrence::Never { .. } => return None,
            },
        };
        Some(OpenTime { time: utc_ns - self.clock.stamp_delay_ns, in_second_pass })
    }

    /// True if a row, whose time occurs at `first` and once more later, belongs to the second.
    fn is_in_second_pass(&mut self, index: usize, first: i64) -> bool {
        let opens = first - self.clock.stamp_delay_ns;
        if self.placed.last().is_none_or(|last| last.open_time < opens) {
            return false;
        }
        let pass = match self.pass.filter(|pass| index < pass.end) {
            Some(pass) => pass,
            None => *self.pass.insert(self.pass_from(index)),
        };
        pass.is_second
    }

    /// The stretch of ascending repeated times that begins at a row.
    fn pass_from(&self, start: usize) -> RepeatedHour {
        let (mut end, mut copies) = (start, true);
        while let Some((wall_ns, first, _)) = self.twofold(end)
            && (end == start || wall_ns > self.rows.stamp(end - 1).ns())
        {
            copies &= self.bar_at(first - self.clock.stamp_delay_ns).is_ok_and(|bar| self.is_copy(bar, end));
            end += 1;
        }
        RepeatedHour { end, is_second: !copies && self.goes_back_as_a_clock(start) }
    }

    /// True if a row goes back by more than half the clock change, as a clock does near the end of
    /// the repeated hour.
    fn goes_back_as_a_clock(&self, index: usize) -> bool {
        let before = index.checked_sub(1).and_then(|before| self.twofold(before));
        let (Some((from, ..)), Some((to, first, second))) = (before, self.twofold(index)) else { return false };
        2 * (from - to + self.clock.base.duration_ns()) >= second - first
    }

    /// Local time of a row and both instants at which the clock shows it; `None` if it shows it
    /// once.
    fn twofold(&self, index: usize) -> Option<(i64, i64, i64)> {
        let RowTime::Wall(wall_ns) = (index < self.rows.len()).then(|| self.rows.stamp(index))? else { return None };
        match self.clock.zone.occurrence(wall_ns) {
            Occurrence::Twice(first, second) => Some((wall_ns, first, second)),
            _ => None,
        }
    }

    fn add_late(&mut self, open_time: i64, index: usize) -> Result<()> {
        match self.bar_at(open_time) {
            Ok(bar) => self.settle(bar, index),
            Err(_) if self.ledger.repairs() => {
                self.deferred.push(PlacedRow { open_time, row: index });
                Ok(())
            }
            Err(_) => self.refuse(index, self.backward(open_time)),
        }
    }

    /// Decides between a bar and a later row of its time.
    fn settle(&mut self, bar: usize, index: usize) -> Result<()> {
        let PlacedRow { open_time, row: earlier } = self.placed.get(bar);
        if self.is_copy(bar, index) {
            // A copy adds nothing, so nothing is lost without it.
            self.ledger.drop_row(self.rows.get(index).line, RowError::Copy);
            return Ok(());
        }
        self.pairs.push(RowPair { open_time, rows: [earlier, index] });
        let (line, earlier_line) = (self.rows.get(index).line, self.rows.get(earlier).line);
        match self.clock.repeats {
            Repeats::Last if index > earlier => {
                self.ledger.drop_row(earlier_line, RowError::Duplicate);
                self.placed.set_row(bar, index)?;
            }
            // A row that came too early in the file is not the last word on its bar.
            Repeats::First | Repeats::Last => self.ledger.drop_row(line, RowError::Duplicate),
            Repeats::Refuse => {
                let time = display_utc(open_time);
                let expected = format!(
                    "one row for the bar that opens at {time}, and line {earlier_line} is another; if a clock went back \
                     there, name its zone; if bars of two timeframes are mixed, keep one; else choose the row that \
                     counts"
                );
                return self.refuse(index, RowFault { kind: RowError::Duplicate, expected });
            }
        }
        Ok(())
    }

    /// Merges the deferred rows into the bars; each must leave room for its neighbours.
    fn insert_deferred(&mut self) -> Result<()> {
        if self.deferred.is_empty() {
            return Ok(());
        }
        let mut deferred = std::mem::take(&mut self.deferred);
        deferred.sort_by_key(|late| late.open_time);
        let deferred = self.without_far_ones(&deferred)?;
        let empty = self.placed.empty_like();
        let bars = std::mem::replace(&mut self.placed, empty);
        let mut bars_left = (0..bars.len()).map(|place| bars.get(place)).peekable();
        for late in deferred {
            while let Some(bar) = bars_left.next_if(|bar| bar.open_time <= late.open_time) {
                self.placed.push(bar)?;
            }
            let next = bars_left.peek().map(|bar| bar.open_time);
            self.take_in(late, next)?;
        }
        bars_left.try_for_each(|bar| self.placed.push(bar))?;
        bars.check()
    }

    /// Inserts one row behind the bars that open no later, before the bar that opens at `next`.
    fn take_in(&mut self, late: PlacedRow, next: Option<i64>) -> Result<()> {
        let PlacedRow { open_time, row: index } = late;
        let duration_ns = self.clock.base.duration_ns();
        let last = self.placed.last().map(|bar| bar.open_time);
        match last {
            Some(last) if last == open_time => return self.settle(self.placed.len() - 1, index),
            Some(last) if open_time - last < duration_ns => return self.refuse(index, self.backward(open_time)),
            _ if next.is_some_and(|next| next - open_time < duration_ns) => {
                return self.refuse(index, self.backward(open_time));
            }
            _ => {}
        }
        self.placed.push(late)?;
        self.ledger.fix(self.rows.get(index).line, RowFix::Sorted);
        Ok(())
    }

    /// Index of the bar that opens at that time, or where it would be.
    fn bar_at(&self, open_time: i64) -> Result<usize, usize> {
        self.placed.find(open_time)
    }

    fn is_copy(&self, bar: usize, index: usize) -> bool {
        self.rows.get(self.placed.get(bar).row).is_copy_of(&self.rows.get(index))
    }

    fn backward(&self, open_time: i64) -> RowFault {
        let last = self.placed.last().map_or(open_time, |bar| bar.open_time);
        let (found, last) = (display_utc(open_time), display_utc(last));
        let expected = format!("a bar that opens after {last} (this one would open at {found})");
        RowFault { kind: RowError::Backward, expected }
    }

    fn refuse(&mut self, index: usize, fault: RowFault) -> Result<()> {
        let line = self.rows.get(index).line;
        self.ledger.refuse(line, fault, |path| text_of_line(path, line))
    }
}

/// Open time of a bar, in UTC; `in_second_pass` if the clock shows it for the second time.
struct OpenTime {
    time: i64,
    in_second_pass: bool,
}

impl BarRow {
    pub(crate) fn bar(&self, open_time: i64) -> Bar {
        let BarRow { open, high, low, close, volume, spread, .. } = *self;
        Bar { open_time, open, high, low, close, volume, spread, columns: self.columns.clone() }
    }
}

pub(crate) fn no_such_time(zone: &Zone) -> RowFault {
    let expected = format!("a time that the clock of {zone} shows; it is moved over this one: is the zone right?");
    RowFault { kind: RowError::NoSuchTime, expected }
}

mod outlier;
mod placed;
#[cfg(test)]
mod tests;
mod two_timeframes;
