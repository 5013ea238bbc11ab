//! The scalers of a series file, for export.

use std::path::Path;

use megabatch_chunk_io::{NonFinite, Scaler, SeriesFile};
use megabatch_gpu_core::Device;
use megabatch_nn::model::{Model, Timeframe};

use super::onnx::Scaling;
use crate::adapters::data::Data;
use crate::error::{Error, Result};
use crate::host::Host;
use crate::run_folder::RunFolder;
use crate::trained::{change, own_data_path, require_same_meaning};

/// Source of scalers.
#[derive(Clone, Copy)]
pub(super) struct Origin<'a> {
    /// The data that the run was trained on if `None`.
    pub(super) data: Option<&'a Path>,
    /// Instrument of the scalers, if each has its own.
    pub(super) instrument: Option<&'a str>,
}

/// Scalers of the features of each timeframe of `model`, that of the run in `folder`.
pub(super) fn scalers(folder: &RunFolder, model: &Model, origin: Origin<'_>, host: &Host<'_>) -> Result<Vec<Scaling>> {
    let config = folder.config(&[])?;
    let path = own_data_path(folder, &config, origin.data)?;
    let data = Data::open(&path, &config, &Device::cpu(), NonFinite::Fail, host)?;
    require_same_meaning(folder, &data)?;
    if let Some(change) = change(folder, &data, host)?.filter(|_| origin.data.is_none()) {
        host.observer.note(&change);
    }
    let path = data.path();
    let Some(series) = data.source().and_then(|source| source.series()) else {
        return Err(Error::data(format!(
            "{}: windows have no scaler for --fold-scaler; a series as `megabatch ingest` writes it has one",
            path.display()
        )));
    };
    let stored = Stored { path, file: series.file(), instrument: origin.instrument };
    model.shape().timeframes.iter().map(|timeframe| stored.scaling(timeframe)).collect()
}

/// The scalers of one instrument in a file.
struct Stored<'a> {
    path: &'a Path,
    file: &'a SeriesFile,
    instrument: Option<&'a str>,
}

impl Stored<'_> {
    fn scaling(&self, timeframe: &Timeframe) -> Result<Scaling> {
        let Timeframe { name, features, .. } = timeframe;
        let path = self.path.display();
        let timeframe = self.file.timeframes().iter().find(|stored| stored.name() == name);
        let Some(Scaler { center, scale, .. }) = timeframe.and_then(|stored| stored.scaler()) else {
            return Err(Error::data(format!(
                "{path}: no /scaler/{name} for --fold-scaler: nothing says that its features were scaled"
            )));
        };
        if center.len() % features != 0 || center.is_empty() {
            let found = center.len();
            return Err(Error::data(format!(
                "{path}: /scaler/{name} has {found} centres, and the model {features} features"
            )));
        }
        let row = self.row(center.len() / features)?;
        let own = |values: &[f64]| values[row * features..][..*features].to_vec();
        Ok(Scaling { center: own(center), scale: own(scale) })
    }

    /// The row of the instrument out of `count`.
    fn row(&self, count: usize) -> Result<usize> {
        let (path, instruments) = (self.path.display(), self.file.instruments());
        let names = instruments.join(", ");
        let Some(name) = self.instrument else {
            return match count {
                1 => Ok(0),
                _ => Err(Error::usage(format!(
                    "{path}: each instrument has a scaler of its own; --instrument says whose: {names}"
                ))),
            };
        };
        match instruments.iter().position(|instrument| instrument == name) {
            // One row may be that of all instruments.
            Some(row) => Ok(row.min(count - 1)),
            None => Err(Error::usage(format!(
                "--instrument {name}: {path} has {}",
                if names.is_empty() { "one without a name" } else { &names }
            ))),
        }
    }
}
