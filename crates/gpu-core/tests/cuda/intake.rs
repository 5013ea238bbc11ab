//! Values that come beside a GPU's work.

use megabatch_gpu_core::{Buffer, Device, DoubleBufferedUpload, Error};
use megabatch_simt::driver::Setting;

use super::captures::scale;
use super::kernels::with_kernels;

#[test]
fn values_come_while_the_gpu_works_on_those_before() {
    let (driver, device) = with_kernels();
    // Work is done when somebody waits for it, and no more of it than that takes.
    driver.set(Setting::Deferred, 1);
    let scope = device.scope("test");
    let mut intake = DoubleBufferedUpload::new(&scope).unwrap();
    let mut results: Vec<_> = (0..5).map(|_| Buffer::<f32>::zeros(&scope, 3).unwrap()).collect();
    let before = scope.usage().allocated_bytes;
    let (_, none) = (driver.launches(), driver.launches());
    for (k, result) in results.iter_mut().enumerate() {
        let mut values = [k as f32 + 1.0; 3];
        intake.take(&values).unwrap();
        // They have been read, and whatever becomes of them changes nothing.
        values.fill(77.0);
        // Each waits for the copy two before it. The fifth is the first to wait for one that had to
        // wait itself: for the work on the first values.
        assert_eq!(driver.launches() == none, k < 4, "{k}");
        scale(intake.values(), 2.0).unwrap();
        result.copy_from_buffer(intake.values()).unwrap();
    }
    assert_eq!(driver.calls("cuStreamSynchronize"), 0);
    for (k, result) in results.iter().enumerate() {
        assert_eq!(result.to_vec().unwrap(), [16.0 * (k as f32 + 1.0); 3]);
    }
    assert_eq!(device.gpu().unwrap().pinned_stats().locks_total, 2);
    assert_eq!(scope.usage().allocated_bytes - before, 2 * 3 * size_of::<f32>());
}

#[test]
fn both_buffers_grow_at_once() {
    let (_driver, device) = with_kernels();
    for device in [Device::cpu(), device] {
        let scope = device.scope("test");
        let mut intake = DoubleBufferedUpload::new(&scope).unwrap();
        for (values, capacity) in [(&[][..], 0), (&[1u32, 2], 2), (&[3, 4, 5], 3), (&[6], 3), (&[], 3)] {
            intake.take(values).unwrap();
            assert_eq!(intake.values().len(), capacity);
            assert_eq!(intake.values().to_vec().unwrap()[..values.len()], *values);
        }
        assert_eq!(scope.usage().allocated_bytes, 2 * 3 * size_of::<u32>());
    }
}

#[test]
fn a_copy_that_fails_is_told_and_leaves_nothing_behind() {
    let (driver, device) = with_kernels();
    for call in ["cuMemcpyHtoDAsync_v2", "cuEventRecord", "cuStreamWaitEvent"] {
        let mut intake = DoubleBufferedUpload::new(&device.scope("test")).unwrap();
        intake.take(&[1.0f32; 3]).unwrap();
        driver.fail(call, 1, 719);
        assert!(matches!(intake.take(&[2.0; 3]).unwrap_err(), Error::Driver { code: 719, .. }), "{call}");
        intake.take(&[3.0; 3]).unwrap();
        assert_eq!(intake.values().to_vec().unwrap(), [3.0; 3]);
    }
    drop(device);
    assert_eq!(driver.contexts_retained(), 0);
}

#[test]
fn values_in_page_locked_memory_take_no_detour() {
    let (driver, device) = with_kernels();
    driver.set(Setting::Deferred, 1);
    let host = Device::cpu();
    let locked = host.scope("batches").page_locked(&device);
    let mut values = Buffer::<f32>::zeros(&locked, 300).unwrap();
    assert_eq!(values.to_vec().unwrap(), [0.0; 300]);
    assert_eq!(host.usage().allocated_bytes, 300 * size_of::<f32>());
    let mut intake = DoubleBufferedUpload::new(&device.scope("test")).unwrap();
    for k in 0..5 {
        values.as_mut_slice().fill(k as f32);
        // A part of a buffer, too.
        intake.take(&values.as_slice()[k..200]).unwrap();
        // They have been read, and whatever becomes of them changes nothing.
        values.as_mut_slice().fill(77.0);
        assert_eq!(intake.values().to_vec().unwrap()[..200 - k], vec![k as f32; 200 - k]);
    }
    assert_eq!(device.gpu().unwrap().pinned_stats().locks_total, 0);
    // What lies elsewhere goes as before.
    intake.take(&[5.0; 3]).unwrap();
    assert_eq!(intake.values().to_vec().unwrap()[..3], [5.0; 3]);
    assert_eq!(device.gpu().unwrap().pinned_stats().locks_total, 1);
    drop(values);
    assert_eq!((driver.calls("cuMemFreeHost"), host.usage().allocated_bytes), (1, 0));
}

#[test]
fn a_system_that_locks_no_pages_gives_plain_memory() {
    let (driver, device) = with_kernels();
    let locked = Device::cpu().scope("batches").page_locked(&device);
    driver.fail("cuMemHostAlloc", 1, 2);
    let values = Buffer::from_slice(&locked, &[1.0f32; 3]).unwrap();
    let mut intake = DoubleBufferedUpload::new(&device.scope("test")).unwrap();
    intake.take(values.as_slice()).unwrap();
    assert_eq!(intake.values().to_vec().unwrap(), [1.0; 3]);
}
