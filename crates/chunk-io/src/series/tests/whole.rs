//! Series files read whole, and files without a mark of verification. For tests.

use std::path::Path;

use megabatch_gpu_core::{Device, Scope};

use super::mark::GROUP;
use super::{Instruments, Series, SeriesFile, SeriesTimeframe, SeriesTimeframeFile};
use crate::error::{Error, Result};

impl SeriesFile {
    /// Everything that the file holds, the timeframes shortest first.
    ///
    /// # Errors
    /// [`Error::Hdf5`] if something cannot be read.
    pub fn read(&self) -> Result<Series> {
        self.load_index()?;
        let scope = Device::cpu().scope("series");
        let instruments = self.sample_instruments().map(|sample_instrument| Instruments {
            names: self.instruments().to_vec(),
            sample_instrument: sample_instrument.to_vec(),
        });
        let timeframes = self.timeframes().iter().map(|timeframe| timeframe.read(&scope));
        Ok(Series {
            timeframes: timeframes.collect::<Result<_>>()?,
            sample_time: self.sample_times().to_vec(),
            sample_reach_time: self.span_times().reach_times().unwrap_or_default().to_vec(),
            sample_label_end_time: self.span_times().label_end_times().unwrap_or_default().to_vec(),
            sample_weight: self.sample_weights().unwrap_or_default().to_vec(),
            targets: self.targets_table().read_f32_buffer(&scope)?.as_slice().to_vec(),
            instruments,
            attributes: self.attributes()?,
        })
    }
}

impl SeriesTimeframeFile {
    fn read(&self, scope: &Scope) -> Result<SeriesTimeframe> {
        Ok(SeriesTimeframe {
            name: self.name().to_owned(),
            steps: self.steps(),
            feature_names: self.feature_names().to_vec(),
            values: self.values_table().read_f32_buffer(scope)?.as_slice().to_vec(),
            close_time: self.close_times().to_vec(),
            sample_end: self.sample_ends().to_vec(),
            instrument_start: self.instrument_starts().to_vec(),
            segment_start: self.segment_starts().to_vec(),
            scaler: self.scaler().cloned(),
        })
    }
}

/// Deletes the mark of verification of the file at `path`, as a file has none that another program
/// wrote.
///
/// # Errors
/// [`Error::Hdf5`] for a file that is not writable or has no mark.
pub fn remove_mark(path: impl AsRef<Path>) -> Result<()> {
    let path = path.as_ref();
    let file = hdf5::File::open_rw(path).map_err(Error::hdf5(path, "/", "open the file"))?;
    file.unlink(GROUP).map_err(Error::hdf5(path, GROUP, "delete the group"))?;
    file.close().map_err(Error::hdf5(path, "/", "close the file"))
}
