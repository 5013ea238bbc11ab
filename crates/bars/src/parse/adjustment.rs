//! Adjustments of adjusted prices.

use std::collections::BTreeMap;
use std::fmt;

use crate::bar_source::BarSource;
use crate::bars::Bar;
use crate::error::Result;
use crate::parse::columns::BarColumns;
use crate::parse::row::{BarRow, RowAdjustment};
use crate::place::for_each_bar;
use crate::time::timestamp::{counted, display_date};

/// Events that the prices of one file were adjusted for.
///
/// The factor of a bar is its adjusted close over its close: the product of all later splits and
/// dividends, as the vendor has it. They are listed where the header names them (Alpha Vantage's
/// `split_coefficient` and `dividend_amount`), and unknown where prices are already quoted without
/// splits (Yahoo's).
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
#[non_exhaustive]
pub struct Adjustments {
    /// The factor by which the first bar's prices were multiplied.
    #[serde(with = "crate::exact::bits")]
    pub first_factor: f64,
    /// The factor of the last bar: 1 where nothing is known to have followed.
    #[serde(with = "crate::exact::bits")]
    pub last_factor: f64,
    /// The splits and spin-offs, in order of time.
    pub splits: Vec<ShareSplit>,
    /// Number of days with a dividend.
    pub dividends: u64,
    /// True if the file has columns of splits or dividends. Without them both are unknown, and not
    /// none.
    pub names_events: bool,
    /// Number of bars whose factor differs from that of the bar before by more than a thousandth:
    /// more than rounding does.
    pub factor_changes: u64,
}

/// Relative change of the factor from one bar to the next that no rounding of prices explains.
const FACTOR_CHANGE_MIN: f64 = 0.001;
/// Largest distance from 1 of the factor of prices that are as quoted.
const FACTOR_TOLERANCE: f64 = 1e-6;

/// A share that became several, or several that became one.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct ShareSplit {
    /// Open time of the first bar of the new shares, in nanoseconds since 1970 UTC.
    pub open_time: i64,
    /// New shares for an old one: 4 where the price falls to a quarter. A spin-off has an odd one.
    #[serde(with = "crate::exact::bits")]
    pub coefficient: f64,
}

impl Adjustments {
    /// Adjustments of the rows that became bars. There is at least one. `open_time` gives the open
    /// time of a row's bar.
    pub(crate) fn from_rows(
        rows: impl Iterator<Item = BarRow>,
        bars: &dyn BarSource,
        columns: &BarColumns,
        open_time: impl Fn(&BarRow) -> i64,
    ) -> Result<Option<Self>> {
        let events: BTreeMap<i64, RowAdjustment> = rows.map(|row| (open_time(&row), row.event)).collect();
        let mut adjustments: Option<Adjustments> = None;
        for_each_bar(bars, |Bar { open_time, .. }| {
            let Some(event) = events.get(&open_time) else { return Ok(()) };
            let adjustments = adjustments.get_or_insert_with(|| Adjustments {
                first_factor: event.factor,
                last_factor: event.factor,
                splits: Vec::new(),
                dividends: 0,
                names_events: columns.split.is_some() || columns.dividend.is_some(),
                factor_changes: 0,
            });
            let change = (event.factor / adjustments.last_factor - 1.0).abs();
            adjustments.factor_changes += u64::from(change > FACTOR_CHANGE_MIN);
            adjustments.last_factor = event.factor;
            adjustments.dividends += u64::from(event.dividend > 0.0);
            if event.split != 1.0 {
                adjustments.splits.push(ShareSplit { open_time, coefficient: event.split });
            }
            Ok(())
        })?;
        Ok(adjustments)
    }

    /// Description of the adjusted close that bars behind these must have; `None` where the last
    /// factor is 1. The step from adjusted prices to those as quoted is no change of the price.
    pub(crate) fn expected_behind(&self) -> Option<String> {
        let factor = self.last_factor;
        ((factor - 1.0).abs() > FACTOR_TOLERANCE).then(|| {
            format!(
                "an adjusted close, such as in Adj Close, in the first bar and all others: the prices of before were adjusted by theirs, the last times {factor:.4}"
            )
        })
    }
}

impl fmt::Display for ShareSplit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} for 1 on {}", self.coefficient, display_date(self.open_time))
    }
}

impl fmt::Display for Adjustments {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the first prices times {:.4}", self.first_factor)?;
        if self.last_factor != 1.0 {
            write!(f, ", the last times {:.4}", self.last_factor)?;
        }
        if !self.names_events && self.factor_changes == 0 {
            return Ok(());
        }
        if !self.names_events {
            return write!(
                f,
                ", for splits and dividends that the file does not name; the factor changes on {}",
                counted(self.factor_changes, "day", "days")
            );
        }
        if !self.splits.is_empty() {
            let splits: Vec<String> = self.splits.iter().map(ToString::to_string).collect();
            let count = counted(splits.len() as u64, "split", "splits");
            write!(f, ", {count} ({})", splits.join(", "))?;
        }
        match self.dividends {
            0 => Ok(()),
            count => write!(f, ", {}", counted(count, "dividend", "dividends")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bars::{Bar, Bars};
    use crate::parse::format::RowFormat;
    use crate::time::timeframe::Timeframe;
    use crate::time::timestamp::{DAY_NS, RowTime};

    fn columns(header: &[u8]) -> BarColumns {
        let head = [(1, header.to_vec()), (2, b"2018-01-01,1,1,1,1,1,1,0,1".to_vec())];
        RowFormat::detect(&head, None, None).unwrap().columns
    }

    #[test]
    fn only_rows_that_became_bars_count() {
        let row = |day: i64, factor: f64, split: f64, dividend: f64| BarRow {
            event: RowAdjustment { factor, split, dividend },
            ..BarRow::flat(RowTime::Utc(day * DAY_NS), 1.0, 1)
        };
        let rows = [row(0, 0.24, 1.0, 0.0), row(1, 0.24, 1.0, 0.1), row(2, 0.25, 7.0, 0.1), row(3, 1.0, 4.0, 0.0)];
        let mut bars = Bars::with_capacity(Timeframe::D1, 3);
        for day in [0, 1, 3] {
            bars.push(Bar { open_time: day * DAY_NS, ..Bar::default() });
        }
        let open_time = |row: &BarRow| row.stamp.ns();
        let named = columns(b"date,open,high,low,close,adjusted_close,volume,dividend_amount,split_coefficient");
        let adjustments = Adjustments::from_rows(rows.iter().cloned(), &bars, &named, open_time).unwrap().unwrap();
        let splits = vec![ShareSplit { open_time: 3 * DAY_NS, coefficient: 4.0 }];
        let expected = Adjustments {
            first_factor: 0.24,
            last_factor: 1.0,
            splits,
            dividends: 1,
            names_events: true,
            factor_changes: 1,
        };
        assert_eq!(adjustments, expected);
        let text = "the first prices times 0.2400, 1 split (4 for 1 on 1970-01-04), 1 dividend";
        assert_eq!(adjustments.to_string(), text);
        assert_eq!(
            Adjustments::from_rows(rows.iter().cloned(), &Bars::with_capacity(Timeframe::D1, 0), &named, open_time)
                .unwrap(),
            None
        );
        // `megabatch ingest` of Yahoo's files said "adjusted, for 0 splits and 0 dividends".
        let unnamed = columns(b"date,open,high,low,close,adj close,volume");
        let adjustments = Adjustments::from_rows(rows.iter().cloned(), &bars, &unnamed, open_time).unwrap().unwrap();
        let text = "the first prices times 0.2400, for splits and dividends that the file does not name; the factor changes on 1 day";
        assert_eq!((adjustments.names_events, adjustments.to_string().as_str()), (false, text));
    }
}
