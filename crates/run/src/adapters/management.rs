//! NVIDIA's management library, for the doctor and for GPU utilisation during training.

use megabatch_doctor::{Capability, CudaVersion, Gpu, Holder, Management, Version};
use nvml_wrapper::bitmasks::device::ThrottleReasons;
use nvml_wrapper::enum_wrappers::device::{Clock, EccCounter, MemoryError, TemperatureSensor};
use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{Device, Nvml, cuda_driver_version_major, cuda_driver_version_minor};

use crate::gpu::{GpuSample, Sampler};

/// The name under which drivers install it; the one without a number comes with development
/// packages only.
const LIBRARY: &str = "libnvidia-ml.so.1";
/// Characters of a process's name that are asked for.
const NAME_LENGTH: usize = 256;

/// Reasons for a slow GPU, in words. Idling and a chosen clock are none.
const SLOWDOWNS: &[(ThrottleReasons, &str)] = &[
    (ThrottleReasons::HW_THERMAL_SLOWDOWN, "hardware thermal slowdown"),
    (ThrottleReasons::SW_THERMAL_SLOWDOWN, "software thermal slowdown"),
    (ThrottleReasons::HW_POWER_BRAKE_SLOWDOWN, "power brake, by the power supply"),
    (ThrottleReasons::HW_SLOWDOWN, "hardware slowdown"),
];

/// Facts of the library. Unknown ones are left out.
pub(crate) fn ask() -> Management {
    answer().unwrap_or_else(|error| Management { fault: Some(error.to_string()), ..Management::default() })
}

fn answer() -> Result<Management, NvmlError> {
    let nvml = library()?;
    let cuda = nvml.sys_cuda_driver_version().ok();
    let part = |number: i32| u32::try_from(number).unwrap_or_default();
    let gpus = (0..nvml.device_count()?).map(|index| Ok(gpu(&nvml, &nvml.device_by_index(index)?)));
    Ok(Management {
        fault: None,
        driver: Version::parse(&nvml.sys_driver_version()?),
        cuda: cuda.map(|number| {
            CudaVersion::new(part(cuda_driver_version_major(number)), part(cuda_driver_version_minor(number)))
        }),
        gpus: gpus.collect::<Result<Vec<Gpu>, NvmlError>>()?,
    })
}

fn library() -> Result<Nvml, NvmlError> {
    Nvml::builder().lib_path(LIBRARY.as_ref()).init()
}

fn gpu(nvml: &Nvml, device: &Device<'_>) -> Gpu {
    let memory = device.memory_info().ok();
    let capability = device.cuda_compute_capability().ok();
    let capability =
        capability.and_then(|found| Some((u32::try_from(found.major).ok()?, u32::try_from(found.minor).ok()?)));
    let reasons = device.current_throttle_reasons().unwrap_or(ThrottleReasons::NONE);
    Gpu {
        name: device.name().unwrap_or_else(|_| "NVIDIA GPU".to_owned()),
        address: device.pci_info().ok().map(|found| found.bus_id),
        capability: capability.map(|(major, minor)| Capability::new(major, minor)),
        total_bytes: memory.as_ref().map_or(0, |memory| memory.total),
        used_bytes: memory.as_ref().map_or(0, |memory| memory.used),
        holders: holders(nvml, device),
        uncorrected_errors: device.total_ecc_errors(MemoryError::Uncorrected, EccCounter::Volatile).ok(),
        counts_errors: device.is_ecc_enabled().ok().map(|ecc| ecc.currently_enabled),
        slowdowns: SLOWDOWNS
            .iter()
            .filter(|(reason, _)| reasons.contains(*reason))
            .map(|(_, name)| (*name).to_owned())
            .collect(),
        celsius: device.temperature(TemperatureSensor::Gpu).ok(),
    }
}

/// Other processes that hold memory for computing or graphics.
fn holders(nvml: &Nvml, device: &Device<'_>) -> Vec<Holder> {
    let computing = device.running_compute_processes().unwrap_or_default();
    let drawing = device.running_graphics_processes().unwrap_or_default();
    let holder = |pid: u32, memory: &UsedGpuMemory| Holder {
        pid,
        name: nvml.sys_process_name(pid, NAME_LENGTH).unwrap_or_default(),
        bytes: match memory {
            UsedGpuMemory::Used(bytes) => Some(*bytes),
            UsedGpuMemory::Unavailable => None,
        },
    };
    let mut holders: Vec<Holder> = computing
        .iter()
        .chain(&drawing)
        .filter(|process| process.pid != std::process::id())
        .map(|process| holder(process.pid, &process.used_gpu_memory))
        .collect();
    holders.sort_by_key(|holder| holder.pid);
    holders.dedup_by_key(|holder| holder.pid);
    holders
}

/// One GPU that is sampled.
pub(crate) struct GpuProbe {
    nvml: Nvml,
    /// PCI address: CUDA_VISIBLE_DEVICES changes a GPU's number, and not this.
    address: String,
}

impl GpuProbe {
    /// The GPU at this address.
    ///
    /// # Errors
    /// A reason if the library does not answer, or does not know the GPU.
    pub(crate) fn open(pci_bus_id: &str) -> Result<Self, String> {
        let nvml = library().map_err(|error| error.to_string())?;
        nvml.device_by_pci_bus_id(pci_bus_id).map_err(|error| format!("{pci_bus_id}: {error}"))?;
        Ok(GpuProbe { nvml, address: pci_bus_id.to_owned() })
    }
}

impl Sampler for GpuProbe {
    fn sample(&mut self) -> Result<GpuSample, String> {
        let device = self.nvml.device_by_pci_bus_id(self.address.as_str()).map_err(|error| error.to_string())?;
        let memory = device.memory_info().ok();
        let clock = |clock| device.clock_info(clock).ok().map(f64::from);
        Ok(GpuSample {
            busy_percent: device.utilization_rates().ok().map(|rates| f64::from(rates.gpu)),
            memory_used_bytes: memory.as_ref().map(|memory| memory.used as f64),
            memory_total_bytes: memory.as_ref().map(|memory| memory.total as f64),
            power_w: device.power_usage().ok().map(|milliwatts| f64::from(milliwatts) / 1e3),
            celsius: device.temperature(TemperatureSensor::Gpu).ok().map(f64::from),
            sm_mhz: clock(Clock::SM),
            memory_mhz: clock(Clock::Memory),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_the_library_its_loader_says_why() {
        let management = ask();
        // Where there is a driver, there is nothing to complain about.
        assert_eq!(management.fault.is_some(), management.driver.is_none(), "{management:?}");
        assert!(management.fault.is_none_or(|fault| fault.contains(LIBRARY)));
    }

    #[test]
    fn a_gpu_that_there_is_not_is_not_watched() {
        let fault = GpuProbe::open("ffff:ff:1f.0").err().unwrap();
        assert!(fault.contains(LIBRARY) || fault.starts_with("ffff:ff:1f.0: "), "{fault}");
    }
}
