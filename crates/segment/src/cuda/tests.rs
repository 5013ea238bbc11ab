//! Kernels launched one by one, with every access checked.

#![forbid(unsafe_code)]

use megabatch_gpu_core::kernel::Launch;
use megabatch_simt::{Arg, Harness};

use super::sort::{DIGIT_BITS_MAX, TILE};
use crate::tensor::{Fold, PIECE, Schedule, Segments, Shape, fold, plan_from_index, plan_len};

static HARNESS: Harness =
    Harness::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src/cuda"), &["extremum", "fold", "gather", "softmax", "sort"]);

fn run(kernel: &str, launch: Option<Launch>, arguments: &mut [Arg<'_>]) {
    HARNESS.run(kernel, launch, arguments);
}

fn planned(index: &[i64], segments: usize) -> Vec<u32> {
    let mut plan = vec![0; plan_len(index.len(), segments)];
    plan_from_index(index, segments, &mut plan, Schedule::CallingThread).unwrap();
    plan
}

#[test]
fn a_pass_of_the_sort_stays_in_its_memory_and_has_no_race() {
    let (rows, segments) = (TILE + 700, 200usize);
    let index: Vec<i64> = (0..rows as i64).map(|row| row * 7919 % segments as i64).collect();
    let (tiles, digits) = (rows.div_ceil(TILE), 1 << DIGIT_BITS_MAX);
    let (mut plan, mut faults) = (vec![7; plan_len(rows, segments)], [0u64; 3]);
    let (mut keys, mut sorted_keys) = (vec![0u32; rows], vec![0u32; rows]);
    let (mut counts, mut totals) = (vec![0u32; digits * tiles], vec![0u32; digits]);
    let (rows_64, segments_64) = (rows as u64, segments as u64);
    run(
        "sort_clear",
        Some(Launch::for_blocks(1).unwrap().with_threads(1)),
        &mut [Arg::from(&mut plan[..]), Arg::from(segments_64)],
    );
    run(
        "sort_keys",
        Launch::for_threads(rows),
        &mut [
            Arg::from(&index[..]),
            Arg::from(&mut keys[..]),
            Arg::from(&mut plan[..]),
            Arg::from(&mut faults[..]),
            Arg::from(0u32),
            Arg::from(segments_64),
            Arg::from(rows_64),
        ],
    );
    run(
        "sort_count",
        Launch::for_blocks(tiles),
        &mut [
            Arg::from(&plan[..]),
            Arg::from(&keys[..]),
            Arg::from(&mut counts[..]),
            Arg::from(0u32),
            Arg::from(DIGIT_BITS_MAX),
            Arg::from(segments_64),
            Arg::from(rows_64),
        ],
    );
    run(
        "sort_add_up",
        Launch::for_blocks(digits),
        &mut [
            Arg::from(&plan[..]),
            Arg::from(&mut counts[..]),
            Arg::from(&mut totals[..]),
            Arg::from(segments_64),
            Arg::from(tiles as u64),
        ],
    );
    let mut order = vec![0u32; rows];
    run(
        "sort_place",
        Launch::for_blocks(tiles),
        &mut [
            Arg::from(&plan[..]),
            Arg::from(&keys[..]),
            Arg::null(),
            Arg::from(&mut sorted_keys[..]),
            Arg::from(&mut order[..]),
            Arg::from(&counts[..]),
            Arg::from(&totals[..]),
            Arg::from(0u32),
            Arg::from(DIGIT_BITS_MAX),
            Arg::from(segments_64),
            Arg::from(rows_64),
        ],
    );
    plan[segments + 2..].copy_from_slice(&order);
    run(
        "sort_offsets",
        Launch::for_threads(segments + 1),
        &mut [
            Arg::from(&mut plan[..]),
            Arg::from(&keys[..]),
            Arg::from(&sorted_keys[..]),
            Arg::from(segments_64),
            Arg::from(rows_64),
        ],
    );
    assert!(plan == planned(&index, segments));
    assert_eq!(faults, [0; 3]);
}

#[test]
fn pieces_have_slots_of_their_own() {
    let lengths = [3, 0, 512, 700, 0, 1025, 513, 1, 2048, 0];
    let segments = lengths.len();
    let index: Vec<i64> = lengths.iter().zip(0..).flat_map(|(&len, segment)| vec![segment; len]).collect();
    let (rows, columns) = (index.len(), 3);
    let plan = planned(&index, segments);
    let x: Vec<f32> = (0..rows * columns).map(|k| (k * 7919 % 257) as f32 / 64.0 - 2.0).collect();
    let slots = 2 * rows.div_ceil(PIECE as usize);
    let (mut partial, mut out) = (vec![f32::NAN; slots * columns], vec![f32::NAN; segments * columns]);
    let sizes = [segments as u64, rows as u64, columns as u64];
    run(
        "fold_pieces_f32",
        Launch::for_threads(partial.len()),
        &mut [
            Arg::from(&plan[..]),
            Arg::from(&x[..]),
            Arg::from(&mut partial[..]),
            Arg::from(0u32),
            Arg::from(sizes[0]),
            Arg::from(sizes[1]),
            Arg::from(sizes[2]),
            Arg::from((slots * columns) as u64),
        ],
    );
    run(
        "fold_segments_f32",
        Launch::for_threads(out.len()),
        &mut [
            Arg::from(&plan[..]),
            Arg::from(&x[..]),
            Arg::from(&partial[..]),
            Arg::null(),
            Arg::from(&mut out[..]),
            Arg::from(0u32),
            Arg::from(0u32),
            Arg::from(sizes[0]),
            Arg::from(sizes[1]),
            Arg::from(sizes[2]),
            Arg::from((segments * columns) as u64),
        ],
    );
    let mut expected = out.clone();
    let shape = Shape { batches: 1, rows, columns };
    fold(Fold::Sum, &Segments::new(&plan, segments), shape, &x, None, &mut expected, Schedule::CallingThread);
    assert_eq!(out, expected);
    // Two pieces of each of four long segments, and more of one.
    let written = partial.chunks(columns).filter(|piece| !piece[0].is_nan()).count();
    assert_eq!(written, 2 + 3 + 2 + 4);
}
