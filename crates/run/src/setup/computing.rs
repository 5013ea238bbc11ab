//! `--device`: what computes.

use megabatch_doctor::wheel_library_folders;
use megabatch_gpu_core::{CublasLt, Device, Error};
use megabatch_trainer as trainer;

use crate::config::{self, Config};
use crate::doctor::system;
use crate::error::with_keys;
use crate::host::Host;

/// The device that the command line names.
pub(crate) struct DeviceRequest<'a> {
    name: &'a str,
    gpu: Option<Device>,
    /// Bytes that the GPU could hand out before any were left to the driver.
    free_bytes: Option<usize>,
}

/// A GPU that was named.
pub(crate) struct RequestedGpu {
    pub(crate) name: String,
    /// Bytes that the GPU could hand out now, except those left to the driver; unknown for one that
    /// is elsewhere.
    pub(crate) free_bytes: Option<usize>,
    /// The same if `gpu_optimization.driver_reserve_gb` were `auto`.
    pub(crate) auto_free_bytes: Option<usize>,
    /// Bytes left to the driver.
    pub(crate) driver_bytes: usize,
    /// Processes of the run that compute on it.
    pub(crate) processes: usize,
}

impl RequestedGpu {
    pub(crate) fn from_device(gpu: &Device, config: &Config) -> Self {
        let driver_bytes = driver_bytes(config, gpu.capacity_bytes());
        let (name, free_bytes) = (gpu.to_string(), gpu.free_bytes());
        RequestedGpu { name, free_bytes, auto_free_bytes: None, driver_bytes, processes: 1 }
    }

    /// Plans for a GPU with `bytes` of free memory.
    pub(crate) fn set_memory(&mut self, bytes: usize, config: &Config) {
        self.driver_bytes = driver_bytes(config, bytes);
        self.free_bytes = Some(bytes.saturating_sub(self.driver_bytes));
        self.auto_free_bytes = Some(bytes.saturating_sub(auto_driver_bytes(bytes)));
    }

    /// Leaves this process its part of the free memory.
    pub(crate) fn share_among(&mut self, processes: usize) {
        self.processes = processes;
        self.free_bytes = self.free_bytes.map(|bytes| bytes / processes);
        self.auto_free_bytes = self.auto_free_bytes.map(|bytes| bytes / processes);
    }
}

/// Bytes left to the driver of a GPU with so much memory.
fn driver_bytes(config: &Config, memory_bytes: usize) -> usize {
    match config.get(&config::gpu_optimization::DRIVER_RESERVE_GB) {
        Some(gigabytes) => (gigabytes * 1e9) as usize,
        None => auto_driver_bytes(memory_bytes),
    }
}

/// The same where nothing is set.
fn auto_driver_bytes(memory_bytes: usize) -> usize {
    DRIVER_BYTES_MAX.min(memory_bytes / 8)
}

/// Memory for kernels, cuBLASLt's handle and what else the driver keeps, by default.
const DRIVER_BYTES_MAX: usize = 1 << 30;

/// The device that computes.
#[derive(Debug, Default)]
pub(crate) struct Computing {
    /// A GPU in the place of the CPU.
    pub(crate) gpu: Option<Device>,
    /// Why a GPU that is there is not used, where the choice was left open.
    pub(crate) skip_reason: Option<String>,
}

impl<'a> DeviceRequest<'a> {
    /// The device called `name`; `cuda` is the first GPU, as in PyTorch. Its kernels come from the
    /// host's [folder](Host::kernel_folder), if any.
    ///
    /// # Errors
    /// As [`Device::select`].
    pub(crate) fn select(name: &'a str, host: &Host<'_>) -> megabatch_gpu_core::Result<Self> {
        let name = full_name(name);
        let device = Device::select(name)?;
        if matches!(device, Device::Cuda(_)) {
            device.set_kernel_folder(host.kernel_folder());
            if host.allocates_apart() {
                device.allocate_apart();
            }
            CublasLt::search_in(|| wheel_library_folders(&system(&host.environment)));
        }
        let gpu = matches!(device, Device::Cuda(_)).then_some(device);
        let free_bytes = gpu.as_ref().and_then(Device::free_bytes);
        Ok(DeviceRequest { name, gpu, free_bytes })
    }

    /// The same for a plan, which needs no GPU. Only the name is known of a GPU that is not here.
    ///
    /// # Errors
    /// As [`Device::select`], but where a GPU or its driver is not here.
    pub(crate) fn select_for_plan(name: &'a str, host: &Host<'_>) -> megabatch_gpu_core::Result<Self> {
        match DeviceRequest::select(name, host) {
            Err(Error::DriverAbsent { .. } | Error::NoSuchDevice { .. } | Error::CudaNotBuilt { .. }) => {
                Ok(DeviceRequest { name: full_name(name), gpu: None, free_bytes: None })
            }
            named => named,
        }
    }

    /// Leaves memory of the GPU to the driver, as `config` says.
    pub(crate) fn leave_to_driver(&self, config: &Config) {
        if let Some(gpu) = &self.gpu {
            gpu.leave_to_driver(driver_bytes(config, gpu.capacity_bytes()));
        }
    }

    /// The GPU that was named as such, here or elsewhere.
    pub(crate) fn asked(&self, config: &Config) -> Option<RequestedGpu> {
        let name = self.name.to_owned();
        self.names_gpu().then(|| match &self.gpu {
            Some(gpu) => {
                let driver_bytes = auto_driver_bytes(gpu.capacity_bytes());
                let auto_free_bytes = self.free_bytes.map(|bytes| bytes.saturating_sub(driver_bytes));
                RequestedGpu { name, auto_free_bytes, ..RequestedGpu::from_device(gpu, config) }
            }
            None => RequestedGpu { name, free_bytes: None, auto_free_bytes: None, driver_bytes: 0, processes: 1 },
        })
    }

    fn names_gpu(&self) -> bool {
        !matches!(self.name, "cpu" | "auto")
    }

    /// The GPU that was named as such; `None` for `auto`.
    pub(crate) fn gpu(&self) -> Option<&Device> {
        self.gpu.as_ref().filter(|_| self.names_gpu())
    }

    /// The device for a computation. `coverage` is an error if a GPU cannot do it.
    ///
    /// # Errors
    /// The error of `coverage`, where a GPU was named.
    pub(crate) fn computing(self, coverage: trainer::Result<()>) -> trainer::Result<Computing> {
        if self.names_gpu() {
            return coverage.map(|()| Computing { gpu: self.gpu, skip_reason: None });
        }
        let mut computing = Computing { gpu: self.gpu, skip_reason: None };
        if let Err(reason) = coverage {
            computing.skip_gpu(&with_keys(&reason.to_string()));
        }
        Ok(computing)
    }
}

impl Computing {
    /// Computes on the CPU although `auto` found a GPU.
    pub(crate) fn skip_gpu(&mut self, reason: &str) {
        self.skip_reason = self.gpu.take().map(|gpu| not_used(&gpu.to_string(), reason));
    }
}

/// Remark on a GPU that `auto` found and leaves aside.
pub(super) fn not_used(gpu: &str, reason: &str) -> String {
    format!("{gpu} is not used: {reason}")
}

fn full_name(name: &str) -> &str {
    if name == "cuda" { "cuda:0" } else { name }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_on_a_gpu_share_its_free_memory() {
        for (free_bytes, processes, expected) in [(Some(11), 1, Some(11)), (Some(11), 3, Some(3)), (None, 3, None)] {
            let (name, auto_free_bytes) = ("cuda:0".to_owned(), free_bytes);
            let mut gpu = RequestedGpu { name, free_bytes, auto_free_bytes, driver_bytes: 1, processes: 1 };
            gpu.share_among(processes);
            assert_eq!((gpu.free_bytes, gpu.auto_free_bytes, gpu.processes), (expected, expected, processes));
        }
    }
}
