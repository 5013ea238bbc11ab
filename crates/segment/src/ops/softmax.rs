//! Softmax over the rows of each segment.

use megabatch_gpu_core::kernel::{Kernel, Launch};
use megabatch_gpu_core::{Buffer, Cuda, Device, arguments};

use super::fold::{Fold, fold, sum};
use crate::error::Result;
use crate::plan::SegmentPlan;
use crate::tensor::exp::exp;
use crate::tensor::parallel::{each_row, row};

/// The softmax of each segment's rows, each column for itself: `x` `[rows, D]` → `y` `[rows, D]`,
/// yᵣ = exp(xᵣ − m) / Σ exp(xᵢ − m), where m is the segment's maximum and the sum goes over its
/// rows. Attention has a column a head.
///
/// As `torch_geometric.utils.softmax`, which adds 10⁻¹⁶ to the sum: it is at least 1, and in f32
/// that changes nothing. A NaN or +∞ in a segment makes its whole column NaN, and so does a column
/// of −∞ only; a −∞ beside numbers has 0. exp is exact to 2 units in the last place.
///
/// # Errors
/// [`Error::Device`](crate::Error::Device): what the device says of a launch, or that there is no
/// memory for the maxima and the sums, 8 bytes a segment and column on the scope of `y`.
///
/// # Panics
/// If `x` and `y` are not as long as one another or are no rows of one number of columns, and if
/// the arrays are on several devices.
pub fn softmax(plan: &SegmentPlan, x: &Buffer<f32>, y: &mut Buffer<f32>) -> Result<()> {
    let columns = columns(plan, &[x, y]);
    let mut maxima = Buffer::zeros(y.scope(), plan.segments() * columns)?;
    fold(Fold::Greatest, plan, x, &mut maxima)?;
    rows(plan, SoftmaxPass::Exp { x, maxima: &maxima }, columns, y)?;
    let mut sums = Buffer::zeros(y.scope(), plan.segments() * columns)?;
    sum(plan, y, &mut sums)?;
    rows(plan, SoftmaxPass::Divide { sums: &sums }, columns, y)
}

/// The backward pass of [`softmax`]: `y`, which it gave, and `d_y` `[rows, D]` → `d_x` `[rows, D]`,
/// d_xᵣ = yᵣ (d_yᵣ − Σ yᵢ d_yᵢ), where the sum goes over the rows of the segment.
///
/// # Errors
/// As [`softmax`], with 4 bytes a segment and column on the scope of `d_x`.
///
/// # Panics
/// As [`softmax`].
pub fn softmax_backward(plan: &SegmentPlan, y: &Buffer<f32>, d_y: &Buffer<f32>, d_x: &mut Buffer<f32>) -> Result<()> {
    let columns = columns(plan, &[y, d_y, d_x]);
    rows(plan, SoftmaxPass::Product { y, d_y }, columns, d_x)?;
    let mut dots = Buffer::zeros(d_x.scope(), plan.segments() * columns)?;
    sum(plan, d_x, &mut dots)?;
    rows(plan, SoftmaxPass::Backward { y, d_y, dots: &dots }, columns, d_x)
}

/// Operation on every row, from rows `[rows, D]` and segments `[segments, D]`.
#[derive(Clone, Copy)]
enum SoftmaxPass<'a> {
    /// exp(x − maximum of the segment).
    Exp { x: &'a Buffer<f32>, maxima: &'a Buffer<f32> },
    /// Divides by the sum of the segment.
    Divide { sums: &'a Buffer<f32> },
    /// y · d_y.
    Product { y: &'a Buffer<f32>, d_y: &'a Buffer<f32> },
    /// y · (d_y − dot of the segment).
    Backward { y: &'a Buffer<f32>, d_y: &'a Buffer<f32>, dots: &'a Buffer<f32> },
}

impl SoftmaxPass<'_> {
    fn kernel(self) -> &'static str {
        match self {
            SoftmaxPass::Exp { .. } => "segment_exp",
            SoftmaxPass::Divide { .. } => "segment_divide",
            SoftmaxPass::Product { .. } => "segment_product",
            SoftmaxPass::Backward { .. } => "segment_softmax_backward",
        }
    }

    /// Up to two arrays by rows and one by segments, as the kernel needs them.
    fn operands(&self) -> [Option<&Buffer<f32>>; 3] {
        match *self {
            SoftmaxPass::Exp { x, maxima } => [Some(x), None, Some(maxima)],
            SoftmaxPass::Divide { sums } => [None, None, Some(sums)],
            SoftmaxPass::Product { y, d_y } => [Some(y), Some(d_y), None],
            SoftmaxPass::Backward { y, d_y, dots } => [Some(y), Some(d_y), Some(dots)],
        }
    }
}

/// The columns of arrays of rows.
fn columns(plan: &SegmentPlan, arrays: &[&Buffer<f32>]) -> usize {
    let len = arrays[0].len();
    for array in arrays {
        assert_eq!(array.len(), len, "softmax has as many numbers as what it is of");
        plan.device().assert_beside(array.scope().device());
    }
    let columns = len / plan.rows().max(1);
    assert_eq!(columns * plan.rows(), len, "{len} numbers are not {} rows of the same length", plan.rows());
    columns
}

fn rows(plan: &SegmentPlan, step: SoftmaxPass<'_>, columns: usize, to: &mut Buffer<f32>) -> Result<()> {
    match plan.device() {
        Device::Cuda(device) => cuda(device, plan, step, columns, to),
        _ => {
            cpu(plan.segment().as_slice(), step, columns, to.as_mut_slice());
            Ok(())
        }
    }
}

fn cuda(device: &Cuda, plan: &SegmentPlan, step: SoftmaxPass<'_>, columns: usize, to: &mut Buffer<f32>) -> Result<()> {
    let kernel = Kernel { module: "segment/softmax", ptx: megabatch_gpu_core::ptx!("softmax"), name: step.kernel() };
    let [one, other, segments] = step.operands().map(|operand| operand.map_or(0, Buffer::address));
    let arguments =
        arguments![plan.segment().address(), one, other, segments, to.address(), columns as u64, to.len() as u64,];
    // SAFETY: the plan has a segment below the number of segments for each row, and the arrays that
    // the step has have as many rows and segments of `columns`; a thread writes one number of `to`.
    // What is submitted to the default stream later runs after it.
    Ok(unsafe { kernel.submit(device, Launch::for_threads(to.len()), &arguments) }?)
}

fn cpu(segment: &[u32], step: SoftmaxPass<'_>, columns: usize, to: &mut [f32]) {
    match step {
        SoftmaxPass::Exp { x, maxima } => {
            let (x, maxima) = (x.as_slice(), maxima.as_slice());
            each_row(segment, columns, &[maxima], to, |number, segment, to| {
                let (x, maxima) = (row(x, number, columns), row(maxima, segment, columns));
                to.iter_mut().zip(x).zip(maxima).for_each(|((to, x), maximum)| *to = exp(x - maximum));
            });
        }
        SoftmaxPass::Divide { sums } => {
            let sums = sums.as_slice();
            each_row(segment, columns, &[sums], to, |_, segment, to| {
                to.iter_mut().zip(row(sums, segment, columns)).for_each(|(to, sum)| *to /= sum);
            });
        }
        SoftmaxPass::Product { y, d_y } => {
            let (y, d_y) = (y.as_slice(), d_y.as_slice());
            each_row(segment, columns, &[], to, |number, _, to| {
                let (y, d_y) = (row(y, number, columns), row(d_y, number, columns));
                to.iter_mut().zip(y).zip(d_y).for_each(|((to, y), d_y)| *to = y * d_y);
            });
        }
        SoftmaxPass::Backward { y, d_y, dots } => {
            let (y, d_y, dots) = (y.as_slice(), d_y.as_slice(), dots.as_slice());
            each_row(segment, columns, &[dots], to, |number, segment, to| {
                let (y, d_y) = (row(y, number, columns), row(d_y, number, columns));
                let operands = y.iter().zip(d_y).zip(row(dots, segment, columns));
                to.iter_mut().zip(operands).for_each(|(to, ((y, d_y), dot))| *to = y * (d_y - dot));
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use megabatch_simt::Arg;

    use super::super::harness::{Case, HARNESS, check_same, each_case};
    use super::*;

    fn operand(operand: Option<&Buffer<f32>>) -> Arg<'_> {
        operand.map_or(Arg::null(), |operand| Arg::from(operand.as_slice()))
    }

    fn check(case: &Case, step: SoftmaxPass<'_>) {
        let (mut expected, mut to) = (case.x.try_clone().unwrap(), case.x.as_slice().to_vec());
        rows(&case.plan, step, case.columns, &mut expected).unwrap();
        let [one, other, segments] = step.operands();
        let (launch, len) = (Launch::for_threads(to.len()), to.len() as u64);
        let mut arguments = [
            Arg::from(case.plan.segment().as_slice()),
            operand(one),
            operand(other),
            operand(segments),
            Arg::from(&mut to[..]),
            Arg::from(case.columns as u64),
            Arg::from(len),
        ];
        HARNESS.run(step.kernel(), launch, &mut arguments);
        check_same(&to, expected.as_slice(), &format!("{}, {case}", step.kernel()));
    }

    #[test]
    fn the_kernels_have_the_cpus_bits() {
        each_case(|case| {
            let (x, values) = (&case.x, &case.values);
            let mut maxima = case.per_segment();
            fold(Fold::Greatest, &case.plan, x, &mut maxima).unwrap();
            check(case, SoftmaxPass::Exp { x, maxima: &maxima });
            check(case, SoftmaxPass::Divide { sums: values });
            check(case, SoftmaxPass::Product { y: x, d_y: x });
            check(case, SoftmaxPass::Backward { y: x, d_y: x, dots: values });
        });
    }
}
