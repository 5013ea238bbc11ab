//! Loading and launching kernels.

#![allow(unsafe_code, reason = "the driver is called")]

use megabatch_gpu_core::cuda::{Gpu, Grid};
use megabatch_gpu_core::{Buffer, Device, Error, arguments};
use megabatch_simt::driver::{FakeDriver, Setting};
use megabatch_simt::{Checks, CompileOptions, Kernels};

/// The signatures are all that the fake driver reads.
pub(super) const PTX: &str = "
.version 7.0
.target sm_80
.address_size 64
.visible .entry scale(
    .param .u64 scale_param_0,
    .param .f32 scale_param_1,
    .param .u32 scale_param_2
)
{ ret; }
.visible .entry shape(.param .u64 shape_param_0)
{ ret; }
.visible .entry meet(.param .u64 meet_param_0)
{ ret; }
.visible .entry broken()
{ ret; }
.visible .entry orphan()
{ ret; }
";

/// Source of `shape`; CUDA C++ does not tell a kernel how much dynamic shared memory it has. The
/// source of `scale` is scale.cu.
const SHAPE: &str = r#"
#include <cstddef>
extern "C" int simt_shape(const unsigned grid[3], const unsigned block[3], size_t shared, void** params) {
    unsigned* out = *static_cast<unsigned**>(params[0]);
    for (int i = 0; i < 3; ++i) {
        out[i] = grid[i];
        out[3 + i] = block[i];
    }
    out[6] = static_cast<unsigned>(shared);
    return 0;
}
extern "C" int simt_broken(const unsigned[3], const unsigned[3], size_t, void**) { return 1; }
"#;

pub(super) fn with_kernels() -> (FakeDriver, Device) {
    let driver = FakeDriver::whole();
    driver.add_kernel_source(SHAPE);
    let options = CompileOptions { checks: Checks::Barriers, ..CompileOptions::default() };
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cuda/scale.cu");
    driver.add_kernels(Kernels::compile_with(&[source], &options).unwrap().path());
    driver.set(Setting::Deferred, 1);
    (driver, Device::select("cuda:0").unwrap())
}

fn gpu(device: &Device) -> &Gpu {
    device.gpu().unwrap()
}

#[test]
fn a_kernel_runs_in_the_order_of_its_stream() {
    let (driver, device) = with_kernels();
    let module = gpu(&device).module("test", PTX).unwrap();
    let kernel = module.kernel("scale").unwrap();
    let stream = gpu(&device).stream().unwrap();
    let buffer = Buffer::from_slice(&device.scope("test"), &[1.0f32, 2.0, 3.0]).unwrap();
    for factor in [2.0f32, 5.0] {
        let arguments = arguments![buffer.address(), factor, buffer.len() as u32];
        // SAFETY: the kernel scales the buffer's elements, of which there are as many, and the
        // buffer lives until they are read.
        unsafe { kernel.launch(&stream, &Grid::new(2, 32), &arguments) }.unwrap();
    }
    assert_eq!(buffer.to_vec().unwrap(), [10.0, 20.0, 30.0]);
    assert_eq!(driver.calls("cuLaunchKernel"), 2);
    gpu(&device).module("test", PTX).unwrap();
    assert_eq!(driver.calls("cuModuleLoadDataEx"), 1, "a module is loaded once");
}

#[test]
fn a_file_of_the_kernel_folder_takes_the_place_of_what_is_compiled_in() {
    let (_driver, device) = with_kernels();
    let folder = tempfile::tempdir().unwrap();
    device.set_kernel_folder(Some(folder.path().to_owned()));
    // Without a file of its name a module is the compiled one.
    gpu(&device).module("crate/other", PTX).unwrap().kernel("scale").unwrap();
    let without_scale = PTX.replace("scale", "scale_by_another_name");
    std::fs::write(folder.path().join("test.ptx"), without_scale).unwrap();
    let replaced = gpu(&device).module("crate/test", PTX).unwrap();
    assert!(matches!(replaced.kernel("scale"), Err(Error::NoSuchKernel { .. })));
    device.set_kernel_folder(Some(folder.path().join("absent")));
    let error = gpu(&device).module("crate/third", PTX).unwrap_err();
    assert!(error.to_string().contains("third.ptx: cannot read the kernels"), "{error}");
    assert_eq!(error.to_string().matches("folder of .ptx files").count(), 1, "{error}");
}

#[test]
fn the_grid_arrives_and_more_shared_memory_is_asked_for() {
    let (driver, device) = with_kernels();
    let module = gpu(&device).module("test", PTX).unwrap();
    let kernel = module.kernel("shape").unwrap();
    let out = Buffer::<u32>::zeros(&device.scope("test"), 7).unwrap();
    for (shared_bytes, asked) in [(0, 0), (49_152, 0), (49_153, 1), (166_912, 2)] {
        let grid = Grid { blocks: [4, 3, 2], threads: [8, 4, 2], shared_bytes, ..Grid::new(1, 1) };
        // SAFETY: the kernel writes seven numbers, for which the buffer has room.
        unsafe { kernel.launch(&gpu(&device).default_stream(), &grid, &arguments![out.address()]) }.unwrap();
        assert_eq!(out.to_vec().unwrap(), [4, 3, 2, 8, 4, 2, shared_bytes]);
        assert_eq!(driver.calls("cuFuncSetAttribute"), asked);
    }
}

#[test]
fn arguments_that_do_not_fit_are_refused_by_name() {
    let (driver, device) = with_kernels();
    let module = gpu(&device).module("test", PTX).unwrap();
    let kernel = module.kernel("scale").unwrap();
    let (stream, address, len) = (gpu(&device).default_stream(), 0u64, 3usize);
    let cases = [
        (arguments![address, 2.0f32], "kernel `scale` has 3 parameters and was given 2 arguments"),
        (arguments![], "kernel `scale` has 3 parameters and was given 0 arguments"),
        (
            arguments![address, 2.0, 3u32],
            "kernel `scale`: parameter 1 has 4 bytes, and the argument `2.0` has 8; give the literal or the variable the parameter's type",
        ),
        (
            arguments![address, 2.0f32, len],
            "kernel `scale`: parameter 2 has 4 bytes, and the argument `len` has 8; give the literal or the variable the parameter's type",
        ),
    ];
    for (arguments, message) in cases {
        // SAFETY: nothing is launched.
        let error = unsafe { kernel.launch(&stream, &Grid::new(1, 1), &arguments) }.unwrap_err();
        assert_eq!(error.to_string(), message);
    }
    assert_eq!(driver.calls("cuLaunchKernel"), 0);
}

#[test]
fn grids_that_cannot_run_are_refused_with_the_limit() {
    let (driver, device) = with_kernels();
    let module = gpu(&device).module("test", PTX).unwrap();
    let kernel = module.kernel("shape").unwrap();
    let grid = Grid::new(1, 1);
    let cases = [
        (Grid { blocks: [0, 1, 1], ..grid }, "0 blocks in x: 1 to 2147483647"),
        (Grid { blocks: [1, 65_536, 1], ..grid }, "65536 blocks in y: 1 to 65535"),
        (Grid { threads: [1, 1, 65], ..grid }, "65 threads in z: 1 to 64"),
        (Grid { threads: [1025, 1, 1], ..grid }, "1025 threads in x: 1 to 1024"),
        (Grid { threads: [64, 17, 1], ..grid }, "1088 threads in a block: 1 to 1024"),
        (Grid { shared_bytes: 166_913, ..grid }, "166913 bytes of dynamic shared memory: 0 to 166912"),
    ];
    for (grid, limit) in cases {
        // SAFETY: nothing is launched.
        let launched = unsafe { kernel.launch(&gpu(&device).default_stream(), &grid, &arguments![0u64]) };
        let message = format!("kernel `shape` cannot be launched with {limit} are possible");
        assert_eq!(launched.unwrap_err().to_string(), message);
    }
    assert_eq!(driver.calls("cuLaunchKernel"), 0);
}

#[test]
fn a_kernel_has_the_threads_and_the_shared_memory_that_its_text_says() {
    let (_driver, device) = with_kernels();
    let bounds = ")\n.maxntid 64, 2, 1\n.minnctapersm 1\n{\n.shared .align 16 .b8 tile[1024];\nret; }";
    let ptx = format!(".version 7.0\n.target sm_80\n.visible .entry shape(.param .u64 shape_param_0{bounds}");
    let module = gpu(&device).module("bounded", &ptx).unwrap();
    let kernel = module.kernel("shape").unwrap();
    let cases = [
        (Grid::new(1, 129), "129 threads in a block: 1 to 128"),
        (Grid { shared_bytes: 165_889, ..Grid::new(1, 128) }, "165889 bytes of dynamic shared memory: 0 to 165888"),
    ];
    for (grid, limit) in cases {
        // SAFETY: nothing is launched.
        let launched = unsafe { kernel.launch(&gpu(&device).default_stream(), &grid, &arguments![0u64]) };
        let message = format!("kernel `shape` cannot be launched with {limit} are possible");
        assert_eq!(launched.unwrap_err().to_string(), message);
    }
}

#[test]
fn text_that_is_newer_than_the_driver_or_the_gpu_is_refused() {
    let (driver, device) = with_kernels();
    driver.set(Setting::DriverVersion, 11_000);
    for (head, expected) in [(".version 7.1\n.target sm_80\n", 222), (".version 7.0\n.target sm_90a\n", 209)] {
        let error = gpu(&device).module("new", head).unwrap_err();
        assert!(matches!(error, Error::Driver { code, .. } if code == expected), "{head}: {error:?}");
    }
    gpu(&device).module("old", ".version 7.0\n.target sm_80\n").unwrap();
}

#[test]
fn blocks_of_a_cooperative_launch_may_wait_for_each_other() {
    let (driver, device) = with_kernels();
    let module = gpu(&device).module("test", PTX).unwrap();
    let (kernel, stream) = (module.kernel("meet").unwrap(), gpu(&device).default_stream());
    // Four multiprocessors hold 2048 threads each.
    let grid = Grid { cooperative: true, ..Grid::new(32, 256) };
    assert_eq!(kernel.resident_blocks(&grid).unwrap(), 32);
    assert_eq!(kernel.resident_blocks(&Grid::new(1, 1024)).unwrap(), 8);
    let met = Buffer::<u32>::zeros(&device.scope("test"), 1).unwrap();
    // SAFETY: the kernel counts in one number, which lives until it is read.
    unsafe { kernel.launch(&stream, &grid, &arguments![met.address()]) }.unwrap();
    assert_eq!(met.to_vec().unwrap(), [32]);
    let calls = ["cuLaunchCooperativeKernel", "cuLaunchKernel"].map(|call| driver.calls(call));
    assert_eq!(calls, [1, 0]);

    let too_many = Grid { blocks: [3, 11, 1], ..grid };
    // SAFETY: nothing is launched.
    let refused = unsafe { kernel.launch(&stream, &too_many, &arguments![met.address()]) }.unwrap_err();
    let message = "kernel `meet` cannot be launched with 33 blocks that run at once: 1 to 32 are possible";
    assert_eq!(refused.to_string(), message);
    assert_eq!(driver.calls("cuLaunchCooperativeKernel"), 1);
    // SAFETY: as above; without a promise the first block waits in vain, and the driver says that
    // the kernel failed.
    unsafe { kernel.launch(&stream, &Grid::new(32, 256), &arguments![met.address()]) }.unwrap();
    assert!(matches!(met.to_vec(), Err(Error::Driver { code: 719, .. })));
}

#[test]
fn a_kernel_that_goes_wrong_is_told_by_whoever_waits() {
    let (_driver, device) = with_kernels();
    let module = gpu(&device).module("test", PTX).unwrap();
    let buffer = Buffer::<u8>::zeros(&device.scope("test"), 1).unwrap();
    // SAFETY: the kernel touches no memory.
    unsafe {
        module.kernel("broken").unwrap().launch(&gpu(&device).stream().unwrap(), &Grid::new(1, 1), &arguments![])
    }
    .unwrap();
    assert!(matches!(gpu(&device).synchronize(), Err(Error::Driver { call: "cuCtxSynchronize", code: 719, .. })));
    assert!(matches!(buffer.to_vec(), Err(Error::Driver { code: 719, .. })));
}

#[test]
fn what_the_driver_refuses_is_told_with_what_it_was_given() {
    let (driver, device) = with_kernels();
    let gpu = gpu(&device);
    let error = gpu.module("bad", "no PTX").unwrap_err();
    assert!(matches!(error, Error::Driver { call: "cuModuleLoadDataEx", code: 218, .. }), "{error:?}");
    let with_log =
        "cuda:0: cuModuleLoadDataEx(bad, 6 bytes of PTX; ptxas fatal : as the fake driver reads it) failed: ";
    assert!(error.to_string().starts_with(with_log), "{error}");
    let module = gpu.module("test", PTX).unwrap();
    for absent in ["missing", "orphan"] {
        let error = module.kernel(absent).unwrap_err().to_string();
        assert_eq!(error, format!("module test has no kernel `{absent}`; check the name, and that it is extern \"C\""));
    }
    driver.fail("cuLaunchKernel", 1, 719);
    let kernel = module.kernel("shape").unwrap();
    // SAFETY: nothing is launched.
    let launched = unsafe { kernel.launch(&gpu.default_stream(), &Grid::new(2, 32), &arguments![0u64]) };
    assert_eq!(
        launched.unwrap_err().to_string(),
        "cuda:0: cuLaunchKernel(shape, blocks [2, 1, 1], threads [32, 1, 1], 0 bytes shared, stream 0) failed: CUDA_ERROR_LAUNCH_FAILED (719), as the fake driver was told"
    );
}
