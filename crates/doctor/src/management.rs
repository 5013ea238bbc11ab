//! Answers of NVIDIA's management library. Whoever calls the doctor asks it; this crate loads no
//! library.

use serde::Serialize;

use crate::version::{Capability, CudaVersion, Version};

/// Answers of the management library.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Management {
    /// Reason for which it gave no answer, if it gave none.
    pub fault: Option<String>,
    /// The driver's version.
    pub driver: Option<Version>,
    /// The newest CUDA version that the driver knows.
    pub cuda: Option<CudaVersion>,
    /// The GPUs, in its order.
    pub gpus: Vec<Gpu>,
}

/// A GPU.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Gpu {
    /// The maker's name, such as `NVIDIA GH200 480GB`.
    pub name: String,
    /// PCI address.
    pub address: Option<String>,
    /// The version of its instruction set.
    pub capability: Option<Capability>,
    /// Its memory in bytes.
    pub total_bytes: u64,
    /// Bytes of it in use.
    pub used_bytes: u64,
    /// Processes that hold memory, without the doctor itself.
    pub holders: Vec<Holder>,
    /// Memory errors since the driver was loaded that could not be corrected; `None` where errors
    /// are not counted.
    pub uncorrected_errors: Option<u64>,
    /// True if error correction (ECC) is on; `None` for a GPU without it.
    pub counts_errors: Option<bool>,
    /// Reasons for a reduced clock, such as `hardware thermal slowdown`; being idle is none.
    pub slowdowns: Vec<String>,
    /// Its temperature.
    pub celsius: Option<u32>,
}

/// A process that holds a GPU's memory.
#[derive(Clone, Debug, Serialize)]
pub struct Holder {
    /// Its number.
    pub pid: u32,
    /// Its program; empty if unknown, as within a container.
    pub name: String,
    /// Bytes; `None` if the driver does not report them.
    pub bytes: Option<u64>,
}

/// A test that megabatch ran on a device.
#[derive(Clone, Debug, Serialize)]
pub struct Trial {
    /// The device, such as `cuda:0`.
    pub device: String,
    /// Name of the trial, such as `training: losses in fp32 are the CPU's`.
    pub name: String,
    /// Result, such as a rate.
    pub result: Option<String>,
    /// Reason of a failure.
    pub fault: Option<String>,
}
