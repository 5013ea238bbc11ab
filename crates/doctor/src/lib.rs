#![doc = include_str!("../README.md")]
mod diagnosis;
mod error;
mod examination;
mod explain;
mod finding;
pub mod knowledge;
mod management;
mod probe;
mod python;
mod quote;
mod repair;
mod script;
mod system;
mod version;

pub use error::Error;
pub use examination::{Examination, ExaminationRequest, examine};
pub use explain::Topic;
pub use finding::{Finding, Severity};
pub use management::{Gpu, Holder, Management, Trial};
pub use probe::{Container, DeviceNode, DriverModule, Libraries, Library, Machine, PciGpu};
pub use python::{
    Distribution, Installed, OperationRun, PackageRequirement, Python, Torch, TorchGpu, wheel_library_folders,
};
pub use quote::quote;
pub use repair::Repair;
pub use system::{NodeAccess, System};
pub use version::{Capability, CompiledFor, CudaVersion, GpuCompatibility, Version};
