//! Lists of integers of a series file, read in pieces.

use std::ops::Range;

use super::SeriesFile;
use super::timeframe::SeriesTimeframeFile;
use crate::error::{Error, Result};
use crate::numeric_dataset::NumericDataset;

/// Entries of a list that are read at once where all of it is.
pub(super) const PIECE: usize = 1 << 16;

/// A list of integers of a series file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeriesColumn {
    /// Time of each sample, `[N]`.
    SampleTime,
    /// [`SeriesFile::span_times`]: open time of the earliest bar of each sample, `[N]`.
    ReachTime,
    /// [`SeriesFile::span_times`]: close time of the last bar of each sample's targets, `[N]`.
    LabelEndTime,
    /// Last bar of each sample's window in a timeframe, `[N]`.
    SampleEnd(usize),
    /// Close time of each bar of a timeframe, `[bars]`.
    CloseTime(usize),
}

impl SeriesFile {
    /// Instrument of a sample, an index into [`SeriesFile::instruments`]; `None` where the file
    /// names none.
    pub fn instrument_of(&self, sample: usize) -> Option<usize> {
        self.instrument_runs.instrument(sample).map(|instrument| instrument as usize)
    }

    /// The first sample of an instrument after `instrument`, in a file whose samples are in the
    /// order of the instruments; their number where none comes after it.
    pub fn first_sample_after(&self, instrument: usize) -> usize {
        self.instrument_runs.first_sample_after(instrument).unwrap_or(self.shape().samples)
    }

    /// Number of bars of a timeframe.
    pub fn bars(&self, timeframe: usize) -> usize {
        self.timeframes[timeframe].values_table().rows()
    }

    /// True if the file has the list.
    pub fn has_column(&self, column: SeriesColumn) -> bool {
        self.column(column).is_some()
    }

    /// Copies `rows` of a list to `out`, from memory where it is there. Rows from the file are
    /// checked against the rules of the layout, as far as other lists of the same rows tell.
    ///
    /// # Errors
    /// [`Error::Rows`], and [`Error::Invalid`] for rows that break a rule.
    ///
    /// # Panics
    /// If the file does not have the list or the rows, or `out` is not as long as they are.
    pub fn read_column(&self, column: SeriesColumn, rows: Range<usize>, out: &mut [i64]) -> Result<()> {
        assert_eq!(out.len(), rows.len(), "memory for exactly the rows");
        if let Some(held) = self.held_column(column) {
            out.copy_from_slice(&held[rows]);
            return Ok(());
        }
        self.read_stored_column(column, rows.clone(), out)?;
        self.check_rows(column, rows, out)
    }

    /// [`SeriesFile::read_column`] from the file, where no rule is held against the rows.
    pub(super) fn read_stored_column(&self, column: SeriesColumn, rows: Range<usize>, out: &mut [i64]) -> Result<()> {
        let table = self.column(column).expect("a list of the file");
        table.read_integers(rows.clone(), out).map_err(|source| table.rows_failed(&[rows], source))
    }

    /// Gives `each` the entries `rows` of a list in order, some at a time, with the row of the
    /// first.
    ///
    /// # Errors
    /// [`Error::Rows`], and whatever `each` returns.
    ///
    /// # Panics
    /// As [`SeriesFile::read_column`].
    pub fn scan_column<E: From<Error>>(
        &self,
        column: SeriesColumn,
        rows: Range<usize>,
        mut each: impl FnMut(usize, &[i64]) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut piece = Vec::new();
        for first in rows.clone().step_by(PIECE) {
            let rows = first..rows.end.min(first + PIECE);
            piece.resize(rows.len(), 0);
            self.read_column(column, rows, &mut piece)?;
            each(first, &piece)?;
        }
        Ok(())
    }

    /// Bytes of each list of the index in memory, in the order in which [`SeriesFile::load_index`]
    /// reads them.
    pub(crate) fn index_blocks(&self) -> Vec<u64> {
        let samples = [&self.samples.reach_time, &self.samples.label_end_time].into_iter().flatten();
        let samples = std::iter::once(&self.samples.time).chain(samples).map(|table| table.rows() * size_of::<i64>());
        let instruments = self.samples.instrument.iter().map(|table| table.rows() * size_of::<i32>());
        let timeframes = self.timeframes.iter().flat_map(|timeframe| {
            let tables = [timeframe.close_time_table(), timeframe.sample_end_table()];
            tables.map(|table| table.rows() * size_of::<i64>())
        });
        samples.chain(instruments).chain(timeframes).map(|bytes| bytes as u64).collect()
    }

    fn column(&self, column: SeriesColumn) -> Option<&NumericDataset> {
        match column {
            SeriesColumn::SampleTime => Some(&self.samples.time),
            SeriesColumn::ReachTime => self.samples.reach_time.as_ref(),
            SeriesColumn::LabelEndTime => self.samples.label_end_time.as_ref(),
            SeriesColumn::SampleEnd(k) => self.timeframes.get(k).map(SeriesTimeframeFile::sample_end_table),
            SeriesColumn::CloseTime(k) => self.timeframes.get(k).map(SeriesTimeframeFile::close_time_table),
        }
    }

    fn held_column(&self, column: SeriesColumn) -> Option<&[i64]> {
        let index = self.index.get()?;
        match column {
            SeriesColumn::SampleTime => Some(index.sample_time.as_slice()),
            SeriesColumn::ReachTime => index.span_times.reach_times(),
            SeriesColumn::LabelEndTime => index.span_times.label_end_times(),
            SeriesColumn::SampleEnd(k) => self.timeframes.get(k).map(SeriesTimeframeFile::sample_ends),
            SeriesColumn::CloseTime(k) => self.timeframes.get(k).map(SeriesTimeframeFile::close_times),
        }
    }
}
