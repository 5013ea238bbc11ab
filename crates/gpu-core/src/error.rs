#![forbid(unsafe_code)]

use thiserror::Error;

/// `Result` with this crate's [`Error`](enum@Error).
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What can go wrong when a device is chosen or memory is asked for.
///
/// A failed request leaves the device as it was: nothing is allocated and no counter has moved.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// The request is larger than any address space can hold; its size overflows.
    #[error(
        "{scope}: {len} elements of {element_bytes} bytes can never fit in memory: the size overflows; check the shapes"
    )]
    NeverFits {
        /// Scope that asked.
        scope: String,
        /// Number of elements asked for.
        len: usize,
        /// Size of one element in bytes.
        element_bytes: usize,
    },

    /// The system has no memory for the request now.
    #[error(
        "{scope}: {device} has no memory for {requested_bytes} bytes now ({allocated_bytes} bytes are allocated by this process); use a smaller batch or end other processes"
    )]
    OutOfMemory {
        /// Scope that asked.
        scope: String,
        /// Device that refused.
        device: String,
        /// Bytes asked for.
        requested_bytes: usize,
        /// Bytes that the device had handed out before the request.
        allocated_bytes: usize,
    },

    /// The request would pass the budget that the user set with [`Device::set_budget_bytes`](crate::Device::set_budget_bytes).
    #[error(
        "{scope}: {requested_bytes} bytes more than the {allocated_bytes} allocated would pass the budget of {budget_bytes} bytes on {device}; raise the budget or use a smaller batch"
    )]
    OverBudget {
        /// Scope that asked.
        scope: String,
        /// Device whose budget it is.
        device: String,
        /// Bytes asked for.
        requested_bytes: usize,
        /// Bytes that the device had handed out before the request.
        allocated_bytes: usize,
        /// The budget in bytes.
        budget_bytes: usize,
    },

    /// The name is none that [`Device::select`](crate::Device::select) knows.
    #[error("unknown device `{name}`: expected cpu, auto or cuda:N with N a number from 0")]
    UnknownDevice {
        /// The name as given.
        name: String,
    },

    /// A CUDA device was asked for and this build cannot drive one.
    #[error("device `{name}` was asked for, but this build of megabatch drives the CPU only; use cpu or auto")]
    CudaNotBuilt {
        /// The name as given.
        name: String,
    },

    /// A text is no memory snapshot, or its parts contradict each other.
    #[error("not a memory snapshot: {place}: {reason}; expected what `megabatch train` or `megabatch memory` writes")]
    Snapshot {
        /// Where in the text.
        place: String,
        /// What is wrong there.
        reason: String,
    },
}
