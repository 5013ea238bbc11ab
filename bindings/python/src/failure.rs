//! Errors of a run as Python's exceptions.

use megabatch_run::text::ByteSize;
use megabatch_run::{Error, Kind};
use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::convert::to_python;

/// The class of an error in `megabatch.errors`, by its kind.
fn class_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Usage => "ConfigError",
        Kind::Data => "DataError",
        Kind::Capacity => "CapacityError",
        Kind::Numeric => "NumericError",
        Kind::Device => "DeviceError",
        _ => "MegabatchError",
    }
}

/// The exception of `error`: its message, and its fields as attributes.
pub(crate) fn exception(py: Python<'_>, error: &Error) -> PyErr {
    if error.kind() == Kind::Cancelled {
        return PyKeyboardInterrupt::new_err(error.to_string());
    }
    raised(py, class_name(error.kind()), &error.to_string(), &error.fields()).unwrap_or_else(|failure| failure)
}

/// An exception of `kind` that says `message`.
pub(crate) fn kind_error(py: Python<'_>, kind: Kind, message: &str) -> PyErr {
    raised(py, class_name(kind), message, &[]).unwrap_or_else(|failure| failure)
}

/// Bytes of the amount `text`, which is the argument `name`.
pub(crate) fn byte_size(py: Python<'_>, name: &str, text: &str) -> PyResult<usize> {
    let parsed = text.parse::<ByteSize>();
    let ByteSize(bytes) = parsed.map_err(|error| kind_error(py, Kind::Usage, &format!("{name}: {error}")))?;
    Ok(bytes)
}

fn raised(py: Python<'_>, class: &str, message: &str, fields: &[(&'static str, serde_json::Value)]) -> PyResult<PyErr> {
    let class = py.import("megabatch.errors")?.getattr(class)?;
    let named = PyDict::new(py);
    for (name, value) in fields {
        named.set_item(name, to_python(py, value)?)?;
    }
    Ok(PyErr::from_value(class.call((message,), Some(&named))?))
}

/// Results of a run with Python's exceptions.
pub(crate) trait OrRaise<T> {
    /// The value, or the exception.
    fn or_raise(self, py: Python<'_>) -> PyResult<T>;
}

impl<T> OrRaise<T> for megabatch_run::Result<T> {
    fn or_raise(self, py: Python<'_>) -> PyResult<T> {
        self.map_err(|error| exception(py, &error))
    }
}
