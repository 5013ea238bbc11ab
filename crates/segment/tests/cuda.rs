//! The operations on tensors of a GPU, their kernels on the fake driver.
#![cfg(target_os = "linux")]

use megabatch_gpu_core::Device;
use megabatch_simt::Harness;
use megabatch_simt::driver::FakeDriver;

mod suite;

use suite::CASES;

fn with_kernels() -> (FakeDriver, Device) {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/cuda");
    let driver = Harness::new(folder, &["extremum", "fold", "gather", "softmax", "sort"]).driver();
    (driver, Device::select("cuda:0").unwrap())
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
    driver.fail("cuLaunchKernel", 1, 700);
    let error = CASES[0].1(&device).unwrap_err().to_string();
    assert!(error.starts_with("cuda:0: cuLaunchKernel(sort_clear, "), "{error}");
}
