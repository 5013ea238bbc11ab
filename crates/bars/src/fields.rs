use crate::format::Columns;
use crate::timestamp::{DateStyle, Stamp, parse_date_and_clock, parse_stamp};

/// Fields of a row that are looked at; a row may have more.
const FIELDS_MAX: usize = 32;

/// The fields of one row, without quotes and spaces around them.
pub(crate) struct Fields<'a> {
    fields: [&'a [u8]; FIELDS_MAX],
    len: usize,
}

impl<'a> Fields<'a> {
    /// Cuts a line at each delimiter. Quotes protect nothing: no field that we read holds a delimiter.
    pub(crate) fn split(line: &'a [u8], delimiter: u8) -> Self {
        let mut fields: [&[u8]; FIELDS_MAX] = [b""; FIELDS_MAX];
        let mut len = 0;
        for (slot, field) in fields.iter_mut().zip(line.split(|&byte| byte == delimiter)) {
            *slot = unquoted(field);
            len += 1;
        }
        Fields { fields, len }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn get(&self, column: usize) -> Option<&'a [u8]> {
        self.fields[..self.len].get(column).copied()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &'a [u8]> {
        self.fields[..self.len].iter().copied()
    }

    /// The row's time.
    pub(crate) fn stamp(&self, columns: &Columns, style: DateStyle) -> Option<Stamp> {
        let time = self.get(columns.time)?;
        match columns.clock {
            Some(clock) => parse_date_and_clock(time, self.get(clock)?, style),
            None => parse_stamp(time, style),
        }
    }

    /// The number in a column.
    pub(crate) fn number(&self, column: usize) -> Option<f64> {
        std::str::from_utf8(self.get(column)?).ok()?.parse().ok()
    }

    /// Whether the columns hold a time and four numbers.
    pub(crate) fn fit(&self, columns: &Columns, style: DateStyle) -> bool {
        self.stamp(columns, style).is_some() && columns.prices().iter().all(|&price| self.number(price).is_some())
    }
}

fn unquoted(mut field: &[u8]) -> &[u8] {
    while let [b'"' | b' ', rest @ ..] | [rest @ .., b'"' | b' '] = field {
        field = rest;
    }
    field
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_cut_at_each_delimiter() {
        let fields = Fields::split(b"\"2018.01.31, \"17:00\" ,,1.5\"", b',');
        assert_eq!(fields.iter().collect::<Vec<_>>(), [b"2018.01.31".as_slice(), b"17:00", b"", b"1.5"]);
        assert_eq!((fields.len(), fields.get(4), fields.number(3), fields.number(2)), (4, None, Some(1.5), None));
        assert_eq!(Fields::split(&[b','; 99], b',').len(), FIELDS_MAX);
    }
}
