use std::cmp::Ordering;

/// The fixed order of timeframes: shortest first, names of unknown duration after them, by name.
///
/// It decides the order of [`Shape::timeframes`](crate::Shape::timeframes) and so of the model's
/// inputs.
pub fn timeframe_order(a: &str, b: &str) -> Ordering {
    let key = |name| duration_seconds(name).unwrap_or(u64::MAX);
    key(a).cmp(&key(b)).then_with(|| a.cmp(b))
}

/// Length of a timeframe's bars, from a name such as `M5`, `H4` or `D1`; `None` for any other form.
pub(crate) fn duration_seconds(name: &str) -> Option<u64> {
    let digits = name.find(|c: char| c.is_ascii_digit())?;
    let (unit, count) = name.split_at(digits);
    let unit_seconds = match unit {
        "S" => 1,
        "M" => 60,
        "H" => 3_600,
        "D" => 86_400,
        "W" => 7 * 86_400,
        "MN" => 30 * 86_400,
        _ => return None,
    };
    count.parse::<u64>().ok().filter(|&count| count > 0)?.checked_mul(unit_seconds)
}

/// The longest time that one bar of a timeframe covers, ns: its duration, of months 31 days each;
/// `None` for a name of unknown duration.
pub fn longest_bar_ns(name: &str) -> Option<i64> {
    let seconds = duration_seconds(name)?;
    let seconds = if name.starts_with("MN") { seconds.checked_mul(31)? / 30 } else { seconds };
    i64::try_from(seconds).ok()?.checked_mul(1_000_000_000)
}

/// Instants at which the bars of one timeframe close: every `bar_ns` from `origin_ns` on, ns since
/// 1970 UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CloseGrid {
    pub(crate) bar_ns: i64,
    origin_ns: i64,
}

/// The first Monday of 1970, whose first day was a Thursday.
const MONDAY_NS: i64 = 4 * 86_400 * 1_000_000_000;

impl CloseGrid {
    /// Multiples of `bar_ns`.
    pub(crate) fn from_length(bar_ns: i64) -> Self {
        CloseGrid { bar_ns, origin_ns: 0 }
    }

    /// The grid of the timeframe `name`, weeks ending at midnight before Monday; `None` for a name
    /// of unknown duration.
    pub(crate) fn from_timeframe(name: &str) -> Option<Self> {
        let bar_ns = i64::try_from(duration_seconds(name)?).ok()?.checked_mul(1_000_000_000)?;
        Some(CloseGrid { bar_ns, origin_ns: if name.starts_with('W') { MONDAY_NS } else { 0 } })
    }

    /// Bars that close after `from` and not after `to`; `None` if `to` is so much earlier that the
    /// number is negative.
    pub(crate) fn bars_between(self, from: i64, to: i64) -> Option<usize> {
        let number = |time: i64| (i128::from(time) - i128::from(self.origin_ns)).div_euclid(i128::from(self.bar_ns));
        usize::try_from(number(to) - number(from)).ok()
    }

    /// The last instant of the grid that is not after `time`.
    pub(crate) fn last_close(self, time: i64) -> Option<i64> {
        let past = (i128::from(time) - i128::from(self.origin_ns)).rem_euclid(i128::from(self.bar_ns));
        time.checked_sub(i64::try_from(past).ok()?)
    }
}

/// Reason for which `name` cannot be a timeframe's name, which is a part of paths.
pub(crate) fn name_problem(name: &str) -> Option<&'static str> {
    if name.is_empty() {
        Some("an empty name")
    } else if name == "." || name.contains(['/', '\0']) {
        Some("a name that is no single step of an HDF5 path")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeframes_are_ordered_by_duration_then_by_name() {
        let mut names = ["tick", "D1", "MN1", "M1", "H4", "fast", "M30", "W1", "H1", "M5", "M240", "S30", "M0", "Mx"];
        names.sort_by(|a, b| timeframe_order(a, b));
        let expected = ["S30", "M1", "M5", "M30", "H1", "H4", "M240", "D1", "W1", "MN1", "M0", "Mx", "fast", "tick"];
        assert_eq!(names, expected);
    }

    #[test]
    fn a_month_may_have_thirty_one_days() {
        const DAY_NS: i64 = 86_400_000_000_000;
        for (name, days) in [("D1", 1), ("W1", 7), ("MN2", 62)] {
            assert_eq!(longest_bar_ns(name), Some(days * DAY_NS), "{name}");
        }
        assert_eq!(longest_bar_ns("M1"), Some(60_000_000_000));
        assert_eq!((longest_bar_ns("fast"), longest_bar_ns("D999999999999")), (None, None));
    }

    #[test]
    fn weeks_end_with_sunday() {
        const DAY_NS: i64 = 86_400_000_000_000;
        let days = CloseGrid::from_timeframe("D1").unwrap();
        let weeks = CloseGrid::from_timeframe("W1").unwrap();
        // Days since Thursday, 1970-01-01; day 4 begins with Monday.
        for (day, monday) in [(4, 4), (10, 4), (11, 11), (3, -3), (-3, -3), (-4, -10)] {
            assert_eq!(weeks.last_close(day * DAY_NS + 1), Some(monday * DAY_NS), "{day}");
            assert_eq!(days.last_close(day * DAY_NS + 1), Some(day * DAY_NS), "{day}");
        }
        // From Wednesday to Friday no week ends, from Saturday to Monday one.
        assert_eq!(
            [(6, 8), (2, 4), (4, 11)].map(|(a, b)| weeks.bars_between(a * DAY_NS, b * DAY_NS)),
            [Some(0), Some(1), Some(1)]
        );
        assert_eq!((weeks.bars_between(i64::MAX, i64::MIN), weeks.last_close(i64::MIN)), (None, None));
    }

    #[test]
    fn durations_that_overflow_are_unknown() {
        for name in ["", "5", "M", "M-1", "M1x", "D999999999999999999", "MN18446744073709551616"] {
            assert_eq!(duration_seconds(name), None, "{name}");
        }
    }
}
