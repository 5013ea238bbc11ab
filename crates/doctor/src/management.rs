//! Answers of NVIDIA's management library. Whoever calls the doctor asks it; this crate loads no
//! library.

use serde::Serialize;

use crate::version::{Capability, CudaVersion, Version};

/// Answers of the management library.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Management {
    /// Why it told nothing, where it did not.
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
    /// Bytes of it that are held now.
    pub used_bytes: u64,
    /// Processes that hold memory, without the doctor itself.
    pub holders: Vec<Holder>,
    /// Memory errors since the driver was loaded that could not be corrected; `None` where errors
    /// are not counted.
    pub uncorrected_errors: Option<u64>,
    /// True if it checks its memory and corrects it (ECC); `None` for a GPU that cannot.
    pub counts_errors: Option<bool>,
    /// Why it runs slower than it could, such as `hardware thermal slowdown`. That it idles is not
    /// among them.
    pub slowdowns: Vec<String>,
    /// Its temperature.
    pub celsius: Option<u32>,
}

/// A process that holds a GPU's memory.
#[derive(Clone, Debug, Serialize)]
pub struct Holder {
    /// Its number.
    pub pid: u32,
    /// Its program; empty where that cannot be told, as within a container.
    pub name: String,
    /// Bytes; `None` where the driver does not tell.
    pub bytes: Option<u64>,
}

/// Something that megabatch did itself on a device, to see whether it works.
#[derive(Clone, Debug, Serialize)]
pub struct Trial {
    /// The device, such as `cuda:0`.
    pub device: String,
    /// Name of the trial, such as `kernel: fill sets every element`.
    pub name: String,
    /// Result, such as a rate.
    pub result: Option<String>,
    /// Why it failed, where it did.
    pub fault: Option<String>,
}
