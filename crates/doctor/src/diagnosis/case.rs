//! The facts of a machine, and conclusions from several of them.

use crate::knowledge::{CpuArchitecture, Wheel, WheelRequirements, choose, cuda_of_driver};
use crate::management::{Management, Trial};
use crate::probe::Machine;
use crate::python::{Python, Torch};
use crate::version::{Capability, CudaVersion, Version};

/// Observations.
#[derive(Clone, Copy)]
pub(crate) struct MachineFacts<'a> {
    pub(crate) machine: &'a Machine,
    pub(crate) management: &'a Management,
    pub(crate) python: Option<&'a Python>,
    pub(crate) trials: &'a [Trial],
}

impl<'a> MachineFacts<'a> {
    /// The PyTorch of the environment.
    pub(crate) fn torch(&self) -> Option<&'a Torch> {
        self.python?.torch.as_ref()
    }

    /// True if there is a GPU, by any sign.
    pub(crate) fn has_gpu(&self) -> bool {
        self.has_driver() || !self.machine.pci.is_empty()
    }

    /// True if there is a driver, by any sign.
    pub(crate) fn has_driver(&self) -> bool {
        let machine = self.machine;
        let is_seen = machine.module.is_some() || machine.is_wsl || !machine.nodes.is_empty();
        is_seen || self.is_reached() || !self.management.gpus.is_empty()
    }

    /// True if a program has reached a GPU: megabatch itself, or PyTorch.
    pub(crate) fn is_reached(&self) -> bool {
        let by_torch = self.torch().is_some_and(|torch| !torch.gpus.is_empty());
        by_torch || self.trials.iter().any(|trial| trial.fault.is_none())
    }

    /// The driver's version.
    pub(crate) fn driver(&self) -> Option<&'a Version> {
        let module = self.machine.module.as_ref().map(|module| &module.version);
        module.or(self.management.driver.as_ref())
    }

    /// The newest CUDA version that the driver knows.
    pub(crate) fn driver_cuda(&self) -> Option<CudaVersion> {
        self.management.cuda.or_else(|| cuda_of_driver(self.driver()?))
    }

    /// Capabilities of the GPUs, by the management library or by PyTorch.
    pub(crate) fn capabilities(&self) -> Vec<Capability> {
        let managed: Vec<Capability> = self.management.gpus.iter().filter_map(|gpu| gpu.capability).collect();
        if !managed.is_empty() {
            return managed;
        }
        self.torch().map(|torch| torch.gpus.iter().map(|gpu| gpu.capability).collect()).unwrap_or_default()
    }

    /// The CPU architecture that wheels must be for: the interpreter's, if known.
    pub(crate) fn cpu(&self) -> Option<CpuArchitecture> {
        let interpreter = self.python.and_then(|python| python.machine.as_deref());
        CpuArchitecture::named(interpreter.unwrap_or(&self.machine.architecture))
    }

    /// The wheel that suits machine and environment, by the tables.
    pub(crate) fn wheel(&self) -> Option<Wheel> {
        choose(&WheelRequirements {
            cpu: self.cpu()?,
            python: self.python?.version.as_ref().map(Version::minor),
            driver: self.driver().cloned(),
            gpus: self.capabilities(),
            torch: self.torch().map(|torch| torch.version.clone()),
        })
    }
}
