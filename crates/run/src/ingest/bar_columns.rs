//! Bars in columns, as a table in memory has them, written as the text that `ingest` reads.

use std::io::{self, Write};
use std::path::Path;

use jiff::Timestamp;
use megabatch_atomic_file as atomic_file;

use crate::error::{Error, Result};

/// Bars of one instrument, a slice a column.
#[derive(Clone, Copy, Debug)]
pub struct BarColumns<'a> {
    /// Time of each bar, ns since 1970.
    pub time_ns: &'a [i64],
    /// Meaning of the times.
    pub times: BarTimes,
    /// First price.
    pub open: &'a [f64],
    /// Highest price.
    pub high: &'a [f64],
    /// Lowest price.
    pub low: &'a [f64],
    /// Last price.
    pub close: &'a [f64],
    /// Volume, where the table has it.
    pub volume: Option<&'a [f64]>,
    /// Ask less bid, where the table has it.
    pub spread: Option<&'a [f64]>,
}

/// Clock of times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BarTimes {
    /// UTC.
    Utc,
    /// A clock on a wall, whose zone the recipe tells.
    Wall,
}

impl BarColumns<'_> {
    /// Writes the bars to `path` as CSV. Each number is written in the fewest digits that read back
    /// as itself, and each time to the nanosecond.
    ///
    /// # Errors
    /// A data error for columns of other lengths or no rows; those of writing.
    pub fn write_csv(&self, path: &Path) -> Result<()> {
        let rows = self.time_ns.len();
        let prices = [("open", self.open), ("high", self.high), ("low", self.low), ("close", self.close)];
        let others = [("volume", self.volume), ("spread", self.spread)];
        let others: Vec<(&str, &[f64])> =
            others.into_iter().filter_map(|(name, column)| Some((name, column?))).collect();
        let columns: Vec<(&str, &[f64])> = prices.into_iter().chain(others).collect();
        if let Some((name, column)) = columns.iter().find(|(_, column)| column.len() != rows) {
            return Err(Error::data(format!("column {name} has {} rows, and the times are {rows}", column.len()))
                .with_field("column", *name));
        }
        if rows == 0 {
            return Err(Error::data("the table has no rows"));
        }
        atomic_file::write(path, &self.to_csv(&columns)?)?;
        Ok(())
    }

    fn to_csv(self, columns: &[(&str, &[f64])]) -> io::Result<Vec<u8>> {
        let mut text = Vec::with_capacity(self.time_ns.len() * (24 + 9 * columns.len()));
        text.extend_from_slice(b"datetime");
        columns.iter().try_for_each(|(name, _)| write!(text, ",{name}"))?;
        for (row, &time_ns) in self.time_ns.iter().enumerate() {
            let time = Timestamp::from_nanosecond(time_ns.into()).expect("64 bits of nanoseconds are a time");
            match self.times {
                BarTimes::Utc => write!(text, "\n{time}")?,
                BarTimes::Wall => write!(text, "\n{}", time.to_string().trim_end_matches('Z'))?,
            }
            columns.iter().try_for_each(|(_, column)| write!(text, ",{}", column[row]))?;
        }
        text.push(b'\n');
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use megabatch_bars::{ReadOptions, Timeframe};

    #[test]
    fn bars_are_read_as_they_were_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("X.csv");
        let time_ns: Vec<i64> = (0..200).map(|n| 1_514_764_800_000_000_000 + n * 60_000_000_000).collect();
        let price = |n: usize| 1.0 + (n as f64 * 0.37).sin() / 3.0;
        let open: Vec<f64> = (0..200).map(price).collect();
        let high: Vec<f64> = open.iter().map(|price| price + 1.0 / 7.0).collect();
        let low: Vec<f64> = open.iter().map(|price| price - 1.0 / 7.0).collect();
        let volume: Vec<f64> = (0..200).map(|n| n as f64 + 1.0).collect();
        let columns = BarColumns {
            time_ns: &time_ns,
            times: BarTimes::Utc,
            open: &open,
            high: &high,
            low: &low,
            close: &open,
            volume: Some(&volume),
            spread: None,
        };
        columns.write_csv(&path).unwrap();
        let bars = megabatch_bars::read(&[&path], &ReadOptions::default()).unwrap().bars;
        assert_eq!((bars.timeframe, &bars.open_time), (Timeframe::M1, &time_ns));
        for (read, written) in [(&bars.open, &open), (&bars.high, &high), (&bars.low, &low), (&bars.volume, &volume)] {
            assert_eq!(read, written);
        }
        let wrong = BarColumns { high: &high[1..], ..columns };
        assert!(wrong.write_csv(&path).unwrap_err().to_string().contains("column high has 199 rows"));
        let none = BarColumns { time_ns: &[], open: &[], high: &[], low: &[], close: &[], volume: None, ..columns };
        assert!(none.write_csv(&path).unwrap_err().to_string().contains("no rows"));
    }
}
