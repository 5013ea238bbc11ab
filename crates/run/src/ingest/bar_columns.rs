//! Columns of bars in memory, written as text that `ingest` reads.

use std::io::{self, Write};
use std::path::Path;

use jiff::Timestamp;
use jiff::tz::Offset;
use megabatch_atomic_file as atomic_file;
use megabatch_bars::{Zone, write_on_clock};

use crate::error::{Error, Result};

/// Bars of one instrument, a slice a column.
#[derive(Clone, Copy, Debug)]
pub struct BarColumns<'a> {
    /// Time of each bar, ns since 1970.
    pub time_ns: &'a [i64],
    /// Meaning of the times.
    pub times: BarTimes<'a>,
    /// Prices, and other numbers that a file may have.
    pub columns: &'a [BarColumn<'a>],
    /// Further columns of times, on the same clock.
    pub time_columns: &'a [BarTimeColumn<'a>],
}

/// Times of bars, beside their own.
#[derive(Clone, Copy, Debug)]
pub struct BarTimeColumn<'a> {
    /// Name in a header.
    pub name: &'a str,
    /// A time a bar, ns since 1970; the least number where there is none.
    pub time_ns: &'a [i64],
}

/// Numbers of bars.
#[derive(Clone, Copy, Debug)]
pub struct BarColumn<'a> {
    /// Name in a header, which decides their role.
    pub name: &'a str,
    /// A number a bar.
    pub values: &'a [f64],
}

/// Clock of times.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum BarTimes<'a> {
    /// UTC.
    Utc,
    /// UTC, and the seconds east of it on another clock, which each row states, 0 as well. Whole
    /// minutes are stated.
    UtcAt(&'a [i32]),
    /// Wall-clock time, in the zone of the recipe.
    Wall,
    /// Wall-clock time, in a zone that the header names.
    WallIn(&'a Zone),
}

impl BarColumns<'_> {
    /// Writes the bars to `path` as CSV. Each number is written in the fewest digits that read back
    /// as itself, NaN as an empty field, and each time to the nanosecond. Columns of times come
    /// last.
    ///
    /// # Errors
    /// A data error for columns of different lengths, offsets among them, or no rows; errors of
    /// writing.
    pub fn write_csv(&self, path: &Path) -> Result<()> {
        let rows = self.time_ns.len();
        if let Some(BarColumn { name, values }) = self.columns.iter().find(|column| column.values.len() != rows) {
            return Err(Error::data(format!("column {name} has {} rows, and the times are {rows}", values.len()))
                .with_field("column", *name));
        }
        if let BarTimes::UtcAt(east_s) = self.times
            && east_s.len() != rows
        {
            return Err(Error::data(format!("the offsets have {} rows, and the times are {rows}", east_s.len())));
        }
        if rows == 0 {
            return Err(Error::data("the table has no rows"));
        }
        atomic_file::write(path, &self.to_csv()?)?;
        Ok(())
    }

    fn to_csv(self) -> io::Result<Vec<u8>> {
        let mut text = Vec::with_capacity(self.time_ns.len() * (24 + 9 * self.columns.len()));
        match self.times {
            BarTimes::WallIn(zone) => write!(text, "datetime ({zone})")?,
            _ => text.extend_from_slice(b"datetime"),
        }
        let names = self.columns.iter().map(|column| column.name);
        let names = names.chain(self.time_columns.iter().map(|column| column.name));
        names.into_iter().try_for_each(|name| write!(text, ",{name}"))?;
        for (row, &time_ns) in self.time_ns.iter().enumerate() {
            text.push(b'\n');
            match self.stated_offset(row) {
                Some(offset) => write_on_clock(&mut text, timestamp(time_ns), offset)?,
                None => self.write_time(&mut text, time_ns)?,
            }
            self.columns.iter().map(|column| column.values[row]).try_for_each(|number| match number.is_nan() {
                true => text.write_all(b","),
                false => write!(text, ",{number}"),
            })?;
            for time_ns in self.time_columns.iter().map(|column| column.time_ns[row]) {
                text.push(b',');
                if time_ns != i64::MIN {
                    self.write_time(&mut text, time_ns)?;
                }
            }
        }
        text.push(b'\n');
        Ok(text)
    }

    /// The offset that the time of a row states; `None` for that of UTC.
    fn stated_offset(self, row: usize) -> Option<Offset> {
        let BarTimes::UtcAt(east_s) = self.times else { return None };
        Some(east_s[row]).filter(|east_s| east_s % 60 == 0).and_then(|east_s| Offset::from_seconds(east_s).ok())
    }

    fn write_time(self, text: &mut Vec<u8>, time_ns: i64) -> io::Result<()> {
        let time = timestamp(time_ns);
        match self.times {
            BarTimes::Utc | BarTimes::UtcAt(_) => write!(text, "{time}"),
            BarTimes::Wall | BarTimes::WallIn(_) => write!(text, "{}", time.to_string().trim_end_matches('Z')),
        }
    }
}

fn timestamp(time_ns: i64) -> Timestamp {
    Timestamp::from_nanosecond(time_ns.into()).expect("64 bits of nanoseconds are a time")
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
        let columns = [("open", &open), ("high", &high), ("low", &low), ("close", &open), ("volume", &volume)]
            .map(|(name, values)| BarColumn { name, values });
        let columns = BarColumns { time_ns: &time_ns, times: BarTimes::Utc, columns: &columns, time_columns: &[] };
        columns.write_csv(&path).unwrap();
        let bars = megabatch_bars::read(&[&path], &ReadOptions::default()).unwrap().bars;
        assert_eq!((bars.timeframe, &bars.open_time), (Timeframe::M1, &time_ns));
        for (read, written) in [(&bars.open, &open), (&bars.high, &high), (&bars.low, &low), (&bars.volume, &volume)] {
            assert_eq!(read, written);
        }
        let zone = "new-york+7".parse().unwrap();
        BarColumns { times: BarTimes::WallIn(&zone), ..columns }.write_csv(&path).unwrap();
        let bars = megabatch_bars::read(&[&path], &ReadOptions::default()).unwrap().bars;
        // New York's winter is five hours behind UTC.
        assert_eq!(bars.open_time[0], time_ns[0] - 2 * 3_600_000_000_000);
        let east_s: Vec<i32> = (0..200).map(|row| [-18_000, 0, 5 * 3_600 + 2_700, -17_762][row % 4]).collect();
        BarColumns { times: BarTimes::UtcAt(&east_s), ..columns }.write_csv(&path).unwrap();
        assert_eq!(megabatch_bars::read(&[&path], &ReadOptions::default()).unwrap().bars.open_time, time_ns);
        let text = std::fs::read_to_string(&path).unwrap();
        let stated = [
            "2017-12-31T19:00:00-05:00,",
            "2018-01-01T00:01:00+00:00[local],",
            "2018-01-01T05:47:00+05:45,",
            "2018-01-01T00:03:00Z,",
        ];
        for (line, time) in text.lines().skip(1).zip(stated) {
            assert!(line.starts_with(time), "{line}");
        }
        let few = BarColumns { times: BarTimes::UtcAt(&east_s[1..]), ..columns };
        assert!(few.write_csv(&path).unwrap_err().to_string().contains("the offsets have 199 rows"));
        let short = [BarColumn { name: "high", values: &high[1..] }];
        let wrong = BarColumns { columns: &short, ..columns };
        assert!(wrong.write_csv(&path).unwrap_err().to_string().contains("column high has 199 rows"));
        let none = BarColumns { time_ns: &[], columns: &[], ..columns };
        assert!(none.write_csv(&path).unwrap_err().to_string().contains("no rows"));
    }
}
