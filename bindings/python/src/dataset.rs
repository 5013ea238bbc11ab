//! A data file.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::slice;
use std::sync::Arc;

use megabatch_run::config::SettingSources;
use megabatch_run::dataset::{Dataset as DataFile, Partition, SampleRanges, WindowsAt};
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes};

use crate::convert::{Facts, bytes_of, index_bytes, serialized};
use crate::failure::OrRaise as _;
use crate::host::log_note;
use crate::process;

/// An open data file.
#[pyclass(frozen, module = "megabatch._megabatch")]
pub(crate) struct Dataset {
    pub(crate) file: Arc<DataFile>,
}

/// Samples for training, validation and the test, and the number that was left out.
type Parts<'py> = (Bound<'py, PyBytes>, Bound<'py, PyBytes>, Bound<'py, PyBytes>, usize);

/// Kind, centers, scales and the end of the span.
type ScalerNumbers<'py> = (String, Bound<'py, PyByteArray>, Bound<'py, PyByteArray>, i64);

fn parts<'py>(py: Python<'py>, partition: &Partition) -> Parts<'py> {
    let Partition { train, validation, test, purged, .. } = partition;
    let bytes = |part: &SampleRanges| index_bytes(py, part.iter());
    (bytes(train), bytes(validation), bytes(test), *purged)
}

/// Sends the warnings of `partitions` to the log, each once.
fn log_warnings(py: Python<'_>, partitions: &[Partition]) -> PyResult<()> {
    let warnings: BTreeSet<&String> = partitions.iter().flat_map(|partition| &partition.warnings).collect();
    warnings.into_iter().try_for_each(|warning| log_note(py, &format!("warning: {warning}")))
}

#[pymethods]
impl Dataset {
    #[new]
    #[pyo3(signature = (path, *, resident))]
    fn new(py: Python<'_>, path: PathBuf, resident: bool) -> PyResult<Self> {
        process::check(py)?;
        let at = if resident { WindowsAt::Memory } else { WindowsAt::Disk };
        let file = py.detach(|| DataFile::open(&path, at)).or_raise(py)?;
        Ok(Dataset { file: Arc::new(file) })
    }

    /// Description of the file.
    fn facts<'py>(&self, py: Python<'py>) -> PyResult<Facts<'py>> {
        serialized(py, &self.file.facts().or_raise(py)?)
    }

    /// Number of units that a split divides.
    fn units(&self) -> usize {
        self.file.units()
    }

    /// Time of each sample, 64-bit integers, ns since 1970 UTC.
    fn sample_times<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyByteArray>> {
        self.file.sample_times().map(|times| bytes_of(py, times))
    }

    /// Weight of each sample, in single precision.
    fn sample_weights<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyByteArray>> {
        self.file.sample_weights().map(|weights| bytes_of(py, weights))
    }

    /// Index of each sample's instrument, 32-bit integers.
    fn sample_instruments<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyByteArray>> {
        self.file.sample_instruments().map(|instruments| bytes_of(py, instruments))
    }

    /// The bars of the `k`-th timeframe of a series, in single precision, and the last bar of each
    /// sample's window, 64-bit integers.
    fn series_bars<'py>(
        &self,
        py: Python<'py>,
        k: usize,
    ) -> Option<(Bound<'py, PyByteArray>, Bound<'py, PyByteArray>)> {
        let bars = self.file.series_bars(k)?;
        Some((bytes_of(py, bars.values), bytes_of(py, bars.last_bars)))
    }

    /// Kind of the scaler of the `k`-th timeframe of a series, its centers and scales, 64-bit
    /// floats, and the end of the span that it was fitted on, ns since 1970 UTC.
    fn scaler<'py>(&self, py: Python<'py>, k: usize) -> Option<ScalerNumbers<'py>> {
        let scaler = self.file.scaler(k)?;
        Some((scaler.kind.clone(), bytes_of(py, &scaler.center), bytes_of(py, &scaler.scale), scaler.fit_end_time))
    }

    /// Targets of a series, in single precision.
    fn series_targets<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyByteArray>> {
        self.file.series_targets().map(|targets| bytes_of(py, targets))
    }

    /// A hash of the numbers of the file.
    fn fingerprint(&self, py: Python<'_>) -> PyResult<String> {
        process::check(py)?;
        py.detach(|| self.file.fingerprint()).or_raise(py)
    }

    /// The hash of its numbers that a series has in itself.
    fn marked_fingerprint(&self) -> Option<&str> {
        self.file.marked_fingerprint()
    }

    /// The split of training with the settings `set`.
    fn split<'py>(&self, py: Python<'py>, file: Option<PathBuf>, set: Vec<String>) -> PyResult<Parts<'py>> {
        process::check(py)?;
        let settings = SettingSources { file, set };
        let partition = py.detach(|| self.file.split(&settings)).or_raise(py)?;
        log_warnings(py, slice::from_ref(&partition))?;
        Ok(parts(py, &partition))
    }

    /// The split of each fold of a walk forward.
    fn walk_forward<'py>(&self, py: Python<'py>, file: Option<PathBuf>, set: Vec<String>) -> PyResult<Vec<Parts<'py>>> {
        process::check(py)?;
        let settings = SettingSources { file, set };
        let folds = py.detach(|| self.file.walk_forward(&settings)).or_raise(py)?;
        log_warnings(py, &folds)?;
        Ok(folds.iter().map(|fold| parts(py, fold)).collect())
    }
}
