//! Operations of `megabatch-segment` on tensors of PyTorch on a GPU, as `scatter.rs` has them for
//! the CPU. Work is submitted to PyTorch's current stream, and workspaces are PyTorch's.

#![allow(unsafe_code, reason = "tensors come as addresses")]

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use megabatch_segment::cuda::{
    GpuSegments, TensorGpu, TensorStream, plan_from_index, plan_from_offsets, plan_workspace_bytes,
};
use megabatch_segment::tensor::{ElementType, Shape};
use megabatch_segment::{Error, Result};
use pyo3::prelude::*;

use crate::scatter::{Address, EXTREMA, FOLDS, SHARES, element_type, or_raise, softmax};

/// The GPUs that tensors were on. They stay, as kernels of theirs may still run when a program
/// ends.
static GPUS: Mutex<BTreeMap<u32, &'static TensorGpu>> = Mutex::new(BTreeMap::new());

fn gpu(ordinal: u32) -> Result<&'static TensorGpu> {
    let mut gpus = GPUS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(gpu) = gpus.get(&ordinal) {
        return Ok(gpu);
    }
    let gpu: &'static TensorGpu = Box::leak(Box::new(TensorGpu::open(ordinal)?));
    gpus.insert(ordinal, gpu);
    Ok(gpu)
}

/// A stream of a GPU, unless kernels have found something wrong there.
fn stream(device: u32, handle: u64) -> Result<TensorStream<'static>> {
    let gpu = gpu(device)?;
    gpu.fault()?;
    Ok(TensorStream { gpu, handle })
}

/// Bytes that [`scatter_gpu_plan`] works with.
#[pyfunction]
#[pyo3(signature = (rows, /))]
pub(crate) fn scatter_gpu_plan_bytes(rows: usize) -> usize {
    plan_workspace_bytes(rows)
}

/// Writes the plan of an index into a tensor of `segments + 2 + rows` 32-bit integers.
#[pyfunction]
#[pyo3(signature = (device, handle, index, rows, segments, expects_sorted, plan, workspace, /))]
#[allow(clippy::too_many_arguments, reason = "Python's arguments")]
pub(crate) fn scatter_gpu_plan(
    py: Python<'_>,
    device: u32,
    handle: u64,
    index: Address,
    rows: usize,
    segments: usize,
    expects_sorted: bool,
    plan: Address,
    workspace: Address,
) -> PyResult<()> {
    let planned = stream(device, handle).and_then(|stream| {
        // SAFETY: the Python part hands over tensors of these sizes, which PyTorch keeps in the
        // order of the stream; two of them are new.
        unsafe { plan_from_index(stream, index as u64, rows, segments, expects_sorted, plan as u64, workspace as u64) }
    });
    or_raise(py, planned)
}

/// Writes the plan of `offsets` offsets of `rows` rows into a tensor of `offsets + 1 + rows` 32-bit
/// integers.
#[pyfunction]
#[pyo3(signature = (device, handle, indptr, offsets, rows, plan, /))]
pub(crate) fn scatter_gpu_plan_from_offsets(
    py: Python<'_>,
    device: u32,
    handle: u64,
    indptr: Address,
    offsets: usize,
    rows: usize,
    plan: Address,
) -> PyResult<()> {
    let planned = stream(device, handle).and_then(|stream| {
        let segments = offsets.checked_sub(1).ok_or(Error::NoOffsets { array: "indptr", segments: 0 })?;
        // SAFETY: as in `scatter_gpu_plan`.
        unsafe { plan_from_offsets(stream, indptr as u64, segments, rows, plan as u64) }
    });
    or_raise(py, planned)
}

/// Raises what kernels have found wrong that have run on a GPU.
#[pyfunction]
#[pyo3(signature = (device, /))]
pub(crate) fn scatter_gpu_fault(py: Python<'_>, device: u32) -> PyResult<()> {
    or_raise(py, gpu(device).and_then(TensorGpu::fault))
}

/// Segments of the rows of tensors `[batches, rows, columns]` on a GPU, from a plan that
/// [`scatter_gpu_plan`] has written. `allocate` gives a tensor of so many bytes.
#[pyclass(frozen, module = "megabatch._megabatch")]
pub(crate) struct GpuTensorSegments {
    stream: TensorStream<'static>,
    plan: Address,
    segments: usize,
    shape: Shape,
    element: ElementType,
    allocate: Py<PyAny>,
}

impl GpuTensorSegments {
    fn segments(&self) -> GpuSegments<'static> {
        let GpuTensorSegments { stream, segments, shape, element, .. } = *self;
        GpuSegments { stream, plan: self.plan as u64, segments, shape, element }
    }

    /// Runs `work` with the address of a workspace. PyTorch gives its memory to nobody but later
    /// work of the stream.
    fn run(&self, py: Python<'_>, bytes: usize, work: impl FnOnce(u64) -> Result<()>) -> PyResult<()> {
        if bytes == 0 {
            return or_raise(py, work(0));
        }
        let workspace = self.allocate.bind(py).call1((bytes,))?;
        let address = workspace.call_method0("data_ptr")?.extract()?;
        or_raise(py, work(address))
    }
}

#[pymethods]
impl GpuTensorSegments {
    #[new]
    #[pyo3(signature = (device, handle, allocate, plan, segments, batches, rows, columns, kind, /))]
    #[allow(clippy::too_many_arguments, reason = "Python's arguments")]
    fn new(
        py: Python<'_>,
        device: u32,
        handle: u64,
        allocate: Py<PyAny>,
        plan: Address,
        segments: usize,
        batches: usize,
        rows: usize,
        columns: usize,
        kind: usize,
    ) -> PyResult<Self> {
        let (stream, element) = (or_raise(py, stream(device, handle))?, element_type(kind)?);
        Ok(GpuTensorSegments { stream, plan, segments, shape: Shape { batches, rows, columns }, element, allocate })
    }

    /// As `TensorSegments.fold`.
    #[pyo3(signature = (which, x, base, out, /))]
    fn fold(&self, py: Python<'_>, which: usize, x: Address, base: Address, out: Address) -> PyResult<()> {
        let segments = self.segments();
        self.run(py, segments.fold_bytes(), |workspace| {
            // SAFETY: the Python part holds the tensors, which have these sizes and this type, and
            // `out` is new. PyTorch keeps their memory in the order of the stream.
            unsafe { segments.fold(FOLDS[which], x as u64, base as u64, out as u64, workspace) }
        })
    }

    /// As `TensorSegments.extremum`.
    #[pyo3(signature = (which, x, base, values, arguments, /))]
    fn extremum(
        &self,
        py: Python<'_>,
        which: usize,
        x: Address,
        base: Address,
        values: Address,
        arguments: Address,
    ) -> PyResult<()> {
        let segments = self.segments();
        self.run(py, segments.extremum_bytes(), |workspace| {
            let [x, base, values, arguments] = [x, base, values, arguments].map(|address| address as u64);
            // SAFETY: as in `fold`; both results are new.
            unsafe { segments.extremum(EXTREMA[which], x, base, values, arguments, workspace) }
        })
    }

    /// As `TensorSegments.extremum_backward`; the numbers of `d_x` are 0 before.
    #[pyo3(signature = (arguments, d_out, d_x, /))]
    fn extremum_backward(&self, py: Python<'_>, arguments: Address, d_out: Address, d_x: Address) -> PyResult<()> {
        self.run(py, 0, |_| {
            // SAFETY: as in `fold`; the gradient is new.
            unsafe { self.segments().extremum_backward(arguments as u64, d_out as u64, d_x as u64) }
        })
    }

    /// As `TensorSegments.gather`.
    #[pyo3(signature = (share, index, values, out, /))]
    fn gather(&self, py: Python<'_>, share: usize, index: Address, values: Address, out: Address) -> PyResult<()> {
        self.run(py, 0, |_| {
            // SAFETY: as in `fold`.
            unsafe { self.segments().gather(SHARES[share], index as u64, values as u64, out as u64) }
        })
    }

    /// As `TensorSegments.softmax`.
    #[pyo3(signature = (eps, x, y, /))]
    fn softmax(&self, py: Python<'_>, eps: Option<f64>, x: Address, y: Address) -> PyResult<()> {
        let segments = self.segments();
        self.run(py, segments.softmax_bytes(), |workspace| {
            // SAFETY: as in `fold`.
            unsafe { segments.softmax(softmax(eps), x as u64, y as u64, workspace) }
        })
    }

    /// As `TensorSegments.softmax_backward`.
    #[pyo3(signature = (eps, y, d_y, d_x, /))]
    fn softmax_backward(
        &self,
        py: Python<'_>,
        eps: Option<f64>,
        y: Address,
        d_y: Address,
        d_x: Address,
    ) -> PyResult<()> {
        let segments = self.segments();
        self.run(py, segments.softmax_bytes(), |workspace| {
            // SAFETY: as in `fold`.
            unsafe { segments.softmax_backward(softmax(eps), y as u64, d_y as u64, d_x as u64, workspace) }
        })
    }
}
