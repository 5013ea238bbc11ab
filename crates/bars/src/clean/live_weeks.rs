//! The row of a week that has not ended, with which a file of weekly bars ends.
//!
//! ```text
//! 2021-04-12     a Monday, as all rows before it are
//! 2021-04-21     a Wednesday: the row of the week from Monday 19 April on
//! ```
//!
//! Weeks that are stamped on another day than Monday, as at their end, have none.

use crate::error::Result;
use crate::parse::bar_file::BarFile;
use crate::time::timeframe::Timeframe;
use crate::time::timestamp::{DAY_NS, HOUR_NS, RowTime, display_date};

/// Fewest other rows that show the day of the week.
const MONDAYS_MIN: usize = 3;
const WEEK_NS: i64 = Timeframe::W1.duration_ns();

/// A row that is stamped within its week.
#[derive(Clone, Copy, Debug, PartialEq)]
struct LiveWeek {
    stamp: RowTime,
    /// Midnight of the Monday with which its week begins.
    start: RowTime,
}

impl LiveWeek {
    /// The row stamped `last`, if it is within its week, and all of `others` on its clock are at
    /// midnights of Mondays.
    fn find(last: RowTime, others: &[RowTime]) -> Option<Self> {
        let on_its_clock = others.iter().filter(|stamp| stamp.is_on_the_clock_of(last));
        let mondays: Vec<i64> = on_its_clock.map(|stamp| stamp.ns()).collect();
        let latest = mondays.iter().copied().filter(|&ns| ns < last.ns()).max()?;
        let is_at_midnight = |ns: i64| is_whole_weeks(ns - latest);
        let are_mondays = is_on_a_monday(latest) && mondays.iter().all(|&ns| is_at_midnight(ns));
        let is_live = mondays.len() >= MONDAYS_MIN && are_mondays && !is_at_midnight(last.ns());
        let late_ns = (last.ns() - latest).rem_euclid(WEEK_NS);
        is_live.then(|| LiveWeek { stamp: last, start: last.earlier_by(late_ns) })
    }
}

/// The rows of weeks that have not ended, by file.
#[derive(Default)]
pub(crate) struct LiveWeeks(Vec<Option<LiveWeek>>);

impl LiveWeeks {
    /// Puts the rows with which files of weekly bars end, and which are stamped within their week,
    /// at its start, and warns of them.
    pub(crate) fn settle(sources: &mut [BarFile]) -> Result<Self> {
        let last_of = |source: &BarFile| source.rows.stamps().max_by_key(|stamp| stamp.ns());
        let lasts: Vec<Option<RowTime>> = sources.iter().map(last_of).collect();
        let mut others: Vec<RowTime> = Vec::new();
        for (source, last) in sources.iter().zip(&lasts) {
            others.extend(source.rows.stamps().filter(|stamp| Some(*stamp) != *last));
        }
        let find = |last: Option<RowTime>| last.and_then(|last| LiveWeek::find(last, &others));
        let weeks = LiveWeeks(lasts.into_iter().map(find).collect());
        for (file, source) in sources.iter_mut().enumerate() {
            weeks.settle_file(file, source)?;
        }
        Ok(weeks)
    }

    /// The same for the `file`-th file, which is read anew.
    pub(crate) fn settle_file(&self, file: usize, source: &mut BarFile) -> Result<()> {
        let Some(LiveWeek { stamp, start }) = self.0.get(file).copied().flatten() else { return Ok(()) };
        let BarFile { rows, warnings, path, .. } = source;
        // Midnights of the East are in the afternoon of the day before in UTC.
        let monday_ns = start.ns().saturating_add(DAY_NS / 2);
        let day_ns = (stamp.ns() - start.ns()) / DAY_NS * DAY_NS;
        let (path, day, monday) = (path.display(), display_date(monday_ns + day_ns), display_date(monday_ns));
        rows.update(|row| {
            if row.stamp == stamp {
                row.stamp = start;
                let line = row.line;
                warnings.push(format!(
                    "{path}: line {line} is of {day}, and all other rows are of Mondays: it is the row of the week from {monday} on"
                ));
            }
        })
    }
}

/// True for a time that is whole weeks, but for an hour by which a clock may be moved.
fn is_whole_weeks(ns: i64) -> bool {
    (ns + HOUR_NS).rem_euclid(WEEK_NS) <= 2 * HOUR_NS
}

/// True for a time near the midnight with which a Monday begins. Midnights of exchanges in the East
/// are in the afternoon of the day before in UTC.
fn is_on_a_monday(ns: i64) -> bool {
    let noon = ns.saturating_add(DAY_NS / 2);
    noon - Timeframe::W1.bin(noon).start < DAY_NS
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::timestamp::MINUTE_NS;

    #[test]
    fn a_row_within_its_week_is_that_of_its_monday() {
        let half_past = |hour: i64| hour * HOUR_NS + 30 * MINUTE_NS;
        // Day 4 is a Monday. Dates, New York, Tokyo, and Berlin with a change of clocks.
        for (usual, late_ns, found) in [
            (0, 2 * DAY_NS, true),
            (0, 2 * DAY_NS + half_past(15), true),
            (0, 0, false),
            (5 * HOUR_NS, 4 * DAY_NS + half_past(10), true),
            (-9 * HOUR_NS, DAY_NS, true),
            (-2 * HOUR_NS, -HOUR_NS, false),
            (-2 * HOUR_NS, 2 * DAY_NS, true),
            // Weeks stamped at their end, on Fridays and on Sundays.
            (4 * DAY_NS, 5 * DAY_NS, false),
            (6 * DAY_NS, 3 * DAY_NS, false),
        ] {
            for on_clock in [RowTime::Utc as fn(i64) -> RowTime, RowTime::Wall] {
                let week = |k: i64| on_clock((4 + 7 * k) * DAY_NS + usual);
                let others: Vec<RowTime> = (0..9).map(week).collect();
                let start = week(9);
                let stamp = start.earlier_by(-late_ns);
                let expected = found.then_some(LiveWeek { stamp, start });
                assert_eq!(LiveWeek::find(stamp, &others), expected, "{usual} {late_ns}");
                assert_eq!(LiveWeek::find(stamp, &others[..2]), None);
                // Weeks that are stamped on their first day of trading.
                let tuesday = week(4).earlier_by(-DAY_NS);
                assert_eq!(LiveWeek::find(stamp, &[&others[..4], &[tuesday], &others[5..]].concat()), None);
            }
        }
    }
}
