//! Maxima and minima of segments, with the rows that they were found in.

use megabatch_gpu_core::kernel::{Kernel, Launch};
use megabatch_gpu_core::{Buffer, Cuda, Device, arguments};

use crate::error::Result;
use crate::plan::{ReductionLevel, SegmentPlan};
use crate::tensor::extremum::{Greater, Input, Less, pass as reduce};
use crate::tensor::parallel::RowLists;
use crate::tensor::{Extremum, ExtremumOutput, Schedule, Shape};

fn kernel_name(which: Extremum) -> &'static str {
    match which {
        Extremum::Max => "segment_max",
        Extremum::Min => "segment_min",
    }
}

/// The greatest of each segment's rows in each column, and which row it is in: `x` `[rows, D]` →
/// `out` and `argument` `[segments, D]`.
///
/// Among equal values the argument is the first row. A NaN is greater than all numbers, and the
/// first is the argument. An empty segment has 0 and, as argument, the number of rows, which no row
/// has.
///
/// Values are those of `torch.zeros(segments, D).scatter_reduce(0, index, x, "amax",
/// include_self=False)`; arguments, and what stands for an empty segment, those of
/// `torch_scatter.scatter_max`, which does not see NaN, however.
///
/// # Errors
/// As [`sum`](super::sum()).
///
/// # Panics
/// As [`sum`](super::sum()).
pub fn max(plan: &SegmentPlan, x: &Buffer<f32>, out: &mut Buffer<f32>, argument: &mut Buffer<u32>) -> Result<()> {
    extremum(Extremum::Max, plan, x, out, argument)
}

/// The least of each segment's rows in each column, and which row it is in. As [`max`], with less
/// for greater; a NaN is less than all numbers.
///
/// # Errors
/// As [`max`].
///
/// # Panics
/// As [`max`].
pub fn min(plan: &SegmentPlan, x: &Buffer<f32>, out: &mut Buffer<f32>, argument: &mut Buffer<u32>) -> Result<()> {
    extremum(Extremum::Min, plan, x, out, argument)
}

/// Values and the rows they are in, `[rows, columns]`. Without arguments each number's is its own
/// row.
#[derive(Clone, Copy)]
struct ExtremumInput<'a> {
    x: &'a Buffer<f32>,
    argument: Option<&'a Buffer<u32>>,
    columns: usize,
    /// The argument of an empty segment.
    none: u32,
}

/// One reduction after the other, until each segment has one row.
fn extremum(
    which: Extremum,
    plan: &SegmentPlan,
    x: &Buffer<f32>,
    out: &mut Buffer<f32>,
    argument: &mut Buffer<u32>,
) -> Result<()> {
    let columns = plan.columns(x.len(), out.len());
    assert_eq!(argument.len(), out.len(), "there is an argument for each value");
    plan.device().assert_beside(x.scope().device());
    plan.device().assert_beside(out.scope().device());
    plan.device().assert_beside(argument.scope().device());
    let (last, mut partial) = (plan.levels().len() - 1, None::<(Buffer<f32>, Buffer<u32>)>);
    for (depth, level) in plan.levels().enumerate() {
        let (x, found) = partial.as_ref().map_or((x, None), |(x, argument)| (x, Some(argument)));
        let from = ExtremumInput { x, argument: found, columns, none: plan.rows() as u32 };
        if depth == last {
            return pass(which, level, from, out, argument);
        }
        let len = (level.offsets.len() - 1) * columns;
        let (mut pieces, mut arguments) = (Buffer::zeros(out.scope(), len)?, Buffer::zeros(out.scope(), len)?);
        pass(which, level, from, &mut pieces, &mut arguments)?;
        partial = Some((pieces, arguments));
    }
    Ok(())
}

fn pass(
    which: Extremum,
    level: ReductionLevel<'_>,
    from: ExtremumInput<'_>,
    out: &mut Buffer<f32>,
    argument: &mut Buffer<u32>,
) -> Result<()> {
    match out.scope().device().clone() {
        Device::Cuda(device) => cuda(&device, which, level, from, out, argument),
        _ => {
            cpu(which, level, from, ExtremumOutput { values: out.as_mut_slice(), arguments: argument.as_mut_slice() });
            Ok(())
        }
    }
}

fn cuda(
    device: &Cuda,
    which: Extremum,
    level: ReductionLevel<'_>,
    from: ExtremumInput<'_>,
    out: &mut Buffer<f32>,
    argument: &mut Buffer<u32>,
) -> Result<()> {
    let kernel =
        Kernel { module: "segment/extremum", ptx: megabatch_gpu_core::ptx!("extremum"), name: kernel_name(which) };
    let arguments = arguments![
        level.offsets.address(),
        level.order.map_or(0, Buffer::address),
        from.x.address(),
        from.argument.map_or(0, Buffer::address),
        out.address(),
        argument.address(),
        from.none,
        from.columns as u64,
        out.len() as u64,
    ];
    // SAFETY: the plan's offsets end with the number of its rows, its order has no row beyond them,
    // and the arrays have as many rows and outputs of `columns`; a thread writes one number of each
    // output. What is submitted to the default stream later runs after it.
    Ok(unsafe { kernel.submit(device, Launch::for_threads(out.len()), &arguments) }?)
}

fn cpu(which: Extremum, level: ReductionLevel<'_>, from: ExtremumInput<'_>, out: ExtremumOutput<'_, f32, u32>) {
    let lists = RowLists { offsets: level.offsets.as_slice(), order: level.order.map(Buffer::as_slice) };
    let (x, columns) = (from.x.as_slice(), from.columns);
    let shape = Shape { batches: 1, rows: x.len() / columns.max(1), columns };
    let input = Input { lists, shape, x, found: from.argument.map(Buffer::as_slice), base: None, none: from.none };
    match which {
        Extremum::Max => reduce::<Greater, f32, u32>(input, out, Schedule::Pool),
        Extremum::Min => reduce::<Less, f32, u32>(input, out, Schedule::Pool),
    }
}

#[cfg(test)]
mod tests {
    use megabatch_simt::Arg;

    use super::super::harness::{Case, HARNESS, check_same, each_case, sorted};
    use super::*;

    /// Every pass of the kernel, from rows to segments.
    fn by_kernel(which: Extremum, case: &Case) -> (Vec<f32>, Vec<u32>) {
        let (plan, columns) = (&case.plan, case.columns);
        let mut input = (case.x.as_slice().to_vec(), None::<Vec<u32>>);
        for level in plan.levels() {
            let len = (level.offsets.len() - 1) * columns;
            let (mut out, mut argument) = (vec![f32::NAN; len], vec![7; len]);
            let mut arguments = [
                Arg::from(level.offsets.as_slice()),
                level.order.map_or(Arg::null(), |order| Arg::from(order.as_slice())),
                Arg::from(&input.0[..]),
                input.1.as_ref().map_or(Arg::null(), |argument| Arg::from(&argument[..])),
                Arg::from(&mut out[..]),
                Arg::from(&mut argument[..]),
                Arg::from(plan.rows() as u32),
                Arg::from(columns as u64),
                Arg::from(len as u64),
            ];
            HARNESS.run(kernel_name(which), Launch::for_threads(len), &mut arguments);
            input = (out, Some(argument));
        }
        (input.0, input.1.unwrap())
    }

    #[test]
    fn the_kernels_have_the_cpus_bits() {
        each_case(|case| {
            for which in [Extremum::Max, Extremum::Min] {
                let (mut out, mut argument) = (case.per_segment(), case.arguments());
                extremum(which, &case.plan, &case.x, &mut out, &mut argument).unwrap();
                let (values, arguments) = by_kernel(which, case);
                check_same(&values, out.as_slice(), &format!("{which:?}, {case}"));
                assert_eq!(arguments, argument.as_slice(), "{which:?}, {case}");
            }
        });
    }

    /// 599 empty segments and one of two pieces, the second of which has the number that stands for
    /// no row.
    #[test]
    fn a_piece_is_not_taken_for_no_row() {
        let mut offsets = vec![0u32; 600];
        offsets.push(600);
        let scope = Device::cpu().scope("test");
        let mut case = Case::new("empty ones first", sorted(&scope, &offsets), 1);
        case.x.as_mut_slice().iter_mut().zip(0..).for_each(|(x, row)| *x = row as f32);
        let (mut out, mut argument) = (case.per_segment(), case.arguments());
        max(&case.plan, &case.x, &mut out, &mut argument).unwrap();
        assert_eq!((out.as_slice()[599], argument.as_slice()[599]), (599.0, 599));
        assert_eq!((out.as_slice()[0], argument.as_slice()[0]), (0.0, 600));
        assert_eq!(by_kernel(Extremum::Max, &case), (out.as_slice().to_vec(), argument.as_slice().to_vec()));
    }
}
