//! The library's handle of a GPU, and what its functions say.

#![allow(unsafe_code, reason = "the driver is called")]

use std::ffi::{CStr, c_char};
use std::fmt;
use std::ptr;
use std::sync::Arc;

use megabatch_cuda_lazy::Description;
use megabatch_cuda_lazy::cublaslt::{self, CublasLt as Library, SUCCESS, Status};

use super::super::context::Context;
use super::super::fault::DriverFault;

/// CUDA 11.0, from which on an operation is created with the type of its sums and of its scalars.
const VERSION_MIN: usize = 110_000;

#[derive(Debug)]
pub(super) struct LibraryHandle {
    raw: cublaslt::Handle,
    library: &'static Library,
    version: usize,
    context: Arc<Context>,
}

// SAFETY: the handle is a number to the library, which any thread may pass it, and several at a
// time.
unsafe impl Send for LibraryHandle {}
// SAFETY: as above.
unsafe impl Sync for LibraryHandle {}

impl LibraryHandle {
    /// `None` if no library fits.
    pub(super) fn new(context: &Arc<Context>) -> Result<Option<Self>, DriverFault> {
        let (major, _) = context.properties().driver_version.split_once('.').unwrap_or_default();
        let Some(library) = cublaslt::cublaslt(major.parse().unwrap_or(0)) else { return Ok(None) };
        // SAFETY: the function has no conditions.
        let version = unsafe { (library.version)() };
        if version < VERSION_MIN {
            return Ok(None);
        }
        context.enter_aside()?;
        let mut handle = LibraryHandle { raw: ptr::null_mut(), library, version, context: Arc::clone(context) };
        // SAFETY: the address is that of a variable of this function, and the context is current.
        let status = unsafe { (library.create)(&raw mut handle.raw) };
        handle.checked("cublasLtCreate", format_args!("no operands"), status)?;
        Ok(Some(handle))
    }

    pub(super) fn name(&self) -> String {
        let version = self.version;
        format!("cuBLASLt {}.{}.{}", version / 10_000, version / 100 % 100, version % 100)
    }

    pub(super) fn raw(&self) -> cublaslt::Handle {
        self.raw
    }

    pub(super) fn library(&self) -> &'static Library {
        self.library
    }

    pub(super) fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// Result of a function, in the library's words.
    pub(super) fn checked(
        &self,
        call: &'static str,
        operands: fmt::Arguments<'_>,
        status: Status,
    ) -> Result<(), DriverFault> {
        if status == SUCCESS {
            return Ok(());
        }
        // SAFETY: any code may be asked about.
        let [name, text] = unsafe { [(self.library.status_name)(status), (self.library.status_string)(status)] };
        Err(DriverFault::from_library(call, operands, status, Description { name: words(name), text: words(text) }))
    }
}

fn words(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: the library gives constants of its own, and is never closed.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

impl Drop for LibraryHandle {
    fn drop(&mut self) {
        // Where the context cannot be current, it is gone, and what the library had there with it.
        // What was submitted ends nevertheless.
        if !self.raw.is_null() && self.context.enter_aside().is_ok() {
            // SAFETY: the library gave the handle, and nobody has it after this: every plan keeps
            // it.
            let _ = unsafe { (self.library.destroy)(self.raw) };
        }
    }
}
