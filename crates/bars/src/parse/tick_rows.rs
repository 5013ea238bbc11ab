//! Rows of ticks as MetaTrader exports them, without the header that names bid and ask.
//!
//! ```text
//! date        time          bid      ask      last  volume  flags
//! 2024.01.02  00:00:00.123  1.10421  1.10425                6
//! ```
//!
//! A price that has not changed is empty, and so is what the symbol does not have. Bars may have as
//! many fields. Few of them are stamped within a second, such as at their end, 00:00:59.999. Then
//! the highest price is in the place of the ask, and the lowest in that of the last price.

use crate::parse::fields::RowFields;
use crate::parse::header::{self, DELIMITERS, HeaderLine, NumberedLine};
use crate::time::timestamp::{DateStyle, RowTime, parse_date_and_clock};

const FIELDS: usize = 7;
const BID: usize = 2;
const ASK: usize = 3;
const LAST: usize = 4;
const VOLUME: usize = 5;
const FLAGS: usize = 6;
const SECOND_NS: i64 = 1_000_000_000;

/// Ticks whose columns no header names in a known language.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UnnamedTicks<'a> {
    pub(crate) delimiter: u8,
    /// The header of unknown names.
    pub(crate) header: Option<&'a NumberedLine>,
    /// Number of the first line of ticks, from 1.
    pub(crate) line: u64,
}

impl<'a> UnnamedTicks<'a> {
    /// The ticks in the first lines of a file; `None` where a line is neither a tick nor the header
    /// of unknown names, where no time has a part of a second, or where all rows may be bars.
    pub(crate) fn find(head: &'a [NumberedLine]) -> Option<Self> {
        DELIMITERS.into_iter().find_map(|delimiter| {
            let mut lines = head.iter().filter(|(_, text)| !text.is_empty()).peekable();
            let has_words = |text: &[u8]| header::parse(&RowFields::split(text, delimiter)) == Some(HeaderLine::Words);
            let header = lines.next_if(|(_, text)| has_words(text));
            let line = lines.peek()?.0;
            let (mut has_parts, mut may_be_bars) = (false, true);
            for (_, text) in lines {
                let fields = RowFields::split(text, delimiter);
                has_parts |= tick_time(&fields)?.ns() % SECOND_NS != 0;
                may_be_bars &= may_be_bar(&fields);
            }
            (has_parts && !may_be_bars).then_some(UnnamedTicks { delimiter, header, line })
        })
    }
}

/// The time of a row that is a tick.
fn tick_time(fields: &RowFields<'_>) -> Option<RowTime> {
    if fields.len() != FIELDS {
        return None;
    }
    let time = parse_date_and_clock(fields.get(0)?, fields.get(1)?, DateStyle::Dotted)?;
    let has_number = |column: usize| fields.number(column).is_some();
    let may_be = |column: usize| has_number(column) || fields.get(column).is_some_and(<[u8]>::is_empty);
    let are_flags = |flags: &[u8]| !flags.is_empty() && flags.iter().all(u8::is_ascii_digit);
    let is_tick =
        (BID..=VOLUME).all(may_be) && (BID..=VOLUME).any(has_number) && fields.get(FLAGS).is_some_and(are_flags);
    is_tick.then_some(time)
}

/// True if the numbers of a row may be open, high, low and close.
fn may_be_bar(fields: &RowFields<'_>) -> bool {
    let numbers = [BID, ASK, LAST, VOLUME].map(|column| fields.number(column).unwrap_or(f64::NAN));
    let [open, high, low, close] = numbers;
    low > 0.0 && [open, close].into_iter().all(|price| (low..=high).contains(&price))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Option<(u8, Option<u64>, u64)> {
        let head: Vec<NumberedLine> = (1..).zip(text.lines().map(|line| line.as_bytes().to_vec())).collect();
        UnnamedTicks::find(&head).map(|found| (found.delimiter, found.header.map(|(line, _)| *line), found.line))
    }

    #[test]
    fn ticks_are_told_from_bars_of_as_many_fields() {
        let quotes = "2024.01.02\t00:00:00.123\t1.10421\t1.10425\t\t\t6\n2024.01.02\t00:00:01.000\t\t1.10426\t\t\t4\n";
        assert_eq!(found(quotes), Some((b'\t', None, 1)));
        let words = format!("Datum\tZeit\tGeld\tBrief\tLetzter\tVolumen\tMarken\n{quotes}");
        assert_eq!(found(&words), Some((b'\t', Some(1), 2)));
        for numbers in ["187.1,187.2,187.15,100,24", "187.1,187.2,0,0,6", "1.1,1.2,1.1,0,6"] {
            assert_eq!(found(&format!("2024.01.02,09:30:00.5,{numbers}\n")), Some((b',', None, 1)), "{numbers}");
        }
        for other in [
            "",
            "Datum\tZeit\tGeld\tBrief\tLetzter\tVolumen\tMarken\n",
            "2024.01.02\t00:00:00\t1.1\t1.2\t1.0\t1.1\t6\n",
            "2024.01.02\t00:00:00.000\t1.1\t1.2\t1.0\t1.1\t6\n",
            "2024.01.02\t00:00:00.123\t\t\t\t\t6\n",
            "2024.01.02\t00:00:00.123\t1.1\t1.2\t\t\t\n",
            "2024.01.02 00:00:00.123\t1.1\t1.2\t1.0\t1.1\t6\n",
            "2024.01.02\t00:00:59.999\t1.1\t1.2\t1.0\t1.1\t6\n2024.01.02\t00:01:59.999\t1.1\t1.1\t1.1\t1.1\t1\n",
            format!("{quotes}2024.01.02\t00:00\t1.1\t1.2\t1.0\t1.1\t6\t7\n").as_str(),
        ] {
            assert_eq!(found(other), None, "{other}");
        }
    }
}
