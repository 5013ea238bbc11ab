//! The operations on the CUDA device, their kernels on the fake driver.
#![cfg(target_os = "linux")]

use megabatch_gpu_core::Device;
use megabatch_simt::Harness;
use megabatch_simt::driver::{FakeDriver, Setting};
use megabatch_trainer::ops::conformance::{CASES, SOURCES};

fn with_kernels() -> (FakeDriver, Device) {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/ops");
    (Harness::new(folder, SOURCES).driver(), Device::select("cuda:0").unwrap())
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
fn a_gpu_without_room_for_a_group_goes_step_by_step() {
    let name = "a layer that is too wide for a block is the CPU's, shared by a group";
    let (_, case) = CASES.iter().find(|(of, _)| *of == name).unwrap();
    // A group of eight blocks of 256 threads, on four multiprocessors.
    for (resident_threads, launches) in [(2 * 256, 2), (2 * 256 - 1, 0)] {
        let (driver, device) = with_kernels();
        driver.set(Setting::ResidentThreads, resident_threads);
        case(&device).unwrap();
        assert_eq!(driver.calls("cuLaunchCooperativeKernel"), launches, "{resident_threads} threads");
    }
}
