//! The order of day and month, inferred from all dates of a file.

use std::path::Path;

use crate::error::message::shortened;
use crate::error::{Error, Result};
use crate::parse::fields::RowFields;
use crate::parse::format::RowFormat;
use crate::parse::lines::TextLines;
use crate::time::date_order::{DateOrder, split_named_month, split_numbers};
use crate::time::timestamp::DateStyle;

/// Reads through a file for the one order in which all its dates can be read.
///
/// A number above twelve is a day. Dates with points are read with the day first, the only order
/// that is written so; a month that is a word leaves no doubt.
pub(crate) fn order_of_dates(path: &Path, format: &RowFormat) -> Result<DateOrder> {
    let mut lines = TextLines::open(path)?;
    let (mut text, mut evidence) = (Vec::new(), DateEvidence::default());
    while !evidence.is_certain && lines.read_into(&mut text)?.is_some() {
        evidence.add(&RowFields::split(&text, format.delimiter), format);
    }
    evidence.order(path)
}

/// Dates of a file, as far as they show the order of day and month.
#[derive(Debug, Default)]
pub(crate) struct DateEvidence {
    /// True once a date leaves no doubt that the day is in front.
    is_certain: bool,
    /// True once some date can only be read with the day, or the month, in front.
    day_first: bool,
    month_first: bool,
    /// The first date.
    example: Vec<u8>,
}

impl DateEvidence {
    /// Takes a line of the file into account, be it a row or not.
    pub(crate) fn add(&mut self, fields: &RowFields<'_>, format: &RowFormat) {
        let Some(time) = fields.get(format.columns.time).filter(|_| !self.is_certain) else { return };
        if split_named_month(time).is_some() {
            self.is_certain = true;
            return;
        }
        let Some(([first, second, _], separator, _)) = split_numbers(time) else { return };
        if separator == b'.' {
            self.is_certain = true;
            return;
        }
        if self.example.is_empty() {
            self.example.extend_from_slice(time);
        }
        self.day_first |= first > 12 && second <= 12;
        self.month_first |= second > 12 && first <= 12;
    }

    /// The one order in which all dates can be read.
    pub(crate) fn order(&self, path: &Path) -> Result<DateOrder> {
        match (self.is_certain, self.day_first, self.month_first) {
            (true, ..) | (false, true, false) => Ok(DateOrder::DayFirst),
            (false, false, true) => Ok(DateOrder::MonthFirst),
            (false, both, _) => Err(Error::UnknownDateOrder {
                path: path.to_owned(),
                example: shortened(&self.example),
                found: if both { "some dates have the day first and some the month" } else { "no day is above 12" },
            }),
        }
    }
}

impl RowFormat {
    /// True if dates have the year last, so that the order of day and month must be inferred.
    pub(crate) fn has_year_last(&self) -> bool {
        matches!(self.style, DateStyle::YearLast(_))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn order_of(dates: &[&str]) -> Result<DateOrder> {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        dates.iter().for_each(|date| writeln!(file, "{date} 17:00,1,1,1,1").unwrap());
        let head = [(1, format!("{} 17:00,1,1,1,1", dates[0]).into_bytes())];
        order_of_dates(file.path(), &RowFormat::detect(&head, None, None).unwrap())
    }

    #[test]
    fn the_order_is_told_where_one_reading_fits_all() {
        assert_eq!(order_of(&["03/04/2018", "garbage", "13/04/2018"]).unwrap(), DateOrder::DayFirst);
        assert_eq!(order_of(&["3/4/2018", "31/31/2018", "3/31/2018"]).unwrap(), DateOrder::MonthFirst);
        assert_eq!(order_of(&["03-04-2018", "13-04-2018"]).unwrap(), DateOrder::DayFirst);
        assert_eq!(order_of(&["03.04.2018", "04.04.2018"]).unwrap(), DateOrder::DayFirst);
        assert_eq!(order_of(&["03-Apr-2018", "04-Apr-2018"]).unwrap(), DateOrder::DayFirst);
        for (dates, why) in
            [(["03/04/2018", "04/04/2018"], "no day is above 12"), (["13/04/2018", "04/13/2018"], "some dates have")]
        {
            let error = order_of(&dates).unwrap_err().to_string();
            assert!(error.contains(why) && error.contains(dates[0]) && error.contains("state which"), "{error}");
        }
    }
}
