//! Softmax of rows of few columns, as attention has a column a head. A segment has too few numbers
//! for vectors, and computing its exponentials takes longer than all the rest, so that those of
//! many segments are computed at a time. Arithmetic is that of [`softmax`](super).

use super::super::element::{Element, Float, Number};
use super::super::segments::Output;
use super::super::shared_rows::SharedRows;
use super::super::{Segments, Shape};
use super::Softmax;

/// Numbers of a segment from which on its exponentials are computed alone.
const ALONE: usize = 48;

/// Numbers of the rows of some segments that are computed at a time.
const GROUP: usize = 1024;

/// True if there is a form for so many columns.
#[inline(always)]
fn is_narrow(shape: Shape) -> bool {
    matches!(shape.columns, 1 | 2 | 4 | 8)
}

/// The row of `x` of this number.
#[inline(always)]
fn row<E, const COLUMNS: usize>(x: &[E], row: usize) -> &[E; COLUMNS] {
    x[row * COLUMNS..].first_chunk().expect("the row has as many columns")
}

/// Rows in segments, and the tensors of a forward pass.
#[derive(Clone, Copy)]
pub(super) struct NarrowSoftmax<'a, E> {
    pub(super) which: Softmax,
    pub(super) segments: &'a Segments<'a>,
    pub(super) shape: Shape,
    pub(super) x: &'a [E],
    pub(super) to: SharedRows<'a, E>,
}

impl<E: Element<Wide: Float>> NarrowSoftmax<'_, E> {
    /// Number of the next outputs, at most `most`, that are computed together; 0 where there is no
    /// form for so many columns, or the first has too many rows.
    #[inline(always)]
    pub(super) fn group_len(&self, mut at: Output, most: usize) -> usize {
        let mut numbers = 0;
        if !is_narrow(self.shape) {
            return 0;
        }
        for len in 0..most {
            let own = self.segments.places(at.segment).len() * self.shape.columns;
            numbers += own;
            if numbers > GROUP || own >= ALONE {
                return len;
            }
            at.step();
        }
        most
    }

    /// The forward pass of the next `len` outputs.
    #[inline(always)]
    pub(super) fn run(&self, at: Output, len: usize) {
        match self.shape.columns {
            1 => self.in_columns::<1>(at, len),
            2 => self.in_columns::<2>(at, len),
            4 => self.in_columns::<4>(at, len),
            _ => self.in_columns::<8>(at, len),
        }
    }

    #[inline(always)]
    fn in_columns<const COLUMNS: usize>(&self, at: Output, len: usize) {
        let mut shifted = [E::Wide::ZERO; GROUP];
        let numbers = self.shift::<COLUMNS>(at, len, &mut shifted);
        let padded = numbers.next_multiple_of(16).min(GROUP);
        let mut terms = shifted;
        for term in &mut terms[..padded] {
            *term = term.exponential();
        }
        match self.which {
            Softmax::Plain => self.write::<COLUMNS>(at, len, &terms, &terms),
            Softmax::Logarithm { .. } => self.write::<COLUMNS>(at, len, &shifted, &terms),
        }
    }

    /// Writes x − m of the next rows, where m is the greatest number of a segment; how many numbers
    /// they are.
    #[inline(always)]
    fn shift<const COLUMNS: usize>(&self, mut at: Output, len: usize, shifted: &mut [E::Wide; GROUP]) -> usize {
        let mut next = 0;
        for _ in 0..len {
            let first_row = at.batch * self.shape.rows;
            let mut maxima = [E::Wide::LEAST; COLUMNS];
            for place in self.segments.places(at.segment) {
                let x: &[E; COLUMNS] = row(self.x, first_row + self.segments.row(place));
                for k in 0..COLUMNS {
                    let x = x[k].widen();
                    maxima[k] = if (x > maxima[k]) | x.is_none() { x } else { maxima[k] };
                }
            }
            for place in self.segments.places(at.segment) {
                let x: &[E; COLUMNS] = row(self.x, first_row + self.segments.row(place));
                let to: &mut [E::Wide; COLUMNS] = shifted[next..].first_chunk_mut().expect("a group has the numbers");
                for k in 0..COLUMNS {
                    to[k] = x[k].widen().minus(maxima[k]);
                }
                next += COLUMNS;
            }
            at.step();
        }
        next
    }

    /// Writes the result of the next rows, of `from` and the sums of `terms`.
    #[inline(always)]
    #[allow(unsafe_code, reason = "rows are written in the order of a list")]
    fn write<const COLUMNS: usize>(
        &self,
        mut at: Output,
        len: usize,
        from: &[E::Wide; GROUP],
        terms: &[E::Wide; GROUP],
    ) {
        let mut next = 0;
        for _ in 0..len {
            let (first_row, places) = (at.batch * self.shape.rows, self.segments.places(at.segment));
            let own = next..next + places.len() * COLUMNS;
            next = own.end;
            let mut sums = [E::Wide::ZERO; COLUMNS];
            for row in terms[own.clone()].as_chunks::<COLUMNS>().0 {
                for k in 0..COLUMNS {
                    sums[k] = sums[k].plus(row[k]);
                }
            }
            if let Softmax::Logarithm { eps } = self.which {
                for sum in &mut sums {
                    *sum = sum.plus(E::Wide::from_f64(eps)).logarithm();
                }
            }
            for (place, x) in places.zip(from[own].as_chunks::<COLUMNS>().0) {
                // SAFETY: the row is in this segment alone, and a segment is one task's.
                let y = unsafe { self.to.row(first_row + self.segments.row(place)) };
                for k in 0..COLUMNS {
                    y[k] =
                        E::narrow(if self.which == Softmax::Plain { x[k].over(sums[k]) } else { x[k].minus(sums[k]) });
                }
            }
            at.step();
        }
    }
}

/// Rows in segments, and the tensors of a backward pass.
#[derive(Clone, Copy)]
pub(super) struct NarrowGradient<'a, E> {
    pub(super) which: Softmax,
    pub(super) segments: &'a Segments<'a>,
    pub(super) shape: Shape,
    pub(super) y: &'a [E],
    pub(super) d_y: &'a [E],
    pub(super) to: SharedRows<'a, E>,
}

impl<E: Element<Wide: Float>> NarrowGradient<'_, E> {
    /// The backward pass of an output; false, and nothing, where there is no form for so many
    /// columns, or it has too many rows.
    #[inline(always)]
    pub(super) fn run(&self, at: Output) -> bool {
        if !is_narrow(self.shape) || self.segments.places(at.segment).len() * self.shape.columns >= ALONE {
            return false;
        }
        match self.shape.columns {
            1 => self.in_columns::<1>(at),
            2 => self.in_columns::<2>(at),
            4 => self.in_columns::<4>(at),
            _ => self.in_columns::<8>(at),
        }
        true
    }

    #[inline(always)]
    #[allow(unsafe_code, reason = "rows are written in the order of a list")]
    fn in_columns<const COLUMNS: usize>(&self, at: Output) {
        let (first_row, mut sums) = (at.batch * self.shape.rows, [E::Wide::ZERO; COLUMNS]);
        for place in self.segments.places(at.segment) {
            let number = first_row + self.segments.row(place);
            let (y, d_y): (&[E; COLUMNS], &[E; COLUMNS]) = (row(self.y, number), row(self.d_y, number));
            for k in 0..COLUMNS {
                let d_y = d_y[k].widen();
                sums[k] = sums[k].plus(if self.which == Softmax::Plain { y[k].widen().times(d_y) } else { d_y });
            }
        }
        for place in self.segments.places(at.segment) {
            let number = first_row + self.segments.row(place);
            let (y, d_y): (&[E; COLUMNS], &[E; COLUMNS]) = (row(self.y, number), row(self.d_y, number));
            // SAFETY: the row is in this segment alone, and a segment is one task's.
            let d_x = unsafe { self.to.row(number) };
            for k in 0..COLUMNS {
                let (y, d_y) = (y[k].widen(), d_y[k].widen());
                d_x[k] = E::narrow(match self.which {
                    Softmax::Plain => y.times(d_y.minus(sums[k])),
                    Softmax::Logarithm { .. } => d_y.minus(y.exponential().times(sums[k])),
                });
            }
        }
    }
}
