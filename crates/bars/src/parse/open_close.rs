//! Detection of exchanged open and close.
//!
//! A bar opens near the close of the bar before it, and closes further away from the open of that
//! bar: two bars lie between them. Where the columns of open and close are exchanged, it is the
//! other way round. High and low hold both prices in either order, so that no single row shows it.

use std::path::Path;

use crate::error::column_fault::ColumnFault;
use crate::error::message::Percent;
use crate::error::{Error, Result};
use crate::median::median;
use crate::parse::format::RowFormat;
use crate::parse::row::BarRow;

/// Fewest pairs of neighbouring bars that show the order.
const PAIRS_MIN: usize = 20;
/// Pairs that are looked at.
const PAIRS_MAX: usize = 1 << 14;
/// Distance from close to next open over distance from open to next close, above which the two are
/// exchanged. Shares have 0.2 to 0.6, currencies less; prices without memory have 1.
const RATIO_MAX: f64 = 1.25;

/// Distances between the bars of a file, in logarithms of the price.
#[derive(Debug, Default)]
pub(crate) struct OpenClose {
    last: Option<BarEdge>,
    /// From a bar's close to the next one's open.
    to_open: Vec<f64>,
    /// From a bar's open to the next one's close.
    to_close: Vec<f64>,
}

#[derive(Clone, Copy, Debug)]
struct BarEdge {
    stamp_ns: i64,
    open: f64,
    close: f64,
}

/// Medians of the distances of a file whose open and close are exchanged.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Exchanged {
    pub(crate) pairs: usize,
    /// Relative distance from a close to the next open, as the columns are read.
    pub(crate) as_read: f64,
    /// The same with open and close exchanged.
    pub(crate) exchanged: f64,
}

impl OpenClose {
    /// Takes a row whose prices are positive into account. Rows may be in either order of time.
    pub(crate) fn add(&mut self, row: &BarRow) {
        let edge = BarEdge { stamp_ns: row.stamp.ns(), open: row.open.ln(), close: row.close.ln() };
        let Some(last) = self.last.replace(edge) else { return };
        let (earlier, later) = if last.stamp_ns < edge.stamp_ns { (last, edge) } else { (edge, last) };
        let (to_open, to_close) = ((later.open - earlier.close).abs(), (later.close - earlier.open).abs());
        // Bars of one price fit both orders.
        if earlier.stamp_ns < later.stamp_ns && self.to_open.len() < PAIRS_MAX && to_open != to_close {
            self.to_open.push(to_open);
            self.to_close.push(to_close);
        }
    }

    /// Number of pairs so far.
    pub(crate) fn pairs(&self) -> usize {
        self.to_open.len()
    }

    /// The medians, if they show that the two columns are exchanged.
    pub(crate) fn exchanged(&self) -> Option<Exchanged> {
        let pairs = self.to_open.len();
        if pairs < PAIRS_MIN {
            return None;
        }
        let [as_read, exchanged] = [&self.to_open, &self.to_close].map(|distances| median(&mut distances.clone()));
        (as_read > RATIO_MAX * exchanged).then_some(Exchanged { pairs, as_read, exchanged })
    }

    /// Refuses a file of columns without names whose open and close are exchanged.
    pub(crate) fn check(&self, path: &Path, format: &RowFormat) -> Result<()> {
        let Some(Exchanged { pairs, as_read, exchanged }) = self.exchanged().filter(|_| !format.is_named) else {
            return Ok(());
        };
        let columns = &format.columns;
        let [open, close] = [columns.open, columns.close].map(|column| column + 1);
        let mut other = *columns;
        (other.open, other.close) = (columns.close, columns.open);
        let delimiter = char::from(format.delimiter);
        let fault = ColumnFault::ExchangedOpenClose {
            fields: [open, close],
            pairs,
            as_read: 100.0 * as_read,
            exchanged: 100.0 * exchanged,
            header: columns.header(delimiter),
            exchanged_header: other.header(delimiter),
        };
        Err(Error::columns(path, fault))
    }

    /// A warning about a file of named columns whose open and close seem to be exchanged.
    pub(crate) fn warning(&self, path: &Path, format: &RowFormat) -> Option<String> {
        let Exchanged { pairs, as_read, exchanged } = self.exchanged().filter(|_| format.is_named)?;
        Some(format!(
            "the bars of {} open {} from the close before (median of {pairs}), and with open and close exchanged {}: are \
             the names of these two columns right?",
            path.display(),
            Percent(100.0 * as_read),
            Percent(100.0 * exchanged)
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::timestamp::RowTime;

    /// A walk whose bars open `gap` away from the close before them, and move by `body`.
    fn walk(bars: usize, gap: f64, body: f64, is_exchanged: bool, is_newest_first: bool) -> OpenClose {
        let mut price = 100.0_f64;
        let mut rows: Vec<BarRow> = (0..bars as i64)
            .map(|k| {
                let sign = |salt: i64| if (k * 7919 + salt) % 13 < 6 { -1.0 } else { 1.0 };
                let open = price * (gap * sign(3)).exp();
                let close = open * (body * sign(8)).exp();
                price = close;
                let (first, last) = if is_exchanged { (close, open) } else { (open, close) };
                BarRow::new(RowTime::Wall(k), first, first.max(last), first.min(last), last, 1)
            })
            .collect();
        if is_newest_first {
            rows.reverse();
        }
        let mut order = OpenClose::default();
        rows.iter().for_each(|row| order.add(row));
        order
    }

    #[test]
    fn the_order_shows_in_the_distances_of_neighbours() {
        for is_newest_first in [false, true] {
            for (bars, gap, body) in [(60, 0.0, 0.01), (400, 0.002, 0.01), (400, 0.006, 0.01)] {
                assert_eq!(walk(bars, gap, body, false, is_newest_first).exchanged(), None, "{bars} {gap} {body}");
                let found = walk(bars, gap, body, true, is_newest_first).exchanged().unwrap();
                assert!(found.as_read > found.exchanged && found.pairs < bars, "{found:?}");
            }
        }
        assert_eq!(walk(20, 0.0, 0.01, true, false).exchanged(), None, "few bars show nothing");
        assert_eq!(walk(400, 0.01, 0.0, true, false).exchanged(), None, "bars of one price fit both orders");
    }
}
