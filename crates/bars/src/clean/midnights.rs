//! Rows of days that carry a time of day.
//!
//! ```text
//! 2024-03-05 00:00     a midnight, as nearly all rows are
//! 2024-03-06 15:30     the row of 6 March, such as the last one of a file written on that day
//! ```
//!
//! Midnights of an exchange are other times in UTC, in summer an hour before those in winter. The
//! days of the week tell them. Days that begin at another hour, as those of coins may, have none.

use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::path::Path;

use crate::clean::sessions::{SessionDays, is_at_a_weekend};
use crate::error::Result;
use crate::parse::bar_file::BarFile;
use crate::parse::row::BarRow;
use crate::time::timeframe::Timeframe;
use crate::time::timestamp::{DAY_NS, HOUR_NS, MINUTE_NS, RowTime, counted, display_date, display_utc};
use crate::time::zone::Zone;

/// Fewest midnights that show the clock of rows.
const MIDNIGHTS_MIN: usize = 3;
/// Midnights of American exchanges in UTC.
const AMERICAN_NS: RangeInclusive<i64> = 3 * HOUR_NS..=6 * HOUR_NS;
/// Midnight of Indian exchanges in UTC, which is the only one at no whole hour.
const INDIAN_NS: i64 = 18 * HOUR_NS + 30 * MINUTE_NS;
/// The close of New York's exchanges in UTC, in summer and in winter.
const NEW_YORKS_CLOSE_NS: [i64; 2] = [20 * HOUR_NS, 21 * HOUR_NS];
/// Midnights by which later rows are judged.
const RECENT: usize = 64;

/// The midnights that nearly all rows of days are.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub(crate) struct Midnights {
    /// True if they are in UTC, and not on a wall clock.
    are_utc: bool,
    /// Times of day at which they may be.
    times_of_day: [i64; 3],
    /// True if rows in UTC at the close in New York are of their date, beside dates.
    #[serde(default)]
    have_closes: bool,
    /// The midnights in order of time. There is at least one.
    ns: Vec<i64>,
}

impl Midnights {
    /// The midnights of rows, if at least nine of ten of them are some. Of rows in UTC and on a
    /// wall clock the more frequent ones count.
    pub(crate) fn told_by<I: Iterator<Item = RowTime>>(stamps: impl Fn() -> I) -> Option<Self> {
        let (mut wall, mut utc) = (HashMap::new(), HashMap::new());
        for stamp in stamps() {
            let counts: &mut HashMap<i64, usize> = if stamp.is_utc() { &mut utc } else { &mut wall };
            *counts.entry(time_of_day(stamp.ns())).or_default() += 1;
        }
        let rows = |counts: &HashMap<i64, usize>| counts.values().sum::<usize>();
        let are_utc = rows(&utc) > rows(&wall);
        let counts = if are_utc { &utc } else { &wall };
        let (&commonest, _) = counts.iter().max_by_key(|(time, count)| (**count, -**time))?;
        let times_of_day = possible_times(commonest);
        let is_one = |stamp: &RowTime| stamp.is_utc() == are_utc && times_of_day.contains(&time_of_day(stamp.ns()));
        let mut ns: Vec<i64> = stamps().filter(is_one).map(RowTime::ns).collect();
        // One row, whichever it is, may have a time of day.
        if ns.len() < MIDNIGHTS_MIN || 10 * ns.len() < 9 * (rows(counts) - 1) {
            return None;
        }
        ns.sort_unstable();
        let are_dates = ns.iter().all(|&ns| time_of_day(ns) == 0);
        let are_midnights = are_dates
            || match SessionDays::told_by(ns.iter().copied()) {
                SessionDays::NextDay => true,
                SessionDays::SameDay => ns.iter().all(|&ns| is_american(ns)),
                SessionDays::AsStamped => false,
            };
        are_midnights.then_some(Midnights { are_utc, times_of_day, have_closes: false, ns })
    }

    /// The last of the midnights.
    fn recent(&self) -> Self {
        Midnights { ns: self.recent_ns().to_vec(), ..*self }
    }

    fn recent_ns(&self) -> &[i64] {
        &self.ns[self.ns.len().saturating_sub(RECENT)..]
    }

    /// The midnight with which the day of a row begins that carries a time of day; `None` for
    /// others. `zone` is the wall clock of rows on one, where rows are on both.
    pub(crate) fn before(&self, stamp: RowTime, zone: Option<&Zone>) -> Option<RowTime> {
        // A date may stand beside midnights of an exchange.
        if time_of_day(stamp.ns()) == 0 {
            return None;
        }
        let ns = match (stamp, self.are_utc) {
            (RowTime::Utc(ns), true) | (RowTime::Wall(ns), false) => ns,
            (RowTime::Wall(ns), true) => zone?.utc_ns(ns),
            // A row may be at the midnight of its exchange, beside dates.
            (RowTime::Utc(ns), false) if *zone? == Zone::utc() && may_be_midnight(ns) => return None,
            (RowTime::Utc(ns), false) => zone?.wall_ns(ns),
        };
        if self.times_of_day.contains(&time_of_day(ns)) {
            return None;
        }
        let later = self.ns.partition_point(|&midnight| midnight <= ns);
        let nearest = self.ns[later.saturating_sub(1)];
        let start = ns - time_of_day(ns - nearest);
        Some(if self.are_utc { RowTime::Utc(start) } else { RowTime::Wall(start) })
    }

    /// The midnight with which the day of `row` begins, if it carries a time of day; `None` for
    /// others. Beside dates, the offset that the row states tells its day, at midnight as well, and
    /// beside midnights of an exchange, where its clock has these midnights. A row at midnight on
    /// another clock is of the date that it states. A row in UTC without an offset is of its day in
    /// UTC, beside dates, where no zone is known.
    pub(crate) fn before_row(&self, row: &BarRow, zone: Option<&Zone>) -> Option<RowTime> {
        if let Some(date) = close_date(row).filter(|_| self.have_closes) {
            return Some(date);
        }
        let [_, commonest, _] = self.times_of_day;
        let are_dates = !self.are_utc && commonest == 0;
        let utc = Zone::utc();
        let zone = zone.or((are_dates && row.east_ns.is_none()).then_some(&utc));
        let stated = match are_dates {
            true if row.is_at_stated_midnight() => row.stated_day().filter(|_| self.is_ahead_of_dates(row)),
            true => row.stated_day(),
            false => self.stated_midnight(row).or_else(|| self.at_stated_date(row)),
        };
        stated.or_else(|| self.before(row.stamp, zone))
    }

    /// The midnight before a row with a time of day, on the clock whose offset it states, where
    /// these midnights are of that clock.
    fn stated_midnight(&self, row: &BarRow) -> Option<RowTime> {
        let midnight = row.stated_day()?.ns() - row.east_ns?;
        let is_one = |ns: i64| self.times_of_day.contains(&time_of_day(ns));
        // Midnights of summer may be written with the offset of winter.
        (self.are_utc && is_one(midnight) && !is_one(row.stamp.ns())).then_some(RowTime::Utc(midnight))
    }

    /// The midnight of the date that a row states which is at midnight on another clock, beside
    /// sessions, whose rows in UTC may be opens or closes.
    pub(crate) fn at_stated_date(&self, row: &BarRow) -> Option<RowTime> {
        let date = row.stated_day().filter(|_| self.are_utc && row.is_at_stated_midnight())?.ns();
        let [_, commonest, _] = self.times_of_day;
        // Midnights of the East are in the afternoon of the day before in UTC.
        let midnight = date + if commonest < DAY_NS / 2 { commonest } else { commonest - DAY_NS };
        let is_other = (row.stamp.ns() - midnight).abs() > HOUR_NS;
        let are_sessions = || SessionDays::told_by(self.recent_ns().iter().copied()) != SessionDays::AsStamped;
        (is_other && are_sessions()).then_some(RowTime::Utc(midnight))
    }

    /// The date of a row in UTC without an offset at the close in New York, beside dates of
    /// sessions, if it is after the `last` bar's, or the row repeats the bar of that date. That
    /// hour is a midnight of exchanges in the East, too: their next row is of the date after it.
    pub(crate) fn date_of_close(&self, row: &BarRow, last: i64, is_repeat: impl Fn(i64) -> bool) -> Option<RowTime> {
        let date = close_date(row)?;
        let is_next = (date.ns() > last || is_repeat(date.ns())) && !is_date_at_a_weekend(date.ns());
        (is_next && self.are_dates_of_weekdays()).then_some(date)
    }

    /// True for a midnight that may be of the day before on other clocks, beside dates of sessions.
    /// Midnights of a clock behind UTC are of their date in UTC, too, and their days end later than
    /// a day that begins with it.
    fn is_ahead_of_dates(&self, midnight: &BarRow) -> bool {
        midnight.east_ns >= Some(0) && self.are_dates_of_weekdays()
    }

    /// True for dates of a market that rests at weekends.
    fn are_dates_of_weekdays(&self) -> bool {
        let recent = self.recent_ns();
        let are_dates = !self.are_utc && recent.iter().all(|&ns| time_of_day(ns) == 0);
        are_dates && SessionDays::told_by(recent.iter().copied()) == SessionDays::SameDay
    }

    /// True if these are times of UTC's midnight at which days may end, such as 19:00 in New York:
    /// on the clock whose offset they state, no row is within an hour of midnight or at a weekend.
    fn may_be_closes(&self, mut rows: impl Iterator<Item = BarRow>) -> bool {
        let is_close = |row: BarRow| {
            row.stated_time().is_some_and(|time| {
                let is_by_day = (HOUR_NS + 1..DAY_NS - HOUR_NS).contains(&time_of_day(time));
                is_by_day && !is_at_a_weekend(time.div_euclid(DAY_NS))
            })
        };
        let [_, commonest, _] = self.times_of_day;
        self.are_utc && commonest == 0 && rows.all(is_close)
    }

    /// Times of rows, and those of their midnights in the place of times of day.
    pub(crate) fn day_times(&self, rows: impl Iterator<Item = BarRow>) -> Vec<i64> {
        rows.map(|row| self.before_row(&row, None).unwrap_or(row.stamp).ns()).collect()
    }

    /// Puts the rows of a file that carry a time of day at their midnights, and warns of them.
    pub(crate) fn settle(&self, source: &mut BarFile, zone: Option<&Zone>) -> Result<()> {
        let BarFile { rows, own_zone, warnings, path, .. } = source;
        let path: &Path = path;
        let own = own_zone.as_ref().map(|own| &own.zone);
        let zone = zone.or(own);
        if !rows.iter().any(|row| self.before_row(&row, zone).is_some()) {
            return Ok(());
        }
        let mut first: Option<String> = None;
        let mut more: u64 = 0;
        rows.update(|row| {
            let Some(midnight) = self.before_row(row, zone) else { return };
            if !row.is_at_stated_midnight() {
                match first {
                    Some(_) => more += 1,
                    None => first = Some(remark(path, row.line, row.stamp, midnight)),
                }
            }
            row.stamp = midnight;
        })?;
        warnings.extend(first.map(|first| match more {
            0 => first,
            _ => {
                let rows = counted(more, "more row with a time of day", "more rows with a time of day");
                format!("{first}; {rows} became days in the same way")
            }
        }));
        Ok(())
    }
}

/// Midnights of the files of days of one symbol.
#[derive(Default)]
pub(crate) struct FileMidnights {
    /// Midnights that each file shows by itself.
    own: Vec<Option<Midnights>>,
    /// Midnights of all files together, where some file shows none.
    common: Option<Midnights>,
}

impl FileMidnights {
    /// The midnights by which the `file`-th file is read.
    pub(crate) fn for_file(&self, file: usize) -> Option<&Midnights> {
        self.own.get(file).and_then(Option::as_ref).or(self.common.as_ref())
    }

    /// True if rows in UTC at the close in New York, beside dates of sessions, are of their date.
    /// They may be midnights in the East, too, which are of the date after it. Where they are too
    /// few to tell by the days of the week, the dates do: the row of a date has its prices, or is
    /// the first of that date.
    fn show_closes(&self, sources: &[BarFile]) -> bool {
        let rows = || sources.iter().flat_map(|source| source.rows.iter());
        let closes: Vec<(i64, BarRow)> = rows().filter_map(|row| Some((close_date(&row)?.ns(), row))).collect();
        let are_dates = self.own.iter().flatten().chain(&self.common).any(Midnights::are_dates_of_weekdays);
        if !are_dates || closes.is_empty() || closes.iter().any(|(date, _)| is_date_at_a_weekend(*date)) {
            return false;
        }
        let in_utc = rows().map(|row| row.stamp).filter(|stamp| stamp.is_utc());
        if SessionDays::shown_by(in_utc.map(RowTime::ns)).is_some() {
            return false;
        }
        let dated: HashMap<i64, BarRow> =
            rows().filter(|row| !row.stamp.is_utc()).map(|row| (row.stamp.ns(), row)).collect();
        // `None` for a date without a row.
        let have_prices = |later_ns: i64| {
            let one = |(date, row): &(i64, BarRow)| dated.get(&(date + later_ns)).map(|dated| dated.has_prices_of(row));
            closes.iter().map(one).collect::<Vec<Option<bool>>>()
        };
        let (same, next) = (have_prices(0), have_prices(DAY_NS));
        let end_week = closes.iter().any(|(date, _)| is_date_at_a_weekend(date + DAY_NS));
        let are_first = !same.contains(&Some(false)) && !next.contains(&Some(true));
        same.contains(&Some(true)) || end_week || are_first
    }

    /// Takes rows in UTC at the close in New York for those of their date, beside dates.
    fn take_closes(&mut self) {
        let dates = self.own.iter_mut().flatten().chain(&mut self.common).filter(|own| own.are_dates_of_weekdays());
        dates.for_each(|dates| dates.have_closes = true);
    }

    /// The last of them.
    pub(crate) fn recent(&self) -> Option<Midnights> {
        let last_own = || self.own.iter().flatten().next_back();
        self.common.as_ref().or_else(last_own).map(Midnights::recent)
    }
}

/// Puts the rows of files of days that carry a time of day at their midnights, and warns of them.
/// The midnights of all files together count for files that show none, and dates for files of
/// closes.
pub(crate) fn settle_days(sources: &mut [BarFile], base: Timeframe, zone: Option<&Zone>) -> Result<FileMidnights> {
    let mut midnights = FileMidnights::default();
    if base != Timeframe::D1 {
        return Ok(midnights);
    }
    midnights.own = sources.iter().map(|source| Midnights::told_by(|| source.rows.stamps())).collect();
    let dates = midnights.own.iter().flatten().find(|own| own.are_dates_of_weekdays()).cloned();
    if let Some(dates) = dates {
        for (source, own) in sources.iter().zip(&mut midnights.own) {
            if own.as_ref().is_some_and(|own| own.may_be_closes(source.rows.iter())) {
                *own = Some(dates.clone());
            }
        }
    }
    for (source, own) in sources.iter_mut().zip(&midnights.own) {
        if let Some(own) = own {
            own.settle(source, zone)?;
        }
    }
    if midnights.own.iter().any(Option::is_none) {
        let all = &*sources;
        midnights.common = Midnights::told_by(|| all.iter().flat_map(|source| source.rows.stamps()));
    }
    if let Some(common) = &midnights.common {
        let without = sources.iter_mut().zip(&midnights.own).filter(|(_, own)| own.is_none());
        for (source, _) in without {
            common.settle(source, zone)?;
        }
    }
    if midnights.show_closes(sources) {
        midnights.take_closes();
        for (file, source) in sources.iter_mut().enumerate() {
            midnights.for_file(file).map_or(Ok(()), |own| own.settle(source, zone))?;
        }
    }
    Ok(midnights)
}

/// The remark on a row that became one of the day of its midnight.
pub(crate) fn remark(path: &Path, line: u64, stamp: RowTime, midnight: RowTime) -> String {
    let time = match stamp {
        RowTime::Utc(ns) => display_utc(ns),
        RowTime::Wall(ns) => display_utc(ns).replace('T', " ").replace('Z', ""),
    };
    // Midnights of the East are in the afternoon of the day before in UTC.
    let day = display_date(midnight.ns().saturating_add(DAY_NS / 2));
    format!(
        "{}: line {line} is at {time}, and nearly all other bars, given or recorded before, are midnights: it is the row of {day}",
        path.display()
    )
}

/// Times of day at which midnights are of which most are at `commonest`: clocks are moved by an
/// hour.
fn possible_times(commonest: i64) -> [i64; 3] {
    let [before, after] = [commonest - HOUR_NS, commonest + HOUR_NS].map(time_of_day);
    // No exchange is an hour behind UTC.
    [before, commonest, if commonest == 0 { 0 } else { after }]
}

/// The date of a row in UTC without an offset, if its time may be the close in New York.
fn close_date(row: &BarRow) -> Option<RowTime> {
    let RowTime::Utc(ns) = row.stamp else { return None };
    let is_close = row.east_ns.is_none() && NEW_YORKS_CLOSE_NS.contains(&time_of_day(ns));
    is_close.then(|| RowTime::Wall(ns - time_of_day(ns)))
}

fn is_date_at_a_weekend(ns: i64) -> bool {
    is_at_a_weekend(ns.div_euclid(DAY_NS))
}

fn time_of_day(ns: i64) -> i64 {
    ns.rem_euclid(DAY_NS)
}

fn is_american(ns: i64) -> bool {
    AMERICAN_NS.contains(&time_of_day(ns)) && ns.rem_euclid(HOUR_NS) == 0
}

/// True if a time in UTC may be the midnight of an exchange.
fn may_be_midnight(ns: i64) -> bool {
    ns.rem_euclid(HOUR_NS) == 0 || time_of_day(ns) == INDIAN_NS
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Weekdays from Monday 1970-01-05 on, at a time of day.
    fn weekdays(count: i64, time_ns: i64) -> Vec<i64> {
        (0..count).map(|k| (4 + k / 5 * 7 + k % 5) * DAY_NS + time_ns).collect()
    }

    fn midnights(stamps: &[RowTime]) -> Option<Midnights> {
        Midnights::told_by(|| stamps.iter().copied())
    }

    #[test]
    fn a_time_of_day_among_midnights_is_of_its_day() {
        let half_past = |hour: i64| hour * HOUR_NS + 30 * MINUTE_NS;
        // Day 21 is a Thursday.
        let cases = [
            // Dates, New York in winter, Berlin, Tokyo; live rows in New York, Berlin and Tokyo.
            (0, half_past(15), Some(0)),
            (0, half_past(9), Some(0)),
            (0, HOUR_NS, Some(0)),
            (0, -HOUR_NS, None),
            (5 * HOUR_NS, half_past(20), Some(5 * HOUR_NS)),
            (5 * HOUR_NS, DAY_NS + HOUR_NS, Some(5 * HOUR_NS)),
            (5 * HOUR_NS, 4 * HOUR_NS, None),
            (5 * HOUR_NS, 0, None),
            (-HOUR_NS, half_past(14), Some(-HOUR_NS)),
            (-2 * HOUR_NS, half_past(-1), Some(-2 * HOUR_NS)),
            (-9 * HOUR_NS, 3 * HOUR_NS, Some(-9 * HOUR_NS)),
            // The open in New York is no midnight.
            (half_past(14), half_past(20), None),
        ];
        for (usual, time_ns, expected) in cases {
            for on_clock in [RowTime::Utc as fn(i64) -> RowTime, RowTime::Wall] {
                let stamps: Vec<RowTime> = weekdays(13, usual).into_iter().map(on_clock).collect();
                let found = midnights(&stamps).and_then(|own| own.before(on_clock(21 * DAY_NS + time_ns), None));
                let expected = expected.map(|time_ns| on_clock(21 * DAY_NS + time_ns));
                assert_eq!(found, expected, "{usual} {time_ns}");
            }
        }
    }

    #[test]
    fn days_that_begin_at_another_hour_have_no_midnights() {
        let coin = |time_ns: i64| -> Vec<RowTime> { (0..60).map(|day| RowTime::Utc(day * DAY_NS + time_ns)).collect() };
        assert!(midnights(&coin(0)).is_some());
        for time_ns in [5 * HOUR_NS, 22 * HOUR_NS] {
            assert_eq!(midnights(&coin(time_ns)), None, "{time_ns}");
        }
    }

    #[test]
    fn one_in_ten_may_carry_a_time_of_day() {
        for (dates, others, is_told) in [(3, 0, true), (3, 1, true), (2, 1, false), (9, 2, true), (8, 2, false)] {
            let mut stamps: Vec<RowTime> = weekdays(dates, 0).into_iter().map(RowTime::Wall).collect();
            stamps.extend((0..others).map(|k| RowTime::Wall((30 + k) * DAY_NS + 15 * HOUR_NS)));
            assert_eq!(midnights(&stamps).is_some(), is_told, "{dates} {others}");
        }
    }

    #[test]
    fn a_row_with_an_offset_beside_midnights_of_its_clock_is_of_its_day() {
        // New York in winter and in summer, whose evening is midnight in UTC.
        for (midnight, east) in [(5 * HOUR_NS, -5), (4 * HOUR_NS, -4)] {
            let stamps: Vec<RowTime> = weekdays(13, midnight).into_iter().map(RowTime::Utc).collect();
            let own = midnights(&stamps).unwrap();
            let row =
                |ns: i64, east: i64| BarRow { east_ns: Some(east * HOUR_NS), ..BarRow::flat(RowTime::Utc(ns), 1.0, 1) };
            let evening = 22 * DAY_NS;
            assert_eq!(own.before_row(&row(evening, east), None), Some(RowTime::Utc(21 * DAY_NS + midnight)));
            assert_eq!(own.before_row(&row(21 * DAY_NS + midnight, east), None), None);
            assert_eq!(own.before_row(&row(21 * DAY_NS + 4 * HOUR_NS, -5), None), None);
            // Another clock has other midnights.
            assert_eq!(own.before_row(&row(evening, 9), None), None);
        }
        // The midnight of Tokyo beside opens at nine there, and beside days of a coin.
        let tokyo =
            BarRow { east_ns: Some(9 * HOUR_NS), ..BarRow::flat(RowTime::Utc(21 * DAY_NS - 9 * HOUR_NS), 1.0, 1) };
        let opens: Vec<RowTime> = weekdays(13, 0).into_iter().map(RowTime::Utc).collect();
        let coin: Vec<RowTime> = (0..30).map(|day| RowTime::Utc(day * DAY_NS)).collect();
        for (stamps, day) in [(opens, 21), (coin, 20)] {
            let found = midnights(&stamps).unwrap().before_row(&tokyo, None);
            assert_eq!(found, Some(RowTime::Utc(day * DAY_NS)));
        }
    }

    #[test]
    fn a_row_with_an_offset_beside_dates_is_of_its_day_on_their_clock() {
        let dates: Vec<RowTime> = weekdays(13, 0).into_iter().map(RowTime::Wall).collect();
        let own = midnights(&dates).unwrap();
        let [new_york, utc] = ["America/New_York", "UTC"].map(|name| name.parse::<Zone>().unwrap());
        // 20:00 in New York, and the midnight of Tokyo.
        let (evening, tokyo) = (RowTime::Utc(22 * DAY_NS + HOUR_NS), RowTime::Utc(21 * DAY_NS + 15 * HOUR_NS));
        assert_eq!(own.before(evening, Some(&new_york)), Some(RowTime::Wall(21 * DAY_NS)));
        assert_eq!(own.before(evening, None), None);
        assert_eq!(own.before(tokyo, Some(&utc)), None);
        let live = RowTime::Utc(21 * DAY_NS + 20 * HOUR_NS + 30 * MINUTE_NS);
        assert_eq!(own.before(live, Some(&utc)), Some(RowTime::Wall(21 * DAY_NS)));
        // 20:00 in New York without its zone, and its midnight.
        let stated = |stamp: RowTime| BarRow { east_ns: Some(-5 * HOUR_NS), ..BarRow::flat(stamp, 1.0, 1) };
        assert_eq!(own.before_row(&stated(evening), None), Some(RowTime::Wall(21 * DAY_NS)));
        assert_eq!(own.before_row(&stated(RowTime::Utc(21 * DAY_NS + 5 * HOUR_NS)), None), None);
        // 20:30 in UTC and the midnight of Tokyo.
        let in_utc = |stamp: RowTime| BarRow::flat(stamp, 1.0, 1);
        assert_eq!(own.before_row(&in_utc(live), None), Some(RowTime::Wall(21 * DAY_NS)));
        assert_eq!(own.before_row(&in_utc(tokyo), None), None);
        // London's clock in winter, on which no other exchange has its midnight.
        let london = |hour: i64| BarRow { east_ns: Some(0), ..in_utc(RowTime::Utc(21 * DAY_NS + hour * HOUR_NS)) };
        for zone in [None, Some(&utc)] {
            for hour in [0, 16, 23] {
                assert_eq!(own.before_row(&london(hour), zone), Some(RowTime::Wall(21 * DAY_NS)), "{hour}");
            }
        }
        // Midnights of Nepal, and of Adelaide in both seasons, when New York opens.
        for east_ns in [5 * HOUR_NS + 45 * MINUTE_NS, 9 * HOUR_NS + 30 * MINUTE_NS, 10 * HOUR_NS + 30 * MINUTE_NS] {
            let midnight = BarRow { east_ns: Some(east_ns), ..in_utc(RowTime::Utc(21 * DAY_NS - east_ns)) };
            for zone in [None, Some(&utc), Some(&new_york)] {
                assert_eq!(own.before_row(&midnight, zone), Some(RowTime::Wall(21 * DAY_NS)), "{east_ns}");
            }
        }
        // Days of a coin are no sessions.
        let coin: Vec<RowTime> = (0..30).map(|day| RowTime::Wall(day * DAY_NS)).collect();
        let midnight = BarRow { east_ns: Some(9 * HOUR_NS), ..in_utc(tokyo) };
        assert_eq!(midnights(&coin).unwrap().before_row(&midnight, None), None);
    }
}
