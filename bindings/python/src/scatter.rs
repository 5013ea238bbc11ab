//! Operations of `megabatch-segment` on tensors of PyTorch, which come as addresses: the Python
//! part, `_scatter_kernels.py`, has checked devices, types and sizes, made them contiguous and
//! allocated the results.

#![allow(unsafe_code, reason = "tensors come as addresses")]

use bytemuck::Pod;
use half::{bf16, f16};
use megabatch_run::Kind as ErrorKind;
use megabatch_segment::tensor::{
    self, ElementType, Extremum, ExtremumOutput, Fold, RowSegments, Schedule, Segments, Shape, Share, Softmax,
};
use megabatch_segment::{Error, Result};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;

use crate::failure::{exception, kind_error};
use crate::threads::in_threads;

/// Address, 0 for a tensor that is not there.
pub(crate) type Address = usize;

/// The type with a number of `_scatter_kernels.KINDS`.
pub(crate) fn element_type(number: usize) -> PyResult<ElementType> {
    ElementType::ALL.get(number).copied().ok_or_else(|| PyTypeError::new_err("no such type of numbers"))
}

/// Evaluates an expression with `E` as a type of numbers, which are floats.
macro_rules! with_float {
    ($kind:expr, $E:ident => $body:expr) => {
        match $kind {
            ElementType::F16 => {
                type $E = f16;
                $body
            }
            ElementType::Bf16 => {
                type $E = bf16;
                $body
            }
            ElementType::F64 => {
                type $E = f64;
                $body
            }
            _ => {
                type $E = f32;
                $body
            }
        }
    };
}

/// Evaluates an expression with `E` as a type of numbers.
macro_rules! with_element {
    ($kind:expr, $E:ident => $body:expr) => {
        match $kind {
            ElementType::I32 => {
                type $E = i32;
                $body
            }
            ElementType::I64 => {
                type $E = i64;
                $body
            }
            kind => with_float!(kind, $E => $body),
        }
    };
}

/// Folds, extrema and shares by the numbers that `_scatter_kernels.py` has for them.
pub(crate) const FOLDS: [Fold; 3] = [Fold::Sum, Fold::Mean, Fold::Product];
pub(crate) const EXTREMA: [Extremum; 2] = [Extremum::Max, Extremum::Min];
pub(crate) const SHARES: [Share; 2] = [Share::Whole, Share::Equal];

/// Softmax, or with `eps` its logarithm.
pub(crate) fn softmax(eps: Option<f64>) -> Softmax {
    eps.map_or(Softmax::Plain, |eps| Softmax::Logarithm { eps })
}

/// Numbers from which on threads are worth waking.
const POOL_NUMBERS: usize = 1 << 19;

/// Numbers from which on other threads of Python go on meanwhile.
const DETACHED_NUMBERS: usize = 1 << 12;

/// Runs `work` on `numbers` numbers: small ones on the calling thread.
fn run<T: Send>(py: Python<'_>, numbers: usize, threads: usize, work: impl FnOnce(Schedule) -> T + Send) -> T {
    if numbers < DETACHED_NUMBERS {
        return work(Schedule::CallingThread);
    }
    py.detach(|| match threads {
        2.. if numbers >= POOL_NUMBERS => in_threads(threads, || work(Schedule::Pool)),
        _ => work(Schedule::CallingThread),
    })
}

/// The tensor at an address, `len` numbers.
///
/// # Safety
/// There is such a tensor, contiguous, and it stays until the caller returns to Python. Nobody
/// writes to it meanwhile.
unsafe fn tensor<'a, T: Pod>(address: Address, len: usize) -> &'a [T] {
    if len == 0 {
        return &[];
    }
    assert_ne!(address, 0, "a tensor with numbers has memory");
    // SAFETY: the caller's promise; every bit pattern is a number.
    unsafe { std::slice::from_raw_parts(std::ptr::with_exposed_provenance(address), len) }
}

/// The tensor at an address, `len` numbers, to be written.
///
/// # Safety
/// As [`tensor`], and nobody else reads it meanwhile.
unsafe fn tensor_mut<'a, T: Pod>(address: Address, len: usize) -> &'a mut [T] {
    if len == 0 {
        return &mut [];
    }
    assert_ne!(address, 0, "a tensor with numbers has memory");
    advise_huge(address, len * size_of::<T>());
    // SAFETY: the caller's promise. PyTorch's memory that was not written yet has bits that are
    // numbers too.
    unsafe { std::slice::from_raw_parts_mut(std::ptr::with_exposed_provenance_mut(address), len) }
}

/// Bytes from which on huge pages are asked for.
const HUGE_BYTES: usize = 4 << 20;

/// Asks for huge pages for a new tensor: most of the time of writing it first goes to its pages.
fn advise_huge(address: Address, bytes: usize) {
    #[cfg(target_os = "linux")]
    if bytes >= HUGE_BYTES {
        let page = rustix::param::page_size();
        let start = address.next_multiple_of(page);
        let len = (address + bytes - start) / page * page;
        // SAFETY: the pages are those of a tensor, and what they hold stays as it is. A system
        // without huge pages refuses, and nothing is lost.
        let _ = unsafe {
            rustix::mm::madvise(std::ptr::with_exposed_provenance_mut(start), len, rustix::mm::Advice::LinuxHugepage)
        };
    }
    #[cfg(not(target_os = "linux"))]
    let _ = (address, bytes, HUGE_BYTES);
}

/// As [`tensor`], if there is one.
///
/// # Safety
/// As [`tensor`].
unsafe fn optional<'a, T: Pod>(address: Address, len: usize) -> Option<&'a [T]> {
    // SAFETY: the caller's promise.
    (address != 0).then(|| unsafe { tensor(address, len) })
}

/// One more than the greatest index of a tensor of 64-bit integers.
#[pyfunction]
#[pyo3(signature = (index, len, /))]
pub(crate) fn scatter_index_bound(index: Address, len: usize) -> usize {
    // SAFETY: the Python part hands over a tensor that it holds, of 64-bit integers.
    tensor::index_bound(unsafe { tensor(index, len) })
}

/// Writes the plan of an index into a tensor of `segments + 2 + rows` 32-bit integers.
#[pyfunction]
#[pyo3(signature = (index, rows, segments, plan, threads, /))]
pub(crate) fn scatter_plan(
    py: Python<'_>,
    index: Address,
    rows: usize,
    segments: usize,
    plan: Address,
    threads: usize,
) -> PyResult<()> {
    // SAFETY: the Python part hands over tensors that it holds, one of them new.
    let (index, plan) = unsafe { (tensor(index, rows), tensor_mut(plan, tensor::plan_len(rows, segments))) };
    let planned = run(py, rows, threads, |schedule| tensor::plan_from_index(index, segments, plan, schedule));
    or_raise(py, planned)
}

/// Refuses an index of `len` 64-bit integers that decreases.
#[pyfunction]
#[pyo3(signature = (index, len, /))]
pub(crate) fn scatter_check_sorted(py: Python<'_>, index: Address, len: usize) -> PyResult<()> {
    // SAFETY: the Python part hands over a tensor that it holds.
    or_raise(py, tensor::check_sorted(unsafe { tensor(index, len) }))
}

/// Writes the plan of `offsets` offsets of `rows` rows into a tensor of `offsets + 1 + rows` 32-bit
/// integers.
#[pyfunction]
#[pyo3(signature = (indptr, offsets, rows, plan, /))]
pub(crate) fn scatter_plan_from_offsets(
    py: Python<'_>,
    indptr: Address,
    offsets: usize,
    rows: usize,
    plan: Address,
) -> PyResult<()> {
    // SAFETY: the Python part hands over tensors that it holds, one of them new.
    let (indptr, plan) = unsafe { (tensor(indptr, offsets), tensor_mut(plan, offsets + 1 + rows)) };
    or_raise(py, tensor::plan_from_offsets(indptr, rows, plan))
}

/// The result, or the exception.
pub(crate) fn or_raise<T>(py: Python<'_>, result: Result<T>) -> PyResult<T> {
    result.map_err(|error| match error {
        Error::TooMany { .. } => kind_error(py, ErrorKind::Capacity, &error.to_string()),
        Error::Device(_) => exception(py, &error.into()),
        _ => kind_error(py, ErrorKind::Data, &error.to_string()),
    })
}

/// Segments of the rows of tensors `[batches, rows, columns]`, from a plan that
/// [`scatter_plan`] has written.
#[pyclass(frozen, module = "megabatch._megabatch")]
pub(crate) struct TensorSegments {
    plan: Address,
    segments: usize,
    shape: Shape,
    element: ElementType,
    threads: usize,
}

impl TensorSegments {
    fn rows_len(&self) -> usize {
        self.shape.batches * self.shape.rows * self.shape.columns
    }

    fn segments_len(&self) -> usize {
        self.shape.batches * self.segments * self.shape.columns
    }

    fn run(&self, py: Python<'_>, work: impl FnOnce(&Segments<'_>, Schedule) + Send) {
        // SAFETY: the Python part holds the plan while it calls.
        let plan = unsafe { tensor(self.plan, tensor::plan_len(self.shape.rows, self.segments)) };
        run(py, self.rows_len().max(self.segments_len()), self.threads, |schedule| {
            work(&Segments::new(plan, self.segments), schedule);
        });
    }
}

#[pymethods]
impl TensorSegments {
    #[new]
    #[pyo3(signature = (plan, segments, batches, rows, columns, kind, threads, /))]
    fn new(
        plan: Address,
        segments: usize,
        batches: usize,
        rows: usize,
        columns: usize,
        kind: usize,
        threads: usize,
    ) -> PyResult<Self> {
        Ok(TensorSegments {
            plan,
            segments,
            shape: Shape { batches, rows, columns },
            element: element_type(kind)?,
            threads,
        })
    }

    /// Sum (0), mean (1) or product (2) of the segments of `x` and of `base`.
    #[pyo3(signature = (which, x, base, out, /))]
    fn fold(&self, py: Python<'_>, which: usize, x: Address, base: Address, out: Address) {
        let fold = FOLDS[which];
        with_element!(self.element, E => {
            // SAFETY: the Python part holds the tensors, which have these sizes and this type, and
            // `out` is new.
            let (x, base, out) = unsafe {
                let base = optional::<E>(base, self.segments_len());
                (tensor::<E>(x, self.rows_len()), base, tensor_mut::<E>(out, self.segments_len()))
            };
            self.run(py, |segments, schedule| tensor::fold(fold, segments, self.shape, x, base, out, schedule));
        });
    }

    /// Maximum (0) or minimum (1) of the segments of `x` and of `base`, with its row.
    #[pyo3(signature = (which, x, base, values, arguments, /))]
    fn extremum(&self, py: Python<'_>, which: usize, x: Address, base: Address, values: Address, arguments: Address) {
        let which = EXTREMA[which];
        let len = self.segments_len();
        with_element!(self.element, E => {
            // SAFETY: as in `fold`; both results are new.
            let (x, base, out) = unsafe {
                let out = ExtremumOutput { values: tensor_mut::<E>(values, len), arguments: tensor_mut(arguments, len) };
                (tensor::<E>(x, self.rows_len()), optional::<E>(base, len), out)
            };
            self.run(py, |segments, schedule| tensor::extremum(which, segments, self.shape, x, base, out, schedule));
        });
    }

    /// The gradient of `extremum`.
    #[pyo3(signature = (arguments, d_out, d_x, /))]
    fn extremum_backward(&self, py: Python<'_>, arguments: Address, d_out: Address, d_x: Address) {
        let len = self.segments_len();
        with_element!(self.element, E => {
            // SAFETY: as in `fold`; the gradient is new.
            let (arguments, d_out, d_x) =
                unsafe { (tensor(arguments, len), tensor::<E>(d_out, len), tensor_mut::<E>(d_x, self.rows_len())) };
            self.run(py, |segments, schedule| {
                tensor::extremum_backward(segments, self.shape, arguments, d_out, d_x, schedule);
            });
        });
    }

    /// The numbers of each row's segment (0), or these over the number of its rows (1). Without an
    /// index the rows lie in the order of segments.
    #[pyo3(signature = (share, index, values, out, /))]
    fn gather(&self, py: Python<'_>, share: usize, index: Address, values: Address, out: Address) {
        let share = SHARES[share];
        with_element!(self.element, E => {
            // SAFETY: as in `fold`.
            let (index, values, out) = unsafe {
                let values = tensor::<E>(values, self.segments_len());
                (optional::<i64>(index, self.shape.rows), values, tensor_mut::<E>(out, self.rows_len()))
            };
            let row_segments = index.map_or(RowSegments::Offsets, RowSegments::Index);
            self.run(py, |segments, schedule| {
                tensor::gather(share, segments, row_segments, self.shape, values, out, schedule);
            });
        });
    }

    /// Softmax, or with `eps` its logarithm.
    #[pyo3(signature = (eps, x, y, /))]
    fn softmax(&self, py: Python<'_>, eps: Option<f64>, x: Address, y: Address) {
        let which = softmax(eps);
        with_float!(self.element, E => {
            // SAFETY: as in `fold`.
            let (x, y) = unsafe { (tensor::<E>(x, self.rows_len()), tensor_mut::<E>(y, self.rows_len())) };
            self.run(py, |segments, schedule| tensor::softmax(which, segments, self.shape, x, y, schedule));
        });
    }

    /// The gradient of `softmax`.
    #[pyo3(signature = (eps, y, d_y, d_x, /))]
    fn softmax_backward(&self, py: Python<'_>, eps: Option<f64>, y: Address, d_y: Address, d_x: Address) {
        let which = softmax(eps);
        let len = self.rows_len();
        with_float!(self.element, E => {
            // SAFETY: as in `fold`.
            let (y, d_y, d_x) = unsafe { (tensor::<E>(y, len), tensor::<E>(d_y, len), tensor_mut::<E>(d_x, len)) };
            self.run(py, |segments, schedule| {
                tensor::softmax_backward(which, segments, self.shape, y, d_y, d_x, schedule);
            });
        });
    }
}
