#![allow(unsafe_code, reason = "the driver is a library of C")]

//! Behaviour on a machine without a driver.
#![cfg(target_os = "linux")]

use std::ffi::{CStr, c_char, c_int, c_uint};
use std::ptr;

use megabatch_cuda_lazy::{CUDA_ERROR_NO_DEVICE, driver};
use megabatch_test_support::{Requirement, skip};

unsafe extern "C" {
    fn cuInit(flags: c_uint) -> c_int;
    fn cuGetErrorString(error: c_int, text: *mut *const c_char) -> c_int;
}

#[test]
fn without_a_driver_every_call_says_so() {
    let Err(absent) = driver() else {
        skip(Requirement::NoCudaDriver, "the message without a driver");
        return;
    };
    assert!(absent.to_string().starts_with("no CUDA driver: libcuda.so.1: "), "{absent}");
    // SAFETY: any flags may be passed.
    assert_eq!(unsafe { cuInit(0) }, CUDA_ERROR_NO_DEVICE);

    let mut text = ptr::null();
    // SAFETY: `text` is a variable of ours, and what comes back is a text that is never freed.
    let text = unsafe {
        assert_eq!(cuGetErrorString(CUDA_ERROR_NO_DEVICE, &raw mut text), 0);
        CStr::from_ptr(text)
    };
    assert_eq!(text, c"no CUDA driver");
}
