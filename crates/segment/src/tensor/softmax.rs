//! Softmax and its logarithm over the rows of each segment, and their backward passes.

mod narrow;

use std::ops::Range;

use bytemuck::Pod;

use narrow::{NarrowGradient, NarrowSoftmax};

use super::PIECE;
use super::element::{Element, Float, Number};
use super::parallel::{Contiguous, Indexed, RowOrder, prefetch};
use super::segments::{Output, SegmentLoop};
use super::shared_rows::SharedRows;
use super::{Schedule, Segments, Shape};

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

/// `softmax` of one type of numbers.
pub(super) fn softmax_rows<E: Element<Wide: Float>>(
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

/// `softmax_backward` of one type of numbers.
pub(super) fn softmax_rows_backward<E: Element<Wide: Float>>(
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

/// The rows of one segment in one batch, in their order.
#[derive(Clone)]
struct Rows<O> {
    order: O,
    places: Range<usize>,
    /// The first row of the batch among those of all batches.
    first_row: usize,
    columns: usize,
}

impl<O: RowOrder> Rows<O> {
    /// The row at a place, among those of all batches.
    #[inline(always)]
    fn row(&self, place: usize) -> usize {
        self.first_row + self.order.row(place)
    }

    /// `WIDTH` columns of the row of `x` at a place.
    #[inline(always)]
    fn columns<'x, T, const WIDTH: usize>(&self, x: &'x [T], place: usize, first: usize) -> &'x [T; WIDTH] {
        x[self.row(place) * self.columns + first..].first_chunk().expect("the row has as many columns")
    }

    /// Prefetches the row of `x` that is as far behind `place` as the segment is long: the next
    /// segment's.
    #[inline(always)]
    fn prefetch_next<T>(&self, x: &[T], place: usize) {
        if let Some(later) = self.order.row_after(place, self.places.len()) {
            prefetch(&x[(self.first_row + later) * self.columns..][..self.columns]);
        }
    }

    /// As [`Rows::prefetch_next`], for a row that will be written.
    #[inline(always)]
    fn prefetch_next_written<T: Pod>(&self, to: &SharedRows<'_, T>, place: usize) {
        if let Some(later) = self.order.row_after(place, self.places.len()) {
            to.prefetch(self.first_row + later);
        }
    }

    /// Places of at most `len` rows each.
    #[inline(always)]
    fn blocks(&self, len: usize) -> impl Iterator<Item = Range<usize>> + use<O> {
        let Range { start, end } = self.places;
        (start..end).step_by(len).map(move |first| first..end.min(first + len))
    }
}

/// Numbers that are computed at a time: rows of few columns are too narrow for vectors.
const BLOCK: usize = 64;

/// Numbers of rows that are summed. No closure: compilers would leave it out of line, and so
/// without the instructions that its caller is compiled for.
trait Terms<N> {
    /// Writes the numbers of some places one after the other, `BLOCK` at most.
    fn write(&self, places: Range<usize>, block: &mut [N; BLOCK]);
}

/// Sums over places, `WIDTH` numbers each: those of each piece, and then of the pieces.
#[inline(always)]
fn sums<N: Number, O: RowOrder, const WIDTH: usize>(rows: &Rows<O>, terms: &impl Terms<N>) -> [N; WIDTH] {
    let (mut totals, mut piece, mut block) = ([N::ZERO; WIDTH], [N::ZERO; WIDTH], [N::ZERO; BLOCK]);
    for places in rows.blocks(BLOCK / WIDTH) {
        // A piece has a whole number of blocks.
        if places.start != rows.places.start && (places.start - rows.places.start).is_multiple_of(PIECE as usize) {
            totals.iter_mut().zip(&mut piece).for_each(|(total, piece)| *total = total.plus(*piece));
            piece = [N::ZERO; WIDTH];
        }
        let len = places.len();
        terms.write(places, &mut block);
        for row in block.chunks_exact(WIDTH).take(len) {
            piece.iter_mut().zip(row).for_each(|(sum, &number)| *sum = sum.plus(number));
        }
    }
    totals.iter_mut().zip(piece).for_each(|(total, piece)| *total = total.plus(piece));
    totals
}

/// Exponentials of the first `len` numbers, many at a time; of a few more where that is as fast.
#[inline(always)]
fn exponentials<N: Float>(block: &mut [N; BLOCK], len: usize) {
    let len = if size_of::<N>() == 4 { len.next_multiple_of(16).min(BLOCK) } else { len };
    block[..len].iter_mut().for_each(|x| *x = x.exponential());
}

/// Work on `WIDTH` columns of a segment from `first` on.
trait Tile {
    fn tile<O: RowOrder, const WIDTH: usize>(&self, rows: &Rows<O>, first: usize);
}

impl SegmentRows<'_> {
    /// Runs `tile` on all columns of a segment.
    #[inline(always)]
    fn run(&self, Output { batch, segment, .. }: Output, tile: &impl Tile) {
        let (places, columns) = (self.segments.places(segment), self.shape.columns);
        let first_row = batch * self.shape.rows;
        match self.segments.order() {
            None => in_tiles(&Rows { order: Contiguous, places, first_row, columns }, tile),
            Some(order) => in_tiles(&Rows { order: Indexed(order), places, first_row, columns }, tile),
        }
    }
}

/// Runs `tile` on as many columns at a time as stay in registers.
#[inline(always)]
fn in_tiles<O: RowOrder>(rows: &Rows<O>, tile: &impl Tile) {
    let mut first = 0;
    while first < rows.columns {
        let width = match rows.columns - first {
            64.. => 64,
            16.. => 16,
            8.. => 8,
            4.. => 4,
            _ => 1,
        };
        match width {
            64 => tile.tile::<O, 64>(rows, first),
            16 => tile.tile::<O, 16>(rows, first),
            8 => tile.tile::<O, 8>(rows, first),
            4 => tile.tile::<O, 4>(rows, first),
            _ => tile.tile::<O, 1>(rows, first),
        }
        first += width;
    }
}

struct Forward<'a, E> {
    which: Softmax,
    rows: SegmentRows<'a>,
    x: &'a [E],
    to: SharedRows<'a, E>,
}

impl<E: Element<Wide: Float>> SegmentLoop for Forward<'_, E> {
    #[inline(always)]
    fn run(&self, next: Output, most: usize) -> usize {
        let SegmentRows { segments, shape } = self.rows;
        let narrow = NarrowSoftmax { which: self.which, segments, shape, x: self.x, to: self.to };
        let len = narrow.group_len(next, most);
        if len > 0 {
            narrow.run(next, len);
            return len;
        }
        self.rows.run(next, self);
        1
    }
}

impl<'a, E: Element<Wide: Float>> Forward<'a, E> {
    /// A type that sums are formed in keeps the terms in the result until they are divided; the
    /// others would round them.
    const KEEPS_TERMS: bool = size_of::<E>() == size_of::<E::Wide>();

    /// `WIDTH` columns of a row of the result.
    #[inline(always)]
    #[allow(unsafe_code, reason = "rows are written in the order of a list")]
    fn y<O: RowOrder, const WIDTH: usize>(&self, rows: &Rows<O>, place: usize, first: usize) -> &'a mut [E; WIDTH] {
        // SAFETY: the row is in this segment alone, and a segment is one task's; a row is written
        // before the next one is asked for.
        let row = unsafe { self.to.row(rows.row(place)) };
        row[first..].first_chunk_mut().expect("the row has as many columns")
    }

    /// Writes exp(x − m) of some rows, `BLOCK` numbers at most.
    #[inline(always)]
    fn terms<O: RowOrder, const WIDTH: usize>(
        &self,
        rows: &Rows<O>,
        first: usize,
        maxima: &[E::Wide; WIDTH],
        places: Range<usize>,
        block: &mut [E::Wide; BLOCK],
    ) {
        let len = places.len() * WIDTH;
        for (place, terms) in places.zip(block.chunks_exact_mut(WIDTH)) {
            let x = rows.columns::<E, WIDTH>(self.x, place, first);
            for k in 0..WIDTH {
                terms[k] = x[k].widen().minus(maxima[k]);
            }
        }
        exponentials(block, len);
    }
}

/// The terms of softmax, which the result keeps.
struct ForwardTerms<'a, 'p, E: Element, O, const WIDTH: usize> {
    pass: &'a Forward<'p, E>,
    rows: &'a Rows<O>,
    first: usize,
    maxima: &'a [E::Wide; WIDTH],
}

impl<E: Element<Wide: Float>, O: RowOrder, const WIDTH: usize> Terms<E::Wide> for ForwardTerms<'_, '_, E, O, WIDTH> {
    #[inline(always)]
    fn write(&self, places: Range<usize>, block: &mut [E::Wide; BLOCK]) {
        self.pass.terms(self.rows, self.first, self.maxima, places.clone(), block);
        if Forward::<E>::KEEPS_TERMS && self.pass.which == Softmax::Plain {
            for (place, terms) in places.zip(block.chunks_exact(WIDTH)) {
                let y = self.pass.y::<O, WIDTH>(self.rows, place, self.first);
                y.iter_mut().zip(terms).for_each(|(y, &term)| *y = E::narrow(term));
            }
        }
    }
}

impl<E: Element<Wide: Float>> Tile for Forward<'_, E> {
    #[inline(always)]
    fn tile<O: RowOrder, const WIDTH: usize>(&self, rows: &Rows<O>, first: usize) {
        let mut maxima = [E::Wide::LEAST; WIDTH];
        for place in rows.places.clone() {
            if first == 0 {
                rows.prefetch_next(self.x, place);
                rows.prefetch_next_written(&self.to, place);
            }
            for (maximum, x) in maxima.iter_mut().zip(rows.columns::<E, WIDTH>(self.x, place, first)) {
                let x = x.widen();
                *maximum = if (x > *maximum) | x.is_none() { x } else { *maximum };
            }
        }
        let sums: [E::Wide; WIDTH] = sums(rows, &ForwardTerms { pass: self, rows, first, maxima: &maxima });
        if let Softmax::Logarithm { eps } = self.which {
            let eps = E::Wide::from_f64(eps);
            let logarithms = sums.map(|sum| sum.plus(eps).logarithm());
            for place in rows.places.clone() {
                let x = rows.columns::<E, WIDTH>(self.x, place, first);
                let y = self.y::<O, WIDTH>(rows, place, first);
                for k in 0..WIDTH {
                    y[k] = E::narrow(x[k].widen().minus(maxima[k]).minus(logarithms[k]));
                }
            }
        } else if Self::KEEPS_TERMS {
            for place in rows.places.clone() {
                let y = self.y::<O, WIDTH>(rows, place, first);
                for k in 0..WIDTH {
                    y[k] = E::narrow(y[k].widen().over(sums[k]));
                }
            }
        } else {
            let mut block = [E::Wide::ZERO; BLOCK];
            for places in rows.blocks(BLOCK / WIDTH) {
                self.terms(rows, first, &maxima, places.clone(), &mut block);
                for (place, terms) in places.zip(block.chunks_exact(WIDTH)) {
                    let y = self.y::<O, WIDTH>(rows, place, first);
                    for k in 0..WIDTH {
                        y[k] = E::narrow(terms[k].over(sums[k]));
                    }
                }
            }
        }
    }
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
    fn run(&self, next: Output, _most: usize) -> usize {
        let SegmentRows { segments, shape } = self.rows;
        let narrow = NarrowGradient { which: self.which, segments, shape, y: self.y, d_y: self.d_y, to: self.to };
        if !narrow.run(next) {
            self.rows.run(next, self);
        }
        1
    }
}

/// The terms of the sum in the gradient.
struct BackwardTerms<'a, 'p, E, O, const WIDTH: usize> {
    pass: &'a Backward<'p, E>,
    rows: &'a Rows<O>,
    first: usize,
}

impl<E: Element<Wide: Float>, O: RowOrder, const WIDTH: usize> Terms<E::Wide> for BackwardTerms<'_, '_, E, O, WIDTH> {
    #[inline(always)]
    fn write(&self, places: Range<usize>, block: &mut [E::Wide; BLOCK]) {
        let (pass, rows) = (self.pass, self.rows);
        for (place, terms) in places.zip(block.chunks_exact_mut(WIDTH)) {
            if self.first == 0 {
                rows.prefetch_next(pass.y, place);
                rows.prefetch_next(pass.d_y, place);
                rows.prefetch_next_written(&pass.to, place);
            }
            let y = rows.columns::<E, WIDTH>(pass.y, place, self.first);
            let d_y = rows.columns::<E, WIDTH>(pass.d_y, place, self.first);
            for k in 0..WIDTH {
                let d_y = d_y[k].widen();
                terms[k] = if pass.which == Softmax::Plain { y[k].widen().times(d_y) } else { d_y };
            }
        }
    }
}

impl<E: Element<Wide: Float>> Tile for Backward<'_, E> {
    #[inline(always)]
    #[allow(unsafe_code, reason = "rows are written in the order of a list")]
    fn tile<O: RowOrder, const WIDTH: usize>(&self, rows: &Rows<O>, first: usize) {
        let sums: [E::Wide; WIDTH] = sums(rows, &BackwardTerms::<E, O, WIDTH> { pass: self, rows, first });
        for place in rows.places.clone() {
            let y = rows.columns::<E, WIDTH>(self.y, place, first);
            let d_y = rows.columns::<E, WIDTH>(self.d_y, place, first);
            // SAFETY: the row is in this segment alone, and a segment is one task's; a row is
            // written before the next one is asked for.
            let d_x = &mut unsafe { self.to.row(rows.row(place)) }[first..][..WIDTH];
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
