use std::fmt;

use crate::time::timestamp::display_utc;

/// Reason why a function of the user cannot be a feature.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum FunctionFault {
    /// It failed.
    Failed(
        /// Message of its exception.
        String,
    ),
    /// It gives other columns than for the bars before.
    Columns {
        /// Columns that it gave.
        found: Vec<String>,
        /// Columns that it gave before.
        expected: Vec<String>,
    },
    /// A column has another number of values than there are bars.
    Len {
        /// Name of the column.
        column: String,
        /// Number of values.
        found: usize,
        /// Number of bars.
        bars: usize,
    },
    /// A bar after the first value of a column has none.
    Value {
        /// Name of the column.
        column: String,
        /// Place of the bar, from 0.
        place: usize,
        /// When the bar opens, in nanoseconds since 1970 UTC.
        open_time: i64,
        /// The value.
        found: f64,
        /// No bar from this one on has a value.
        to_the_end: bool,
    },
    /// A column has no value at all.
    NoValue {
        /// Name of the column.
        column: String,
    },
    /// A column is a feature of another instrument that has too few bars for a value.
    TooFewContextBars {
        /// Name of the column.
        column: String,
        /// Bars of the other instrument up to the end of those beside which it stands.
        bars: usize,
        /// Bars up to and with the first one that has a value.
        needed: usize,
    },
    /// All bars of another instrument come before those beside which it stands.
    ContextEnded {
        /// When the last of them closes, in nanoseconds since 1970 UTC.
        close_time: i64,
    },
    /// It gives two answers for the same bars.
    TwoAnswers {
        /// Name of the column.
        column: String,
        /// When the first bar opens at which they differ, in nanoseconds since 1970 UTC.
        open_time: i64,
        /// Both values.
        found: [f64; 2],
    },
    /// A value depends on bars that had not closed.
    LookAhead {
        /// Name of the column.
        column: String,
        /// When the bar opens whose value changes, in nanoseconds since 1970 UTC.
        open_time: i64,
        /// When the last bar opens that stayed as it was.
        last_open_time: i64,
        /// Change of the bars after that one.
        future: OtherEnd,
        /// The value with the true bars.
        before: f64,
        /// The value with the others.
        after: f64,
        /// Largest difference that rounding explains.
        tolerance: f64,
        /// Least horizon in bars that a target needs whose value changes so; `None` for features
        /// and targets with their own ends of labels.
        horizon_min: Option<usize>,
    },
}

impl FunctionFault {
    /// The column that it is about.
    pub fn column(&self) -> Option<&str> {
        match self {
            FunctionFault::Failed(_) | FunctionFault::Columns { .. } | FunctionFault::ContextEnded { .. } => None,
            FunctionFault::Len { column, .. }
            | FunctionFault::Value { column, .. }
            | FunctionFault::NoValue { column }
            | FunctionFault::TooFewContextBars { column, .. }
            | FunctionFault::TwoAnswers { column, .. }
            | FunctionFault::LookAhead { column, .. } => Some(column),
        }
    }
}

/// Change of the bars that had not closed, as a proof makes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OtherEnd {
    /// There are none.
    Missing,
    /// They have other values.
    Replaced,
}

impl fmt::Display for FunctionFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FunctionFault::Failed(message) => write!(f, "{message}"),
            FunctionFault::Columns { found, expected } => {
                let [found, expected] = [found, expected].map(|names| names.join(", "));
                write!(f, "gives the columns {found}, and before {expected}: every call must give the same")
            }
            FunctionFault::Len { column, found, bars } => {
                write!(f, "column {column} has {found} values for {bars} bars: expected one a bar")
            }
            FunctionFault::Value { column, place, open_time, found, to_the_end } => {
                let open_time = display_utc(*open_time);
                write!(f, "column {column} is {found} at bar {place}, which opens at {open_time}, ")?;
                match to_the_end {
                    true => f.write_str(
                        "and at all after it: expected numbers to the last bar; a function that looks ahead, as `shift(-1)` does, has none there",
                    ),
                    false => f.write_str(
                        "after it had values: expected a number; fill it in the function, or skip such bars",
                    ),
                }
            }
            FunctionFault::NoValue { column } => {
                write!(f, "column {column} has no value at any bar: expected numbers after a warm-up of NaN")
            }
            FunctionFault::TooFewContextBars { column, bars, needed } => {
                write!(
                    f,
                    "column {column} has no value at any bar: the features of the other instrument have their first value at bar {needed} of it, and there are {bars} up to the end of these bars: give {needed} bars or more, or features that look back less far"
                )
            }
            FunctionFault::ContextEnded { close_time } => write!(
                f,
                "the last bar of the other instrument closes at {}, before these bars begin: give its bars of their time",
                display_utc(*close_time)
            ),
            FunctionFault::TwoAnswers { column, open_time, found: [first, second] } => write!(
                f,
                "column {column} of the bar that opens at {} is {first}, and {second} when it is called again with the same bars: expected one answer; give random numbers a seed, and keep no state between calls",
                display_utc(*open_time)
            ),
            FunctionFault::LookAhead {
                column,
                open_time,
                last_open_time,
                future,
                before,
                after,
                tolerance,
                horizon_min,
            } => {
                let what = match future {
                    OtherEnd::Missing => "end",
                    OtherEnd::Replaced => "have other values",
                };
                write!(
                    f,
                    "column {column} looks ahead: where the bars {what} after the one that opens at {}, the value of the bar that opens at {} is {after} instead of {before} (rounding explains {tolerance:.1e})",
                    display_utc(*last_open_time),
                    display_utc(*open_time)
                )?;
                match horizon_min {
                    Some(bars) => write!(f, "; as a target it needs a horizon of {bars} bars or more"),
                    None => Ok(()),
                }
            }
        }
    }
}
