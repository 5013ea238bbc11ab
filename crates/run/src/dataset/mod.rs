//! A data file for programs that train on their own: its facts, its split and its batches.

mod batch_memory;
mod batches;
mod gather;

use std::path::Path;
use std::sync::Arc;

use megabatch_chunk_io::{AttributeValue, NonFinite, Scaler, Source};
use megabatch_gpu_core::Device;
use megabatch_nn::graph::Graphs;
use megabatch_trainer::Split;
use serde::Serialize;

use crate::adapters::data::Data;
use crate::adapters::neighbours::Neighbours;
use crate::adapters::split::walk_forward;
use crate::config::{Config, SettingSources};
use crate::error::{Error, Result};
use crate::host::Host;

pub use batches::{BatchLoader, BatchOptions, EpochBatches, GatheredBatch, Rows, SampleVisit, WindowView};
pub use megabatch_order::LastBatch;
pub use megabatch_trainer::SampleRanges;

/// A data file: series, windows, or graphs with features of their own.
pub struct Dataset {
    data: Data,
}

/// Where the windows of a windows file are. Series are always in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WindowsAt {
    /// In the file, from which a loader reads them ahead.
    #[default]
    Disk,
    /// In memory, read when the file is opened.
    Memory,
}

/// Description of a data file.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Facts {
    /// `series`, `windows` or `graphs`.
    pub layout: String,
    /// Number of samples, N; of a file of graphs, its nodes.
    pub samples: usize,
    /// Number of graphs; `None` for samples that stand alone.
    pub graphs: Option<usize>,
    /// Timeframes, shortest first.
    pub timeframes: Vec<TimeframeFacts>,
    /// Number of targets of a sample, K.
    pub targets: usize,
    /// Names of the instruments; empty where the file has one.
    pub instruments: Vec<String>,
    /// Symbol of the one instrument, where the file tells it.
    pub symbol: Option<String>,
    /// Timeframe of the bars that targets count, where the file tells it.
    pub base: Option<String>,
    /// Kind of the targets, such as `log_return`, where the file tells it.
    pub target_kind: Option<String>,
    /// Column of the bars that says when its targets are known, where the file tells one.
    pub label_end_column: Option<String>,
    /// Column of the bars that is the weight of a sample, where the file tells one.
    pub weight_column: Option<String>,
    /// Horizon of the farthest target in bars, where the file tells it.
    pub horizon: Option<i64>,
    /// Earliest sample, ns since 1970 UTC, where the file has times.
    pub first_time_ns: Option<i64>,
    /// Latest sample.
    pub last_time_ns: Option<i64>,
}

/// Description of a timeframe.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct TimeframeFacts {
    /// Name such as `M5`; empty for the one timeframe of a file that does not name it.
    pub name: String,
    /// Length of a window in bars, T.
    pub steps: usize,
    /// Number of features, F.
    pub features: usize,
    /// Names of the features, where the file tells them.
    pub feature_names: Option<Vec<String>>,
    /// Bars of the series, where the file has any.
    pub bars: Option<usize>,
}

/// The bars of a timeframe, and where samples see them.
#[derive(Clone, Copy, Debug)]
pub struct SeriesBars<'a> {
    /// Features of the bars, `[bars, F]`.
    pub values: &'a [f32],
    /// The last bar of each sample's window, `[N]`.
    pub last_bars: &'a [i64],
}

/// Samples by their part in a split; graphs, for a file of graphs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Partition {
    /// For training.
    pub train: SampleRanges,
    /// For validation.
    pub validation: SampleRanges,
    /// For the test.
    pub test: SampleRanges,
    /// Number of samples that were left out between the parts.
    pub purged: usize,
    /// Assumptions that the purge between the parts rests on: sentences without their full stop.
    pub warnings: Vec<String>,
}

impl Dataset {
    /// Opens the file at `path`, whichever its layout. Numbers of a windows file that are not
    /// finite are given as they are: whoever takes them may leave such samples out.
    ///
    /// # Errors
    /// [`Kind::Data`](crate::Kind::Data) for a file that cannot be read.
    pub fn open(path: &Path, windows: WindowsAt) -> Result<Self> {
        let config = SettingSources::default().load(&[])?;
        let mut data = Data::open(path, &config, &Device::cpu(), NonFinite::Pass, &Host::silent())?;
        // A series is always in memory, windows where they are asked for.
        if windows == WindowsAt::Memory || !data.is_windows() {
            data.hold()?;
        }
        Ok(Dataset { data })
    }

    /// Description of the file.
    ///
    /// # Errors
    /// Errors of reading its attributes.
    pub fn facts(&self) -> Result<Facts> {
        let (shape, samples) = (self.data.shape(), self.data.samples());
        let series = self.data.source().and_then(Source::series);
        let series_timeframes = series.map_or(&[][..], |series| series.file().timeframes());
        let timeframes = shape.timeframes.iter().enumerate().map(|(k, timeframe)| TimeframeFacts {
            name: timeframe.name.clone().unwrap_or_default(),
            steps: timeframe.steps,
            features: timeframe.features,
            feature_names: series_timeframes.get(k).map(|series| series.feature_names().to_vec()),
            bars: series_timeframes.get(k).map(|series| series.close_times().len()),
        });
        let times = self.sample_times();
        Ok(Facts {
            layout: self.data.layout(),
            samples: samples.len(),
            graphs: samples.graphs().map(Graphs::len),
            timeframes: timeframes.collect(),
            targets: samples.shape().outputs,
            instruments: self.data.source().map_or(Vec::new(), |source| source.instruments().to_vec()),
            symbol: self.text("symbol")?,
            base: self.text("base")?,
            target_kind: self.text("target_kind")?,
            label_end_column: self.text("label_end_column")?,
            weight_column: self.text("weight_column")?,
            horizon: match self.attribute("horizon_bars")? {
                Some(AttributeValue::Int(bars)) => Some(bars),
                _ => None,
            },
            first_time_ns: times.and_then(|times| times.iter().min().copied()),
            last_time_ns: times.and_then(|times| times.iter().max().copied()),
        })
    }

    fn attribute(&self, name: &str) -> Result<Option<AttributeValue>> {
        Ok(self.data.source().map(|source| source.attribute(name)).transpose()?.flatten())
    }

    fn text(&self, name: &str) -> Result<Option<String>> {
        Ok(match self.attribute(name)? {
            Some(AttributeValue::Text(text)) => Some(text),
            _ => None,
        })
    }

    /// Number of units that a split divides and a loader visits: samples, or graphs.
    pub fn units(&self) -> usize {
        self.data.units()
    }

    /// Time of each sample, `[N]`, ns since 1970 UTC, where the file has times.
    pub fn sample_times(&self) -> Option<&[i64]> {
        self.data.source()?.sample_times()
    }

    /// Weight of each sample in the loss of training, `[N]`, where the file has weights.
    pub fn sample_weights(&self) -> Option<&[f32]> {
        self.data.source()?.sample_weights()
    }

    /// Index of each sample's instrument in [`Facts::instruments`], `[N]`, where the file has
    /// several.
    pub fn sample_instruments(&self) -> Option<&[i32]> {
        self.data.source()?.sample_instruments()
    }

    /// A timeframe of a series, as it is in memory; `None` for other files.
    ///
    /// # Panics
    /// If there is no `k`-th timeframe.
    pub fn series_bars(&self, k: usize) -> Option<SeriesBars<'_>> {
        let series = self.data.source()?.series()?;
        let timeframe = &series.file().timeframes()[k];
        Some(SeriesBars { values: series.resident()?.values(k), last_bars: timeframe.sample_ends() })
    }

    /// Scaler of the features of a timeframe of a series that has one.
    ///
    /// # Panics
    /// As [`Dataset::series_bars`].
    pub fn scaler(&self, k: usize) -> Option<&Scaler> {
        self.data.source()?.series()?.file().timeframes()[k].scaler()
    }

    /// Targets of a series, `[N, K]`; `None` for other files.
    pub fn series_targets(&self) -> Option<&[f32]> {
        Some(self.data.source()?.series()?.resident()?.targets())
    }

    /// The fingerprint that the mark of verification of a series has; `None` for other files.
    pub fn marked_fingerprint(&self) -> Option<&str> {
        self.data.source()?.series()?.file().fingerprint()
    }

    /// A hash of the numbers of the file: other data have another one.
    ///
    /// # Errors
    /// Errors of reading the file.
    pub fn fingerprint(&self) -> Result<String> {
        Ok(self.data.fingerprint(&self.data.files(&Host::silent())?))
    }

    /// Splits the units as training with `settings` would; of a walk forward, as the fold that they
    /// name.
    ///
    /// # Errors
    /// [`Kind::Usage`](crate::Kind::Usage) where a part that should have samples is left without.
    pub fn split(&self, settings: &SettingSources) -> Result<Partition> {
        self.partition(&settings.load(&[])?)
    }

    fn partition(&self, config: &Config) -> Result<Partition> {
        let split = self.data.split(config)?;
        let warnings = match config.purge_ns() {
            Some(_) => Vec::new(),
            None => self.data.remarks_on_purge(config, &split)?.warnings,
        };
        let Split { train, validation, test, purged, .. } = split;
        Ok(Partition { train, validation, test, purged, warnings })
    }

    /// The splits of a walk forward, a fold each, as training with `settings` would go through
    /// them.
    ///
    /// # Errors
    /// As [`Dataset::split`].
    pub fn walk_forward(&self, settings: &SettingSources) -> Result<Vec<Partition>> {
        let config = settings.load(&[])?;
        let folds = walk_forward(&config).map_or(0, |walk| walk.folds);
        let fold_split = |fold| {
            let mut config = config.clone();
            config.set_walk_forward_fold(fold);
            self.partition(&config)
        };
        (0..folds).map(fold_split).collect()
    }

    /// Number of consecutive samples that training visits together where nobody sets it: 1 if
    /// neighbours have nothing in common, else `None`, which stands for the samples of a step.
    fn run_length_by_data(&self) -> Result<Option<usize>> {
        Ok((Neighbours::find(&self.data)? == Neighbours::Apart).then_some(1))
    }

    /// The file behind samples that stand alone.
    fn source(&self) -> Result<&Arc<Source>> {
        match &self.data {
            Data::Samples(samples) => Ok(samples.shared_source()),
            Data::CrossSections(_) | Data::Graphs(_) => Err(Error::usage(format!(
                "{}: a file of graphs, whose batches no loader gathers; train on it as a whole",
                self.data.path().display()
            ))),
        }
    }
}

#[cfg(test)]
mod tests;
