//! Arrays of numpy on memory of a batch, by numpy's interface of C,
//! <https://numpy.org/doc/stable/reference/c-api/array.html>: its functions are in a table whose
//! order no version changes. One call makes all arrays of a batch; by `__array_interface__` each
//! would ask for five attributes.
#![allow(unsafe_code, reason = "numpy's table is an interface of C")]

use std::ffi::{c_int, c_long, c_void};

use megabatch_run::dataset::GatheredBatch;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyCapsule, PyDict, PyString};

use crate::convert::Arrays;

/// `NPY_FLOAT`.
const FLOAT32: c_int = 11;
/// `NPY_LONG` where C's long has 64 bits, else `NPY_LONGLONG`.
const INT64: c_int = if size_of::<c_long>() == 8 { 7 } else { 9 };

/// `PyArray_New`: type, dimensions, shape, type of the numbers, strides, data, size of a number (of
/// types that have several), flags, and an array to be like.
type NewArray = unsafe extern "C" fn(
    *mut ffi::PyTypeObject,
    c_int,
    *const isize,
    c_int,
    *const isize,
    *mut c_void,
    c_int,
    c_int,
    *mut ffi::PyObject,
) -> *mut ffi::PyObject;

/// `PyArray_SetBaseObject`, which takes over the reference to the base.
type SetBase = unsafe extern "C" fn(*mut ffi::PyObject, *mut ffi::PyObject) -> c_int;

/// Functions of numpy.
struct Numpy {
    array_type: usize,
    new_array: NewArray,
    set_base: SetBase,
}

static NUMPY: PyOnceLock<Numpy> = PyOnceLock::new();

impl Numpy {
    /// Finds numpy's table, where its second or its first version has it.
    fn find(py: Python<'_>) -> PyResult<Self> {
        let second_api = py.import("numpy._core.multiarray").and_then(|module| module.getattr("_ARRAY_API"));
        let table = second_api.or_else(|_| py.import("numpy.core.multiarray")?.getattr("_ARRAY_API"))?;
        let table = table.cast::<PyCapsule>()?.pointer_checked(None)?.cast::<*const c_void>();
        // SAFETY: the capsule is numpy's table of pointers, which numpy never frees. Its entries 2,
        // 93 and 282 are `PyArray_Type` and the two functions in every version since 1.7, and the
        // module needs 1.23.
        unsafe {
            Ok(Numpy {
                array_type: table.add(2).read() as usize,
                new_array: std::mem::transmute::<*const c_void, NewArray>(table.add(93).read()),
                set_base: std::mem::transmute::<*const c_void, SetBase>(table.add(282).read()),
            })
        }
    }

    /// A read-only array of memory that `held` keeps.
    fn read_only<'py>(&self, held: &Bound<'py, HeldBatch>, numbers: &Numbers<'_>) -> PyResult<Bound<'py, PyAny>> {
        let py = held.py();
        let (shape, strides) = (signed(numbers.shape), signed(numbers.strides));
        // SAFETY: the type is numpy's own, shape and strides have as many numbers as is said, and
        // are copied; the memory is there while `held` is. No flag makes the array one that may be
        // written or that frees its memory.
        unsafe {
            let array = (self.new_array)(
                self.array_type as *mut ffi::PyTypeObject,
                shape.len() as c_int,
                shape.as_ptr(),
                numbers.kind,
                strides.as_ptr(),
                std::ptr::with_exposed_provenance_mut(numbers.address),
                0,
                0,
                std::ptr::null_mut(),
            );
            let array = Bound::from_owned_ptr_or_err(py, array)?;
            match (self.set_base)(array.as_ptr(), held.clone().into_ptr()) {
                0 => Ok(array),
                _ => Err(PyErr::fetch(py)),
            }
        }
    }
}

fn signed(numbers: &[usize]) -> Vec<isize> {
    numbers.iter().map(|&number| number as isize).collect()
}

/// Numbers in memory.
struct Numbers<'a> {
    kind: c_int,
    address: usize,
    shape: &'a [usize],
    strides: &'a [usize],
}

/// A batch whose memory arrays see: their base. It has no buffer, so that numpy lets nobody make
/// them writable.
#[pyclass(frozen, module = "megabatch._megabatch")]
pub(crate) struct HeldBatch {
    batch: GatheredBatch,
    samples: Vec<i64>,
}

/// The tables of `batch` by `keys`, and its samples, as arrays.
pub(crate) fn arrays<'py>(py: Python<'py>, batch: GatheredBatch, keys: &[Py<PyString>]) -> PyResult<Arrays<'py>> {
    let numpy = NUMPY.get_or_try_init(py, || Numpy::find(py))?;
    let samples = batch.samples().iter().map(|&sample| sample as i64).collect();
    let held = Bound::new(py, HeldBatch { batch, samples })?;
    let HeldBatch { batch, samples } = held.get();
    let dict = PyDict::new(py);
    for (k, key) in keys.iter().enumerate() {
        let rows = if k + 1 < batch.tables() { batch.windows(k) } else { batch.targets() };
        let numbers = Numbers { kind: FLOAT32, address: rows.address, shape: &rows.shape, strides: &rows.strides };
        dict.set_item(key, numpy.read_only(&held, &numbers)?)?;
    }
    let (shape, strides) = ([samples.len()], [size_of::<i64>()]);
    let address = samples.as_ptr().expose_provenance();
    let numbers = Numbers { kind: INT64, address, shape: &shape, strides: &strides };
    dict.set_item(pyo3::intern!(py, "sample"), numpy.read_only(&held, &numbers)?)?;
    Ok(Arrays(dict))
}
