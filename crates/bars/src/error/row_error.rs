use std::fmt;

use crate::unknown_name::named;

/// Reasons for which a row cannot be used as it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[non_exhaustive]
pub enum RowError {
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
    /// A time out of order, after which the rows go on as before it; or, in rows that are sorted, a
    /// time far from every other.
    Outlier,
    /// A flat bar without volume of a closed market. It is dropped under every [`OnError`].
    Filler,
    /// A time off the grid of the bars around it, such as that of a minute bar at 10:59:15.
    OffGrid,
    /// A bar at the start of a file, before the first at which every column that was asked for has
    /// a value. It is dropped under every [`OnError`].
    WarmUp,
    /// A column that was asked for has no value, though it had one before.
    NoValue,
    /// A label that ends before its bar.
    LabelEnd,
    /// The unfinished bar with which a file ends, of which another file has more; or its last line,
    /// if that has no end and is no row.
    Unfinished,
}

impl RowError {
    /// Every kind.
    pub const ALL: [RowError; 13] = [
        RowError::Unreadable,
        RowError::Inconsistent,
        RowError::NoSuchTime,
        RowError::Copy,
        RowError::Duplicate,
        RowError::Backward,
        RowError::Outlier,
        RowError::Filler,
        RowError::OffGrid,
        RowError::WarmUp,
        RowError::NoValue,
        RowError::LabelEnd,
        RowError::Unfinished,
    ];
}

impl fmt::Display for RowError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            RowError::Unreadable => "unreadable row",
            RowError::Inconsistent => "inconsistent prices",
            RowError::NoSuchTime => "time that does not exist",
            RowError::Copy => "copy of an earlier row",
            RowError::Duplicate => "duplicate timestamp",
            RowError::Backward => "backward timestamp",
            RowError::Outlier => "stray timestamp",
            RowError::Filler => "filler of a closed market",
            RowError::OffGrid => "time off the grid",
            RowError::WarmUp => "warm-up of a column",
            RowError::NoValue => "column without a value",
            RowError::LabelEnd => "label that ends before its bar",
            RowError::Unfinished => "unfinished last row",
        })
    }
}

/// Fix that made a row usable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[non_exhaustive]
pub enum RowFix {
    /// A row of the second pass of the hour that a clock going back repeats, recognised by the
    /// zone. This is reading and no repair: it is done under every [`OnError`].
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
    /// A time off the grid of the bars around it was moved to the grid.
    OnGrid,
}

impl RowFix {
    /// Every kind.
    pub const ALL: [RowFix; 6] =
        [RowFix::SecondPass, RowFix::Exchanged, RowFix::Widened, RowFix::Rounded, RowFix::Sorted, RowFix::OnGrid];
}

impl fmt::Display for RowFix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            RowFix::SecondPass => "second pass of an hour",
            RowFix::Exchanged => "high and low exchanged",
            RowFix::Widened => "high or low widened by noise",
            RowFix::Rounded => "noise rounded off",
            RowFix::Sorted => "sorted in",
            RowFix::OnGrid => "moved to the grid",
        })
    }
}

/// Treatment of rows that cannot be used as they stand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum OnError {
    /// Stop with an error that names file and line.
    #[default]
    Fail,
    /// Drop the row and count it by [`RowError`]. Of two rows of one time the first stays.
    Skip,
    /// Put right what can be put right without inventing anything, counted by [`RowFix`]; drop the
    /// rest as [`Skip`](OnError::Skip) does.
    Repair,
}

impl OnError {
    /// Every treatment.
    pub const ALL: [OnError; 3] = [OnError::Fail, OnError::Skip, OnError::Repair];

    const fn name(self) -> &'static str {
        match self {
            OnError::Fail => "fail",
            OnError::Skip => "skip",
            OnError::Repair => "repair",
        }
    }
}

named!(OnError, "treatment of errors", "fail, skip or repair", [Fail, Skip, Repair]);

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
        assert!(RowError::ALL.is_sorted() && RowFix::ALL.is_sorted());
    }
}
