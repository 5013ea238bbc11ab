//! Chunks on their way to a GPU, on a fake driver that does its work as late as it may.
#![cfg(target_os = "linux")]

use megabatch_chunk_io::{DeviceTable, HostChunk, Uploader, gather_windows, swap_bytes};
use megabatch_gpu_core::{Buffer, Device, Error};
use megabatch_simt::Harness;
use megabatch_simt::driver::FakeDriver;

static HARNESS: Harness = Harness::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src/upload"), &["byte_swap", "gather"]);

fn driver_and_device() -> (FakeDriver, Device) {
    (HARNESS.driver(), Device::select("cuda:0").unwrap())
}

fn numbers(len: usize, seed: u32) -> Vec<f32> {
    (0..len as u32).map(|k| (k.wrapping_mul(2_654_435_761) ^ seed) as f32).collect()
}

/// What is in the table, once it has arrived.
fn arrived(table: &DeviceTable<'_>) -> Vec<f32> {
    let mut values = table.buffer().unwrap().to_vec().unwrap();
    values.truncate(table.len());
    values
}

#[test]
fn a_chunk_arrives_as_it_was_whatever_the_host_does_to_its_memory() {
    let (_driver, device) = driver_and_device();
    let mut uploader = Uploader::new(&device.scope("chunk")).unwrap();
    // Around one piece of 2^20 numbers, and more than both.
    for len in [0, 1, 1000, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, 5 << 19] {
        let (expected, targets) = (numbers(len, 1), numbers(7, 2));
        let mut host = expected.clone();
        let chunk = uploader.upload(&HostChunk { features: vec![&host.clone(), &[4.0]], targets: &targets }).map(drop);
        chunk.unwrap();
        let chunk = uploader.upload(&HostChunk { features: vec![&host, &[4.0]], targets: &targets }).unwrap();
        let found = (arrived(&chunk.features()[0]), arrived(&chunk.features()[1]), arrived(chunk.targets()));
        assert!(found == (expected, vec![4.0], targets.clone()), "{len}");
        drop(chunk);
        host.fill(0.0);
    }
    assert!(device.gpu().unwrap().pinned_stats().allocated_bytes <= 2 * (4 << 20), "two pieces are under way");
}

#[test]
fn a_stream_is_ordered_behind_the_arrival() {
    let (_driver, device) = driver_and_device();
    let gpu = device.gpu().unwrap();
    let mut uploader = Uploader::new(&device.scope("chunk")).unwrap();
    let features = numbers(3000, 3);
    let chunk = uploader.upload(&HostChunk { features: vec![&features], targets: &[] }).unwrap();
    let buffer = chunk.features()[0].buffer().unwrap();
    let (unordered, ordered) = (gpu.stream().unwrap(), gpu.stream().unwrap());
    chunk.order_before(&ordered).unwrap();
    let early = buffer.download(&unordered, gpu.pinned(3000).unwrap()).unwrap().wait().unwrap();
    assert_ne!(early.as_slice(), features, "the driver does no more than the order demands");
    let late = buffer.download(&ordered, gpu.pinned(3000).unwrap()).unwrap().wait().unwrap();
    assert_eq!(late.as_slice(), features);
}

#[test]
fn memory_is_filled_again_after_what_read_it() {
    let (_driver, device) = driver_and_device();
    let gpu = device.gpu().unwrap();
    let mut uploader = Uploader::new(&device.scope("chunk")).unwrap();
    let (first, second) = (numbers(3000, 4), numbers(2000, 5));
    let chunk = uploader.upload(&HostChunk { features: vec![&first], targets: &[] }).unwrap();
    let (compute, address) = (gpu.stream().unwrap(), chunk.features()[0].buffer().unwrap().address());
    chunk.order_before(&compute).unwrap();
    let reading = chunk.features()[0].buffer().unwrap().download(&compute, gpu.pinned(3000).unwrap()).unwrap();
    uploader.recycle_after(chunk, &compute).unwrap();

    let next = uploader.upload(&HostChunk { features: vec![&second], targets: &[] }).unwrap();
    assert_eq!(next.features()[0].buffer().unwrap().address(), address, "the memory is used again");
    next.wait().unwrap();
    assert_eq!(arrived(&next.features()[0]), second);
    assert_eq!(reading.wait().unwrap().as_slice(), first);
}

#[test]
fn chunks_that_are_given_back_take_no_more_memory() {
    let (_driver, device) = driver_and_device();
    let scope = device.scope("chunk");
    let mut uploader = Uploader::new(&scope).unwrap();
    let (features, targets) = (numbers(100_000, 6), numbers(3600, 7));
    for samples in [100, 100, 100, 70, 100] {
        let host = HostChunk { features: vec![&features[..samples * 1000]], targets: &targets[..samples * 36] };
        let chunk = uploader.upload(&host).unwrap();
        assert_eq!(chunk.features()[0].len(), samples * 1000);
        uploader.recycle(chunk);
    }
    assert_eq!(scope.usage().allocated_bytes_peak, (100_000 + 3600) * 4);
}

#[test]
fn a_failed_copy_is_the_uploads_error_and_the_next_one_works() {
    let (driver, device) = driver_and_device();
    let scope = device.scope("chunk");
    let mut uploader = Uploader::new(&scope).unwrap();
    let features = numbers(100, 8);
    let host = HostChunk { features: vec![&features], targets: &[] };
    driver.fail("cuMemcpyHtoDAsync_v2", 1, 700);
    let error = uploader.upload(&host).unwrap_err();
    assert!(matches!(error, Error::Driver { code: 700, .. }), "{error:?}");
    assert_eq!(scope.usage().allocated_bytes, 0);
    assert_eq!(arrived(&uploader.upload(&host).unwrap().features()[0]), features);
}

#[test]
fn operations_give_what_they_give_on_the_cpu() {
    let (_driver, gpu) = driver_and_device();
    let results = [Device::cpu(), gpu].map(|device| {
        let scope = device.scope("test");
        let mut series = Buffer::from_slice(&scope, &numbers(60, 9)).unwrap();
        let ends = Buffer::from_slice(&scope, &[2i64, 14, 1, 15]).unwrap();
        let mut windows = Buffer::zeros(&scope, 4 * 3 * 4).unwrap();
        swap_bytes(&mut series).unwrap();
        gather_windows(&series, 4, &ends, &mut windows).unwrap();
        windows.to_vec().unwrap().into_iter().map(f32::to_bits).collect::<Vec<u32>>()
    });
    assert_eq!(results[0], results[1]);
}
