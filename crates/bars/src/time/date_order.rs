//! Dates with the year last, in which the day or the month comes first.

use crate::time::numbers::split_digits;
use crate::unknown_name::named;

/// Which of day and month comes first in a date with the year last, such as `03/04/2018`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DateOrder {
    /// `31/01/2018`.
    DayFirst,
    /// `01/31/2018`.
    MonthFirst,
}

impl DateOrder {
    const fn name(self) -> &'static str {
        match self {
            DateOrder::DayFirst => "day-first",
            DateOrder::MonthFirst => "month-first",
        }
    }
}

named!(DateOrder, "order of dates", "day-first or month-first", [DayFirst, MonthFirst]);

/// Year, month, day and what follows them, of `31/01/2018`, `31.1.2018`, `31-01-2018` or a date
/// whose month is a word.
pub(crate) fn split_year_last(field: &[u8], order: DateOrder) -> Option<([i64; 3], &[u8])> {
    if let Some(found) = split_named_month(field) {
        return Some(found);
    }
    let ([first, second, year], _, rest) = split_numbers(field)?;
    Some(match order {
        DateOrder::DayFirst => ([year, second, first], rest),
        DateOrder::MonthFirst => ([year, first, second], rest),
    })
}

/// English months; three letters or more of a name tell it.
const MONTHS: [&[u8]; 12] = [
    b"january",
    b"february",
    b"march",
    b"april",
    b"may",
    b"june",
    b"july",
    b"august",
    b"september",
    b"october",
    b"november",
    b"december",
];

/// Year, month, day and what follows them, of `31-Jan-2018`, `31 January 2018` or `Jan 31, 2018`.
pub(crate) fn split_named_month(field: &[u8]) -> Option<([i64; 3], &[u8])> {
    if let Some((month, rest)) = split_month(field) {
        let (day, rest) = split_digits(rest.strip_prefix(b" ")?, 1..=2)?;
        let rest = rest.strip_prefix(b",").unwrap_or(rest);
        let (year, rest) = split_digits(rest.strip_prefix(b" ")?, 4..=4)?;
        return Some(([year, month, day], rest));
    }
    let (day, rest) = split_digits(field, 1..=2)?;
    let (&separator, rest) = rest.split_first().filter(|(byte, _)| b"/.- ".contains(byte))?;
    let (month, rest) = split_month(rest)?;
    let (year, rest) = split_digits(rest.strip_prefix(&[separator])?, 4..=4)?;
    Some(([year, month, day], rest))
}

fn split_month(field: &[u8]) -> Option<(i64, &[u8])> {
    let len = field.iter().take_while(|byte| byte.is_ascii_alphabetic()).count();
    let (word, rest) = field.split_at(len);
    let is_beginning = |name: &&[u8]| len >= 3 && name.len() >= len && name[..len].eq_ignore_ascii_case(word);
    let place = MONTHS.iter().position(is_beginning)?;
    Some((place as i64 + 1, rest))
}

/// The three numbers of a date with the year last, what separates them, and what follows.
pub(crate) fn split_numbers(field: &[u8]) -> Option<([i64; 3], u8, &[u8])> {
    let (first, rest) = split_digits(field, 1..=2)?;
    let (&separator, rest) = rest.split_first().filter(|(byte, _)| b"/.-".contains(byte))?;
    let (second, rest) = split_digits(rest, 1..=2)?;
    let (year, rest) = split_digits(rest.strip_prefix(&[separator])?, 4..=4)?;
    Some(([first, second, year], separator, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        for order in [DateOrder::DayFirst, DateOrder::MonthFirst] {
            assert_eq!(order.to_string().parse::<DateOrder>().unwrap(), order);
        }
        assert!("iso".parse::<DateOrder>().is_err());
    }
}
