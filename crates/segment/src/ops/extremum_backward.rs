//! The backward passes of maxima and minima: to the row that was found, and shared among equals.

use megabatch_gpu_core::kernel::{Kernel, Launch};
use megabatch_gpu_core::{Buffer, Cuda, Device, arguments};

use super::fold::sum;
use crate::error::Result;
use crate::plan::SegmentPlan;
use crate::tensor::parallel::{each_row, row};

/// The backward pass of [`max`](super::max) and [`min`](super::min): `argument` and `d_out`
/// `[segments, D]` → `d_x` `[rows, D]`, where the row that is the argument has all of the gradient
/// and the others 0.
///
/// So does `torch_scatter`. PyTorch shares it among equals: [`extremum_backward_shared`].
///
/// # Errors
/// [`Error::Device`](crate::Error::Device): what the device says of the launch.
///
/// # Panics
/// If the lengths are not those of one number of columns, and if the arrays are on several devices.
pub fn extremum_backward(
    plan: &SegmentPlan,
    argument: &Buffer<u32>,
    d_out: &Buffer<f32>,
    d_x: &mut Buffer<f32>,
) -> Result<()> {
    let columns = plan.columns(d_x.len(), d_out.len());
    assert_eq!(argument.len(), d_out.len(), "there is an argument for each number of the gradient");
    plan.device().assert_beside(argument.scope().device());
    plan.device().assert_beside(d_out.scope().device());
    plan.device().assert_beside(d_x.scope().device());
    match plan.device() {
        Device::Cuda(device) => cuda_found(device, plan, argument, d_out, columns, d_x),
        _ => {
            cpu_found(plan.segment().as_slice(), argument.as_slice(), d_out.as_slice(), columns, d_x.as_mut_slice());
            Ok(())
        }
    }
}

/// The backward pass of [`max`](super::max) and [`min`](super::min) that PyTorch's `scatter_reduce`
/// has: `x` `[rows, D]`, and `out` and `d_out` `[segments, D]` → `d_x` `[rows, D]`, where the rows
/// that are equal to the extremum have equal shares of the gradient and the others 0.
///
/// It reads `x` again, and takes two passes more than [`extremum_backward`]. As there, a NaN is
/// equal to none, and makes the column of its segment NaN.
///
/// # Errors
/// [`Error::Device`](crate::Error::Device): what the device says of a launch, or that there is no
/// memory for the numbers of equals, 4 bytes a segment and column on the scope of `d_x`.
///
/// # Panics
/// If the lengths are not those of one number of columns, and if the arrays are on several devices.
pub fn extremum_backward_shared(
    plan: &SegmentPlan,
    x: &Buffer<f32>,
    out: &Buffer<f32>,
    d_out: &Buffer<f32>,
    d_x: &mut Buffer<f32>,
) -> Result<()> {
    let columns = plan.columns(x.len(), out.len());
    assert_eq!((x.len(), out.len()), (d_x.len(), d_out.len()), "gradients are of the same shape as what they are of");
    for array in [x, out, d_out, &*d_x] {
        plan.device().assert_beside(array.scope().device());
    }
    rows(plan, SharePass::Equal { x, out }, columns, d_x)?;
    let mut equals = Buffer::zeros(d_x.scope(), out.len())?;
    sum(plan, d_x, &mut equals)?;
    rows(plan, SharePass::Share { d_out, equals: &equals }, columns, d_x)
}

fn cuda_found(
    device: &Cuda,
    plan: &SegmentPlan,
    argument: &Buffer<u32>,
    d_out: &Buffer<f32>,
    columns: usize,
    d_x: &mut Buffer<f32>,
) -> Result<()> {
    let name = "segment_extremum_backward";
    let kernel =
        Kernel { module: "segment/extremum_backward", ptx: megabatch_gpu_core::ptx!("extremum_backward"), name };
    let arguments = arguments![
        plan.segment().address(),
        argument.address(),
        d_out.address(),
        d_x.address(),
        columns as u64,
        d_x.len() as u64,
    ];
    // SAFETY: the plan has a segment below the number of segments for each row, and the arrays have
    // as many segments and rows of `columns`; a thread writes one number of `d_x`. What is
    // submitted to the default stream later runs after it.
    Ok(unsafe { kernel.submit(device, Launch::for_threads(d_x.len()), &arguments) }?)
}

fn cpu_found(segment: &[u32], argument: &[u32], d_out: &[f32], columns: usize, d_x: &mut [f32]) {
    each_row(segment, columns, &[bytemuck::cast_slice(argument), d_out], d_x, |number, segment, d_x| {
        let argument = &argument[segment * columns..][..columns];
        let d_out = row(d_out, segment, columns);
        for ((d_x, &argument), &d_out) in d_x.iter_mut().zip(argument).zip(d_out) {
            *d_x = if argument == number as u32 { d_out } else { 0.0 };
        }
    });
}

/// Operation on every row.
#[derive(Clone, Copy)]
enum SharePass<'a> {
    /// 1 where the row is equal to the extremum of its segment, else 0.
    Equal { x: &'a Buffer<f32>, out: &'a Buffer<f32> },
    /// Multiplies with a share of the segment's gradient.
    Share { d_out: &'a Buffer<f32>, equals: &'a Buffer<f32> },
}

impl<'a> SharePass<'a> {
    fn kernel(self) -> &'static str {
        match self {
            SharePass::Equal { .. } => "segment_equal",
            SharePass::Share { .. } => "segment_share",
        }
    }

    fn operands(self) -> [&'a Buffer<f32>; 2] {
        match self {
            SharePass::Equal { x, out } => [x, out],
            SharePass::Share { d_out, equals } => [d_out, equals],
        }
    }
}

fn rows(plan: &SegmentPlan, step: SharePass<'_>, columns: usize, to: &mut Buffer<f32>) -> Result<()> {
    match plan.device() {
        Device::Cuda(device) => cuda(device, plan, step, columns, to),
        _ => {
            cpu(plan.segment().as_slice(), step, columns, to.as_mut_slice());
            Ok(())
        }
    }
}

fn cuda(device: &Cuda, plan: &SegmentPlan, step: SharePass<'_>, columns: usize, to: &mut Buffer<f32>) -> Result<()> {
    let kernel = Kernel {
        module: "segment/extremum_backward",
        ptx: megabatch_gpu_core::ptx!("extremum_backward"),
        name: step.kernel(),
    };
    let [one, other] = step.operands();
    let arguments = arguments![
        plan.segment().address(),
        one.address(),
        other.address(),
        to.address(),
        columns as u64,
        to.len() as u64,
    ];
    // SAFETY: the plan has a segment below the number of segments for each row, and the arrays have
    // as many rows and segments of `columns`; a thread writes one number of `to`. What is submitted
    // to the default stream later runs after it.
    Ok(unsafe { kernel.submit(device, Launch::for_threads(to.len()), &arguments) }?)
}

fn cpu(segment: &[u32], step: SharePass<'_>, columns: usize, to: &mut [f32]) {
    let [one, other] = step.operands().map(Buffer::as_slice);
    match step {
        SharePass::Equal { .. } => each_row(segment, columns, &[other], to, |number, segment, to| {
            let operands = row(one, number, columns).iter().zip(row(other, segment, columns));
            to.iter_mut().zip(operands).for_each(|(to, (x, out))| *to = if x == out { 1.0 } else { 0.0 });
        }),
        SharePass::Share { .. } => each_row(segment, columns, &[one, other], to, |_, segment, to| {
            let operands = row(one, segment, columns).iter().zip(row(other, segment, columns));
            to.iter_mut().zip(operands).for_each(|(to, (d_out, equals))| *to *= d_out / equals);
        }),
    }
}

#[cfg(test)]
mod tests {
    use megabatch_simt::Arg;

    use super::super::harness::{HARNESS, check_same, each_case};
    use super::*;

    #[test]
    fn the_kernels_that_share_have_the_cpus_bits() {
        each_case(|case| {
            let equal = SharePass::Equal { x: &case.x, out: &case.values };
            for step in [equal, SharePass::Share { d_out: &case.values, equals: &case.values }] {
                let (mut expected, mut to) = (case.x.try_clone().unwrap(), case.x.as_slice().to_vec());
                rows(&case.plan, step, case.columns, &mut expected).unwrap();
                let [one, other] = step.operands();
                let (launch, len) = (Launch::for_threads(to.len()), to.len() as u64);
                let mut arguments = [
                    Arg::from(case.plan.segment().as_slice()),
                    Arg::from(one.as_slice()),
                    Arg::from(other.as_slice()),
                    Arg::from(&mut to[..]),
                    Arg::from(case.columns as u64),
                    Arg::from(len),
                ];
                HARNESS.run(step.kernel(), launch, &mut arguments);
                check_same(&to, expected.as_slice(), &format!("{}, {case}", step.kernel()));
            }
        });
    }

    #[test]
    fn the_kernel_of_the_backward_pass_has_the_cpus_bits() {
        each_case(|case| {
            let (mut out, mut argument) = (case.per_segment(), case.arguments());
            super::super::max(&case.plan, &case.x, &mut out, &mut argument).unwrap();
            let (mut expected, mut d_x) = (case.per_row(), vec![f32::NAN; case.x.len()]);
            extremum_backward(&case.plan, &argument, &case.values, &mut expected).unwrap();
            let (launch, len) = (Launch::for_threads(d_x.len()), d_x.len() as u64);
            let mut arguments = [
                Arg::from(case.plan.segment().as_slice()),
                Arg::from(argument.as_slice()),
                Arg::from(case.values.as_slice()),
                Arg::from(&mut d_x[..]),
                Arg::from(case.columns as u64),
                Arg::from(len),
            ];
            HARNESS.run("segment_extremum_backward", launch, &mut arguments);
            check_same(&d_x, expected.as_slice(), &case.to_string());
        });
    }
}
