//! Matrix products by NVIDIA's cuBLASLt, where a machine has it.

#![allow(unsafe_code, reason = "the driver is called")]

use std::path::PathBuf;

use crate::cuda;
use crate::device::Cuda;
use crate::error::Result;
use crate::matrix_product::{MatrixAddresses, MatrixProduct};

/// The library on one GPU. It is loaded when it is first opened: nothing is linked, and a machine
/// without it works otherwise.
///
/// The library's heuristic picks an algorithm at the first product of a shape; the choice is kept,
/// so that a product has the same bits for as long as this value lives. [Captures](crate::Captures)
/// record a product as one command, whatever the library launches for it.
#[derive(Debug)]
pub struct CublasLt {
    library: cuda::CublasLt,
}

impl CublasLt {
    /// The library on a GPU; `None` where the machine has none that the driver can run.
    ///
    /// # Errors
    /// [`Error::Driver`](crate::Error::Driver) where it is there and does not start.
    pub fn open(cuda: &Cuda) -> Result<Option<Self>> {
        Ok(cuda::CublasLt::open(&cuda.shared_gpu())?.map(|library| CublasLt { library }))
    }

    /// Names folders where the library is looked for if the system's loader finds none, such as
    /// those of NVIDIA's Python wheels. Only the first call of a process lists them; it comes
    /// before the first [`CublasLt::open`].
    pub fn search_in(list: impl FnOnce() -> Vec<PathBuf>) {
        cuda::CublasLt::search_in(list);
    }

    /// Name by which the loader found the library, or its path.
    pub fn path(&self) -> PathBuf {
        self.library.path()
    }

    /// Name and version, such as `cuBLASLt 12.4.5`.
    pub fn name(&self) -> String {
        self.library.name()
    }

    /// Submits a product to the default stream; `false` where the library has no algorithm for it.
    /// The first product of a shape is not [deferred](crate::Captures), so that its errors are
    /// returned here.
    ///
    /// # Errors
    /// [`Error::Driver`](crate::Error::Driver) with the library's function and code, where a call
    /// fails. The output is then undefined.
    ///
    /// # Panics
    /// If a matrix has no elements.
    ///
    /// # Safety
    /// The memory at the addresses has the elements of the shape and the bytes of the workspace, on
    /// this GPU, for as long as it takes. Nobody touches on another stream what is written, or
    /// writes what is read, unless ordered by events.
    #[cfg_attr(not(feature = "cuda"), allow(unused_unsafe, reason = "where there are no GPUs, nothing is unsafe"))]
    pub unsafe fn multiply(&mut self, product: &MatrixProduct, addresses: &MatrixAddresses) -> Result<bool> {
        assert!(product.shape.iter().all(|&len| len > 0), "a product of {:?} has no elements", product.shape);
        // SAFETY: as the caller promised.
        unsafe { self.library.multiply(product, addresses) }
    }
}
