//! cuBLASLt, NVIDIA's library of matrix products: the functions and numbers of it that megabatch
//! needs, where the machine has it.
//!
//! Source: cuBLAS documentation, "Using the cuBLASLt API"; cublasLt.h, cublas_api.h and
//! library_types.h, in which all of this has been the same since CUDA 11.0.

use std::ffi::{c_char, c_int, c_void};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use libloading::Library;

/// `cublasStatus_t`.
pub type Status = c_int;
/// `CUBLAS_STATUS_SUCCESS`.
pub const SUCCESS: Status = 0;
/// `CUBLAS_STATUS_NOT_SUPPORTED`.
pub const NOT_SUPPORTED: Status = 15;

/// `cublasComputeType_t`: `CUBLAS_COMPUTE_32F`.
pub const COMPUTE_32F: c_int = 68;
/// `cublasComputeType_t`: `CUBLAS_COMPUTE_32F_FAST_TF32`.
pub const COMPUTE_32F_FAST_TF32: c_int = 77;

/// `cudaDataType_t`: `CUDA_R_32F`.
pub const R_32F: c_int = 0;
/// `cudaDataType_t`: `CUDA_R_16F`.
pub const R_16F: c_int = 2;
/// `cudaDataType_t`: `CUDA_R_16BF`.
pub const R_16BF: c_int = 14;

/// `cublasOperation_t`: `CUBLAS_OP_T`. The default is `CUBLAS_OP_N`.
pub const OP_T: i32 = 1;
/// `cublasLtEpilogue_t`: `CUBLASLT_EPILOGUE_BIAS`.
pub const EPILOGUE_BIAS: u32 = 4;

/// `cublasLtMatmulDescAttributes_t`, with an `i32`: `CUBLASLT_MATMUL_DESC_TRANSA`.
pub const DESC_TRANSA: c_int = 3;
/// `cublasLtMatmulDescAttributes_t`, with an `i32`: `CUBLASLT_MATMUL_DESC_TRANSB`.
pub const DESC_TRANSB: c_int = 4;
/// `cublasLtMatmulDescAttributes_t`, with a `u32`: `CUBLASLT_MATMUL_DESC_EPILOGUE`.
pub const DESC_EPILOGUE: c_int = 7;
/// `cublasLtMatmulDescAttributes_t`, with an address: `CUBLASLT_MATMUL_DESC_BIAS_POINTER`.
pub const DESC_BIAS_POINTER: c_int = 8;

/// `cublasLtMatmulPreferenceAttributes_t`, with a `u64`:
/// `CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES`.
pub const PREF_MAX_WORKSPACE_BYTES: c_int = 1;
/// `cublasLtMatmulPreferenceAttributes_t`, with a `u32`:
/// `CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES`, then those of B, C and D.
pub const PREF_MIN_ALIGNMENT_BYTES: [c_int; 4] = [5, 6, 7, 8];

/// `cublasLtMatmulAlgo_t`, which is opaque.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Algorithm {
    data: [u64; 8],
}

/// `cublasLtMatmulHeuristicResult_t`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct HeuristicResult {
    /// Algorithm of the product.
    pub algorithm: Algorithm,
    /// Bytes of workspace that it takes.
    pub workspace_bytes: usize,
    /// True if it can be had.
    pub state: Status,
    /// Occupancy of the GPU, in waves.
    pub waves_count: f32,
    reserved: [c_int; 4],
}

const _: () = assert!(size_of::<Algorithm>() == 64 && size_of::<HeuristicResult>() == 96);

/// `cublasLtHandle_t`.
pub type Handle = *mut c_void;
/// `cublasLtMatmulDesc_t`.
pub type Operation = *mut c_void;
/// `cublasLtMatrixLayout_t`.
pub type MatrixLayout = *mut c_void;
/// `cublasLtMatmulPreference_t`.
pub type Preference = *mut c_void;

/// Defines a table of functions by their names in the library.
macro_rules! table {
    ($($field:ident = $name:literal ($($kind:ty),*) -> $result:ty;)*) => {
        /// The library's functions.
        #[derive(Debug)]
        #[allow(missing_docs, reason = "they are the library's own")]
        pub struct CublasLt {
            /// Name by which the loader found the library, or its path.
            pub path: PathBuf,
            $(pub $field: unsafe extern "C" fn($($kind),*) -> $result,)*
        }

        impl CublasLt {
            /// Functions of an open library; `None` where it lacks one of them.
            fn new(library: &Library, path: &Path) -> Option<Self> {
                Some(CublasLt {
                    path: path.to_owned(),
                    // SAFETY: the library's header declares the function of this name with these
                    // parameters.
                    $($field: *unsafe { library.get::<unsafe extern "C" fn($($kind),*) -> $result>($name) }.ok()?,)*
                })
            }
        }
    };
}

table! {
    version = b"cublasLtGetVersion"() -> usize;
    status_name = b"cublasLtGetStatusName"(Status) -> *const c_char;
    status_string = b"cublasLtGetStatusString"(Status) -> *const c_char;
    create = b"cublasLtCreate"(*mut Handle) -> Status;
    destroy = b"cublasLtDestroy"(Handle) -> Status;
    create_operation = b"cublasLtMatmulDescCreate"(*mut Operation, c_int, c_int) -> Status;
    destroy_operation = b"cublasLtMatmulDescDestroy"(Operation) -> Status;
    set_operation = b"cublasLtMatmulDescSetAttribute"(Operation, c_int, *const c_void, usize) -> Status;
    create_layout = b"cublasLtMatrixLayoutCreate"(*mut MatrixLayout, c_int, u64, u64, i64) -> Status;
    destroy_layout = b"cublasLtMatrixLayoutDestroy"(MatrixLayout) -> Status;
    create_preference = b"cublasLtMatmulPreferenceCreate"(*mut Preference) -> Status;
    destroy_preference = b"cublasLtMatmulPreferenceDestroy"(Preference) -> Status;
    set_preference = b"cublasLtMatmulPreferenceSetAttribute"(Preference, c_int, *const c_void, usize) -> Status;
    find_algorithms = b"cublasLtMatmulAlgoGetHeuristic"(
        Handle, Operation, MatrixLayout, MatrixLayout, MatrixLayout, MatrixLayout, Preference, c_int, *mut HeuristicResult, *mut c_int
    ) -> Status;
    multiply = b"cublasLtMatmul"(
        Handle, Operation, *const c_void, *const c_void, MatrixLayout, *const c_void, MatrixLayout, *const c_void, *const c_void, MatrixLayout, *mut c_void,
        MatrixLayout, *const Algorithm, *mut c_void, usize, *mut c_void
    ) -> Status;
}

/// The releases of CUDA whose library these functions fit, the newest first.
const MAJORS: [u32; 3] = [13, 12, 11];

/// Folders where the loader does not look.
static FOLDERS: OnceLock<Vec<PathBuf>> = OnceLock::new();

/// Names folders that are searched where the loader finds no library, such as those of NVIDIA's
/// Python wheels (`site-packages/nvidia/*/lib`). Only the first call of a process lists them; it
/// comes before the first [`cublaslt`].
pub fn search_in(list: impl FnOnce() -> Vec<PathBuf>) {
    FOLDERS.get_or_init(list);
}

/// The newest library that is here and that a driver for CUDA `major` runs; `None` where there is
/// none. The first call looks for it, and what it found stays open: it is a library that starts
/// threads and takes memory of GPUs, which nobody can wait for.
pub fn cublaslt(major: u32) -> Option<&'static CublasLt> {
    static OPENED: OnceLock<Option<CublasLt>> = OnceLock::new();
    let opened = || MAJORS.into_iter().filter(|&newest| newest <= major).find_map(open);
    OPENED.get_or_init(opened).as_ref()
}

/// The library of CUDA `major`: the loader's, else that of a folder.
fn open(major: u32) -> Option<CublasLt> {
    let name = if cfg!(windows) { format!("cublasLt64_{major}.dll") } else { format!("libcublasLt.so.{major}") };
    let folders = FOLDERS.get().map_or(&[][..], Vec::as_slice);
    let in_folders = folders.iter().map(|folder| folder.join(&name)).filter(|path| path.is_file());
    std::iter::once(PathBuf::from(&name)).chain(in_folders).find_map(|path| {
        // SAFETY: the library's initialisation has no conditions that this process could fail to
        // meet.
        let library = Box::leak(Box::new(unsafe { Library::new(&path) }.ok()?));
        CublasLt::new(library, &path)
    })
}
