//! What megabatch itself does on every GPU, in small, to see whether it works there: kernels, copies, its memory pool.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use megabatch_doctor::Trial;
use megabatch_gpu_core::cuda::Gpu;
use megabatch_gpu_core::{Buffer, Device, Error, Result, ops};

/// Bytes of a copy whose rate is taken; a quarter of what is free, if that is less.
const COPY_BYTES_MAX: usize = 64 << 20;
/// Blocks that the pool is asked for.
const BLOCKS: usize = 64;

/// Tries every GPU that the driver lists. None where there is no driver, which is for others to tell.
pub(crate) fn run() -> Vec<Trial> {
    let count = match Gpu::count() {
        Ok(count) => count,
        Err(Error::DriverAbsent { .. }) => return Vec::new(),
        Err(error) => return vec![failed("cuda", "asking the driver", &error)],
    };
    (0..count).flat_map(of_device).collect()
}

fn failed(device: &str, name: &str, error: &Error) -> Trial {
    Trial { device: device.to_owned(), name: name.to_owned(), result: None, fault: Some(error.to_string()) }
}

fn of_device(ordinal: u32) -> Vec<Trial> {
    let name = format!("cuda:{ordinal}");
    let device = match Device::cuda(ordinal) {
        Ok(device) => device,
        Err(error) => return vec![failed(&name, "opening", &error)],
    };
    let kernels = ops::conformance::CASES
        .iter()
        .map(|(case, run)| tried(&device, &format!("kernels: {case}"), || run(&device).map(|()| None)));
    let mut trials: Vec<Trial> = kernels.collect();
    trials.push(tried(&device, "memory pool: blocks keep their contents", || pool(&device).map(|()| None)));
    trials.push(tried(&device, "copies from pageable memory", || pageable(&device).map(Some)));
    trials.push(tried(&device, "copies from pinned memory", || pinned(&device).map(Some)));
    trials
}

/// Runs a trial; a panic is a fault, and its message is on the standard error.
fn tried(device: &Device, name: &str, run: impl FnOnce() -> Result<Option<String>>) -> Trial {
    let (result, fault) = match catch_unwind(AssertUnwindSafe(run)) {
        Ok(Ok(result)) => (result, None),
        Ok(Err(error)) => (None, Some(error.to_string())),
        Err(_) => (None, Some("it gave a wrong result".to_owned())),
    };
    Trial { device: device.to_string(), name: name.to_owned(), result, fault }
}

/// Blocks of many sizes, every other one given back and asked for anew, each holding what was written to it.
fn pool(device: &Device) -> Result<()> {
    let scope = device.scope("doctor");
    let block = |number: usize| Buffer::from_slice(&scope, &vec![number as u32; 1 + number * number * 97]);
    let mut blocks = (0..BLOCKS).map(block).collect::<Result<Vec<_>>>()?;
    for number in (0..BLOCKS).step_by(2) {
        blocks[number] = block(number)?;
    }
    for (number, block) in blocks.iter().enumerate() {
        assert!(block.to_vec()?.iter().all(|&word| word == number as u32), "block {number} was written to by another");
    }
    Ok(())
}

fn copy_bytes(device: &Device) -> usize {
    device.free_bytes().map_or(COPY_BYTES_MAX, |free| COPY_BYTES_MAX.min(free / 4)).max(1)
}

fn pageable(device: &Device) -> Result<String> {
    let host = vec![1_u8; copy_bytes(device)];
    let mut block = Buffer::<u8>::zeros(&device.scope("doctor"), host.len())?;
    rate(host.len(), || block.copy_from(&host))
}

fn pinned(device: &Device) -> Result<String> {
    let gpu = device.gpu().expect("the device is a GPU");
    let bytes = copy_bytes(device);
    let mut block = Buffer::<u8>::zeros(&device.scope("doctor"), bytes)?;
    let mut host = Some(gpu.pinned::<u8>(bytes)?);
    rate(bytes, || {
        let memory = host.take().expect("the copy before gave it back");
        host = Some(block.upload(&gpu.default_stream(), memory)?.wait()?);
        Ok(())
    })
}

/// The best of three copies after one that does not count.
fn rate(bytes: usize, mut copy: impl FnMut() -> Result<()>) -> Result<String> {
    copy()?;
    let mut seconds = f64::INFINITY;
    for _ in 0..3 {
        let start = Instant::now();
        copy()?;
        seconds = seconds.min(start.elapsed().as_secs_f64());
    }
    Ok(format!("{:.1} GB/s", bytes as f64 / seconds / 1e9))
}
