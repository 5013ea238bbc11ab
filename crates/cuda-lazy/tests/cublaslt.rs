#![allow(unsafe_code, reason = "the driver is a library of C")]

//! cuBLASLt's functions, from a fake library.
#![cfg(target_os = "linux")]

use std::ffi::CStr;
use std::ptr;

use megabatch_cuda_lazy::cublaslt::{COMPUTE_32F, DESC_BIAS_POINTER, DESC_TRANSA, OP_T, R_32F, SUCCESS, cublaslt};
use megabatch_simt::driver::{FakeDriver, Setting};

#[test]
fn functions_of_the_library_are_found_by_their_names() {
    let driver = FakeDriver::whole();
    driver.set(Setting::CublasLtVersion, 120_405);
    let library = cublaslt(12).expect("the fake one is CUDA 12's");
    // SAFETY: as the library documents each function: of variables of this test, and in the order
    // of an operation's life.
    unsafe {
        assert_eq!((library.version)(), 120_405);
        assert_eq!(CStr::from_ptr((library.status_name)(15)), c"CUBLAS_STATUS_NOT_SUPPORTED");
        let mut operation = ptr::null_mut();
        assert_eq!((library.create_operation)(&raw mut operation, COMPUTE_32F, R_32F), SUCCESS);
        let set =
            |attribute, value: &i32| (library.set_operation)(operation, attribute, ptr::from_ref(value).cast(), 4);
        assert_eq!(set(DESC_TRANSA, &OP_T), SUCCESS);
        assert_ne!(set(DESC_BIAS_POINTER, &0), SUCCESS, "an address has eight bytes");
        assert_eq!((library.destroy_operation)(operation), SUCCESS);
    }
    assert_eq!(driver.cublaslt_objects(), 0);
}
