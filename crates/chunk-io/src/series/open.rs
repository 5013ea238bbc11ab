use std::collections::BTreeMap;
use std::path::Path;
use std::sync::OnceLock;

use megabatch_gpu_core::{Buffer, Scope};

use super::check::{SampleIndex, check_samples, check_timeframe};
use super::instrument_runs::InstrumentRuns;
use super::mark::{Hashes, Mark, MarkedSeries};
use super::timeframe::{ExpectedCounts, SeriesTimeframeFile};
use super::{FORMAT_VERSION, INDICES, TIMES};
use crate::error::{Error, Result};
use crate::file::InputFile;
use crate::numeric_dataset::{AllowedNumbers, ElementKind, Expect, NumericDataset};
use crate::shape::Shape;
use crate::spans::{LABEL_END, REACH, SpanTimes, horizon_bars};
use crate::text::AttributeValue;
use crate::timeframe::timeframe_order;
use crate::weights::{read_weights, weights_table};

const TARGETS: Expect =
    Expect { what: "numbers [N, K]", kinds: &[ElementKind::Float, ElementKind::Integer], ranks: 2..=2 };
/// A series file, open and checked: every index and time in it obeys the rules of
/// docs/reference/formats.md.
///
/// Values and targets are read on demand. Index arrays are in memory, booked on the scope given to
/// [`SeriesFile::open`], or stay in the file, from where [`SeriesFile::read_column`] reads them.
#[derive(Debug)]
pub struct SeriesFile {
    file: InputFile,
    shape: Shape,
    pub(super) timeframes: Vec<SeriesTimeframeFile>,
    instruments: Vec<String>,
    pub(super) samples: SampleTables,
    pub(super) instrument_runs: InstrumentRuns,
    /// Lists of samples in memory, once they were asked for.
    pub(super) index: OnceLock<SampleArrays>,
    targets: NumericDataset,
    /// Weights of samples, if the file has any.
    weights: Option<Buffer<f32>>,
    /// Hashes in the mark of verification, if the file has one.
    mark: Option<Hashes>,
    /// Memory of the index.
    scope: Scope,
}

/// Lists of samples in the file.
#[derive(Debug)]
pub(super) struct SampleTables {
    pub(super) time: NumericDataset,
    pub(super) reach_time: Option<NumericDataset>,
    pub(super) label_end_time: Option<NumericDataset>,
    pub(super) weight: Option<NumericDataset>,
    pub(super) instrument: Option<NumericDataset>,
}

/// Lists of samples in memory.
#[derive(Debug)]
pub(super) struct SampleArrays {
    pub(super) sample_time: Buffer<i64>,
    pub(super) span_times: SpanTimes,
    sample_instrument: Option<Buffer<i32>>,
}

impl SeriesFile {
    /// Opens and checks the file at `path`.
    ///
    /// # Errors
    /// [`Error::Invalid`] names the object, what was expected of it and what was found; the other
    /// variants are about the file as a whole or about memory.
    pub fn open(path: impl AsRef<Path>, scope: &Scope) -> Result<Self> {
        Self::from_file(InputFile::open(path.as_ref())?, scope)
    }

    pub(crate) fn from_file(file: InputFile, scope: &Scope) -> Result<Self> {
        let series = Self::unchecked(file, scope)?;
        series.load_index()?;
        Ok(series)
    }

    /// The series of `file`, whose index stays there. No rule is held against its lists yet: see
    /// [`SeriesFile::check_in_pieces`] and [`SeriesFile::check_held_lists`].
    pub(crate) fn with_index_in_file(file: InputFile, scope: &Scope) -> Result<Self> {
        Self::unchecked(file, scope)
    }

    /// Reads the index into memory, booked on the scope of the file, and checks it. Nothing where
    /// it is there.
    ///
    /// # Errors
    /// As [`SeriesFile::open`].
    pub fn load_index(&self) -> Result<()> {
        if self.index.get().is_some() {
            return Ok(());
        }
        let (scope, tables) = (&self.scope, &self.samples);
        let sample_time: Buffer<i64> = tables.time.read_buffer(scope)?;
        let read = |table: &Option<NumericDataset>| table.as_ref().map(|table| table.read_buffer(scope)).transpose();
        let (reach_time, label_end_time) = (read(&tables.reach_time)?, read(&tables.label_end_time)?);
        let span_times = SpanTimes::new(reach_time, label_end_time, sample_time.as_slice(), self.path())?;
        let sample_instrument: Option<Buffer<i32>> =
            tables.instrument.as_ref().map(|table| table.read_buffer(scope)).transpose()?;
        let samples = SampleIndex {
            time: sample_time.as_slice(),
            instrument: sample_instrument.as_ref().map(Buffer::as_slice).unwrap_or_default(),
            instruments: self.instrument_count(),
        };
        let refused = |fault| Error::invalid(self.path(), fault);
        check_samples(&samples, 0).map_err(refused)?;
        for timeframe in &self.timeframes {
            let arrays = timeframe.read_arrays(scope)?;
            check_timeframe(&timeframe.index_with(&arrays), &samples).map_err(refused)?;
            timeframe.arrays.get_or_init(|| arrays);
        }
        self.index.get_or_init(|| SampleArrays { sample_time, span_times, sample_instrument });
        Ok(())
    }

    /// True if the index arrays are in memory.
    pub fn has_index(&self) -> bool {
        self.index.get().is_some()
    }

    fn unchecked(file: InputFile, scope: &Scope) -> Result<Self> {
        check_version(&file)?;
        let times = file.table("/samples/time", &TIMES)?;
        times.require_elements()?;
        times.require_written()?;
        let mut targets = file.table("/targets", &TARGETS)?;
        targets.allow(AllowedNumbers::FiniteOrNan);
        targets.require_rows(times.rows(), "/samples/time")?;
        targets.require_elements()?;
        let mut series = SeriesFile {
            shape: Shape { samples: times.rows(), timeframes: Vec::new(), horizons: targets.row_len() },
            timeframes: Vec::new(),
            instruments: Vec::new(),
            samples: SampleTables {
                reach_time: span_table(&file, REACH, times.rows())?,
                label_end_time: span_table(&file, LABEL_END, times.rows())?,
                weight: weights_table(&file, times.rows(), "/samples/time")?,
                time: times,
                instrument: None,
            },
            instrument_runs: InstrumentRuns::default(),
            index: OnceLock::new(),
            targets,
            weights: None,
            file,
            mark: None,
            scope: scope.clone(),
        };
        series.open_instruments()?;
        series.open_timeframes()?;
        series.read_mark()?;
        series.instrument_runs = series.read_instrument_runs()?;
        let table = series.samples.weight.as_ref();
        series.weights = table.map(|table| read_weights(table, &series.file, scope)).transpose()?;
        Ok(series)
    }

    /// Takes the checksums of the mark of verification, if the file has one.
    fn read_mark(&mut self) -> Result<()> {
        let mark = Mark::read(&self.file, &self.marked(), &self.scope.child("checksums"))?;
        let Some(mark) = mark else { return Ok(()) };
        self.timeframes.iter_mut().for_each(|timeframe| timeframe.verify_by(&mark));
        let SampleTables { time, reach_time, label_end_time, weight, instrument } = &mut self.samples;
        let lists = [reach_time, label_end_time, weight, instrument].into_iter().flatten();
        for table in lists.chain([time, &mut self.targets]) {
            table.set_checksums(mark.checksums_of(&table.object));
        }
        self.mark = Some(mark.hashes);
        Ok(())
    }

    pub(super) fn marked(&self) -> MarkedSeries<'_> {
        MarkedSeries {
            samples: self.shape.samples,
            horizons: self.shape.horizons,
            timeframes: self.timeframes.iter().map(SeriesTimeframeFile::marked).collect(),
            has_reach: self.samples.reach_time.is_some(),
            has_label_end: self.samples.label_end_time.is_some(),
            has_weights: self.samples.weight.is_some(),
            has_instruments: self.samples.instrument.is_some(),
        }
    }

    /// Fingerprint of the samples' numbers in the mark of verification: the rules of the layout
    /// were checked when the file was written, and rows are compared with checksums when they are
    /// read. `None` for a file without a mark.
    pub fn fingerprint(&self) -> Option<&str> {
        self.mark.as_ref().map(|mark| mark.fingerprint.as_str())
    }

    pub(crate) fn mark(&self) -> Option<&Hashes> {
        self.mark.as_ref()
    }

    fn open_instruments(&mut self) -> Result<()> {
        if !self.file.has_dataset("/instruments") {
            return Ok(());
        }
        self.instruments = self.file.texts("/instruments", None)?;
        if self.instruments.is_empty() {
            return Err(self.file.broken("/instruments", "the names of one instrument or more", "an empty list"));
        }
        let instruments = self.file.table("/samples/instrument", &INDICES)?;
        instruments.require_rows(self.shape.samples, "/samples/time")?;
        self.samples.instrument = Some(instruments);
        Ok(())
    }

    fn open_timeframes(&mut self) -> Result<()> {
        let expected = "a group with one group a timeframe";
        if !self.file.has_group("/series") {
            return Err(self.file.missing("/series", expected));
        }
        let mut names = self.file.groups_in("/series")?;
        if names.is_empty() {
            return Err(self.file.broken("/series", expected, "an empty group"));
        }
        names.sort_by(|a, b| timeframe_order(a, b));
        let counts = ExpectedCounts { samples: self.shape.samples, instruments: self.instrument_count() };
        for name in names {
            let timeframe = SeriesTimeframeFile::open(&self.file, name, &counts)?;
            self.shape.timeframes.push(timeframe.shape());
            self.timeframes.push(timeframe);
        }
        Ok(())
    }

    /// Number of instruments, where the file names them.
    pub(super) fn instrument_count(&self) -> Option<usize> {
        (!self.instruments.is_empty()).then_some(self.instruments.len())
    }

    fn arrays(&self) -> &SampleArrays {
        self.index.get().expect("SeriesFile::load_index was called")
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.file.path
    }

    /// Dimensions of the samples.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// The timeframes, shortest first.
    pub fn timeframes(&self) -> &[SeriesTimeframeFile] {
        &self.timeframes
    }

    /// Distance of a sample from the next where times only order samples and bars. All bars that a
    /// sample is the first to show close within it.
    pub fn ordinals_apart(&self) -> i64 {
        1 + self.timeframes.iter().map(SeriesTimeframeFile::steps).max().unwrap_or(0) as i64
    }

    /// Names of the instruments, `[I]`; empty where the file names none.
    pub fn instruments(&self) -> &[String] {
        &self.instruments
    }

    /// Time of each sample, `[N]`, ns since 1970 UTC.
    ///
    /// # Panics
    /// If the index stays in the file, before [`SeriesFile::load_index`].
    pub fn sample_times(&self) -> &[i64] {
        self.arrays().sample_time.as_slice()
    }

    /// Times between which each sample and its targets read bars.
    ///
    /// # Panics
    /// As [`SeriesFile::sample_times`].
    pub fn span_times(&self) -> &SpanTimes {
        &self.arrays().span_times
    }

    /// Instrument of each sample, `[N]`, an index into [`SeriesFile::instruments`].
    ///
    /// # Panics
    /// As [`SeriesFile::sample_times`].
    pub fn sample_instruments(&self) -> Option<&[i32]> {
        self.arrays().sample_instrument.as_ref().map(Buffer::as_slice)
    }

    /// Weight of each sample in the loss of training, `[N]`; `None` where all count alike.
    pub fn sample_weights(&self) -> Option<&[f32]> {
        self.weights.as_ref().map(Buffer::as_slice)
    }

    /// Base bars from a sample to the end of its farthest target, if the file has the attribute
    /// `horizon_bars`.
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) for an attribute that is no whole number from 0
    /// on.
    pub fn horizon_bars(&self) -> Result<Option<usize>> {
        horizon_bars(&self.file)
    }

    /// A root attribute.
    ///
    /// # Errors
    /// [`Error::Hdf5`] if the attribute is there and cannot be read.
    pub fn attribute(&self, name: &str) -> Result<Option<AttributeValue>> {
        self.file.attribute("/", name)
    }

    /// Root attributes besides `layout` and `format_version`.
    ///
    /// # Errors
    /// [`Error::Hdf5`] if one cannot be read.
    pub fn attributes(&self) -> Result<BTreeMap<String, AttributeValue>> {
        let names = self.file.root.attr_names().map_err(self.file.failed("/", "list the attributes"))?;
        let mut attributes = BTreeMap::new();
        for name in names.into_iter().filter(|name| name != "layout" && name != "format_version") {
            if let Some(value) = self.attribute(&name)? {
                attributes.insert(name, value);
            }
        }
        Ok(attributes)
    }

    /// Values by timeframe, then the targets.
    pub(crate) fn tables(&self) -> impl Iterator<Item = &NumericDataset> {
        self.timeframes.iter().map(SeriesTimeframeFile::values_table).chain([&self.targets])
    }

    pub(crate) fn targets_table(&self) -> &NumericDataset {
        &self.targets
    }
}

/// The list `object` of times of samples, if the file has it.
fn span_table(file: &InputFile, object: &str, samples: usize) -> Result<Option<NumericDataset>> {
    if !file.has_dataset(object) {
        return Ok(None);
    }
    let table = file.table(object, &crate::spans::TIMES)?;
    table.require_rows(samples, "/samples/time")?;
    Ok(Some(table))
}

fn check_version(file: &InputFile) -> Result<()> {
    match file.attribute("/", "format_version")? {
        Some(AttributeValue::Int(FORMAT_VERSION)) => Ok(()),
        found => {
            let found = found.map_or("no such attribute".to_owned(), |found| found.to_string());
            Err(file.broken("/@format_version", &format!("the integer {FORMAT_VERSION}"), &found))
        }
    }
}
