//! A driver from before virtual memory management.
#![cfg(target_os = "linux")]

use megabatch_gpu_core::{Device, Error};
use megabatch_simt::driver::{FakeDriver, Setting};

#[test]
fn an_old_version_is_refused_by_its_number() {
    let driver = FakeDriver::without_virtual_memory();
    driver.set(Setting::DriverVersion, 10020);
    let error = Device::select("cuda:0").unwrap_err();
    assert!(matches!(error, Error::DriverTooOld { .. }), "{error}");
    assert_eq!(
        error.to_string(),
        "device `cuda:0`: the driver goes up to CUDA 10.2, and 11.0 is needed; update NVIDIA's driver, or use cpu"
    );
    assert_eq!(Device::select("auto").unwrap().to_string(), "cpu");
    assert_eq!(driver.calls("cuInit"), 0);
}

#[test]
fn a_function_that_is_missing_is_named() {
    let _driver = FakeDriver::without_virtual_memory();
    let error = Device::select("cuda:0").unwrap_err();
    assert!(matches!(error, Error::Driver { call: "cuMemGetAllocationGranularity", code: 801, .. }), "{error:?}");
    assert_eq!(
        error.to_string(),
        "cuda:0: cuMemGetAllocationGranularity(recommended, device 0) failed: CUDA_ERROR_NOT_SUPPORTED (801), the CUDA driver does not have this call"
    );
}
