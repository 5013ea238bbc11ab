//! Commands of a stream that need nothing of the host.

#![allow(unsafe_code, reason = "the driver is called")]

use std::hash::{Hash, Hasher};
use std::ptr;
use std::sync::Arc;

use cust::sys::{self, CUstream};

use super::arguments::Arguments;
use super::copy::MemoryRegion;
use super::cublaslt::ProductPlan;
use super::fault::{DriverFault, checked};
use super::launch::Grid;
use super::module::EntryPoint;
use crate::matrix_product::MatrixAddresses;
use crate::source::StreamId;

/// One command of a GPU with all its operands.
#[derive(Clone, Debug)]
pub(super) enum GpuCommand {
    Kernel {
        entry: Arc<EntryPoint>,
        grid: Grid,
        arguments: Arguments,
    },
    Copy {
        src: u64,
        dst: MemoryRegion,
    },
    Zero {
        dst: MemoryRegion,
    },
    /// By a library, whose launches nobody here sees: a plan launches the same for the same
    /// addresses.
    Product {
        plan: Arc<ProductPlan>,
        addresses: MatrixAddresses,
    },
}

impl GpuCommand {
    /// Hands it to the driver, whose context is current.
    ///
    /// # Safety
    /// The memory that it reads and writes is allocated for as long as it takes, and nobody else
    /// uses it meanwhile, unless ordered by the streams; arguments are of the kernel's signature,
    /// and the stream exists.
    pub(super) unsafe fn submit(&self, id: StreamId, stream: CUstream) -> Result<(), DriverFault> {
        match self {
            GpuCommand::Kernel { entry, grid, arguments } => {
                // SAFETY: as the caller promised.
                unsafe { launch(entry, grid, arguments, id, stream) }
            }
            GpuCommand::Copy { src, dst: MemoryRegion { address, bytes } } => {
                // SAFETY: as the caller promised.
                let code = unsafe { sys::cuMemcpyDtoDAsync_v2(*address, *src, *bytes, stream) };
                let operands = format_args!("{address:#x}, {bytes} bytes, from {src:#x}, stream {}", id.0);
                checked("cuMemcpyDtoDAsync", operands, code)
            }
            GpuCommand::Zero { dst: MemoryRegion { address, bytes } } => {
                // SAFETY: as the caller promised.
                let code = unsafe { sys::cuMemsetD8Async(*address, 0, *bytes, stream) };
                let operands = format_args!("{address:#x}, {bytes} bytes, value 0, stream {}", id.0);
                checked("cuMemsetD8Async", operands, code)
            }
            // SAFETY: as the caller promised.
            GpuCommand::Product { plan, addresses } => unsafe { plan.submit(addresses, stream) },
        }
    }

    /// True if a graph's node for the one can be given the numbers of the other.
    pub(super) fn is_like(&self, other: &GpuCommand) -> bool {
        match (self, other) {
            (GpuCommand::Kernel { entry, grid, .. }, GpuCommand::Kernel { entry: other, grid: other_grid, .. }) => {
                entry.function == other.function && grid.cooperative == other_grid.cooperative
            }
            (GpuCommand::Copy { .. }, GpuCommand::Copy { .. }) | (GpuCommand::Zero { .. }, GpuCommand::Zero { .. }) => {
                true
            }
            (GpuCommand::Product { plan, .. }, GpuCommand::Product { plan: other, .. }) => Arc::ptr_eq(plan, other),
            _ => false,
        }
    }
}

impl PartialEq for GpuCommand {
    fn eq(&self, other: &GpuCommand) -> bool {
        match (self, other) {
            (GpuCommand::Kernel { entry, grid, arguments }, GpuCommand::Kernel { entry: e, grid: g, arguments: a }) => {
                (entry.function, grid, arguments) == (e.function, g, a)
            }
            (GpuCommand::Copy { src, dst }, GpuCommand::Copy { src: f, dst: t }) => (src, dst) == (f, t),
            (GpuCommand::Zero { dst }, GpuCommand::Zero { dst: t }) => dst == t,
            (GpuCommand::Product { plan, addresses }, GpuCommand::Product { plan: p, addresses: a }) => {
                Arc::ptr_eq(plan, p) && addresses == a
            }
            _ => false,
        }
    }
}

impl Eq for GpuCommand {}

impl Hash for GpuCommand {
    fn hash<H: Hasher>(&self, state: &mut H) {
        match self {
            GpuCommand::Kernel { entry, grid, arguments } => (entry.function, grid, arguments).hash(state),
            GpuCommand::Copy { src, dst } => (src, dst).hash(state),
            GpuCommand::Zero { dst } => dst.hash(state),
            GpuCommand::Product { plan, addresses } => (Arc::as_ptr(plan), addresses).hash(state),
        }
    }
}

/// # Safety
/// As [`GpuCommand::submit`].
unsafe fn launch(
    entry: &EntryPoint,
    grid: &Grid,
    arguments: &Arguments,
    id: StreamId,
    stream: CUstream,
) -> Result<(), DriverFault> {
    let (Grid { blocks, threads, shared_bytes, cooperative }, mut addresses) = (*grid, arguments.addresses());
    let call = if cooperative { "cuLaunchCooperativeKernel" } else { "cuLaunchKernel" };
    let ([x, y, z], [threads_x, threads_y, threads_z]) = (blocks, threads);
    let (function, given) = (entry.function, addresses.as_mut_ptr());
    // SAFETY: as the caller promised; the driver has copied the values behind the addresses when
    // the call returns.
    let code = unsafe {
        if cooperative {
            sys::cuLaunchCooperativeKernel(
                function,
                x,
                y,
                z,
                threads_x,
                threads_y,
                threads_z,
                shared_bytes,
                stream,
                given,
            )
        } else {
            sys::cuLaunchKernel(
                function,
                x,
                y,
                z,
                threads_x,
                threads_y,
                threads_z,
                shared_bytes,
                stream,
                given,
                ptr::null_mut(),
            )
        }
    };
    let operands = format_args!(
        "{}, blocks {blocks:?}, threads {threads:?}, {shared_bytes} bytes shared, stream {}",
        entry.name, id.0
    );
    checked(call, operands, code)
}
