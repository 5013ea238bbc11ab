//! A GPU's primary context, and the way to it: driver, version, device.

use std::sync::{Mutex, MutexGuard, PoisonError};

use cust::CudaFlags;
use cust::context::{Context as Primary, CurrentContext};
use cust::device::Device;
use cust::sys::CUresult;

use super::command_recorder::CommandRecorder;
use super::fault::{Checked as _, DriverFault};
use super::gpu_command::GpuCommand;
use super::properties::{self, MemoryInfo, Properties};
use crate::error::{Error, Result};

/// CUDA 11.0, whose drivers take our PTX (version 7.0 of the language) and manage virtual memory.
const DRIVER_VERSION_MIN: i32 = 11_000;

/// Compute capability that our PTX is compiled for.
const COMPUTE_CAPABILITY_MIN: (u32, u32) = (8, 0);

/// The primary context of one GPU, retained.
#[derive(Debug)]
pub(crate) struct Context {
    primary: Primary,
    name: String,
    ordinal: u32,
    properties: Properties,
    deferred: Mutex<CommandRecorder>,
}

impl Context {
    /// Makes the context current on this thread, as every call to the driver needs, and submits
    /// deferred work.
    pub(crate) fn enter(&self) -> Result<(), DriverFault> {
        self.enter_aside()?;
        self.deferred().submit()
    }

    /// Makes the context current for calls that neither submit work nor ask for it; deferred work
    /// stays deferred.
    pub(super) fn enter_aside(&self) -> Result<(), DriverFault> {
        CurrentContext::set_current(&self.primary).checked("cuCtxSetCurrent", format_args!("{}", self.name))
    }

    /// Defers work for the default stream; returns it if work is not deferred now.
    pub(super) fn defer(&self, work: GpuCommand) -> Option<GpuCommand> {
        self.deferred().take(work)
    }

    pub(super) fn deferred(&self) -> MutexGuard<'_, CommandRecorder> {
        self.deferred.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn ordinal(&self) -> u32 {
        self.ordinal
    }

    pub(crate) fn properties(&self) -> &Properties {
        &self.properties
    }

    pub(crate) fn error(&self, fault: DriverFault) -> Error {
        fault.into_error(&self.name)
    }

    pub(crate) fn synchronize(&self) -> Result<(), DriverFault> {
        self.enter()?;
        CurrentContext::synchronize().checked("cuCtxSynchronize", format_args!("no operands"))
    }

    pub(crate) fn memory(&self) -> Result<MemoryInfo, DriverFault> {
        self.enter()?;
        properties::memory()
    }
}

/// Number of GPUs; `name` is the device that the user named.
pub(crate) fn count(name: &str) -> Result<u32> {
    megabatch_cuda_lazy::driver()
        .map_err(|absent| Error::DriverAbsent { name: name.to_owned(), reason: absent.reason })?;
    let version = properties::driver_version().map_err(|fault| fault.into_error(name))?;
    if version < DRIVER_VERSION_MIN {
        return Err(Error::DriverTooOld {
            name: name.to_owned(),
            driver: version_text(version),
            needed: version_text(DRIVER_VERSION_MIN),
        });
    }
    match cust::init(CudaFlags::empty()).checked("cuInit", format_args!("0")) {
        Err(fault) if fault.is(CUresult::CUDA_ERROR_NO_DEVICE) => return Ok(0),
        initialised => initialised.map_err(|fault| fault.into_error(name))?,
    }
    Device::num_devices()
        .checked("cuDeviceGetCount", format_args!("no operands"))
        .map_err(|fault| fault.into_error(name))
}

/// The primary context of the GPU `ordinal`.
pub(super) fn open(ordinal: u32) -> Result<Context> {
    let name = format!("cuda:{ordinal}");
    let devices = count(&name)?;
    if ordinal >= devices {
        return Err(Error::NoSuchDevice { name, devices });
    }
    let (primary, properties) = retain(ordinal, &name).map_err(|fault| fault.into_error(&name))?;
    require(&name, &properties)?;
    Ok(Context { primary, name, ordinal, properties, deferred: Mutex::default() })
}

fn retain(ordinal: u32, name: &str) -> Result<(Primary, Properties), DriverFault> {
    let device = Device::get_device(ordinal).checked("cuDeviceGet", format_args!("{ordinal}"))?;
    let properties = Properties::read(device)?;
    let primary = Primary::new(device).checked("cuDevicePrimaryCtxRetain", format_args!("{name}"))?;
    Ok((primary, properties))
}

/// Refuses a GPU without the features that megabatch needs.
fn require(name: &str, properties: &Properties) -> Result<()> {
    let unfit = |lacks: String| Error::DeviceUnfit { name: name.to_owned(), gpu: properties.name.clone(), lacks };
    if properties.compute_capability < COMPUTE_CAPABILITY_MIN {
        let ((major, minor), (needed_major, needed_minor)) = (properties.compute_capability, COMPUTE_CAPABILITY_MIN);
        return Err(unfit(format!("compute capability {needed_major}.{needed_minor} (it has {major}.{minor})")));
    }
    if !properties.has_virtual_memory {
        return Err(unfit("virtual memory management, which some virtual GPUs do not pass on".to_owned()));
    }
    Ok(())
}

/// `12.4` for 12040.
pub(super) fn version_text(version: i32) -> String {
    format!("{}.{}", version / 1000, version % 1000 / 10)
}
