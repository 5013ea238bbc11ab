//! The samples after the last ones of a series, as a data file of their own.

use std::path::{Path, PathBuf};

use megabatch_bars::listed;
use megabatch_chunk_io::{NonFinite, Series, WriteOptions, write_series};
use megabatch_gpu_core::Device;
use tempfile::TempDir;

use crate::adapters::data::is_graphs;
use crate::adapters::data_schema::DataSchema;
use crate::adapters::samples::SourceSamples;
use crate::config;
use crate::error::{Context as _, Error, Result};
use crate::host::Host;
use crate::run_folder::RunFolder;
use crate::setup::settings::streams;
use crate::text::{DAY_NS, plural, utc};
use crate::trained::{own_data_path, require_meaning};

/// Longest time before the last sample of a series at which the bars of an instrument with latest
/// samples end. Exports of one evening end hours apart, and a delisted share ended days before.
/// Instruments of a graph have their samples at the same times.
const LAG_NS: i64 = DAY_NS;

/// The latest samples of a series, in a temporary file.
pub(super) struct LatestSamples {
    /// The series.
    data: PathBuf,
    path: PathBuf,
    notes: Vec<String>,
    /// Removed at the end.
    _folder: TempDir,
}

impl LatestSamples {
    /// The latest samples of `data`, for the model of `run`; by default of the data that it was
    /// trained on.
    ///
    /// # Errors
    /// A usage error for data that are no series, a series whose samples go up to its last bar, or
    /// a model that takes its state from the bars before.
    pub(super) fn write(run: &Path, data: Option<&Path>, host: &Host<'_>) -> Result<Self> {
        let run = RunFolder::open(run)?;
        let config = run.config(&[])?;
        let data = own_data_path(&run, &config, data)?;
        let refuse = |reason: &str| Err(Error::usage(format!("--samples latest: {}: {reason}", data.display())));
        if streams(&config) {
            return refuse(
                "the model carries its states from bar to bar; `megabatch predict --follow` predicts the bars that come",
            );
        }
        if is_graphs(&data) {
            return refuse(
                "graphs have no bars after their samples; write the graphs to predict to a file of their own, which `megabatch predict --data FILE` predicts",
            );
        }
        let samples = SourceSamples::open_in_file(&data, &Device::cpu(), NonFinite::Fail, host)?;
        let Some(series) = samples.source().series() else {
            return refuse("windows have no bars after their samples; `megabatch ingest` makes a series, which has");
        };
        require_meaning(&run, &data, &DataSchema::from_series(series.file())?)?;
        let lag_ns = if config.get(&config::model::GRAPH).is_some() { 0 } else { LAG_NS };
        let Some(latest) = series.file().latest(lag_ns)? else {
            return refuse("its samples go up to its last bar, so that none is later");
        };
        let folder = tempfile::tempdir().context("a temporary folder for the latest samples")?;
        let path = folder.path().join(data.file_name().unwrap_or_default());
        write_series(&path, &latest, &WriteOptions::default())?;
        Ok(LatestSamples { notes: notes(&latest), data, path, _folder: folder })
    }

    /// The series.
    pub(super) fn data(&self) -> &Path {
        &self.data
    }

    /// The file of the samples.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Times of the samples, and instruments without one.
    pub(super) fn notes(&self) -> &[String] {
        &self.notes
    }
}

fn notes(latest: &Series) -> Vec<String> {
    let times = &latest.sample_time;
    let (first, last) = (times.iter().min(), times.iter().max());
    let span = first.zip(last).map(|(&first, &last)| {
        let samples = plural(times.len(), "sample");
        format!("{samples} from {} to {}, whose targets lie ahead", utc(first), utc(last))
    });
    let without = latest.instruments.as_ref().and_then(|instruments| {
        let has_sample = |place: usize| instruments.sample_instrument.contains(&(place as i32));
        let names = instruments.names.iter().enumerate().filter(|(place, _)| !has_sample(*place));
        let without: Vec<String> = names.map(|(_, name)| name.clone()).collect();
        (!without.is_empty()).then(|| format!("bars of {} end earlier: no sample is of them", listed(&without)))
    });
    span.into_iter().chain(without).collect()
}
