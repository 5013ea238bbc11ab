//! One reading interface over both layouts.

mod row_cache;
mod series;
mod series_stream;
pub(crate) mod stored;
mod windows;

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::AtomicBool;

use megabatch_gpu_core::Scope;
use serde::Serialize;

pub use series::{ResidentSeries, SeriesSource};
pub use series_stream::{CacheBounds, SuitedChunks};

use crate::cost::ReadCost;
use crate::error::{Error, Result};
use crate::file::InputFile;
use crate::read::{FileReadOptions, NonFinite, RowSelection, UNSTOPPED};
use crate::series::{SeriesColumn, SeriesFile};
use crate::shape::{SampleSlices, Shape};
use crate::spans::SpanTimes;
use crate::text::AttributeValue;
use crate::windows::WindowsFile;
pub use stored::{ReadBy, StoredDataset};
use windows::WindowsSource;

/// Samples whose targets are read at once in the search for a known one.
const TARGET_ROWS: usize = 4096;

/// Layout of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Layout {
    /// Bars once; a window is an index.
    Series,
    /// Every window whole.
    Windows,
}

impl std::fmt::Display for Layout {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Layout::Series => "series",
            Layout::Windows => "windows",
        })
    }
}

impl Layout {
    /// A file says `layout = "series"`; anything else is a windows file, which other programs write
    /// without attributes.
    pub(crate) fn recognise(file: &InputFile) -> Result<Self> {
        match file.attribute("/", "layout")? {
            Some(AttributeValue::Text(layout)) if layout == "series" => Ok(Layout::Series),
            Some(AttributeValue::Text(layout)) if layout == "windows" => Ok(Layout::Windows),
            None if file.has_group("/series") => {
                Err(file.broken("/@layout", "the text \"series\", as there is a group /series", "no such attribute"))
            }
            None => Ok(Layout::Windows),
            Some(other) => Err(file.broken("/@layout", "\"series\" or \"windows\"", &format!("`{other}`"))),
        }
    }
}

/// Options of a [`Source`]: reading and memory.
#[derive(Clone, Copy, Debug)]
pub struct SourceOptions {
    /// A windows file whose samples take at most this many bytes as f32 is read once and stays in
    /// memory; a larger one is read from disk at each request.
    pub resident_bytes_max: usize,
    /// Bytes of the cache through which the bars and targets of a series are read, whose index
    /// stays in the file too; `None` keeps all of it in memory.
    pub series_cache_bytes: Option<usize>,
    /// True if the rules of the layout were checked on this very file before, so that a series
    /// whose index stays in the file need not be read for it.
    pub is_checked: bool,
    /// Threads that read and decode; 0 for as many as the CPU runs at once. What is read does
    /// not depend on it.
    pub threads: usize,
    /// Treatment of NaN and infinities.
    pub non_finite: NonFinite,
}

impl Default for SourceOptions {
    fn default() -> Self {
        SourceOptions {
            resident_bytes_max: 1 << 30,
            series_cache_bytes: None,
            is_checked: false,
            threads: 0,
            non_finite: NonFinite::default(),
        }
    }
}

/// The samples of a file of either layout, as the model sees them: f32, never rescaled.
#[derive(Debug)]
pub struct Source {
    data: SourceData,
}

#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "a source is opened once a file")]
enum SourceData {
    Series(SeriesSource),
    Windows(WindowsSource),
}

impl Source {
    /// Opens and checks the file at `path`, whichever its layout. What is held in memory is booked
    /// on `scope`.
    ///
    /// # Errors
    /// As [`SeriesFile::open`].
    pub fn open(path: impl AsRef<Path>, scope: &Scope) -> Result<Self> {
        Self::open_with(path, scope, SourceOptions::default())
    }

    /// [`Source::open`] with options.
    ///
    /// # Errors
    /// As [`SeriesFile::open`].
    pub fn open_with(path: impl AsRef<Path>, scope: &Scope, options: SourceOptions) -> Result<Self> {
        let SourceOptions { threads, non_finite, .. } = options;
        let file = InputFile::open_with(path.as_ref(), FileReadOptions { threads, non_finite })?;
        let data = match Layout::recognise(&file)? {
            Layout::Series => SourceData::Series(match options.series_cache_bytes {
                None => SeriesSource::load(SeriesFile::from_file(file, scope)?, scope)?,
                Some(bytes) => {
                    let file = SeriesFile::with_index_in_file(file, scope)?;
                    match options.is_checked || file.fingerprint().is_some() {
                        true => file.check_held_lists()?,
                        false => file.check_in_pieces(|_| Ok::<(), Error>(()))?,
                    }
                    SeriesSource::stream(file, bytes, scope)?
                }
            }),
            Layout::Windows => {
                SourceData::Windows(WindowsSource::open(WindowsFile::from_file(file, scope)?, scope, options)?)
            }
        };
        Ok(Source { data })
    }

    /// The file.
    pub fn path(&self) -> &Path {
        match &self.data {
            SourceData::Series(series) => series.file().path(),
            SourceData::Windows(windows) => windows.file().path(),
        }
    }

    /// The file's layout.
    pub fn layout(&self) -> Layout {
        match &self.data {
            SourceData::Series(_) => Layout::Series,
            SourceData::Windows(_) => Layout::Windows,
        }
    }

    /// Dimensions of the samples.
    pub fn shape(&self) -> &Shape {
        match &self.data {
            SourceData::Series(series) => series.file().shape(),
            SourceData::Windows(windows) => windows.file().shape(),
        }
    }

    /// Time of each sample, `[N]`, ns since 1970 UTC; `None` for a windows file without timestamps.
    ///
    /// # Panics
    /// For a series whose index stays in the file, before [`SeriesFile::load_index`].
    pub fn sample_times(&self) -> Option<&[i64]> {
        match &self.data {
            SourceData::Series(series) => Some(series.file().sample_times()),
            SourceData::Windows(windows) => windows.file().sample_times(),
        }
    }

    /// Instrument of each sample, `[N]`, an index into [`Source::instruments`]: samples of one have
    /// one calendar of bars.
    ///
    /// # Panics
    /// As [`Source::sample_times`].
    pub fn sample_instruments(&self) -> Option<&[i32]> {
        match &self.data {
            SourceData::Series(series) => series.file().sample_instruments(),
            SourceData::Windows(windows) => windows.file().sample_instruments(),
        }
    }

    /// Open time of the earliest bar that each sample depends on, `[N]`, ns since 1970 UTC; `None`
    /// if the file does not have it.
    pub fn sample_reach_times(&self) -> Option<&[i64]> {
        self.span_times().reach_times()
    }

    /// Close time of the last bar that each sample's targets read, `[N]`, ns since 1970 UTC; `None`
    /// if the file does not have it.
    pub fn sample_label_end_times(&self) -> Option<&[i64]> {
        self.span_times().label_end_times()
    }

    /// The first of the lists [`Source::sample_label_end_times`] and
    /// [`Source::sample_reach_times`] that a windows file has and that is not read, as it has no
    /// `/timestamps`.
    pub fn untimed_span_list(&self) -> Option<&'static str> {
        match &self.data {
            SourceData::Series(_) => None,
            SourceData::Windows(windows) => windows.file().untimed_span_list(),
        }
    }

    /// Weight of each sample in the loss of training, `[N]`; `None` where all count alike.
    pub fn sample_weights(&self) -> Option<&[f32]> {
        match &self.data {
            SourceData::Series(series) => series.file().sample_weights(),
            SourceData::Windows(windows) => windows.file().sample_weights(),
        }
    }

    /// Times of the samples of a list, ns since 1970 UTC; `None` for a windows file without
    /// timestamps.
    ///
    /// # Errors
    /// As [`Source::read`].
    pub fn times_of(&self, samples: &[usize]) -> Result<Option<Vec<i64>>> {
        self.check_list(samples)?;
        match &self.data {
            SourceData::Windows(windows) => {
                Ok(windows.file().sample_times().map(|times| samples.iter().map(|&sample| times[sample]).collect()))
            }
            SourceData::Series(series) => {
                let mut times = vec![0; samples.len()];
                let mut left = &mut times[..];
                for run in RowSelection::List(samples).runs() {
                    let (part, rest) = left.split_at_mut(run.len());
                    series.file().read_column(SeriesColumn::SampleTime, run, part)?;
                    left = rest;
                }
                Ok(Some(times))
            }
        }
    }

    /// True if samples have times.
    pub fn has_times(&self) -> bool {
        match &self.data {
            SourceData::Series(_) => true,
            SourceData::Windows(windows) => windows.file().sample_times().is_some(),
        }
    }

    /// Instrument of a sample, an index into [`Source::instruments`]; `None` where the file names
    /// none.
    pub fn instrument_of(&self, sample: usize) -> Option<usize> {
        match &self.data {
            SourceData::Series(series) => series.file().instrument_of(sample),
            SourceData::Windows(windows) => Some(windows.file().sample_instruments()?[sample] as usize),
        }
    }

    fn span_times(&self) -> &SpanTimes {
        match &self.data {
            SourceData::Series(series) => series.file().span_times(),
            SourceData::Windows(windows) => windows.file().span_times(),
        }
    }

    /// Base bars from a sample to the end of its farthest target; `None` if the file does not have
    /// the attribute `horizon_bars`.
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) for an attribute that is no whole number from 0
    /// on.
    pub fn horizon_bars(&self) -> Result<Option<usize>> {
        match &self.data {
            SourceData::Series(series) => series.file().horizon_bars(),
            SourceData::Windows(windows) => windows.file().horizon_bars(),
        }
    }

    /// A root attribute.
    ///
    /// # Errors
    /// [`Error::Hdf5`] if the attribute is there and cannot be read.
    pub fn attribute(&self, name: &str) -> Result<Option<AttributeValue>> {
        match &self.data {
            SourceData::Series(series) => series.file().attribute(name),
            SourceData::Windows(windows) => windows.file().attribute(name),
        }
    }

    /// Names of the instruments, `[I]`; empty where the file names none.
    pub fn instruments(&self) -> &[String] {
        match &self.data {
            SourceData::Series(series) => series.file().instruments(),
            SourceData::Windows(windows) => windows.file().instruments(),
        }
    }

    /// The bars, close times and window ends behind the samples; `None` for a windows file, which
    /// does not know them.
    pub fn series(&self) -> Option<&SeriesSource> {
        match &self.data {
            SourceData::Series(series) => Some(series),
            SourceData::Windows(_) => None,
        }
    }

    /// The series, to change how it is read.
    pub fn series_mut(&mut self) -> Option<&mut SeriesSource> {
        match &mut self.data {
            SourceData::Series(series) => Some(series),
            SourceData::Windows(_) => None,
        }
    }

    /// True if all samples are held in memory, so that no request reads the file.
    pub fn is_resident(&self) -> bool {
        match &self.data {
            SourceData::Series(series) => series.resident().is_some(),
            SourceData::Windows(windows) => windows.is_resident(),
        }
    }

    /// Reads all samples into memory, whatever [`SourceOptions`] say.
    ///
    /// # Errors
    /// [`Error::Memory`] when the device has no room; those of reading.
    pub fn load_resident(&mut self) -> Result<()> {
        match &mut self.data {
            SourceData::Series(series) => series.load_resident(),
            SourceData::Windows(windows) if !windows.is_resident() => windows.load_resident(),
            SourceData::Windows(_) => Ok(()),
        }
    }

    /// As [`Source::load_resident`]. Numbers of a windows file are checked when their samples are
    /// asked for, and not before.
    ///
    /// # Errors
    /// As [`Source::load_resident`].
    pub fn load_resident_unchecked(&mut self) -> Result<()> {
        if let SourceData::Windows(windows) = &mut self.data
            && !windows.is_resident()
        {
            return windows.load_resident_unchecked();
        }
        self.load_resident()
    }

    /// Checks the numbers of `samples` of a windows file that is held in memory; those of a series
    /// were checked when it was read. Samples are not checked again when they are asked for, nor
    /// are others: they may have any numbers.
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) for the first sample with numbers that none may
    /// have.
    ///
    /// # Panics
    /// If the file has fewer samples.
    pub fn check_resident(&mut self, samples: impl Iterator<Item = Range<usize>>) -> Result<()> {
        match &mut self.data {
            SourceData::Series(_) => Ok(()),
            SourceData::Windows(windows) => windows.check_resident(samples),
        }
    }

    /// Storage and reader of each dataset of features and targets: features by timeframe, then the
    /// targets.
    ///
    /// # Errors
    /// While reading the index of the chunks: [`Error::DamagedIndex`], [`Error::ChunkTooLarge`],
    /// [`Error::BeyondEnd`], [`Error::Changed`], [`Error::Hdf5`].
    pub fn storage(&self) -> Result<Vec<StoredDataset>> {
        match &self.data {
            SourceData::Series(series) => series.file().tables().map(StoredDataset::new).collect(),
            SourceData::Windows(windows) => windows.tables().map(StoredDataset::new).collect(),
        }
    }

    /// Copies the samples of a range, half-open from 0, into the caller's memory.
    ///
    /// # Errors
    /// [`Error::BadRequest`] if the range passes the end of the file or the memory has another
    /// size; [`Error::Hdf5`] if the file cannot be read.
    pub fn read(&self, samples: Range<usize>, out: SampleSlices<'_>) -> Result<ReadCost> {
        self.read_until(samples, out, &UNSTOPPED)
    }

    /// As [`Source::read`], until `stop` is true.
    pub(crate) fn read_until(
        &self,
        samples: Range<usize>,
        out: SampleSlices<'_>,
        stop: &AtomicBool,
    ) -> Result<ReadCost> {
        if samples.start > samples.end || samples.end > self.shape().samples {
            return Err(self.beyond_the_end(&format!("samples {}..{}", samples.start, samples.end)));
        }
        self.check_memory(samples.len(), &out)?;
        match &self.data {
            SourceData::Series(series) => series.gather(samples, out),
            SourceData::Windows(windows) => windows.read(samples, out, stop),
        }
    }

    /// Copies the samples of a list, in its order and with its repetitions, into the caller's
    /// memory.
    ///
    /// # Errors
    /// As [`Source::read`].
    pub fn gather(&self, samples: &[usize], out: SampleSlices<'_>) -> Result<ReadCost> {
        self.gather_until(samples, out, &UNSTOPPED)
    }

    /// As [`Source::gather`]. Once `stop` is true, reading windows ends before the next chunk or
    /// block of the file.
    ///
    /// # Errors
    /// As [`Source::read`]; [`Error::Stopped`] where not all samples were read.
    pub fn gather_until(&self, samples: &[usize], out: SampleSlices<'_>, stop: &AtomicBool) -> Result<ReadCost> {
        self.check_list(samples)?;
        self.check_memory(samples.len(), &out)?;
        match &self.data {
            SourceData::Series(series) => series.gather(samples.iter().copied(), out),
            SourceData::Windows(windows) => windows.gather(samples, out, stop),
        }
    }

    /// As [`Source::gather`]. Numbers of a windows file are returned as they are.
    ///
    /// # Errors
    /// As [`Source::read`].
    pub fn gather_unchecked(&self, samples: &[usize], out: SampleSlices<'_>) -> Result<ReadCost> {
        self.check_list(samples)?;
        self.check_memory(samples.len(), &out)?;
        match &self.data {
            SourceData::Series(series) => series.gather(samples.iter().copied(), out),
            SourceData::Windows(windows) => windows.gather_unchecked(samples, out),
        }
    }

    /// True if any target of the samples of a list is known, that is, not NaN. Windows are not read
    /// for it.
    ///
    /// # Errors
    /// As [`Source::read`].
    pub fn any_target_known(&self, samples: &[usize]) -> Result<bool> {
        self.check_list(samples)?;
        let horizons = self.shape().horizons;
        let is_known = |target: &f32| !target.is_nan();
        for part in samples.chunks(TARGET_ROWS) {
            let mut targets = vec![0.0; part.len() * horizons];
            self.read_targets(part, &mut targets)?;
            if targets.iter().any(is_known) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Copies the targets of the samples of a list to `out`, `[samples, K]`. Windows are not read
    /// for it.
    ///
    /// # Errors
    /// As [`Source::read`].
    ///
    /// # Panics
    /// If `out` has another length than the targets.
    pub fn read_targets(&self, samples: &[usize], out: &mut [f32]) -> Result<()> {
        self.check_list(samples)?;
        match &self.data {
            SourceData::Series(series) => {
                let rows: Vec<Range<usize>> = RowSelection::List(samples).runs().collect();
                series.read_targets(&rows, out).map(drop)
            }
            SourceData::Windows(windows) => windows.read_targets(samples, out),
        }
    }

    /// The rows of a windows file that is held in memory: those of the `i`-th timeframe, `[N, T,
    /// F]`, or after the last one the targets, `[N, K]`.
    pub(crate) fn resident_table(&self, i: usize) -> Option<&[f32]> {
        match &self.data {
            SourceData::Series(_) => None,
            SourceData::Windows(windows) => windows.resident_rows(i),
        }
    }

    /// Refuses a list with a sample that the file does not have.
    pub(crate) fn check_list(&self, samples: &[usize]) -> Result<()> {
        match samples.iter().find(|&&sample| sample >= self.shape().samples) {
            Some(sample) => Err(self.beyond_the_end(&format!("sample {sample}"))),
            None => Ok(()),
        }
    }

    fn beyond_the_end(&self, asked: &str) -> Error {
        Error::BadRequest {
            path: self.path().to_owned(),
            asked: asked.to_owned(),
            found: format!("the file has {}", self.shape().samples),
            fix: "ranges A..B are half-open and count from 0".to_owned(),
        }
    }

    fn check_memory(&self, samples: usize, out: &SampleSlices<'_>) -> Result<()> {
        let Shape { timeframes, horizons, .. } = self.shape();
        let needed: Vec<usize> = timeframes.iter().map(|timeframe| samples * timeframe.window_len()).collect();
        let given: Vec<usize> = out.features.iter().map(|features| features.len()).collect();
        if needed == given && out.targets.len() == samples * horizons {
            return Ok(());
        }
        Err(Error::BadRequest {
            path: self.path().to_owned(),
            asked: format!("{samples} samples into memory for {given:?} features and {} targets", out.targets.len()),
            found: format!("they are {needed:?} features and {} targets", samples * horizons),
            fix: "make the memory with SampleBlock::zeros".to_owned(),
        })
    }
}

/// Each sample that has a predecessor of its own instrument, with that one's time.
pub(crate) fn previous_of_same_instrument<'a>(
    times: &'a [i64],
    instruments: Option<&'a [i32]>,
) -> impl Iterator<Item = (usize, i64)> + 'a {
    let mut last = BTreeMap::new();
    times.iter().enumerate().filter_map(move |(n, &time)| {
        let instrument = instruments.map_or(0, |instruments| instruments[n]);
        last.insert(instrument, time).map(|earlier| (n, earlier))
    })
}
