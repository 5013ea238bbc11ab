use std::fmt;
use std::io;
use std::path::PathBuf;

use thiserror::Error;

/// `Result` with this crate's [`Error`](enum@Error).
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Errors of choosing a device and of allocating memory.
///
/// A failed request leaves the device as it was: nothing is allocated and no counter has moved.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// The size of the request overflows.
    #[error("{scope}: {len} elements of {element_bytes} bytes are more than can be counted; check the shapes")]
    SizeOverflow {
        /// Scope that asked.
        scope: String,
        /// Number of elements asked for.
        len: usize,
        /// Size of one element in bytes.
        element_bytes: usize,
    },

    /// The request is larger than the device's memory.
    #[error(
        "{scope}: {requested_bytes} bytes can never fit on {device}, which has {largest_bytes}; use a smaller batch or model, or another device"
    )]
    NeverFits {
        /// Scope that asked.
        scope: String,
        /// Device that was asked.
        device: String,
        /// Bytes asked for.
        requested_bytes: usize,
        /// Largest request that could ever succeed, in bytes.
        largest_bytes: usize,
    },

    /// The device has no memory for the request now.
    #[error(
        "{scope}: {device} has no memory for {requested_bytes} bytes now: {counts}; use a smaller batch, free what is not needed, or end other processes that hold memory"
    )]
    OutOfMemory {
        /// Scope that asked.
        scope: String,
        /// Device that refused.
        device: String,
        /// Bytes asked for.
        requested_bytes: usize,
        /// State of the device's pool when it refused.
        counts: Box<MemoryCounts>,
    },

    /// The driver or the system refused memory for a reason that freeing some does not mend.
    #[error("{scope}: {device} refused {requested_bytes} bytes")]
    Refused {
        /// Scope that asked.
        scope: String,
        /// Device that refused.
        device: String,
        /// Bytes asked for.
        requested_bytes: usize,
        /// Failure.
        source: Refusal,
    },

    /// The request would pass the budget that the user set with
    /// [`Device::set_budget_bytes`](crate::Device::set_budget_bytes).
    #[error(
        "{scope}: {requested_bytes} bytes more than the {allocated_bytes} allocated would pass the budget of {budget_bytes} bytes on {device}; raise the budget or use a smaller batch"
    )]
    OverBudget {
        /// Scope that asked.
        scope: String,
        /// Device of the budget.
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

    /// A CUDA device was requested, and this build does not support CUDA.
    #[error("device `{name}` was asked for, but this build of megabatch drives the CPU only; use cpu or auto")]
    CudaNotBuilt {
        /// The name as given.
        name: String,
    },

    /// A CUDA device was requested, and this machine has no CUDA driver.
    #[error(
        "device `{name}`: no CUDA driver: {reason}; install NVIDIA's driver (in a container, pass the GPU on), or use cpu"
    )]
    DriverAbsent {
        /// The device asked for.
        name: String,
        /// Message of the dynamic loader.
        reason: String,
    },

    /// The CUDA driver is too old.
    #[error(
        "device `{name}`: the driver goes up to CUDA {driver}, and {needed} is needed; update NVIDIA's driver, or use cpu"
    )]
    DriverTooOld {
        /// The device asked for.
        name: String,
        /// CUDA version of the driver.
        driver: String,
        /// CUDA version needed.
        needed: String,
    },

    /// The driver lists fewer devices.
    #[error(
        "device `{name}`: the driver lists {devices} device{}, counted from cuda:0; see nvidia-smi and CUDA_VISIBLE_DEVICES, or use cpu",
        if *devices == 1 { "" } else { "s" }
    )]
    NoSuchDevice {
        /// The device asked for.
        name: String,
        /// Number of devices.
        devices: u32,
    },

    /// The device lacks something that every part of megabatch needs.
    #[error("device `{name}`, {gpu}, lacks {lacks}; use another device, or cpu")]
    DeviceUnfit {
        /// The device asked for.
        name: String,
        /// Name by the maker.
        gpu: String,
        /// Missing capability.
        lacks: String,
    },

    /// A call to the driver failed.
    #[error("{device}: {call}({operands}) failed: {code_name} ({code}), {text}")]
    Driver {
        /// The device, or the name that was asked for.
        device: Box<str>,
        /// The function of the driver.
        call: &'static str,
        /// Operands of the call.
        operands: Box<str>,
        /// Returned code.
        code: i32,
        /// Name of the code.
        code_name: Box<str>,
        /// The driver's description of the code.
        text: Box<str>,
    },

    /// A file of the [kernel folder](crate::Device::set_kernel_folder) cannot be read.
    #[error("{}: cannot read the kernels: {source}; name a folder of .ptx files", path.display())]
    KernelFile {
        /// The file.
        path: PathBuf,
        /// Failure.
        source: io::Error,
    },

    /// A module has no kernel of that name.
    #[error("module {module} has no kernel `{kernel}`; check the name, and that it is extern \"C\"")]
    NoSuchKernel {
        /// Name of the module.
        module: String,
        /// The name asked for.
        kernel: String,
    },

    /// A kernel was given too many arguments, or too few.
    #[error("kernel `{kernel}` has {expected} parameters and was given {given} arguments")]
    KernelArguments {
        /// The kernel.
        kernel: String,
        /// Its parameters.
        expected: usize,
        /// Arguments given.
        given: usize,
    },

    /// An argument of a kernel has another size than its parameter.
    #[error(
        "kernel `{kernel}`: parameter {index} has {expected_bytes} bytes, and the argument `{argument}` has {given_bytes}; give the literal or the variable the parameter's type"
    )]
    KernelArgument {
        /// The kernel.
        kernel: String,
        /// The parameter, counted from 0.
        index: usize,
        /// The argument, as it was written.
        argument: &'static str,
        /// The parameter's size.
        expected_bytes: usize,
        /// The argument's size.
        given_bytes: usize,
    },

    /// The grid of a launch is empty, or larger than the GPU or the kernel can run.
    #[error("kernel `{kernel}` cannot be launched with {wanted} {what}: {least} to {most} are possible")]
    LaunchLimit {
        /// The kernel.
        kernel: String,
        /// Quantity that is too small or too large.
        what: &'static str,
        /// Requested amount.
        wanted: u64,
        /// Smallest possible.
        least: u64,
        /// Largest possible.
        most: u64,
    },
    /// A text is no memory snapshot, or its parts contradict each other.
    #[error("not a memory snapshot: {place}: {reason}; expected what `megabatch train` or `megabatch memory` writes")]
    Snapshot {
        /// Place in the text.
        place: String,
        /// Fault.
        reason: String,
    },
}

impl Error {
    /// True if the device had too little memory: a smaller request may succeed.
    pub fn is_shortage(&self) -> bool {
        matches!(self, Error::NeverFits { .. } | Error::OutOfMemory { .. } | Error::OverBudget { .. })
    }
}

/// Failure of a memory source.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The device has no physical memory (or address space) left for it; freeing some may help.
    #[error("the device is out of memory")]
    OutOfMemory,
    /// The source cannot map a granule at a second address, so that nothing can be stitched on it.
    #[error("this memory source cannot map a granule twice")]
    CannotAlias,
    /// The driver or the system refused, and said why.
    #[error("{call}: {reason}")]
    Failed {
        /// The call that failed, such as `cuMemMap`.
        call: &'static str,
        /// Message of the driver or the system.
        reason: String,
    },
}

/// Counters of a pool for out-of-memory reports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryCounts {
    /// Physical memory that the pool may hold.
    pub capacity_bytes: usize,
    /// Bytes of live blocks.
    pub allocated_bytes: usize,
    /// Bytes of the granules that the pool holds.
    pub reserved_bytes: usize,
    /// Bytes held and not live.
    pub free_bytes: usize,
    /// Longest run of free bytes at consecutive addresses.
    pub largest_free_block_bytes: usize,
    /// Bytes of held granules without a live byte, which stitching could use.
    pub whole_free_granules_bytes: usize,
    /// Bytes that the device has and that others hold (other processes, contexts), where it can be
    /// told.
    pub held_by_others_bytes: Option<usize>,
}

impl fmt::Display for MemoryCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let MemoryCounts { capacity_bytes, allocated_bytes, reserved_bytes, free_bytes, .. } = self;
        let (largest, fragmentation) = (self.largest_free_block_bytes, self.fragmentation());
        write!(
            f,
            "of {capacity_bytes} bytes {reserved_bytes} are reserved, of which {allocated_bytes} are allocated and {free_bytes} free "
        )?;
        write!(f, "(largest free block {largest}, fragmentation {fragmentation:.2})")?;
        match self.held_by_others_bytes {
            Some(others) => write!(f, "; others hold {others}"),
            None => Ok(()),
        }
    }
}

impl MemoryCounts {
    /// 1 − largest free block / free bytes; 0 when nothing is free.
    pub fn fragmentation(&self) -> f64 {
        match self.free_bytes {
            0 => 0.0,
            free => 1.0 - self.largest_free_block_bytes as f64 / free as f64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_of_memory_says_what_stood_in_the_way() {
        let counts = Box::new(MemoryCounts {
            capacity_bytes: 100,
            allocated_bytes: 60,
            reserved_bytes: 80,
            free_bytes: 20,
            largest_free_block_bytes: 15,
            whole_free_granules_bytes: 0,
            held_by_others_bytes: Some(7),
        });
        let (scope, device) = ("model".to_owned(), "cuda:0".to_owned());
        let error = Error::OutOfMemory { scope, device, requested_bytes: 30, counts };
        assert_eq!(
            error.to_string(),
            "model: cuda:0 has no memory for 30 bytes now: of 100 bytes 80 are reserved, of which 60 are allocated and 20 free \
             (largest free block 15, fragmentation 0.25); others hold 7; use a smaller batch, free what is not needed, or end other \
             processes that hold memory"
        );
    }
}
