//! PyTorch's memory from megabatch's pool.

use std::path::PathBuf;

use megabatch_run::Kind;
use megabatch_torch_pool::{Callbacks, Error, PoolSettings, TorchMemory, install};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use serde_json::{Value, json};

use crate::convert::{Facts, facts};
use crate::failure::{byte_size, kind_error};

/// The pool of this process.
#[pyclass(frozen, module = "megabatch._megabatch")]
pub(crate) struct TorchPool {
    pool: &'static megabatch_torch_pool::TorchPool,
    callbacks: Callbacks,
}

#[pymethods]
impl TorchPool {
    #[new]
    #[pyo3(signature = (*, stitching, budget, leave))]
    fn new(py: Python<'_>, stitching: bool, budget: Option<String>, leave: String) -> PyResult<Self> {
        let bytes = |text: String, name: &str| -> PyResult<usize> {
            if text.trim() == "0" {
                return Ok(0);
            }
            byte_size(py, name, &text)
        };
        let settings = PoolSettings {
            stitching,
            budget_bytes: budget.map(|text| bytes(text, "budget")).transpose()?,
            leave_bytes: bytes(leave, "leave")?,
        };
        let (pool, callbacks) = install(settings).map_err(|error| exception(py, &error))?;
        Ok(TorchPool { pool, callbacks })
    }

    /// Addresses of the functions for PyTorch, by what they do.
    fn callbacks(&self) -> Vec<(&'static str, usize)> {
        let Callbacks { malloc, free, record_stream, reset, memory_fraction, base_alloc, begin_allocate_to_pool } =
            self.callbacks;
        vec![
            ("malloc", malloc),
            ("free", free),
            ("record_stream", record_stream),
            ("reset", reset),
            ("memory_fraction", memory_fraction),
            ("base_alloc", base_alloc),
            ("begin_allocate_to_pool", begin_allocate_to_pool),
        ]
    }

    /// Counters and owners of a GPU's memory.
    fn memory<'py>(&self, py: Python<'py>, device: u32) -> PyResult<Facts<'py>> {
        let memory = py.detach(|| self.pool.memory(device)).map_err(|error| exception(py, &error))?;
        facts(py, &memory_facts(&memory))
    }

    /// Resets the peaks.
    fn reset_peak(&self, py: Python<'_>, device: u32) -> PyResult<()> {
        py.detach(|| self.pool.reset_peak(device)).map_err(|error| exception(py, &error))
    }

    /// A pickle for PyTorch's memory viewer.
    fn snapshot<'py>(&self, py: Python<'py>, device: u32) -> PyResult<Bound<'py, PyBytes>> {
        let pickle = py.detach(|| self.pool.snapshot(device)).map_err(|error| exception(py, &error))?;
        Ok(PyBytes::new(py, &pickle))
    }

    /// Records allocations from now on, also to a file.
    fn record(&self, py: Python<'_>, device: u32, trace: Option<PathBuf>) -> PyResult<()> {
        py.detach(|| self.pool.record(device, trace.as_deref())).map_err(|error| exception(py, &error))
    }

    /// Ends the file.
    fn finish_trace(&self, py: Python<'_>, device: u32, trace: PathBuf) -> PyResult<()> {
        py.detach(|| self.pool.finish_trace(device, &trace)).map_err(|error| exception(py, &error))
    }

    /// Owner of what is allocated from now on.
    fn enter_scope(&self, label: &str) {
        self.pool.enter_scope(label);
    }

    /// Ends the scope that was entered last.
    fn leave_scope(&self) {
        self.pool.leave_scope();
    }

    /// Ends a step.
    fn step(&self, py: Python<'_>) {
        py.detach(|| self.pool.step());
    }

    /// Growth by owner, if it is worth a warning.
    fn epoch<'py>(&self, py: Python<'py>, device: u32) -> PyResult<Option<Facts<'py>>> {
        let leak = py.detach(|| self.pool.epoch(device)).map_err(|error| exception(py, &error))?;
        leak.map(|leak| facts(py, &json!(leak))).transpose()
    }
}

fn memory_facts(memory: &TorchMemory) -> Value {
    let TorchMemory { stats, counts, owners } = memory;
    let owners = owners.iter().map(|(owner, usage)| {
        let facts = json!({
            "allocated_bytes": usage.allocated_bytes,
            "allocated_bytes_peak": usage.allocated_bytes_peak,
            "blocks": usage.buffers,
            "allocations_total": usage.allocations_total,
        });
        (owner.clone(), facts)
    });
    json!({
        "capacity_bytes": counts.capacity_bytes,
        "requested_bytes": stats.requested_bytes.now,
        "requested_bytes_peak": stats.requested_bytes.peak,
        "allocated_bytes": stats.allocated_bytes.now,
        "allocated_bytes_peak": stats.allocated_bytes.peak,
        "reserved_bytes": stats.reserved_bytes.now,
        "reserved_bytes_peak": stats.reserved_bytes.peak,
        "inactive_split_bytes": stats.inactive_split_bytes.now,
        "inactive_split_bytes_peak": stats.inactive_split_bytes.peak,
        "largest_free_block_bytes": counts.largest_free_block_bytes,
        "blocks": stats.blocks.now,
        "blocks_peak": stats.blocks.peak,
        "allocations_total": stats.allocations_total,
        "shortages_total": stats.shortages_total,
        "stitches_total": stats.stitches_total,
        "driver_calls_total": stats.driver_calls_total,
        "owners": owners.collect::<serde_json::Map<_, _>>(),
    })
}

fn exception(py: Python<'_>, error: &Error) -> PyErr {
    let kind = match error {
        Error::Installed | Error::Fraction { .. } => Kind::Usage,
        Error::Trace { .. } => Kind::Failed,
        Error::Shortage(_) => Kind::Capacity,
        _ => Kind::Device,
    };
    kind_error(py, kind, &error.to_string())
}
