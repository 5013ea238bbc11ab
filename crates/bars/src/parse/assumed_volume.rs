//! The column that is taken for the volume by its position alone: an adjusted close moves as the
//! close does, and a volume does not.

use std::path::Path;

use crate::error::{Error, Result};
use crate::parse::fields::RowFields;
use crate::parse::format::RowFormat;

/// Changes of the close that are large enough to show if the column follows them.
const MOVE_MIN: f64 = 0.003;
/// Difference of the column's change from the close's, relative to it, that is none.
const UNLIKE_MIN: f64 = 0.25;
/// Fewest such changes, and the share of them that the column follows.
const MOVES_MIN: u64 = 5;
const LIKE_SHARE_MIN: f64 = 0.9;

/// The evidence of a file's rows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AssumedVolume {
    column: usize,
    /// Logarithms of the last row's close and value.
    last: Option<LastRow>,
    moves: u64,
    /// Changes that the column follows.
    like: u64,
    /// Line number of the first row with such a change.
    first_like: u64,
}

#[derive(Clone, Copy, Debug)]
struct LastRow {
    close: f64,
    value: f64,
}

impl AssumedVolume {
    /// Nothing so far; `None` for a format whose volume is named, or that has none.
    pub(crate) fn new(format: &RowFormat) -> Option<Self> {
        let column = format.columns.volume.filter(|_| !format.is_named)?;
        Some(AssumedVolume { column, last: None, moves: 0, like: 0, first_like: 0 })
    }

    /// Takes a row into account.
    pub(crate) fn add(&mut self, fields: &RowFields<'_>, format: &RowFormat, line: u64) {
        let is_price = |price: &f64| price.is_finite() && *price > 0.0;
        let close = fields.number(format.columns.close).filter(is_price);
        let value = fields.amount(self.column).filter(is_price);
        let (Some(close), Some(value)) = (close, value) else { return };
        let row = LastRow { close: close.ln(), value: value.ln() };
        let Some(last) = self.last.replace(row) else { return };
        let change = row.close - last.close;
        if change.abs() < MOVE_MIN {
            return;
        }
        self.moves += 1;
        if (row.value - last.value - change).abs() <= UNLIKE_MIN * change.abs() {
            self.first_like = if self.like == 0 { line } else { self.first_like };
            self.like += 1;
        }
    }

    /// Refuses a file whose column is probably an adjusted close.
    pub(crate) fn check(&self, path: &Path, format: &RowFormat) -> Result<()> {
        if self.moves < MOVES_MIN || (self.like as f64) < LIKE_SHARE_MIN * self.moves as f64 {
            return Ok(());
        }
        let found = "moves as the close does: it may be an adjusted close, and was to be read as the volume";
        Err(Error::unclear_columns(path, self.first_like, self.column, found, format))
    }
}
