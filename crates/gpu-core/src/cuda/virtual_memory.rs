//! Virtual memory management, which cust does not have: physical memory and the addresses at which
//! it is seen.
//!
//! Source: CUDA driver API, "Virtual Memory Management". All functions work on the GPU whose
//! context is current.

#![allow(unsafe_code, reason = "the driver is called")]

use cust::sys::{
    self, CUmemAccess_flags, CUmemAccessDesc, CUmemAllocationGranularity_flags, CUmemAllocationHandleType,
    CUmemAllocationProp, CUmemAllocationType, CUmemLocation, CUmemLocationType,
};

use super::fault::{DriverFault, checked};

/// Memory of one GPU, for its own use.
#[derive(Clone, Copy, Debug)]
pub(crate) struct VirtualMemory {
    device: i32,
}

impl VirtualMemory {
    pub(crate) fn new(ordinal: u32) -> Self {
        VirtualMemory { device: i32::try_from(ordinal).expect("a machine has fewer GPUs") }
    }

    /// The size of physical memory in bytes, of which all sizes are multiples, that the driver
    /// recommends.
    pub(crate) fn granule_bytes(&self) -> Result<usize, DriverFault> {
        let (mut bytes, prop) = (0, self.prop());
        let recommended = CUmemAllocationGranularity_flags::CU_MEM_ALLOC_GRANULARITY_RECOMMENDED;
        // SAFETY: both addresses are those of variables that live until the call returns.
        let code = unsafe { sys::cuMemGetAllocationGranularity(&raw mut bytes, &raw const prop, recommended) };
        checked("cuMemGetAllocationGranularity", format_args!("recommended, device {}", self.device), code)?;
        Ok(bytes)
    }

    /// Physical memory; its handle.
    pub(crate) fn create(&self, bytes: usize) -> Result<u64, DriverFault> {
        let (mut handle, prop) = (0, self.prop());
        // SAFETY: both addresses are those of variables that live until the call returns.
        let code = unsafe { sys::cuMemCreate(&raw mut handle, bytes, &raw const prop, 0) };
        checked("cuMemCreate", format_args!("{bytes} bytes, device {}", self.device), code)?;
        Ok(handle)
    }

    /// Makes mapped memory readable and writable.
    pub(crate) fn set_access(&self, address: u64, bytes: usize) -> Result<(), DriverFault> {
        let access =
            CUmemAccessDesc { location: self.location(), flags: CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
        // SAFETY: the descriptor lives until the call returns; the driver checks what is mapped.
        let code = unsafe { sys::cuMemSetAccess(address, bytes, &raw const access, 1) };
        checked("cuMemSetAccess", format_args!("{address:#x}, {bytes} bytes"), code)
    }

    fn prop(&self) -> CUmemAllocationProp {
        CUmemAllocationProp {
            type_: CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
            requestedHandleTypes: CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_NONE,
            location: self.location(),
            win32HandleMetaData: std::ptr::null_mut(),
            allocFlags: sys::CUmemAllocationProp_st__bindgen_ty_1::default(),
        }
    }

    fn location(&self) -> CUmemLocation {
        CUmemLocation { type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, id: self.device }
    }
}

/// Reserves a range of addresses; returns the first, a multiple of `align_bytes`, a power of two.
/// The driver does not document its default alignment.
pub(crate) fn reserve(bytes: usize, align_bytes: usize) -> Result<u64, DriverFault> {
    let mut address = 0;
    // SAFETY: the address is that of a variable that lives until the call returns.
    let code = unsafe { sys::cuMemAddressReserve(&raw mut address, bytes, align_bytes, 0, 0) };
    checked("cuMemAddressReserve", format_args!("{bytes} bytes, aligned to {align_bytes}"), code)?;
    Ok(address)
}

/// Maps physical memory of `bytes` at an address, not accessible yet.
pub(crate) fn map(address: u64, bytes: usize, handle: u64) -> Result<(), DriverFault> {
    // SAFETY: the driver checks the handle and the range.
    let code = unsafe { sys::cuMemMap(address, bytes, 0, handle, 0) };
    checked("cuMemMap", format_args!("{address:#x}, {bytes} bytes, handle {handle}"), code)
}

/// Takes one mapping away.
///
/// # Safety
/// Nobody uses the memory through this address any more, neither on the host nor on the GPU.
pub(crate) unsafe fn unmap(address: u64, bytes: usize) -> Result<(), DriverFault> {
    // SAFETY: as the caller promised.
    let code = unsafe { sys::cuMemUnmap(address, bytes) };
    checked("cuMemUnmap", format_args!("{address:#x}, {bytes} bytes"), code)
}

/// Releases physical memory; the driver frees it when nothing maps it.
pub(crate) fn release(handle: u64) -> Result<(), DriverFault> {
    // SAFETY: the driver checks the handle.
    let code = unsafe { sys::cuMemRelease(handle) };
    checked("cuMemRelease", format_args!("handle {handle}"), code)
}

/// Gives a range of addresses back.
///
/// # Safety
/// Nobody uses the range any more.
pub(crate) unsafe fn free_addresses(address: u64, bytes: usize) -> Result<(), DriverFault> {
    // SAFETY: as the caller promised.
    let code = unsafe { sys::cuMemAddressFree(address, bytes) };
    checked("cuMemAddressFree", format_args!("{address:#x}, {bytes} bytes"), code)
}
