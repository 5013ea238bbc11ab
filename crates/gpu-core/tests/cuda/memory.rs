//! Buffers, pinned memory and copies.

use megabatch_gpu_core::{Buffer, Device, Error, Staging};
use megabatch_simt::driver::{FakeDriver, OUT_OF_MEMORY, Setting};
use proptest::prelude::*;

/// Every device that a test of buffers runs on; the fake driver's GPU does its work as late as it
/// may.
fn devices(driver: &FakeDriver) -> [Device; 2] {
    driver.set(Setting::Deferred, 1);
    [Device::cpu(), Device::select("cuda:0").unwrap()]
}

#[test]
fn buffers_are_zero_and_hold_what_is_copied_to_them() {
    let driver = FakeDriver::whole();
    for device in devices(&driver) {
        let scope = device.scope("test");
        for len in [0usize, 1, 15, 16, 17, 1_000_003] {
            let mut buffer = Buffer::<f32>::zeros(&scope, len).unwrap();
            assert!(buffer.to_vec().unwrap().iter().all(|&x| x.to_bits() == 0), "{device}, {len}");
            let values: Vec<f32> = (0..len).map(|i| i as f32 + 0.5).collect();
            buffer.copy_from(&values).unwrap();
            let copy = buffer.try_clone().unwrap();
            buffer.set_zero().unwrap();
            assert_eq!(copy.to_vec().unwrap(), values, "{device}, {len}");
            buffer.copy_from_buffer(&copy).unwrap();
            assert_eq!(buffer.to_vec().unwrap(), values, "{device}, {len}");
            buffer.set_zero().unwrap();
            assert!(buffer.to_vec().unwrap().iter().all(|&x| x == 0.0), "{device}, {len}");
        }
        assert_eq!(scope.usage().allocated_bytes, 0);
        device.with_pool(|pool| pool.check());
    }
}

#[test]
#[should_panic(expected = "model: slices are of host memory; copy_to reads a buffer on cuda:0")]
fn a_gpus_memory_lends_no_slice() {
    let _driver = FakeDriver::whole();
    let device = Device::select("cuda:0").unwrap();
    let _ = Buffer::<f32>::zeros(&device.scope("model"), 4).unwrap().as_slice();
}

#[test]
fn memory_that_another_process_holds_is_missed_and_comes_back() {
    let driver = FakeDriver::whole();
    let device = Device::select("cuda:0").unwrap();
    let scope = device.scope("test");
    driver.set(Setting::HeldByOthersBytes, 250 << 20);
    assert_eq!(device.free_bytes(), Some(6 << 20));
    let error = Buffer::<u8>::zeros(&scope, 100 << 20).unwrap_err();
    assert!(!matches!(error, Error::Driver { .. } | Error::NeverFits { .. }), "{error:?}");
    assert_eq!(scope.usage().allocated_bytes, 0);
    driver.set(Setting::HeldByOthersBytes, 0);
    Buffer::<u8>::zeros(&scope, 100 << 20).unwrap();
}

#[test]
fn buffers_apart_are_allocations_of_the_drivers() {
    let driver = FakeDriver::whole();
    driver.set(Setting::Deferred, 1);
    let device = Device::select("cuda:0").unwrap();
    let before = driver.physical_bytes();
    let pooled = Buffer::from_slice(&device.scope("pooled"), &[1.5f32; 7]).unwrap();
    let with_pooled = driver.physical_bytes();
    device.allocate_apart();
    let apart = Buffer::from_slice(&device.scope("apart"), &[2.5f32; 7]).unwrap();
    assert_eq!(driver.physical_bytes(), with_pooled + 28);
    let copy = apart.try_clone().unwrap();
    assert_eq!((copy.to_vec().unwrap(), pooled.to_vec().unwrap()), (vec![2.5; 7], vec![1.5; 7]));
    let error = Buffer::<u8>::zeros(&device.scope("large"), 1 << 30).unwrap_err();
    assert!(error.to_string().contains("large"), "{error}");
    drop((apart, copy));
    assert_eq!(driver.physical_bytes(), with_pooled);
    drop(pooled);
    device.empty_cache();
    assert_eq!(driver.physical_bytes(), before);
}

#[test]
fn memory_that_is_left_to_the_driver_is_never_taken() {
    let driver = FakeDriver::whole();
    let device = Device::select("cuda:0").unwrap();
    let scope = device.scope("test");
    let held = Buffer::<u8>::zeros(&scope, 20 << 20).unwrap();
    driver.set(Setting::HeldByOthersBytes, 100 << 20);
    let free = device.free_bytes().unwrap();
    device.leave_to_driver(32 << 20);
    assert_eq!(device.free_bytes(), Some(free - (32 << 20)));
    let rest = Buffer::<u8>::zeros(&scope, free - (32 << 20)).unwrap();
    assert!(Buffer::<u8>::zeros(&scope, 3 << 20).is_err());
    drop(rest);
    device.empty_cache();
    // Nor what another process gives back.
    driver.set(Setting::HeldByOthersBytes, 0);
    assert_eq!(device.free_bytes(), Some(free - (32 << 20)));
    drop(held);
    device.with_pool(|pool| pool.check());
}

#[test]
fn scattered_memory_is_stitched_around_live_buffers() {
    let driver = FakeDriver::whole();
    driver.set(Setting::TotalBytes, 32 << 20);
    driver.set(Setting::Deferred, 1);
    let device = Device::select("cuda:0").unwrap();
    let scope = device.scope("test");
    let small = |seed: u8| Buffer::from_slice(&scope, &vec![seed; 4 << 20]).unwrap();
    let mut buffers: Vec<_> = (1..=8).map(|seed| Some(small(seed))).collect();
    for freed in [1, 3, 5] {
        buffers[freed] = None;
    }
    // 12 MiB are free, no two neighbours of them.
    let values: Vec<u8> = (0..12usize << 20).map(|i| (i % 251) as u8).collect();
    let large = Buffer::from_slice(&scope, &values).unwrap();
    assert_eq!(device.stats().stitches_total, 1);
    assert!(large.to_vec().unwrap() == values);
    for (buffer, seed) in buffers.iter().zip(1..) {
        if let Some(buffer) = buffer {
            assert!(buffer.to_vec().unwrap().iter().all(|&x| x == seed), "{seed}");
        }
    }
    device.with_pool(|pool| pool.check());
}

#[test]
fn a_failed_fill_books_nothing() {
    let driver = FakeDriver::whole();
    let device = Device::select("cuda:0").unwrap();
    let scope = device.scope("test");
    driver.fail("cuMemsetD8Async", 1, 719);
    let error = Buffer::<u8>::zeros(&scope, 1000).unwrap_err();
    assert!(matches!(error, Error::Driver { call: "cuMemsetD8Async", code: 719, .. }), "{error:?}");
    assert_eq!((scope.usage().allocated_bytes, scope.usage().buffers), (0, 0));
}

#[test]
fn transfers_arrive_in_the_order_of_their_streams() {
    let driver = FakeDriver::whole();
    driver.set(Setting::Deferred, 1);
    let device = Device::select("cuda:0").unwrap();
    let gpu = device.gpu().unwrap();
    let (up, down) = (gpu.stream().unwrap(), gpu.stream().unwrap());
    let mut buffer = Buffer::<u32>::zeros(&device.scope("test"), 1000).unwrap();
    let mut host = gpu.pinned::<u32>(1000).unwrap();
    host.as_mut_slice().iter_mut().zip(0..).for_each(|(x, i)| *x = i);

    let uploaded = buffer.upload(&up, host).unwrap();
    let event = gpu.event().unwrap();
    event.record(&up).unwrap();
    assert!(!event.is_done().unwrap());
    down.wait_for(&event).unwrap();
    let downloaded = buffer.download(&down, gpu.pinned(1000).unwrap()).unwrap();
    let values = downloaded.wait().unwrap();
    assert!(values.as_slice().iter().copied().eq(0..1000));
    assert_eq!(uploaded.wait().unwrap().as_slice()[999], 999);
}

#[test]
fn without_an_event_two_streams_are_not_ordered() {
    let driver = FakeDriver::whole();
    driver.set(Setting::Deferred, 1);
    let device = Device::select("cuda:0").unwrap();
    let gpu = device.gpu().unwrap();
    let (up, down) = (gpu.stream().unwrap(), gpu.stream().unwrap());
    let mut buffer = Buffer::<u32>::zeros(&device.scope("test"), 1).unwrap();
    let mut host = gpu.pinned::<u32>(1).unwrap();
    host.as_mut_slice()[0] = 7;
    let _uploaded = buffer.upload(&up, host).unwrap();
    let downloaded = buffer.download(&down, gpu.pinned(1).unwrap()).unwrap();
    // It shows that the test above is one: the fake driver runs no more than it must.
    assert_eq!(downloaded.wait().unwrap().as_slice(), [0]);
    // The default stream is ordered with both.
    assert_eq!(buffer.to_vec().unwrap(), [7]);
}

#[test]
fn a_dropped_transfer_keeps_its_memory_until_it_is_done() {
    let driver = FakeDriver::whole();
    driver.set(Setting::Deferred, 1);
    let device = Device::select("cuda:0").unwrap();
    let gpu = device.gpu().unwrap();
    let stream = gpu.stream().unwrap();
    let mut buffer = Buffer::<u8>::zeros(&device.scope("test"), 5000).unwrap();
    let mut host = gpu.pinned::<u8>(5000).unwrap();
    host.as_mut_slice().fill(1);
    let first = host.as_slice().as_ptr();
    drop(buffer.upload(&stream, host).unwrap());

    let mut other = gpu.pinned::<u8>(5000).unwrap();
    assert_ne!(other.as_slice().as_ptr(), first, "the copy has not read it yet");
    other.as_mut_slice().fill(2);
    stream.synchronize().unwrap();
    assert!(buffer.to_vec().unwrap().iter().all(|&x| x == 1));
    assert_eq!(gpu.pinned::<u8>(5000).unwrap().as_slice().as_ptr(), first, "done, it is handed out again");
}

#[test]
fn locked_memory_goes_back_when_its_copy_is_done() {
    let driver = FakeDriver::whole();
    driver.set(Setting::Deferred, 1);
    let device = Device::select("cuda:0").unwrap();
    let gpu = device.gpu().unwrap();
    let stream = gpu.stream().unwrap();
    let mut buffer = Buffer::<u8>::zeros(&device.scope("test"), 5000).unwrap();
    let objects = driver.live_objects();
    let mut host = gpu.pinned::<u8>(5000).unwrap();
    host.as_mut_slice().fill(1);
    drop(buffer.upload(&stream, host).unwrap());
    assert!(gpu.empty_pinned_cache() >= 5000);
    assert_eq!(driver.live_objects(), objects, "the driver refuses memory that it still copies from");
    assert!(buffer.to_vec().unwrap().iter().all(|&x| x == 1));
}

#[test]
fn pinned_memory_is_locked_once() {
    let driver = FakeDriver::whole();
    let device = Device::select("cuda:0").unwrap();
    let gpu = device.gpu().unwrap();
    for _ in 0..10 {
        let a = gpu.pinned::<f64>(1000).unwrap();
        let b = gpu.pinned::<u8>(100_000).unwrap();
        assert_eq!((a.len(), b.len(), b.is_empty()), (1000, 100_000, false));
        let held = gpu.pinned_stats();
        assert!((108_000..=135_000).contains(&held.allocated_bytes), "{held:?}");
    }
    let stats = gpu.pinned_stats();
    assert_eq!((stats.allocated_bytes, stats.allocations_total, stats.locks_total), (0, 20, 2));
    assert_eq!(driver.calls("cuMemHostAlloc"), 2);
    assert_eq!(gpu.empty_pinned_cache(), stats.reserved_bytes);
    assert_eq!((gpu.pinned_stats().reserved_bytes, driver.calls("cuMemFreeHost")), (0, 2));

    driver.fail("cuMemHostAlloc", 1, OUT_OF_MEMORY);
    let error = gpu.pinned::<u8>(1).unwrap_err();
    assert!(matches!(error, Error::Driver { call: "cuMemHostAlloc", code: OUT_OF_MEMORY, .. }), "{error:?}");
    assert_eq!(gpu.pinned_stats().allocated_bytes, 0);
}

#[test]
fn a_transfer_whose_end_cannot_be_recorded_is_waited_for() {
    let driver = FakeDriver::whole();
    driver.set(Setting::Deferred, 1);
    let device = Device::select("cuda:0").unwrap();
    let gpu = device.gpu().unwrap();
    let stream = gpu.stream().unwrap();
    let mut buffer = Buffer::<u8>::zeros(&device.scope("test"), 10).unwrap();
    let mut host = gpu.pinned::<u8>(10).unwrap();
    host.as_mut_slice().fill(3);
    driver.fail("cuEventRecord", 1, 719);
    assert!(buffer.upload(&stream, host).is_err());
    // The same block: nothing reads it any more.
    gpu.pinned::<u8>(10).unwrap().as_mut_slice().fill(4);
    assert_eq!(gpu.pinned_stats().locks_total, 1);
    assert!(buffer.to_vec().unwrap().iter().all(|&x| x == 3));
}

#[test]
fn what_is_sent_arrives_in_order_through_two_pieces_of_pinned_memory() {
    let driver = FakeDriver::whole();
    for device in devices(&driver) {
        let mut staging = Staging::default();
        let mut buffers: Vec<_> = (0..6).map(|_| Buffer::<u32>::zeros(&device.scope("test"), 9000).unwrap()).collect();
        let waits = driver.calls("cuEventSynchronize");
        for (k, buffer) in buffers.iter_mut().enumerate() {
            let mut values = vec![k as u32; 8999];
            staging.send(&values, buffer).unwrap();
            // They have been read, and whatever becomes of them changes nothing.
            values.fill(77);
        }
        staging.send(&[], &mut buffers[0]).unwrap();
        if let Some(gpu) = device.gpu() {
            assert_eq!(gpu.pinned_stats().locks_total, 2);
            assert_eq!(
                driver.calls("cuEventSynchronize") - waits,
                4,
                "copies are waited for by the second one after them"
            );
            assert_eq!(driver.calls("cuStreamSynchronize"), 0);
        }
        for (k, buffer) in buffers.iter().enumerate() {
            let values = buffer.to_vec().unwrap();
            assert_eq!((values[0], values[8998], values[8999]), (k as u32, k as u32, 0));
        }
    }
}

#[test]
fn what_is_fetched_is_what_was_there_and_what_comes_after_is_not_waited_for() {
    let driver = FakeDriver::whole();
    for device in devices(&driver) {
        let mut buffer = Buffer::from_slice(&device.scope("test"), &[1u32, 2, 3]).unwrap();
        let empty = Buffer::<u32>::zeros(&device.scope("test"), 0).unwrap().fetch().unwrap();
        let before = driver.calls("cuStreamSynchronize");
        let fetched = buffer.fetch().unwrap();
        buffer.set_zero().unwrap();
        assert_eq!(fetched.wait().unwrap(), [1, 2, 3]);
        assert!(empty.wait().unwrap().is_empty());
        assert_eq!(driver.calls("cuStreamSynchronize"), before);
        assert_eq!(buffer.to_vec().unwrap(), [0; 3]);
        // One that nobody waits for gives its pinned memory back.
        let _ = buffer.fetch().unwrap();
        assert!(device.gpu().is_none_or(|gpu| gpu.pinned_stats().allocated_bytes == 0));
    }
}

#[test]
fn handles_may_be_used_and_dropped_on_any_thread() {
    let driver = FakeDriver::whole();
    let device = Device::select("cuda:0").unwrap();
    let buffers: Vec<_> = std::thread::scope(|scope| {
        let work = |seed: u32| {
            let device = device.clone();
            scope.spawn(move || {
                let gpu = device.gpu().unwrap();
                let (stream, mut host) = (gpu.stream().unwrap(), gpu.pinned::<u32>(10_000).unwrap());
                let mut buffer = Buffer::zeros(&device.scope("thread"), 10_000).unwrap();
                host.as_mut_slice().fill(seed);
                buffer.upload(&stream, host).unwrap().wait().unwrap();
                (seed, buffer)
            })
        };
        let threads: Vec<_> = (0..8).map(work).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    for (seed, buffer) in buffers {
        assert!(buffer.to_vec().unwrap().iter().all(|&x| x == seed));
    }
    drop(device);
    assert_eq!((driver.contexts_retained(), driver.physical_bytes(), driver.live_objects()), (0, 0, 0));
}

proptest! {
    /// Buffers that come and go keep their contents, on a GPU whose work is as late as it may be.
    #[test]
    fn contents_stay(events in prop::collection::vec((0usize..600_000, any::<u8>(), any::<bool>()), 1..40)) {
        let driver = FakeDriver::whole();
        for device in devices(&driver) {
            let scope = device.scope("test");
            let mut live: Vec<(Vec<u8>, Buffer<u8>)> = Vec::new();
            for &(len, seed, free) in &events {
                if free && !live.is_empty() {
                    let (values, buffer) = live.swap_remove(len % live.len());
                    prop_assert_eq!(buffer.to_vec().unwrap(), values);
                } else {
                    let values: Vec<u8> = (0..len).map(|i| (i as u8).wrapping_mul(31) ^ seed).collect();
                    let buffer = Buffer::from_slice(&scope, &values).unwrap();
                    live.push((values, buffer));
                }
                device.step();
            }
            for (values, buffer) in live {
                prop_assert_eq!(buffer.to_vec().unwrap(), values);
            }
        }
    }
}
