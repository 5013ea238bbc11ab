//! Timestamps parsed by hand: a year of minutes is half a million of them.

use std::io::{self, Write as _};

use jiff::Timestamp;
use jiff::tz::Offset;

use crate::time::date_order::{DateOrder, split_year_last};
use crate::time::epoch::parse_epoch;
use crate::time::numbers::{SECOND_NS, split_digits, split_fraction};

pub(crate) const MILLISECOND_NS: i64 = SECOND_NS / 1_000;
pub(crate) const MINUTE_NS: i64 = 60 * SECOND_NS;
pub(crate) const HOUR_NS: i64 = 60 * MINUTE_NS;
pub(crate) const DAY_NS: i64 = 24 * HOUR_NS;

/// Names of UTC, without an area such as `Etc`.
const UTC_NAMES: [&str; 7] = ["UTC", "GMT", "UCT", "Zulu", "Universal", "Greenwich", "+00:00"];

/// A time as a file gives it: on a clock whose zone must be known from elsewhere, or with its own
/// offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RowTime {
    /// Nanoseconds since 1970 on the wall clock of an unnamed zone.
    Wall(i64),
    /// Nanoseconds since 1970 UTC.
    Utc(i64),
}

impl RowTime {
    /// Nanoseconds since 1970 on whichever clock it is.
    pub(crate) fn ns(self) -> i64 {
        match self {
            RowTime::Wall(ns) | RowTime::Utc(ns) => ns,
        }
    }

    /// True for a time with its own offset.
    pub(crate) fn is_utc(self) -> bool {
        matches!(self, RowTime::Utc(_))
    }

    /// True if both are UTC, or both on the wall clock.
    pub(crate) fn is_on_the_clock_of(self, other: RowTime) -> bool {
        matches!((self, other), (RowTime::Wall(_), RowTime::Wall(_)) | (RowTime::Utc(_), RowTime::Utc(_)))
    }

    /// The time on the same clock that is `ns` before.
    pub(crate) fn earlier_by(self, ns: i64) -> Self {
        match self {
            RowTime::Wall(time_ns) => RowTime::Wall(time_ns - ns),
            RowTime::Utc(time_ns) => RowTime::Utc(time_ns - ns),
        }
    }
}

/// Date styles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DateStyle {
    /// `20180131`
    Compact,
    /// `2018.01.31`
    Dotted,
    /// `2018-01-31` or `2018/01/31`
    Dashed,
    /// `31/01/2018`, `31-Jan-2018`
    YearLast(DateOrder),
    /// `1517356800`
    Epoch,
}

/// A date and a clock time in one field, `2018-01-31 17:00:00.5+02:00`: what follows the date is
/// optional.
pub(crate) fn parse_stamp(field: &[u8], style: DateStyle) -> Option<RowTime> {
    if style == DateStyle::Epoch {
        return parse_epoch(field).map(RowTime::Utc);
    }
    let (midnight_ns, rest) = split_date(field, style)?;
    match rest {
        [] => Some(RowTime::Wall(midnight_ns)),
        [b' ', clock @ ..] => add_clock(midnight_ns, clock.trim_ascii_start()),
        [b'T' | b't', clock @ ..] => add_clock(midnight_ns, clock),
        _ => None,
    }
}

/// True for a time as rows of the format `iso` have it.
pub fn is_iso_time(text: &str) -> bool {
    parse_stamp(text.trim().as_bytes(), DateStyle::Dashed).is_some()
}

/// The name of a zone, such as `US/Eastern`, that stands behind a time.
pub(crate) fn zone_name(field: &[u8]) -> Option<&[u8]> {
    let place = field.iter().rposition(|&byte| byte == b' ')?;
    let name = &field[place + 1..];
    let is_of_a_name = |byte: &u8| byte.is_ascii_alphanumeric() || b"/_+-".contains(byte);
    let is_name = name.first().is_some_and(u8::is_ascii_alphabetic) && name.contains(&b'/');
    (is_name && name.iter().all(is_of_a_name)).then_some(name)
}

/// A date in one field and a clock time in another.
pub(crate) fn parse_date_and_clock(date: &[u8], clock: &[u8], style: DateStyle) -> Option<RowTime> {
    let (midnight_ns, rest) = split_date(date, style)?;
    if rest.is_empty() { add_clock(midnight_ns, clock) } else { None }
}

/// True if the field is a date alone.
pub(crate) fn is_date(field: &[u8], style: DateStyle) -> bool {
    matches!(split_date(field, style), Some((_, [])))
}

/// `2018-01-31T17:00:00Z` for messages.
pub(crate) fn display_utc(ns: i64) -> String {
    Timestamp::from_nanosecond(i128::from(ns)).expect("an i64 of nanoseconds is within jiff's range").to_string()
}

/// `2018-01-31` for messages.
pub(crate) fn display_date(ns: i64) -> String {
    let mut text = display_utc(ns);
    text.truncate(text.find('T').unwrap_or(text.len()));
    text
}

/// `1 d 2 h 3 min` for messages; seconds only where there is nothing larger.
pub(crate) fn display_duration(ns: i64) -> String {
    let parts = [(ns / DAY_NS, "d"), (ns % DAY_NS / HOUR_NS, "h"), (ns % HOUR_NS / MINUTE_NS, "min")];
    let shown: Vec<String> =
        parts.iter().filter(|(count, _)| *count != 0).map(|(count, unit)| format!("{count} {unit}")).collect();
    if shown.is_empty() { format!("{} s", ns as f64 / SECOND_NS as f64) } else { shown.join(" ") }
}

/// `1 row` or `2 rows` for messages.
pub(crate) fn counted(count: u64, one: &str, more: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { more })
}

/// Entries of a list that a message names one by one.
const LISTED_MAX: usize = 10;

/// The entries of a list in a message, with commas between them; after ten, the number of the
/// others.
pub fn listed(entries: &[String]) -> String {
    let shown = entries.iter().take(LISTED_MAX).map(String::as_str).collect::<Vec<_>>().join(", ");
    match entries.len().saturating_sub(LISTED_MAX) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

/// Adds the time of day. One with the name of a zone is on the clock of that zone.
fn add_clock(midnight_ns: i64, clock: &[u8]) -> Option<RowTime> {
    let clock = match zone_name(clock) {
        Some(name) => clock[..clock.len() - name.len()].trim_ascii_end(),
        None => clock,
    };
    let (clock_ns, rest) = split_clock(clock)?;
    let ns = midnight_ns + clock_ns;
    // `GMT+0100` is how Dukascopy writes an offset.
    let named = rest.strip_prefix(b" GMT").or_else(|| rest.strip_prefix(b" UTC"));
    match (rest, named) {
        ([], _) => Some(RowTime::Wall(ns)),
        (_, Some([])) => Some(RowTime::Utc(ns)),
        (rest, named) => {
            let (offset, _) = split_clock_name(named.unwrap_or(rest));
            Some(RowTime::Utc(ns - parse_offset(offset)?))
        }
    }
}

/// Nanoseconds of the date's midnight, and what follows the date.
fn split_date(field: &[u8], style: DateStyle) -> Option<(i64, &[u8])> {
    let ([year, month, day], rest) = match style {
        DateStyle::Compact => split_year_first(field, b"")?,
        DateStyle::Dotted => split_year_first(field, b".")?,
        DateStyle::Dashed => split_year_first(field, b"-").or_else(|| split_year_first(field, b"/"))?,
        DateStyle::YearLast(order) => split_year_last(field, order)?,
        DateStyle::Epoch => return None,
    };
    // The distance of two times is an i64 of nanoseconds too, which reaches over 292 years.
    let valid = (1850..=2140).contains(&year) && (1..=12).contains(&month) && day >= 1;
    (valid && day <= days_in_month(year, month)).then(|| (days_since_1970(year, month, day) * DAY_NS, rest))
}

/// Year, month and day, and what follows them.
fn split_year_first<'a>(field: &'a [u8], separator: &[u8]) -> Option<([i64; 3], &'a [u8])> {
    // Only separators tell where a number of one digit ends.
    let lengths = if separator.is_empty() { 2..=2 } else { 1..=2 };
    let (year, rest) = split_digits(field, 4..=4)?;
    let (month, rest) = split_digits(rest.strip_prefix(separator)?, lengths.clone())?;
    let (day, rest) = split_digits(rest.strip_prefix(separator)?, lengths)?;
    Some(([year, month, day], rest))
}

/// Nanoseconds since midnight of `17:00`, `17:00:00`, `17:00:00.5`, `1700`, `170000` or `5:00 PM`,
/// and what follows.
fn split_clock(field: &[u8]) -> Option<(i64, &[u8])> {
    let (hour, rest) = match field {
        [_, b':', ..] => split_digits(field, 1..=1)?,
        _ => two_digits(field)?,
    };
    let (separator, _) = rest.split_at(usize::from(rest.first() == Some(&b':')));
    let (minute, rest) = two_digits(&rest[separator.len()..])?;
    let (second, rest) = match rest.strip_prefix(separator).and_then(two_digits) {
        Some(found) => found,
        None => (0, rest),
    };
    let (fraction_ns, rest) = split_fraction(rest);
    let (hour, rest) = split_half_of_day(hour, rest)?;
    let ns = hour * HOUR_NS + minute * MINUTE_NS + second * SECOND_NS + fraction_ns;
    (hour < 24 && minute < 60 && second < 60).then_some((ns, rest))
}

/// The hour of 24 in which `AM` or `PM` puts an hour of 12; an hour of 24 where neither follows.
fn split_half_of_day(hour: i64, rest: &[u8]) -> Option<(i64, &[u8])> {
    let afternoon = match rest.strip_prefix(b" ").unwrap_or(rest) {
        [b'A' | b'a', b'M' | b'm'] => 0,
        [b'P' | b'p', b'M' | b'm'] => 12,
        _ => return Some((hour, rest)),
    };
    (1..=12).contains(&hour).then_some((hour % 12 + afternoon, b"".as_slice()))
}

/// Nanoseconds east of UTC of `Z`, `+02`, `+0200` or `+02:00`.
pub(crate) fn parse_offset(field: &[u8]) -> Option<i64> {
    let (sign, digits) = match field {
        b"Z" | b"z" => return Some(0),
        [b'+', digits @ ..] => (1, digits),
        [b'-', digits @ ..] => (-1, digits),
        _ => return None,
    };
    let (hour, rest) = two_digits(digits)?;
    let (minute, rest) = match rest.strip_prefix(b":").unwrap_or(rest) {
        [] => (0, rest),
        minutes => two_digits(minutes)?,
    };
    (rest.is_empty() && hour < 24 && minute < 60).then_some(sign * (hour * HOUR_NS + minute * MINUTE_NS))
}

/// Nanoseconds east of UTC on the clock whose offset a time states; `None` for one in UTC. An
/// offset of 0 is that of UTC, unless brackets behind it name another clock.
pub(crate) fn stated_offset(time: &[u8]) -> Option<i64> {
    let (time, name) = split_clock_name(time);
    let mut tails = [6, 5, 3].into_iter().filter_map(|len| time.len().checked_sub(len).map(|start| &time[start..]));
    let offset = tails.find(|tail| matches!(tail, [b'+' | b'-', ..])).and_then(parse_offset);
    match name {
        Some(name) if !is_utc_name(name) => Some(offset.unwrap_or(0)),
        _ => offset.filter(|&offset| offset != 0),
    }
}

/// A time, and the name of its clock in brackets behind it, as in RFC 9557:
/// `2018-01-31T17:00:00+00:00[Europe/London]`.
fn split_clock_name(time: &[u8]) -> (&[u8], Option<&str>) {
    let split = || {
        let start = time.strip_suffix(b"]")?.iter().rposition(|&byte| byte == b'[')?;
        Some((&time[..start], std::str::from_utf8(&time[start + 1..time.len() - 1]).ok()?))
    };
    split().map_or((time, None), |(before, name)| (before, Some(name)))
}

/// True for a name of UTC. Clocks of other zones may have its offset for a time, as London's in
/// winter.
pub fn is_utc_name(name: &str) -> bool {
    let own = name.rsplit('/').next().unwrap_or(name);
    UTC_NAMES.iter().any(|utc| own.eq_ignore_ascii_case(utc))
}

/// Writes a time with the offset of its clock, which is not UTC. One of 0 has a name behind it:
/// many programs write `+00:00` behind times in UTC.
///
/// # Errors
/// Errors of writing.
pub fn write_on_clock(text: &mut Vec<u8>, time: Timestamp, offset: Offset) -> io::Result<()> {
    let name = if offset == Offset::UTC { "[local]" } else { "" };
    write!(text, "{}{name}", time.display_with_offset(offset))
}

fn two_digits(field: &[u8]) -> Option<(i64, &[u8])> {
    let [tens @ b'0'..=b'9', ones @ b'0'..=b'9', rest @ ..] = field else { return None };
    Some((i64::from(tens - b'0') * 10 + i64::from(ones - b'0'), rest))
}

fn days_in_month(year: i64, month: i64) -> i64 {
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    match month {
        2 => 28 + i64::from(leap),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Days from 1970-01-01 in the Gregorian calendar: years are counted from March, so that the leap
/// day ends them.
pub(crate) fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let year = year - i64::from(month <= 2);
    let months_since_march = (month + 9) % 12;
    let day_of_year = (153 * months_since_march + 2) / 5 + day - 1;
    365 * year + year / 4 - year / 100 + year / 400 + day_of_year - 719_468
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn known_stamps() {
        use DateStyle::{Compact, Dashed, Dotted};
        let day_first = DateStyle::YearLast(DateOrder::DayFirst);
        let month_first = DateStyle::YearLast(DateOrder::MonthFirst);
        let midnight = 17_532 * DAY_NS; // 2018-01-01
        let cases = [
            ("20180101 170000", Compact, Some(RowTime::Wall(midnight + 17 * HOUR_NS))),
            ("20180101 1700", Compact, Some(RowTime::Wall(midnight + 17 * HOUR_NS))),
            ("2018.01.01 17:00", Dotted, Some(RowTime::Wall(midnight + 17 * HOUR_NS))),
            ("2018-01-01T17:00:00.25Z", Dashed, Some(RowTime::Utc(midnight + 17 * HOUR_NS + SECOND_NS / 4))),
            ("2018-01-01 17:00:00+02:00", Dashed, Some(RowTime::Utc(midnight + 15 * HOUR_NS))),
            ("2018-01-01 17:00-0530", Dashed, Some(RowTime::Utc(midnight + 22 * HOUR_NS + 30 * MINUTE_NS))),
            ("2018-01-01 17:00 GMT", Dashed, Some(RowTime::Utc(midnight + 17 * HOUR_NS))),
            ("01.01.2018 17:00:00.000 GMT+0100", day_first, Some(RowTime::Utc(midnight + 16 * HOUR_NS))),
            ("2018-01-01", Dashed, Some(RowTime::Wall(midnight))),
            ("2018/01/01 17:00", Dashed, Some(RowTime::Wall(midnight + 17 * HOUR_NS))),
            ("2018/01-01", Dashed, None),
            ("2018/1/1 0:01", Dashed, Some(RowTime::Wall(midnight + MINUTE_NS))),
            ("2018.1.1  0:01", Dotted, Some(RowTime::Wall(midnight + MINUTE_NS))),
            ("2018111", Compact, None),
            ("20180101  17:00:00 US/Eastern", Compact, Some(RowTime::Wall(midnight + 17 * HOUR_NS))),
            ("2018-01-01 17:00 America/New_York", Dashed, Some(RowTime::Wall(midnight + 17 * HOUR_NS))),
            ("2018-01-01 17:00 about noon", Dashed, None),
            ("2018-01-01T17:00:00+00:00[local]", Dashed, Some(RowTime::Utc(midnight + 17 * HOUR_NS))),
            ("2018-01-01T17:00Z[Europe/London]", Dashed, Some(RowTime::Utc(midnight + 17 * HOUR_NS))),
            ("2018-01-01T17:00+01:00[Europe/Paris]", Dashed, Some(RowTime::Utc(midnight + 16 * HOUR_NS))),
            ("2018-01-01T17:00[Europe/London]", Dashed, None),
            ("2018-01-01T17:00]", Dashed, None),
            ("01-Jan-2018 17:00", day_first, Some(RowTime::Wall(midnight + 17 * HOUR_NS))),
            ("1 january 2018", month_first, Some(RowTime::Wall(midnight))),
            ("Jan 01, 2018 5:00 PM", month_first, Some(RowTime::Wall(midnight + 17 * HOUR_NS))),
            ("01-Foo-2018", day_first, None),
            ("01-Ja-2018", day_first, None),
            ("1514764800", DateStyle::Epoch, Some(RowTime::Utc(midnight))),
            ("02/01/2018 9:30", day_first, Some(RowTime::Wall(midnight + DAY_NS + 9 * HOUR_NS + 30 * MINUTE_NS))),
            ("1/2/2018 5:00 PM", month_first, Some(RowTime::Wall(midnight + DAY_NS + 17 * HOUR_NS))),
            ("1/1/2018 12:01:30am", month_first, Some(RowTime::Wall(midnight + MINUTE_NS + 30 * SECOND_NS))),
            ("01.01.2018 00:00:00.000", day_first, Some(RowTime::Wall(midnight))),
            ("1/1/2018 13:00 PM", month_first, None),
            ("1/1/2018 0:00 AM", month_first, None),
            ("13/1/2018", month_first, None),
            ("1/1/18", day_first, None),
            ("1/1.2018", day_first, None),
            ("001/1/2018", day_first, None),
            ("2018-02-29", Dashed, None),
            ("2016-02-29", Dashed, Some(RowTime::Wall(midnight - 672 * DAY_NS))),
            ("1900-02-29", Dashed, None),
            ("2000-02-29", Dashed, Some(RowTime::Wall(11_016 * DAY_NS))),
            ("2018-13-01", Dashed, None),
            ("1849-12-31", Dashed, None),
            ("2141-01-01", Dashed, None),
            ("2018-01-01 24:00", Dashed, None),
            ("2018-01-01 17:60", Dashed, None),
            ("2018-01-01 17:00 ", Dashed, None),
            ("2018-01-01 17", Dashed, None),
            ("2018-01-0", Dashed, None),
            ("-(2018-10-12 12:00", Dashed, None),
            ("2018.01.01 17:00", Dashed, None),
            ("", Compact, None),
        ];
        for (text, style, expected) in cases {
            assert_eq!(parse_stamp(text.as_bytes(), style), expected, "{text:?}");
        }
        assert_eq!(
            parse_date_and_clock(b"2018.01.01", b"17:00:30", Dotted),
            Some(RowTime::Wall(midnight + 17 * HOUR_NS + 30 * SECOND_NS))
        );
        assert_eq!(parse_date_and_clock(b"2018.01.01 17:00", b"17:00", Dotted), None);
    }

    #[test]
    fn stated_offsets() {
        for (text, hours) in [
            ("2018-01-01 17:00:00+02:00", Some(2)),
            ("2018-01-01 17:00-0500", Some(-5)),
            ("2018-01-01T17:00:00-05", Some(-5)),
            ("01.01.2018 17:00:00.000 GMT+0100", Some(1)),
            ("2018-01-01T17:00:00Z", None),
            ("2018-01-01 17:00:00+00:00", None),
            ("2018-01-01T17:00:00+00:00[UTC]", None),
            ("2018-01-01T17:00:00Z[Etc/UTC]", None),
            ("2018-01-01T17:00:00+00:00[local]", Some(0)),
            ("2018-01-01T17:00Z[Europe/London]", Some(0)),
            ("2018-07-01T17:00+01:00[Europe/London]", Some(1)),
            ("1514764800", None),
            ("", None),
        ] {
            assert_eq!(stated_offset(text.as_bytes()), hours.map(|hours| hours * HOUR_NS), "{text}");
        }
    }

    #[test]
    fn a_time_on_a_clock_is_read_with_its_offset() {
        let time = Timestamp::from_second(1_514_826_000).unwrap();
        for (offset, expected) in
            [(Offset::UTC, "2018-01-01T17:00:00+00:00[local]"), (Offset::constant(-5), "2018-01-01T12:00:00-05:00")]
        {
            let mut text = Vec::new();
            write_on_clock(&mut text, time, offset).unwrap();
            assert_eq!(std::str::from_utf8(&text), Ok(expected));
            assert_eq!(stated_offset(&text), Some(i64::from(offset.seconds()) * SECOND_NS));
            assert_eq!(parse_stamp(&text, DateStyle::Dashed), Some(RowTime::Utc(1_514_826_000 * SECOND_NS)));
        }
    }

    #[test]
    fn durations_read_well() {
        let cases = [
            (0, "0 s"),
            (MINUTE_NS, "1 min"),
            (SECOND_NS / 2, "0.5 s"),
            (2 * DAY_NS + 2 * MINUTE_NS, "2 d 2 min"),
            (25 * HOUR_NS, "1 d 1 h"),
        ];
        for (ns, expected) in cases {
            assert_eq!(display_duration(ns), expected);
        }
    }

    proptest! {
        /// Reading what jiff prints gives the instant back, to the nanosecond.
        #[test]
        fn agrees_with_jiff(ns in -3_780_000_000_000_000_000i64..5_390_000_000_000_000_000) {
            prop_assert_eq!(parse_stamp(display_utc(ns).as_bytes(), DateStyle::Dashed), Some(RowTime::Utc(ns)));
        }

        #[test]
        fn never_panics(bytes in prop::collection::vec(any::<u8>(), 0..30)) {
            let year_last = DateStyle::YearLast(DateOrder::DayFirst);
            for style in [DateStyle::Compact, DateStyle::Dotted, DateStyle::Dashed, year_last] {
                let _ = parse_stamp(&bytes, style);
            }
            let _ = parse_offset(&bytes);
            let _ = stated_offset(&bytes);
        }
    }
}
