//! Values between Rust and Python.

use bytemuck::Pod;
use std::convert::Infallible;

use megabatch_run::dataset::SampleRanges;
use pyo3::exceptions::PyRuntimeError;
use pyo3::inspect::PyStaticExpr;
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyDict, PyList};
use pyo3::{Borrowed, IntoPyObjectExt as _, type_hint_identifier as name, type_hint_subscript as subscript};
use serde::Serialize;
use serde_json::Value;

const STR: PyStaticExpr = name!("builtins", "str");
const ANY: PyStaticExpr = name!("typing", "Any");

/// A mapping of Python's with values of `T` by their names.
pub(crate) struct Named<T>(pub(crate) T);

impl<'a, 'py, T: FromPyObject<'a, 'py>> FromPyObject<'a, 'py> for Named<T> {
    type Error = T::Error;

    const INPUT_TYPE: PyStaticExpr = subscript!(name!("collections.abc", "Mapping"), STR, ANY);

    fn extract(mapping: Borrowed<'a, 'py, PyAny>) -> Result<Self, Self::Error> {
        T::extract(mapping).map(Named)
    }
}

/// A JSON object as a dict.
pub(crate) struct Facts<'py>(Bound<'py, PyAny>);

impl<'py> IntoPyObject<'py> for Facts<'py> {
    type Target = PyAny;
    type Output = Bound<'py, PyAny>;
    type Error = Infallible;

    const OUTPUT_TYPE: PyStaticExpr = subscript!(name!("builtins", "dict"), STR, ANY);

    fn into_pyobject(self, _py: Python<'py>) -> Result<Self::Output, Self::Error> {
        Ok(self.0)
    }
}

/// Arrays of numpy by their keys.
pub(crate) struct Arrays<'py>(pub(crate) Bound<'py, PyDict>);

impl<'py> IntoPyObject<'py> for Arrays<'py> {
    type Target = PyDict;
    type Output = Bound<'py, PyDict>;
    type Error = Infallible;

    const OUTPUT_TYPE: PyStaticExpr =
        subscript!(name!("builtins", "dict"), STR, subscript!(name!("numpy.typing", "NDArray"), ANY));

    fn into_pyobject(self, _py: Python<'py>) -> Result<Self::Output, Self::Error> {
        Ok(self.0)
    }
}

/// A JSON value as Python's own.
pub(crate) fn to_python<'py>(py: Python<'py>, value: &Value) -> PyResult<Bound<'py, PyAny>> {
    match value {
        Value::Null => Ok(py.None().into_bound(py)),
        Value::Bool(flag) => flag.into_bound_py_any(py),
        Value::Number(number) => match (number.as_u64(), number.as_i64()) {
            (Some(number), _) => number.into_bound_py_any(py),
            (None, Some(number)) => number.into_bound_py_any(py),
            (None, None) => number.as_f64().unwrap_or(f64::NAN).into_bound_py_any(py),
        },
        Value::String(text) => text.into_bound_py_any(py),
        Value::Array(items) => {
            let list = PyList::empty(py);
            items.iter().try_for_each(|item| list.append(to_python(py, item)?))?;
            Ok(list.into_any())
        }
        Value::Object(entries) => {
            let dict = PyDict::new(py);
            entries.iter().try_for_each(|(key, value)| dict.set_item(key, to_python(py, value)?))?;
            Ok(dict.into_any())
        }
    }
}

/// A value that serializes as a JSON object, as a dict.
pub(crate) fn serialized<'py>(py: Python<'py>, value: &impl Serialize) -> PyResult<Facts<'py>> {
    facts(py, &serde_json::to_value(value).map_err(|error| broken(&format!("text that is no JSON: {error}")))?)
}

/// A JSON object as a dict.
pub(crate) fn facts<'py>(py: Python<'py>, object: &Value) -> PyResult<Facts<'py>> {
    Ok(Facts(to_python(py, object)?))
}

/// Entries of a dict.
pub(crate) fn dict<'py>(entries: Bound<'py, PyDict>) -> Facts<'py> {
    Facts(entries.into_any())
}

/// Numbers as bytes that numpy may write to.
pub(crate) fn bytes_of<'py, T: Pod>(py: Python<'py>, numbers: &[T]) -> Bound<'py, PyByteArray> {
    PyByteArray::new(py, bytemuck::cast_slice(numbers))
}

/// Indices as bytes of 64-bit integers.
pub(crate) fn index_bytes(py: Python<'_>, indices: impl Iterator<Item = usize>) -> Bound<'_, PyBytes> {
    let numbers: Vec<i64> = indices.map(|index| index as i64).collect();
    PyBytes::new(py, bytemuck::cast_slice(&numbers))
}

/// Numbers of the bytes of a contiguous numpy array.
pub(crate) fn numbers<T: Pod>(bytes: &[u8]) -> PyResult<Vec<T>> {
    if !bytes.len().is_multiple_of(size_of::<T>()) {
        return Err(broken("an array of other numbers"));
    }
    Ok(bytes.chunks_exact(size_of::<T>()).map(bytemuck::pod_read_unaligned).collect())
}

/// Indices of an array of 64-bit integers.
pub(crate) fn indices(bytes: &[u8]) -> PyResult<SampleRanges> {
    let index = |number: i64| usize::try_from(number).map_err(|_| broken("an index below 0"));
    numbers::<i64>(bytes)?.into_iter().map(index).collect()
}

/// An exception for a broken promise of the Python part.
pub(crate) fn broken(what: &str) -> PyErr {
    PyRuntimeError::new_err(format!("megabatch's Python part handed over {what}"))
}
