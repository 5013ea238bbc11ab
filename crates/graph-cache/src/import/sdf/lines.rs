//! Lines of fixed columns.

use std::ops::Range;
use std::str::FromStr;

use crate::error::{Error, Result};
use crate::import::text::Text;

/// The lines of a text, which end with LF or CR LF.
pub(super) struct FixedLines<'t> {
    text: &'t Text,
    rest: &'t [u8],
    number: u64,
}

impl<'t> FixedLines<'t> {
    pub(super) fn new(text: &'t Text) -> Self {
        FixedLines { text, rest: text.bytes(), number: 0 }
    }

    pub(super) fn only_blanks_left(&self) -> bool {
        self.rest.iter().all(u8::is_ascii_whitespace)
    }

    pub(super) fn next(&mut self) -> Option<FixedLine<'t>> {
        if self.rest.is_empty() {
            return None;
        }
        let end = self.rest.iter().position(|&byte| byte == b'\n');
        let (line, rest) = self.rest.split_at(end.map_or(self.rest.len(), |end| end + 1));
        self.rest = rest;
        self.number += 1;
        let bytes = line.strip_suffix(b"\n").unwrap_or(line);
        let bytes = bytes.strip_suffix(b"\r").unwrap_or(bytes);
        Some(FixedLine { text: self.text, number: self.number, bytes })
    }

    /// The next line; at the end of the file, an error that names the expected line.
    pub(super) fn need(&mut self, expected: &str) -> Result<FixedLine<'t>> {
        let number = self.number + 1;
        self.next().ok_or_else(|| self.text.field(number, 1, b"the end of the file", expected))
    }
}

/// One line.
pub(super) struct FixedLine<'t> {
    text: &'t Text,
    /// From 1.
    pub(super) number: u64,
    bytes: &'t [u8],
}

impl<'t> FixedLine<'t> {
    /// All of it.
    pub(super) fn all(&self) -> Result<&'t str> {
        str::from_utf8(self.bytes).map_err(|_| self.error(0..self.bytes.len(), "text in UTF-8"))
    }

    /// Text in columns from 0, trimmed; empty behind the end of the line.
    pub(super) fn text(&self, columns: Range<usize>) -> Result<&'t str> {
        let text = str::from_utf8(self.within(columns.clone())).map_err(|_| self.error(columns, "text in ASCII"))?;
        Ok(text.trim())
    }

    pub(super) fn number<T: FromStr>(&self, columns: Range<usize>, expected: &str) -> Result<T> {
        self.text(columns.clone())?.parse().map_err(|_| self.error(columns, expected))
    }

    /// Error: another value was expected in columns from 0.
    pub(super) fn error(&self, columns: Range<usize>, expected: impl Into<String>) -> Error {
        self.text.field(self.number, columns.start + 1, self.within(columns), expected)
    }

    fn within(&self, columns: Range<usize>) -> &'t [u8] {
        let length = self.bytes.len();
        &self.bytes[columns.start.min(length)..columns.end.min(length)]
    }
}
