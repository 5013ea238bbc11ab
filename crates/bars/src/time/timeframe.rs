use std::fmt;
use std::ops::Range;
use std::str::FromStr;

use jiff::civil::{Date, date};
use jiff::{SignedDuration, ToSpan as _};

use crate::time::numbers::SECOND_NS;
use crate::time::timestamp::{DAY_NS, HOUR_NS, MINUTE_NS};
use crate::unknown_name::UnknownName;

/// The duration that one bar covers: those of MetaTrader 5 that people use. Ordered by it, shortest
/// first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Timeframe {
    /// One minute.
    M1,
    /// Two minutes.
    M2,
    /// Three minutes.
    M3,
    /// Five minutes.
    M5,
    /// Ten minutes.
    M10,
    /// Fifteen minutes.
    M15,
    /// Twenty minutes.
    M20,
    /// Thirty minutes.
    M30,
    /// One hour.
    H1,
    /// Two hours.
    H2,
    /// Three hours.
    H3,
    /// Four hours.
    H4,
    /// Six hours.
    H6,
    /// Eight hours.
    H8,
    /// Twelve hours.
    H12,
    /// One day, from midnight to midnight.
    D1,
    /// One week, from Monday to Monday at midnight.
    W1,
    /// One calendar month.
    MN1,
}

/// The first Monday of 1970, whose first day was a Thursday.
const MONDAY_NS: i64 = 4 * DAY_NS;
const WEEK_NS: i64 = 7 * DAY_NS;
/// The longest month.
const MONTH_NS: i64 = 31 * DAY_NS;

impl Timeframe {
    /// Every timeframe, shortest first.
    pub const ALL: [Timeframe; 18] = [
        Timeframe::M1,
        Timeframe::M2,
        Timeframe::M3,
        Timeframe::M5,
        Timeframe::M10,
        Timeframe::M15,
        Timeframe::M20,
        Timeframe::M30,
        Timeframe::H1,
        Timeframe::H2,
        Timeframe::H3,
        Timeframe::H4,
        Timeframe::H6,
        Timeframe::H8,
        Timeframe::H12,
        Timeframe::D1,
        Timeframe::W1,
        Timeframe::MN1,
    ];

    /// The duration in nanoseconds; of a month, that of the longest.
    pub const fn duration_ns(self) -> i64 {
        match self {
            Timeframe::M1 => MINUTE_NS,
            Timeframe::M2 => 2 * MINUTE_NS,
            Timeframe::M3 => 3 * MINUTE_NS,
            Timeframe::M5 => 5 * MINUTE_NS,
            Timeframe::M10 => 10 * MINUTE_NS,
            Timeframe::M15 => 15 * MINUTE_NS,
            Timeframe::M20 => 20 * MINUTE_NS,
            Timeframe::M30 => 30 * MINUTE_NS,
            Timeframe::H1 => HOUR_NS,
            Timeframe::H2 => 2 * HOUR_NS,
            Timeframe::H3 => 3 * HOUR_NS,
            Timeframe::H4 => 4 * HOUR_NS,
            Timeframe::H6 => 6 * HOUR_NS,
            Timeframe::H8 => 8 * HOUR_NS,
            Timeframe::H12 => 12 * HOUR_NS,
            Timeframe::D1 => DAY_NS,
            Timeframe::W1 => WEEK_NS,
            Timeframe::MN1 => MONTH_NS,
        }
    }

    /// True if bars of this timeframe can be made from those of a shorter one.
    pub(crate) fn is_multiple_of(self, shorter: Timeframe) -> bool {
        self.duration_ns() % shorter.duration_ns() == 0
    }

    /// True for a month, whose bars are made from shorter ones only: they have no fixed distance.
    pub(crate) fn is_calendar_month(self) -> bool {
        self == Timeframe::MN1
    }

    /// The bin that holds `time_ns`, in nanoseconds since 1970 on the same clock. It opens at a
    /// multiple of the duration since 1970, that of a week at midnight before Monday, that of a
    /// month at midnight before its first day.
    pub fn bin(self, time_ns: i64) -> Range<i64> {
        if self.is_calendar_month() {
            return month(time_ns);
        }
        let origin_ns = if self == Timeframe::W1 { MONDAY_NS } else { 0 };
        let start = (time_ns - origin_ns).div_euclid(self.duration_ns()) * self.duration_ns() + origin_ns;
        start..start + self.duration_ns()
    }

    /// The timeframe whose bars all have that duration, if there is one.
    pub fn from_duration_ns(duration_ns: i64) -> Option<Self> {
        let mut fixed = Timeframe::ALL.into_iter().filter(|timeframe| !timeframe.is_calendar_month());
        fixed.find(|timeframe| timeframe.duration_ns() == duration_ns)
    }

    /// The name: a letter and a number, such as `M1`, `H4` or `D1`, and `MN1` for a month.
    pub const fn name(self) -> &'static str {
        match self {
            Timeframe::M1 => "M1",
            Timeframe::M2 => "M2",
            Timeframe::M3 => "M3",
            Timeframe::M5 => "M5",
            Timeframe::M10 => "M10",
            Timeframe::M15 => "M15",
            Timeframe::M20 => "M20",
            Timeframe::M30 => "M30",
            Timeframe::H1 => "H1",
            Timeframe::H2 => "H2",
            Timeframe::H3 => "H3",
            Timeframe::H4 => "H4",
            Timeframe::H6 => "H6",
            Timeframe::H8 => "H8",
            Timeframe::H12 => "H12",
            Timeframe::D1 => "D1",
            Timeframe::W1 => "W1",
            Timeframe::MN1 => "MN1",
        }
    }
}

/// The month of a time, in nanoseconds since 1970.
fn month(time_ns: i64) -> Range<i64> {
    let epoch = date(1970, 1, 1);
    let midnight = |day: Date| day.duration_since(epoch).as_secs() * SECOND_NS;
    let days = SignedDuration::from_hours(24 * time_ns.div_euclid(DAY_NS));
    let first = epoch.saturating_add(days).first_of_month();
    midnight(first)..midnight(first.saturating_add(1.month()))
}

impl fmt::Display for Timeframe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Timeframe {
    type Err = UnknownName;

    /// Reads a name in either case, or a number of units, such as `5min`, `1h` or `1d`.
    fn from_str(name: &str) -> Result<Self, UnknownName> {
        let named = Timeframe::ALL.into_iter().find(|timeframe| timeframe.name().eq_ignore_ascii_case(name));
        named.or_else(|| in_units(name)).ok_or_else(|| {
            let expected = Timeframe::ALL.map(Timeframe::name).join(", ");
            UnknownName::new("timeframe", name, expected)
        })
    }
}

/// The timeframe of a number of minutes, hours, days or weeks. `1M` may be a month, and is none.
fn in_units(text: &str) -> Option<Timeframe> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (count, unit) = text.split_at(digits);
    let unit_ns = match unit.to_ascii_lowercase().as_str() {
        "m" if unit == "M" => return None,
        "m" | "min" | "mins" => MINUTE_NS,
        "h" | "hour" => HOUR_NS,
        "d" | "day" => DAY_NS,
        "w" | "wk" | "week" => WEEK_NS,
        _ => return None,
    };
    let count: i64 = count.parse().ok()?;
    Timeframe::from_duration_ns(count.checked_mul(unit_ns)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_durations_and_order_agree() {
        for timeframe in Timeframe::ALL {
            assert_eq!(timeframe.name().parse::<Timeframe>().unwrap(), timeframe);
            let is_fixed = timeframe != Timeframe::MN1;
            assert_eq!(Timeframe::from_duration_ns(timeframe.duration_ns()), is_fixed.then_some(timeframe));
        }
        assert!(Timeframe::ALL.is_sorted_by_key(|timeframe| timeframe.duration_ns()));
        assert!(Timeframe::ALL.is_sorted());
        // 2018-07-01 was a Sunday, 1969-12-29 a Monday.
        let day = |days: i64| Timeframe::W1.bin(days * DAY_NS + HOUR_NS).start / DAY_NS;
        assert_eq!([17_713, 17_714, 17_720, 17_721, -1].map(day), [17_707, 17_714, 17_714, 17_721, -3]);
        assert_eq!(Timeframe::H4.bin(-1), -4 * HOUR_NS..0);
        assert_eq!("h4".parse::<Timeframe>().unwrap(), Timeframe::H4);
        for (text, timeframe) in [
            ("1d", Timeframe::D1),
            ("1h", Timeframe::H1),
            ("60m", Timeframe::H1),
            ("5min", Timeframe::M5),
            ("4H", Timeframe::H4),
            ("1wk", Timeframe::W1),
        ] {
            assert_eq!(text.parse::<Timeframe>().unwrap(), timeframe, "{text}");
        }
        for text in ["1M", "7m", "d", "1", "0h", "", "1 h", "99999999999999999999d", "é"] {
            assert!(text.parse::<Timeframe>().is_err(), "{text}");
        }
        assert_eq!(
            "M7".parse::<Timeframe>().unwrap_err().to_string(),
            "unknown timeframe `M7`: expected M1, M2, M3, M5, M10, M15, M20, M30, H1, H2, H3, H4, H6, H8, H12, D1, W1, MN1"
        );
    }

    #[test]
    fn months_are_those_of_the_calendar() {
        // Days since 1970: January 1970, February 2016, February 2018, December 1969.
        for (first, last) in [(0, 30), (16_832, 16_860), (17_563, 17_590), (-31, -1)] {
            let expected = first * DAY_NS..(last + 1) * DAY_NS;
            for time_ns in [expected.start, expected.start + HOUR_NS, expected.end - 1] {
                assert_eq!(Timeframe::MN1.bin(time_ns), expected, "{first}");
            }
        }
    }
}
