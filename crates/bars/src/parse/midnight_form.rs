//! The form in which rows write midnights: with a time of day, or as dates alone.

use crate::parse::fields::RowFields;
use crate::parse::format::RowFormat;
use crate::parse::row::BarRow;
use crate::time::timestamp::RowTime;

/// The form of the rows of a file or a stream.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct MidnightForm {
    /// Rows whose times are dates alone.
    pub(crate) dates: u64,
    /// Time and line of the first of them.
    pub(crate) first_date: Option<(RowTime, u64)>,
    /// True once a row had a time of day.
    pub(crate) has_times_of_day: bool,
    /// True once a row at midnight had one.
    pub(crate) has_written_midnights: bool,
}

impl MidnightForm {
    /// Takes a row of `fields`. True if its time is a date alone.
    pub(crate) fn add(&mut self, row: &BarRow, fields: &RowFields<'_>, format: &RowFormat) -> bool {
        let is_midnight = row.is_at_midnight();
        let is_date = is_midnight && fields.is_date_alone(&format.columns, format.style);
        if is_date {
            self.dates += 1;
            self.first_date.get_or_insert((row.stamp, row.line));
        }
        self.has_times_of_day |= !is_date;
        self.has_written_midnights |= is_midnight && !is_date;
        is_date
    }
}
