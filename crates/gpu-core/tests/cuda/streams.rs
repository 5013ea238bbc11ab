//! Streams and events.

use megabatch_gpu_core::cuda::Gpu;
use megabatch_gpu_core::{Device, Error};
use megabatch_simt::driver::{FakeDriver, Setting};

#[test]
fn streams_are_handed_out_again() {
    let driver = FakeDriver::whole();
    let gpu = Gpu::open(0).unwrap();
    let ids: Vec<u32> = (0..3).map(|_| gpu.stream().unwrap().id().0).collect();
    assert_eq!(ids, [1, 1, 1]);
    let (a, b) = (gpu.stream().unwrap(), gpu.stream().unwrap());
    assert_eq!((a.id().0, b.id().0, gpu.default_stream().id().0), (1, 2, 0));
    assert_eq!(driver.calls("cuStreamCreateWithPriority"), 2);
    drop(gpu);
    a.synchronize().expect("a stream keeps its GPU");
    drop((a, b));
    assert_eq!((driver.contexts_retained(), driver.live_objects()), (0, 0));
}

#[test]
fn an_event_passes_when_the_work_before_it_is_done() {
    let driver = FakeDriver::whole();
    driver.set(Setting::Deferred, 1);
    let device = Device::select("cuda:0").unwrap();
    let gpu = device.gpu().unwrap();
    let stream = gpu.stream().unwrap();
    let (start, end) = (gpu.event().unwrap(), gpu.event().unwrap());
    assert!(start.is_done().unwrap(), "nothing was recorded");
    start.record(&stream).unwrap();
    end.record(&stream).unwrap();
    let early = end.elapsed_ms_since(&start).unwrap_err();
    assert!(matches!(early, Error::Driver { call: "cuEventElapsedTime", code: 600, .. }), "{early:?}");
    assert!(!end.is_done().unwrap());
    end.wait().unwrap();
    assert!(start.is_done().unwrap() && end.is_done().unwrap());
    assert!(end.elapsed_ms_since(&start).unwrap() >= 0.0);
    assert!(start.elapsed_ms_since(&end).unwrap() <= 0.0);
}

#[test]
fn a_fault_of_the_gpu_is_told_by_whoever_waits() {
    let driver = FakeDriver::whole();
    let gpu = Gpu::open(0).unwrap();
    let stream = gpu.stream().unwrap();
    driver.fail("cuStreamSynchronize", 1, 700);
    let error = stream.synchronize().unwrap_err();
    assert_eq!(
        error.to_string(),
        "cuda:0: cuStreamSynchronize(stream 1) failed: CUDA_ERROR_ILLEGAL_ADDRESS (700), as the fake driver was told"
    );
    driver.fail("cuCtxSynchronize", 1, 700);
    assert!(matches!(gpu.synchronize(), Err(Error::Driver { code: 700, .. })));
}
