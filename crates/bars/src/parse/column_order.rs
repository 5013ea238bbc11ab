//! Detection of price columns in another order.
//!
//! A vendor's error exchanges high and low of a bar now and then. In more than one row of a hundred
//! it is no error of rows: the columns are in another order, and exchanging high and low would make
//! bars of wrong prices. The same holds where most rows have an open or close outside of high and
//! low.

use std::path::Path;

use crate::error::column_fault::ColumnFault;
use crate::error::{Error, Result};
use crate::parse::format::RowFormat;
use crate::parse::row::BarRow;

/// More rows than this with the high below the low, and more than [`INVERTED_SHARE_MAX`] of all,
/// are no single errors.
const INVERTED_MAX: u64 = 10;
const INVERTED_SHARE_MAX: f64 = 0.01;
/// Fewest rows that can show another order of the columns; more than half must.
const MOST_OF: u64 = 3;

/// Counts of rows that contradict the order of the columns. Bars of one price fit any order and are
/// not counted.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ColumnOrder {
    /// Rows whose prices differ.
    telling: u64,
    /// Rows with the high below the low.
    inverted: u64,
    /// Rows with an open or close outside of high and low, the inverted ones included.
    misfits: u64,
    first_line: u64,
}

impl ColumnOrder {
    /// Takes a row into account; true if its prices may stand in other columns.
    pub(crate) fn add(&mut self, row: &BarRow) -> bool {
        let prices = [row.open, row.high, row.low, row.close];
        let are_prices = prices.iter().all(|price| price.is_finite() && *price > 0.0);
        if !are_prices || prices.iter().all(|price| *price == row.open) {
            return false;
        }
        self.telling += 1;
        let misfits = !row.is_in_range_but_for_noise();
        if misfits {
            self.misfits += 1;
            self.inverted += u64::from(row.high < row.low);
            self.first_line = if self.misfits == 1 { row.line } else { self.first_line };
        }
        misfits
    }

    /// Refuses a file whose columns are in another order.
    pub(crate) fn check(&self, path: &Path, format: &RowFormat) -> Result<()> {
        let inverted = self.inverted > INVERTED_MAX && self.inverted as f64 > INVERTED_SHARE_MAX * self.telling as f64;
        let most = self.misfits >= MOST_OF && 2 * self.misfits > self.telling;
        if !inverted && !most {
            return Ok(());
        }
        let ColumnOrder { telling: rows, misfits, first_line, .. } = *self;
        let fields = format.columns.prices().map(|column| column + 1);
        Err(Error::columns(path, ColumnFault::Order { misfits, rows, first_line, fields }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::timestamp::RowTime;

    /// True if a file is refused that has so many rows of good prices, flat, inverted, and with the
    /// open above the high.
    fn is_refused(good: u64, flat: u64, inverted: u64, outside: u64) -> bool {
        let kinds = [
            ([2.0, 4.0, 1.0, 3.0], good),
            ([1.0; 4], flat),
            ([2.0, 1.0, 4.0, 3.0], inverted),
            ([5.0, 4.0, 1.0, 3.0], outside),
        ];
        let mut order = ColumnOrder::default();
        for (prices, count) in kinds {
            (0..count).for_each(|line| {
                _ = order.add(&BarRow::new(RowTime::Utc(0), prices[0], prices[1], prices[2], prices[3], line + 1));
            });
        }
        let format = RowFormat::detect(&[(1, b"2018-01-01 00:00,1,1,1,1".to_vec())], None, None).unwrap();
        order.check(Path::new("EURUSD.csv"), &format).is_err()
    }

    #[test]
    fn single_errors_are_no_other_order() {
        let cases = [
            ([1000, 0, 10, 0], false),
            ([1000, 0, 11, 0], true),
            ([1089, 0, 11, 0], false),
            ([0, 1000, 11, 0], true),
            ([100, 0, 10, 60], false),
            ([10, 0, 0, 10], false),
            ([10, 90, 0, 11], true),
            ([0, 0, 2, 0], false),
            ([0, 0, 2, 1], true),
        ];
        for (rows, refused) in cases {
            assert_eq!(is_refused(rows[0], rows[1], rows[2], rows[3]), refused, "{rows:?}");
        }
        let (mut order, noise) = (ColumnOrder::default(), [1.0, 0.999_999_99, 0.5, 0.75]);
        assert!(
            !order.add(&BarRow::new(RowTime::Utc(0), noise[0], noise[1], noise[2], noise[3], 1))
                && !order.add(&BarRow::new(RowTime::Utc(0), -1.0, 1.0, 2.0, 1.0, 1))
        );
    }
}
