//! Arrays of numpy on memory of batches and graphs, by numpy's interface of C,
//! <https://numpy.org/doc/stable/reference/c-api/array.html>: its functions are in a table whose
//! order no version changes. One call makes all arrays of a batch; by `__array_interface__` each
//! would ask for five attributes.
#![allow(unsafe_code, reason = "numpy's table is an interface of C")]

use std::any::Any;
use std::ffi::{c_int, c_long, c_void};

use megabatch_run::dataset::{GatheredBatch, Rows};
use megabatch_run::graph::{FloatTable, FloatValues, GraphInPlace};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyCapsule, PyDict, PyString};

use crate::convert::Arrays;

/// `NPY_FLOAT`.
const FLOAT32: c_int = 11;
/// `NPY_LONG` where C's long has 64 bits, else `NPY_LONGLONG`.
const INT64: c_int = if size_of::<c_long>() == 8 { 7 } else { 9 };

/// `NPY_ARRAY_WRITEABLE`.
const WRITABLE: c_int = 0x0400;

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

    /// An array of memory that `held` keeps.
    fn array<'py>(&self, held: &Bound<'py, HeldMemory>, numbers: &Numbers<'_>) -> PyResult<Bound<'py, PyAny>> {
        let py = held.py();
        let (shape, strides) = (signed(numbers.shape), numbers.strides.map(signed));
        // SAFETY: the type is numpy's own, shape and strides have as many numbers as is said, and
        // are copied; the memory is there while `held` is, and no reference of Rust's is to memory
        // that numpy may write. No flag makes the array one that frees its memory.
        unsafe {
            let array = (self.new_array)(
                self.array_type as *mut ffi::PyTypeObject,
                shape.len() as c_int,
                shape.as_ptr(),
                numbers.kind,
                strides.as_ref().map_or(std::ptr::null(), Vec::as_ptr),
                std::ptr::with_exposed_provenance_mut(numbers.address),
                0,
                if numbers.writable { WRITABLE } else { 0 },
                std::ptr::null_mut(),
            );
            let array = Bound::from_owned_ptr_or_err(py, array)?;
            match (self.set_base)(array.as_ptr(), held.clone().into_ptr()) {
                0 => Ok(array),
                _ => Err(PyErr::fetch(py)),
            }
        }
    }

    /// An array that takes over its numbers.
    fn integers<'py>(
        &self,
        py: Python<'py>,
        mut numbers: Vec<i64>,
        shape: &[usize],
        writable: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        let address = numbers.as_mut_ptr().expose_provenance();
        let held = HeldMemory::new(py, numbers)?;
        self.array(&held, &Numbers { kind: INT64, address, shape, strides: None, writable })
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
    /// Bytes between neighbours; rows follow one another if `None`.
    strides: Option<&'a [usize]>,
    writable: bool,
}

/// Memory that arrays see: their base. It has no buffer, so that numpy lets nobody make read-only
/// ones writable.
#[pyclass(frozen, module = "megabatch._megabatch")]
pub(crate) struct HeldMemory {
    _memory: Box<dyn Any + Send + Sync>,
}

impl HeldMemory {
    fn new(py: Python<'_>, memory: impl Any + Send + Sync) -> PyResult<Bound<'_, Self>> {
        Bound::new(py, HeldMemory { _memory: Box::new(memory) })
    }
}

/// The tables of `batch` by `keys`, and its samples, as arrays. They may be written if `writable`,
/// but for those in the memory of the file.
pub(crate) fn arrays<'py>(
    py: Python<'py>,
    batch: GatheredBatch,
    keys: &[Py<PyString>],
    writable: bool,
) -> PyResult<Arrays<'py>> {
    let numpy = NUMPY.get_or_try_init(py, || Numpy::find(py))?;
    let samples: Vec<i64> = batch.samples().iter().map(|&sample| sample as i64).collect();
    let windows = batch.tables() - 1;
    let tables: Vec<Rows> = (0..windows).map(|k| batch.windows(k)).chain([batch.targets()]).collect();
    let held = HeldMemory::new(py, batch)?;
    let dict = PyDict::new(py);
    for (key, rows) in keys.iter().zip(&tables) {
        let (shape, strides) = (&rows.shape[..], Some(&rows.strides[..]));
        let writable = writable && !rows.is_of_the_file;
        let numbers = Numbers { kind: FLOAT32, address: rows.address, shape, strides, writable };
        dict.set_item(key, numpy.array(&held, &numbers)?)?;
    }
    let shape = [samples.len()];
    dict.set_item(pyo3::intern!(py, "sample"), numpy.integers(py, samples, &shape, writable)?)?;
    Ok(Arrays(dict))
}

/// The arrays of a graph by their names. Its floats may be written if `writable`, and what is
/// written there is seen by all arrays of the graph.
pub(crate) fn graph_arrays(py: Python<'_>, graph: GraphInPlace, writable: bool) -> PyResult<Arrays<'_>> {
    let numpy = NUMPY.get_or_try_init(py, || Numpy::find(py))?;
    let GraphInPlace { edge_index, node_names, edge_weight, edge_attr, x, y, memory } = graph;
    let dict = PyDict::new(py);
    let file = HeldMemory::new(py, memory)?;
    for (name, table) in [("edge_weight", edge_weight), ("edge_attr", edge_attr), ("x", x), ("y", y)] {
        let Some(FloatTable { values, shape }) = table else { continue };
        let (held, address) = match values {
            FloatValues::InPlace(array) => (file.clone(), array.address),
            FloatValues::Copied(mut values) => {
                let address = values.as_mut_ptr().expose_provenance();
                (HeldMemory::new(py, values)?, address)
            }
        };
        let numbers = Numbers { kind: FLOAT32, address, shape: &shape, strides: None, writable };
        dict.set_item(name, numpy.array(&held, &numbers)?)?;
    }
    let shape = [2, edge_index.len() / 2];
    dict.set_item("edge_index", numpy.integers(py, edge_index, &shape, true)?)?;
    let shape = [node_names.len()];
    dict.set_item("node_names", numpy.integers(py, node_names, &shape, true)?)?;
    Ok(Arrays(dict))
}
