//! From a symbol of this crate to the driver's function of the same name.

use std::cell::Cell;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::driver;
use crate::trampolines::is_known;

/// What every function returns where there is no driver.
pub const CUDA_ERROR_NO_DEVICE: c_int = 100;
/// What a function returns that the driver at hand does not have.
pub const CUDA_ERROR_NOT_SUPPORTED: c_int = 801;
/// What a function returns in place of a code that the bindings do not know.
pub const CUDA_ERROR_UNKNOWN: c_int = 999;

/// The handles that the driver passes by value between processes: 64 bytes, in `CUipcEventHandle` and `CUipcMemHandle`.
#[repr(C)]
pub(crate) struct Handle64 {
    bytes: [c_char; 64],
}

thread_local! {
    static UNKNOWN: Cell<Option<c_int>> = const { Cell::new(None) };
}

/// The code that the driver returned when this thread last saw [`CUDA_ERROR_UNKNOWN`] in its place; `None` where the driver meant
/// that very code. Newer drivers return codes that the bindings do not list, and such a value in their enum would be undefined behaviour.
pub fn unknown_code() -> Option<c_int> {
    UNKNOWN.get()
}

/// Where one of the driver's functions is, once it has been looked up.
pub(crate) struct Entry {
    name: &'static CStr,
    address: AtomicPtr<c_void>,
}

impl Entry {
    pub(crate) const fn new(name: &'static CStr) -> Self {
        Entry { name, address: AtomicPtr::new(ptr::null_mut()) }
    }

    /// The function's address, or the code to return without it. Threads that race look up the same address twice.
    pub(crate) fn address(&self) -> Result<*mut c_void, c_int> {
        let found = self.address.load(Ordering::Acquire);
        if !found.is_null() {
            return Ok(found);
        }
        let address = match driver::function(self.name) {
            Ok(Some(address)) => address.as_ptr(),
            Ok(None) => return Err(CUDA_ERROR_NOT_SUPPORTED),
            Err(_) => return Err(CUDA_ERROR_NO_DEVICE),
        };
        self.address.store(address, Ordering::Release);
        Ok(address)
    }
}

/// A code that the bindings know.
pub(crate) fn clamp(code: c_int) -> c_int {
    if is_known(code) && code != CUDA_ERROR_UNKNOWN {
        return code;
    }
    UNKNOWN.set(Some(code).filter(|&code| code != CUDA_ERROR_UNKNOWN));
    CUDA_ERROR_UNKNOWN
}

/// Defines functions of the driver's names that call the driver's.
macro_rules! trampolines {
    ($($name:ident($($argument:ident: $kind:ty),*);)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name($($argument: $kind),*) -> c_int {
            static ENTRY: Entry = Entry::new(match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => unreachable!(),
            });
            match ENTRY.address() {
                Ok(address) => {
                    // SAFETY: the driver's header declares this function under this name, and its types are passed as these.
                    let function: unsafe extern "C" fn($($kind),*) -> c_int = unsafe { transmute(address) };
                    // SAFETY: the caller answers for the arguments, as when calling the driver itself.
                    clamp(unsafe { function($($argument),*) })
                }
                Err(code) => code,
            }
        }
    )*};
}
pub(crate) use trampolines;

/// # Safety
/// `text` is valid for writing.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuGetErrorString(error: c_int, text: *mut *const c_char) -> c_int {
    static ENTRY: Entry = Entry::new(c"cuGetErrorString");
    // SAFETY: as this function's caller promised.
    unsafe { describe(&ENTRY, error, text) }
}

/// # Safety
/// `text` is valid for writing.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuGetErrorName(error: c_int, text: *mut *const c_char) -> c_int {
    static ENTRY: Entry = Entry::new(c"cuGetErrorName");
    // SAFETY: as this function's caller promised.
    unsafe { describe(&ENTRY, error, text) }
}

/// The driver's text for a code, or a text of our own: callers print what they get without asking whether there is a driver, so that
/// these two functions never fail.
///
/// # Safety
/// `text` is valid for writing.
unsafe fn describe(entry: &Entry, error: c_int, text: *mut *const c_char) -> c_int {
    let described = entry.address().is_ok_and(|address| {
        // SAFETY: both functions that come here have this type in the driver's header.
        let function: unsafe extern "C" fn(c_int, *mut *const c_char) -> c_int =
            unsafe { std::mem::transmute(address) };
        // SAFETY: `text` is valid for writing, as the caller promised.
        unsafe { function(error, text) == 0 && !(*text).is_null() }
    });
    if !described {
        let own = match (error, driver::driver()) {
            (CUDA_ERROR_NO_DEVICE, Err(_)) => c"no CUDA driver",
            (CUDA_ERROR_NOT_SUPPORTED, _) => c"the CUDA driver does not support this call",
            _ => c"unknown CUDA error",
        };
        // SAFETY: `text` is valid for writing, as the caller promised.
        unsafe { *text = own.as_ptr() };
    }
    0
}
