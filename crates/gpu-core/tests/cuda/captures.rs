//! Work that comes again, captured and replayed.

#![allow(unsafe_code, reason = "the driver is called")]

use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};

use cust::sys::{self, CUresult, CUstreamCaptureMode};
use megabatch_gpu_core::kernel::{Kernel, Launch};
use megabatch_gpu_core::{Buffer, Captures, Device, Error, Result, arguments};
use megabatch_simt::driver::{FakeDriver, Setting};

use super::kernels::{PTX, with_kernels};

/// Launches of [`scale`].
const LAUNCHES: usize = 4;

/// Multiplies every number by `factor` to the fourth power.
pub(super) fn scale(numbers: &Buffer<f32>, factor: f32) -> Result<()> {
    let Device::Cuda(cuda) = numbers.scope().device() else { unreachable!("a GPU's") };
    let kernel = Kernel { module: "test", ptx: PTX, name: "scale" };
    let arguments = arguments![numbers.address(), factor, numbers.len() as u32];
    (0..LAUNCHES).try_for_each(|_| {
        let launch = Launch::for_blocks(1).map(|launch| launch.with_threads(32));
        // SAFETY: the kernel scales the buffer's numbers, of which there are as many; what comes
        // later on the default stream runs after it.
        unsafe { kernel.submit(cuda, launch, &arguments) }
    })
}

fn ones(device: &Device) -> Buffer<f32> {
    Buffer::from_slice(&device.scope("test"), &[1.0; 3]).unwrap()
}

/// Kernels that were launched one by one, graphs, and instantiations of graphs.
fn calls(driver: &FakeDriver) -> [u64; 3] {
    ["cuLaunchKernel", "cuGraphLaunch", "cuGraphInstantiateWithFlags"].map(|call| driver.calls(call))
}

#[test]
fn what_comes_again_is_captured_and_then_one_call() {
    let (driver, device) = with_kernels();
    let (mut captures, mut numbers, other) = (Captures::default(), ones(&device), ones(&device));
    let mut step = || {
        captures.run(&device, || {
            numbers.set_zero()?;
            numbers.copy_from_buffer(&other)?;
            scale(&numbers, 2.0)
        })?;
        numbers.to_vec()
    };
    let launches = LAUNCHES as u64;
    // As it is; into the graph; from there.
    for expected in [[launches, 0, 0], [2 * launches, 1, 1], [2 * launches, 2, 1], [2 * launches, 3, 1]] {
        assert_eq!(step().unwrap(), [16.0; 3]);
        assert_eq!(calls(&driver), expected);
    }
    assert_eq!([driver.calls("cuMemcpyDtoDAsync_v2"), driver.calls("cuModuleGetFunction")], [2, 1]);
}

/// Work that came between the last submission of a deferral and its end was lost.
#[test]
fn what_another_thread_defers_is_done() {
    let (_driver, device) = with_kernels();
    let (ours, theirs) = (ones(&device), ones(&device));
    let is_done = AtomicBool::new(false);
    std::thread::scope(|threads| {
        threads.spawn(|| {
            let mut captures = Captures::default();
            while !is_done.load(Ordering::Relaxed) {
                captures.run(&device, || scale(&ours, 1.0)).unwrap();
            }
        });
        for _ in 0..1000 {
            for (factor, expected) in [(2.0, 16.0), (0.5, 1.0)] {
                scale(&theirs, factor).unwrap();
                assert_eq!(theirs.to_vec().unwrap(), [expected; 3]);
            }
        }
        is_done.store(true, Ordering::Relaxed);
    });
}

#[test]
fn other_numbers_and_other_memory_are_other_work() {
    let (driver, device) = with_kernels();
    let (mut captures, buffers) = (Captures::default(), [ones(&device), ones(&device)]);
    for _ in 0..3 {
        for (buffer, factor) in [(&buffers[0], 2.0), (&buffers[1], 2.0), (&buffers[0], 0.5)] {
            captures.run(&device, || scale(buffer, factor)).unwrap();
        }
    }
    assert_eq!(calls(&driver)[1..], [6, 3]);
    assert_eq!(buffers[0].to_vec().unwrap(), [1.0; 3]);
    assert_eq!(buffers[1].to_vec().unwrap(), [4096.0; 3]);
    // Fewer launches than are worth a graph.
    for _ in 0..3 {
        captures.run(&device, || ones(&device).set_zero()).unwrap();
    }
    assert_eq!(calls(&driver)[1..], [6, 3]);
}

#[test]
fn what_is_measured_is_submitted_as_it_is() {
    let (driver, device) = with_kernels();
    let Device::Cuda(cuda) = &device else { unreachable!("a GPU's") };
    let (mut captures, numbers) = (Captures::default(), ones(&device));
    driver.takes("scale", 250);
    for _ in 0..3 {
        captures
            .run(&device, || {
                scale(&numbers, 2.0)?;
                // What was held back before is not measured.
                assert_eq!(cuda.elapsed_ms(|| scale(&numbers, 0.5))?, 0.25 * LAUNCHES as f32);
                Ok::<_, Error>(())
            })
            .unwrap();
    }
    // What is measured three times, and what is not once as it is and once into the graph.
    assert_eq!(calls(&driver), [5 * LAUNCHES as u64, 2, 1]);
    assert_eq!(numbers.to_vec().unwrap(), [1.0; 3]);
    assert_eq!(cuda.identity(), "Fake GPU 0, compute capability 8.0, CUDA 12.4");
}

#[test]
fn what_is_submitted_is_timed_whether_captured_or_not() {
    let (driver, device) = with_kernels();
    let (mut captures, numbers) = (Captures::default(), ones(&device));
    driver.takes("scale", 250);
    captures.time_work(&device).unwrap();
    // Submitted as it is, captured, replayed.
    for made in [0, 1, 1] {
        captures.run(&device, || scale(&numbers, 2.0)).unwrap();
        device.gpu().unwrap().synchronize().unwrap();
        let busy_s = captures.take_busy_s(&device).unwrap();
        assert!((busy_s - 0.25e-3 * LAUNCHES as f64).abs() < 1e-9, "{busy_s}");
        assert_eq!(captures.made(), made);
    }
    assert_eq!(captures.take_busy_s(&device).unwrap(), 0.0);
}

#[test]
fn what_is_held_back_is_done_before_anybody_could_tell() {
    let (driver, device) = with_kernels();
    let (mut captures, mut numbers) = (Captures::default(), ones(&device));
    let (gpu, stream) = (device.gpu().unwrap(), device.gpu().unwrap().stream().unwrap());
    for _ in 0..3 {
        captures
            .run(&device, || {
                numbers.copy_from(&[1.0; 3])?;
                scale(&numbers, 2.0)?;
                assert_eq!(numbers.to_vec()?, [16.0; 3], "a copy to the host");
                scale(&numbers, 2.0)?;
                assert_eq!(numbers.download(&stream, gpu.pinned(3)?)?.wait()?.as_slice(), [256.0; 3], "another stream");
                let freed = Buffer::from_slice(numbers.scope(), &[1.0f32; 3])?;
                scale(&freed, 2.0)?;
                let address = freed.address();
                drop(freed);
                // By another thread, for which nothing was submitted yet.
                let scope = numbers.scope().clone();
                let reused = std::thread::spawn(move || Buffer::from_slice(&scope, &[5.0f32; 3])).join().unwrap()?;
                assert_eq!((reused.address(), reused.to_vec()?), (address, vec![5.0; 3]), "memory that is used again");
                scale(&numbers, 0.5)
            })
            .unwrap();
        assert_eq!(numbers.to_vec().unwrap(), [16.0; 3]);
    }
    assert_eq!(calls(&driver)[2], 3, "each stretch between two of these is captured: one is the same as another");
}

#[test]
fn what_follows_a_cut_is_replayed_beside_other_work() {
    let (driver, device) = with_kernels();
    let (mut captures, numbers) = (Captures::default(), ones(&device));
    for factor in [2.0, 3.0, 4.0, 5.0] {
        captures
            .run(&device, || {
                scale(&numbers, factor)?;
                Captures::cut(&device)?;
                scale(&numbers, 0.5)
            })
            .unwrap();
    }
    let launches = LAUNCHES as u64;
    // Four times as it is, and of what comes again once as it is and once into the graph.
    assert_eq!(calls(&driver), [6 * launches, 3, 1]);
    assert_eq!(numbers.to_vec().unwrap(), [7.5f32.powi(4); 3]);
    Captures::cut(&Device::cpu()).unwrap();
}

#[test]
fn a_driver_that_cannot_capture_is_not_asked_again() {
    for call in
        ["cuStreamCreateWithPriority", "cuStreamBeginCapture_v2", "cuStreamEndCapture", "cuGraphInstantiateWithFlags"]
    {
        let (driver, device) = with_kernels();
        let (mut captures, numbers) = (Captures::default(), ones(&device));
        // CUDA_ERROR_NOT_SUPPORTED.
        driver.fail(call, 1, 801);
        for _ in 0..4 {
            captures.run(&device, || scale(&numbers, 2.0)).unwrap();
        }
        assert_eq!(numbers.to_vec().unwrap(), [65536.0; 3], "{call}");
        assert_eq!((calls(&driver)[1], driver.calls(call), captures.made()), (0, 1, 0));
    }
    // A launch that has no place in a graph.
    let (driver, device) = with_kernels();
    let (mut captures, numbers) = (Captures::default(), ones(&device));
    driver.fail("cuLaunchKernel", LAUNCHES as u64 + 2, 900);
    for _ in 0..4 {
        captures.run(&device, || scale(&numbers, 2.0)).unwrap();
    }
    assert_eq!(numbers.to_vec().unwrap(), [65536.0; 3]);
    assert_eq!((calls(&driver)[1], captures.made()), (0, 0));
    drop((captures, numbers, device));
    assert_eq!(driver.live_objects(), 0);
}

#[test]
fn a_few_captures_are_kept_and_the_oldest_one_changed() {
    let (driver, device) = with_kernels();
    let (mut captures, numbers) = (Captures::default(), ones(&device));
    let mut run = |factor: f32| captures.run(&device, || scale(&numbers, factor)).unwrap();
    for factor in (0..16).map(|k| 1.0 + k as f32) {
        (0..2).for_each(|_| run(factor));
    }
    assert_eq!(calls(&driver)[1..], [16, 16]);
    // The first is used again, so that the second one is the oldest; then one that the driver does
    // not change.
    run(1.0);
    (0..2).for_each(|_| run(100.0));
    assert_eq!((calls(&driver)[2], driver.calls("cuGraphExecUpdate")), (16, 1));
    driver.fail("cuGraphExecUpdate", 1, 910);
    (0..2).for_each(|_| run(200.0));
    assert_eq!((calls(&driver)[2], driver.calls("cuGraphExecUpdate")), (17, 2));
    let before = calls(&driver);
    [1.0, 100.0, 200.0, 4.0].into_iter().for_each(&mut run);
    assert_eq!([calls(&driver)[0], calls(&driver)[1] - before[1]], [before[0], 4], "all of them are kept");
    run(2.0);
    assert_eq!(calls(&driver)[0], before[0] + LAUNCHES as u64, "and this one went");
    numbers.to_vec().unwrap();
    drop((captures, numbers, device));
    assert_eq!((driver.live_objects(), driver.contexts_retained()), (0, 0));
}

#[test]
fn what_cannot_be_submitted_is_told_once() {
    let (driver, device) = with_kernels();
    let (mut captures, numbers) = (Captures::default(), ones(&device));
    for (call, after) in [("cuLaunchKernel", 0), ("cuGraphLaunch", 2)] {
        (0..after).for_each(|_| captures.run(&device, || scale(&numbers, 2.0)).unwrap());
        driver.fail(call, 1, 719);
        let error = captures.run(&device, || scale(&numbers, 2.0)).unwrap_err();
        assert!(matches!(error, Error::Driver { call: failed, code: 719, .. } if failed == call), "{error}");
        captures.run(&device, || scale(&numbers, 2.0)).unwrap();
    }
    // Where what needed it done says nothing of a failure.
    driver.fail("cuGraphLaunch", 1, 719);
    let gone = captures.run(&device, || scale(&numbers, 2.0).map(|()| device.free_bytes()));
    assert!(matches!(gone, Err(Error::Driver { call: "cuGraphLaunch", .. })), "{gone:?}");
    // Where something else of the run needed it done.
    driver.fail("cuGraphLaunch", 1, 719);
    let read = captures.run(&device, || scale(&numbers, 2.0).and_then(|()| numbers.to_vec()));
    assert!(matches!(read, Err(Error::Driver { call: "cuGraphLaunch", .. })), "{read:?}");
}

#[test]
fn one_run_within_another_is_a_part_of_it() {
    let (driver, device) = with_kernels();
    let (mut outer, mut inner, numbers) = (Captures::default(), Captures::default(), ones(&device));
    for _ in 0..3 {
        let both = outer.run(&device, || {
            scale(&numbers, 2.0)?;
            inner.run(&device, || scale(&numbers, 0.5))
        });
        both.unwrap();
    }
    assert_eq!(calls(&driver)[1..], [2, 1]);
    assert_eq!(numbers.to_vec().unwrap(), [1.0; 3]);
    // The CPU has nothing to capture.
    assert_eq!(outer.run(&Device::cpu(), || Ok::<_, Error>(7)).unwrap(), 7);
}

/// Commands that the driver refuses in a capture, so that the tests above show that none of them is
/// submitted.
#[test]
fn the_fake_driver_refuses_what_has_no_place_in_a_capture() {
    let (driver, device) = with_kernels();
    driver.set(Setting::Deferred, 0);
    let refused = |capturing: sys::CUstream, what: &dyn Fn() -> CUresult, expected: CUresult| {
        let mut graph = ptr::null_mut();
        // SAFETY: the stream is live, and the graph a variable of this function.
        unsafe {
            let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
            assert_eq!(sys::cuStreamBeginCapture_v2(capturing, mode), CUresult::CUDA_SUCCESS);
            assert_eq!(what(), expected);
            let ended = sys::cuStreamEndCapture(capturing, &raw mut graph);
            let spoiled = expected != CUresult::CUDA_SUCCESS;
            assert_eq!(ended == CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, spoiled);
        }
    };
    let (numbers, mut memory) = (ones(&device), ptr::null_mut());
    let memory = &raw mut memory;
    for (flags, null_stream) in [(0, CUresult::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT), (1, CUresult::CUDA_SUCCESS)] {
        let mut stream = ptr::null_mut();
        // SAFETY: the stream is a variable of this function.
        assert_eq!(unsafe { sys::cuStreamCreateWithPriority(&raw mut stream, flags, 0) }, CUresult::CUDA_SUCCESS);
        let unsupported = CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        // SAFETY: of all that follow: the stream is live, the memory a variable of this function,
        // the addresses those of a buffer.
        unsafe {
            refused(stream, &|| sys::cuStreamSynchronize(stream), unsupported);
            refused(stream, &|| sys::cuStreamQuery(stream), unsupported);
            refused(stream, &|| sys::cuCtxSynchronize(), unsupported);
            refused(stream, &|| sys::cuMemHostAlloc(memory, 4096, 0), unsupported);
            refused(stream, &|| sys::cuMemsetD8Async(numbers.address(), 0, 12, ptr::null_mut()), null_stream);
            refused(stream, &|| sys::cuMemsetD8Async(numbers.address(), 0, 12, stream), CUresult::CUDA_SUCCESS);
        }
        let expected = if flags == 0 { [1.0; 3] } else { [0.0; 3] };
        assert_eq!(numbers.to_vec().unwrap(), expected, "a capture runs nothing");
    }
}
