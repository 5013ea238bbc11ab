//! Batches of a data file.

use std::sync::{Arc, Mutex, PoisonError};

use megabatch_run::dataset::{
    BatchLoader, BatchOptions, EpochBatches, GatheredBatch, LastBatch, Rows, SampleRanges, SampleVisit, WindowView,
};
use pyo3::exceptions::PyBufferError;
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyString};

use crate::convert::{Arrays, Named, bytes_of, index_bytes, indices};
use crate::dataset::Dataset;
use crate::failure::OrRaise as _;
use crate::memory::Capsule;
use crate::{arrays, memory, process};

/// Options of a loader.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct Options {
    batch_size: usize,
    shuffle: bool,
    seed: u64,
    run_length: Option<usize>,
    drop_last: bool,
    rank: usize,
    world_size: usize,
    overlap: bool,
    chunk_bytes: usize,
}

/// The batches of samples of a data file.
#[pyclass(frozen, module = "megabatch._megabatch")]
pub(crate) struct Loader {
    loader: BatchLoader,
    keys: Arc<[Py<PyString>]>,
}

#[pymethods]
impl Loader {
    /// The batches of `samples`, 64-bit integers; all if `None`. Their tables have `keys`: those of
    /// the timeframes, then that of the targets.
    #[new]
    fn new(
        py: Python<'_>,
        dataset: &Dataset,
        samples: Option<&[u8]>,
        keys: Vec<Py<PyString>>,
        options: Named<Options>,
    ) -> PyResult<Self> {
        process::check(py)?;
        let samples = match samples {
            Some(bytes) => indices(bytes)?,
            None => SampleRanges::from(0..dataset.file.units()),
        };
        let Named(options) = options;
        let Options { seed, run_length, .. } = options;
        let visit = match options.shuffle {
            true => SampleVisit::Shuffled { seed, run_length },
            false => SampleVisit::Sequential,
        };
        let options = BatchOptions {
            batch_size: options.batch_size,
            visit,
            last_batch: if options.drop_last { LastBatch::Drop } else { LastBatch::Keep },
            rank: options.rank,
            world_size: options.world_size,
            chunk_bytes: options.chunk_bytes,
            windows: if options.overlap { WindowView::StridedWherePossible } else { WindowView::Copied },
        };
        let loader = py.detach(|| BatchLoader::new(&dataset.file, samples, options)).or_raise(py)?;
        Ok(Loader { loader, keys: keys.into() })
    }

    /// Batches in an epoch.
    fn batches_per_epoch(&self) -> u64 {
        self.loader.batches_per_epoch()
    }

    /// Consecutive samples that stay together.
    fn run_length(&self) -> Option<usize> {
        self.loader.run_length()
    }

    /// The batches of `epoch` from batch `first` on.
    fn epoch(&self, py: Python<'_>, epoch: u64, first: u64) -> PyResult<Epoch> {
        process::check(py)?;
        let batches = py.detach(|| self.loader.epoch(epoch, first)).or_raise(py)?;
        Ok(Epoch { batches: Some(Mutex::new(batches)), keys: Arc::clone(&self.keys) })
    }

    /// The samples of the batches of `epoch` from batch `first` on.
    fn epoch_samples(&self, py: Python<'_>, epoch: u64, first: u64) -> PyResult<EpochSamples> {
        process::check(py)?;
        Ok(EpochSamples { lists: Mutex::new(Box::new(self.loader.sample_lists(epoch, first))) })
    }

    /// Gathers the batches of `epoch` and counts their samples: the reference for the speed of
    /// Python.
    fn drain(&self, py: Python<'_>, epoch: u64) -> PyResult<usize> {
        process::check(py)?;
        let drained = py.detach(|| {
            let (mut batches, mut samples) = (self.loader.epoch(epoch, 0)?, 0);
            // As in a loop of Python, a batch is there until the next one is.
            let mut held = batches.next_batch()?;
            while let Some(batch) = &held {
                samples += batch.samples().len();
                held = batches.next_batch()?;
            }
            Ok(samples)
        });
        drained.or_raise(py)
    }
}

/// The batches of an epoch.
#[pyclass(frozen, module = "megabatch._megabatch")]
pub(crate) struct Epoch {
    /// `None` while it is dropped.
    batches: Option<Mutex<EpochBatches>>,
    keys: Arc<[Py<PyString>]>,
}

impl Epoch {
    fn next(&self, py: Python<'_>) -> PyResult<Option<GatheredBatch>> {
        process::check(py)?;
        let next = py.detach(|| {
            let batches = self.batches.as_ref().expect("an object that is called is not dropped");
            batches.lock().unwrap_or_else(PoisonError::into_inner).next_batch()
        });
        next.or_raise(py)
    }
}

/// The samples of an epoch's batches.
#[pyclass(frozen, module = "megabatch._megabatch")]
pub(crate) struct EpochSamples {
    lists: Mutex<Box<dyn Iterator<Item = Vec<usize>> + Send>>,
}

#[pymethods]
impl EpochSamples {
    /// The samples of the next batch, 64-bit integers; `None` after the last.
    fn next_samples<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyByteArray>> {
        let samples = self.lists.lock().unwrap_or_else(PoisonError::into_inner).next()?;
        let numbers: Vec<i64> = samples.into_iter().map(|sample| sample as i64).collect();
        Some(bytes_of(py, &numbers))
    }
}

/// The samples of a batch, 64-bit integers, and its tables: timeframes, then the targets.
type Batch<'py> = (Bound<'py, PyBytes>, Vec<Table>);

#[pymethods]
impl Epoch {
    /// The next batch as arrays by key; `None` after the last.
    fn next_arrays<'py>(&self, py: Python<'py>) -> PyResult<Option<Arrays<'py>>> {
        self.next(py)?.map(|batch| arrays::arrays(py, batch, &self.keys, false)).transpose()
    }

    /// The next batch as arrays by key that may be written, but for windows in the memory of the
    /// data file; `None` after the last.
    fn next_writable_arrays<'py>(&self, py: Python<'py>) -> PyResult<Option<Arrays<'py>>> {
        self.next(py)?.map(|batch| arrays::arrays(py, batch, &self.keys, true)).transpose()
    }

    /// The next batch as tables to be taken over; `None` after the last.
    fn next_tables<'py>(&self, py: Python<'py>) -> PyResult<Option<Batch<'py>>> {
        let Some(batch) = self.next(py)?.map(Arc::new) else { return Ok(None) };
        let targets = batch.tables() - 1;
        let timeframes = (0..targets).map(|k| batch.windows(k));
        let tables = timeframes.chain([batch.targets()]).map(|rows| Table { rows, batch: Arc::clone(&batch) });
        Ok(Some((index_bytes(py, batch.samples().iter().copied()), tables.collect())))
    }
}

impl Drop for Epoch {
    fn drop(&mut self) {
        // The thread that it would wait for is not in a forked process.
        if process::is_forked() {
            std::mem::forget(self.batches.take());
        }
    }
}

/// A table of a batch, windows `[B, T, F]` or targets `[B, K]`, which others take over by DLPack.
#[pyclass(frozen, module = "megabatch._megabatch")]
pub(crate) struct Table {
    rows: Rows,
    batch: Arc<GatheredBatch>,
}

#[pymethods]
impl Table {
    /// The memory as a capsule of DLPack.
    #[pyo3(signature = (*, stream=None, max_version=None, dl_device=None, copy=None))]
    fn __dlpack__<'py>(
        &self,
        py: Python<'py>,
        stream: Option<Bound<'py, PyAny>>,
        max_version: Option<Bound<'py, PyAny>>,
        dl_device: Option<(i32, i32)>,
        copy: Option<bool>,
    ) -> PyResult<Capsule<'py>> {
        drop((stream, max_version));
        if dl_device.is_some_and(|device| device != self.__dlpack_device__()) {
            return Err(PyBufferError::new_err("a batch is in memory of the CPU; copy its tensor to the device"));
        }
        if copy == Some(true) {
            return Err(PyBufferError::new_err("a batch has memory of its own; copy its tensor if two are needed"));
        }
        if self.rows.is_of_the_file {
            return Err(PyBufferError::new_err(
                "these windows are seen in the memory of the data file, which a tensor could write to; leave overlap \
                 at False",
            ));
        }
        memory::export(py, &self.rows, &self.batch)
    }

    /// Type and number of the device.
    fn __dlpack_device__(&self) -> (i32, i32) {
        (memory::CPU, 0)
    }
}
