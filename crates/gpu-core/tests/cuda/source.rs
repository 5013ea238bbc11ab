//! The memory of a GPU: the suite of sources, the pool on it, failures.

#![allow(unsafe_code, reason = "the driver is called")]

use megabatch_gpu_core::cuda::GpuSource;
use megabatch_gpu_core::cuda::{Gpu, Stream};
use megabatch_gpu_core::pool::{AllocationError, AllocationRequest, BlockId, Pool, PoolSettings};
use megabatch_gpu_core::source::{Granule, Refusal, Source, StreamId};
use megabatch_simt::driver::{FakeDriver, OUT_OF_MEMORY, Setting};

use crate::source_suite::{Bytes, CASES, Probe};

/// A GPU's memory, reached over pinned memory and the default stream.
struct GpuBytes {
    gpu: Gpu,
    /// The suite orders streams 0 and 1.
    _other: Stream,
}

impl GpuBytes {
    fn new(gpu: &Gpu) -> Self {
        GpuBytes { gpu: gpu.clone(), _other: gpu.stream().unwrap() }
    }
}

impl Bytes for GpuBytes {
    fn write(&mut self, address: u64, bytes: &[u8]) {
        let mut host = self.gpu.pinned(bytes.len()).unwrap();
        host.as_mut_slice().copy_from_slice(bytes);
        // SAFETY: the suite writes mapped addresses only, and the copy is waited for.
        unsafe { self.gpu.default_stream().upload(host, address) }.unwrap().wait().unwrap();
    }

    fn read(&mut self, address: u64, bytes: &mut [u8]) {
        let host = self.gpu.pinned(bytes.len()).unwrap();
        // SAFETY: the suite reads mapped addresses only, and the copy is waited for.
        let host = unsafe { self.gpu.default_stream().download(address, host) }.unwrap().wait().unwrap();
        bytes.copy_from_slice(host.as_slice());
    }
}

#[test]
fn the_suite_of_sources() {
    for deferred in [0, 1] {
        for (name, case) in CASES {
            println!("{name}, deferred: {deferred}");
            let driver = FakeDriver::whole();
            driver.set(Setting::Deferred, deferred);
            driver.set(Setting::TotalBytes, 32 << 20);
            let gpu = Gpu::open(0).unwrap();
            let source = Box::new(GpuSource::new(&gpu).unwrap());
            case(&mut Probe { source, bytes: Box::new(GpuBytes::new(&gpu)) });
            drop(gpu);
            assert_eq!(
                (driver.physical_bytes(), driver.live_objects(), driver.contexts_retained()),
                (0, 0, 0),
                "{name}"
            );
        }
    }
}

#[test]
fn calls_to_the_driver_are_counted() {
    let driver = FakeDriver::whole();
    let gpu = Gpu::open(0).unwrap();
    let mut source = GpuSource::new(&gpu).unwrap();
    let stream = gpu.stream().unwrap();
    let (driver_before, source_before) = (calls(&driver), source.driver_calls());
    let (bytes, granules) = (3 * source.granule_bytes(), three(&mut source));
    let address = source.reserve(bytes).unwrap();
    source.map(address, &granules).unwrap();
    source.order(stream.id(), StreamId(0)).unwrap();
    assert!(source.is_idle(stream.id()) && source.is_idle(StreamId(0)));
    source.free_bytes().unwrap();
    source.synchronize().unwrap();
    source.unmap(address, bytes);
    granules.into_iter().for_each(|granule| source.destroy(granule));
    source.release(address, bytes);
    assert_eq!(source.driver_calls() - source_before, calls(&driver) - driver_before);
}

#[test]
fn out_of_memory_is_told_apart_from_failure_and_changes_nothing() {
    let driver = FakeDriver::whole();
    let gpu = Gpu::open(0).unwrap();
    let mut source = GpuSource::new(&gpu).unwrap();
    driver.fail("cuMemCreate", 1, OUT_OF_MEMORY);
    assert_eq!(source.create(), Err(Refusal::OutOfMemory));
    driver.fail("cuMemCreate", 1, 46);
    assert_eq!(
        source.create().unwrap_err().to_string(),
        "cuMemCreate: CUDA_ERROR_DEVICE_UNAVAILABLE (46), as the fake driver was told [2097152 bytes, device 0]"
    );

    let granules = three(&mut source);
    let address = source.reserve(3 * source.granule_bytes()).unwrap();
    for (call, nth) in [("cuMemMap", 1), ("cuMemMap", 2), ("cuMemMap", 3), ("cuMemSetAccess", 1)] {
        driver.fail(call, nth, 205);
        let refusal = source.map(address, &granules).unwrap_err();
        assert!(matches!(&refusal, Refusal::Failed { call: failed, .. } if *failed == call), "{refusal:?}");
    }
    // All of it is free to be mapped again, so that nothing stayed from the failures.
    source.map(address, &granules).unwrap();
}

#[test]
fn a_failure_that_could_not_be_reported_is_reported_next() {
    let driver = FakeDriver::whole();
    let gpu = Gpu::open(0).unwrap();
    let mut source = GpuSource::new(&gpu).unwrap();
    let granule = source.create().unwrap();
    driver.fail("cuMemRelease", 1, 46);
    source.destroy(granule);
    assert!(matches!(source.create(), Err(Refusal::Failed { call: "cuMemRelease", .. })));
    source.create().unwrap();
}

#[test]
fn memory_is_unmapped_when_the_work_on_it_is_done() {
    let driver = FakeDriver::whole();
    driver.set(Setting::Deferred, 1);
    let gpu = Gpu::open(0).unwrap();
    let mut source = GpuSource::new(&gpu).unwrap();
    let stream = gpu.stream().unwrap();
    let (bytes, granules) = (3 * source.granule_bytes(), three(&mut source));
    let address = source.reserve(bytes).unwrap();
    source.map(address, &granules).unwrap();
    // SAFETY: both halves of the range are mapped, and unmapping waits.
    unsafe { stream.copy(address, address + bytes as u64 / 2, bytes / 2) }.unwrap();
    assert!(!source.is_idle(StreamId(0)), "memory of the default stream may be in use on any");
    source.unmap(address, bytes);
    assert!(source.is_idle(stream.id()));
    source.synchronize().unwrap();
}

#[test]
fn a_pool_on_a_gpu_fails_at_any_call_without_harm() {
    for call in ["cuMemAddressReserve", "cuMemCreate", "cuMemMap", "cuMemSetAccess"] {
        for nth in 1..6 {
            let driver = FakeDriver::whole();
            let gpu = Gpu::open(0).unwrap();
            let mut pool = Pool::new(Box::new(GpuSource::new(&gpu).unwrap()), PoolSettings { capacity_bytes: None });
            let kept = allocate(&mut pool, 3 << 20).unwrap();
            driver.fail(call, nth, if call == "cuMemCreate" { OUT_OF_MEMORY } else { 999 });
            let tried: Vec<_> = (1..6).filter_map(|n| allocate(&mut pool, n << 20).ok()).collect();
            pool.check();
            pool.address(kept);
            tried.into_iter().for_each(|block| pool.free(block));
            pool.free(kept);
            pool.empty_cache();
            pool.check();
            drop((pool, gpu));
            assert_eq!((driver.physical_bytes(), driver.live_objects()), (0, 0), "{call}, {nth}");
        }
    }
}

#[test]
fn a_pool_takes_all_of_a_gpu() {
    let driver = FakeDriver::whole();
    let gpu = Gpu::open(0).unwrap();
    let mut pool = Pool::new(Box::new(GpuSource::new(&gpu).unwrap()), PoolSettings { capacity_bytes: None });
    assert!(matches!(allocate(&mut pool, 257 << 20), Err(AllocationError::NeverFits { .. })));
    let block = allocate(&mut pool, 256 << 20).unwrap();
    assert!(matches!(allocate(&mut pool, 1), Err(AllocationError::NotNow(_))));
    pool.free(block);
    assert_eq!(driver.physical_bytes(), pool.stats().reserved_bytes.now as u64);
}

fn allocate(pool: &mut Pool, bytes: usize) -> Result<BlockId, AllocationError> {
    pool.allocate(&AllocationRequest { bytes, stream: StreamId(0), owner: "test".into() })
}

fn three(source: &mut GpuSource) -> Vec<Granule> {
    (0..3).map(|_| source.create().unwrap()).collect()
}

/// Calls to the driver but for those that make a context current, which a source does not count.
fn calls(driver: &FakeDriver) -> u64 {
    driver.calls_total() - driver.calls("cuCtxSetCurrent")
}
