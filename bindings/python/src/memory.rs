//! Memory of batches as DLPack has it, <https://dmlc.github.io/dlpack/latest/c_api.html>.
#![allow(unsafe_code, reason = "DLPack is an interface of C")]

use std::convert::Infallible;
use std::ffi::{CStr, c_void};
use std::ptr::NonNull;
use std::sync::Arc;

use megabatch_run::dataset::{GatheredBatch, Rows};
use pyo3::inspect::PyStaticExpr;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use pyo3::{ffi, type_hint_identifier};

/// A capsule of Python's.
pub(crate) struct Capsule<'py>(Bound<'py, PyCapsule>);

impl<'py> IntoPyObject<'py> for Capsule<'py> {
    type Target = PyCapsule;
    type Output = Bound<'py, PyCapsule>;
    type Error = Infallible;

    // Python has it in `types` since 3.13.
    const OUTPUT_TYPE: PyStaticExpr = type_hint_identifier!("typing_extensions", "CapsuleType");

    fn into_pyobject(self, _py: Python<'py>) -> Result<Self::Output, Self::Error> {
        Ok(self.0)
    }
}

/// Name of a capsule that nobody has taken; whoever takes it renames it.
const NAME: &CStr = c"dltensor";

/// `kDLCPU`.
pub(crate) const CPU: i32 = 1;
/// `kDLFloat`.
const FLOAT: u8 = 2;

#[repr(C)]
struct DlDevice {
    device_type: i32,
    device_id: i32,
}

#[repr(C)]
struct DlDataType {
    code: u8,
    bits: u8,
    lanes: u16,
}

#[repr(C)]
struct DlTensor {
    data: *mut c_void,
    device: DlDevice,
    ndim: i32,
    dtype: DlDataType,
    shape: *mut i64,
    strides: *mut i64,
    byte_offset: u64,
}

#[repr(C)]
struct DlManagedTensor {
    tensor: DlTensor,
    manager: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut DlManagedTensor)>,
}

/// An exported table, with what it points to.
#[repr(C)]
struct Exported {
    managed: DlManagedTensor,
    shape: Vec<i64>,
    strides: Vec<i64>,
    /// Keeps the memory.
    _batch: Arc<GatheredBatch>,
}

/// Hands the memory of `rows`, a table of `batch`, to the owner of the capsule.
///
/// The batch's memory is never read or written by us again: it may be written by its new owner.
pub(crate) fn export<'py>(py: Python<'py>, rows: &Rows, batch: &Arc<GatheredBatch>) -> PyResult<Capsule<'py>> {
    let elements = |bytes: usize| (bytes / size_of::<f32>()) as i64;
    let tensor = DlTensor {
        data: std::ptr::with_exposed_provenance_mut(rows.address),
        device: DlDevice { device_type: CPU, device_id: 0 },
        ndim: rows.shape.len() as i32,
        dtype: DlDataType { code: FLOAT, bits: 32, lanes: 1 },
        shape: std::ptr::null_mut(),
        strides: std::ptr::null_mut(),
        byte_offset: 0,
    };
    let managed = DlManagedTensor { tensor, manager: std::ptr::null_mut(), deleter: Some(delete) };
    let mut exported = Box::new(Exported {
        managed,
        shape: rows.shape.iter().map(|&len| len as i64).collect(),
        strides: rows.strides.iter().map(|&bytes| elements(bytes)).collect(),
        _batch: Arc::clone(batch),
    });
    exported.managed.tensor.shape = exported.shape.as_mut_ptr();
    exported.managed.tensor.strides = exported.strides.as_mut_ptr();
    let pointer = NonNull::from(Box::leak(exported)).cast::<c_void>();
    // SAFETY: the pointer is that of a DLManagedTensor, the first field of `Exported`, which lives
    // until its deleter is called: by who renames the capsule, or else by `destroy`.
    let capsule = unsafe { PyCapsule::new_with_pointer_and_destructor(py, pointer, NAME, Some(destroy)) };
    capsule.map(Capsule)
}

/// Frees an exported table.
///
/// # Safety
/// `managed` comes from [`export`] and is not used afterwards.
unsafe extern "C" fn delete(managed: *mut DlManagedTensor) {
    if !managed.is_null() {
        // SAFETY: `managed` is the first field of an `Exported` that `export` leaked, and nobody
        // else frees it.
        drop(unsafe { Box::from_raw(managed.cast::<Exported>()) });
    }
}

/// Frees the table of a capsule that nobody has taken.
///
/// # Safety
/// `capsule` is a capsule, and the caller is attached to the interpreter.
unsafe extern "C" fn destroy(capsule: *mut ffi::PyObject) {
    // SAFETY: the interpreter calls this with the capsule that it destroys. A capsule that was
    // taken has another name.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule, NAME.as_ptr()) == 1 {
            delete(ffi::PyCapsule_GetPointer(capsule, NAME.as_ptr()).cast());
        }
    }
}
