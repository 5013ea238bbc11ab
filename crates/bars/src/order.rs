//! The rows of one file put in order of time.
//!
//! ```text
//! for each row in the order of the file:
//!     its time is once on the zone's clock:     that
//!     never (skipped in spring):                no such time
//!     twice (in autumn):                        the first, or the second in a second pass
//!     later than all bars so far:               a bar
//!     the time of a bar:                        a copy of it, or a duplicate
//!     between bars:                             backward; where repairs are wanted, set aside
//! rows set aside: sorted, and taken in where they overlap no bar
//! ```

use crate::bars::{Bar, Bars};
use crate::error::Result;
use crate::ledger::Ledger;
use crate::lines::text_of_line;
use crate::options::Repeats;
use crate::row::{Fault, Row};
use crate::timeframe::Timeframe;
use crate::timestamp::{Stamp, display_utc};
use crate::trouble::{Mend, Trouble};
use crate::zone::{Occurrence, Zone};

/// How rows become bars.
#[derive(Clone, Copy)]
pub(crate) struct Clock<'a> {
    pub(crate) zone: &'a Zone,
    pub(crate) base: Timeframe,
    /// How long after its open a bar is stamped.
    pub(crate) stamp_delay_ns: i64,
    pub(crate) repeats: Repeats,
}

/// Puts rows in order of time, strictly, and accounts for every one that does not become a bar of its own.
pub(crate) fn in_order(rows: &[Row], clock: Clock<'_>, ledger: &mut Ledger) -> Result<Bars> {
    let mut order =
        Order { rows, clock, ledger, placed: Vec::with_capacity(rows.len()), aside: Vec::new(), pass: None };
    for index in 0..rows.len() {
        order.add(index)?;
    }
    order.take_in_what_was_set_aside()?;
    let mut bars = Bars::with_capacity(clock.base, order.placed.len());
    order.placed.iter().for_each(|&(open_time, row)| bars.push(rows[row].bar(open_time)));
    Ok(bars)
}

struct Order<'a> {
    rows: &'a [Row],
    clock: Clock<'a>,
    ledger: &'a mut Ledger,
    /// Open times, ascending, and the places of their rows.
    placed: Vec<(i64, usize)>,
    /// The same of rows out of order, in the order of the file.
    aside: Vec<(i64, usize)>,
    /// The last stretch of rows that went back into an hour which the clock shows twice.
    pass: Option<Pass>,
}

/// A stretch of rows that goes through an hour once more.
#[derive(Clone, Copy)]
struct Pass {
    /// The place of the first row after it.
    end: usize,
    /// Whether its rows are those of the first pass over again: then the hour was written twice, and did not pass twice.
    copies: bool,
}

impl Order<'_> {
    fn add(&mut self, index: usize) -> Result<()> {
        let Some(open_time) = self.open_time(index) else { return self.refuse(index, no_such_time(self.clock.zone)) };
        match self.placed.last() {
            Some(&(last, _)) if open_time <= last => self.add_late(open_time, index),
            _ => {
                self.placed.push((open_time, index));
                Ok(())
            }
        }
    }

    /// When the bar of a row opens, in UTC; `None` for a time that the clock skips.
    fn open_time(&mut self, index: usize) -> Option<i64> {
        let utc_ns = match self.rows[index].stamp {
            Stamp::Utc(ns) => ns,
            Stamp::Wall(ns) => match self.clock.zone.occurrence(ns) {
                Occurrence::Once(utc_ns) => utc_ns,
                Occurrence::Twice(first, second) => self.pass_of(index, first, second),
                // The date of a daily bar is no time of day: that its midnight is skipped says nothing against it.
                Occurrence::Never { unmoved } if self.clock.base == Timeframe::D1 => unmoved,
                Occurrence::Never { .. } => return None,
            },
        };
        Some(utc_ns - self.clock.stamp_delay_ns)
    }

    /// Which of its two times a row stands for: the first, until rows come that go back and are no copies.
    fn pass_of(&mut self, index: usize, first: i64, second: i64) -> i64 {
        let opens = first - self.clock.stamp_delay_ns;
        if self.placed.last().is_none_or(|&(last, _)| last < opens) {
            return first;
        }
        let pass = match self.pass.filter(|pass| index < pass.end) {
            Some(pass) => pass,
            None => *self.pass.insert(self.pass_from(index)),
        };
        if pass.copies {
            return first;
        }
        self.ledger.mend(self.rows[index].line, Mend::SecondPass);
        second
    }

    /// The stretch of ascending twofold times from a row on.
    fn pass_from(&self, start: usize) -> Pass {
        let (mut end, mut copies) = (start, true);
        for (index, row) in self.rows.iter().enumerate().skip(start) {
            let goes_on = index == start || row.stamp.ns() > self.rows[index - 1].stamp.ns();
            let Stamp::Wall(ns) = row.stamp else { break };
            let Occurrence::Twice(first, _) = self.clock.zone.occurrence(ns) else { break };
            if !goes_on {
                break;
            }
            end = index + 1;
            copies &= self.bar_at(first - self.clock.stamp_delay_ns).is_ok_and(|bar| self.is_copy(bar, index));
        }
        Pass { end, copies }
    }

    fn add_late(&mut self, open_time: i64, index: usize) -> Result<()> {
        match self.bar_at(open_time) {
            Ok(bar) => self.settle(bar, index),
            Err(_) if self.ledger.repairs() => {
                self.aside.push((open_time, index));
                Ok(())
            }
            Err(_) => self.refuse(index, self.backward(open_time)),
        }
    }

    /// Decides between a bar and a later row of its time.
    fn settle(&mut self, bar: usize, index: usize) -> Result<()> {
        let (open_time, earlier) = self.placed[bar];
        if self.is_copy(bar, index) {
            let expected = format!("a row of its own (line {} says the same)", self.rows[earlier].line);
            return self.refuse(index, Fault { trouble: Trouble::Copy, expected });
        }
        let (line, earlier_line) = (self.rows[index].line, self.rows[earlier].line);
        match self.clock.repeats {
            Repeats::First => self.ledger.drop_row(line, Trouble::Duplicate),
            Repeats::Last => {
                self.ledger.drop_row(earlier_line, Trouble::Duplicate);
                self.placed[bar].1 = index;
            }
            Repeats::Refuse => {
                let time = display_utc(open_time);
                let expected = format!(
                    "one row for the bar that opens at {time}, and line {earlier_line} is another; if a clock went back \
                     there, name its zone, or say which row counts with `--repeats first` or `last`"
                );
                return self.refuse(index, Fault { trouble: Trouble::Duplicate, expected });
            }
        }
        Ok(())
    }

    /// Merges the rows set aside into the bars; each must leave room for its neighbours.
    fn take_in_what_was_set_aside(&mut self) -> Result<()> {
        if self.aside.is_empty() {
            return Ok(());
        }
        let mut aside = std::mem::take(&mut self.aside);
        aside.sort_by_key(|&(open_time, _)| open_time);
        let bars = std::mem::take(&mut self.placed);
        let mut bars = bars.into_iter().peekable();
        for (open_time, index) in aside {
            while let Some(bar) = bars.next_if(|&(opens, _)| opens <= open_time) {
                self.placed.push(bar);
            }
            let next = bars.peek().map(|&(opens, _)| opens);
            self.take_in(open_time, index, next)?;
        }
        self.placed.extend(bars);
        Ok(())
    }

    /// Takes in one row behind the bars that open no later, before the `next` one.
    fn take_in(&mut self, open_time: i64, index: usize, next: Option<i64>) -> Result<()> {
        let duration_ns = self.clock.base.duration_ns();
        let last = self.placed.last().map(|&(opens, _)| opens);
        match last {
            Some(last) if last == open_time => return self.settle(self.placed.len() - 1, index),
            Some(last) if open_time - last < duration_ns => return self.refuse(index, self.backward(open_time)),
            _ if next.is_some_and(|next| next - open_time < duration_ns) => {
                return self.refuse(index, self.backward(open_time));
            }
            _ => {}
        }
        self.placed.push((open_time, index));
        self.ledger.mend(self.rows[index].line, Mend::Sorted);
        Ok(())
    }

    /// The place of the bar that opens at that time.
    fn bar_at(&self, open_time: i64) -> Result<usize, usize> {
        self.placed.binary_search_by_key(&open_time, |&(opens, _)| opens)
    }

    fn is_copy(&self, bar: usize, index: usize) -> bool {
        self.rows[self.placed[bar].1].is_copy_of(&self.rows[index])
    }

    fn backward(&self, open_time: i64) -> Fault {
        let last = self.placed.last().map_or(open_time, |&(opens, _)| opens);
        let (found, last) = (display_utc(open_time), display_utc(last));
        let expected = format!("a bar that opens after {last} (this one would open at {found})");
        Fault { trouble: Trouble::Backward, expected }
    }

    fn refuse(&mut self, index: usize, fault: Fault) -> Result<()> {
        let line = self.rows[index].line;
        self.ledger.refuse(line, fault, |path| text_of_line(path, line))
    }
}

impl Row {
    fn bar(&self, open_time: i64) -> Bar {
        let Row { open, high, low, close, volume, spread, .. } = *self;
        Bar { open_time, open, high, low, close, volume, spread }
    }
}

fn no_such_time(zone: &Zone) -> Fault {
    let expected = format!("a time that the clock of {zone} shows; it is moved over this one: is the zone right?");
    Fault { trouble: Trouble::NoSuchTime, expected }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use proptest::prelude::*;

    use super::*;
    use crate::timestamp::{DateStyle, HOUR_NS, MINUTE_NS, parse_stamp};
    use crate::trouble::OnError;

    fn clock(zone: &Zone) -> Clock<'_> {
        Clock { zone, base: Timeframe::M1, stamp_delay_ns: 0, repeats: Repeats::Refuse }
    }

    fn ledger(on_error: OnError) -> Ledger {
        Ledger::new(PathBuf::from("bars.csv"), on_error)
    }

    /// Rows at minutes after the start of 1970, each with a price.
    fn rows(minutes: &[(i64, f64)]) -> Vec<Row> {
        let row =
            |(&(minute, price), line): (&(i64, f64), u64)| Row::of(Stamp::Utc(minute * MINUTE_NS), [price; 4], line);
        minutes.iter().zip(1..).map(row).collect()
    }

    /// Kind, rows and first line of what was dropped and mended.
    type Account = (Vec<(Trouble, u64, u64)>, Vec<(Mend, u64, u64)>);

    fn account(ledger: Ledger) -> Account {
        let (dropped, mended) = ledger.close();
        let dropped = dropped.iter().map(|tally| (tally.kind, tally.rows, tally.first_line)).collect();
        (dropped, mended.iter().map(|tally| (tally.kind, tally.rows, tally.first_line)).collect())
    }

    /// The minutes and prices of the bars, and the account.
    fn ordered(minutes: &[(i64, f64)], on_error: OnError, repeats: Repeats) -> (Vec<(i64, f64)>, Account) {
        let (zone, mut ledger) = (Zone::utc(), ledger(on_error));
        let bars = in_order(&rows(minutes), Clock { repeats, ..clock(&zone) }, &mut ledger).unwrap();
        let bars = bars.open_time.iter().zip(&bars.close).map(|(ns, close)| (ns / MINUTE_NS, *close)).collect();
        (bars, account(ledger))
    }

    #[test]
    fn copies_duplicates_and_rows_out_of_order() {
        let given = [(0, 1.0), (2, 1.0), (4, 1.0), (2, 1.0), (2, 7.0), (1, 8.0), (1, 8.0), (1, 9.0), (5, 1.0)];
        let (bars, (dropped, mended)) = ordered(&given, OnError::Skip, Repeats::Refuse);
        assert_eq!(bars, [(0, 1.0), (2, 1.0), (4, 1.0), (5, 1.0)]);
        assert_eq!(dropped, [(Trouble::Copy, 1, 4), (Trouble::Duplicate, 1, 5), (Trouble::Backward, 3, 6)]);
        assert_eq!(mended, []);

        let (bars, (dropped, mended)) = ordered(&given, OnError::Repair, Repeats::Refuse);
        assert_eq!(bars, [(0, 1.0), (1, 8.0), (2, 1.0), (4, 1.0), (5, 1.0)]);
        assert_eq!(dropped, [(Trouble::Copy, 2, 4), (Trouble::Duplicate, 2, 5)]);
        assert_eq!(mended, [(Mend::Sorted, 1, 6)]);

        let (bars, (dropped, _)) = ordered(&given, OnError::Repair, Repeats::Last);
        assert_eq!(bars, [(0, 1.0), (1, 9.0), (2, 7.0), (4, 1.0), (5, 1.0)]);
        assert_eq!(dropped, [(Trouble::Copy, 2, 4), (Trouble::Duplicate, 2, 2)]);
    }

    #[test]
    fn a_stated_choice_among_repeats_is_no_error() {
        for (repeats, close) in [(Repeats::First, 1.0), (Repeats::Last, 7.0)] {
            let (bars, (dropped, _)) = ordered(&[(0, 1.0), (0, 7.0), (1, 1.0)], OnError::Fail, repeats);
            assert_eq!((bars[0].1, dropped[0].0, dropped[0].1), (close, Trouble::Duplicate, 1));
        }
    }

    #[test]
    fn a_row_is_sorted_in_only_where_it_has_room() {
        let (zone, mut ledger) = (Zone::utc(), ledger(OnError::Repair));
        let mut rows = rows(&[(0, 1.0), (3, 1.0), (5, 1.0), (1, 2.0), (1, 3.0)]);
        // Half a minute before, and after, a bar.
        rows[3].stamp = Stamp::Utc(5 * MINUTE_NS / 2);
        rows[4].stamp = Stamp::Utc(7 * MINUTE_NS / 2);
        let bars = in_order(&rows, clock(&zone), &mut ledger).unwrap();
        assert_eq!((bars.len(), account(ledger)), (3, (vec![(Trouble::Backward, 2, 4)], vec![])));
    }

    /// Rows on the wall clock of New York, each with a price.
    fn on_the_wall(times: &[(&str, f64)], on_error: OnError) -> Result<(Vec<i64>, Account)> {
        let stamp = |time: &str| parse_stamp(time.as_bytes(), DateStyle::Dashed).unwrap();
        let rows: Vec<Row> =
            times.iter().zip(1..).map(|(&(time, price), line)| Row::of(stamp(time), [price; 4], line)).collect();
        let (zone, mut ledger) = ("America/New_York".parse().unwrap(), ledger(on_error));
        let clock = Clock { base: Timeframe::M30, ..clock(&zone) };
        // In half hours after 05:00 UTC on the day of the change, when it is 01:00 for the first time.
        let first = stamp("2018-11-04T05:00Z").ns();
        let bars = in_order(&rows, clock, &mut ledger)?;
        Ok((bars.open_time.iter().map(|ns| (ns - first) / (HOUR_NS / 2)).collect(), account(ledger)))
    }

    #[test]
    fn an_hour_that_passes_twice_is_told_apart_whatever_is_wanted() {
        let times = [
            ("2018-11-04 00:30", 1.0),
            ("2018-11-04 01:00", 1.0),
            ("2018-11-04 01:30", 2.0),
            ("2018-11-04 01:00", 1.0), // as in the first pass, by chance
            ("2018-11-04 01:30", 3.0),
            ("2018-11-04 02:00", 1.0),
        ];
        for on_error in OnError::ALL {
            let (bars, account) = on_the_wall(&times, on_error).unwrap();
            assert_eq!(bars, [-1, 0, 1, 2, 3, 4]);
            assert_eq!(account, (vec![], vec![(Mend::SecondPass, 2, 4)]));
        }
        // A first pass with a hole, and one that is all there is.
        let holed = [("2018-11-04 01:00", 1.0), ("2018-11-04 01:00", 2.0), ("2018-11-04 01:30", 1.0)];
        assert_eq!(on_the_wall(&holed, OnError::Fail).unwrap().0, [0, 2, 3]);
        assert_eq!(on_the_wall(&holed[1..], OnError::Fail).unwrap().0, [0, 1]);
    }

    #[test]
    fn an_hour_written_twice_did_not_pass_twice() {
        let times = [
            ("2018-11-04 01:00", 1.0),
            ("2018-11-04 01:30", 2.0),
            ("2018-11-04 01:00", 1.0),
            ("2018-11-04 01:30", 2.0),
            ("2018-11-04 02:00", 3.0),
        ];
        let (bars, account) = on_the_wall(&times, OnError::Skip).unwrap();
        assert_eq!((bars, account), (vec![0, 1, 4], (vec![(Trouble::Copy, 2, 3)], vec![])));
        let error = on_the_wall(&times, OnError::Fail).unwrap_err().to_string();
        assert!(error.contains("line 3: copy of an earlier row") && error.contains("line 1 says the same"), "{error}");
    }

    #[test]
    fn an_hour_thrice_is_once_too_often() {
        let times = [1.0, 2.0, 3.0].map(|price| ("2018-11-04 01:00", price));
        let (bars, account) = on_the_wall(&times, OnError::Skip).unwrap();
        assert_eq!((bars, account.0), (vec![0, 2], vec![(Trouble::Duplicate, 1, 3)]));
    }

    #[test]
    fn a_time_that_is_skipped_is_told() {
        let times = [("2018-03-11 01:30", 1.0), ("2018-03-11 02:30", 1.0), ("2018-03-11 03:00", 1.0)];
        let error = on_the_wall(&times, OnError::Fail).unwrap_err().to_string();
        assert!(error.contains("line 2: time that does not exist") && error.contains("America/New_York"), "{error}");
        for on_error in [OnError::Skip, OnError::Repair] {
            let (bars, account) = on_the_wall(&times, on_error).unwrap();
            assert_eq!((bars.len(), account), (2, (vec![(Trouble::NoSuchTime, 1, 2)], vec![])));
        }
    }

    proptest! {
        /// Every row is a bar or dropped; repairs keep exactly one row of every minute, in order.
        #[test]
        fn every_row_is_accounted_for(minutes in prop::collection::vec((0i64..30, 0u8..3), 1..60)) {
            let given: Vec<(i64, f64)> = minutes.iter().map(|&(minute, price)| (minute, f64::from(price) + 1.0)).collect();
            for on_error in [OnError::Skip, OnError::Repair] {
                let (bars, (dropped, _)) = ordered(&given, on_error, Repeats::Refuse);
                let dropped: u64 = dropped.iter().map(|(_, rows, _)| rows).sum();
                prop_assert_eq!(bars.len() as u64 + dropped, given.len() as u64);
                prop_assert!(bars.is_sorted());
            }
            let (bars, _) = ordered(&given, OnError::Repair, Repeats::Refuse);
            let mut firsts: Vec<(i64, f64)> = given.clone();
            firsts.sort_by_key(|&(minute, _)| minute);
            firsts.dedup_by_key(|&mut (minute, _)| minute);
            prop_assert_eq!(bars, firsts);
        }

        /// Twofold times in any order neither panic nor are lost.
        #[test]
        fn any_order_in_the_twofold_hour(minutes in prop::collection::vec((0u8..4, 0u8..2), 1..40)) {
            let times: Vec<(String, f64)> = minutes.iter()
                .map(|&(half, price)| (format!("2018-11-04 0{}:{}0", 1 + half / 2, half % 2 * 3), f64::from(price) + 1.0)).collect();
            let times: Vec<(&str, f64)> = times.iter().map(|(time, price)| (time.as_str(), *price)).collect();
            let (bars, (dropped, _)) = on_the_wall(&times, OnError::Repair).unwrap();
            prop_assert_eq!(bars.len() + dropped.iter().map(|(_, rows, _)| *rows as usize).sum::<usize>(), times.len());
        }
    }
}
