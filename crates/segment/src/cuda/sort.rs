//! Plans of rows in segments, which are made on the GPU.

#![allow(unsafe_code, reason = "kernels are launched")]

use megabatch_gpu_core::arguments;
use megabatch_gpu_core::kernel::{Arguments, Kernel, Launch};

use super::TensorStream;
use crate::error::Result;
use crate::tensor::check_count;

/// Rows of a tile, as in sort.cu.
pub(super) const TILE: usize = 4096;
/// Bits of a digit, at most.
pub(super) const DIGIT_BITS_MAX: u32 = 8;

/// Bytes that [`plan_from_index`] works with beside the plan.
pub fn plan_workspace_bytes(rows: usize) -> usize {
    4 * (3 * rows + (1 << DIGIT_BITS_MAX) * (rows.div_ceil(TILE) + 1))
}

/// Writes the plan of rows in any order: row `r` belongs to segment `index[r]`. The rows are sorted
/// unless they lie so, stably, so that the plan is always the same. With `expects_sorted` it is
/// told where they do not.
///
/// # Errors
/// [`Error::TooMany`](crate::Error::TooMany) for more than 2³² − 2 rows and segments;
/// [`Error::Device`](crate::Error::Device).
///
/// # Safety
/// There are `rows` 64-bit integers at `index`, room for `segments + 2 + rows` 32-bit ones at
/// `plan` and for [`plan_workspace_bytes`] at `workspace`; for the rest as
/// [`GpuSegments`](super::GpuSegments) says.
pub unsafe fn plan_from_index(
    stream: TensorStream<'_>,
    index: u64,
    rows: usize,
    segments: usize,
    expects_sorted: bool,
    plan: u64,
    workspace: u64,
) -> Result<()> {
    check_count(rows, segments)?;
    let submit = |name, launch, arguments: Arguments| {
        // SAFETY: as the caller promised; kernels go by the same sizes.
        unsafe { stream.submit(kernel(name), launch, &arguments) }
    };
    let (rows_64, segments_64) = (rows as u64, segments as u64);
    let [keys, other_keys, other_order, counts] = [0, 1, 2, 3].map(|part| workspace + 4 * part * rows_64);
    let tiles = rows.div_ceil(TILE);
    let totals = counts + 4 * ((tiles << DIGIT_BITS_MAX) as u64);
    submit("sort_clear", Launch::for_blocks(1).map(|launch| launch.with_threads(1)), arguments![plan, segments_64])?;
    let faults = stream.gpu.faults.address();
    let arguments = arguments![index, keys, plan, faults, u32::from(expects_sorted), segments_64, rows_64];
    submit("sort_keys", Launch::for_threads(rows), arguments)?;

    // Numbers of segments, and that of rows without one.
    let bits = usize::BITS - segments.leading_zeros();
    let passes = bits.div_ceil(DIGIT_BITS_MAX).max(1);
    let digit_bits = bits.div_ceil(passes).max(1);
    let order = plan + 4 * (segments_64 + 2);
    // Passes take turns, so that the last one writes its order into the plan.
    let (mut from, mut from_order) = (keys, 0);
    for pass in 0..passes {
        let shift = pass * digit_bits;
        let is_last = (passes - 1 - pass).is_multiple_of(2);
        let (to, to_order) =
            (if pass.is_multiple_of(2) { other_keys } else { keys }, if is_last { order } else { other_order });
        let launch = Launch::for_blocks(tiles);
        submit("sort_count", launch, arguments![plan, from, counts, shift, digit_bits, segments_64, rows_64])?;
        let digits = Launch::for_blocks(1 << digit_bits).filter(|_| tiles > 0);
        submit("sort_add_up", digits, arguments![plan, counts, totals, segments_64, tiles as u64])?;
        let arguments =
            arguments![plan, from, from_order, to, to_order, counts, totals, shift, digit_bits, segments_64, rows_64];
        submit("sort_place", launch, arguments)?;
        (from, from_order) = (to, to_order);
    }
    submit("sort_offsets", Launch::for_threads(segments + 1), arguments![plan, keys, from, segments_64, rows_64])
}

/// Writes the plan of rows that lie in the order of segments: segment `s` has the rows from
/// `indptr[s]` to before `indptr[s + 1]`.
///
/// # Errors
/// As [`plan_from_index`].
///
/// # Safety
/// There are `segments + 1` 64-bit integers at `indptr`, and room for `segments + 2 + rows` 32-bit
/// ones at `plan`; for the rest as [`GpuSegments`](super::GpuSegments) says.
pub unsafe fn plan_from_offsets(
    stream: TensorStream<'_>,
    indptr: u64,
    segments: usize,
    rows: usize,
    plan: u64,
) -> Result<()> {
    check_count(rows, segments)?;
    let arguments = arguments![indptr, plan, stream.gpu.faults.address(), segments as u64, rows as u64];
    // SAFETY: as the caller promised.
    unsafe { stream.submit(kernel("sort_from_offsets"), Launch::for_threads(segments + 1), &arguments) }
}

fn kernel(name: &str) -> Kernel<'_> {
    Kernel { module: "segment/sort", ptx: megabatch_gpu_core::ptx!("sort"), name }
}
