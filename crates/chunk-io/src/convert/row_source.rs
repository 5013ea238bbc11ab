//! Sources of rows, as bytes, for a table to be written.

use std::ops::Range;
use std::path::{Path, PathBuf};

use hdf5::Dataset;

use super::journal::Journal;
use super::placed_samples::JournalExtent;
use super::work::ConversionContext;
use crate::error::{Error, Result};
use crate::series::{SeriesColumn, SeriesFile};
use crate::slab;

/// A source of whole rows.
pub(super) trait RowSource {
    /// Copies `rows` into `out`, which has exactly their size.
    fn read(&mut self, rows: Range<usize>, out: &mut [u8]) -> Result<()>;
}

/// Rows of a dataset, in the order of the file or in another.
#[derive(Debug)]
pub(super) struct DatasetRows<'a> {
    pub(super) path: PathBuf,
    pub(super) dataset: Dataset,
    /// The dataset's row for each row; `None` for the order of the file.
    pub(super) order: Option<&'a [usize]>,
}

impl DatasetRows<'_> {
    /// The rows of `dataset` as they are.
    pub(super) fn new(path: &Path, dataset: Dataset) -> Self {
        DatasetRows { path: path.to_owned(), dataset, order: None }
    }

    fn read_run(&self, rows: &Range<usize>, out: &mut [u8]) -> Result<()> {
        let failed = |error| Error::hdf5(&self.path, &self.dataset.name(), "read the values")(error);
        slab::read_stored_rows(&self.dataset, rows, out).map_err(failed)
    }
}

impl RowSource for DatasetRows<'_> {
    fn read(&mut self, rows: Range<usize>, out: &mut [u8]) -> Result<()> {
        let Some(order) = self.order else { return self.read_run(&rows, out) };
        let Some(row_bytes) = out.len().checked_div(rows.len()) else { return Ok(()) };
        let mut out = out;
        for run in order[rows].chunk_by(|&a, &b| a + 1 == b) {
            let (part, rest) = out.split_at_mut(run.len() * row_bytes);
            self.read_run(&(run[0]..run[0] + run.len()), part)?;
            out = rest;
        }
        Ok(())
    }
}

/// Windows cut out of bars: row n is the `steps` bars up to the end of sample n.
#[derive(Debug)]
pub(super) struct WindowRows<'a> {
    bars: DatasetRows<'a>,
    steps: usize,
    row_bytes: usize,
    series: &'a SeriesFile,
    /// Place of the timeframe in the series.
    timeframe: usize,
    /// Ends of the windows that are asked for, and the first of these.
    ends: (usize, Vec<i64>),
    /// Bars that may be held at once, whatever the windows.
    held_max: usize,
    /// The bars held, and which they are.
    held: (Range<usize>, Vec<u8>),
}

impl<'a> WindowRows<'a> {
    /// The windows of a timeframe of `series`, of bars of `row_bytes` each.
    pub(super) fn new(
        bars: DatasetRows<'a>,
        series: &'a SeriesFile,
        timeframe: usize,
        row_bytes: usize,
        work: &ConversionContext<'_>,
    ) -> Self {
        let steps = series.timeframes()[timeframe].steps();
        let held_max = (work.batch_bytes() / row_bytes.max(1)).max(steps);
        WindowRows {
            bars,
            steps,
            row_bytes,
            series,
            timeframe,
            ends: (0, Vec::new()),
            held_max,
            held: (0..0, Vec::new()),
        }
    }

    fn bars_of(&self, row: usize) -> Range<usize> {
        let (first, ends) = &self.ends;
        // A window of bars that are there: rows of this list are checked when they are read.
        let end = ends[row - first] as usize + 1;
        end - self.steps..end
    }

    /// Reads the bars of `row`, and of further rows whose bars are near, into memory.
    fn hold(&mut self, row: usize, rows_end: usize) -> Result<()> {
        let mut span = self.bars_of(row);
        for next in row + 1..rows_end {
            let bars = self.bars_of(next);
            let wider = span.start.min(bars.start)..span.end.max(bars.end);
            // Bars of no window are read only if they are few.
            if wider.len() > self.held_max || wider.len() > span.len() + bars.len() {
                break;
            }
            span = wider;
        }
        self.held.1.resize(span.len() * self.row_bytes, 0);
        self.bars.read(span.clone(), &mut self.held.1)?;
        self.held.0 = span;
        Ok(())
    }
}

impl RowSource for WindowRows<'_> {
    fn read(&mut self, rows: Range<usize>, out: &mut [u8]) -> Result<()> {
        self.ends.0 = rows.start;
        self.ends.1.resize(rows.len(), 0);
        self.series.read_column(SeriesColumn::SampleEnd(self.timeframe), rows.clone(), &mut self.ends.1)?;
        for (row, out) in rows.clone().zip(out.chunks_exact_mut(self.steps * self.row_bytes)) {
            let bars = self.bars_of(row);
            if bars.start < self.held.0.start || bars.end > self.held.0.end {
                self.hold(row, rows.end)?;
            }
            let first = (bars.start - self.held.0.start) * self.row_bytes;
            out.copy_from_slice(&self.held.1[first..first + out.len()]);
        }
        Ok(())
    }
}

/// Bars that are in several extents of a journal.
#[derive(Debug)]
pub(super) struct JournalRows<'a> {
    pub(super) journal: &'a mut Journal,
    /// In the order of the bars, each with the number of its first bar.
    pub(super) extents: Vec<(usize, JournalExtent)>,
}

impl RowSource for JournalRows<'_> {
    fn read(&mut self, rows: Range<usize>, out: &mut [u8]) -> Result<()> {
        let Some(row_bytes) = out.len().checked_div(rows.len()) else { return Ok(()) };
        let (mut row, mut out) = (rows.start, out);
        let mut place = self.extents.partition_point(|(first, _)| *first <= row);
        while row < rows.end {
            let (first, extent) = self.extents[place - 1];
            let bars = (first + extent.bars).min(rows.end) - row;
            let (part, rest) = out.split_at_mut(bars * row_bytes);
            self.journal.read(extent.offset + ((row - first) * row_bytes) as u64, part)?;
            (row, out, place) = (row + bars, rest, place + 1);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_gathered_from_their_pieces() {
        let folder = tempfile::tempdir().unwrap();
        let (mut journal, _) = Journal::open(folder.path().join("journal"), "").unwrap();
        let records: Vec<_> =
            [&b"aabb"[..], b"cc", b"ddeeff"].map(|bars| journal.append(0, 0, 0, &[bars]).unwrap()).into();
        let extent = |k: usize| JournalExtent { offset: records[k].offset, bars: records[k].bytes as usize / 2 };
        let mut source =
            JournalRows { journal: &mut journal, extents: vec![(0, extent(2)), (3, extent(0)), (5, extent(1))] };
        let all = b"ddeeffaabbcc";
        for start in 0..=6 {
            for end in start..=6 {
                let mut out = vec![0; (end - start) * 2];
                source.read(start..end, &mut out).unwrap();
                assert_eq!(out, all[start * 2..end * 2], "{start}..{end}");
            }
        }
    }
}
