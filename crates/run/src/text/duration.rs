//! Durations as users write them: `8d`, `36h`, `90m`, `30s`.

use std::fmt;
use std::str::FromStr;

const SECOND_NS: i64 = 1_000_000_000;
/// Nanoseconds in a day.
pub(crate) const DAY_NS: i64 = 86_400 * SECOND_NS;

/// The units, longest first.
const UNITS: [(&str, i64); 4] = [("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1)];

/// A whole number of days, hours, minutes or seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Duration {
    /// In nanoseconds.
    pub ns: i64,
}

impl Duration {
    /// Example of a duration, for error messages.
    pub(crate) const EXPECTED: &str = "a duration such as 8d, 36h, 90m or 30s";
}

impl FromStr for Duration {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parse = || {
            let (number, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
            let (_, unit_s) = UNITS.into_iter().find(|(name, _)| *name == unit)?;
            let count: i64 = number.parse().ok().filter(|&count| count >= 0)?;
            Some(Duration { ns: count.checked_mul(unit_s)?.checked_mul(SECOND_NS)? })
        };
        parse().ok_or_else(|| format!("expected {}", Duration::EXPECTED))
    }
}

impl fmt::Display for Duration {
    /// In the longest unit that gives a whole number.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.ns / SECOND_NS;
        let whole = UNITS.into_iter().find(|(_, unit_s)| seconds % unit_s == 0);
        let (unit, unit_s) = whole.expect("every number of seconds is whole");
        write!(f, "{}{unit}", seconds / unit_s)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_and_written_alike() {
        for (text, seconds, shown) in
            [("4d", 345_600, "4d"), ("36h", 129_600, "36h"), ("120m", 7_200, "2h"), ("0s", 0, "0d")]
        {
            let duration: Duration = text.parse().unwrap();
            assert_eq!((duration.ns, duration.to_string().as_str()), (seconds * SECOND_NS, shown));
            assert_eq!(shown.parse(), Ok(duration));
        }
        for wrong in ["", "8", "d", "-1d", "1w", "99999999999d", "é", "1.5h"] {
            assert!(wrong.parse::<Duration>().is_err(), "{wrong:?}");
        }
    }
}
