//! Each feature of the harness, by a kernel of `kernels/features.cu`.

#![allow(unsafe_code, reason = "kernels and driver are loaded libraries")]

use std::sync::LazyLock;

use megabatch_simt::{Arg, CompileOptions, Geometry, Kernels};

static KERNELS: LazyLock<Kernels> =
    LazyLock::new(|| Kernels::compile(&[SOURCE]).unwrap_or_else(|error| panic!("{error}")));

const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/kernels/features.cu");

fn launch(kernel: &str, geometry: Geometry, arguments: &mut [Arg<'_>]) {
    KERNELS.launch(kernel, geometry, arguments).unwrap_or_else(|error| panic!("{error}"));
}

fn one_warp() -> Geometry {
    Geometry::linear(1, 32)
}

#[test]
fn every_thread_of_every_block_knows_where_it_is() {
    let geometry = Geometry { grid: [3, 2, 2], block: [5, 3, 2], ..Geometry::linear(1, 1) };
    let mut out = vec![0u32; 12 * 30];
    launch("coordinates", geometry, &mut [Arg::from(&mut out[..])]);
    for (k, &packed) in out.iter().enumerate() {
        let (block, thread) = (k / 30, k % 30);
        let (x, y, z) = (thread % 5, thread / 5 % 3, thread / 15);
        assert_eq!(packed as usize, block << 16 | z << 12 | y << 8 | x);
    }
}

#[test]
fn static_shared_memory_and_barriers_sum_a_block() {
    let x: Vec<f32> = (0..1000).map(|k| k as f32).collect();
    let mut out = [0.0f32; 3];
    launch(
        "block_sum",
        Geometry::linear(3, 256),
        &mut [Arg::from(&x[..]), Arg::from(&mut out[..]), Arg::from(1000u32)],
    );
    assert_eq!(out.iter().sum::<f32>(), 499_500.0);
}

#[test]
fn dynamic_shared_memory_has_the_size_of_the_launch() {
    let mut x: Vec<i32> = (0..77).collect();
    let geometry = Geometry { dynamic_shared_bytes: 77 * 4, ..Geometry::linear(1, 77) };
    launch("reverse_dynamic", geometry, &mut [Arg::from(&mut x[..])]);
    assert_eq!(x, (0..77).rev().collect::<Vec<i32>>());
}

#[test]
fn blocks_of_a_cooperative_launch_wait_for_each_other() {
    let (blocks, rounds) = (5, 7);
    let mut arrived = [1u32; 5];
    let mut numbers = [0u32; 5 * 8];
    let mut arguments = [Arg::from(&mut arrived[..]), Arg::from(&mut numbers[..]), Arg::from(rounds)];
    launch("relay", Geometry::linear(blocks, 32).cooperative(), &mut arguments);
    // What a block has after the last round was handed on by the seven up to it, itself included.
    let expected = |block: u32| (0..rounds).map(|back| (block + 2 * blocks - back) % blocks).sum::<u32>();
    assert_eq!(numbers[35..], [0, 1, 2, 3, 4].map(expected));
    assert_eq!(arrived, [rounds + 1; 5]);
}

#[test]
fn groups_of_a_warp_go_their_own_way() {
    let mut out = [0i32; 32];
    launch("half_warps", one_warp(), &mut [Arg::from(&mut out[..])]);
    for (lane, &value) in out.iter().enumerate() {
        let (start, rounds) = if lane < 16 { (0, 1) } else { (16, 3) };
        assert_eq!(value as usize, start + (lane - start + rounds) % 16, "lane {lane}");
    }
}

#[test]
fn shuffles_move_values_within_segments() {
    for width in [32, 16, 8, 4] {
        let mut out = [0i32; 128];
        launch("shuffles", one_warp(), &mut [Arg::from(&mut out[..]), Arg::from(width)]);
        for lane in 0..32 {
            let segment = lane / width * width;
            let expected = [
                segment + 3 % width,
                if lane - segment >= 2 { lane - 2 } else { lane },
                if lane - segment + 2 < width { lane + 2 } else { lane },
                if lane ^ 9 < segment + width { lane ^ 9 } else { lane },
            ];
            let found = [0, 32, 64, 96].map(|start| out[start + lane as usize]);
            assert_eq!(found, expected, "lane {lane} of segments of {width}");
        }
    }
    let mut doubles: Vec<f64> = (0..32).map(|k| f64::from(k) + 1e-12).collect();
    let reversed: Vec<f64> = doubles.iter().rev().copied().collect();
    launch("wide_shuffle", one_warp(), &mut [Arg::from(&mut doubles[..])]);
    assert_eq!(doubles, reversed);
}

#[test]
fn a_gather_hands_every_lane_the_values_of_all() {
    let mut out = [0u32; 32 * 3];
    launch("gathers", one_warp(), &mut [Arg::from(&mut out[..])]);
    for (lane, own) in (0u32..).zip(out.chunks(3)) {
        let next = (lane + 2) % 32;
        assert_eq!(own, [next, 100 * next + 2, u32::MAX], "lane {lane}");
    }
}

#[test]
fn votes_tell_every_lane_of_all() {
    let x: Vec<i32> = (0..32).map(|k| k % 3).collect();
    let mut out = [0u32; 32 * 7];
    launch("votes", one_warp(), &mut [Arg::from(&x[..]), Arg::from(&mut out[..])]);
    let lanes = |keep: &dyn Fn(i32) -> bool| (0..32).fold(0, |mask, k| mask | u32::from(keep(x[k])) << k);
    for (lane, own) in out.chunks(7).enumerate() {
        assert_eq!(own[..3], [lanes(&|v| v > 0), 0, 1]);
        assert_eq!(own[3], lanes(&|v| v == x[lane]), "lane {lane}");
        assert_eq!(own[4..], [u32::MAX, 1, 1 << lane]);
    }
}

#[test]
fn votes_of_a_block_count_all_its_threads() {
    let x: Vec<i32> = (0..70).collect();
    let mut out = [0i32; 3];
    launch("block_votes", Geometry::linear(1, 70), &mut [Arg::from(&x[..]), Arg::from(&mut out[..])]);
    assert_eq!(out, [69, 1, 0]);
}

#[test]
fn threads_that_ended_are_not_waited_for() {
    let mut out = [0i32; 64];
    launch("early_exit", Geometry::linear(1, 64), &mut [Arg::from(&mut out[..])]);
    assert_eq!((out[0], out[19], out[20], out[32], out[51]), (190, 190, 0, 190 + 32 * 20, 190 + 32 * 20));
}

#[test]
fn atomics_add_up() {
    let (mut i, mut u) = ([0i32, 0, 0, 0], [0u32; 4]);
    let (mut l, mut f) = ([0u64; 2], [0.0f32, 0.0, 8.0]);
    let mut arguments = [Arg::from(&mut i[..]), Arg::from(&mut u[..]), Arg::from(&mut l[..]), Arg::from(&mut f[..])];
    launch("atomics", Geometry::linear(1, 96), &mut arguments);
    assert_eq!(i, [96 * 95 / 2, 95, -95, -96]);
    assert_eq!(u, [96, u32::MAX, 96 % 10, 95]);
    assert_eq!(l, [96 << 40, 95 << 40]);
    assert_eq!(f, [48.0, 8.0, 3.0]);

    let mut bins = [0u32; 4];
    launch("shared_atomics", Geometry::linear(1, 64), &mut [Arg::from(&mut bins[..])]);
    assert_eq!(bins, [480, 496, 512, 528]);
}

#[test]
fn threads_that_spin_let_the_others_run() {
    let (mut lock, mut count) = ([0u32], [0u32]);
    launch("spin_lock", Geometry::linear(1, 64), &mut [Arg::from(&mut lock[..]), Arg::from(&mut count[..])]);
    assert_eq!((lock, count), ([0], [64]));
}

#[test]
fn vectors_lie_as_in_cuda() {
    let x: Vec<f32> = (0..16).map(|k| k as f32).collect();
    let x: &[[f32; 4]] = bytemuck::cast_slice(&x);
    let (mut y, mut z) = ([[0.0f32; 4]; 4], [[0u32; 2]; 4]);
    launch("vectors", Geometry::linear(1, 4), &mut [Arg::from(x), Arg::from(&mut y[..]), Arg::from(&mut z[..])]);
    for k in 0..4 {
        let [a, b, c, d] = x[k];
        assert_eq!(y[k], [d, c, b, a]);
        assert_eq!(z[k], [k as u32, a.to_bits()]);
    }
}

#[test]
fn structs_are_passed_by_value() {
    #[repr(C)]
    #[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
    struct Line {
        slope: f64,
        offset: f32,
        steps: [u8; 4],
    }
    let line = Line { slope: 0.5, offset: 0.25, steps: [0, 0, 3, 0] };
    let mut out = [0.0f64; 2];
    let mut arguments = [Arg::from_struct(&line), Arg::from_struct(&[1u32, 2, 3, 4]), Arg::from(&mut out[..])];
    launch("structs", Geometry::linear(1, 1), &mut arguments);
    assert_eq!(out, [1.75, 4.0]);
}

/// As a made-up driver launches them.
#[test]
fn kernels_are_exported_by_their_names() {
    type Run = unsafe extern "C" fn(*const u32, *const u32, usize, *const *const std::ffi::c_void) -> i32;
    let mut out = [0.0f64; 8];
    let address = out.as_mut_ptr();
    let (grid, block, arguments) = ([1, 1, 1], [8, 1, 1], [(&raw const address).cast()]);
    // SAFETY: the library is the harness's own, and this is the type of the function; the kernel
    // writes eight doubles.
    let failed = unsafe {
        let library = libloading::Library::new(KERNELS.path()).unwrap();
        let run = library.get::<Run>(b"simt_templates_and_constants").unwrap();
        run(grid.as_ptr(), block.as_ptr(), 0, arguments.as_ptr())
    };
    assert_eq!((failed, out), (0, [36.0; 8]));
}

#[test]
fn shared_memory_of_templates_is_one_for_each_type() {
    let mut out = [0.0f64; 8];
    launch("templates_and_constants", Geometry::linear(1, 8), &mut [Arg::from(&mut out[..])]);
    assert_eq!(out, [36.0; 8]);
}

#[test]
fn intrinsics_give_what_cuda_documents() {
    let (mut f, mut u) = ([0.0f32; 4], [0u32; 8]);
    launch("intrinsics", Geometry::linear(1, 1), &mut [Arg::from(&mut f[..]), Arg::from(&mut u[..])]);
    assert_eq!(f, [17.0, 0.5, 1.0, 2.0]);
    assert_eq!(u, [8, 31, 4, 1 << 31, 3, 3, 9, 3]);
}

/// The `half` crate is the oracle, but for NaN, of which the hardware knows one.
#[test]
fn sixteen_bit_floats_convert_as_ieee_says() {
    let (mut half, mut bfloat) = (vec![0.0f32; 65_536], vec![0.0f32; 65_536]);
    launch("from_half", Geometry::linear(256, 256), &mut [Arg::from(&mut half[..]), Arg::from(&mut bfloat[..])]);
    for bits in 0..=u16::MAX {
        let (f16, bf16) = (half::f16::from_bits(bits).to_f32(), half::bf16::from_bits(bits).to_f32());
        let same = |a: f32, b: f32| a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan();
        assert!(same(half[bits as usize], f16) && same(bfloat[bits as usize], bf16), "{bits:#06x}");
    }

    // Every half, what lies halfway to the next, and the floats on either side of that.
    let x: Vec<f32> = (0..=u16::MAX)
        .flat_map(|bits| [(u32::from(bits) << 16), f32::to_bits(half::f16::from_bits(bits).to_f32())])
        .flat_map(|bits| {
            [0, 1, 0xfff, 0x1000, 0x1001, 0x7fff, 0x8000, 0x8001].map(|tail| f32::from_bits(bits.wrapping_add(tail)))
        })
        .collect();
    let (mut f16, mut bf16) = (vec![0u16; x.len()], vec![0u16; x.len()]);
    let mut arguments =
        [Arg::from(&x[..]), Arg::from(&mut f16[..]), Arg::from(&mut bf16[..]), Arg::from(x.len() as u32)];
    launch("to_half", Geometry::linear((x.len() as u32).div_ceil(256), 256), &mut arguments);
    for (k, &value) in x.iter().enumerate() {
        let expected = if value.is_nan() {
            (0x7fff, 0x7fff)
        } else {
            (half::f16::from_f32(value).to_bits(), half::bf16::from_f32(value).to_bits())
        };
        assert_eq!((f16[k], bf16[k]), expected, "{value:e} {:#010x}", value.to_bits());
    }
}

#[test]
fn the_portable_fibers_do_the_same() {
    let options = CompileOptions { defines: vec!["SIMT_PORTABLE_CONTEXT".to_owned()], ..CompileOptions::default() };
    let kernels = Kernels::compile_with(&[SOURCE], &options).unwrap();
    let x = vec![1.0f32; 5000];
    let mut out = [0.0f32; 2];
    kernels
        .launch(
            "block_sum",
            Geometry::linear(2, 256),
            &mut [Arg::from(&x[..]), Arg::from(&mut out[..]), Arg::from(5000u32)],
        )
        .unwrap();
    assert_eq!(out.iter().sum::<f32>(), 5000.0);
}
