//! The operations on the CUDA device, their kernels on the fake driver.
#![cfg(target_os = "linux")]

use megabatch_gpu_core::{Buffer, Device};
use megabatch_segment::SegmentPlan;
use megabatch_segment::ops::conformance::CASES;
use megabatch_segment::ops::sum;
use megabatch_simt::Harness;
use megabatch_simt::driver::FakeDriver;

fn with_kernels() -> (FakeDriver, Device) {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/ops");
    let driver = Harness::new(folder, &["extremum", "extremum_backward", "fold", "gather", "softmax"]).driver();
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
    let scope = device.scope("test");
    let plan = SegmentPlan::from_index(&scope, &[1u32, 0, 1], 2).unwrap();
    let x = Buffer::from_slice(&scope, &[1.0f32, 2.0, 4.0]).unwrap();
    let mut out = Buffer::zeros(&scope, 2).unwrap();
    driver.fail("cuLaunchKernel", 1, 700);
    let error = sum(&plan, &x, &mut out).unwrap_err().to_string();
    assert!(error.starts_with("cuda:0: cuLaunchKernel(segment_sum, "), "{error}");
    sum(&plan, &x, &mut out).unwrap();
    assert_eq!(out.to_vec().unwrap(), [2.0, 5.0]);
}
