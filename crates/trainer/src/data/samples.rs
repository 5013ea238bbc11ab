//! The port for the data of training.

use std::error::Error as StdError;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use megabatch_gpu_core::{Buffer, Device, Scope};
use megabatch_nn::batch::{BatchStorage, BatchView, SeriesSpan, SeriesView, WindowEnd, WindowOffsets};
use megabatch_nn::graph::{Graphs, LabelSpan};
use megabatch_nn::model::SampleShape;

use crate::data::prefetching::{PrefetchingSource, Waits};
use crate::error::{Error, Result};

/// A source of samples, addressed by index. It is read on another thread than training, hence
/// `Sync`.
pub trait Samples: Sync {
    /// Shape of a sample.
    fn shape(&self) -> &SampleShape;

    /// Number of samples.
    fn len(&self) -> usize;

    /// True if there are no samples.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Writes the samples `samples`, in this order, to `batch`, which has this source's shape and
    /// exactly this many samples. Indices may repeat.
    ///
    /// # Errors
    /// Whatever keeps the source from reading; it names its file and place.
    fn gather(&self, samples: &[usize], batch: &mut Batch) -> Result<(), Box<dyn StdError + Send + Sync>>;

    /// The series that all windows are slices of, for a source in memory. Training then takes each
    /// bar once from there, in place of calling [`gather`](Samples::gather), which is several times
    /// as fast if windows overlap.
    fn series(&self) -> Option<SeriesView<'_>> {
        None
    }

    /// The series that all windows are slices of, for a source in a file. Training then reads each
    /// bar of a batch once, in place of calling [`gather`](Samples::gather). The results are those
    /// of [`series`](Samples::series), bit for bit. A source has its series in one of the two
    /// places.
    fn streamed_series(&self) -> Option<&dyn StreamedSeries> {
        None
    }

    /// The targets [N, K] of all samples, for a source that has them in memory: training checks
    /// them before the first step.
    fn targets(&self) -> Option<&[f32]> {
        self.series().map(|series| series.targets)
    }

    /// The weights `[N]` of all samples in the loss of training, finite and at least 0; `None`
    /// where all count alike.
    fn weights(&self) -> Option<&[f32]> {
        None
    }

    /// Writes the targets of `samples` to `targets`, `[.., K]`. All are samples of the source. By
    /// default they come from [`targets`](Samples::targets), or else with their windows from
    /// [`gather`](Samples::gather).
    ///
    /// # Errors
    /// Whatever keeps the source from reading.
    fn read_targets(&self, samples: &[usize], targets: &mut [f32]) -> Result<(), SourceError> {
        if let Some(all) = self.targets() {
            copy_rows(all, self.shape().outputs, samples, targets);
            return Ok(());
        }
        let mut batch = Batch::new(&Device::cpu().scope("targets"), self.shape(), samples.len())?;
        batch.resize(samples.len());
        self.gather(samples, &mut batch)?;
        targets.copy_from_slice(batch.view().targets());
        Ok(())
    }

    /// The source's own loader, for a source that is not in memory. Training then takes its batches
    /// from there, in place of calling [`gather`](Samples::gather).
    fn load_ahead(&self) -> Option<&dyn PrefetchingSource> {
        None
    }

    /// The graphs whose nodes are the samples, for a source that has any. A model over graphs
    /// ([`ModelConfig::readout`](megabatch_nn::model::ModelConfig::readout)) is trained on graphs,
    /// by index, in place of samples.
    fn graphs(&self) -> Option<&dyn Graphs> {
        None
    }

    /// The name of the instrument of `sample`, for a source of several. Evaluations then have the
    /// errors of each instrument.
    fn instrument(&self, _sample: usize) -> Option<&str> {
        None
    }

    /// The times of `samples`, ns since 1970 UTC, for a source of instruments that a model may
    /// rank. Evaluations beside baselines then have correlations over the samples of each time.
    fn times(&self, _samples: &[usize]) -> Option<Vec<i64>> {
        None
    }

    /// The span of one target of `samples`, all taken at `time_ns`, for a source with
    /// [`times`](Samples::times); `None` where it does not tell.
    fn target_span(&self, _samples: &[usize], _time_ns: i64, _target: usize) -> Option<LabelSpan> {
        None
    }
}

/// Error of a source of samples; it names its file and place.
type SourceError = Box<dyn StdError + Send + Sync>;

/// Series in a file, read one batch ahead of the computation on another thread. A validation reads
/// beside training.
pub trait StreamedSeries: Sync {
    /// Number of bars of timeframe `k`.
    fn bars(&self, k: usize) -> usize;

    /// As [`Series::segment_starts`](megabatch_nn::batch::Series::segment_starts).
    fn segment_starts(&self, k: usize) -> &[i64];

    /// Writes the last bar of each sample's window in timeframe `k` to `ends`, which has the length
    /// of `samples`. All are samples of the source.
    ///
    /// # Errors
    /// Whatever keeps the source from reading.
    fn read_window_ends(&self, k: usize, samples: &[usize], ends: &mut [i64]) -> Result<(), SourceError>;

    /// Writes bars of timeframe `k` to `bars`, `[.., F]`, one range of rows after the other. The
    /// rows exist, and `bars` has their length.
    ///
    /// # Errors
    /// Whatever keeps the source from reading.
    fn read_bars(&self, k: usize, rows: &[Range<usize>], bars: &mut [f32]) -> Result<(), SourceError>;

    /// Time of all reads so far by cause, and their bytes.
    fn read_times(&self) -> Waits;
}

/// Windows and targets of B samples, row-major in single precision.
#[derive(Debug)]
pub struct Batch {
    shape: SampleShape,
    samples: usize,
    /// The windows one after another, [B, T, F] each; or, taken from series, the bars that they
    /// cover.
    features: Vec<Buffer<f32>>,
    offsets: WindowOffsets,
    storage: BatchStorage,
    targets: Buffer<f32>, // [B, K]
    /// `[B]`; empty where all samples count alike.
    pub(crate) weights: Vec<f32>,
    stop: Arc<AtomicBool>,
}

impl Batch {
    /// A batch for up to `capacity` samples, booked on `scope`; it starts with none.
    ///
    /// # Errors
    /// [`Error::Memory`] when the device has no room.
    pub fn new(scope: &Scope, shape: &SampleShape, capacity: usize) -> Result<Self> {
        Batch::with_windows(scope, shape, capacity, capacity)
    }

    /// A batch without memory for windows, for [offsets](Batch::take_window_offsets) alone.
    pub(crate) fn for_offsets(scope: &Scope, shape: &SampleShape, capacity: usize) -> Result<Self> {
        Batch::with_windows(scope, shape, capacity, 0)
    }

    fn with_windows(scope: &Scope, shape: &SampleShape, capacity: usize, windows: usize) -> Result<Self> {
        let windows_of = |k: usize| Ok(Buffer::zeros(scope, windows * shape.window_len(k))?);
        Ok(Batch {
            samples: 0,
            features: (0..shape.timeframes.len()).map(windows_of).collect::<Result<_>>()?,
            offsets: WindowOffsets::with_capacity(shape, capacity),
            storage: BatchStorage::Windows,
            targets: Buffer::zeros(scope, capacity * shape.outputs)?,
            weights: Vec::new(),
            stop: Arc::default(),
            shape: shape.clone(),
        })
    }

    /// True once nobody wants the samples that are gathered: [`Samples::gather`] may then end with
    /// any error.
    pub fn stop(&self) -> &Arc<AtomicBool> {
        &self.stop
    }

    /// Ends gathering once `stop` is true.
    pub(crate) fn stop_by(&mut self, stop: &Arc<AtomicBool>) {
        self.stop = Arc::clone(stop);
    }

    /// Sets B. The old content has no meaning afterwards.
    ///
    /// # Panics
    /// If B is above the capacity.
    pub fn resize(&mut self, samples: usize) {
        let capacity = self.targets.len() / self.shape.outputs;
        assert!(samples <= capacity, "{samples} samples in a batch for {capacity}");
        self.samples = samples;
        self.weights.clear();
        self.storage = BatchStorage::Windows;
        self.offsets.lay_windows(&self.shape, samples);
    }

    /// B.
    pub fn len(&self) -> usize {
        self.samples
    }

    /// True if there are no samples.
    pub fn is_empty(&self) -> bool {
        self.samples == 0
    }

    /// Shape of a sample.
    pub fn shape(&self) -> &SampleShape {
        &self.shape
    }

    /// The samples, to be read.
    pub fn view(&self) -> BatchView<'_> {
        let targets = &self.targets.as_slice()[..self.samples * self.shape.outputs];
        let features = self.features.iter().map(Buffer::as_slice).collect();
        let weights = (!self.weights.is_empty()).then_some(self.weights.as_slice());
        BatchView::new(&self.shape, features, &self.offsets, self.storage, targets).with_weights(weights)
    }

    /// Windows of the k-th timeframe for writing, [B, T, F].
    pub fn features_mut(&mut self, k: usize) -> &mut [f32] {
        &mut self.features[k].as_mut_slice()[..self.samples * self.shape.window_len(k)]
    }

    /// Targets for writing, [B, K].
    pub fn targets_mut(&mut self) -> &mut [f32] {
        &mut self.targets.as_mut_slice()[..self.samples * self.shape.outputs]
    }

    /// All windows, [B, T, F] a timeframe, and the targets [B, K] for writing at once.
    pub fn slices_mut(&mut self) -> (Vec<&mut [f32]>, &mut [f32]) {
        let (samples, shape) = (self.samples, &self.shape);
        let windows = self.features.iter_mut().enumerate();
        let windows = windows.map(|(k, buffer)| &mut buffer.as_mut_slice()[..samples * shape.window_len(k)]);
        (windows.collect(), &mut self.targets.as_mut_slice()[..samples * shape.outputs])
    }

    /// Sets the window ends of the samples, in `series` if there are any.
    ///
    /// # Errors
    /// As [`SeriesView::window_start`].
    pub(crate) fn note_ends(&mut self, series: Option<&SeriesView<'_>>, samples: &[usize]) -> Result<()> {
        let Some(series) = series else {
            self.offsets.end_at_samples(samples);
            return Ok(());
        };
        for (k, ends) in self.offsets.ends.iter_mut().enumerate() {
            ends.clear();
            for &sample in samples {
                ends.push(series.window_start(&self.shape, k, sample)? + self.shape.timeframes[k].steps - 1);
            }
        }
        Ok(())
    }

    /// Copies the bars of `samples` from series in memory, each bar once.
    ///
    /// # Errors
    /// [`Error::SamplesShape`] for series that have not this batch's shape; as
    /// [`SeriesView::window_start`].
    pub(crate) fn take_series(&mut self, series: &SeriesView<'_>, samples: &[usize]) -> Result<()> {
        self.resize(samples.len());
        self.storage = BatchStorage::Series;
        for k in 0..self.shape.timeframes.len() {
            let starts = samples.iter().map(|&sample| series.window_start(&self.shape, k, sample));
            let starts = starts.collect::<Result<Vec<_>, _>>()?;
            let width = self.shape.timeframes[k].features;
            let (values, mut bars) = (series.timeframes[k].values, self.features[k].as_mut_slice());
            for rows in covered_rows(&starts, self.shape.timeframes[k].steps, &mut self.offsets.starts[k]) {
                let (copied, rest) = bars.split_at_mut(rows.len() * width);
                copied.copy_from_slice(&values[rows.start * width..rows.end * width]);
                bars = rest;
            }
        }
        self.take_targets(series, samples)
    }

    /// Reads the bars of `samples` from a series in a file, each bar once, as
    /// [`Batch::take_series`] and [`Batch::note_ends`] do in memory.
    ///
    /// # Errors
    /// As [`SeriesView::window_start`]; errors of the source.
    pub(crate) fn read_series(
        &mut self,
        source: &dyn Samples,
        series: &dyn StreamedSeries,
        samples: &[usize],
    ) -> Result<(), SourceError> {
        self.resize(samples.len());
        self.storage = BatchStorage::Series;
        let mut ends = vec![0; samples.len()];
        for (k, timeframe) in self.shape.timeframes.iter().enumerate() {
            series.read_window_ends(k, samples, &mut ends)?;
            let segment_starts = series.segment_starts(k);
            let span = SeriesSpan { bars: series.bars(k), segment_starts };
            let start = |(&sample, &end)| span.window_start(timeframe, WindowEnd { sample, end });
            let starts = samples.iter().zip(&ends).map(start).collect::<Result<Vec<usize>, _>>()?;
            let noted = &mut self.offsets.ends[k];
            noted.clear();
            noted.extend(starts.iter().map(|start| start + timeframe.steps - 1));
            let rows = covered_rows(&starts, timeframe.steps, &mut self.offsets.starts[k]);
            let covered: usize = rows.iter().map(ExactSizeIterator::len).sum();
            series.read_bars(k, &rows, &mut self.features[k].as_mut_slice()[..covered * timeframe.features])?;
        }
        source.read_targets(samples, &mut self.targets.as_mut_slice()[..samples.len() * self.shape.outputs])
    }

    /// Takes the offsets of windows in the series and the targets of `samples`. Bars are not
    /// copied.
    ///
    /// # Errors
    /// As [`Batch::take_series`].
    pub(crate) fn take_window_offsets(&mut self, series: &SeriesView<'_>, samples: &[usize]) -> Result<()> {
        self.resize(samples.len());
        self.storage = BatchStorage::Series;
        for (k, starts) in self.offsets.starts.iter_mut().enumerate() {
            for (start, &sample) in starts.iter_mut().zip(samples) {
                *start = series.window_start(&self.shape, k, sample)?;
            }
        }
        self.take_targets(series, samples)
    }

    fn take_targets(&mut self, series: &SeriesView<'_>, samples: &[usize]) -> Result<()> {
        let width = self.shape.outputs;
        let len = series.targets.len() / width;
        for (&sample, row) in samples.iter().zip(self.targets.as_mut_slice().chunks_exact_mut(width)) {
            let targets = series.targets.chunks_exact(width).nth(sample);
            row.copy_from_slice(targets.ok_or(Error::SampleOutOfRange { sample, len })?);
        }
        Ok(())
    }
}

/// The rows that windows of `steps` bars cover, ascending, if they begin at `starts`. Overlapping
/// windows share rows. `places` gets the first row of each window among these rows.
fn covered_rows(starts: &[usize], steps: usize, places: &mut [usize]) -> Vec<Range<usize>> {
    let mut sorted: Vec<(usize, usize)> = starts.iter().copied().zip(0..).collect();
    sorted.sort_unstable();
    let mut ranges: Vec<Range<usize>> = Vec::new();
    let mut rows = 0;
    for (start, sample) in sorted {
        let end = start + steps;
        match ranges.last_mut() {
            Some(last) if start <= last.end => {
                rows += end - last.end;
                last.end = end;
            }
            _ => {
                rows += steps;
                ranges.push(start..end);
            }
        }
        places[sample] = rows - steps;
    }
    ranges
}

/// True if windows of `samples` are slices of series, in memory or in a file.
pub(crate) fn are_slices(samples: &dyn Samples) -> bool {
    samples.series().is_some() || samples.streamed_series().is_some()
}

/// True if windows of `samples` are slices of series, and come as such.
pub(crate) fn shares_bars(samples: &dyn Samples) -> bool {
    are_slices(samples) && samples.load_ahead().is_none()
}

/// The series of `samples`; `None` for samples that load themselves ahead, which come as windows.
pub(crate) fn resident_series(samples: &dyn Samples) -> Option<SeriesView<'_>> {
    samples.series().filter(|_| samples.load_ahead().is_none())
}

/// Reader of targets, sample by sample: from memory, or together with windows, which are then read
/// too.
pub(crate) enum TargetReader<'a> {
    /// Targets in memory, [N, K], and K.
    Resident(&'a [f32], usize),
    /// Samples of a series in a file, and the targets of one sample, `[K]`.
    Streamed(&'a dyn Samples, Buffer<f32>),
    Gathered(&'a dyn Samples, Batch),
}

impl<'a> TargetReader<'a> {
    /// Reader of `samples`. A single sample is booked on `scope` if targets have to be gathered.
    pub(crate) fn new(samples: &'a dyn Samples, scope: &Scope) -> Result<Self> {
        let outputs = samples.shape().outputs;
        match (samples.targets(), samples.streamed_series()) {
            (Some(targets), _) => Ok(TargetReader::Resident(targets, outputs)),
            (None, Some(_)) => Ok(TargetReader::Streamed(samples, Buffer::zeros(scope, outputs)?)),
            (None, None) => Ok(TargetReader::Gathered(samples, Batch::new(scope, samples.shape(), 1)?)),
        }
    }

    /// The targets [K] of one sample.
    pub(crate) fn read(&mut self, sample: usize) -> Result<&[f32]> {
        match self {
            TargetReader::Resident(targets, width) => {
                let len = targets.len() / *width;
                targets.chunks_exact(*width).nth(sample).ok_or(Error::SampleOutOfRange { sample, len })
            }
            TargetReader::Streamed(samples, targets) => {
                let read = samples.read_targets(&[sample], targets.as_mut_slice());
                read.map_err(|source| Error::Gather { first: sample, last: sample, count: 1, source })?;
                Ok(targets.as_slice())
            }
            TargetReader::Gathered(samples, batch) => {
                batch.resize(1);
                let gathered = samples.gather(&[sample], batch);
                gathered.map_err(|source| Error::Gather { first: sample, last: sample, count: 1, source })?;
                Ok(batch.view().targets())
            }
        }
    }
}

/// Samples held in memory as windows.
#[derive(Clone, Debug)]
pub struct InMemory {
    shape: SampleShape,
    features: Vec<Vec<f32>>,
    targets: Vec<f32>,
}

impl InMemory {
    /// Samples from windows [N, T, F] of each timeframe and targets [N, K].
    ///
    /// # Errors
    /// [`Error::SamplesShape`] when the lengths do not fit the shape and one N.
    pub fn new(shape: SampleShape, features: Vec<Vec<f32>>, targets: Vec<f32>) -> Result<Self> {
        let samples = targets.len() / shape.outputs.max(1);
        let fits = targets.len() == samples * shape.outputs
            && features.len() == shape.timeframes.len()
            && features.iter().enumerate().all(|(k, windows)| windows.len() == samples * shape.window_len(k));
        if !fits {
            let lengths: Vec<_> = features.iter().map(Vec::len).collect();
            let samples = format!("{lengths:?} feature values and {} target values", targets.len());
            return Err(Error::SamplesShape { model: shape.to_string(), samples });
        }
        Ok(InMemory { shape, features, targets })
    }
}

impl Samples for InMemory {
    fn shape(&self) -> &SampleShape {
        &self.shape
    }

    fn len(&self) -> usize {
        self.targets.len() / self.shape.outputs
    }

    fn gather(&self, samples: &[usize], batch: &mut Batch) -> Result<(), Box<dyn StdError + Send + Sync>> {
        for (k, windows) in self.features.iter().enumerate() {
            copy_rows(windows, self.shape.window_len(k), samples, batch.features_mut(k));
        }
        copy_rows(&self.targets, self.shape.outputs, samples, batch.targets_mut());
        Ok(())
    }
}

fn copy_rows(values: &[f32], width: usize, rows: &[usize], out: &mut [f32]) {
    for (&row, out) in rows.iter().zip(out.chunks_exact_mut(width)) {
        out.copy_from_slice(&values[row * width..][..width]);
    }
}
