//! A machine without a CUDA driver.
#![cfg(target_os = "linux")]

use megabatch_gpu_core::{Device, Error};
use megabatch_test_support::{Requirement, skip};

#[test]
fn a_device_is_refused_with_the_loaders_reason_and_auto_is_the_cpu() {
    let error = match Device::select("cuda:0") {
        Err(error @ Error::DriverAbsent { .. }) => error.to_string(),
        other => {
            skip(Requirement::NoCudaDriver, &format!("the message without a driver; {other:?}"));
            return;
        }
    };
    assert!(error.starts_with("device `cuda:0`: no CUDA driver: libcuda.so.1: "), "{error}");
    assert!(error.ends_with("install NVIDIA's driver (in a container, pass the GPU on), or use cpu"), "{error}");
    assert_eq!(Device::select("auto").unwrap().to_string(), "cpu");
}
