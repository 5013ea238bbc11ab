//! The driver's library: opened once, on first use, and never closed.

use std::ffi::{CStr, c_void};
use std::ptr::NonNull;
use std::sync::OnceLock;

use libloading::{Error, Library, Symbol};
use thiserror::Error as ThisError;

/// The name under which the driver installs its library.
const LIBRARY: &str = if cfg!(windows) { "nvcuda.dll" } else { "libcuda.so.1" };

/// The reason that there is no driver.
#[derive(Clone, Debug, PartialEq, Eq, ThisError)]
#[error("no CUDA driver: {reason}")]
pub struct DriverAbsent {
    /// Message of the dynamic loader, which names the library and the missing symbol.
    pub reason: String,
}

/// True if a driver's library is here. The first call opens it; its functions are looked up one by
/// one, when first called.
///
/// A library does not imply a GPU: ask `cuInit` and `cuDeviceGetCount`.
///
/// # Errors
/// [`DriverAbsent`], the same on every call.
pub fn driver() -> Result<(), DriverAbsent> {
    library().map(drop).map_err(Clone::clone)
}

/// Address of the driver's function `name`; `None` where it has none of that name.
pub(crate) fn function(name: &CStr) -> Result<Option<NonNull<c_void>>, &'static DriverAbsent> {
    // SAFETY: the type is that of an address. What is behind it, its caller says.
    let symbol: Result<Symbol<'_, *mut c_void>, Error> = unsafe { library()?.get(name.to_bytes_with_nul()) };
    Ok(symbol.ok().and_then(|address| NonNull::new(*address)))
}

fn library() -> Result<&'static Library, &'static DriverAbsent> {
    static OPENED: OnceLock<Result<Library, DriverAbsent>> = OnceLock::new();
    let opened = OPENED.get_or_init(|| {
        // SAFETY: the driver's initialisation has no conditions that this process could fail to
        // meet.
        unsafe { Library::new(LIBRARY) }.map_err(|error| DriverAbsent { reason: error.to_string() })
    });
    opened.as_ref()
}
