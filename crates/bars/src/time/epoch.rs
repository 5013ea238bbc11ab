//! Times as one number: seconds, or thousandths, millionths or billionths of them, since 1970 UTC.

use std::borrow::Cow;

use crate::time::numbers::{SECOND_NS, split_fraction};

/// Largest exponent of a number of time: nanoseconds have nineteen digits.
const EXPONENT_MAX: usize = 18;

/// Nanoseconds since 1970 UTC of a number in whichever unit its size tells: one file may have
/// several, as vendors change theirs. `None` outside 1980 to 2099.
pub(crate) fn parse_epoch(field: &[u8]) -> Option<i64> {
    let plain = without_exponent(field)?;
    EpochUnit::ALL.into_iter().find_map(|unit| unit.parse(&plain))
}

/// The number without an exponent: `1514764800.` for `1.5147648e9`.
fn without_exponent(field: &[u8]) -> Option<Cow<'_, [u8]>> {
    let Some(place) = field.iter().position(|byte| matches!(byte, b'e' | b'E')) else {
        return Some(Cow::Borrowed(field));
    };
    let exponent: usize = std::str::from_utf8(&field[place + 1..]).ok()?.parse().ok()?;
    let mantissa = &field[..place];
    let whole = mantissa.iter().position(|&byte| byte == b'.').unwrap_or(place);
    let fraction = mantissa.get(whole + 1..).unwrap_or_default();
    let mut digits = [&mantissa[..whole], fraction].concat();
    let point = whole + Some(exponent).filter(|exponent| *exponent <= EXPONENT_MAX)?;
    digits.resize(digits.len().max(point), b'0');
    digits.insert(point, b'.');
    Some(Cow::Owned(digits))
}

/// Unit of a number of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EpochUnit {
    Seconds,
    Milliseconds,
    Microseconds,
    Nanoseconds,
}

/// 1980 and 2100: the numbers of one unit between these years are never those of another.
const PLAUSIBLE_S: std::ops::Range<i64> = 315_532_800..4_102_444_800;

impl EpochUnit {
    const ALL: [EpochUnit; 4] =
        [EpochUnit::Seconds, EpochUnit::Milliseconds, EpochUnit::Microseconds, EpochUnit::Nanoseconds];

    const fn ns(self) -> i64 {
        match self {
            EpochUnit::Seconds => SECOND_NS,
            EpochUnit::Milliseconds => 1_000_000,
            EpochUnit::Microseconds => 1_000,
            EpochUnit::Nanoseconds => 1,
        }
    }

    /// Nanoseconds since 1970 UTC of `1514764800`, `1514764800.5` or `1514764800000`; `None`
    /// outside 1980 to 2099.
    fn parse(self, field: &[u8]) -> Option<i64> {
        let len = field.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let (digits, rest) = field.split_at(len);
        let whole: i64 = std::str::from_utf8(digits).ok()?.parse().ok()?;
        let (billionths, rest) = split_fraction(rest);
        let plausible = rest.is_empty() && PLAUSIBLE_S.contains(&(whole / (SECOND_NS / self.ns())));
        plausible.then(|| whole * self.ns() + billionths * self.ns() / SECOND_NS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_unit_is_told_from_the_others() {
        let cases = [
            ("1514764800", EpochUnit::Seconds, 0),
            ("1514764800.0", EpochUnit::Seconds, 0),
            ("1514764800.25", EpochUnit::Seconds, SECOND_NS / 4),
            ("1514764800001", EpochUnit::Milliseconds, 1_000_000),
            ("1514764800001.5", EpochUnit::Milliseconds, 1_500_000),
            ("1514764800000001", EpochUnit::Microseconds, 1_000),
            ("1514764800000000001", EpochUnit::Nanoseconds, 1),
        ];
        for (text, unit, past_2018_ns) in cases {
            for other in EpochUnit::ALL {
                let expected = (other == unit).then_some(1_514_764_800 * SECOND_NS + past_2018_ns);
                assert_eq!(other.parse(text.as_bytes()), expected, "{text} {other:?}");
            }
            assert_eq!(parse_epoch(text.as_bytes()), Some(1_514_764_800 * SECOND_NS + past_2018_ns), "{text}");
        }
    }

    // Spreadsheets and numpy write large numbers so, and no row of such a file was read.
    #[test]
    fn numbers_may_have_an_exponent() {
        for (text, past_2018_ns) in [
            ("1.5147648e9", 0),
            ("1.5147648E+09", 0),
            ("1.51476480025e+09", SECOND_NS / 4),
            ("15147648e2", 0),
            ("1.5147648e12", 0),
            ("1.514764800001e15", 1_000_000),
            ("1.514764800000000001e18", 1),
        ] {
            assert_eq!(parse_epoch(text.as_bytes()), Some(1_514_764_800 * SECOND_NS + past_2018_ns), "{text}");
        }
        for text in ["1.5147648e-9", "1.5147648e", "e9", "1e8", "1.5.1e9", "1.5147648e99999", "1.5147648e9e"] {
            assert_eq!(parse_epoch(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn other_numbers_are_no_times() {
        for text in ["", "1", "20180131", "20180131170000", "-1514764800", "1514764800x", "99999999999999999999"] {
            assert_eq!(parse_epoch(text.as_bytes()), None, "{text}");
        }
    }
}
