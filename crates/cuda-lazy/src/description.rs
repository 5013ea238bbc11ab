//! Meaning of codes, in the driver's words or in ours.

use std::ffi::{CStr, c_char, c_int};
use std::mem::transmute;
use std::ptr;

use crate::driver::driver;
use crate::forward::{CUDA_ERROR_NO_DEVICE, CUDA_ERROR_NOT_SUPPORTED, Entry};

/// Meaning of a code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    /// Its name in the driver's header, such as `CUDA_ERROR_OUT_OF_MEMORY`.
    pub name: String,
    /// A sentence.
    pub text: String,
}

static NAME: Entry = Entry::new(c"cuGetErrorName");
static TEXT: Entry = Entry::new(c"cuGetErrorString");

/// Meaning of `code`, which may be one that the bindings do not know, such as
/// [`last_code`](crate::last_code) tells.
pub fn describe(code: c_int) -> Description {
    let text = |text: &CStr| text.to_string_lossy().into_owned();
    Description { name: text(name_of(code)), text: text(text_of(code)) }
}

// Callers of the two functions print what they get without asking whether there is a driver, so
// that they never fail.

/// # Safety
/// `text` is valid for writing.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuGetErrorName(error: c_int, text: *mut *const c_char) -> c_int {
    // SAFETY: as the caller promised.
    unsafe { *text = name_of(error).as_ptr() };
    0
}

/// # Safety
/// `text` is valid for writing.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuGetErrorString(error: c_int, text: *mut *const c_char) -> c_int {
    // SAFETY: as the caller promised.
    unsafe { *text = text_of(error).as_ptr() };
    0
}

fn name_of(code: c_int) -> &'static CStr {
    ask(&NAME, code).unwrap_or(match code {
        CUDA_ERROR_NO_DEVICE => c"CUDA_ERROR_NO_DEVICE",
        CUDA_ERROR_NOT_SUPPORTED => c"CUDA_ERROR_NOT_SUPPORTED",
        _ => c"CUDA_ERROR",
    })
}

fn text_of(code: c_int) -> &'static CStr {
    ask(&TEXT, code).unwrap_or(match (code, driver()) {
        (CUDA_ERROR_NO_DEVICE, Err(_)) => c"no CUDA driver",
        (CUDA_ERROR_NOT_SUPPORTED, _) => c"the CUDA driver does not have this call",
        _ => c"unknown CUDA error",
    })
}

/// Answer of the driver's function at `entry` about a code.
fn ask(entry: &Entry, code: c_int) -> Option<&'static CStr> {
    let address = entry.address().ok()?;
    // SAFETY: both functions that are asked have this type in the driver's header.
    let function: unsafe extern "C" fn(c_int, *mut *const c_char) -> c_int = unsafe { transmute(address) };
    let mut text = ptr::null();
    // SAFETY: any code may be asked about, and `text` is a variable of this function.
    let found = unsafe { function(code, &raw mut text) } == 0 && !text.is_null();
    // SAFETY: where the driver succeeds, the text is a constant of its library, which is never
    // unloaded.
    found.then(|| unsafe { CStr::from_ptr(text) })
}
