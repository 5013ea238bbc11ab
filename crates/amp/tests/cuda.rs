//! The operations on the CUDA device, their kernels on the fake driver.
#![cfg(target_os = "linux")]

use megabatch_gpu_core::Device;
use megabatch_simt::Harness;
use megabatch_simt::driver::FakeDriver;

mod suite;

use suite::CASES;

fn with_kernels() -> (FakeDriver, Device) {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/ops");
    (Harness::new(folder, &["unscale_and_check", "update"]).driver(), Device::select("cuda:0").unwrap())
}

#[test]
fn the_suite_of_operations() {
    for (name, case) in CASES {
        println!("{name}");
        let (_driver, device) = with_kernels();
        case(&device).unwrap();
    }
}
