//! The sixth of seven or more columns without names: an adjusted close, as Yahoo writes it, or a
//! volume before an open interest.
//!
//! Prices are multiplied by adjusted close / close, so that a volume taken for an adjusted close
//! would spoil every bar. An adjusted close is positive, of the size of the close, and moves as the
//! close does on all days but those of dividends.

use std::path::Path;

use crate::error::column_fault::ColumnFault;
use crate::error::{Error, Result};
use crate::parse::columns::BarColumns;
use crate::parse::fields::RowFields;
use crate::parse::format::RowFormat;

/// Largest factor between an adjusted close and its close.
const FACTOR_MAX: f64 = 10.0;
/// Returns of the two that differ by more than this are unlike.
const UNLIKE_MIN: f64 = 0.005;
/// Unlike returns, and their share of all, from which on the column is no adjusted close.
const UNLIKE_ROWS_MIN: u64 = 2;
const UNLIKE_SHARE_MAX: f64 = 0.1;

/// The evidence of a file's rows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AdjustedColumn {
    column: usize,
    /// Logarithm of the last row's factor.
    last: Option<f64>,
    returns: u64,
    unlike: u64,
    /// Line number of the first row that is unlike the one before it.
    first_unlike: u64,
    /// Line number of the first row whose value is not positive or far from the close.
    far: Option<u64>,
}

impl AdjustedColumn {
    /// Nothing so far; `None` for a format whose adjusted close is named, or that has none.
    pub(crate) fn from_format(format: &RowFormat) -> Option<Self> {
        let column = format.assumed_adjusted?;
        Some(AdjustedColumn { column, last: None, returns: 0, unlike: 0, first_unlike: 0, far: None })
    }

    /// Takes a row into account; true if its value is no adjusted close. A row without prices shows
    /// nothing.
    pub(crate) fn add(&mut self, fields: &RowFields<'_>, format: &RowFormat, line: u64) -> bool {
        let is_price = |price: &f64| price.is_finite() && *price > 0.0;
        let prices = format.columns.prices().map(|column| fields.number(column).filter(is_price));
        let [Some(_), Some(_), Some(_), Some(close)] = prices else { return false };
        let factor = fields.amount(self.column).map(|adjusted| adjusted / close).filter(is_price);
        let Some(factor) = factor.filter(|factor| (1.0 / FACTOR_MAX..=FACTOR_MAX).contains(factor)) else {
            self.far.get_or_insert(line);
            return true;
        };
        if let Some(last) = self.last.replace(factor.ln()) {
            self.returns += 1;
            if (factor.ln() - last).abs() > UNLIKE_MIN {
                self.unlike += 1;
                self.first_unlike = if self.unlike == 1 { line } else { self.first_unlike };
            }
        }
        false
    }

    /// Refuses a file whose sixth column may be something else.
    pub(crate) fn check(&self, path: &Path, format: &RowFormat) -> Result<()> {
        let (line, found) = match self.far {
            Some(line) => (
                line,
                "is not positive, or more than ten times the close or less than a tenth of it: it may be a volume, and \
                 prices would be multiplied by it if it were taken for Yahoo's adjusted close",
            ),
            None if self.moves_on_its_own() => (
                self.first_unlike,
                "does not move as the close does: it may be a volume, and prices would be multiplied by it if it were \
                 taken for Yahoo's adjusted close",
            ),
            None => return Ok(()),
        };
        Err(Error::unclear_columns(path, line, self.column, found, format))
    }

    fn moves_on_its_own(&self) -> bool {
        self.unlike >= UNLIKE_ROWS_MIN && self.unlike as f64 > UNLIKE_SHARE_MAX * self.returns as f64
    }
}

impl Error {
    /// Refusal of a column, counted from 0, that may be a volume or an adjusted close.
    pub(crate) fn unclear_columns(
        path: &Path,
        line: u64,
        column: usize,
        found: &'static str,
        format: &RowFormat,
    ) -> Self {
        let BarColumns { time, clock, open, high, low, close, .. } = format.columns;
        let prices = BarColumns { time, clock, open, high, low, close, ..BarColumns::NONE };
        let volume = BarColumns { volume: Some(column), ..prices };
        let adjusted = BarColumns { adjusted: Some(column), volume: Some(column + 1), ..prices };
        let delimiter = char::from(format.delimiter);
        let fault = ColumnFault::Unclear {
            line,
            field: column + 1,
            found,
            volume_header: format!("{}{delimiter}openint", volume.header(delimiter)),
            adjusted_header: adjusted.header(delimiter),
        };
        Error::columns(path, fault)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// True if rows of these closes and sixth fields are refused.
    fn is_refused(rows: &[(f64, &str)]) -> bool {
        let format = RowFormat::detect(&[(1, b"2018-01-01,1,1,1,1,1,1".to_vec())], None, None).unwrap();
        let mut column = AdjustedColumn::from_format(&format).unwrap();
        for (line, (close, sixth)) in (1..).zip(rows) {
            let text = format!("2018-01-01,1,1,1,{close},{sixth},0");
            column.add(&RowFields::split(text.as_bytes(), b','), &format, line);
        }
        column.check(Path::new("AAPL.csv"), &format).is_err()
    }

    #[test]
    fn an_adjusted_close_is_near_the_close_and_moves_with_it() {
        let dividends: Vec<(f64, &str)> =
            (0..30).map(|day| if day < 15 { (10.0, "9.0") } else { (10.0, "9.9") }).collect();
        let near_volumes: Vec<(f64, &str)> = (0..30).map(|day| (10.0, ["31", "12", "55"][day % 3])).collect();
        let cases: [(&[(f64, &str)], bool); 8] = [
            (&[], false),
            (&[(67.1, "64.0")], false),
            (&[(67.1, "180700")], true),
            (&[(67.1, "0")], true),
            (&[(67.1, "\"1,234\"")], true),
            (&[(67.1, "null")], true),
            (&dividends, false),
            (&near_volumes, true),
        ];
        for (rows, refused) in cases {
            assert_eq!(is_refused(rows), refused, "{rows:?}");
        }
    }
}
