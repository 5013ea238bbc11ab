//! From a symbol of this crate to the driver's function of the same name.

mod functions;

use std::cell::Cell;
use std::ffi::{CStr, c_int, c_uchar, c_void};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::driver;
use functions::is_known;

/// Result of every function without a driver.
pub const CUDA_ERROR_NO_DEVICE: c_int = 100;
/// Result of a function that the driver at hand does not have.
pub const CUDA_ERROR_NOT_SUPPORTED: c_int = 801;
/// Result in place of a code that the bindings do not know.
pub const CUDA_ERROR_UNKNOWN: c_int = 999;

/// The handles that the driver passes by value between processes: 64 bytes, in `CUipcEventHandle`
/// and `CUipcMemHandle`.
#[repr(C)]
pub(crate) struct Handle64 {
    bytes: [c_uchar; 64],
}

thread_local! {
    static LAST: Cell<c_int> = const { Cell::new(0) };
}

/// The code of this thread's last call as the driver returned it, before a code that the bindings
/// do not know was replaced by [`CUDA_ERROR_UNKNOWN`]. 0 before the first call.
pub fn last_code() -> c_int {
    LAST.get()
}

/// Address of one of the driver's functions, once it has been looked up.
pub(crate) struct Entry {
    name: &'static CStr,
    address: AtomicPtr<c_void>,
}

impl Entry {
    pub(crate) const fn new(name: &'static CStr) -> Self {
        Entry { name, address: AtomicPtr::new(ptr::null_mut()) }
    }

    /// The function's address, or the code to return without it. Threads that race look up the same
    /// address twice.
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

/// Remembers the result of a call, and maps it to a code of the bindings: a value that their enum
/// does not list would be undefined behaviour.
pub(crate) fn clamp(code: c_int) -> c_int {
    LAST.set(code);
    if is_known(code) { code } else { CUDA_ERROR_UNKNOWN }
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
                    // SAFETY: the driver's header declares this function under this name, and its
                    // types are passed as these.
                    let function: unsafe extern "C" fn($($kind),*) -> c_int = unsafe { transmute(address) };
                    // SAFETY: the caller answers for the arguments, as when calling the driver
                    // itself.
                    clamp(unsafe { function($($argument),*) })
                }
                Err(code) => clamp(code),
            }
        }
    )*};
}
pub(crate) use trampolines;
