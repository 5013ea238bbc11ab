//! Matrix products by NVIDIA's cuBLASLt, where a machine has it.

use crate::cuda;
use crate::device::Cuda;
use crate::error::Result;
use crate::matrix_product::{MatrixAddresses, MatrixProduct};

/// The library on one GPU. It is looked for when somebody asks for it: nothing is linked, and a
/// machine without it has everything else.
///
/// Which algorithm multiplies, the library decides by its own rules when a product of a kind first
/// comes; it is kept, so that a product has the same bits for as long as this lives. The [work held
/// back](crate::Captures) has a product as one thing, whatever the library launches for it, and
/// captures it with the rest.
#[derive(Debug)]
pub struct CublasLt {
    of_gpu: cuda::CublasLt,
}

impl CublasLt {
    /// The library on a GPU; `None` where the machine has none that the driver can run.
    ///
    /// # Errors
    /// [`Error::Driver`](crate::Error::Driver) where it is there and does not start.
    pub fn open(cuda: &Cuda) -> Result<Option<Self>> {
        Ok(cuda::CublasLt::open(&cuda.shared_gpu())?.map(|of_gpu| CublasLt { of_gpu }))
    }

    /// Such as `cuBLASLt 12.4.5`.
    pub fn name(&self) -> String {
        self.of_gpu.name()
    }

    /// Submits a product to the default stream; `false` where the library has no way to multiply
    /// so. The first of a kind is not [held back](crate::Captures), so that what the library says
    /// of it is said here.
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
    pub unsafe fn multiply(&mut self, product: &MatrixProduct, at: &MatrixAddresses) -> Result<bool> {
        assert!(product.shape.iter().all(|&len| len > 0), "a product of {:?} has no elements", product.shape);
        // SAFETY: as the caller promised.
        unsafe { self.of_gpu.multiply(product, at) }
    }
}
