//! One file of bars: first its rows as they stand, then, once its clock and timeframe are known, its bars.

use std::path::{Path, PathBuf};

use crate::bars::{Bar, Bars};
use crate::error::{Error, Result, shortened};
use crate::format::{Format, FormatName, TRIED};
use crate::lines::{Lines, text_of_line};
use crate::row::{Fault, Row};
use crate::timeframe::Timeframe;
use crate::timestamp::{Stamp, display_utc};
use crate::trouble::{Dropped, OnError, Tally, Trouble};
use crate::zone::Zone;

/// Lines from which the format is recognised.
const HEAD_LINES: usize = 64;

/// The rows of one file that can be read, in the order of the file, or backward where it is written newest first.
pub(crate) struct Source {
    pub(crate) path: PathBuf,
    pub(crate) format: Format,
    pub(crate) rows: Vec<Row>,
    /// Rows in the file, without header and empty lines.
    pub(crate) row_count: u64,
    pub(crate) newest_first: bool,
    /// The first row that was dropped, and why.
    pub(crate) first_fault: Option<String>,
    on_error: OnError,
    tally: Tally,
}

/// How rows become bars.
pub(crate) struct Clock<'a> {
    pub(crate) zone: &'a Zone,
    pub(crate) base: Timeframe,
    /// How long after its open a bar is stamped.
    pub(crate) stamp_delay_ns: i64,
}

impl Source {
    /// Reads a file, whose format is recognised or `wanted`.
    pub(crate) fn read(path: &Path, wanted: Option<FormatName>, on_error: OnError) -> Result<Self> {
        let mut lines = Lines::open(path)?;
        let head = read_head(&mut lines)?;
        let format = Format::detect(&head, wanted).map_err(|reason| Error::UnknownFormat {
            path: path.to_owned(),
            reason,
            tried: TRIED,
            first_line: head.first().map_or_else(String::new, |(_, text)| shortened(text)),
        })?;
        let mut source = Source {
            path: path.to_owned(),
            format,
            rows: Vec::new(),
            row_count: 0,
            newest_first: false,
            first_fault: None,
            on_error,
            tally: Tally::default(),
        };
        for (line, text) in &head {
            source.add(*line, text)?;
        }
        let mut text = Vec::new();
        while let Some(line) = lines.read_into(&mut text)? {
            source.add(line, &text)?;
        }
        source.put_oldest_first();
        Ok(source)
    }

    fn add(&mut self, line: u64, text: &[u8]) -> Result<()> {
        if text.is_empty() || self.format.header_line == Some(line) {
            return Ok(());
        }
        self.row_count += 1;
        match Row::parse(text, &self.format, line) {
            Ok(row) => self.rows.push(row),
            Err(fault) => self.refuse(line, fault, || text.to_vec())?,
        }
        Ok(())
    }

    /// Drops a row and counts it, or stops at it.
    fn refuse(&mut self, line: u64, fault: Fault, text: impl FnOnce() -> Vec<u8>) -> Result<()> {
        let Fault { trouble, expected } = fault;
        if self.on_error == OnError::Fail {
            let text = shortened(&text());
            return Err(Error::BadRow { path: self.path.clone(), line, trouble, expected, text });
        }
        self.first_fault.get_or_insert_with(|| format!("line {line}, {trouble}, expected {expected}"));
        self.tally.add(trouble, line);
        Ok(())
    }

    /// Some vendors write the newest bar first, without exception; that is an order and not an error.
    fn put_oldest_first(&mut self) {
        self.newest_first =
            self.rows.len() > 1 && self.rows.windows(2).all(|pair| pair[0].stamp.ns() > pair[1].stamp.ns());
        if self.newest_first {
            self.rows.reverse();
        }
    }

    /// The rows as bars in UTC, strictly in order of time, and what was dropped in all.
    pub(crate) fn into_bars(mut self, clock: &Clock<'_>) -> Result<(Bars, Vec<Dropped>)> {
        let rows = std::mem::take(&mut self.rows);
        let mut bars = Bars::with_capacity(clock.base, rows.len());
        for Row { stamp, open, high, low, close, volume, line } in rows {
            let open_time = clock.open_time(stamp);
            match bars.open_time.last().copied() {
                Some(last) if open_time <= last => {
                    let fault = out_of_order(open_time, &bars.open_time);
                    let path = self.path.clone();
                    self.refuse(line, fault, || text_of_line(&path, line))?;
                }
                _ => bars.push(Bar { open_time, open, high, low, close, volume, ..Bar::default() }),
            }
        }
        Ok((bars, self.tally.into_dropped()))
    }
}

impl Clock<'_> {
    fn open_time(&self, stamp: Stamp) -> i64 {
        let utc_ns = match stamp {
            Stamp::Utc(ns) => ns,
            Stamp::Wall(ns) => self.zone.utc_ns(ns),
        };
        utc_ns - self.stamp_delay_ns
    }
}

fn out_of_order(open_time: i64, earlier: &[i64]) -> Fault {
    let last = earlier.last().copied().expect("there is an earlier bar");
    let trouble = if earlier.binary_search(&open_time).is_ok() { Trouble::Duplicate } else { Trouble::Backward };
    let (found, last) = (display_utc(open_time), display_utc(last));
    Fault { trouble, expected: format!("a bar that opens after {last} (this one would open at {found})") }
}

fn read_head(lines: &mut Lines) -> Result<Vec<(u64, Vec<u8>)>> {
    let mut head = Vec::new();
    let mut text = Vec::new();
    while head.len() < HEAD_LINES
        && let Some(line) = lines.read_into(&mut text)?
    {
        head.push((line, text.clone()));
    }
    Ok(head)
}
