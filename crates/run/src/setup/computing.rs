//! `--device`: what computes.

use megabatch_gpu_core::{Device, Error};
use megabatch_trainer as trainer;

use crate::error::with_keys;
use crate::host::Host;

/// The device that the command line names.
pub(crate) struct DeviceRequest<'a> {
    name: &'a str,
    gpu: Option<Device>,
}

/// A GPU that was named.
pub(crate) struct RequestedGpu {
    pub(crate) name: String,
    /// Bytes that the GPU could hand out now; unknown for one that is elsewhere.
    pub(crate) free_bytes: Option<usize>,
}

impl RequestedGpu {
    pub(crate) fn from_device(gpu: &Device) -> Self {
        RequestedGpu { name: gpu.to_string(), free_bytes: gpu.free_bytes() }
    }
}

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
        device.set_kernel_folder(host.kernel_folder());
        Ok(DeviceRequest { name, gpu: matches!(device, Device::Cuda(_)).then_some(device) })
    }

    /// The same for a plan, which needs no GPU: of one that is not here the name alone is known.
    ///
    /// # Errors
    /// As [`Device::select`], but where a GPU or its driver is not here.
    pub(crate) fn select_for_plan(name: &'a str, host: &Host<'_>) -> megabatch_gpu_core::Result<Self> {
        match DeviceRequest::select(name, host) {
            Err(Error::DriverAbsent { .. } | Error::NoSuchDevice { .. } | Error::CudaNotBuilt { .. }) => {
                Ok(DeviceRequest { name: full_name(name), gpu: None })
            }
            named => named,
        }
    }

    /// The GPU that was named as such, here or elsewhere.
    pub(crate) fn asked(&self) -> Option<RequestedGpu> {
        let free_bytes = self.gpu.as_ref().and_then(Device::free_bytes);
        self.names_gpu().then(|| RequestedGpu { name: self.name.to_owned(), free_bytes })
    }

    fn names_gpu(&self) -> bool {
        !matches!(self.name, "cpu" | "auto")
    }

    /// The GPU that was named as such; none for `auto`, which leaves it open.
    pub(crate) fn gpu(&self) -> Option<&Device> {
        self.gpu.as_ref().filter(|_| self.names_gpu())
    }

    /// The device for a computation; `coverage` tells if a GPU can do it.
    ///
    /// # Errors
    /// That of `coverage`, where a GPU was named.
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
    /// Leaves a GPU aside that `auto` found.
    pub(crate) fn skip_gpu(&mut self, reason: &str) {
        self.skip_reason = self.gpu.take().map(|gpu| format!("{gpu} is not used: {reason}"));
    }
}

fn full_name(name: &str) -> &str {
    if name == "cuda" { "cuda:0" } else { name }
}
