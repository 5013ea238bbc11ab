//! Delimited text: rows of fields that know where they stand.

use std::str::FromStr;

use csv::{ByteRecord, Reader, ReaderBuilder, Trim};

use crate::error::{Error, Result};
use crate::import::text::Text;

/// The rows of a text whose fields are separated by commas, with or without quotes and blanks
/// around them. Empty lines are passed over.
pub(super) struct DelimitedText<'t> {
    text: &'t Text,
    reader: Reader<&'t [u8]>,
    record: ByteRecord,
}

impl<'t> DelimitedText<'t> {
    pub(super) fn new(text: &'t Text) -> Self {
        let reader = ReaderBuilder::new().has_headers(false).flexible(true).trim(Trim::All).from_reader(text.bytes());
        DelimitedText { text, reader, record: ByteRecord::new() }
    }

    /// The table, and the names in its first row.
    pub(super) fn with_header(text: &'t Text) -> Result<(Self, Vec<String>)> {
        let mut table = DelimitedText::new(text);
        match table.next()? {
            Some(row) => {
                let names = row.record.iter().map(|name| String::from_utf8_lossy(name).into_owned()).collect();
                Ok((table, names))
            }
            None => Err(text.contradiction("there is nothing in it", "a line that names the columns, and rows")),
        }
    }

    pub(super) fn next(&mut self) -> Result<Option<TableRow<'_>>> {
        loop {
            let unreadable = |error: csv::Error| self.text.contradiction(error.to_string(), "delimited text");
            if !self.reader.read_byte_record(&mut self.record).map_err(unreadable)? {
                return Ok(None);
            }
            if self.record.len() > 1 || !self.record[0].is_empty() {
                break;
            }
        }
        Ok(Some(TableRow { text: self.text, line: self.line(), record: &self.record }))
    }

    /// The position of a record is where the reader began to look for it, before empty lines and
    /// the second half of CR LF.
    fn line(&self) -> u64 {
        let Some(position) = self.record.position() else { return 0 };
        let ahead = self.text.bytes().get(position.byte() as usize..).unwrap_or_default();
        let passed = ahead.iter().take_while(|byte| matches!(byte, b'\r' | b'\n'));
        position.line() + passed.filter(|&&byte| byte == b'\n').count() as u64
    }
}

/// One row.
pub(super) struct TableRow<'r> {
    text: &'r Text,
    line: u64,
    record: &'r ByteRecord,
}

impl TableRow<'_> {
    /// Number of fields.
    pub(super) fn len(&self) -> usize {
        self.record.len()
    }

    /// The field of a column from 0 as it is; empty where the row is shorter.
    pub(super) fn bytes(&self, column: usize) -> &[u8] {
        self.record.get(column).unwrap_or_default()
    }

    /// The field as text that is not empty.
    pub(super) fn name(&self, column: usize, expected: &str) -> Result<&str> {
        let text = str::from_utf8(self.bytes(column)).ok().filter(|text| !text.is_empty());
        text.ok_or_else(|| self.error(column, expected))
    }

    /// The field as an integer.
    pub(super) fn integer<T: FromStr>(&self, column: usize, expected: &str) -> Result<T> {
        self.parsed(column).ok_or_else(|| self.error(column, expected))
    }

    fn parsed<T: FromStr>(&self, column: usize) -> Option<T> {
        str::from_utf8(self.bytes(column)).ok()?.parse().ok()
    }

    /// The field as a finite number.
    pub(super) fn number(&self, column: usize) -> Result<f32> {
        self.parsed(column)
            .filter(|number: &f32| number.is_finite())
            .ok_or_else(|| self.error(column, "a finite number"))
    }

    /// The field as a finite number in double precision.
    pub(super) fn wide_number(&self, column: usize) -> Result<f64> {
        self.parsed(column)
            .filter(|number: &f64| number.is_finite())
            .ok_or_else(|| self.error(column, "a finite number"))
    }

    /// The field as the number of a target: NaN, which stands for one that is not known, where it
    /// is empty or says so.
    pub(super) fn target(&self, column: usize) -> Result<f32> {
        match self.bytes(column) {
            [] | b"nan" | b"NaN" | b"NAN" => Ok(f32::NAN),
            _ => self.number(column),
        }
    }

    /// Refuses a row that has not `fields` fields.
    pub(super) fn check_len(&self, fields: usize) -> Result<()> {
        match self.len() == fields {
            true => Ok(()),
            false => Err(self.text.field(
                self.line,
                fields.min(self.len()) + 1,
                self.bytes(fields),
                format!("{fields} fields in every row, but here are {}", self.len()),
            )),
        }
    }

    /// Error: another value was expected in a column from 0.
    pub(super) fn error(&self, column: usize, expected: impl Into<String>) -> Error {
        self.text.field(self.line, column + 1, self.bytes(column), expected)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_know_their_lines() {
        for (bytes, lines) in [
            ("1,2\n3,4\n", vec![1, 2]),
            ("1,2\r\n3,4", vec![1, 2]),
            ("\n\n1, 2\n  \n\n 3 ,4\n\n", vec![3, 6]),
            ("\r\n1,2\r\n\r\n3,4\r\n", vec![2, 4]),
            ("", vec![]),
        ] {
            let text = Text::new("t.csv", bytes.into()).unwrap();
            let mut table = DelimitedText::new(&text);
            let mut found = Vec::new();
            while let Some(row) = table.next().unwrap() {
                found.push(row.line);
                let expected: i64 = if found.len() == 1 { 1 } else { 3 };
                assert_eq!(row.integer::<i64>(0, "").unwrap(), expected);
            }
            assert_eq!(found, lines, "{bytes:?}");
        }
    }

    #[test]
    fn errors_name_file_line_column_and_what_was_expected() {
        let text = Text::new("t.csv", b"node,x\n1,2\n\n2,inf\n3,1,1\n".to_vec()).unwrap();
        let (mut table, header) = DelimitedText::with_header(&text).unwrap();
        assert_eq!(header, ["node", "x"]);
        table.next().unwrap().unwrap().check_len(2).unwrap();
        let error = table.next().unwrap().unwrap().number(1).unwrap_err().to_string();
        assert_eq!(error, "t.csv: line 4, column 2: expected a finite number, found `inf`");
        let error = table.next().unwrap().unwrap().check_len(2).unwrap_err().to_string();
        assert_eq!(error, "t.csv: line 5, column 3: expected 2 fields in every row, but here are 3, found `1`");
    }
}
