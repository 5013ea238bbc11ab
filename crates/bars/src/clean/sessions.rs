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
//! ```
//!
//! Beside shorter bars, no day or week opens before its own time: it may have trades until a day or
//! a week after that.

use crate::time::timestamp::{DAY_NS, HOUR_NS, MINUTE_NS};

/// Days since 1970-01-01, a Thursday, of the first Saturday.
const SATURDAY: i64 = 2;
const MONDAY: i64 = SATURDAY + 2;
/// Fewest bars that show the days of a market.
const BARS_MIN: u64 = 5;
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
        let (mut bars, mut same, mut next) = (0_u64, 0_u64, 0_u64);
        let mut is_a_midnight = true;
        for open in opens {
            bars += 1;
            same += u64::from(is_at_a_weekend(SessionDays::SameDay.day(open)));
            next += u64::from(is_at_a_weekend(SessionDays::NextDay.day(open)));
            is_a_midnight &= is_before_noon(open);
        }
        let fits = |weekends: u64| bars >= BARS_MIN && weekends as f64 <= WEEKEND_SHARE_MAX * bars as f64;
        match (fits(same), fits(next)) {
            // Times before noon are of one day either way.
            (true, true) if is_a_midnight => SessionDays::SameDay,
            (true, false) => SessionDays::SameDay,
            (false, true) => SessionDays::NextDay,
            _ => SessionDays::AsStamped,
        }
    }

    /// The way that most weekly bars of a symbol show, by the times at which they open: weeks begin
    /// on Mondays.
    pub(crate) fn told_by_weeks(opens: impl Iterator<Item = i64>) -> Self {
        let (mut bars, mut same, mut next) = (0_u64, 0_u64, 0_u64);
        let mut is_a_midnight = true;
        for open in opens {
            bars += 1;
            same += u64::from(is_a_monday(SessionDays::SameDay.day(open)));
            next += u64::from(is_a_monday(SessionDays::NextDay.day(open)));
            is_a_midnight &= is_before_noon(open);
        }
        // Times before noon are of one day either way.
        if is_a_midnight || (2 * same > bars && same > next) {
            SessionDays::SameDay
        } else if 2 * next > bars {
            SessionDays::NextDay
        } else {
            SessionDays::AsStamped
        }
    }

    /// The way of one bar that follows others of sessions. Midnights of exchanges in the East are
    /// afternoons in UTC; so are New York's opens.
    pub(crate) fn for_one(open: i64) -> Self {
        let past_noon = open.rem_euclid(DAY_NS) - DAY_NS / 2;
        let is_new_yorks_open = [HOUR_NS, 2 * HOUR_NS].contains(&(past_noon - 30 * MINUTE_NS));
        if is_new_yorks_open { SessionDays::SameDay } else { SessionDays::NextDay }
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
            assert_eq!(SessionDays::told_by_weeks(opens.iter().copied()), expected, "{:?}", opens.first());
        }
        let cases = [(23, 0, NextDay), (15, 0, NextDay), (18, 30, NextDay), (14, 30, SameDay), (13, 30, SameDay)];
        for (hour, minute, expected) in cases {
            assert_eq!(SessionDays::for_one(hour * HOUR_NS + minute * MINUTE_NS), expected, "{hour}:{minute}");
        }
        assert_eq!(NextDay.open_time(5 * HOUR_NS), Some(0));
        assert_eq!(AsStamped.open_time(5 * HOUR_NS), None);
    }
}
