//! The operations beside a naive float64 oracle, finite differences and PyTorch, and the arrays
//! that are refused.

mod against_oracle;
mod gradients;
mod graphs;
mod oracle;
mod threads;
mod torch;

use megabatch_gpu_core::{Buffer, Device, Scope};
use megabatch_segment::{Result, SegmentPlan, ops};

type Extremum = fn(&SegmentPlan, &Buffer<f32>, &mut Buffer<f32>, &mut Buffer<u32>) -> Result<()>;

/// Maximum and minimum, each with what makes it a maximum.
const EXTREMA: [(f64, Extremum); 2] = [(1.0, ops::max), (-1.0, ops::min)];

fn scope() -> Scope {
    Device::cpu().scope("test")
}

fn plan(index: &[u32], segments: usize) -> SegmentPlan {
    SegmentPlan::from_index(&scope(), index, segments).unwrap()
}

fn buffer(numbers: &[f32]) -> Buffer<f32> {
    Buffer::from_slice(&scope(), numbers).unwrap()
}

/// An array of `len` numbers that an operation writes; what was in it before is seen.
fn filled(len: usize, operate: impl FnOnce(&mut Buffer<f32>)) -> Vec<f32> {
    let mut out = buffer(&vec![f32::from_bits(0x7fab_cdef); len]);
    operate(&mut out);
    out.to_vec().unwrap()
}
