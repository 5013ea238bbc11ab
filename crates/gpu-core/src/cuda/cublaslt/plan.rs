//! Plan of a product: the library's descriptors, and the algorithm that it chose.
//!
//! The library counts matrices column by column, where ours lie row by row: what is a matrix here
//! is the transposed one there. So it is asked for the transposed product, outᵀ `[N, M]` = b · aᵀ,
//! whose first matrix is our second one. One that is not transposed, `[N, K]` here, is `[K, N]`
//! there and to be transposed in the first place, and is right as it is in the second.

#![allow(unsafe_code, reason = "the driver is called")]

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::Arc;

use cust::sys::CUstream;
use megabatch_cuda_lazy::cublaslt::{
    Algorithm, COMPUTE_32F, COMPUTE_32F_FAST_TF32, DESC_BIAS_POINTER, DESC_EPILOGUE, DESC_TRANSA, DESC_TRANSB,
    EPILOGUE_BIAS, HeuristicResult, MatrixLayout, NOT_SUPPORTED, OP_T, Operation, PREF_MAX_WORKSPACE_BYTES,
    PREF_MIN_ALIGNMENT_BYTES, Preference, R_16BF, R_16F, R_32F, SUCCESS,
};

use super::super::fault::DriverFault;
use super::ProductKind;
use super::handle::LibraryHandle;
use crate::matrix_product::{FactorType, MatrixAddresses, MatrixProduct};

/// Plan of the products of one kind.
#[derive(Debug)]
pub(in super::super) struct ProductPlan {
    product: MatrixProduct,
    operation: Operation,
    /// Layouts of b, a and the output.
    layouts: [MatrixLayout; 3],
    algorithm: Algorithm,
    handle: Arc<LibraryHandle>,
}

// SAFETY: descriptors are memory of the host that nobody changes once a plan is made.
unsafe impl Send for ProductPlan {}
// SAFETY: as above.
unsafe impl Sync for ProductPlan {}

impl ProductPlan {
    /// `None` if the library cannot multiply the kind.
    pub(super) fn new(handle: &Arc<LibraryHandle>, kind: &ProductKind) -> Result<Option<Self>, DriverFault> {
        handle.context().enter_aside()?;
        let mut plan = ProductPlan {
            product: kind.product,
            operation: ptr::null_mut(),
            layouts: [ptr::null_mut(); 3],
            algorithm: Algorithm::default(),
            handle: Arc::clone(handle),
        };
        plan.describe_operation(kind.bias)?;
        plan.describe_layouts()?;
        let Some(algorithm) = plan.find_algorithm(kind)? else { return Ok(None) };
        plan.algorithm = algorithm;
        Ok(Some(plan))
    }

    fn describe_operation(&mut self, bias: u64) -> Result<(), DriverFault> {
        let compute = match self.product.factors {
            FactorType::F16 | FactorType::Bf16 => COMPUTE_32F,
            FactorType::Tf32 => COMPUTE_32F_FAST_TF32,
        };
        // SAFETY: the address is that of a field of `self`.
        let status = unsafe { (self.handle.library().create_operation)(&raw mut self.operation, compute, R_32F) };
        self.handle.checked("cublasLtMatmulDescCreate", format_args!("compute type {compute}"), status)?;
        let [is_a_transposed, is_b_transposed] = self.product.transposed;
        if !is_b_transposed {
            self.set(DESC_TRANSA, OP_T)?;
        }
        if is_a_transposed {
            self.set(DESC_TRANSB, OP_T)?;
        }
        if bias != 0 {
            // Of the type of the output, unless told otherwise.
            self.set(DESC_EPILOGUE, EPILOGUE_BIAS)?;
            self.set(DESC_BIAS_POINTER, bias)?;
        }
        Ok(())
    }

    fn set<T: bytemuck::Pod>(&self, attribute: c_int, value: T) -> Result<(), DriverFault> {
        let (set, src) = (self.handle.library().set_operation, (&raw const value).cast());
        // SAFETY: the operation is live, and the library copies as many bytes of a variable as that
        // has.
        let status = unsafe { set(self.operation, attribute, src, size_of::<T>()) };
        self.handle.checked("cublasLtMatmulDescSetAttribute", format_args!("attribute {attribute}"), status)
    }

    fn describe_layouts(&mut self) -> Result<(), DriverFault> {
        let MatrixProduct { shape: [rows, columns, inner], transposed: [is_a_transposed, is_b_transposed], factors } =
            self.product;
        let factor_type = match factors {
            FactorType::F16 => R_16F,
            FactorType::Bf16 => R_16BF,
            FactorType::Tf32 => R_32F,
        };
        let a = if is_a_transposed { [rows, inner] } else { [inner, rows] };
        let b = if is_b_transposed { [columns, inner] } else { [inner, columns] };
        let matrices = [(factor_type, b), (factor_type, a), (R_32F, [columns, rows])];
        for (layout, (element_type, [rows, columns])) in self.layouts.iter_mut().zip(matrices) {
            let create = self.handle.library().create_layout;
            // SAFETY: the address is that of a field of `self`.
            let status = unsafe { create(&raw mut *layout, element_type, rows as u64, columns as u64, rows as i64) };
            let operands = format_args!("type {element_type}, {rows} rows, {columns} columns");
            self.handle.checked("cublasLtMatrixLayoutCreate", operands, status)?;
        }
        Ok(())
    }

    fn find_algorithm(&self, kind: &ProductKind) -> Result<Option<Algorithm>, DriverFault> {
        let wishes = Wishes::new(&self.handle, kind)?;
        let (mut result, mut count) = (HeuristicResult::default(), 0);
        let [first, second, out] = self.layouts;
        // SAFETY: descriptors are live, there is room for one result, and both addresses are those
        // of variables of this function.
        let status = unsafe {
            let find = self.handle.library().find_algorithms;
            let (handle, result, count) = (self.handle.raw(), &raw mut result, &raw mut count);
            find(handle, self.operation, first, second, out, out, wishes.preference, 1, result, count)
        };
        if status == NOT_SUPPORTED {
            return Ok(None);
        }
        self.handle.checked("cublasLtMatmulAlgoGetHeuristic", format_args!("{:?}", self.product), status)?;
        Ok((count > 0 && result.state == SUCCESS).then_some(result.algorithm))
    }

    /// Submits a product; the context is current.
    ///
    /// # Safety
    /// As [`GpuCommand::submit`](super::super::gpu_command::GpuCommand::submit). The addresses are
    /// aligned as those of the kind, and so large is the workspace.
    pub(in super::super) unsafe fn submit(
        &self,
        addresses: &MatrixAddresses,
        stream: CUstream,
    ) -> Result<(), DriverFault> {
        let (alpha, beta) = (1.0f32, 0.0f32);
        let [alpha, beta] = [&raw const alpha, &raw const beta].map(<*const f32>::cast::<c_void>);
        let address = |address: u64| ptr::with_exposed_provenance_mut::<c_void>(address as usize);
        let ([first, second, out], (workspace, bytes)) = (self.layouts, addresses.workspace);
        // SAFETY: as the caller promised. The library reads the scalars, which are of the host,
        // before it returns.
        let status = unsafe {
            (self.handle.library().multiply)(
                self.handle.raw(),
                self.operation,
                alpha,
                address(addresses.b),
                first,
                address(addresses.a),
                second,
                beta,
                address(addresses.out),
                out,
                address(addresses.out),
                out,
                &raw const self.algorithm,
                address(workspace),
                bytes,
                stream.cast(),
            )
        };
        self.handle.checked("cublasLtMatmul", format_args!("{:?}, {addresses:?}", self.product), status)
    }
}

impl Drop for ProductPlan {
    fn drop(&mut self) {
        let library = self.handle.library();
        // SAFETY: the library gave the descriptors, and nobody else has them. What was submitted
        // does not need them.
        unsafe {
            self.layouts.iter().filter(|layout| !layout.is_null()).for_each(|&layout| {
                let _ = (library.destroy_layout)(layout);
            });
            if !self.operation.is_null() {
                let _ = (library.destroy_operation)(self.operation);
            }
        }
    }
}

/// Limits of an algorithm.
struct Wishes {
    preference: Preference,
    handle: Arc<LibraryHandle>,
}

impl Wishes {
    fn new(handle: &Arc<LibraryHandle>, kind: &ProductKind) -> Result<Self, DriverFault> {
        let mut wishes = Wishes { preference: ptr::null_mut(), handle: Arc::clone(handle) };
        // SAFETY: the address is that of a variable of this function.
        let status = unsafe { (handle.library().create_preference)(&raw mut wishes.preference) };
        handle.checked("cublasLtMatmulPreferenceCreate", format_args!("no operands"), status)?;
        wishes.set(PREF_MAX_WORKSPACE_BYTES, kind.workspace_bytes as u64)?;
        let [a, b, out] = kind.alignments_bytes;
        PREF_MIN_ALIGNMENT_BYTES
            .into_iter()
            .zip([b, a, out, out])
            .try_for_each(|(attribute, bytes)| wishes.set(attribute, bytes))?;
        Ok(wishes)
    }

    fn set<T: bytemuck::Pod>(&self, attribute: c_int, value: T) -> Result<(), DriverFault> {
        let (set, src) = (self.handle.library().set_preference, (&raw const value).cast());
        // SAFETY: the preference is live, and the library copies as many bytes of a variable as
        // that has.
        let status = unsafe { set(self.preference, attribute, src, size_of::<T>()) };
        self.handle.checked("cublasLtMatmulPreferenceSetAttribute", format_args!("attribute {attribute}"), status)
    }
}

impl Drop for Wishes {
    fn drop(&mut self) {
        if !self.preference.is_null() {
            // SAFETY: the library gave it, and nobody else has it.
            let _ = unsafe { (self.handle.library().destroy_preference)(self.preference) };
        }
    }
}
