//! A row for each row of the segment that it belongs to.

use megabatch_gpu_core::kernel::{Kernel, Launch};
use megabatch_gpu_core::{Buffer, Cuda, Device, arguments};

use crate::error::Result;
use crate::plan::SegmentPlan;
use crate::tensor::parallel::{each_row, row};

/// The row of each row's segment: `values` `[segments, D]` → `out` `[rows, D]`.
///
/// With a plan of an index, `values[index]` of PyTorch. It is the backward pass of
/// [`sum`](super::sum()), and `sum` is its own.
///
/// # Errors
/// [`Error::Device`](crate::Error::Device): what the device says of the launch.
///
/// # Panics
/// If the lengths are not those of one number of columns, and if the arrays are on several devices.
pub fn gather(plan: &SegmentPlan, values: &Buffer<f32>, out: &mut Buffer<f32>) -> Result<()> {
    divided(plan, values, None, out)
}

/// The backward pass of [`mean`](super::mean): `d_out` `[segments, D]` → `d_x` `[rows, D]`, where
/// each row has its segment's gradient divided by the number of the segment's rows.
///
/// # Errors
/// As [`gather`].
///
/// # Panics
/// As [`gather`].
pub fn mean_backward(plan: &SegmentPlan, d_out: &Buffer<f32>, d_x: &mut Buffer<f32>) -> Result<()> {
    divided(plan, d_out, Some(plan.offsets()), d_x)
}

/// With `counts`, offsets of the segments, divided by the number of rows that they say.
fn divided(
    plan: &SegmentPlan,
    values: &Buffer<f32>,
    counts: Option<&Buffer<u32>>,
    out: &mut Buffer<f32>,
) -> Result<()> {
    let columns = plan.columns(out.len(), values.len());
    plan.device().assert_beside(values.scope().device());
    plan.device().assert_beside(out.scope().device());
    match plan.device() {
        Device::Cuda(device) => cuda(device, plan, values, columns, counts, out),
        _ => {
            let counts = counts.map(Buffer::as_slice);
            cpu(plan.segment().as_slice(), values.as_slice(), columns, counts, out.as_mut_slice());
            Ok(())
        }
    }
}

fn cuda(
    device: &Cuda,
    plan: &SegmentPlan,
    values: &Buffer<f32>,
    columns: usize,
    counts: Option<&Buffer<u32>>,
    out: &mut Buffer<f32>,
) -> Result<()> {
    let kernel = Kernel { module: "segment/gather", ptx: megabatch_gpu_core::ptx!("gather"), name: "segment_gather" };
    let arguments = arguments![
        plan.segment().address(),
        values.address(),
        counts.map_or(0, Buffer::address),
        out.address(),
        columns as u64,
        out.len() as u64,
    ];
    // SAFETY: the plan has a segment below the number of segments for each row, `values` and `out`
    // have as many segments and rows of `columns`; a thread writes one number of `out`. What is
    // submitted to the default stream later runs after it.
    Ok(unsafe { kernel.submit(device, Launch::for_threads(out.len()), &arguments) }?)
}

fn cpu(segment: &[u32], values: &[f32], columns: usize, counts: Option<&[u32]>, out: &mut [f32]) {
    each_row(segment, columns, &[values], out, |_, segment, out| {
        let values = row(values, segment, columns);
        match counts {
            None => out.copy_from_slice(values),
            Some(counts) => {
                let count = (counts[segment + 1] - counts[segment]) as f32;
                out.iter_mut().zip(values).for_each(|(out, value)| *out = value / count);
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use megabatch_simt::Arg;

    use super::super::harness::{HARNESS, check_same, each_case};
    use super::*;

    #[test]
    fn the_kernel_has_the_cpus_bits() {
        each_case(|case| {
            for counts in [None, Some(case.plan.offsets())] {
                let (mut expected, mut out) = (case.per_row(), vec![f32::NAN; case.x.len()]);
                divided(&case.plan, &case.values, counts, &mut expected).unwrap();
                let (launch, len) = (Launch::for_threads(out.len()), out.len() as u64);
                let mut arguments = [
                    Arg::from(case.plan.segment().as_slice()),
                    Arg::from(case.values.as_slice()),
                    counts.map_or(Arg::null(), |counts| Arg::from(counts.as_slice())),
                    Arg::from(&mut out[..]),
                    Arg::from(case.columns as u64),
                    Arg::from(len),
                ];
                HARNESS.run("segment_gather", launch, &mut arguments);
                check_same(&out, expected.as_slice(), &case.to_string());
            }
        });
    }
}
