#![allow(unsafe_code, reason = "the driver is a library of C")]

//! Arguments reach the driver's function of the same name, in every shape that an argument list
//! has.
#![cfg(target_os = "linux")]

use std::ffi::{c_int, c_uchar, c_uint, c_ulonglong, c_ushort, c_void};
use std::ptr;
use std::sync::{Mutex, PoisonError};

use megabatch_cuda_lazy::{CUDA_ERROR_NOT_SUPPORTED, CUDA_ERROR_UNKNOWN, describe, driver, last_code};
use megabatch_simt::driver::Echo;

#[repr(C)]
struct Handle([u64; 8]);

mod bindings {
    use super::{Handle, c_int, c_uchar, c_uint, c_ulonglong, c_ushort, c_void};
    unsafe extern "C" {
        pub(super) fn cuCtxSynchronize() -> c_int;
        pub(super) fn cuProfilerStart() -> c_int;
        pub(super) fn cuInit(flags: c_uint) -> c_int;
        pub(super) fn cuDeviceGet(device: *mut c_int, ordinal: c_int) -> c_int;
        pub(super) fn cuMemsetD8_v2(address: u64, value: c_uchar, count: usize) -> c_int;
        pub(super) fn cuMemsetD16_v2(address: u64, value: c_ushort, count: usize) -> c_int;
        pub(super) fn cuTexRefSetMipmapLevelBias(texture: *mut c_void, bias: f32) -> c_int;
        pub(super) fn cuTexRefSetMipmapLevelClamp(texture: *mut c_void, from: f32, to: f32) -> c_int;
        pub(super) fn cuMemMap(address: u64, bytes: usize, offset: usize, handle: u64, flags: c_ulonglong) -> c_int;
        pub(super) fn cuIpcOpenMemHandle_v2(address: *mut u64, handle: Handle, flags: c_uint) -> c_int;
        pub(super) fn cuLaunchKernel(
            function: *mut c_void,
            grid_x: c_uint,
            grid_y: c_uint,
            grid_z: c_uint,
            block_x: c_uint,
            block_y: c_uint,
            block_z: c_uint,
            shared_bytes: c_uint,
            stream: *mut c_void,
            params: *mut *mut c_void,
            extra: *mut *mut c_void,
        ) -> c_int;
        pub(super) fn cuMemFree_v2(address: u64) -> c_int;
    }
}
use bindings::*;

/// The library has one memory for what it was given.
static ALONE: Mutex<()> = Mutex::new(());

#[test]
fn arguments_of_every_shape_arrive() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let echo = Echo::load();
    assert_eq!(driver(), Ok(()));
    let address = ptr::without_provenance_mut::<c_void>;
    let bits = |value: f32| u64::from(value.to_bits());
    let handle = || Handle([71, 0, 0, 0, 0, 0, 0, 78]);
    // SAFETY: the library reads no memory that an argument points at.
    let calls: &[(&dyn Fn() -> c_int, &[u64])] = unsafe {
        &[
            (&|| cuCtxSynchronize(), &[]),
            (&|| cuInit(0x89AB_CDEF), &[0x89AB_CDEF]),
            (&|| cuDeviceGet(address(0x1234_5678_9ABC).cast(), -2), &[0x1234_5678_9ABC, 0xFFFF_FFFE]),
            (&|| cuMemsetD8_v2(1 << 63, 0xFE, usize::MAX), &[1 << 63, 0xFE, u64::MAX]),
            (&|| cuMemsetD16_v2(5, 0xFEDC, 7), &[5, 0xFEDC, 7]),
            (&|| cuTexRefSetMipmapLevelBias(address(8), -1.5), &[8, bits(-1.5)]),
            (&|| cuTexRefSetMipmapLevelClamp(address(8), 0.25, 3e9), &[8, bits(0.25), bits(3e9)]),
            (&|| cuMemMap(1, 2, 3, 4, 1 << 40), &[1, 2, 3, 4, 1 << 40]),
            (&|| cuIpcOpenMemHandle_v2(address(9).cast(), handle(), 6), &[9, 71, 78, 6]),
            (
                &|| cuLaunchKernel(address(1), 2, 3, 4, 5, 6, 7, 8, address(9), address(10).cast(), address(11).cast()),
                &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11],
            ),
        ]
    };
    for (call, given) in calls {
        assert_eq!(call(), 0);
        assert_eq!(echo.given(given.len()), *given);
    }
}

#[test]
fn codes_that_the_bindings_do_not_know_are_clamped() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let echo = Echo::load();
    // The first code, known ones beside gaps, and codes that newer drivers return.
    for (returned, seen) in [
        (0, 0),
        (8, 8),
        (46, CUDA_ERROR_UNKNOWN),
        (100, 100),
        (225, CUDA_ERROR_UNKNOWN),
        (911, 911),
        (999, CUDA_ERROR_UNKNOWN),
        (-1, CUDA_ERROR_UNKNOWN),
    ] {
        echo.returns(returned);
        // SAFETY: the library reads no memory.
        assert_eq!(unsafe { cuInit(0) }, seen, "{returned}");
        assert_eq!(last_code(), returned);
    }
    echo.returns(0);
}

#[test]
fn a_function_that_the_driver_lacks_is_not_supported() {
    Echo::load();
    // SAFETY: the driver does not have this function, so that nothing is freed.
    assert_eq!(unsafe { cuMemFree_v2(1) }, CUDA_ERROR_NOT_SUPPORTED);
}

#[test]
fn a_code_without_a_description_is_described_all_the_same() {
    Echo::load();
    let description = describe(46);
    assert_eq!((description.name.as_str(), description.text.as_str()), ("CUDA_ERROR", "unknown CUDA error"));
    assert_eq!(describe(CUDA_ERROR_NOT_SUPPORTED).name, "CUDA_ERROR_NOT_SUPPORTED");
}

#[test]
fn threads_may_race_for_the_first_call() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    Echo::load();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            // SAFETY: it takes no arguments. No other test calls it.
            scope.spawn(|| assert_eq!(unsafe { cuProfilerStart() }, 0));
        }
    });
}
