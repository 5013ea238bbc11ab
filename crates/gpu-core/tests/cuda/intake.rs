//! Values that come beside a GPU's work.

use megabatch_gpu_core::{Buffer, Captures, Device, DoubleBufferedUpload, Error, VacantTables};
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

#[test]
fn tables_are_filled_by_another_thread_after_the_work_on_them() {
    let (driver, device) = with_kernels();
    driver.set(Setting::Deferred, 1);
    for device in [Device::cpu(), device] {
        let scope = device.scope("test");
        let locked = Device::cpu().scope("chunks").page_locked(&device);
        let mut values = Buffer::<f32>::zeros(&locked, 3).unwrap();
        let mut vacant = VacantTables::new(&scope, &[2, 3]).unwrap();
        assert_eq!(scope.usage().allocated_bytes, 5 * size_of::<f32>());
        let mut copy = Buffer::<f32>::zeros(&scope, 3).unwrap();
        for k in 0..4 {
            let number = k as f32;
            let values = &mut values;
            let filled = std::thread::scope(|threads| {
                let filling = threads.spawn(move || {
                    values.as_mut_slice().fill(number);
                    vacant.fill(1, values.as_slice()).unwrap();
                    // From memory that is not page-locked.
                    vacant.fill(0, &[number + 0.5]).unwrap();
                    vacant.fill(0, &[]).unwrap();
                    vacant.into_filled()
                });
                filling.join().unwrap()
            });
            assert_eq!(filled.table(0).to_vec().unwrap(), [number + 0.5, 0.0]);
            // Work on them that was submitted and is not done yet.
            copy.copy_from_buffer(filled.table(1)).unwrap();
            vacant = filled.release().unwrap();
            vacant.fill(1, &[77.0; 3]).unwrap();
            assert_eq!(copy.to_vec().unwrap(), [number; 3]);
        }
    }
}

#[test]
fn captures_are_not_cut_where_tables_are_filled() {
    let (driver, device) = with_kernels();
    let (mut captures, scope) = (Captures::default(), device.scope("test"));
    let numbers = Buffer::from_slice(&scope, &[1.0f32; 3]).unwrap();
    let mut vacant = VacantTables::new(&scope, &[3]).unwrap();
    for _ in 0..3 {
        captures
            .run(&device, || {
                scale(&numbers, 2.0)?;
                std::thread::scope(|threads| threads.spawn(|| vacant.fill(0, &[5.0f32; 3])).join().unwrap())?;
                scale(&numbers, 0.5)
            })
            .unwrap();
    }
    assert_eq!((captures.made(), driver.calls("cuGraphLaunch")), (1, 2));
    assert_eq!(numbers.to_vec().unwrap(), [1.0; 3]);
    assert_eq!(vacant.into_filled().table(0).to_vec().unwrap(), [5.0; 3]);
}

#[test]
fn a_table_that_cannot_be_filled_is_told() {
    let (driver, device) = with_kernels();
    for call in ["cuStreamWaitEvent", "cuMemcpyHtoDAsync_v2", "cuEventRecord", "cuEventSynchronize"] {
        let mut vacant = VacantTables::new(&device.scope("test"), &[3]).unwrap();
        driver.fail(call, 1, 719);
        assert!(matches!(vacant.fill(0, &[2.0f32; 3]).unwrap_err(), Error::Driver { code: 719, .. }), "{call}");
        vacant.fill(0, &[3.0; 3]).unwrap();
        assert_eq!(vacant.into_filled().table(0).to_vec().unwrap(), [3.0; 3]);
    }
    drop(device);
    assert_eq!(driver.contexts_retained(), 0);
}
