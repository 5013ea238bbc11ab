//! Properties of a GPU.

#![allow(unsafe_code, reason = "the driver is called")]

use std::ffi::{CStr, c_char, c_int};

use cust::CudaApiVersion;
use cust::device::Device;
use cust::sys::{self, CUdevice_attribute};

use super::context::version_text;
use super::fault::{Checked as _, DriverFault, checked};

/// Properties and capabilities of a GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Properties {
    /// The maker's name, such as `NVIDIA H100 80GB HBM3`.
    pub name: String,
    /// Major and minor number of the instruction set.
    pub compute_capability: (u32, u32),
    /// Memory in bytes, held or free.
    pub total_bytes: usize,
    /// The newest CUDA version that the driver supports, such as `12.4`.
    pub driver_version: String,
    /// The GPU's own number, as `nvidia-smi -L` prints it.
    pub uuid: String,
    /// PCI address, such as `0000:01:00.0`.
    pub pci_bus_id: String,
    /// Multiprocessors.
    pub multiprocessors: u32,
    /// Largest grid, in blocks, by dimension.
    pub grid_blocks_max: [u32; 3],
    /// Largest block, in threads, by dimension.
    pub block_threads_max: [u32; 3],
    /// Largest block in threads altogether.
    pub threads_per_block_max: u32,
    /// Shared memory of a block in bytes that any kernel may use.
    pub shared_bytes_max: u32,
    /// Shared memory of a block in bytes that a kernel may use once it has asked.
    pub shared_bytes_opt_in_max: u32,
    /// True if physical memory can be mapped at addresses of our choice.
    pub has_virtual_memory: bool,
    /// True if a launch can ask that all its blocks run at once.
    pub has_cooperative_launch: bool,
}

/// Memory of a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryInfo {
    /// Bytes that nobody holds, in this process or another.
    pub free_bytes: usize,
    /// All bytes.
    pub total_bytes: usize,
}

impl Properties {
    pub(super) fn read(device: Device) -> Result<Self, DriverFault> {
        use CUdevice_attribute as Ask;
        let ask = |name: Ask| attribute(device, name);
        let ask_each = |names: [Ask; 3]| Ok([ask(names[0])?, ask(names[1])?, ask(names[2])?]);
        let raw = device.as_raw();
        Ok(Properties {
            name: device.name().checked("cuDeviceGetName", format_args!("device {raw}"))?,
            compute_capability: (
                ask(Ask::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
                ask(Ask::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
            ),
            total_bytes: device.total_memory().checked("cuDeviceTotalMem", format_args!("device {raw}"))?,
            driver_version: version_text(driver_version()?),
            uuid: uuid(device)?,
            pci_bus_id: pci_bus_id(device)?,
            multiprocessors: ask(Ask::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
            grid_blocks_max: ask_each([
                Ask::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X,
                Ask::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y,
                Ask::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z,
            ])?,
            block_threads_max: ask_each([
                Ask::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X,
                Ask::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y,
                Ask::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z,
            ])?,
            threads_per_block_max: ask(Ask::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK)?,
            shared_bytes_max: ask(Ask::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK)?,
            shared_bytes_opt_in_max: ask(Ask::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?,
            has_virtual_memory: ask(Ask::CU_DEVICE_ATTRIBUTE_VIRTUAL_ADDRESS_MANAGEMENT_SUPPORTED)? == 1,
            has_cooperative_launch: ask(Ask::CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH)? == 1,
        })
    }
}

/// The newest CUDA version that the driver supports, as `1000 · major + 10 · minor`.
pub(super) fn driver_version() -> Result<i32, DriverFault> {
    let version = CudaApiVersion::get().checked("cuDriverGetVersion", format_args!("no operands"))?;
    Ok(1000 * version.major() + 10 * version.minor())
}

/// Memory of the GPU whose context is current.
pub(super) fn memory() -> Result<MemoryInfo, DriverFault> {
    let (mut free_bytes, mut total_bytes) = (0, 0);
    // SAFETY: both are variables of this function.
    let code = unsafe { sys::cuMemGetInfo_v2(&raw mut free_bytes, &raw mut total_bytes) };
    checked("cuMemGetInfo", format_args!("no operands"), code)?;
    Ok(MemoryInfo { free_bytes, total_bytes })
}

/// An attribute, not negative.
fn attribute(device: Device, name: CUdevice_attribute) -> Result<u32, DriverFault> {
    let mut value: c_int = 0;
    // SAFETY: `value` is a variable of this function, and the device is one that the driver gave.
    let code = unsafe { sys::cuDeviceGetAttribute(&raw mut value, name, device.as_raw()) };
    checked("cuDeviceGetAttribute", format_args!("{name:?}, device {}", device.as_raw()), code)?;
    Ok(u32::try_from(value).unwrap_or(0))
}

fn uuid(device: Device) -> Result<String, DriverFault> {
    let mut uuid = sys::CUuuid::default();
    // SAFETY: `uuid` is a variable of this function, and the device is one that the driver gave.
    let code = unsafe { sys::cuDeviceGetUuid(&raw mut uuid, device.as_raw()) };
    checked("cuDeviceGetUuid", format_args!("device {}", device.as_raw()), code)?;
    let mut text = "GPU".to_owned();
    for (index, byte) in uuid.bytes.iter().enumerate() {
        if [0, 4, 6, 8, 10].contains(&index) {
            text.push('-');
        }
        text += &format!("{byte:02x}");
    }
    Ok(text)
}

fn pci_bus_id(device: Device) -> Result<String, DriverFault> {
    const LENGTH: usize = 32;
    let mut text: [c_char; LENGTH] = [0; LENGTH];
    // SAFETY: the driver writes at most LENGTH characters, and the device is one that it gave.
    let code = unsafe { sys::cuDeviceGetPCIBusId(text.as_mut_ptr(), LENGTH as c_int, device.as_raw()) };
    checked("cuDeviceGetPCIBusId", format_args!("device {}", device.as_raw()), code)?;
    text[LENGTH - 1] = 0;
    // SAFETY: there is a zero within the array, at its end at the latest.
    Ok(unsafe { CStr::from_ptr(text.as_ptr()) }.to_string_lossy().into_owned())
}
