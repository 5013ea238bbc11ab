//! PTX that the driver has compiled for the GPU whose context is current, and what its compiler
//! says where it cannot. Straight to the driver, as cust does not pass that on.
//!
//! Source: CUDA driver API, "Module Management".

#![allow(unsafe_code, reason = "the driver is called")]

use std::ffi::{CString, c_int, c_void};
use std::ptr;

use cust::sys::{self, CUfunction, CUfunction_attribute, CUjit_option, CUmodule};

use super::fault::{DriverFault, checked};

/// Bytes for the compiler's messages.
const LOG_BYTES: usize = 2048;

#[derive(Debug)]
pub(super) struct CompiledModule {
    module: CUmodule,
}

// SAFETY: the handle is a number to the driver, which any thread may pass it, and several at a
// time.
unsafe impl Send for CompiledModule {}
// SAFETY: as above.
unsafe impl Sync for CompiledModule {}

impl CompiledModule {
    /// The context is current, here and in all that follows, the end included.
    pub(super) fn new(name: &str, ptx: &str) -> Result<Self, DriverFault> {
        let text = CString::new(ptx).expect("PTX has no zero in it");
        let (mut module, mut log) = (ptr::null_mut(), [0u8; LOG_BYTES]);
        let mut options = [CUjit_option::CU_JIT_ERROR_LOG_BUFFER, CUjit_option::CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES];
        // The second is no address: the driver takes numbers in the place of one.
        let mut values: [*mut c_void; 2] = [(&raw mut log).cast(), ptr::without_provenance_mut(LOG_BYTES)];
        // SAFETY: the text ends with a zero; options and values are as many as is said, and they,
        // the text, the log with its length and `module` live until the call returns.
        let code = unsafe {
            let (options, values) = (options.as_mut_ptr(), values.as_mut_ptr());
            sys::cuModuleLoadDataEx(&raw mut module, text.as_ptr().cast(), 2, options, values)
        };
        checked("cuModuleLoadDataEx", format_args!("{name}, {} bytes of PTX{}", ptx.len(), said(&log)), code)?;
        Ok(CompiledModule { module })
    }

    /// The kernel `name`, which the driver loads now, where it loads late.
    pub(super) fn function(&self, name: &str) -> Result<CUfunction, DriverFault> {
        let text = CString::new(name).expect("a name has no zero in it");
        let mut function = ptr::null_mut();
        // SAFETY: the module is loaded as long as `self` lives; the name ends with a zero, and
        // `function` is a variable of this function.
        let code = unsafe { sys::cuModuleGetFunction(&raw mut function, self.module, text.as_ptr()) };
        checked("cuModuleGetFunction", format_args!("{name}"), code)?;
        Ok(function)
    }

    /// An attribute of one of its kernels, not negative.
    pub(super) fn attribute(&self, function: CUfunction, attribute: CUfunction_attribute) -> Result<u32, DriverFault> {
        let mut value: c_int = 0;
        // SAFETY: the function is of this module, and `value` is a variable of this function.
        let code = unsafe { sys::cuFuncGetAttribute(&raw mut value, attribute, function) };
        checked("cuFuncGetAttribute", format_args!("{attribute:?}"), code)?;
        Ok(u32::try_from(value).unwrap_or(0))
    }
}

impl Drop for CompiledModule {
    fn drop(&mut self) {
        // SAFETY: the driver gave the module, and nobody has it after this.
        let _ = unsafe { sys::cuModuleUnload(self.module) };
    }
}

/// Text of a log before its first zero, on one line.
fn said(log: &[u8]) -> String {
    let text = log.split(|&byte| byte == 0).next().unwrap_or_default();
    let words = String::from_utf8_lossy(text).split_whitespace().collect::<Vec<_>>().join(" ");
    if words.is_empty() { words } else { format!("; {words}") }
}
