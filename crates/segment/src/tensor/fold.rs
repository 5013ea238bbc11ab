//! Sums, means and products of segments.

use std::marker::PhantomData;
use std::ops::Range;

use megabatch_gpu_core::isa::{Isa, Loops};

use super::element::{Element, Number};
use super::levels::levels;
use super::parallel::{ColumnTile, Contiguous, Indexed, RowLists, RowOrder};
use super::segments::Output;
use super::{Schedule, Segments, Shape};

/// Fold of the rows of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fold {
    /// The sum; 0 of no rows.
    Sum,
    /// The sum divided by the number of rows, or by 1 where there are none.
    Mean,
    /// The product; 1 of no rows.
    Product,
}

/// `fold` of one type of numbers.
pub(super) fn fold_rows<E: Element>(
    fold: Fold,
    segments: &Segments<'_>,
    shape: Shape,
    x: &[E],
    base: Option<&[E]>,
    out: &mut [E],
    schedule: Schedule,
) {
    shape.assert(segments, x.len(), out.len());
    assert!(base.is_none_or(|base| base.len() == out.len()), "the base is as long as the result");
    let counts = (fold == Fold::Mean).then(|| segments.offsets());
    let end = Finish { base, counts };
    match fold {
        Fold::Sum | Fold::Mean => in_levels::<Sum, E>(segments, shape, x, end, out, schedule),
        Fold::Product => in_levels::<Product, E>(segments, shape, x, end, out, schedule),
    }
}

/// Last steps of a result.
#[derive(Clone, Copy)]
struct Finish<'a, E> {
    /// Numbers that the results are combined with.
    base: Option<&'a [E]>,
    /// Offsets whose differences the results are divided by.
    counts: Option<&'a [u32]>,
}

impl<E> Finish<'_, E> {
    fn none() -> Self {
        Finish { base: None, counts: None }
    }
}

/// One reduction after the other, until each segment has one row.
fn in_levels<C: Combine<E::Wide>, E: Element>(
    segments: &Segments<'_>,
    shape: Shape,
    x: &[E],
    end: Finish<'_, E>,
    out: &mut [E],
    schedule: Schedule,
) {
    let levels = levels(segments.offsets());
    let Some((last, pieces)) = levels.split_last() else {
        return pass::<C, E, E>(segments.lists(), shape, x, end, out, schedule);
    };
    let numbers = |offsets: &[u32]| vec![E::Wide::ZERO; shape.batches * (offsets.len() - 1) * shape.columns];
    let (mut rows, mut partial) = (shape.rows, Vec::<E::Wide>::new());
    for (depth, offsets) in pieces.iter().enumerate() {
        let (mut results, level) = (numbers(offsets), Shape { rows, ..shape });
        if depth == 0 {
            let lists = RowLists { offsets, order: segments.order() };
            pass::<C, E, E::Wide>(lists, level, x, Finish::none(), &mut results, schedule);
        } else {
            let lists = RowLists { offsets, order: None };
            pass::<C, E::Wide, E::Wide>(lists, level, &partial, Finish::none(), &mut results, schedule);
        }
        (rows, partial) = (offsets.len() - 1, results);
    }
    let lists = RowLists { offsets: last, order: None };
    pass::<C, E::Wide, E>(lists, Shape { rows, ..shape }, &partial, end, out, schedule);
}

/// One reduction of `x`, `[batches, rows, columns]`, to `out`, `[batches, outputs, columns]`.
fn pass<C: Combine<In::Wide>, In: Element, Out: Element<Wide = In::Wide>>(
    lists: RowLists<'_>,
    shape: Shape,
    x: &[In],
    end: Finish<'_, Out>,
    out: &mut [Out],
    schedule: Schedule,
) {
    if out.is_empty() {
        return;
    }
    let outputs = lists.outputs_per_task(shape.columns);
    let tasks = out.chunks_mut(outputs * shape.columns).enumerate();
    schedule.run(tasks, |(task, out)| {
        let combine = PhantomData;
        Isa::best().run(FoldOutputs::<C, In, Out> { first: task * outputs, lists, shape, x, end, out, combine });
    });
}

/// Some of the outputs of a reduction, counted over all batches.
struct FoldOutputs<'a, C, In, Out> {
    first: usize,
    lists: RowLists<'a>,
    shape: Shape,
    x: &'a [In],
    end: Finish<'a, Out>,
    out: &'a mut [Out],
    combine: PhantomData<C>,
}

impl<C: Combine<In::Wide>, In: Element, Out: Element<Wide = In::Wide>> Loops for FoldOutputs<'_, C, In, Out> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        match self.lists.order {
            None => self.in_order(Contiguous),
            Some(order) => self.in_order(Indexed(order)),
        }
    }
}

impl<C: Combine<In::Wide>, In: Element, Out: Element<Wide = In::Wide>> FoldOutputs<'_, C, In, Out> {
    #[inline(always)]
    fn in_order(self, order: impl RowOrder) {
        let Shape { rows, columns, .. } = self.shape;
        let segments = self.lists.offsets.len() - 1;
        let mut at = Output::new(self.first, segments);
        for (output, out) in (self.first..).zip(self.out.chunks_exact_mut(columns)) {
            let Output { batch, segment, .. } = at;
            at.step();
            let x = &self.x[batch * rows * columns..][..rows * columns];
            let base = self.end.base.map(|base| &base[output * columns..][..columns]);
            let count = self.end.counts.map(|counts| (counts[segment + 1] - counts[segment]).max(1));
            one::<C, In, Out>(order, self.lists.range(segment), x, base, count, out);
        }
    }
}

/// Combination of two numbers.
trait Combine<N> {
    const IDENTITY: N;

    fn combine(a: N, b: N) -> N;
}

struct Sum;

impl<N: Number> Combine<N> for Sum {
    const IDENTITY: N = N::ZERO;

    #[inline(always)]
    fn combine(a: N, b: N) -> N {
        a.plus(b)
    }
}

struct Product;

impl<N: Number> Combine<N> for Product {
    const IDENTITY: N = N::ONE;

    #[inline(always)]
    fn combine(a: N, b: N) -> N {
        a.times(b)
    }
}

/// One output, `[columns]`. Columns are taken as many at a time as stay in registers from row to
/// row.
#[inline(always)]
fn one<C: Combine<In::Wide>, In: Element, Out: Element<Wide = In::Wide>>(
    order: impl RowOrder,
    places: Range<usize>,
    x: &[In],
    base: Option<&[Out]>,
    count: Option<u32>,
    out: &mut [Out],
) {
    let (columns, mut first) = (out.len(), 0);
    while first < columns {
        let (from, places) = (ColumnTile { x, columns, first }, places.clone());
        let (base, out) = (base.map(|base| &base[first..]), &mut out[first..]);
        first += match columns - first {
            64.. => tile::<C, In, Out, 64>(order, places, from, base, count, out),
            16.. => tile::<C, In, Out, 16>(order, places, from, base, count, out),
            4.. => tile::<C, In, Out, 4>(order, places, from, base, count, out),
            _ => tile::<C, In, Out, 1>(order, places, from, base, count, out),
        };
    }
}

#[inline(always)]
fn tile<C: Combine<In::Wide>, In: Element, Out: Element<Wide = In::Wide>, const WIDTH: usize>(
    order: impl RowOrder,
    places: Range<usize>,
    from: ColumnTile<'_, In>,
    base: Option<&[Out]>,
    count: Option<u32>,
    out: &mut [Out],
) -> usize {
    let mut results = [C::IDENTITY; WIDTH];
    for place in places {
        let x = from.row::<WIDTH>(order, place);
        results.iter_mut().zip(x).for_each(|(result, &x)| *result = C::combine(*result, x.widen()));
    }
    if let Some(base) = base {
        results.iter_mut().zip(base).for_each(|(result, &base)| *result = C::combine(base.widen(), *result));
    }
    if let Some(count) = count {
        results.iter_mut().for_each(|result| *result = result.over_count(count));
    }
    out[..WIDTH].iter_mut().zip(results).for_each(|(out, result)| *out = Out::narrow(result));
    WIDTH
}
