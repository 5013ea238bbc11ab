//! The operations on the CUDA device, their kernels on the fake driver.

use megabatch_gpu_core::ops::conformance::CASES;
use megabatch_gpu_core::ops::fill;
use megabatch_gpu_core::{Buffer, Device};
use megabatch_simt::Harness;
use megabatch_simt::driver::FakeDriver;

/// The fake driver, with every operation's kernel.
pub(crate) fn driver_with_kernels() -> FakeDriver {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/ops");
    Harness::new(folder, &["cast", "copy_strided", "fill", "reduce"]).driver()
}

fn with_kernels() -> (FakeDriver, Device) {
    (driver_with_kernels(), Device::select("cuda:0").unwrap())
}

#[test]
fn the_suite_of_operations() {
    for (name, case) in CASES {
        println!("{name}");
        let (_driver, device) = with_kernels();
        case(&device).unwrap();
    }
}

#[test]
fn a_failed_launch_is_the_operations_error() {
    let (driver, device) = with_kernels();
    let mut buffer = Buffer::<f32>::zeros(&device.scope("test"), 100).unwrap();
    driver.fail("cuLaunchKernel", 1, 700);
    let error = fill(&mut buffer, 1.0).unwrap_err().to_string();
    assert!(error.starts_with("cuda:0: cuLaunchKernel(fill, "), "{error}");
    fill(&mut buffer, 2.0).unwrap();
    assert_eq!(buffer.to_vec().unwrap(), [2.0; 100]);
}
