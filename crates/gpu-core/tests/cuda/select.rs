//! Choosing a device.

use megabatch_gpu_core::cuda::Gpu;
use megabatch_gpu_core::{Buffer, Device, Error};
use megabatch_simt::driver::{FakeDriver, Setting};

#[test]
fn a_gpu_is_chosen_by_number_and_by_auto() {
    let driver = FakeDriver::whole();
    driver.set(Setting::Devices, 2);
    assert_eq!(Gpu::count().unwrap(), 2);
    for (name, chosen) in [("auto", "cuda:0"), ("cuda:0", "cuda:0"), ("cuda:1", "cuda:1"), ("cpu", "cpu")] {
        assert_eq!(Device::select(name).unwrap().to_string(), chosen);
    }
    assert_eq!(driver.contexts_retained(), 0, "a device that nobody has keeps no context");
    assert_eq!(driver.physical_bytes(), 0);
}

#[test]
fn properties_are_the_drivers() {
    let driver = FakeDriver::whole();
    driver.set(Setting::Devices, 2);
    driver.set(Setting::ComputeCapability, 90);
    driver.set(Setting::HeldByOthersBytes, 10 << 20);
    let gpu = Gpu::open(1).unwrap();
    let properties = gpu.properties();
    assert_eq!(properties.name, "Fake GPU 1");
    assert_eq!(properties.compute_capability, (9, 0));
    assert_eq!(properties.total_bytes, 256 << 20);
    assert_eq!(properties.driver_version, "12.4");
    assert_eq!(properties.uuid, "GPU-01112131-4151-6171-8191-a1b1c1d1e1f1");
    assert_eq!(properties.pci_bus_id, "0000:02:00.0");
    assert_eq!(properties.block_threads_max, [1024, 1024, 64]);
    assert_eq!((properties.shared_bytes_max, properties.shared_bytes_opt_in_max), (49_152, 166_912));
    let memory = gpu.memory().unwrap();
    assert_eq!((memory.free_bytes, memory.total_bytes), (246 << 20, 256 << 20));
}

#[test]
fn what_cannot_be_had_is_refused_with_the_reason() {
    let cases: &[(Setting, u64, &str, &str)] = &[
        (
            Setting::Devices,
            1,
            "cuda:1",
            "device `cuda:1`: the driver lists 1 device, counted from cuda:0; see nvidia-smi and CUDA_VISIBLE_DEVICES, or use cpu",
        ),
        (
            Setting::Devices,
            0,
            "cuda:0",
            "device `cuda:0`: the driver lists 0 devices, counted from cuda:0; see nvidia-smi and CUDA_VISIBLE_DEVICES, or use cpu",
        ),
        (
            Setting::ComputeCapability,
            75,
            "cuda:0",
            "device `cuda:0`, Fake GPU 0, lacks compute capability 8.0 (it has 7.5); use another device, or cpu",
        ),
        (
            Setting::VirtualMemory,
            0,
            "cuda:0",
            "device `cuda:0`, Fake GPU 0, lacks virtual memory management, which some virtual GPUs do not pass on; use another device, or cpu",
        ),
    ];
    for &(setting, value, name, message) in cases {
        let driver = FakeDriver::whole();
        driver.set(setting, value);
        assert_eq!(Device::select(name).unwrap_err().to_string(), message);
        assert_eq!(driver.contexts_retained(), 0, "{message}");
    }
}

#[test]
fn auto_passes_over_a_gpu_that_cannot_be_used_but_not_over_one_that_fails() {
    let driver = FakeDriver::whole();
    driver.set(Setting::ComputeCapability, 75);
    assert_eq!(Device::select("auto").unwrap().to_string(), "cpu");
    drop(driver);

    let driver = FakeDriver::whole();
    // CUDA_ERROR_DEVICE_UNAVAILABLE, which the bindings do not know.
    driver.fail("cuDevicePrimaryCtxRetain", 1, 46);
    let error = Device::select("auto").unwrap_err();
    assert!(matches!(error, Error::Driver { code: 46, .. }), "{error:?}");
    assert_eq!(
        error.to_string(),
        "cuda:0: cuDevicePrimaryCtxRetain(cuda:0) failed: CUDA_ERROR_DEVICE_UNAVAILABLE (46), as the fake driver was told"
    );
}

#[test]
fn an_opening_that_fails_anywhere_leaves_nothing_behind() {
    for failing in ["cuInit", "cuDeviceGetCount", "cuDeviceGetUuid", "cuMemGetAllocationGranularity", "cuEventCreate"] {
        let driver = FakeDriver::whole();
        driver.fail(failing, 1, 999);
        let error = Device::select("cuda:0").unwrap_err();
        assert!(matches!(error, Error::Driver { call, code: 999, .. } if call == failing), "{failing}: {error:?}");
        assert_eq!((driver.contexts_retained(), driver.physical_bytes()), (0, 0), "{failing}");
        assert_eq!(driver.live_objects(), 0, "{failing}");
        let device = Device::select("cuda:0").unwrap();
        Buffer::<u8>::zeros(&device.scope("after"), 1).unwrap();
    }
}
