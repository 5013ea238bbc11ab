//! Each report of the harness, by a wrong kernel of `kernels/faults.cu`: it names the kernel, the
//! block, the threads and the lines.

use std::sync::LazyLock;

use megabatch_simt::{Arg, Checks, CompileOptions, Error, Geometry, Kernels};

static KERNELS: LazyLock<Kernels> =
    LazyLock::new(|| Kernels::compile(&[SOURCE]).unwrap_or_else(|error| panic!("{error}")));

const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/kernels/faults.cu");

/// `faults.cu:LINE` of the line with this mark.
fn mark(mark: &str) -> String {
    let source = include_str!("kernels/faults.cu");
    let line = source.lines().position(|line| line.ends_with(&format!("// MARK {mark}"))).expect(mark);
    format!("faults.cu:{}", line + 1)
}

/// Launches one block, and checks that the report has every piece.
fn check(kernel: &str, threads: u32, arguments: &mut [Arg<'_>], pieces: &[&str]) {
    check_launch(kernel, Geometry::linear(1, threads), arguments, pieces);
}

fn check_launch(kernel: &str, geometry: Geometry, arguments: &mut [Arg<'_>], pieces: &[&str]) {
    let fault = KERNELS.launch(kernel, geometry, arguments).unwrap_err();
    assert!(matches!(fault, Error::Fault { .. }), "{fault}");
    let report = fault.to_string();
    assert!(report.starts_with(&format!("kernel {kernel}, block (0,0,0): ")), "{report}");
    for piece in pieces {
        assert!(report.contains(piece), "no `{piece}` in:\n{report}");
    }
}

#[test]
fn a_deadlock_names_each_group_and_where_it_waits() {
    let mut out = [0i32; 64];
    let (barrier, shuffle) = (mark("block barrier"), mark("shuffle of the rest"));
    let pieces = [
        "deadlock: no thread can go on",
        "threads 0-39 wait in __syncthreads at ",
        &barrier,
        "threads 40-63 wait in __shfl_sync with mask 0xffffffff at ",
        &shuffle,
    ];
    check("stuck_barrier", 64, &mut [Arg::from(&mut out[..])], &pieces);

    let (lane, lanes) = (mark("lane at the block barrier"), mark("lanes at the warp barrier"));
    let pieces = ["threads 3 wait in __syncthreads", &lane, "threads 0-2, 4-31 wait in __syncwarp", &lanes];
    check("warp_waits_for_itself", 32, &mut [Arg::from(&mut out[..])], &pieces);
}

#[test]
fn a_divergent_warp_names_both_lines() {
    let mut out = [0i32; 32];
    let (even, odd) = (mark("even"), mark("odd"));
    let pieces = ["divergent warp", "thread 0 in __shfl_xor_sync at ", &even, "thread 1 in __shfl_xor_sync at ", &odd];
    check("divergent_shuffle", 32, &mut [Arg::from(&mut out[..])], &pieces);

    let masks = mark("masks");
    let pieces =
        ["threads 0-7 wait in __syncthreads", "threads 8-31 wait in __shfl_sync with mask 0xffffffff at ", &masks];
    check("differing_masks", 32, &mut [Arg::from(&mut out[..])], &pieces);

    let pieces = ["the calling lane is not in its mask: thread 4 in __any_sync at ", &mark("outsider")];
    check("not_in_mask", 32, &mut [Arg::from(&mut out[..])], &pieces);
}

#[test]
fn a_divergent_barrier_names_both_lines() {
    let mut out = [0i32; 64];
    let (one, other) = (mark("one barrier"), mark("other barrier"));
    check("divergent_barrier", 64, &mut [Arg::from(&mut out[..])], &["divergent barrier", "thread 32", &one, &other]);
}

#[test]
fn an_access_outside_the_buffers_is_named_before_it_happens() {
    let (x, mut out) = ([1.0f32; 32], [0.0f32; 32]);
    let place = mark("past the end");
    let pieces =
        ["thread 31 reads 4 bytes outside every buffer", "128 bytes after the start of the one of 128 bytes", &place];
    check("past_the_end", 32, &mut [Arg::from(&x[..]), Arg::from(&mut out[..])], &pieces);

    let pieces = ["writes a buffer that was given for reading only, at ", &mark("writes input")];
    check("writes_an_input", 32, &mut [Arg::from(&x[..])], &pieces);
    assert_eq!(x, [1.0; 32]);

    let pieces = ["thread 8 reads", "outside every buffer", &mark("wide load")];
    check("wide_load", 32, &mut [Arg::from(&x[..]), Arg::from(&mut out[..])], &pieces);

    let pieces = ["thread 0 reads 8 bytes at an address that is no multiple of that, at ", &mark("misaligned")];
    check("misaligned", 1, &mut [Arg::from(&x[..]), Arg::from(&mut out[..])], &pieces);
}

#[test]
fn alignment_is_seen_where_nothing_else_of_memory_is() {
    let options = CompileOptions { checks: Checks::Barriers, ..CompileOptions::default() };
    let kernels = Kernels::compile_with(&[SOURCE], &options).unwrap_or_else(|error| panic!("{error}"));
    let (x, mut out) = ([1.0f32; 32], [0.0f32; 32]);
    let mut arguments = [Arg::from(&x[..]), Arg::from(&mut out[..])];
    let report = kernels.launch("misaligned", Geometry::linear(1, 1), &mut arguments).unwrap_err().to_string();
    for piece in ["thread 0 reads or writes at an address that is no multiple of 8, at ", &mark("misaligned")] {
        assert!(report.contains(piece), "no `{piece}` in:\n{report}");
    }
}

#[test]
fn shared_memory_has_bounds_and_a_beginning() {
    let mut out = [0.0f32; 32];
    let place = mark("past shared");
    let pieces =
        ["thread 31 writes 4 bytes at offset 128 of shared `tile` (128 bytes), which is out of its range", &place];
    check("past_shared", 32, &mut [Arg::from(&mut out[..])], &pieces);

    let pieces =
        ["thread 0 reads 4 bytes at offset 0 of shared `tile`", "which no thread has written", &mark("unwritten")];
    check("unwritten_shared", 32, &mut [Arg::from(&mut out[..])], &pieces);
}

#[test]
fn a_race_names_both_accesses() {
    let mut out = [0.0f32; 64];
    let (write, read) = (mark("racing write"), mark("racing read"));
    check("race_across_warps", 64, &mut [Arg::from(&mut out[..])], &["no barrier lies between", &write, &read]);

    let (read, write) = (mark("reads the neighbour"), mark("overwrites too early"));
    check("race_in_a_warp", 32, &mut [Arg::from(&mut out[..])], &["no barrier lies between", &write, &read]);

    let (write, read) = (mark("before the shuffle"), mark("behind the shuffle"));
    let pieces = ["no barrier lies between", &write, &read];
    check("shuffle_in_place_of_a_barrier", 32, &mut [Arg::from(&mut out[..])], &pieces);
}

#[test]
fn a_race_in_global_memory_names_both_accesses() {
    let (mut x, mut out) = ([0.0f32; 64], [0.0f32; 3]);
    let (own, other) = (mark("writes its own"), mark("writes another's"));
    let pieces = ["writes 4 bytes at ", &own, "no barrier lies between that and thread", &other];
    check("race_in_global_memory", 64, &mut [Arg::from(&mut x[..])], &pieces);

    let in_a_later_block = |kernel, arguments: &mut [Arg<'_>], pieces: &[&str]| {
        let report = KERNELS.launch(kernel, Geometry::linear(3, 1), arguments).unwrap_err().to_string();
        pieces.iter().for_each(|piece| assert!(report.contains(piece), "no `{piece}` in:\n{report}"));
    };
    let (written, read) = (mark("every block writes"), mark("every block reads"));
    let pieces =
        ["block (1,0,0): thread 0 writes", "nothing orders that and thread 0 of block number 0 which writes", &written];
    in_a_later_block("race_of_blocks", &mut [Arg::from(&mut x[..])], &pieces);
    let pieces = ["block (2,0,0): thread 0 writes", "nothing orders that and other blocks which reads", &read];
    in_a_later_block("written_after_others_read", &mut [Arg::from(&mut x[..]), Arg::from(&mut out[..])], &pieces);

    let (mut flag, reads, sets) = ([0u32], mark("reads the flag"), mark("sets the flag"));
    check("waits_without_atomic", 32, &mut [Arg::from(&mut flag[..])], &["thread 1 writes", &sets, &reads]);
}

/// Data that one block hands to another is seen by it, if all fences are in place.
#[test]
fn a_release_or_an_acquire_that_is_missing_is_a_race() {
    let hand_over = |how: u32| {
        let (mut arrived, mut numbers, mut out) = ([0u32], [0.0f32; 64], [0.0f32; 64]);
        let mut arguments =
            [Arg::from(&mut arrived[..]), Arg::from(&mut numbers[..]), Arg::from(&mut out[..]), Arg::from(how)];
        KERNELS.launch("hands_over", Geometry::linear(2, 64).cooperative(), &mut arguments).map(|()| out)
    };
    assert_eq!(hand_over(0).unwrap(), [1.0; 64]);
    for how in 1..5 {
        let report = hand_over(how).unwrap_err().to_string();
        for piece in ["nothing orders that and thread", &mark("hands over"), &mark("takes over")] {
            assert!(report.contains(piece), "no `{piece}` without step {how} in:\n{report}");
        }
    }

    let by_fences = |has_fences: u32| {
        let (mut arrived, mut numbers, mut out) = ([0u32], [0.0f32], [0.0f32]);
        let mut arguments =
            [Arg::from(&mut arrived[..]), Arg::from(&mut numbers[..]), Arg::from(&mut out[..]), Arg::from(has_fences)];
        KERNELS.launch("hands_over_by_fences", Geometry::linear(2, 1).cooperative(), &mut arguments).map(|()| out)
    };
    assert_eq!(by_fences(1).unwrap(), [1.0]);
    let report = by_fences(0).unwrap_err().to_string();
    assert!(report.contains(&mark("hands over behind a fence")), "{report}");
}

#[test]
fn a_thread_that_waits_for_ever_is_told() {
    let (mut flag, mut lock) = ([0u32], [0u32]);
    let pieces = ["deadlock", "threads 0-31 wait in a loop that waits for another thread"];
    check("never_set", 32, &mut [Arg::from(&mut flag[..]), Arg::from(&mut lock[..])], &pieces);
}

#[test]
fn a_block_that_waits_for_another_for_ever_is_told() {
    let (kernel, place) = ("waits_for_blocks", mark("behind the wait"));
    let waits = ["deadlock", "threads 0 wait in a loop", "threads 1-31 wait in __syncthreads at ", &place];
    let waits_and = |last| [&waits[..], &[last]].concat();
    let mut arrived = [0u32];
    let mut arguments = [Arg::from(&mut arrived[..]), Arg::from(3u32)];
    let one_by_one = Geometry::linear(3, 32);
    let pieces = waits_and("a thread may wait for another block's only in a cooperative launch");
    check_launch(kernel, one_by_one, &mut arguments, &pieces);

    arrived = [0];
    let mut arguments = [Arg::from(&mut arrived[..]), Arg::from(4u32)];
    let pieces = waits_and("all blocks of the launch run at once, and none can go on");
    check_launch(kernel, one_by_one.cooperative(), &mut arguments, &pieces);
    arrived = [0];
    let mut arguments = [Arg::from(&mut arrived[..]), Arg::from(3u32)];
    KERNELS.launch(kernel, one_by_one.cooperative(), &mut arguments).unwrap();
}

#[test]
fn a_trap_and_a_stack_that_is_too_small_are_told() {
    let mut out = [0i32, 0, 1, 0];
    check("trap", 4, &mut [Arg::from(&mut out[..])], &["thread 2 trapped at ", &mark("trap")]);
    check("deep_recursion", 1, &mut [Arg::from(&mut out[..])], &["thread 0 used more than 65536 bytes of stack"]);
}

#[test]
fn a_kernel_after_a_fault_runs_as_before() {
    let mut out = [0i32; 32];
    KERNELS.launch("divergent_shuffle", Geometry::linear(1, 32), &mut [Arg::from(&mut out[..])]).unwrap_err();
    KERNELS.launch("trap", Geometry::linear(7, 32), &mut [Arg::from(&mut out[..])]).unwrap();
}

#[test]
fn launches_are_held_against_the_signature() {
    let (x, mut out) = ([1.0f32; 32], [0.0f32; 32]);
    let mut bytes = [0u8; 32];
    let cases: [(&str, Geometry, Vec<Arg<'_>>, &str); 7] = [
        ("no_such", Geometry::linear(1, 1), vec![], "there is no kernel `no_such`; the sources have stuck_barrier, "),
        ("trap", Geometry::linear(1, 1), vec![], "kernel trap: takes 1 arguments, but was given 0"),
        (
            "trap",
            Geometry::linear(1, 1),
            vec![Arg::from(3u32)],
            "parameter 0 takes a slice to write with elements of 4 bytes, but was given an integer of 4 bytes",
        ),
        (
            "trap",
            Geometry::linear(1, 1),
            vec![Arg::from(&x[..])],
            "but was given a slice to read with elements of 4 bytes",
        ),
        (
            "trap",
            Geometry::linear(1, 1),
            vec![Arg::from(&mut bytes[..])],
            "but was given a slice to write with elements of 1 bytes",
        ),
        ("trap", Geometry::linear(0, 1), vec![], "no size may be 0"),
        ("trap", Geometry::linear(1, 1025), vec![Arg::from(&mut out[..])], "at most 1024 threads"),
    ];
    for (kernel, geometry, mut arguments, expected) in cases {
        let error = KERNELS.launch(kernel, geometry, &mut arguments).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn the_compilers_messages_are_shown_at_the_sources_lines() {
    let folder = tempfile::tempdir().unwrap();
    let check = |name: &str, text: &str, expected: &str| {
        let source = folder.path().join(name);
        std::fs::write(&source, text).unwrap();
        let error = Kernels::compile(&[&source]).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    };
    check("half.cu", "#include <cuda_fp16.h>\n__global__ void k(__half* x) {\n  *x = x[0] + x[1];\n}\n", "half.cu:3:");
    check("header.cu", "#include \"absent.cuh\"\n", "absent.cuh");
    check("shared.cu", "\n__shared__ float x[4];\n", "shared.cu:2: a __shared__ variable outside a function");
}
