use std::fmt;
use std::str::FromStr;

use crate::time::timestamp::{DAY_NS, HOUR_NS, MINUTE_NS};
use crate::unknown_name::UnknownName;

/// The duration that one bar covers. Ordered by it, shortest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Timeframe {
    /// One minute.
    M1,
    /// Five minutes.
    M5,
    /// Fifteen minutes.
    M15,
    /// Thirty minutes.
    M30,
    /// One hour.
    H1,
    /// Four hours.
    H4,
    /// One day, from midnight to midnight.
    D1,
    /// One week, from Monday to Monday at midnight.
    W1,
}

/// The first Monday of 1970, whose first day was a Thursday.
const MONDAY_NS: i64 = 4 * DAY_NS;
const WEEK_NS: i64 = 7 * DAY_NS;

impl Timeframe {
    /// Every timeframe, shortest first.
    pub const ALL: [Timeframe; 8] = [
        Timeframe::M1,
        Timeframe::M5,
        Timeframe::M15,
        Timeframe::M30,
        Timeframe::H1,
        Timeframe::H4,
        Timeframe::D1,
        Timeframe::W1,
    ];

    /// The duration in nanoseconds.
    pub const fn duration_ns(self) -> i64 {
        match self {
            Timeframe::M1 => MINUTE_NS,
            Timeframe::M5 => 5 * MINUTE_NS,
            Timeframe::M15 => 15 * MINUTE_NS,
            Timeframe::M30 => 30 * MINUTE_NS,
            Timeframe::H1 => HOUR_NS,
            Timeframe::H4 => 4 * HOUR_NS,
            Timeframe::D1 => DAY_NS,
            Timeframe::W1 => WEEK_NS,
        }
    }

    /// When the bin that holds `time_ns` opens, in nanoseconds since 1970 on the same clock: at a
    /// multiple of the duration since 1970, and of a week at midnight before Monday.
    pub const fn bin_open_time(self, time_ns: i64) -> i64 {
        let origin_ns = match self {
            Timeframe::W1 => MONDAY_NS,
            _ => 0,
        };
        (time_ns - origin_ns).div_euclid(self.duration_ns()) * self.duration_ns() + origin_ns
    }

    /// The timeframe of that duration, if there is one.
    pub fn from_duration_ns(duration_ns: i64) -> Option<Self> {
        Timeframe::ALL.into_iter().find(|timeframe| timeframe.duration_ns() == duration_ns)
    }

    /// The name: `M1`, `M5`, `M15`, `M30`, `H1`, `H4`, `D1` or `W1`.
    pub const fn name(self) -> &'static str {
        match self {
            Timeframe::M1 => "M1",
            Timeframe::M5 => "M5",
            Timeframe::M15 => "M15",
            Timeframe::M30 => "M30",
            Timeframe::H1 => "H1",
            Timeframe::H4 => "H4",
            Timeframe::D1 => "D1",
            Timeframe::W1 => "W1",
        }
    }

    /// A window length that suits the timeframe: 480, 288, 192, 96, 96, 48, 24 and 12 bars,
    /// shortest timeframe first.
    pub const fn default_seq_len(self) -> usize {
        match self {
            Timeframe::M1 => 480,
            Timeframe::M5 => 288,
            Timeframe::M15 => 192,
            Timeframe::M30 | Timeframe::H1 => 96,
            Timeframe::H4 => 48,
            Timeframe::D1 => 24,
            Timeframe::W1 => 12,
        }
    }
}

impl fmt::Display for Timeframe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Timeframe {
    type Err = UnknownName;

    /// Reads a name in either case.
    fn from_str(name: &str) -> Result<Self, UnknownName> {
        Timeframe::ALL.into_iter().find(|timeframe| timeframe.name().eq_ignore_ascii_case(name)).ok_or_else(|| {
            let expected = Timeframe::ALL.map(Timeframe::name).join(", ");
            UnknownName::new("timeframe", name, expected)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_durations_and_order_agree() {
        for timeframe in Timeframe::ALL {
            assert_eq!(timeframe.name().parse::<Timeframe>().unwrap(), timeframe);
            assert_eq!(Timeframe::from_duration_ns(timeframe.duration_ns()), Some(timeframe));
        }
        assert!(Timeframe::ALL.is_sorted_by_key(|timeframe| timeframe.duration_ns()));
        assert!(Timeframe::ALL.is_sorted());
        // 2018-07-01 was a Sunday, 1969-12-29 a Monday.
        let day = |days: i64| Timeframe::W1.bin_open_time(days * DAY_NS + HOUR_NS) / DAY_NS;
        assert_eq!([17_713, 17_714, 17_720, 17_721, -1].map(day), [17_707, 17_714, 17_714, 17_721, -3]);
        assert_eq!(Timeframe::H4.bin_open_time(-1), -4 * HOUR_NS);
        assert_eq!("h4".parse::<Timeframe>().unwrap(), Timeframe::H4);
        assert_eq!(
            "M2".parse::<Timeframe>().unwrap_err().to_string(),
            "unknown timeframe `M2`: expected M1, M5, M15, M30, H1, H4, D1, W1"
        );
    }
}
