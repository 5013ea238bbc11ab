//! Sums and means of segments, and the maxima that softmax needs.

use megabatch_gpu_core::kernel::{Kernel, Launch};
use megabatch_gpu_core::{Buffer, Cuda, Device, arguments};

use crate::error::Result;
use crate::plan::{ReductionLevel, SegmentPlan};
use crate::tensor::fold::{Combine, Finish, Sum, pass as reduce};
use crate::tensor::parallel::RowLists;
use crate::tensor::{Schedule, Shape};

/// Fold of the rows of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fold {
    Sum,
    /// The sum divided by the number of rows, or by 1 where there are none.
    Mean,
    /// −∞ where there are no rows, NaN where there is one among them.
    Greatest,
}

impl Fold {
    fn kernel(self) -> &'static str {
        match self {
            Fold::Sum | Fold::Mean => "segment_sum",
            Fold::Greatest => "segment_greatest",
        }
    }
}

/// The sum of each segment's rows: `x` `[rows, D]` → `out` `[segments, D]`. An empty segment's is
/// 0; a NaN makes the sum NaN.
///
/// As `torch.zeros(segments, D).scatter_reduce(0, index, x, "sum")`; up to 512 rows are added in
/// the same order.
///
/// # Errors
/// [`Error::Device`](crate::Error::Device): what the device says of the launch; where a segment has
/// more than 512 rows, that there is no memory for intermediate results, which are on the scope of
/// `out`.
///
/// # Panics
/// If the lengths are not those of one number of columns, and if the arrays are on several devices.
pub fn sum(plan: &SegmentPlan, x: &Buffer<f32>, out: &mut Buffer<f32>) -> Result<()> {
    fold(Fold::Sum, plan, x, out)
}

/// The mean of each segment's rows: `x` `[rows, D]` → `out` `[segments, D]`. An empty segment's is
/// 0; a NaN makes the mean NaN.
///
/// As `torch.zeros(segments, D).scatter_reduce(0, index, x, "mean", include_self=False)`.
///
/// # Errors
/// As [`sum`].
///
/// # Panics
/// As [`sum`].
pub fn mean(plan: &SegmentPlan, x: &Buffer<f32>, out: &mut Buffer<f32>) -> Result<()> {
    fold(Fold::Mean, plan, x, out)
}

/// One reduction after the other, until each segment has one row.
pub(super) fn fold(fold: Fold, plan: &SegmentPlan, x: &Buffer<f32>, out: &mut Buffer<f32>) -> Result<()> {
    let columns = plan.columns(x.len(), out.len());
    plan.device().assert_beside(x.scope().device());
    plan.device().assert_beside(out.scope().device());
    let (last, mut partial) = (plan.levels().len() - 1, None::<Buffer<f32>>);
    for (depth, level) in plan.levels().enumerate() {
        let input = partial.as_ref().unwrap_or(x);
        if depth == last {
            let counts = (fold == Fold::Mean).then(|| plan.offsets());
            return pass(fold, level, input, columns, out, counts);
        }
        let mut pieces = Buffer::zeros(out.scope(), (level.offsets.len() - 1) * columns)?;
        pass(fold, level, input, columns, &mut pieces, None)?;
        partial = Some(pieces);
    }
    Ok(())
}

/// One reduction of `x`, `[inputs, columns]`, to `out`, `[outputs, columns]`. With `counts`,
/// offsets of as many outputs, it is divided by the numbers of rows that they say.
fn pass(
    fold: Fold,
    level: ReductionLevel<'_>,
    x: &Buffer<f32>,
    columns: usize,
    out: &mut Buffer<f32>,
    counts: Option<&Buffer<u32>>,
) -> Result<()> {
    match out.scope().device().clone() {
        Device::Cuda(device) => cuda(&device, fold, level, x, columns, out, counts),
        _ => {
            let inputs = RowLists { offsets: level.offsets.as_slice(), order: level.order.map(Buffer::as_slice) };
            let counts = counts.map(Buffer::as_slice);
            cpu(fold, inputs, x.as_slice(), columns, out.as_mut_slice(), counts);
            Ok(())
        }
    }
}

fn cuda(
    device: &Cuda,
    fold: Fold,
    level: ReductionLevel<'_>,
    x: &Buffer<f32>,
    columns: usize,
    out: &mut Buffer<f32>,
    counts: Option<&Buffer<u32>>,
) -> Result<()> {
    let kernel = Kernel { module: "segment/fold", ptx: megabatch_gpu_core::ptx!("fold"), name: fold.kernel() };
    let arguments = arguments![
        level.offsets.address(),
        level.order.map_or(0, Buffer::address),
        x.address(),
        out.address(),
        counts.map_or(0, Buffer::address),
        columns as u64,
        out.len() as u64,
    ];
    // SAFETY: the plan's offsets end with the number of its rows, its order has no row beyond them,
    // and `x` and `out` have as many rows and outputs of `columns`; a thread writes one number of
    // `out`. What is submitted to the default stream later runs after it.
    Ok(unsafe { kernel.submit(device, Launch::for_threads(out.len()), &arguments) }?)
}

fn cpu(fold: Fold, inputs: RowLists<'_>, x: &[f32], columns: usize, out: &mut [f32], counts: Option<&[u32]>) {
    let shape = Shape { batches: 1, rows: x.len() / columns.max(1), columns };
    let end = Finish { base: None, counts };
    match fold {
        Fold::Sum | Fold::Mean => reduce::<Sum, f32, f32>(inputs, shape, x, end, out, Schedule::Pool),
        Fold::Greatest => reduce::<Greatest, f32, f32>(inputs, shape, x, end, out, Schedule::Pool),
    }
}

struct Greatest;

impl Combine<f32> for Greatest {
    const IDENTITY: f32 = f32::NEG_INFINITY;

    #[inline(always)]
    fn combine(a: f32, b: f32) -> f32 {
        if b > a || b.is_nan() { b } else { a }
    }
}

#[cfg(test)]
mod tests {
    use super::super::harness::{Case, check_same, each_case};
    use super::*;
    use megabatch_simt::Arg;

    /// Every pass of the kernel, from rows to segments.
    fn by_kernel(fold: Fold, case: &Case) -> Vec<f32> {
        let (plan, columns) = (&case.plan, case.columns);
        let (mut input, last) = (case.x.as_slice().to_vec(), plan.levels().len() - 1);
        for (depth, level) in plan.levels().enumerate() {
            let mut out = vec![f32::NAN; (level.offsets.len() - 1) * columns];
            let counts = (fold == Fold::Mean && depth == last).then(|| plan.offsets().as_slice());
            let (launch, len) = (Launch::for_threads(out.len()), out.len() as u64);
            let mut arguments = [
                Arg::from(level.offsets.as_slice()),
                level.order.map_or(Arg::null(), |order| Arg::from(order.as_slice())),
                Arg::from(&input[..]),
                Arg::from(&mut out[..]),
                counts.map_or(Arg::null(), Arg::from),
                Arg::from(columns as u64),
                Arg::from(len),
            ];
            super::super::harness::HARNESS.run(fold.kernel(), launch, &mut arguments);
            input = out;
        }
        input
    }

    #[test]
    fn the_kernels_have_the_cpus_bits() {
        each_case(|case| {
            for how in [Fold::Sum, Fold::Mean, Fold::Greatest] {
                let mut out = case.per_segment();
                fold(how, &case.plan, &case.x, &mut out).unwrap();
                check_same(&by_kernel(how, case), out.as_slice(), &format!("{how:?}, {case}"));
            }
        });
    }
}
