//! The day of a daily bar.
//!
//! ```text
//! 2024-03-05                   its day
//! 2024-03-05 00:00 -05:00      its day: an exchange's midnight, 05:00 UTC
//! 2024-03-04 23:00 +00:00      the day after: Berlin's midnight
//! 2024-03-05 14:30 +00:00      its day: the open in New York
//! ```
//!
//! A market that rests at weekends shows which it is: its days are Monday to Friday. The bars of a
//! market of seven days are what their times say. A weekly bar is of the week from its Monday on in
//! the same way, so that a week is seven days on both sides of a change of clocks:
//!
//! ```text
//! 2024-03-04                   week of 4 March
//! 2024-03-04 00:00 -05:00      the same
//! 2024-03-03 23:00 +00:00      the same: Berlin's midnight
//! 2024-03-06                   the same, as a file's last row, where all before are of Mondays
//! ```
//!
//! Dates may stand beside times in UTC, such as those of appended files. Each of both tells its
//! days by itself.
//!
//! Beside shorter bars, no day or week opens before its own time: it may have trades until a day or
//! a week after that.

use crate::time::timeframe::Timeframe;
use crate::time::timestamp::{DAY_NS, HOUR_NS, MINUTE_NS, RowTime, display_date};

/// Days since 1970-01-01, a Thursday, of the first Saturday.
const SATURDAY: i64 = 2;
const MONDAY: i64 = SATURDAY + 2;
/// Fewest bars that show the days of a market.
const BARS_MIN: u64 = 5;
/// Fewest rows of Mondays beside which a week may have a row within itself.
const MONDAYS_MIN: usize = 3;
/// Largest share of bars at a weekend in a market that rests then.
const WEEKEND_SHARE_MAX: f64 = 0.02;

/// How the time of a daily bar tells its day, and that of a weekly one its first day.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum SessionDays {
    /// A bar opens at its time.
    #[default]
    AsStamped,
    /// A bar is of the day of its time.
    SameDay,
    /// A bar is of the day that the next midnight begins, if its time is in the afternoon.
    NextDay,
}

impl SessionDays {
    /// The way that all bars of a symbol show, by the times at which they open.
    pub(crate) fn told_by(opens: impl Iterator<Item = i64>) -> Self {
        SessionDays::shown_by(opens).unwrap_or_default()
    }

    /// The same; `None` where the bars leave it open.
    pub(crate) fn shown_by(opens: impl Iterator<Item = i64>) -> Option<Self> {
        let counts = DayCounts::new(opens, is_at_a_weekend);
        let DayCounts { bars, same, next, are_before_noon, .. } = counts;
        if bars < BARS_MIN {
            return None;
        }
        let fits = |weekends: u64| weekends as f64 <= WEEKEND_SHARE_MAX * bars as f64;
        match (fits(same), fits(next)) {
            // Times before noon are of one day either way.
            (true, true) if are_before_noon || same < next => Some(SessionDays::SameDay),
            (true, true) => (next < same || counts.are_of_london()).then_some(SessionDays::NextDay),
            (true, false) => Some(SessionDays::SameDay),
            (false, true) => Some(SessionDays::NextDay),
            (false, false) => Some(SessionDays::AsStamped),
        }
    }

    /// The way that most weekly bars of a symbol show, by the times at which they open: weeks begin
    /// on Mondays. `None` where they leave it open.
    fn shown_by_weeks(opens: impl Iterator<Item = i64>) -> Option<Self> {
        let DayCounts { bars, same, next, are_before_noon, .. } = DayCounts::new(opens, is_a_monday);
        // Times before noon are of one day either way.
        if are_before_noon || (2 * same > bars && same >= next) {
            Some(SessionDays::SameDay)
        } else {
            (2 * next > bars).then_some(SessionDays::NextDay)
        }
    }

    /// The way of one bar that follows others of sessions. Midnights of exchanges in the East are
    /// afternoons in UTC; so are New York's opens, and every afternoon of a Friday.
    pub(crate) fn for_one(open: i64) -> Self {
        let past_noon = open.rem_euclid(DAY_NS) - DAY_NS / 2;
        let is_new_yorks_open = [HOUR_NS, 2 * HOUR_NS].contains(&(past_noon - 30 * MINUTE_NS));
        let [same, next] = [SessionDays::SameDay, SessionDays::NextDay].map(|days| days.day(open));
        let is_fridays = is_at_a_weekend(next) && !is_at_a_weekend(same);
        if is_new_yorks_open || is_fridays { SessionDays::SameDay } else { SessionDays::NextDay }
    }

    /// Open time of a daily or weekly bar, in UTC, by its time on whichever clock; `None` if it is
    /// that time.
    pub(crate) fn open_time(self, open: i64) -> Option<i64> {
        (self != SessionDays::AsStamped).then(|| self.day(open).saturating_mul(DAY_NS))
    }

    /// Days since 1970-01-01.
    fn day(self, open: i64) -> i64 {
        match self {
            SessionDays::AsStamped | SessionDays::SameDay => open.div_euclid(DAY_NS),
            SessionDays::NextDay => open.saturating_add(DAY_NS / 2).div_euclid(DAY_NS),
        }
    }
}

/// Bars whose days pass a test.
struct DayCounts {
    bars: u64,
    /// Bars whose day does by [`SessionDays::SameDay`].
    same: u64,
    /// Bars whose day does by [`SessionDays::NextDay`].
    next: u64,
    /// True if all times are before noon.
    are_before_noon: bool,
    /// Bars at midnight in UTC.
    at_midnight: u64,
    /// Bars an hour before midnight.
    at_last_hour: u64,
}

impl DayCounts {
    fn new(opens: impl Iterator<Item = i64>, is_counted: fn(i64) -> bool) -> Self {
        let mut counts =
            DayCounts { bars: 0, same: 0, next: 0, are_before_noon: true, at_midnight: 0, at_last_hour: 0 };
        for open in opens {
            counts.bars += 1;
            counts.same += u64::from(is_counted(SessionDays::SameDay.day(open)));
            counts.next += u64::from(is_counted(SessionDays::NextDay.day(open)));
            counts.are_before_noon &= is_before_noon(open);
            counts.at_midnight += u64::from(open.rem_euclid(DAY_NS) == 0);
            counts.at_last_hour += u64::from((open + HOUR_NS).rem_euclid(DAY_NS) == 0);
        }
        counts
    }

    /// True for midnights of London, whose clock is that of UTC in winter.
    fn are_of_london(&self) -> bool {
        self.at_midnight > 0 && self.at_midnight + self.at_last_hour == self.bars
    }
}

/// How the rows of one symbol tell the days of daily bars, and the first days of weekly ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RowDays {
    /// The way of times on a wall clock.
    wall: SessionDays,
    /// The way of times in UTC. With `None`, each tells its own.
    utc: Option<SessionDays>,
    /// The last row of a file of weeks, where it is stamped within its week.
    live_week: Option<LiveWeek>,
}

/// The row of a week that has not ended, such as that of a Wednesday behind rows of Mondays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LiveWeek {
    pub(crate) stamp: RowTime,
    /// Midnight with which its day begins.
    pub(crate) day: i64,
    /// Midnight with which its week begins.
    pub(crate) start: i64,
}

impl LiveWeek {
    /// The remark on the row, behind its name.
    pub(crate) fn remark(self) -> String {
        let [day, monday] = [self.day, self.start].map(display_date);
        format!("of {day}, and all other rows are of Mondays: it is the row of the week from {monday} on")
    }
}

impl RowDays {
    /// One way for all rows.
    pub(crate) fn all(days: SessionDays) -> Self {
        RowDays { wall: days, utc: Some(days), live_week: None }
    }

    /// The way that bars of `base` show by their stamps. If some are on a wall clock and others in
    /// UTC, each of both shows its own, except where one shows a market of seven days. Those that
    /// leave it open follow the others: days in UTC as they do where bars are followed.
    pub(crate) fn told_by<I: Iterator<Item = RowTime>>(base: Timeframe, stamps: impl Fn() -> I) -> Self {
        if !matches!(base, Timeframe::D1 | Timeframe::W1) {
            return RowDays::all(SessionDays::AsStamped);
        }
        let shown_by = |is_wanted: fn(&RowTime) -> bool| {
            let opens = stamps().filter(is_wanted).map(RowTime::ns);
            if base == Timeframe::W1 { SessionDays::shown_by_weeks(opens) } else { SessionDays::shown_by(opens) }
        };
        let together = || RowDays::all(shown_by(|_stamp| true).unwrap_or_default());
        if stamps().all(RowTime::is_utc) || !stamps().any(RowTime::is_utc) {
            return together();
        }
        match (shown_by(|stamp| !stamp.is_utc()), shown_by(|stamp| stamp.is_utc())) {
            (Some(SessionDays::AsStamped), _) | (_, Some(SessionDays::AsStamped)) | (None, None) => together(),
            (None, Some(utc)) => RowDays::all(utc),
            (Some(wall), None) if base == Timeframe::W1 => RowDays::all(wall),
            (Some(wall), utc) => RowDays { wall, utc, live_week: None },
        }
    }

    /// The days of each of several files of weeks, by the stamps of their rows. The last row of a
    /// file may be stamped within its week, of which it has no other: where all rows before that
    /// row, three or more before its week, are of Mondays. Last rows of other files may be such
    /// rows, too, so that files that are added change none.
    pub(crate) fn with_live_weeks(self, files: &[Vec<RowTime>]) -> Vec<Self> {
        let mut others: Vec<i64> = Vec::new();
        let mut last_rows: Vec<Option<LiveWeek>> = Vec::with_capacity(files.len());
        for stamps in files {
            let placed = |&stamp: &RowTime| Some((self.open_time(stamp, 0)?, stamp));
            let opens: Vec<(i64, RowTime)> = stamps.iter().filter_map(placed).collect();
            let last = opens.iter().max_by_key(|(open, _)| *open);
            let live = last.map(|&(day, stamp)| LiveWeek { stamp, day, start: Timeframe::W1.bin(day).start });
            let live = live.filter(|live| live.start < live.day);
            let is_other = |(_, stamp): &&(i64, RowTime)| live.is_none_or(|live| live.stamp != *stamp);
            let own: Vec<i64> = opens.iter().filter(is_other).map(|(open, _)| *open).collect();
            last_rows.push(live.filter(|live| own.iter().all(|open| *open < live.start)));
            others.extend(own);
        }
        let is_live = |live: &LiveWeek| {
            let mut before = others.iter().filter(|open| **open < live.day);
            let mondays = others.iter().filter(|open| **open < live.start).count();
            mondays >= MONDAYS_MIN && before.all(|open| Timeframe::W1.bin(*open).start == *open)
        };
        last_rows.into_iter().map(|live| RowDays { live_week: live.filter(is_live), ..self }).collect()
    }

    /// The last row of a file of weeks, where it is stamped within its week.
    pub(crate) fn live_week(self) -> Option<LiveWeek> {
        self.live_week
    }

    /// Open time of a daily or weekly bar, in UTC, whose stamp is `stamp_delay_ns` after it; `None`
    /// if the bar opens at the time that the stamp tells.
    pub(crate) fn open_time(self, stamp: RowTime, stamp_delay_ns: i64) -> Option<i64> {
        if let Some(live) = self.live_week.filter(|live| live.stamp == stamp) {
            return Some(live.start - stamp_delay_ns);
        }
        let open = stamp.ns() - stamp_delay_ns;
        let days = match stamp {
            RowTime::Wall(_) => self.wall,
            RowTime::Utc(_) => self.utc.unwrap_or_else(|| SessionDays::for_one(open)),
        };
        days.open_time(open)
    }
}

/// True for a Saturday or a Sunday, in days since 1970-01-01.
pub(crate) fn is_at_a_weekend(day: i64) -> bool {
    (day - SATURDAY).rem_euclid(7) < 2
}

fn is_a_monday(day: i64) -> bool {
    (day - MONDAY).rem_euclid(7) == 0
}

fn is_before_noon(time: i64) -> bool {
    time.rem_euclid(DAY_NS) < DAY_NS / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_days_of_a_market_show_in_its_times() {
        use SessionDays::{AsStamped, NextDay, SameDay};
        // Monday 1970-01-05 is day 4.
        let weekdays = |count: i64| (0..count).map(|k| 4 + k / 5 * 7 + k % 5);
        let at = |days: &mut dyn Iterator<Item = i64>, time_ns: i64| -> Vec<i64> {
            days.map(|day| day * DAY_NS + time_ns).collect()
        };
        for (opens, expected) in [
            (at(&mut weekdays(60), 0), SameDay),
            (at(&mut weekdays(60), 5 * HOUR_NS), SameDay),
            (at(&mut weekdays(60), 14 * HOUR_NS + 30 * MINUTE_NS), SameDay),
            (at(&mut weekdays(60), -HOUR_NS), NextDay),
            (at(&mut weekdays(60), -9 * HOUR_NS), NextDay),
            (at(&mut weekdays(5), 0), SameDay),
            (at(&mut weekdays(4), 5 * HOUR_NS), AsStamped),
            // London, whose data have five days of summer: one of 102 is a Sunday.
            (at(&mut weekdays(97), 0).into_iter().chain(at(&mut weekdays(103).skip(98), -HOUR_NS)).collect(), NextDay),
            // London, whose summer has begun on a Tuesday, after Easter.
            (at(&mut weekdays(96), 0).into_iter().chain(at(&mut weekdays(97).skip(96), -HOUR_NS)).collect(), NextDay),
            // A Friday's afternoon beside midnights of New York.
            (
                at(&mut weekdays(59), 5 * HOUR_NS)
                    .into_iter()
                    .chain(at(&mut weekdays(60).skip(59), 20 * HOUR_NS))
                    .collect(),
                SameDay,
            ),
            // Sessions of Tuesdays to Fridays leave both open.
            (at(&mut weekdays(60).filter(|day| day % 7 != 4), -HOUR_NS), AsStamped),
            (at(&mut (0..60), 5 * HOUR_NS), AsStamped),
            (at(&mut (0..60), 0), AsStamped),
            (Vec::new(), AsStamped),
        ] {
            assert_eq!(SessionDays::told_by(opens.iter().copied()), expected, "{:?}", opens.first());
        }
        let weeks = |count: i64| (0..count).map(|k| 4 + 7 * k);
        for (opens, expected) in [
            (at(&mut weeks(60), 0), SameDay),
            (at(&mut weeks(2), 5 * HOUR_NS), SameDay),
            (at(&mut weeks(60), 14 * HOUR_NS + 30 * MINUTE_NS), SameDay),
            (at(&mut weeks(60), -HOUR_NS), NextDay),
            (at(&mut weeks(60), -9 * HOUR_NS), NextDay),
            // London, whose clock is that of UTC in winter.
            (at(&mut weeks(30), 0).into_iter().chain(at(&mut weeks(60).skip(30), -HOUR_NS)).collect(), NextDay),
            // Weeks from Sundays and from Wednesdays on.
            (at(&mut weeks(60).map(|day| day - 1), 0), SameDay),
            (at(&mut weeks(60).map(|day| day + 2), 20 * HOUR_NS), AsStamped),
        ] {
            let found = SessionDays::shown_by_weeks(opens.iter().copied()).unwrap_or_default();
            assert_eq!(found, expected, "{:?}", opens.first());
        }
        let cases = [(23, 0, NextDay), (15, 0, NextDay), (18, 30, NextDay), (14, 30, SameDay), (13, 30, SameDay)];
        for (hour, minute, expected) in cases {
            assert_eq!(SessionDays::for_one(hour * HOUR_NS + minute * MINUTE_NS), expected, "{hour}:{minute}");
        }
        // Friday at 16:00 in New York, and Monday's midnight in Berlin.
        assert_eq!(SessionDays::for_one(DAY_NS + 21 * HOUR_NS), SameDay);
        assert_eq!(SessionDays::for_one(3 * DAY_NS + 23 * HOUR_NS), NextDay);
        assert_eq!(NextDay.open_time(5 * HOUR_NS), Some(0));
        assert_eq!(AsStamped.open_time(5 * HOUR_NS), None);
    }

    /// Midnights of London, Tokyo and New York that were appended to years of dates.
    #[test]
    fn times_in_utc_tell_their_days_beside_dates() {
        let weekday = |k: i64| 4 + k / 5 * 7 + k % 5;
        let dates = || (0..1_020).map(move |k| RowTime::Wall(weekday(k) * DAY_NS));
        for [winter, summer] in [[0, -1], [-9, -9], [5, 4]] {
            let midnight = move |k: i64| {
                let hour = if k < 1_020 { winter } else { summer };
                RowTime::Utc(weekday(k) * DAY_NS + hour * HOUR_NS)
            };
            // Months, days around a change of clocks, one day, a winter and two days of summer.
            for places in [1_020..1_190, 1_018..1_021, 1_021..1_022, 900..1_022] {
                let days = RowDays::told_by(Timeframe::D1, || dates().chain(places.clone().map(midnight)));
                for k in places.clone() {
                    assert_eq!(days.open_time(midnight(k), 0), Some(weekday(k) * DAY_NS), "{places:?} {summer}");
                }
                assert_eq!(days.open_time(RowTime::Wall(weekday(7) * DAY_NS), 0), Some(weekday(7) * DAY_NS));
            }
        }
        let weeks = |on_clock: fn(i64) -> RowTime, hour: i64| {
            (0..60).map(move |week| on_clock((4 + 7 * week) * DAY_NS + hour * HOUR_NS))
        };
        let days = RowDays::told_by(Timeframe::W1, || weeks(RowTime::Wall, 0).chain(weeks(RowTime::Utc, -1).take(4)));
        assert_eq!(days.open_time(RowTime::Utc(4 * DAY_NS - HOUR_NS), 0), Some(4 * DAY_NS));
        // A market of seven days has days that begin at their times.
        let coin = || (0..60).map(|day| RowTime::Wall(day * DAY_NS));
        let later = || (0..5).map(move |k| RowTime::Utc(weekday(k) * DAY_NS + 5 * HOUR_NS));
        let days = RowDays::told_by(Timeframe::D1, || coin().chain(later()));
        assert_eq!(days, RowDays::all(SessionDays::AsStamped));
        assert_eq!(RowDays::told_by(Timeframe::D1, later), RowDays::all(SessionDays::SameDay));
        assert_eq!(RowDays::told_by(Timeframe::H4, later), RowDays::all(SessionDays::AsStamped));
    }

    #[test]
    fn the_last_row_of_a_file_of_weeks_may_be_within_its_week() {
        let by_file = |files: &[Vec<RowTime>]| {
            RowDays::told_by(Timeframe::W1, || files.iter().flatten().copied()).with_live_weeks(files)
        };
        // Week 0 begins on day 4, and week 60 on day 424.
        let weeks = |count: i64| (0..count).map(|week| RowTime::Wall((4 + 7 * week) * DAY_NS));
        let with_last = |count: i64, last: RowTime| -> Vec<RowTime> { weeks(count).chain([last]).collect() };
        let live_start = |days: RowDays| days.live_week().map(|live| live.start / DAY_NS);
        // Another file has those weeks and later ones, and ends within a week, too.
        let later = with_last(70, RowTime::Wall(497 * DAY_NS));
        for (last, expected) in [
            (RowTime::Wall(426 * DAY_NS), Some(424)),
            (RowTime::Wall(426 * DAY_NS + 15 * HOUR_NS), Some(424)),
            (RowTime::Utc(426 * DAY_NS), Some(424)),
            (RowTime::Wall(424 * DAY_NS), None),
            // A row of that week is there.
            (RowTime::Wall(419 * DAY_NS), None),
            (RowTime::Wall(5 * DAY_NS), None),
        ] {
            let opens = expected.unwrap_or(last.ns().div_euclid(DAY_NS)) * DAY_NS;
            let own = with_last(60, last);
            let alone = by_file(std::slice::from_ref(&own))[0];
            for days in [alone, by_file(&[own, later.clone()])[0]] {
                assert_eq!(live_start(days), expected, "{last:?}");
                assert_eq!(days.open_time(last, 0), Some(opens), "{last:?}");
            }
        }
        let own = with_last(60, RowTime::Wall(426 * DAY_NS));
        assert_eq!(live_start(by_file(&[own, later])[1]), Some(494));
        // A row of its own file is alone, and two weeks show no Mondays.
        let (day, mondays) = (RowTime::Wall(426 * DAY_NS), weeks(3).collect());
        assert_eq!(live_start(by_file(&[mondays, vec![day]])[1]), Some(424));
        assert_eq!(live_start(by_file(&[with_last(2, day)])[0]), None);
        let fridays = (0..60).map(|week| RowTime::Wall((8 + 7 * week) * DAY_NS));
        let fridays: Vec<RowTime> = fridays.chain([RowTime::Wall(430 * DAY_NS)]).collect();
        assert_eq!(live_start(by_file(&[fridays])[0]), None);
    }
}
