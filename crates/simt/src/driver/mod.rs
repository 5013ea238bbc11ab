//! A CUDA driver without a GPU: a `libcuda.so.1` compiled when the tests run, for the paths that no
//! machine takes on demand.
//!
//! It emulates the driver on the CPU: contexts, attributes, virtual memory over a memfd (so that
//! mapping a granule twice is real), streams, events, copies, modules, launches and the capture of
//! graphs. It is stricter than the driver where a caller could go wrong unseen, and fails where a
//! test asks it to. What it cannot show is how a real driver behaves.
//!
//! Loaded first, by its path, it is found by every later `dlopen("libcuda.so.1")` of the process,
//! which goes by that name.
//!
//! Beside it comes a fake cuBLASLt, which multiplies on the CPU what its descriptors say and
//! refuses what the library would, or what no algorithm that it gave is for.

#![allow(unsafe_code, reason = "kernels and driver are loaded libraries")]

mod compile;

use std::ffi::{CString, c_char, c_int, c_void};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use libloading::{Library, Symbol};

use compile::Flavour;

/// The code of `CUDA_ERROR_OUT_OF_MEMORY`.
pub const OUT_OF_MEMORY: i32 = 2;

/// Settings of a test, each with its value in a fresh driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setting {
    /// Number of GPUs: 1.
    Devices,
    /// Version as `1000 · major + 10 · minor`: 12040.
    DriverVersion,
    /// Memory of a GPU in bytes: 256 MiB.
    TotalBytes,
    /// Compute capability as `10 · major + minor`: 80.
    ComputeCapability,
    /// True if the GPU has virtual memory management: 1.
    VirtualMemory,
    /// Bytes that others hold of the GPU: 0.
    HeldByOthersBytes,
    /// Threads that one of its four multiprocessors holds at once, whatever else a block takes:
    /// 2048.
    ResidentThreads,
    /// 1: kernels without an object do nothing, nor do fills of memory, so that only the work of
    /// the host is left. 0: such kernels are refused.
    EmptyKernels,
    /// 0: work is done when it is submitted. 1: only when somebody waits for it, and no more of it
    /// than that takes.
    Deferred,
    /// Version of cuBLASLt as the library counts, such as 120405: 0, which is too old to be used.
    /// Its products are counted and timed as the kernel `cublasLtMatmul`.
    CublasLtVersion,
}

impl Setting {
    fn name(self) -> &'static str {
        match self {
            Setting::Devices => "devices",
            Setting::DriverVersion => "driver_version",
            Setting::TotalBytes => "total_bytes",
            Setting::ComputeCapability => "compute_capability",
            Setting::VirtualMemory => "virtual_memory",
            Setting::HeldByOthersBytes => "held_by_others_bytes",
            Setting::ResidentThreads => "resident_threads",
            Setting::EmptyKernels => "empty_kernels",
            Setting::Deferred => "deferred",
            Setting::CublasLtVersion => "cublaslt_version",
        }
    }
}

/// The fake driver as this process has it, in the state of a fresh one, for one test at a time.
#[derive(Debug)]
pub struct FakeDriver {
    library: &'static Library,
    _alone: MutexGuard<'static, ()>,
}

impl FakeDriver {
    /// The variable with which a program is started that finds the driver in
    /// [`FakeDriver::folder`]: paths of objects as [`FakeDriver::add_kernels`] takes, separated by
    /// colons.
    pub const KERNELS: &str = "FAKE_CUDA_KERNELS";

    /// The whole driver. Waits until the test before has dropped it.
    ///
    /// # Panics
    /// If it cannot be compiled or loaded, or if this process has loaded another one.
    pub fn whole() -> Self {
        FakeDriver::with_flavour(Flavour::Whole)
    }

    /// A driver from before virtual memory management: it lacks those functions.
    ///
    /// # Panics
    /// As [`FakeDriver::whole`].
    pub fn without_virtual_memory() -> Self {
        FakeDriver::with_flavour(Flavour::WithoutVirtualMemory)
    }

    fn with_flavour(flavour: Flavour) -> Self {
        static ALONE: Mutex<()> = Mutex::new(());
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let driver = FakeDriver { library: loaded(flavour), _alone: alone };
        driver.reset();
        driver
    }

    /// A folder with the whole driver as `libcuda.so.1`: a program that is started with it in
    /// `LD_LIBRARY_PATH` finds the driver there.
    ///
    /// # Panics
    /// If it cannot be compiled.
    pub fn folder() -> PathBuf {
        compile::driver(Flavour::Whole).parent().expect("a file is in a folder").to_owned()
    }

    /// A folder with the fake cuBLASLt as `libcublasLt.so.12`.
    ///
    /// # Panics
    /// If it cannot be compiled.
    pub fn cublaslt_folder() -> PathBuf {
        compile::cublaslt().parent().expect("a file is in a folder").to_owned()
    }

    /// Changes a setting of the driver.
    pub fn set(&self, setting: Setting, value: u64) {
        let name = text(setting.name());
        // SAFETY: this is the function's type in context.cpp; the text lives until it returns.
        let known = unsafe {
            self.function::<unsafe extern "C" fn(*const c_char, u64) -> c_int>("fake_set")(name.as_ptr(), value)
        };
        assert_eq!(known, 1, "the fake driver has no setting {setting:?}");
    }

    /// Makes the `nth` call of the driver's function `call` from now on, or of cuBLASLt's, counted
    /// from 1, do nothing and return `code`.
    pub fn fail(&self, call: &str, nth: u64, code: i32) {
        let call = text(call);
        // SAFETY: this is the function's type in context.cpp; the text lives until it returns.
        unsafe {
            self.function::<unsafe extern "C" fn(*const c_char, u64, c_int)>("fake_fail")(call.as_ptr(), nth, code);
        }
    }

    /// Number of calls of the driver's function `call`.
    pub fn calls(&self, call: &str) -> u64 {
        let call = text(call);
        // SAFETY: this is the function's type in context.cpp; the text lives until it returns.
        unsafe { self.function::<unsafe extern "C" fn(*const c_char) -> u64>("fake_calls")(call.as_ptr()) }
    }

    /// Number of calls of all the driver's functions.
    pub fn calls_total(&self) -> u64 {
        // SAFETY: this is the function's type in context.cpp.
        unsafe { self.function::<unsafe extern "C" fn() -> u64>("fake_calls_total")() }
    }

    /// A number for all kernels that ran since this was asked last, in launches of their own or in
    /// graphs: which, their grids and arguments, in their order.
    pub fn launches(&self) -> u64 {
        // SAFETY: this is the function's type in modules.cpp.
        unsafe { self.function::<unsafe extern "C" fn() -> u64>("fake_launches")() }
    }

    /// Sets the time of `kernel` by the GPU's events, in microseconds. From then on, kernels
    /// without a set time take none.
    pub fn takes(&self, kernel: &str, us: u64) {
        let kernel = text(kernel);
        // SAFETY: this is the function's type in modules.cpp; the text lives until it returns.
        unsafe { self.function::<unsafe extern "C" fn(*const c_char, u64)>("fake_takes")(kernel.as_ptr(), us) }
    }

    /// Number of runs of `kernel`, in launches of its own or in graphs.
    pub fn runs(&self, kernel: &str) -> u64 {
        let kernel = text(kernel);
        // SAFETY: this is the function's type in modules.cpp; the text lives until it returns.
        unsafe { self.function::<unsafe extern "C" fn(*const c_char) -> u64>("fake_runs")(kernel.as_ptr()) }
    }

    /// Bytes of physical memory that exist.
    pub fn physical_bytes(&self) -> u64 {
        // SAFETY: this is the function's type in context.cpp.
        unsafe { self.function::<unsafe extern "C" fn() -> u64>("fake_physical_bytes")() }
    }

    /// Reservations, mappings, streams, events, modules, graphs and blocks of pinned memory that
    /// exist.
    pub fn live_objects(&self) -> u64 {
        // SAFETY: this is the function's type in context.cpp.
        unsafe { self.function::<unsafe extern "C" fn() -> u64>("fake_live_objects")() }
    }

    /// Handles and descriptors of cuBLASLt that exist.
    ///
    /// # Panics
    /// If it cannot be loaded.
    pub fn cublaslt_objects(&self) -> u64 {
        // SAFETY: this is the function's type in cublaslt.cpp.
        unsafe { cublaslt().get::<unsafe extern "C" fn() -> u64>(b"fake_cublaslt_objects").expect("it has it")() }
    }

    /// Primary contexts that are retained and not released.
    pub fn contexts_retained(&self) -> i32 {
        // SAFETY: this is the function's type in context.cpp.
        unsafe { self.function::<unsafe extern "C" fn() -> c_int>("fake_contexts_retained")() }
    }

    /// A stream as another library of the process makes it, which the default stream does not wait
    /// for: its handle.
    pub fn external_stream(&self) -> u64 {
        const NON_BLOCKING: u32 = 1;
        type Create = unsafe extern "C" fn(*mut u64, u32, c_int) -> c_int;
        let mut stream = 0;
        self.make_current();
        // SAFETY: this is the function's type; `stream` is a variable of this function.
        let code = unsafe { self.function::<Create>("cuStreamCreateWithPriority")(&raw mut stream, NON_BLOCKING, 0) };
        assert_eq!(code, 0);
        stream
    }

    /// Submits to `stream` that `bytes` from `address` on become `value`.
    pub fn fill(&self, address: u64, value: u8, bytes: usize, stream: u64) {
        type Fill = unsafe extern "C" fn(u64, u8, usize, u64) -> c_int;
        self.make_current();
        // SAFETY: this is the function's type; it looks the address up.
        let code = unsafe { self.function::<Fill>("cuMemsetD8Async")(address, value, bytes, stream) };
        assert_eq!(code, 0, "{bytes} bytes at {address:#x}");
    }

    /// Has the work of `stream` done, and no other than that takes.
    pub fn synchronize(&self, stream: u64) {
        self.make_current();
        // SAFETY: this is the function's type.
        let code = unsafe { self.function::<unsafe extern "C" fn(u64) -> c_int>("cuStreamSynchronize")(stream) };
        assert_eq!(code, 0);
    }

    /// Has all work done.
    pub fn synchronize_all(&self) {
        self.make_current();
        // SAFETY: this is the function's type.
        assert_eq!(unsafe { self.function::<unsafe extern "C" fn() -> c_int>("cuCtxSynchronize")() }, 0);
    }

    /// The bytes from `address` on, as they are now.
    pub fn peek(&self, address: u64, bytes: usize) -> Vec<u8> {
        type Copy = unsafe extern "C" fn(*mut u8, u64, usize, u64) -> c_int;
        let mut values = vec![0; bytes];
        self.make_current();
        // SAFETY: this is the function's type; there is room for so many bytes. The copy is done
        // when the stream is, before `values` is read.
        let code = unsafe { self.function::<Copy>("cuMemcpyDtoHAsync_v2")(values.as_mut_ptr(), address, bytes, 0) };
        assert_eq!(code, 0, "{bytes} bytes at {address:#x}");
        self.synchronize(0);
        values
    }

    /// The context that is current on this thread; 0 without one.
    pub fn current_context(&self) -> u64 {
        let mut context = 0;
        // SAFETY: this is the function's type; `context` is a variable of this function.
        unsafe { self.function::<unsafe extern "C" fn(*mut u64) -> c_int>("cuCtxGetCurrent")(&raw mut context) };
        context
    }

    /// Makes the first GPU's primary context current on this thread.
    fn make_current(&self) {
        let mut context = std::ptr::null_mut();
        // SAFETY: these are the functions' types; `context` is a variable of this function.
        unsafe {
            type Retain = unsafe extern "C" fn(*mut *mut c_void, c_int) -> c_int;
            assert_eq!(self.function::<unsafe extern "C" fn(u32) -> c_int>("cuInit")(0), 0);
            assert_eq!(self.function::<Retain>("cuDevicePrimaryCtxRetain")(&raw mut context, 0), 0);
            assert_eq!(self.function::<unsafe extern "C" fn(c_int) -> c_int>("cuDevicePrimaryCtxRelease_v2")(0), 0);
            assert_eq!(self.function::<unsafe extern "C" fn(*mut c_void) -> c_int>("cuCtxSetCurrent")(context), 0);
        }
    }

    /// Lets the entries of modules stand for the functions `simt_<entry>` of a shared object: `int
    /// simt_<entry>(const unsigned grid[3], const unsigned block[3], size_t dynamic_shared, void**
    /// params)`, which returns 0 unless the kernel went wrong; a cooperative launch takes
    /// `simt_cooperative_<entry>`, where there is one. [`Kernels::path`](crate::Kernels::path) is
    /// such an object.
    ///
    /// # Panics
    /// If the object cannot be loaded.
    pub fn add_kernels(&self, object: &Path) {
        let path = text(object.to_str().expect("a path of ours is text"));
        // SAFETY: this is the function's type in modules.cpp; the text lives until it returns.
        let loaded =
            unsafe { self.function::<unsafe extern "C" fn(*const c_char) -> c_int>("fake_add_kernels")(path.as_ptr()) };
        assert_eq!(loaded, 1, "{} cannot be loaded", object.display());
    }

    /// Lets the entries of modules stand for the functions `simt_<entry>` of a C++ source.
    ///
    /// # Panics
    /// If it cannot be compiled or loaded.
    pub fn add_kernel_source(&self, source: &str) {
        self.add_kernels(&compile::source(source));
    }

    fn reset(&self) {
        // SAFETY: this is the function's type in context.cpp. No test is running but the one that
        // holds `self`.
        unsafe { self.function::<unsafe extern "C" fn()>("fake_reset")() }
    }

    /// # Safety
    /// `F` is the type of the function `name`.
    unsafe fn function<F>(&self, name: &str) -> Symbol<'static, F> {
        // SAFETY: as the caller promised.
        unsafe { self.library.get(name.as_bytes()) }.expect("the fake driver has its functions")
    }
}

/// A library of the driver's name that records the arguments of its functions.
#[derive(Debug)]
pub struct Echo {
    library: &'static Library,
}

impl Echo {
    /// Loads it.
    ///
    /// # Panics
    /// If it cannot be compiled or loaded, or if this process has loaded a fake driver.
    pub fn load() -> Self {
        Echo { library: loaded(Flavour::Echo) }
    }

    /// The first `count` arguments of the last call, each widened to 64 bits.
    pub fn given(&self, count: usize) -> Vec<u64> {
        // SAFETY: this is the function's type in echo.cpp; what it points at lives as long as the
        // library.
        let given = unsafe { self.library.get::<unsafe extern "C" fn() -> *const [u64; 16]>(b"echo_given") };
        // SAFETY: as above.
        let words = unsafe { *given.expect("echo.cpp has it")() };
        words[..count].to_vec()
    }

    /// Sets the result of every function from now on.
    pub fn returns(&self, code: i32) {
        // SAFETY: this is the function's type in echo.cpp.
        unsafe { self.library.get::<unsafe extern "C" fn(c_int)>(b"echo_return").expect("echo.cpp has it")(code) }
    }
}

/// The one library of the driver's name that this process has.
fn loaded(flavour: Flavour) -> &'static Library {
    static LOADED: OnceLock<(Flavour, Library)> = OnceLock::new();
    let (first, library) = LOADED.get_or_init(|| {
        let path = compile::driver(flavour);
        // SAFETY: the library's initialisation constructs a few maps.
        let driver = unsafe { Library::new(&path) }.expect("the fake driver can be loaded");
        if flavour == Flavour::Whole {
            // Also for tests that use none, lest a true one that the machine may have meet the fake
            // driver.
            cublaslt();
        }
        (flavour, driver)
    });
    assert_eq!(*first, flavour, "a process has one driver: put tests of another one into a test program of their own");
    library
}

/// The fake cuBLASLt of this process.
fn cublaslt() -> &'static Library {
    static LOADED: OnceLock<Library> = OnceLock::new();
    // SAFETY: the library's initialisation constructs a few sets.
    LOADED.get_or_init(|| unsafe { Library::new(compile::cublaslt()) }.expect("the fake cuBLASLt can be loaded"))
}

fn text(text: &str) -> CString {
    CString::new(text).expect("names have no zero in them")
}
