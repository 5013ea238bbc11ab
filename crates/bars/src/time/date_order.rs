//! Dates with the year last, in which the day or the month comes first.

use std::fmt;
use std::str::FromStr;

use crate::time::timestamp::split_digits;
use crate::unknown_name::UnknownName;

/// Which of day and month comes first in a date with the year last, such as `03/04/2018`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DateOrder {
    /// `31/01/2018`.
    DayFirst,
    /// `01/31/2018`.
    MonthFirst,
}

impl fmt::Display for DateOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            DateOrder::DayFirst => "day-first",
            DateOrder::MonthFirst => "month-first",
        })
    }
}

impl FromStr for DateOrder {
    type Err = UnknownName;

    fn from_str(name: &str) -> Result<Self, UnknownName> {
        match name {
            "day-first" => Ok(DateOrder::DayFirst),
            "month-first" => Ok(DateOrder::MonthFirst),
            _ => {
                let expected = "day-first or month-first".to_owned();
                Err(UnknownName::new("order of dates", name, expected))
            }
        }
    }
}

/// Year, month, day and what follows them, of `31/01/2018`, `31.1.2018` or `31-01-2018`.
pub(crate) fn split_year_last(field: &[u8], order: DateOrder) -> Option<([i64; 3], &[u8])> {
    let ([first, second, year], _, rest) = split_numbers(field)?;
    Some(match order {
        DateOrder::DayFirst => ([year, second, first], rest),
        DateOrder::MonthFirst => ([year, first, second], rest),
    })
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
