//! cuBLASLt on a GPU: its handle, and how each kind of product is multiplied.
//!
//! Source: cuBLAS documentation, "Using the cuBLASLt API". Functions may be called on any thread,
//! with one handle too ("Thread Safety"); what they launch can be captured ("CUDA Graphs Support").

#![allow(unsafe_code, reason = "the driver is called")]

mod handle;
mod plan;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use super::Gpu;
use super::gpu_command::GpuCommand;
use super::stream::GpuStreams;
use crate::error::Result;
use crate::matrix_product::{MatrixAddresses, MatrixProduct};
use handle::LibraryHandle;
pub(super) use plan::ProductPlan;

/// Plans at most. Shapes are few where batches are rounded; were they ever many, all would be made
/// anew.
const PLANS_MAX: usize = 1024;

#[derive(Debug)]
pub(crate) struct CublasLt {
    handle: Arc<LibraryHandle>,
    streams: Arc<GpuStreams>,
    /// `None` for a kind that the library cannot multiply.
    plans: HashMap<ProductKind, Option<Arc<ProductPlan>>>,
}

/// All that a plan depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct ProductKind {
    product: MatrixProduct,
    /// Alignments of a, b and the output.
    alignments_bytes: [u32; 3],
    bias: u64,
    workspace_bytes: usize,
}

impl CublasLt {
    pub(crate) fn open(gpu: &Gpu) -> Result<Option<Self>> {
        let handle = LibraryHandle::new(gpu.context()).map_err(|fault| gpu.context().error(fault))?;
        let library =
            |handle| CublasLt { handle: Arc::new(handle), streams: Arc::clone(gpu.streams()), plans: HashMap::new() };
        Ok(handle.map(library))
    }

    pub(crate) fn search_in(list: impl FnOnce() -> Vec<PathBuf>) {
        megabatch_cuda_lazy::cublaslt::search_in(list);
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.handle.library().path.clone()
    }

    pub(crate) fn name(&self) -> String {
        self.handle.name()
    }

    /// # Safety
    /// As [`crate::CublasLt::multiply`].
    pub(crate) unsafe fn multiply(&mut self, product: &MatrixProduct, addresses: &MatrixAddresses) -> Result<bool> {
        // SAFETY: as the caller promised.
        unsafe { self.submit(product, addresses) }.map_err(|fault| self.handle.context().error(fault))
    }

    /// # Safety
    /// As [`CublasLt::multiply`].
    unsafe fn submit(
        &mut self,
        product: &MatrixProduct,
        addresses: &MatrixAddresses,
    ) -> Result<bool, super::DriverFault> {
        let kind = ProductKind::new(product, addresses);
        let known = self.plans.get(&kind).cloned();
        let is_first = known.is_none();
        let Some(plan) = known.map_or_else(|| self.plan(kind), Ok)? else { return Ok(false) };
        let (work, stream) =
            (GpuCommand::Product { plan, addresses: *addresses }, GpuStreams::default_stream(&self.streams));
        if is_first {
            // What was held back is submitted first.
            self.handle.context().enter()?;
            // SAFETY: as the caller promised, of the default stream.
            unsafe { work.submit(stream.id(), stream.raw()) }?;
        } else {
            // SAFETY: as the caller promised.
            unsafe { stream.queue().submit(work) }?;
        }
        Ok(true)
    }

    fn plan(&mut self, kind: ProductKind) -> Result<Option<Arc<ProductPlan>>, super::DriverFault> {
        if self.plans.len() == PLANS_MAX {
            self.plans.clear();
        }
        let plan = ProductPlan::new(&self.handle, &kind)?.map(Arc::new);
        self.plans.insert(kind, plan.clone());
        Ok(plan)
    }
}

impl ProductKind {
    fn new(product: &MatrixProduct, addresses: &MatrixAddresses) -> Self {
        let alignments_bytes = [addresses.a, addresses.b, addresses.out].map(alignment_bytes);
        ProductKind {
            product: *product,
            alignments_bytes,
            bias: addresses.bias,
            workspace_bytes: addresses.workspace.1,
        }
    }
}

/// By how much an address can be divided, up to the most that the library asks about.
fn alignment_bytes(address: u64) -> u32 {
    1 << address.trailing_zeros().min(8)
}
