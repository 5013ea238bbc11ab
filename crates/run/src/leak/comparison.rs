//! Comparison of a series file with the series made of its bars again, a piece at a time.

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use megabatch_bars::{FUNCTION_PREFIX, SeriesPiece};
use megabatch_chunk_io::{
    AttributeValue, Scaler, SeriesColumn, SeriesDescription, SeriesFile, SeriesSource, SeriesTimeframeFile,
};
use rayon::prelude::*;

use crate::error::{Error, Result};

/// Objects of a series file, in the order in which differences are reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
enum Object {
    SampleTime,
    ReachTime,
    LabelEndTime,
    Instrument,
    Weight,
    Targets,
    Timeframes,
    /// Then, by timeframe, its values, and its index with features and scaler.
    FirstTimeframe,
}

/// Columns whose values are known when a series is made again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KnownColumns {
    All,
    /// All but the features and targets of functions, which are not at hand.
    WithoutFunctions,
}

impl KnownColumns {
    /// True for each feature of these names whose values are known; `None` where all are.
    pub(super) fn mask(self, names: &[String]) -> Option<Vec<bool>> {
        let is_known = |name: &String| !name.starts_with(FUNCTION_PREFIX);
        (self == KnownColumns::WithoutFunctions).then(|| names.iter().map(is_known).collect())
    }
}

/// Error for an object of the file at `path` that is another one than its bars give.
pub(super) fn not_what_its_bars_give(path: &Path, object: &str) -> Error {
    Error::data(format!(
        "{}: {object} is not what its bars give; the file was changed, or made by another version: ingest anew",
        path.display()
    ))
}

/// True for rows of the same bits in the columns that are known; in all without a mask.
pub(super) fn is_same_bits(found: &[f32], expected: &[f32], is_known: Option<&[bool]>) -> bool {
    let mut pairs = found.iter().zip(expected).map(|(a, b)| a.to_bits() == b.to_bits());
    match is_known {
        None => pairs.all(|is_same| is_same),
        Some(is_known) => pairs.zip(is_known.iter().cycle()).all(|(is_same, is_known)| is_same || !is_known),
    }
}

/// Comparison of the series in `source` with pieces that come in any order and from any thread.
pub(super) struct Comparison<'a> {
    source: &'a SeriesSource,
    /// Rank of the first object that differs so far. Later ones do not matter.
    first_different: AtomicUsize,
    known: KnownColumns,
    /// True if the targets are known.
    has_targets: bool,
}

/// Reads rows of an object.
type ReadRows<'a> = &'a dyn Fn(Range<usize>, &mut [f32]) -> megabatch_chunk_io::Result<()>;

impl<'a> Comparison<'a> {
    /// Compares everything in `source` except bars and samples with `expected`.
    pub(super) fn begin(source: &'a SeriesSource, expected: &SeriesDescription, known: KnownColumns) -> Self {
        let file = source.file();
        let kind = expected.attributes.get("target_kind");
        let is_of_function = matches!(kind, Some(AttributeValue::Text(kind)) if kind.starts_with(FUNCTION_PREFIX));
        let has_targets = known == KnownColumns::All || !is_of_function;
        let comparison = Comparison { source, first_different: AtomicUsize::new(usize::MAX), known, has_targets };
        if file.shape().samples != expected.samples {
            comparison.differs(Object::SampleTime as usize);
        }
        if file.instruments() != expected.instruments.as_deref().unwrap_or_default() {
            comparison.differs(Object::Instrument as usize);
        }
        if file.sample_weights().is_some() != expected.has_weights {
            comparison.differs(Object::Weight as usize);
        }
        if file.shape().horizons != expected.horizons {
            comparison.differs(Object::Targets as usize);
        }
        if file.timeframes().len() != expected.timeframes.len() {
            comparison.differs(Object::Timeframes as usize);
        }
        for (k, (found, expected)) in file.timeframes().iter().zip(&expected.timeframes).enumerate() {
            if file.bars(k) != expected.bars || found.feature_names().len() != expected.feature_names.len() {
                comparison.differs(values_of(k));
            }
            let is_same = found.name() == expected.name
                && found.steps() == expected.steps
                && found.feature_names() == expected.feature_names
                && found.instrument_starts() == expected.instrument_start
                && found.segment_starts() == expected.segment_start
                && is_same_scaler(
                    found.scaler(),
                    expected.scaler.as_ref(),
                    known.mask(&expected.feature_names).as_deref(),
                );
            if !is_same {
                comparison.differs(index_of(k));
            }
        }
        comparison
    }

    fn file(&self) -> &SeriesFile {
        self.source.file()
    }

    fn differs(&self, rank: usize) {
        self.first_different.fetch_min(rank, Relaxed);
    }

    /// True if a difference in the object of this rank would be named.
    fn decides(&self, rank: usize) -> bool {
        rank < self.first_different.load(Relaxed)
    }

    /// Compares the rows and samples of `piece`.
    ///
    /// # Errors
    /// An object of the file that cannot be read.
    pub(super) fn compare(&self, piece: &SeriesPiece) -> Result<()> {
        let first = piece.first_sample;
        self.compare_integers(Object::SampleTime as usize, SeriesColumn::SampleTime, first, &piece.sample_time)?;
        self.compare_reach(first, &piece.receptive_start)?;
        // A file of before does not tell it.
        if self.has_targets && self.file().has_column(SeriesColumn::LabelEndTime) {
            let (rank, column) = (Object::LabelEndTime as usize, SeriesColumn::LabelEndTime);
            self.compare_integers(rank, column, first, &piece.label_end_time)?;
        }
        self.compare_weights(first, &piece.weight);
        self.compare_instruments(first, &piece.sample_instrument);
        let timeframes = piece.timeframes.len();
        // The numbers are nearly all bytes of the file.
        (0..timeframes + 1).into_par_iter().with_max_len(1).try_for_each(|k| match piece.timeframes.get(k) {
            None if !self.has_targets => Ok(()),
            None => {
                let read = |rows: Range<usize>, out: &mut [f32]| self.source.read_targets(&[rows], out).map(drop);
                self.compare_numbers(Object::Targets as usize, &read, first, &piece.targets)
            }
            Some(rows) => {
                let read = |rows: Range<usize>, out: &mut [f32]| self.source.read_bars(k, &[rows], out).map(drop);
                self.compare_numbers(values_of(k), &read, rows.first_row, &rows.values)?;
                self.compare_integers(index_of(k), SeriesColumn::CloseTime(k), rows.first_row, &rows.close_time)?;
                self.compare_integers(index_of(k), SeriesColumn::SampleEnd(k), first, &rows.end)
            }
        })
    }

    fn compare_integers(&self, rank: usize, column: SeriesColumn, first: usize, expected: &[i64]) -> Result<()> {
        if !self.decides(rank) || expected.is_empty() {
            return Ok(());
        }
        if !self.file().has_column(column) {
            self.differs(rank);
            return Ok(());
        }
        let mut found = vec![0; expected.len()];
        self.file().read_column(column, first..first + expected.len(), &mut found)?;
        if found != expected {
            self.differs(rank);
        }
        Ok(())
    }

    /// Compares how far samples look back: as far as the bars say, or further to those of other
    /// instruments that are not at hand.
    fn compare_reach(&self, first: usize, expected: &[i64]) -> Result<()> {
        let (rank, column) = (Object::ReachTime as usize, SeriesColumn::ReachTime);
        if self.known == KnownColumns::All || !self.file().has_column(column) || expected.is_empty() {
            return self.compare_integers(rank, column, first, expected);
        }
        let mut found = vec![0; expected.len()];
        self.file().read_column(column, first..first + expected.len(), &mut found)?;
        if found.iter().zip(expected).any(|(found, expected)| found > expected) {
            self.differs(rank);
        }
        Ok(())
    }

    fn compare_instruments(&self, first: usize, expected: &[i32]) {
        if self.file().instruments().is_empty() || !self.decides(Object::Instrument as usize) {
            return;
        }
        let is_same =
            |(n, &instrument): (usize, &i32)| self.file().instrument_of(n) == usize::try_from(instrument).ok();
        if !(first..).zip(expected).all(is_same) {
            self.differs(Object::Instrument as usize);
        }
    }

    fn compare_weights(&self, first: usize, expected: &[f32]) {
        let Some(weights) = self.file().sample_weights().filter(|_| self.decides(Object::Weight as usize)) else {
            return;
        };
        if !is_same_bits(&weights[first..], expected, None) {
            self.differs(Object::Weight as usize);
        }
    }

    /// Compares rows from place `first` on that `read` reads, bit for bit.
    fn compare_numbers(&self, rank: usize, read: ReadRows<'_>, first: usize, expected: &[f32]) -> Result<()> {
        if !self.decides(rank) || expected.is_empty() {
            return Ok(());
        }
        let width = self.width(rank);
        let is_known = match rank.checked_sub(Object::FirstTimeframe as usize) {
            Some(place) => self.known.mask(self.file().timeframes()[place / 2].feature_names()),
            None => None,
        };
        let mut found = vec![0.0; ROWS.min(expected.len() / width) * width];
        for (place, expected) in expected.chunks(found.len()).enumerate() {
            let first = first + place * ROWS;
            let found = &mut found[..expected.len()];
            read(first..first + expected.len() / width, found)?;
            if !is_same_bits(found, expected, is_known.as_deref()) {
                self.differs(rank);
                return Ok(());
            }
        }
        Ok(())
    }

    /// Numbers of a row of the object.
    fn width(&self, rank: usize) -> usize {
        match rank.checked_sub(Object::FirstTimeframe as usize) {
            Some(place) => self.file().timeframes()[place / 2].feature_names().len(),
            None => self.file().shape().horizons,
        }
    }

    /// The first object that is different, if any.
    pub(super) fn difference(&self) -> Option<String> {
        let place = |rank: usize, timeframe: &SeriesTimeframeFile| match rank % 2 {
            0 => format!("/series/{}/values", timeframe.name()),
            _ => format!("the index, the features or the scaler of {}", timeframe.name()),
        };
        let named = [
            (Object::SampleTime, "/samples/time"),
            (Object::ReachTime, "/samples/reach_time"),
            (Object::LabelEndTime, "/samples/label_end_time"),
            (Object::Instrument, "/samples/instrument"),
            (Object::Weight, "/samples/weight"),
            (Object::Targets, "/targets"),
            (Object::Timeframes, "/series"),
        ];
        let rank = self.first_different.load(Relaxed);
        if rank == usize::MAX {
            return None;
        }
        Some(match rank.checked_sub(Object::FirstTimeframe as usize) {
            Some(rank) => place(rank, &self.file().timeframes()[rank / 2]),
            None => named.into_iter().find(|&(object, _)| object as usize == rank)?.1.to_owned(),
        })
    }
}

/// True for scalers that are equal in the features that are known.
fn is_same_scaler(found: Option<&Scaler>, expected: Option<&Scaler>, is_known: Option<&[bool]>) -> bool {
    let (Some(found), Some(expected), Some(is_known)) = (found, expected, is_known) else { return found == expected };
    let is_same = |found: &[f64], expected: &[f64]| {
        let mut pairs = found.iter().zip(expected).zip(is_known.iter().cycle());
        found.len() == expected.len() && pairs.all(|((a, b), is_known)| !is_known || a == b)
    };
    found.kind == expected.kind
        && found.fit_end_time == expected.fit_end_time
        && is_same(&found.center, &expected.center)
        && is_same(&found.scale, &expected.scale)
}

/// Rows that are compared at once.
const ROWS: usize = 4096;

fn values_of(timeframe: usize) -> usize {
    Object::FirstTimeframe as usize + 2 * timeframe
}

fn index_of(timeframe: usize) -> usize {
    values_of(timeframe) + 1
}

/// The first root attribute of `file` that differs from that of `expected`. The provenance is left
/// out.
///
/// # Errors
/// An attribute that cannot be read.
pub(super) fn different_attribute(file: &SeriesFile, expected: &SeriesDescription) -> Result<Option<String>> {
    let found = file.attributes()?;
    let names: BTreeSet<&String> = found.keys().chain(expected.attributes.keys()).collect();
    let mut names = names.into_iter().filter(|name| *name != "source");
    Ok(names.find(|&name| found.get(name) != expected.attributes.get(name)).cloned())
}
