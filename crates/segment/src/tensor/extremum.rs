//! Maxima and minima of segments with the rows that they were found in, and the backward pass.

use std::marker::PhantomData;
use std::ops::Range;

use megabatch_gpu_core::isa::{Isa, Loops};

use super::element::{Element, Number};
use super::levels::levels;
use super::parallel::{ColumnTile, Contiguous, Indexed, PREFETCH_ROWS, RowLists, RowOrder};
use super::segments::{Output, SegmentLoop};
use super::shared_rows::SharedRows;
use super::{Schedule, Segments, Shape};

/// Which end of the order of numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extremum {
    /// The greatest.
    Max,
    /// The least.
    Min,
}

/// Results of `extremum`, both `[batches, segments, columns]`.
#[derive(Debug)]
pub struct ExtremumOutput<'a, E> {
    /// The extrema.
    pub values: &'a mut [E],
    /// The row of each, or the number of rows where none has it.
    pub arguments: &'a mut [i64],
}

/// `extremum` of one type of numbers.
pub(super) fn extremum_rows<E: Element>(
    which: Extremum,
    segments: &Segments<'_>,
    shape: Shape,
    x: &[E],
    base: Option<&[E]>,
    out: ExtremumOutput<'_, E>,
    schedule: Schedule,
) {
    shape.assert(segments, x.len(), out.values.len());
    assert_eq!(out.arguments.len(), out.values.len(), "there is an argument for each value");
    assert!(base.is_none_or(|base| base.len() == out.values.len()), "the base is as long as the result");
    match which {
        Extremum::Max => in_levels::<Greater, E>(segments, shape, x, base, out, schedule),
        Extremum::Min => in_levels::<Less, E>(segments, shape, x, base, out, schedule),
    }
}

/// `extremum_backward` of one type of numbers.
pub(super) fn extremum_rows_backward<E: Element>(
    segments: &Segments<'_>,
    shape: Shape,
    arguments: &[i64],
    d_out: &[E],
    d_x: &mut [E],
    schedule: Schedule,
) {
    shape.assert(segments, d_x.len(), d_out.len());
    assert_eq!(arguments.len(), d_out.len(), "there is an argument for each number of the gradient");
    let to = SharedRows::new(segments, shape, d_x);
    segments.run(shape, schedule, &Backward { segments, shape, arguments, d_out, to });
}

/// Gradients of the rows of segments.
struct Backward<'a, E> {
    segments: &'a Segments<'a>,
    shape: Shape,
    arguments: &'a [i64],
    d_out: &'a [E],
    to: SharedRows<'a, E>,
}

impl<E: Element> SegmentLoop for Backward<'_, E> {
    #[inline(always)]
    #[allow(unsafe_code, reason = "rows are written in the order of a list")]
    fn run(&self, Output { batch, segment, .. }: Output, _most: usize) -> usize {
        let Shape { rows, columns, .. } = self.shape;
        let found = (batch * self.segments.len() + segment) * columns;
        let (arguments, d_out) = (&self.arguments[found..][..columns], &self.d_out[found..][..columns]);
        for place in self.segments.places(segment) {
            let row = self.segments.row(place);
            if let Some(&later) = self.segments.order().and_then(|order| order.get(place + PREFETCH_ROWS)) {
                self.to.prefetch(batch * rows + later as usize);
            }
            // SAFETY: the row is in this segment alone, and a segment is one task's.
            let d_x = unsafe { self.to.row(batch * rows + row) };
            for ((d_x, &argument), &d_out) in d_x.iter_mut().zip(arguments).zip(d_out) {
                *d_x = if argument == row as i64 { d_out } else { E::narrow(E::Wide::ZERO) };
            }
        }
        1
    }
}

/// One reduction after the other, until each segment has one row.
fn in_levels<B: Better, E: Element>(
    segments: &Segments<'_>,
    shape: Shape,
    x: &[E],
    base: Option<&[E]>,
    out: ExtremumOutput<'_, E>,
    schedule: Schedule,
) {
    let (none, levels) = (shape.rows as i64, levels(segments.offsets()));
    let Some((last, pieces)) = levels.split_last() else {
        let from = Input { lists: segments.lists(), shape, x, found: None, base, none };
        return pass::<B, E>(from, out, schedule);
    };
    let (mut rows, mut values, mut found) = (shape.rows, Vec::<E>::new(), None::<Vec<i64>>);
    for (depth, offsets) in pieces.iter().enumerate() {
        let len = shape.batches * (offsets.len() - 1) * shape.columns;
        let (mut results, mut arguments) = (vec![E::zeroed(); len], vec![none; len]);
        let lists = RowLists { offsets, order: segments.order().filter(|_| depth == 0) };
        let x = if depth == 0 { x } else { &values };
        let from = Input { lists, shape: Shape { rows, ..shape }, x, found: found.as_deref(), base: None, none };
        pass::<B, E>(from, ExtremumOutput { values: &mut results, arguments: &mut arguments }, schedule);
        (rows, values, found) = (offsets.len() - 1, results, Some(arguments));
    }
    let lists = RowLists { offsets: last, order: None };
    let from = Input { lists, shape: Shape { rows, ..shape }, x: &values, found: found.as_deref(), base, none };
    pass::<B, E>(from, out, schedule);
}

/// Values and the rows they are in, `[batches, rows, columns]`. Without `found` each number's is
/// its own row.
#[derive(Clone, Copy)]
struct Input<'a, E> {
    lists: RowLists<'a>,
    shape: Shape,
    x: &'a [E],
    found: Option<&'a [i64]>,
    base: Option<&'a [E]>,
    /// The argument where no row has the extremum.
    none: i64,
}

/// One reduction.
fn pass<B: Better, E: Element>(from: Input<'_, E>, out: ExtremumOutput<'_, E>, schedule: Schedule) {
    let ExtremumOutput { values, arguments } = out;
    if values.is_empty() {
        return;
    }
    let columns = from.shape.columns;
    let outputs = from.lists.outputs_per_task(columns);
    let values = values.chunks_mut(outputs * columns);
    let tasks = values.zip(arguments.chunks_mut(outputs * columns)).enumerate();
    schedule.run(tasks, |(task, (values, arguments))| {
        let out = ExtremumOutput { values, arguments };
        Isa::best().run(ExtremumOutputs::<B, E> { first: task * outputs, from, out, better: PhantomData });
    });
}

/// Which of two numbers is kept.
trait Better: Send + Sync {
    /// True if `new`, from a later row, takes the place of `old`. A NaN takes that of every number,
    /// and keeps it.
    fn takes<N: Number>(new: N, old: N) -> bool;
}

struct Greater;

impl Better for Greater {
    #[inline(always)]
    fn takes<N: Number>(new: N, old: N) -> bool {
        (new > old) | (new.is_none() & !old.is_none())
    }
}

struct Less;

impl Better for Less {
    #[inline(always)]
    fn takes<N: Number>(new: N, old: N) -> bool {
        (new < old) | (new.is_none() & !old.is_none())
    }
}

/// Some of the outputs of a reduction, counted over all batches.
struct ExtremumOutputs<'a, B, E> {
    first: usize,
    from: Input<'a, E>,
    out: ExtremumOutput<'a, E>,
    better: PhantomData<B>,
}

impl<B: Better, E: Element> Loops for ExtremumOutputs<'_, B, E> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        match self.from.lists.order {
            None => self.in_order(Contiguous),
            Some(order) => self.in_order(Indexed(order)),
        }
    }
}

impl<B: Better, E: Element> ExtremumOutputs<'_, B, E> {
    #[inline(always)]
    fn in_order(self, order: impl RowOrder) {
        let Input { lists, shape: Shape { rows, columns, .. }, x, found, base, none } = self.from;
        let segments = lists.offsets.len() - 1;
        let to = self.out.values.chunks_exact_mut(columns).zip(self.out.arguments.chunks_exact_mut(columns));
        let mut at = Output::new(self.first, segments);
        for (output, (values, arguments)) in (self.first..).zip(to) {
            let (batch, places) = (at.batch, lists.range(at.segment));
            at.step();
            let base = base.map(|base| &base[output * columns..][..columns]);
            if places.is_empty() {
                arguments.fill(none);
                match base {
                    Some(base) => values.copy_from_slice(base),
                    None => values.fill(E::zeroed()),
                }
                continue;
            }
            let part = batch * rows * columns..(batch + 1) * rows * columns;
            one::<B, E>(order, places, &x[part.clone()], values, arguments);
            if let Some(found) = found {
                let found = &found[part];
                for (column, argument) in arguments.iter_mut().enumerate() {
                    *argument = found[*argument as usize * columns + column];
                }
            }
            if let Some(base) = base {
                for ((value, argument), &base) in values.iter_mut().zip(arguments).zip(base) {
                    // A piece of an empty segment has no row either.
                    let takes = *argument != none && B::takes(value.widen(), base.widen());
                    (*value, *argument) = if takes { (*value, *argument) } else { (base, none) };
                }
            }
        }
    }
}

/// One output, `[columns]` of values and of arguments, which are rows of `x`. Columns are taken as
/// many at a time as stay in registers from row to row.
#[inline(always)]
fn one<B: Better, E: Element>(
    order: impl RowOrder,
    places: Range<usize>,
    x: &[E],
    values: &mut [E],
    arguments: &mut [i64],
) {
    let (columns, mut first) = (values.len(), 0);
    while first < columns {
        let (from, places) = (ColumnTile { x, columns, first }, places.clone());
        let (values, arguments) = (&mut values[first..], &mut arguments[first..]);
        first += match columns - first {
            64.. => tile::<B, E, 64>(order, places, from, values, arguments),
            16.. => tile::<B, E, 16>(order, places, from, values, arguments),
            4.. => tile::<B, E, 4>(order, places, from, values, arguments),
            _ => tile::<B, E, 1>(order, places, from, values, arguments),
        };
    }
}

#[inline(always)]
fn tile<B: Better, E: Element, const WIDTH: usize>(
    order: impl RowOrder,
    mut places: Range<usize>,
    from: ColumnTile<'_, E>,
    values: &mut [E],
    arguments: &mut [i64],
) -> usize {
    let start = places.next().expect("the caller has seen one");
    let (mut best, mut rows) = ([E::Wide::ZERO; WIDTH], [order.row(start) as u32; WIDTH]);
    best.iter_mut().zip(from.row::<WIDTH>(order, start)).for_each(|(best, x)| *best = x.widen());
    for place in places {
        let (x, row) = (from.row::<WIDTH>(order, place), order.row(place) as u32);
        for k in 0..WIDTH {
            let x = x[k].widen();
            let takes = B::takes(x, best[k]);
            best[k] = if takes { x } else { best[k] };
            rows[k] = if takes { row } else { rows[k] };
        }
    }
    values[..WIDTH].iter_mut().zip(best).for_each(|(value, best)| *value = E::narrow(best));
    arguments[..WIDTH].iter_mut().zip(rows).for_each(|(argument, row)| *argument = row.into());
    WIDTH
}
