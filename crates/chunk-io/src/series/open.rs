#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::path::Path;

use megabatch_gpu_core::{Buffer, Scope};

use super::check::{SampleIndex, check_samples, check_timeframe};
use super::timeframe::{ExpectedCounts, SeriesTimeframeFile};
use super::{Instruments, Series};
use crate::error::{Error, Result};
use crate::file::InputFile;
use crate::file::{ElementKind, Expect, NumericDataset};
use crate::shape::Shape;
use crate::spans::SpanTimes;
use crate::text::AttributeValue;
use crate::timeframe::timeframe_order;

/// The version of the series layout that this crate writes and reads.
pub(crate) const FORMAT_VERSION: i64 = 1;

const TARGETS: Expect =
    Expect { what: "numbers [N, K]", kinds: &[ElementKind::Float, ElementKind::Integer], ranks: 2..=2 };
pub(super) const TIMES: Expect =
    Expect { what: "integers [bars] or [N], ns since 1970 UTC", kinds: &[ElementKind::Integer], ranks: 1..=1 };
pub(super) const INDICES: Expect = Expect { what: "a list of integers", kinds: &[ElementKind::Integer], ranks: 1..=1 };

/// A series file, open and checked: every index and time in it obeys the rules of
/// docs/reference/formats.md.
///
/// Index arrays are in memory, booked on the scope given to [`SeriesFile::open`]; values and
/// targets are read on demand.
#[derive(Debug)]
pub struct SeriesFile {
    file: InputFile,
    shape: Shape,
    timeframes: Vec<SeriesTimeframeFile>,
    instruments: Vec<String>,
    sample_time: Buffer<i64>,
    span_times: SpanTimes,
    sample_instrument: Option<Buffer<i32>>,
    targets: NumericDataset,
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
        check_version(&file)?;
        let times = file.table("/samples/time", &TIMES)?;
        times.require_elements()?;
        let targets = file.table("/targets", &TARGETS)?;
        targets.require_rows(times.rows(), "/samples/time")?;
        targets.require_elements()?;
        let mut series = SeriesFile {
            shape: Shape { samples: times.rows(), timeframes: Vec::new(), horizons: targets.row_len() },
            timeframes: Vec::new(),
            instruments: Vec::new(),
            sample_time: times.read_buffer(scope)?,
            span_times: SpanTimes::default(),
            sample_instrument: None,
            targets,
            file,
        };
        series.span_times = SpanTimes::open(&series.file, "/samples/time", series.sample_times(), scope)?;
        series.open_instruments(scope)?;
        series.open_timeframes(scope)?;
        Ok(series)
    }

    fn open_instruments(&mut self, scope: &Scope) -> Result<()> {
        if !self.file.has_dataset("/instruments") {
            return Ok(());
        }
        self.instruments = self.file.texts("/instruments", None)?;
        let instruments = self.file.table("/samples/instrument", &INDICES)?;
        instruments.require_rows(self.shape.samples, "/samples/time")?;
        self.sample_instrument = Some(instruments.read_buffer(scope)?);
        check_samples(&self.sample_index()).map_err(|fault| Error::invalid(self.path(), fault))
    }

    fn open_timeframes(&mut self, scope: &Scope) -> Result<()> {
        let expected = "a group with one group a timeframe";
        if !self.file.has_group("/series") {
            return Err(self.file.missing("/series", expected));
        }
        let mut names = self.file.groups_in("/series")?;
        if names.is_empty() {
            return Err(self.file.broken("/series", expected, "an empty group"));
        }
        names.sort_by(|a, b| timeframe_order(a, b));
        let counts = ExpectedCounts { samples: self.shape.samples, instruments: self.sample_index().instruments };
        for name in names {
            let timeframe = SeriesTimeframeFile::open(&self.file, name, &counts, scope)?;
            check_timeframe(&timeframe.index(), &self.sample_index())
                .map_err(|fault| Error::invalid(self.path(), fault))?;
            self.shape.timeframes.push(timeframe.shape());
            self.timeframes.push(timeframe);
        }
        Ok(())
    }

    fn sample_index(&self) -> SampleIndex<'_> {
        SampleIndex {
            time: self.sample_time.as_slice(),
            instrument: self.sample_instruments().unwrap_or_default(),
            instruments: (!self.instruments.is_empty()).then_some(self.instruments.len()),
        }
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

    /// Names of the instruments, `[I]`; empty where the file names none.
    pub fn instruments(&self) -> &[String] {
        &self.instruments
    }

    /// Time of each sample, `[N]`, ns since 1970 UTC.
    pub fn sample_times(&self) -> &[i64] {
        self.sample_time.as_slice()
    }

    /// Times between which each sample and its targets read bars.
    pub fn span_times(&self) -> &SpanTimes {
        &self.span_times
    }

    /// Instrument of each sample, `[N]`, an index into [`SeriesFile::instruments`].
    pub fn sample_instruments(&self) -> Option<&[i32]> {
        self.sample_instrument.as_ref().map(Buffer::as_slice)
    }

    /// A root attribute.
    ///
    /// # Errors
    /// [`Error::Hdf5`] if the attribute is there and cannot be read.
    pub fn attribute(&self, name: &str) -> Result<Option<AttributeValue>> {
        self.file.attribute("/", name)
    }

    /// The scaled bars of a timeframe, `[bars, F]`, in memory booked on `scope`.
    ///
    /// # Errors
    /// [`Error::Hdf5`] or [`Error::Memory`].
    pub fn read_values(&self, timeframe: usize, scope: &Scope) -> Result<Buffer<f32>> {
        self.timeframes[timeframe].values_table().read_f32_buffer(scope)
    }

    /// The targets, `[N, K]`, in memory booked on `scope`.
    ///
    /// # Errors
    /// [`Error::Hdf5`] or [`Error::Memory`].
    pub fn read_targets(&self, scope: &Scope) -> Result<Buffer<f32>> {
        self.targets.read_f32_buffer(scope)
    }

    /// Everything that the file holds.
    ///
    /// # Errors
    /// [`Error::Hdf5`] if something cannot be read.
    pub fn read(&self) -> Result<Series> {
        let instruments = self.sample_instruments().map(|sample_instrument| Instruments {
            names: self.instruments.clone(),
            sample_instrument: sample_instrument.to_vec(),
        });
        Ok(Series {
            timeframes: self.timeframes.iter().map(SeriesTimeframeFile::read).collect::<Result<_>>()?,
            sample_time: self.sample_times().to_vec(),
            sample_reach_time: self.span_times.reach_times().unwrap_or_default().to_vec(),
            sample_label_end_time: self.span_times.label_end_times().unwrap_or_default().to_vec(),
            targets: self.targets.read_f32_vec()?,
            instruments,
            attributes: self.read_attributes()?,
        })
    }

    fn read_attributes(&self) -> Result<BTreeMap<String, AttributeValue>> {
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

fn check_version(file: &InputFile) -> Result<()> {
    match file.attribute("/", "format_version")? {
        Some(AttributeValue::Int(FORMAT_VERSION)) => Ok(()),
        found => {
            let found = found.map_or("no such attribute".to_owned(), |found| found.to_string());
            Err(file.broken("/@format_version", &format!("the integer {FORMAT_VERSION}"), &found))
        }
    }
}
