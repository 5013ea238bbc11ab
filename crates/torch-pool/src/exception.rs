//! Exceptions of C++, thrown by the C++ library that PyTorch was built with. Nothing of ours is
//! compiled as C++ or linked with that library: an exception of another C++ runtime would end the
//! process. The functions are those of the Itanium C++ ABI, level II,
//! <https://itanium-cxx-abi.github.io/cxx-abi/abi-eh.html#cxx-abi>, and of `std::runtime_error`.

use std::ffi::{CStr, c_char, c_int, c_void};

use libloading::os::unix::{Library, RTLD_NOW};

use crate::{Error, Result};

/// GNU's C++ library, with which PyTorch is built on Linux.
const LIBRARY: &str = "libstdc++.so.6";
/// `RTLD_NOLOAD`: the library is there already.
const NO_LOAD: c_int = 4;
/// Bytes of a `std::runtime_error`: its table of virtual functions and its text.
const RUNTIME_ERROR_BYTES: usize = 2 * size_of::<usize>();

/// Throws `std::runtime_error`.
#[derive(Debug)]
pub(crate) struct Thrower {
    allocate: unsafe extern "C" fn(usize) -> *mut c_void,
    construct: unsafe extern "C-unwind" fn(*mut c_void, *const c_char),
    throw: unsafe extern "C-unwind" fn(*mut c_void, *const c_void, *const c_void) -> !,
    type_info: usize,
    destructor: usize,
}

impl Thrower {
    /// Finds the functions in the process. The library stays in it.
    pub(crate) fn new() -> Result<Self> {
        let absent = |source| Error::NoCppLibrary { library: LIBRARY, source };
        // SAFETY: PyTorch has loaded and initialised it; where nobody has, it initialises streams
        // of its own.
        let library = unsafe {
            Library::open(Some(LIBRARY), RTLD_NOW | NO_LOAD).or_else(|_| Library::open(Some(LIBRARY), RTLD_NOW))
        };
        let library = library.map_err(absent)?;
        // SAFETY: these are the types of the functions by the ABI; of data the address is taken.
        let thrower = unsafe {
            Thrower {
                allocate: *library.get(b"__cxa_allocate_exception").map_err(absent)?,
                construct: *library.get(b"_ZNSt13runtime_errorC1EPKc").map_err(absent)?,
                throw: *library.get(b"__cxa_throw").map_err(absent)?,
                type_info: library.get::<*const c_void>(b"_ZTISt13runtime_error").map_err(absent)?.into_raw() as usize,
                destructor: library.get::<*const c_void>(b"_ZNSt13runtime_errorD1Ev").map_err(absent)?.into_raw()
                    as usize,
            }
        };
        std::mem::forget(library);
        Ok(thrower)
    }

    /// Throws an exception whose `what()` is `text`. Callers keep nothing that is to be dropped.
    ///
    /// # Safety
    /// Every frame up to the one in C++ that catches it lets foreign exceptions pass.
    pub(crate) unsafe fn throw(&self, text: &CStr) -> ! {
        // SAFETY: the functions are called as a C++ compiler does for
        // `throw std::runtime_error(text)`: the constructor copies the text.
        unsafe {
            let exception = (self.allocate)(RUNTIME_ERROR_BYTES);
            (self.construct)(exception, text.as_ptr());
            (self.throw)(exception, self.type_info as *const c_void, self.destructor as *const c_void)
        }
    }
}
