//! The operations, for each type of numbers. Their code is compiled with this crate, once and
//! optimised as it is, not in each crate that calls them.

use half::{bf16, f16};

use super::element::{Element, Float};
use super::extremum::{Extremum, ExtremumOutput, extremum_rows, extremum_rows_backward};
use super::fold::{Fold, fold_rows};
use super::gather::{RowSegments, Share, gather_rows};
use super::softmax::{Softmax, softmax_rows, softmax_rows_backward};
use super::{Schedule, Segments, Shape};

/// The fold of each segment's rows and, where `base` is given, of its number there: `x` `[batches,
/// rows, columns]` → `out` `[batches, segments, columns]`, as `base`. A mean with a base is the sum
/// of base and rows, divided by the number of rows.
///
/// # Panics
/// If the lengths are not those of `shape` and the segments.
pub fn fold<E: TensorElement>(
    fold: Fold,
    segments: &Segments<'_>,
    shape: Shape,
    x: &[E],
    base: Option<&[E]>,
    out: &mut [E],
    schedule: Schedule,
) {
    (E::operations().fold)(fold, segments, shape, x, base, out, schedule);
}

/// The extremum of each segment's rows and, where `base` is given, of its number there: `x`
/// `[batches, rows, columns]`, `base` as the results.
///
/// The argument is the first of equal rows. A NaN is beyond all numbers, and the first is the
/// argument. No row is the argument where the base is at least as good; an empty segment without
/// base has 0.
///
/// # Panics
/// If the lengths are not those of `shape` and the segments.
pub fn extremum<E: TensorElement>(
    which: Extremum,
    segments: &Segments<'_>,
    shape: Shape,
    x: &[E],
    base: Option<&[E]>,
    out: ExtremumOutput<'_, E>,
    schedule: Schedule,
) {
    (E::operations().extremum)(which, segments, shape, x, base, out, schedule);
}

/// The backward pass of [`extremum`]: `arguments` and `d_out` `[batches, segments, columns]` →
/// `d_x` `[batches, rows, columns]`, where the row that is the argument has all of the gradient and
/// the others 0.
///
/// # Panics
/// If the lengths are not those of `shape` and the segments, and if a row is in two segments.
pub fn extremum_backward<E: TensorElement>(
    segments: &Segments<'_>,
    shape: Shape,
    arguments: &[i64],
    d_out: &[E],
    d_x: &mut [E],
    schedule: Schedule,
) {
    (E::operations().extremum_backward)(segments, shape, arguments, d_out, d_x, schedule);
}

/// The row of each row's segment: `values` `[batches, segments, columns]` → `out` `[batches, rows,
/// columns]`. Rows without a segment have 0.
///
/// With [`Share::Whole`] it is the backward pass of a sum, with [`Share::Equal`] of a mean.
///
/// # Panics
/// If the lengths are not those of `shape` and the segments, and if an index is not below their
/// number.
pub fn gather<E: TensorElement>(
    share: Share,
    segments: &Segments<'_>,
    row_segments: RowSegments<'_>,
    shape: Shape,
    values: &[E],
    out: &mut [E],
    schedule: Schedule,
) {
    (E::operations().gather)(share, segments, row_segments, shape, values, out, schedule);
}

/// Softmax of each segment's rows, each column for itself: `x` → `y`, both `[batches, rows,
/// columns]`. Rows without a segment have 0.
///
/// A NaN or +∞ in a segment makes its whole column NaN, and so does a column of −∞ only.
/// A −∞ beside numbers has 0. Rows are summed in order, those of each 512 for themselves.
///
/// # Panics
/// If the lengths are not those of `shape`, and if a row is in two segments.
pub fn softmax<E: FloatElement>(
    which: Softmax,
    segments: &Segments<'_>,
    shape: Shape,
    x: &[E],
    y: &mut [E],
    schedule: Schedule,
) {
    (E::float_operations().softmax)(which, segments, shape, x, y, schedule);
}

/// The backward pass of [`softmax`]: `y`, which it gave, and `d_y` → `d_x`, all `[batches, rows,
/// columns]`: y (d_y − Σ y d_y), and d_y − exp(y) Σ d_y for the logarithm.
///
/// # Panics
/// As [`softmax`].
pub fn softmax_backward<E: FloatElement>(
    which: Softmax,
    segments: &Segments<'_>,
    shape: Shape,
    y: &[E],
    d_y: &[E],
    d_x: &mut [E],
    schedule: Schedule,
) {
    (E::float_operations().softmax_backward)(which, segments, shape, y, d_y, d_x, schedule);
}

type FoldRows<E> = fn(Fold, &Segments<'_>, Shape, &[E], Option<&[E]>, &mut [E], Schedule);
type ExtremumRows<E> = fn(Extremum, &Segments<'_>, Shape, &[E], Option<&[E]>, ExtremumOutput<'_, E>, Schedule);
type ExtremumRowsBackward<E> = fn(&Segments<'_>, Shape, &[i64], &[E], &mut [E], Schedule);
type GatherRows<E> = fn(Share, &Segments<'_>, RowSegments<'_>, Shape, &[E], &mut [E], Schedule);
type SoftmaxRows<E> = fn(Softmax, &Segments<'_>, Shape, &[E], &mut [E], Schedule);
type SoftmaxRowsBackward<E> = fn(Softmax, &Segments<'_>, Shape, &[E], &[E], &mut [E], Schedule);

/// Operations on numbers of a type.
#[derive(Debug)]
pub struct Operations<E> {
    pub(super) fold: FoldRows<E>,
    pub(super) extremum: ExtremumRows<E>,
    pub(super) extremum_backward: ExtremumRowsBackward<E>,
    pub(super) gather: GatherRows<E>,
}

/// Operations on floating-point numbers of a type.
#[derive(Debug)]
pub struct FloatOperations<E> {
    pub(super) softmax: SoftmaxRows<E>,
    pub(super) softmax_backward: SoftmaxRowsBackward<E>,
}

/// Type of numbers whose operations are compiled here.
pub trait TensorElement: Element {
    /// Its operations.
    fn operations() -> &'static Operations<Self>;
}

/// Floating-point type of numbers, whose operations are compiled here.
pub trait FloatElement: TensorElement<Wide: Float> {
    /// Its operations.
    fn float_operations() -> &'static FloatOperations<Self>;
}

macro_rules! compiled {
    ($($element:ident),*) => {
        $(impl TensorElement for $element {
            fn operations() -> &'static Operations<$element> {
                static OPERATIONS: Operations<$element> = Operations {
                    fold: fold_rows,
                    extremum: extremum_rows,
                    extremum_backward: extremum_rows_backward,
                    gather: gather_rows,
                };
                &OPERATIONS
            }
        })*
    };
}

compiled!(f16, bf16, f32, f64, i32, i64);

macro_rules! compiled_floats {
    ($($element:ident),*) => {
        $(impl FloatElement for $element {
            fn float_operations() -> &'static FloatOperations<$element> {
                static OPERATIONS: FloatOperations<$element> =
                    FloatOperations { softmax: softmax_rows, softmax_backward: softmax_rows_backward };
                &OPERATIONS
            }
        })*
    };
}

compiled_floats!(f16, bf16, f32, f64);
