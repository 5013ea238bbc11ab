//! Softmax and its logarithm over the rows of each segment, and their backward passes.

#![deny(unsafe_code)]

use std::ops::Range;

use super::element::{Element, Float, Number};
use super::parallel::prefetch;
use super::segments::SegmentLoop;
use super::shared_rows::SharedRows;
use super::{Schedule, Segments, Shape};
use crate::plan::PIECE;

/// Which of the two.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Softmax {
    /// exp(x − m) / Σ exp(x − m), where m is the segment's maximum.
    Plain,
    /// x − m − ln(Σ exp(x − m) + eps).
    Logarithm {
        /// Number that is added to the sum.
        eps: f64,
    },
}

/// Softmax of each segment's rows, each column for itself: `x` → `y`, both `[batches, rows,
/// columns]`. Rows without a segment have 0.
///
/// A NaN or +∞ in a segment makes its whole column NaN, and so does a column of −∞ only; a −∞
/// beside numbers has 0. Rows are summed in order, those of each 512 for themselves.
///
/// # Panics
/// If the lengths are not those of `shape`, and if a row is in two segments.
pub fn softmax<E: Element<Wide: Float>>(
    which: Softmax,
    segments: &Segments<'_>,
    shape: Shape,
    x: &[E],
    y: &mut [E],
    schedule: Schedule,
) {
    assert_eq!(x.len(), y.len(), "a result has as many numbers as its argument");
    let to = SharedRows::new(segments, shape, y);
    segments.run(shape, schedule, &Forward { which, rows: SegmentRows { segments, shape }, x, to });
}

/// The backward pass of [`softmax`]: `y`, which it gave, and `d_y` → `d_x`, all `[batches, rows,
/// columns]`: y (d_y − Σ y d_y), and d_y − exp(y) Σ d_y for the logarithm.
///
/// # Panics
/// As [`softmax`].
pub fn softmax_backward<E: Element<Wide: Float>>(
    which: Softmax,
    segments: &Segments<'_>,
    shape: Shape,
    y: &[E],
    d_y: &[E],
    d_x: &mut [E],
    schedule: Schedule,
) {
    assert!(y.len() == d_x.len() && d_y.len() == d_x.len(), "gradients are as long as what they belong to");
    let to = SharedRows::new(segments, shape, d_x);
    segments.run(shape, schedule, &Backward { which, rows: SegmentRows { segments, shape }, y, d_y, to });
}

/// Rows of segments in all batches.
#[derive(Clone, Copy)]
struct SegmentRows<'a> {
    segments: &'a Segments<'a>,
    shape: Shape,
}

impl SegmentRows<'_> {
    /// The row at a place of a batch, among those of all batches.
    #[inline(always)]
    fn row(&self, batch: usize, place: usize) -> usize {
        batch * self.shape.rows + self.segments.row(place)
    }

    /// `WIDTH` columns of a row of `x`.
    #[inline(always)]
    fn columns<'x, T, const WIDTH: usize>(&self, x: &'x [T], row: usize, first: usize) -> &'x [T; WIDTH] {
        x[row * self.shape.columns + first..].first_chunk().expect("the row has as many columns")
    }

    /// Prefetches the row that is as far behind `place` as a segment is long: the next segment's.
    #[inline(always)]
    fn prefetch_next<T>(&self, x: &[T], batch: usize, place: usize, len: usize) {
        let later = self.segments.order().and_then(|order| order.get(place + len));
        if let Some(&later) = later {
            let (row, columns) = (batch * self.shape.rows + later as usize, self.shape.columns);
            prefetch(&x[row * columns..][..columns]);
        }
    }
}

/// Sums over places, `WIDTH` numbers each: those of each piece, and then of the pieces.
#[inline(always)]
fn sums<N: Number, const WIDTH: usize>(places: Range<usize>, numbers: impl Fn(usize) -> [N; WIDTH]) -> [N; WIDTH] {
    let mut totals = [N::ZERO; WIDTH];
    for start in places.clone().step_by(PIECE as usize) {
        let mut piece = [N::ZERO; WIDTH];
        for place in start..places.end.min(start + PIECE as usize) {
            let numbers = numbers(place);
            piece.iter_mut().zip(numbers).for_each(|(sum, number)| *sum = sum.plus(number));
        }
        totals.iter_mut().zip(piece).for_each(|(total, piece)| *total = total.plus(piece));
    }
    totals
}

/// Calls a function of `WIDTH` columns from `first` on for all of `$columns`, as many at a time as
/// stay in registers.
macro_rules! in_tiles {
    ($columns:expr, $first:ident, $WIDTH:ident => $tile:expr) => {{
        let mut $first = 0;
        while $first < $columns {
            $first += match $columns - $first {
                64.. => in_tiles!(@one 64, $WIDTH => $tile),
                16.. => in_tiles!(@one 16, $WIDTH => $tile),
                8.. => in_tiles!(@one 8, $WIDTH => $tile),
                4.. => in_tiles!(@one 4, $WIDTH => $tile),
                _ => in_tiles!(@one 1, $WIDTH => $tile),
            };
        }
    }};
    (@one $width:literal, $WIDTH:ident => $tile:expr) => {{
        const $WIDTH: usize = $width;
        $tile;
        $width
    }};
}

struct Forward<'a, E> {
    which: Softmax,
    rows: SegmentRows<'a>,
    x: &'a [E],
    to: SharedRows<'a, E>,
}

impl<E: Element<Wide: Float>> SegmentLoop for Forward<'_, E> {
    #[inline(always)]
    fn run(&self, batch: usize, segment: usize) {
        let places = self.rows.segments.places(segment);
        in_tiles!(self.rows.shape.columns, first, WIDTH => self.tile::<WIDTH>(batch, places.clone(), first));
    }
}

impl<E: Element<Wide: Float>> Forward<'_, E> {
    #[inline(always)]
    #[allow(unsafe_code, reason = "rows are written in the order of a list")]
    fn tile<const WIDTH: usize>(&self, batch: usize, places: Range<usize>, first: usize) {
        let rows = self.rows;
        let x = |place| rows.columns::<E, WIDTH>(self.x, rows.row(batch, place), first);
        // SAFETY: the row is in this segment alone, and a segment is one task's; a row is written
        // before the next one is asked for.
        let y = |place| unsafe { self.to.row(rows.row(batch, place)) };
        let mut maxima = [E::Wide::LEAST; WIDTH];
        for place in places.clone() {
            if first == 0 {
                rows.prefetch_next(self.x, batch, place, places.len());
            }
            for (maximum, x) in maxima.iter_mut().zip(x(place)) {
                let x = x.widen();
                *maximum = if (x > *maximum) | x.is_none() { x } else { *maximum };
            }
        }
        let terms = |place| {
            let (x, mut terms) = (x(place), [E::Wide::ZERO; WIDTH]);
            for k in 0..WIDTH {
                terms[k] = x[k].widen().minus(maxima[k]).exponential();
            }
            terms
        };
        // A type that sums are formed in keeps the terms; the others would round them.
        let keeps_terms = size_of::<E>() == size_of::<E::Wide>();
        let sums = sums(places.clone(), |place| {
            let terms = terms(place);
            if keeps_terms && self.which == Softmax::Plain {
                y(place)[first..][..WIDTH].iter_mut().zip(terms).for_each(|(y, term)| *y = E::narrow(term));
            }
            terms
        });
        let Softmax::Logarithm { eps } = self.which else {
            for place in places {
                let y = &mut y(place)[first..][..WIDTH];
                let mut terms = terms_or(keeps_terms, y, || terms(place));
                for k in 0..WIDTH {
                    terms[k] = terms[k].over(sums[k]);
                    y[k] = E::narrow(terms[k]);
                }
            }
            return;
        };
        let logarithms = sums.map(|sum| sum.plus(E::Wide::from_f64(eps)).logarithm());
        for place in places {
            let (x, y) = (x(place), &mut y(place)[first..][..WIDTH]);
            for k in 0..WIDTH {
                y[k] = E::narrow(x[k].widen().minus(maxima[k]).minus(logarithms[k]));
            }
        }
    }
}

/// The terms that `y` keeps, or others.
#[inline(always)]
fn terms_or<E: Element, const WIDTH: usize>(
    keeps_terms: bool,
    y: &[E],
    terms: impl FnOnce() -> [E::Wide; WIDTH],
) -> [E::Wide; WIDTH] {
    if !keeps_terms {
        return terms();
    }
    let mut kept = [E::Wide::ZERO; WIDTH];
    kept.iter_mut().zip(y).for_each(|(kept, y)| *kept = y.widen());
    kept
}

struct Backward<'a, E> {
    which: Softmax,
    rows: SegmentRows<'a>,
    y: &'a [E],
    d_y: &'a [E],
    to: SharedRows<'a, E>,
}

impl<E: Element<Wide: Float>> SegmentLoop for Backward<'_, E> {
    #[inline(always)]
    fn run(&self, batch: usize, segment: usize) {
        let places = self.rows.segments.places(segment);
        in_tiles!(self.rows.shape.columns, first, WIDTH => self.tile::<WIDTH>(batch, places.clone(), first));
    }
}

impl<E: Element<Wide: Float>> Backward<'_, E> {
    #[inline(always)]
    #[allow(unsafe_code, reason = "rows are written in the order of a list")]
    fn tile<const WIDTH: usize>(&self, batch: usize, places: Range<usize>, first: usize) {
        let rows = self.rows;
        let columns = |x, place| rows.columns::<E, WIDTH>(x, rows.row(batch, place), first);
        let sums = sums(places.clone(), |place| {
            if first == 0 {
                rows.prefetch_next(self.y, batch, place, places.len());
                rows.prefetch_next(self.d_y, batch, place, places.len());
            }
            let (y, d_y) = (columns(self.y, place), columns(self.d_y, place));
            let mut terms = [E::Wide::ZERO; WIDTH];
            for k in 0..WIDTH {
                let d_y = d_y[k].widen();
                terms[k] = if self.which == Softmax::Plain { y[k].widen().times(d_y) } else { d_y };
            }
            terms
        });
        for place in places {
            let (y, d_y) = (columns(self.y, place), columns(self.d_y, place));
            // SAFETY: the row is in this segment alone, and a segment is one task's; a row is
            // written before the next one is asked for.
            let d_x = unsafe { self.to.row(rows.row(batch, place)) };
            let d_x = &mut d_x[first..][..WIDTH];
            for k in 0..WIDTH {
                let (y, d_y) = (y[k].widen(), d_y[k].widen());
                d_x[k] = E::narrow(match self.which {
                    Softmax::Plain => y.times(d_y.minus(sums[k])),
                    Softmax::Logarithm { .. } => d_y.minus(y.exponential().times(sums[k])),
                });
            }
        }
    }
}
