//! A call to the driver that failed.

use std::fmt;

use cust::error::CudaResult;
use cust::sys::CUresult;
use megabatch_cuda_lazy::{CUDA_ERROR_UNKNOWN, Description, describe, last_code};

use crate::error::Error;
use crate::source::Refusal;

/// A failed call, its operands and the driver's code.
#[derive(Clone, Debug)]
pub(crate) struct DriverFault {
    call: &'static str,
    operands: String,
    code: i32,
    /// Meaning of the code, where it is not the driver's.
    library_words: Option<Description>,
}

impl DriverFault {
    fn new(call: &'static str, operands: impl fmt::Display, code: i32) -> Self {
        // Where the bindings do not know the code, the trampoline still does.
        let code = if code == CUDA_ERROR_UNKNOWN { last_code() } else { code };
        DriverFault { call, operands: operands.to_string(), code, library_words: None }
    }

    /// A failed call to a library above the driver, which has codes and words of its own.
    pub(super) fn from_library(call: &'static str, operands: impl fmt::Display, code: i32, words: Description) -> Self {
        DriverFault { call, operands: operands.to_string(), code, library_words: Some(words) }
    }

    fn description(&self) -> Description {
        self.library_words.clone().unwrap_or_else(|| describe(self.code))
    }

    pub(crate) fn is_out_of_memory(&self) -> bool {
        self.is(CUresult::CUDA_ERROR_OUT_OF_MEMORY)
    }

    pub(crate) fn is(&self, code: CUresult) -> bool {
        self.library_words.is_none() && self.code == code as i32
    }

    pub(crate) fn into_error(self, device: &str) -> Error {
        let description = self.description();
        Error::Driver {
            device: device.into(),
            call: self.call,
            operands: self.operands.into(),
            code: self.code,
            code_name: description.name.into(),
            text: description.text.into(),
        }
    }
}

impl From<DriverFault> for Refusal {
    fn from(fault: DriverFault) -> Self {
        if fault.is_out_of_memory() {
            return Refusal::OutOfMemory;
        }
        let description = fault.description();
        let reason = format!("{} ({}), {} [{}]", description.name, fault.code, description.text, fault.operands);
        Refusal::Failed { call: fault.call, reason }
    }
}

/// Result of a call. `operands` are written down only where it failed.
pub(crate) fn checked(call: &'static str, operands: fmt::Arguments<'_>, code: CUresult) -> Result<(), DriverFault> {
    match code {
        CUresult::CUDA_SUCCESS => Ok(()),
        code => Err(DriverFault::new(call, operands, code as i32)),
    }
}

/// Checks a call that cust makes.
pub(crate) trait Checked<T> {
    /// The value, or the call and its operands.
    fn checked(self, call: &'static str, operands: fmt::Arguments<'_>) -> Result<T, DriverFault>;
}

impl<T> Checked<T> for CudaResult<T> {
    fn checked(self, call: &'static str, operands: fmt::Arguments<'_>) -> Result<T, DriverFault> {
        self.map_err(|error| DriverFault::new(call, operands, error as i32))
    }
}
