use std::fmt;
use std::str::FromStr;

use crate::error::Error;

/// Why a row cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Trouble {
    /// A field is missing, or is no timestamp or no number.
    Unreadable,
    /// A price is not positive and finite, or open or close lies outside low and high, or the volume is negative.
    Inconsistent,
    /// The time of an earlier row.
    Duplicate,
    /// A time before that of an earlier row, at which there is no bar.
    Backward,
}

impl Trouble {
    /// Every kind.
    pub const ALL: [Trouble; 4] = [Trouble::Unreadable, Trouble::Inconsistent, Trouble::Duplicate, Trouble::Backward];
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Trouble::Unreadable => "unreadable row",
            Trouble::Inconsistent => "inconsistent prices",
            Trouble::Duplicate => "duplicate timestamp",
            Trouble::Backward => "backward timestamp",
        })
    }
}

/// What to do with a row that cannot be used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnError {
    /// Stop with an error that names file and line.
    #[default]
    Fail,
    /// Drop the row and count it. Of two rows with one timestamp the first stays.
    Repair,
}

impl fmt::Display for OnError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            OnError::Fail => "fail",
            OnError::Repair => "repair",
        })
    }
}

impl FromStr for OnError {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        match name {
            "fail" => Ok(OnError::Fail),
            "repair" => Ok(OnError::Repair),
            _ => {
                let expected = "fail or repair".to_owned();
                Err(Error::UnknownName { what: "treatment of errors", name: name.to_owned(), expected })
            }
        }
    }
}

/// Rows of one kind that were dropped from one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dropped {
    /// The kind.
    pub trouble: Trouble,
    /// How many rows.
    pub rows: u64,
    /// Line number, from 1, of the first.
    pub first_line: u64,
}

/// Counts dropped rows by kind.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally(Vec<Dropped>);

impl Tally {
    pub(crate) fn add(&mut self, trouble: Trouble, line: u64) {
        match self.0.iter_mut().find(|dropped| dropped.trouble == trouble) {
            Some(dropped) => {
                dropped.rows += 1;
                dropped.first_line = dropped.first_line.min(line);
            }
            None => self.0.push(Dropped { trouble, rows: 1, first_line: line }),
        }
    }

    /// One entry a kind that occurred, in the order of the kinds.
    pub(crate) fn into_dropped(mut self) -> Vec<Dropped> {
        self.0.sort_by_key(|dropped| dropped.trouble);
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_by_kind_with_the_first_line() {
        let mut tally = Tally::default();
        for (trouble, line) in [(Trouble::Backward, 9), (Trouble::Unreadable, 5), (Trouble::Unreadable, 3)] {
            tally.add(trouble, line);
        }
        assert_eq!(
            tally.into_dropped(),
            [
                Dropped { trouble: Trouble::Unreadable, rows: 2, first_line: 3 },
                Dropped { trouble: Trouble::Backward, rows: 1, first_line: 9 },
            ]
        );
    }

    #[test]
    fn names_are_read_back() {
        for on_error in [OnError::Fail, OnError::Repair] {
            assert_eq!(on_error.to_string().parse::<OnError>().unwrap(), on_error);
        }
        assert!("skip".parse::<OnError>().is_err());
    }
}
