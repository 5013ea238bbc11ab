//! Days on which markets rest that trade on the others of their week.

use crate::clean::gaps::Gap;
use crate::time::timestamp::{DAY_NS, days_since_1970, display_date};

/// Longest pause that holidays make with weekends beside them.
const PAUSE_NS_MAX: i64 = 7 * DAY_NS;

impl Gap {
    /// True for a pause of a week at most in which noon of Christmas Day, New Year's Day, Good
    /// Friday or another holiday of exchanges of the United States lies, in UTC.
    pub(crate) fn is_of_a_holiday(&self) -> bool {
        let noon = |day: i64| day * DAY_NS + DAY_NS / 2;
        let mut days = self.from.div_euclid(DAY_NS)..=self.to.div_euclid(DAY_NS);
        self.duration_ns() <= PAUSE_NS_MAX
            && days.any(|day| (self.from..self.to).contains(&noon(day)) && is_holiday(day))
    }

    /// True for a pause whose first noon is that of such a holiday, as of a weekend that Good
    /// Friday begins.
    pub(crate) fn begins_on_a_holiday(&self) -> bool {
        let first = (self.from + DAY_NS / 2 - 1).div_euclid(DAY_NS);
        self.to > first * DAY_NS + DAY_NS / 2 && is_holiday(first)
    }
}

/// True for a day of [`Gap::is_of_a_holiday`], counted from 1970-01-01.
fn is_holiday(day: i64) -> bool {
    let date = display_date(day * DAY_NS);
    let Some((year, month_and_day)) = date.split_once('-') else { return false };
    matches!(month_and_day, "12-25" | "01-01" | "06-19" | "07-04")
        || is_monday(day) && is_on_mondays(month_and_day)
        || is_thursday(day) && ("11-22"..="11-28").contains(&month_and_day)
        || year.parse::<i64>().is_ok_and(|year| day == good_friday(year))
}

fn is_monday(day: i64) -> bool {
    // 1970-01-05 was one.
    (day - 4).rem_euclid(7) == 0
}

fn is_thursday(day: i64) -> bool {
    // 1970-01-01 was one.
    day.rem_euclid(7) == 0
}

/// True for a Monday of this month and day on which exchanges of the United States are closed:
/// their holidays, and the days after those on a Sunday.
fn is_on_mondays(month_and_day: &str) -> bool {
    let spans = [
        ("01-02", "01-02"),
        ("01-15", "01-21"),
        ("02-15", "02-21"),
        ("05-25", "05-31"),
        ("06-19", "06-20"),
        ("07-04", "07-05"),
        ("09-01", "09-07"),
        ("12-26", "12-26"),
    ];
    spans.iter().any(|(first, last)| (*first..=*last).contains(&month_and_day))
}

/// Good Friday of a year, in days from 1970-01-01, by the calculation of Easter that Butcher gave.
fn good_friday(year: i64) -> i64 {
    let (golden, century, rest) = (year % 19, year / 100, year % 100);
    let leaps = century - century / 4 - (8 * century + 13) / 25;
    let epact = (19 * golden + leaps + 15) % 30;
    let weekday = (32 + 2 * (century % 4) + 2 * (rest / 4) - epact - rest % 4) % 7;
    let late = (golden + 11 * epact + 22 * weekday) / 451;
    let days = epact + weekday - 7 * late + 114;
    days_since_1970(year, days / 31, days % 31 + 1) - 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holidays_are_found_by_their_dates() {
        for (date, expected) in [
            ((2018, 3, 30), true),
            ((2019, 4, 19), true),
            ((2024, 3, 29), true),
            ((2025, 4, 18), true),
            ((2038, 4, 23), true),
            ((2017, 12, 25), true),
            ((2018, 1, 1), true),
            ((2018, 1, 15), true),
            ((2018, 1, 22), false),
            ((2018, 2, 19), true),
            ((2018, 5, 21), false),
            ((2018, 5, 28), true),
            ((2023, 6, 19), true),
            ((2024, 6, 19), true),
            ((2018, 7, 4), true),
            ((2018, 11, 22), true),
            ((2018, 11, 29), false),
            ((2022, 7, 4), true),
            ((2021, 7, 5), true),
            ((2018, 9, 3), true),
            ((2018, 9, 10), false),
            ((2022, 12, 26), true),
            ((2023, 1, 2), true),
            ((2018, 4, 2), false),
        ] {
            let (year, month, day) = date;
            let day = days_since_1970(year, month, day);
            assert_eq!(is_holiday(day), expected, "{date:?}");
            let gap = |from: i64, to: i64| Gap { from: day * DAY_NS + from, to: day * DAY_NS + to };
            assert_eq!(gap(-2 * DAY_NS, DAY_NS).is_of_a_holiday(), expected, "{date:?}");
            assert!(!gap(-4 * DAY_NS, 4 * DAY_NS).is_of_a_holiday(), "{date:?}");
            assert!(!gap(DAY_NS, 2 * DAY_NS).is_of_a_holiday(), "{date:?}");
            for from in [-DAY_NS / 2 + 1, 0, DAY_NS / 2] {
                assert_eq!(gap(from, 3 * DAY_NS).begins_on_a_holiday(), expected, "{date:?}");
            }
            assert!(!gap(DAY_NS / 2 + 1, DAY_NS).begins_on_a_holiday(), "{date:?}");
        }
    }
}
