//! A row for each row of the segment that it belongs to.

use std::iter::repeat_n;

use megabatch_gpu_core::isa::{Isa, Loops};

use super::element::{Element, Number};
use super::parallel::{PREFETCH_ROWS, TASK_NUMBERS, prefetch};
use super::{Schedule, Segments, Shape};

/// Source of the segment of each row.
#[derive(Clone, Copy, Debug)]
pub enum RowSegments<'a> {
    /// In an index, `[rows]`.
    Index(&'a [i64]),
    /// In the offsets of the segments, whose rows lie in their order.
    Offsets,
}

/// Share of a row in the number of its segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Share {
    /// All of it.
    Whole,
    /// The number divided by that of the segment's rows.
    Equal,
}

/// `gather` of one type of numbers.
pub(super) fn gather_rows<E: Element>(
    share: Share,
    segments: &Segments<'_>,
    row_segments: RowSegments<'_>,
    shape: Shape,
    values: &[E],
    out: &mut [E],
    schedule: Schedule,
) {
    shape.assert(segments, out.len(), values.len());
    if let RowSegments::Index(index) = row_segments {
        assert_eq!(index.len(), shape.rows, "there is an index for each row");
    } else {
        assert!(segments.order().is_none(), "rows in the order of segments need no index");
        segments.fill_outside(shape, out);
    }
    if out.is_empty() {
        return;
    }
    let counts = (share == Share::Equal).then(|| segments.offsets());
    let rows = (TASK_NUMBERS / shape.columns).max(1);
    let tasks_per_batch = shape.rows.div_ceil(rows);
    let batches = out.chunks_mut(shape.rows * shape.columns);
    let tasks = batches.flat_map(|batch| batch.chunks_mut(rows * shape.columns)).enumerate();
    schedule.run(tasks, |(task, out)| {
        let (batch, first) = (task / tasks_per_batch, task % tasks_per_batch * rows);
        let batch = batch * segments.len() * shape.columns;
        let values = &values[batch..][..segments.len() * shape.columns];
        let columns = shape.columns;
        match row_segments {
            RowSegments::Index(index) => {
                Isa::best().run(ByIndex { index: &index[first..], columns, values, counts, out });
            }
            RowSegments::Offsets => {
                Isa::best().run(ByOffsets { offsets: segments.offsets(), first, columns, values, counts, out });
            }
        }
    });
}

/// Number of a segment's rows.
#[inline(always)]
fn count(counts: &[u32], segment: usize) -> u32 {
    (counts[segment + 1] - counts[segment]).max(1)
}

#[inline(always)]
fn write<E: Element>(values: &[E], segment: usize, counts: Option<&[u32]>, out: &mut [E]) {
    let values = &values[segment * out.len()..][..out.len()];
    match counts {
        None => out.copy_from_slice(values),
        Some(counts) => {
            let count = count(counts, segment);
            let over = |value: E| E::narrow(value.widen().over_count(count));
            out.iter_mut().zip(values).for_each(|(out, &value)| *out = over(value));
        }
    }
}

/// Some rows, with the index from the first of them on.
struct ByIndex<'a, E> {
    index: &'a [i64],
    columns: usize,
    values: &'a [E],
    counts: Option<&'a [u32]>,
    out: &'a mut [E],
}

impl<E: Element> Loops for ByIndex<'_, E> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        for (number, out) in self.out.chunks_exact_mut(self.columns).enumerate() {
            if let Some(&later) = self.index.get(number + PREFETCH_ROWS) {
                let later = self.values.get(later as usize * self.columns..).unwrap_or_default();
                prefetch(&later[..self.columns.min(later.len())]);
            }
            write(self.values, self.index[number] as usize, self.counts, out);
        }
    }
}

/// Some rows from `first` on, in the order of segments.
struct ByOffsets<'a, E> {
    offsets: &'a [u32],
    first: usize,
    columns: usize,
    values: &'a [E],
    counts: Option<&'a [u32]>,
    out: &'a mut [E],
}

impl<E: Element> Loops for ByOffsets<'_, E> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let rows = self.out.len() / self.columns;
        let (start, end) = (self.first, self.first + rows);
        // The first segment that ends after the first of these rows.
        let begin = self.offsets[1..].partition_point(|&end| end as usize <= start);
        let ranges = self.offsets[begin..].windows(2).map(|range| (range[0] as usize, range[1] as usize));
        let runs = (begin..).zip(ranges).take_while(|(_, (first, _))| *first < end);
        for (segment, (first, last)) in runs {
            let (first, last) = (first.max(start), last.min(end));
            let out = &mut self.out[(first - start) * self.columns..(last - start) * self.columns];
            for (out, segment) in out.chunks_exact_mut(self.columns).zip(repeat_n(segment, last - first)) {
                write(self.values, segment, self.counts, out);
            }
        }
    }
}
