//! The rules of the series layout, held against a file whose index stays there.

use std::ops::Range;

use super::bar_times::BarRanges;
use super::check::{
    SampleIndex, TimeframeIndex, check_bars, check_given_close_times, check_piece_with, check_samples, check_window,
    instrument_spans,
};
use super::columns::{PIECE, SeriesColumn};
use super::instrument_runs::InstrumentRuns;
use super::open::SeriesFile;
use crate::error::{Error, Result};
use crate::spans::{check_label_end, check_reach};

/// Most bars whose close times are held to check samples.
const BARS_MAX: usize = 1 << 20;

/// The samples of a piece.
struct Piece {
    samples: Range<usize>,
    time: Vec<i64>,
    instrument: Vec<i32>,
}

impl SeriesFile {
    /// The runs of samples of one instrument.
    pub(super) fn read_instrument_runs(&self) -> Result<InstrumentRuns> {
        let mut runs = InstrumentRuns::default();
        for piece in self.sample_pieces() {
            let instruments = self.read_instruments(&piece)?;
            piece.zip(instruments).for_each(|(sample, instrument)| runs.push(sample, instrument));
        }
        Ok(runs)
    }

    /// Checks the lists that are in memory though the index is not: the instruments of samples, and
    /// the first bars of instruments and segments.
    pub(crate) fn check_held_lists(&self) -> Result<()> {
        let refused = |fault| Error::invalid(self.path(), fault);
        for (first, instrument) in self.instrument_runs.iter() {
            let run = SampleIndex { time: &[], instrument: &[instrument], instruments: self.instrument_count() };
            check_samples(&run, first).map_err(refused)?;
        }
        let mut timeframes = 0..self.timeframes().len();
        timeframes.try_for_each(|k| check_bars(&self.index_without_arrays(k), self.instrument_count()).map_err(refused))
    }

    /// Checks `found`, rows of a list in the file, after [`SeriesFile::check_held_lists`]: times
    /// against those of the samples, windows against instruments and segments, and that bars close
    /// one after the other.
    pub(super) fn check_rows(&self, column: SeriesColumn, rows: Range<usize>, found: &[i64]) -> Result<()> {
        let checked = match column {
            SeriesColumn::SampleTime => Ok(()),
            SeriesColumn::ReachTime => check_reach(found, &self.piece_of(SeriesColumn::SampleTime, &rows)?, rows.start),
            SeriesColumn::LabelEndTime => {
                check_label_end(found, &self.piece_of(SeriesColumn::SampleTime, &rows)?, rows.start)
            }
            SeriesColumn::SampleEnd(k) => {
                let index =
                    TimeframeIndex { sample_end: found, first_sample: rows.start, ..self.index_without_arrays(k) };
                rows.clone().try_for_each(|sample| {
                    check_window(&index, sample - rows.start, &self.bars_of_instrument(k, sample)).map(drop)
                })
            }
            SeriesColumn::CloseTime(k) => check_given_close_times(&TimeframeIndex {
                close_time: found,
                first_bar: rows.start,
                ..self.index_without_arrays(k)
            }),
        };
        checked.map_err(|fault| Error::invalid(self.path(), fault))
    }

    /// Bars of the instrument of a sample in a timeframe.
    fn bars_of_instrument(&self, k: usize, sample: usize) -> Range<usize> {
        let starts = self.timeframes()[k].instrument_starts();
        match self.instrument_of(sample).filter(|instrument| instrument + 1 < starts.len()) {
            Some(instrument) => starts[instrument] as usize..starts[instrument + 1] as usize,
            None => 0..self.bars(k),
        }
    }

    /// Checks the times to which samples reach back and at which their labels end, of lists that
    /// stay in the file: not every use of a series reads all of them. `each` hears how many rows a
    /// part had.
    ///
    /// # Errors
    /// As [`SeriesFile::check_in_pieces`].
    pub fn check_span_lists<E: From<Error>>(&self, mut each: impl FnMut(usize) -> Result<(), E>) -> Result<(), E> {
        let mut columns = self.span_columns();
        columns.try_for_each(|column| self.scan_column(column, 0..self.shape().samples, |_, part| each(part.len())))
    }

    fn span_columns(&self) -> impl Iterator<Item = SeriesColumn> + '_ {
        [SeriesColumn::ReachTime, SeriesColumn::LabelEndTime].into_iter().filter(move |column| self.has_column(*column))
    }

    /// Rows that [`SeriesFile::check_in_pieces`] goes through: each sample once, once more in each
    /// list of times between which it reads bars, and in each timeframe, where each bar comes too.
    pub fn rows_to_check(&self) -> usize {
        let (samples, timeframes) = (self.shape().samples, 0..self.timeframes().len());
        let lists = 1 + self.span_columns().count();
        lists * samples + timeframes.map(|k| self.bars(k) + samples).sum::<usize>()
    }

    /// Checks every rule that [`SeriesFile::load_index`] checks, on an index that stays in the
    /// file. `each` hears how many [rows](SeriesFile::rows_to_check) are done.
    ///
    /// # Errors
    /// [`Error::Invalid`] names the first object that breaks a rule; those of reading; whatever
    /// `each` returns.
    pub fn check_in_pieces<E: From<Error>>(&self, mut each: impl FnMut(usize) -> Result<(), E>) -> Result<(), E> {
        let refused = |fault| Error::invalid(self.path(), fault);
        let mut done = 0;
        let mut advance = |rows: usize| {
            done += rows;
            each(done)
        };
        self.check_span_lists(&mut advance)?;
        for samples in self.sample_pieces() {
            let instrument = self.read_instruments(&samples)?;
            let index = SampleIndex { time: &[], instrument: &instrument, instruments: self.instrument_count() };
            check_samples(&index, samples.start).map_err(refused)?;
            advance(samples.len())?;
        }
        for k in 0..self.timeframes().len() {
            let index = self.index_without_arrays(k);
            instrument_spans(&index, self.instrument_count()).map_err(refused)?;
            for first in (0..self.bars(k)).step_by(PIECE) {
                let end = self.bars(k).min(first + PIECE);
                self.check_bars_of_piece(k, first..end)?;
                advance(end - first)?;
            }
            check_bars(&index, self.instrument_count()).map_err(refused)?;
            for samples in self.sample_pieces() {
                let time = self.piece_of(SeriesColumn::SampleTime, &samples)?;
                let (instrument, rows) = (self.read_instruments(&samples)?, samples.len());
                self.check_piece(k, &Piece { samples, time, instrument })?;
                advance(rows)?;
            }
        }
        Ok(())
    }

    fn check_bars_of_piece(&self, k: usize, piece: Range<usize>) -> Result<()> {
        // Each piece begins with the last bar of the one before it.
        let rows = piece.start.saturating_sub(1)..piece.end;
        let close_time = self.piece_of(SeriesColumn::CloseTime(k), &rows)?;
        let index = TimeframeIndex { close_time: &close_time, first_bar: rows.start, ..self.index_without_arrays(k) };
        check_given_close_times(&index).map_err(|fault| Error::invalid(self.path(), fault))
    }

    fn check_piece(&self, k: usize, piece: &Piece) -> Result<()> {
        let sample_end = self.piece_of(SeriesColumn::SampleEnd(k), &piece.samples)?;
        let ranges = BarRanges::around(&sample_end, self.bars(k));
        if ranges.len() > BARS_MAX && piece.samples.len() > 1 {
            let middle = piece.samples.len() / 2;
            let half = |places: Range<usize>| Piece {
                samples: piece.samples.start + places.start..piece.samples.start + places.end,
                time: piece.time[places.clone()].to_vec(),
                instrument: piece.instrument.get(places).unwrap_or_default().to_vec(),
            };
            self.check_piece(k, &half(0..middle))?;
            return self.check_piece(k, &half(middle..piece.samples.len()));
        }
        let times = self.read_bar_times(k, ranges)?;
        let index = TimeframeIndex {
            sample_end: &sample_end,
            first_sample: piece.samples.start,
            ..self.index_without_arrays(k)
        };
        let samples =
            SampleIndex { time: &piece.time, instrument: &piece.instrument, instruments: self.instrument_count() };
        check_piece_with(&index, &samples, &|bar| times.at(bar)).map_err(|fault| Error::invalid(self.path(), fault))
    }

    fn index_without_arrays(&self, k: usize) -> TimeframeIndex<'_> {
        let timeframe = &self.timeframes()[k];
        TimeframeIndex {
            name: timeframe.name(),
            steps: timeframe.steps(),
            bars: self.bars(k),
            close_time: &[],
            first_bar: 0,
            sample_end: &[],
            first_sample: 0,
            instrument_start: timeframe.instrument_starts(),
            segment_start: timeframe.segment_starts(),
        }
    }

    fn sample_pieces(&self) -> impl Iterator<Item = Range<usize>> + use<> {
        let samples = self.shape().samples;
        (0..samples).step_by(PIECE).map(move |first| first..samples.min(first + PIECE))
    }

    fn piece_of(&self, column: SeriesColumn, rows: &Range<usize>) -> Result<Vec<i64>> {
        let mut piece = vec![0; rows.len()];
        self.read_stored_column(column, rows.clone(), &mut piece)?;
        Ok(piece)
    }

    /// Instruments of samples; none where the file names none.
    fn read_instruments(&self, samples: &Range<usize>) -> Result<Vec<i32>> {
        let Some(table) = &self.samples.instrument else { return Ok(Vec::new()) };
        let mut instruments = vec![0; samples.len()];
        table.read_rows(samples.clone(), &mut instruments)?;
        Ok(instruments)
    }
}
