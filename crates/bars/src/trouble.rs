use std::fmt;
use std::str::FromStr;

use crate::error::Error;

/// Why a row cannot be used as it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Trouble {
    /// A field is missing, or is no timestamp or no number.
    Unreadable,
    /// A price is not positive and finite, or open or close lies outside low and high, or volume or
    /// spread is negative.
    Inconsistent,
    /// A time that the clock of the file skips in spring.
    NoSuchTime,
    /// An earlier row once more, the same in every number.
    Copy,
    /// The time of an earlier row, with other numbers.
    Duplicate,
    /// A time before that of an earlier row, at which there is no bar.
    Backward,
    /// A time that leaves the order of the rows, which goes on after it where it was before; or,
    /// where rows are sorted, one far from every other.
    Stray,
}

impl Trouble {
    /// Every kind.
    pub const ALL: [Trouble; 7] = [
        Trouble::Unreadable,
        Trouble::Inconsistent,
        Trouble::NoSuchTime,
        Trouble::Copy,
        Trouble::Duplicate,
        Trouble::Backward,
        Trouble::Stray,
    ];
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Trouble::Unreadable => "unreadable row",
            Trouble::Inconsistent => "inconsistent prices",
            Trouble::NoSuchTime => "time that does not exist",
            Trouble::Copy => "copy of an earlier row",
            Trouble::Duplicate => "duplicate timestamp",
            Trouble::Backward => "backward timestamp",
            Trouble::Stray => "stray timestamp",
        })
    }
}

/// What was done to use a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Mend {
    /// The hour that a clock going back writes twice was told apart by the zone: the row is of its
    /// second pass. No repair but a reading, and done whatever [`OnError`] says.
    SecondPass,
    /// High and low stood in each other's place.
    Exchanged,
    /// A high or low that missed open or close by less than single precision can tell was moved to
    /// it.
    Widened,
    /// The noise of binary fractions was rounded off: 1.1687900000000002 is 1.16879 in a file of
    /// five digits.
    Rounded,
    /// A row out of order was put in its place, where there was no other.
    Sorted,
}

impl Mend {
    /// Every kind.
    pub const ALL: [Mend; 5] = [Mend::SecondPass, Mend::Exchanged, Mend::Widened, Mend::Rounded, Mend::Sorted];
}

impl fmt::Display for Mend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Mend::SecondPass => "second pass of an hour",
            Mend::Exchanged => "high and low exchanged",
            Mend::Widened => "high or low widened by noise",
            Mend::Rounded => "noise rounded off",
            Mend::Sorted => "sorted in",
        })
    }
}

/// What to do with a row that cannot be used as it stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnError {
    /// Stop with an error that names file and line.
    #[default]
    Fail,
    /// Drop the row and count it by [`Trouble`]. Of two rows of one time the first stays.
    Skip,
    /// Put right what can be put right without inventing anything, counted by [`Mend`]; drop the
    /// rest as [`Skip`](OnError::Skip) does.
    Repair,
}

impl OnError {
    /// Every treatment.
    pub const ALL: [OnError; 3] = [OnError::Fail, OnError::Skip, OnError::Repair];
}

impl fmt::Display for OnError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            OnError::Fail => "fail",
            OnError::Skip => "skip",
            OnError::Repair => "repair",
        })
    }
}

impl FromStr for OnError {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        OnError::ALL.into_iter().find(|on_error| on_error.to_string() == name).ok_or_else(|| {
            let expected = "fail, skip or repair".to_owned();
            Error::UnknownName { what: "treatment of errors", name: name.to_owned(), expected }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        for on_error in OnError::ALL {
            assert_eq!(on_error.to_string().parse::<OnError>().unwrap(), on_error);
        }
        assert!("ignore".parse::<OnError>().is_err());
    }

    #[test]
    fn kinds_are_listed_in_their_order() {
        assert!(Trouble::ALL.is_sorted() && Mend::ALL.is_sorted());
    }
}
