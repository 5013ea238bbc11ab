//! Facts about the machine, one file a subject; no judgement. Nothing here judges.

mod container;
mod driver;
mod libraries;
mod nodes;
mod pci;

use serde::Serialize;

pub use container::Container;
pub use driver::DriverModule;
pub use libraries::{Libraries, Library};
pub use nodes::Node;
pub use pci::PciGpu;

use crate::system::System;

/// Variables of the environment that change what CUDA and PyTorch do.
pub(crate) const VARIABLES: &[&str] = &[
    "CUDA_VISIBLE_DEVICES",
    "CUDA_DEVICE_ORDER",
    "CUDA_LAUNCH_BLOCKING",
    "CUDA_CACHE_DISABLE",
    "CUDA_CACHE_MAXSIZE",
    "CUDA_CACHE_PATH",
    "CUDA_FORCE_PTX_JIT",
    "CUDA_DISABLE_PTX_JIT",
    "CUDA_HOME",
    "LD_LIBRARY_PATH",
    "NVIDIA_VISIBLE_DEVICES",
    "NVIDIA_DRIVER_CAPABILITIES",
    "PYTORCH_ALLOC_CONF",
    "PYTORCH_CUDA_ALLOC_CONF",
    "PYTORCH_NO_CUDA_MEMORY_CACHING",
    "TORCH_CUDA_ARCH_LIST",
];

/// The machine without its Python.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Machine {
    /// The processor's architecture, such as `x86_64`.
    pub architecture: String,
    /// The system's name for itself, such as `Ubuntu 24.04.1 LTS`.
    pub system: Option<String>,
    /// The system's short name, such as `ubuntu`.
    pub distribution: Option<String>,
    /// The container that this runs in.
    pub container: Option<Container>,
    /// True if this is Linux within Windows, where GPUs are not on the PCI bus.
    pub is_wsl: bool,
    /// NVIDIA's GPUs on the PCI bus, with a driver or without.
    pub pci: Vec<PciGpu>,
    /// The driver's module of the kernel.
    pub module: Option<DriverModule>,
    /// Device nodes of the driver that are there.
    pub nodes: Vec<Node>,
    /// CUDA's libraries where the loader looks for them.
    pub libraries: Libraries,
    /// Variables that are set, with what they are set to.
    pub variables: Vec<(&'static str, String)>,
}

impl Machine {
    /// Looks at `system`.
    pub fn of(system: &System) -> Self {
        let release = system.read("/etc/os-release").unwrap_or_default();
        Machine {
            architecture: system.architecture().to_owned(),
            system: setting(&release, "PRETTY_NAME"),
            distribution: setting(&release, "ID"),
            container: container::look(system),
            is_wsl: system.exists("/dev/dxg"),
            pci: pci::look(system),
            module: driver::look(system),
            nodes: nodes::look(system),
            libraries: libraries::look(system),
            variables: VARIABLES.iter().filter_map(|&name| Some((name, system.variable(name)?.to_owned()))).collect(),
        }
    }

    /// Value of a variable.
    pub fn variable(&self, name: &str) -> Option<&str> {
        self.variables.iter().find(|(found, _)| *found == name).map(|(_, value)| value.as_str())
    }
}

/// The value of `NAME=value` or `NAME="value"`.
fn setting(text: &str, name: &str) -> Option<String> {
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='))?;
    Some(value.trim().trim_matches('"').to_owned()).filter(|value| !value.is_empty())
}
