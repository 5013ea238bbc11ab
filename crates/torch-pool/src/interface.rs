//! The functions that PyTorch calls, by C's conventions. They work on the one pool of the process,
//! which lives to its end: PyTorch frees tensors until then.

use std::error::Error as _;
use std::ffi::{CStr, c_int, c_void};
use std::io::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;

use crate::exception::Thrower;
use crate::{Error, PoolSettings, Result, TorchPool};

/// The pool of this process, and the way out of a callback that fails.
static INSTALLED: OnceLock<(TorchPool, Thrower)> = OnceLock::new();

/// Bytes of a message, and of the zero at its end. Those of the pool have 600 at most.
const MESSAGE_BYTES: usize = 2048;

const NO_CAPTURE: &CStr =
    c"megabatch: memory of mb.torch.use_pool() cannot be captured in CUDA graphs: torch.cuda.graph, \
torch.cuda.make_graphed_callables and torch.compile with mode=\"reduce-overhead\" need PyTorch's own allocator";
const NO_SHARING: &CStr =
    c"megabatch: memory of mb.torch.use_pool() cannot be shared with another process: move the tensor \
to the CPU first, or leave out use_pool()";

/// Addresses of the functions that a `CUDAPluggableAllocator` is made of, `malloc` and `free`, and
/// of those for its setters.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "the names are those of PyTorch's arguments and setters")]
pub struct Callbacks {
    pub malloc: usize,
    pub free: usize,
    pub record_stream: usize,
    pub reset: usize,
    pub memory_fraction: usize,
    pub base_alloc: usize,
    pub begin_allocate_to_pool: usize,
}

/// Makes the pool of this process, on which the callbacks work from now on.
///
/// # Errors
/// [`Error::Installed`], [`Error::NoCppLibrary`]; as [`TorchPool::new`].
pub fn install(settings: PoolSettings) -> Result<(&'static TorchPool, Callbacks)> {
    if INSTALLED.get().is_some() {
        return Err(Error::Installed);
    }
    let made = (TorchPool::new(settings)?, Thrower::new()?);
    INSTALLED.set(made).map_err(|_| Error::Installed)?;
    let (pool, _) = INSTALLED.get().expect("it was just set");
    let callbacks = Callbacks {
        malloc: malloc as *const () as usize,
        free: free as *const () as usize,
        record_stream: record_stream as *const () as usize,
        reset: reset as *const () as usize,
        memory_fraction: memory_fraction as *const () as usize,
        base_alloc: base_alloc as *const () as usize,
        begin_allocate_to_pool: begin_allocate_to_pool as *const () as usize,
    };
    Ok((pool, callbacks))
}

/// A block of `bytes` of GPU `device` for work on `stream`; null for 0 bytes. PyTorch does not look
/// at a null result: failure is an exception of C++.
///
/// # Safety
/// `stream` is as [`TorchPool::allocate`] says; the caller is C++.
unsafe extern "C-unwind" fn malloc(bytes: usize, device: c_int, stream: *mut c_void) -> *mut c_void {
    let mut message = [0; MESSAGE_BYTES];
    match allocated(bytes, device, stream, &mut message) {
        Some(address) => address as *mut c_void,
        // SAFETY: this frame has nothing to be dropped, and the caller is C++.
        None => unsafe { throw(&message) },
    }
}

/// The address of a block, or a message.
fn allocated(bytes: usize, device: c_int, stream: *mut c_void, message: &mut [u8; MESSAGE_BYTES]) -> Option<u64> {
    let (pool, _) = INSTALLED.get()?;
    // SAFETY: the caller of `malloc` promised it.
    let result = catch_unwind(AssertUnwindSafe(|| unsafe { pool.allocate(bytes, device, stream as u64) }));
    let mut rest = &mut message[..MESSAGE_BYTES - 1];
    // A message that is too long is cut.
    let _ = match result {
        Ok(Ok(address)) => return Some(address),
        Ok(Err(Error::Shortage(shortage))) => write!(rest, "{shortage}"),
        Ok(Err(error)) => write!(rest, "megabatch: {error}").and_then(|()| match error.source() {
            Some(cause) => write!(rest, ": {cause}"),
            None => Ok(()),
        }),
        Err(_) => write!(rest, "megabatch: the memory pool is broken by a panic, which was reported before"),
    };
    None
}

/// # Safety
/// As [`Thrower::throw`].
unsafe fn throw(message: &[u8]) -> ! {
    let text = CStr::from_bytes_until_nul(message).unwrap_or(c"megabatch: the memory pool failed");
    let (_, thrower) = INSTALLED.get().expect("callbacks are known once it is");
    // SAFETY: the caller promised it.
    unsafe { thrower.throw(text) }
}

/// Frees a block. A failure leaves the block unused for good.
extern "C" fn free(block: *mut c_void, _bytes: usize, device: c_int, _stream: *mut c_void) {
    quietly(|pool| drop(pool.free(block as u64, device)));
}

/// # Safety
/// `stream` is as [`TorchPool::allocate`] says.
unsafe extern "C" fn record_stream(block: *mut c_void, stream: *mut c_void) {
    // SAFETY: as the caller promised.
    quietly(|pool| unsafe { pool.record_stream(block as u64, stream as u64) });
}

/// Gives unused memory back, as `torch.cuda.empty_cache` asks.
extern "C" fn reset() {
    quietly(|pool| drop(pool.empty_cache()));
}

extern "C" fn memory_fraction(fraction: f64, device: c_int) {
    quietly(|pool| drop(pool.set_memory_fraction(fraction, device)));
}

/// Begin of an allocation that another process is to share.
///
/// # Safety
/// The caller is C++.
unsafe extern "C-unwind" fn base_alloc(_block: *mut c_void, _bytes: *mut usize) -> *mut c_void {
    // SAFETY: this frame has nothing to be dropped, and the caller is C++.
    unsafe { throw(NO_SHARING.to_bytes_with_nul()) }
}

/// Begin of a capture. PyTorch passes arguments, which are not looked at.
///
/// # Safety
/// The caller is C++.
unsafe extern "C-unwind" fn begin_allocate_to_pool() {
    // SAFETY: as above.
    unsafe { throw(NO_CAPTURE.to_bytes_with_nul()) }
}

/// Calls into the pool where nobody hears of a failure: PyTorch's side has none to report it, and
/// no panic may pass a frame of C.
fn quietly(call: impl FnOnce(&TorchPool)) {
    if let Some((pool, _)) = INSTALLED.get() {
        let _ = catch_unwind(AssertUnwindSafe(|| call(pool)));
    }
}
