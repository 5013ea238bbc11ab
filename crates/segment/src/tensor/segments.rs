//! Segments of the rows of a tensor, and how they are found from an index or from offsets.

use std::ops::Range;

use bytemuck::Pod;
use megabatch_gpu_core::isa::{Isa, Loops};

use super::parallel::RowLists;
use crate::error::{Error, Result};
use crate::index::check_indices;
use crate::sort::{Sorted, sort};

use super::{Schedule, Shape};

/// Rows from which on sorting is worth a pool.
const POOL_ROWS: usize = 1 << 15;

/// Segments of rows, as [`plan_from_index`] and [`plan_from_offsets`] write them into memory of
/// [`plan_len`] numbers: the offsets of the segments, `[segments + 1]`; 1 if a list of the rows in
/// the order of segments follows, 0 if they lie so; the list, `[rows]`.
#[derive(Clone, Copy, Debug)]
pub struct Segments<'a> {
    offsets: &'a [u32],
    order: Option<&'a [u32]>,
}

/// Numbers that a plan of `rows` rows in `segments` segments takes.
pub fn plan_len(rows: usize, segments: usize) -> usize {
    segments + 2 + rows
}

impl<'a> Segments<'a> {
    /// The segments of a plan that has been written.
    ///
    /// # Panics
    /// If it has less than `segments + 2` numbers.
    pub fn new(plan: &'a [u32], segments: usize) -> Self {
        let (offsets, rest) = plan.split_at(segments + 1);
        Segments { offsets, order: (rest[0] != 0).then_some(&rest[1..]) }
    }

    /// Number of segments.
    pub(super) fn len(&self) -> usize {
        self.offsets.len() - 1
    }

    pub(super) fn offsets(&self) -> &'a [u32] {
        self.offsets
    }

    pub(super) fn order(&self) -> Option<&'a [u32]> {
        self.order
    }

    pub(super) fn lists(&self) -> RowLists<'a> {
        RowLists { offsets: self.offsets, order: self.order }
    }

    /// The places of a segment's rows in the order.
    pub(super) fn places(&self, segment: usize) -> Range<usize> {
        self.lists().range(segment)
    }

    /// The row at a place of the order.
    #[inline(always)]
    pub(super) fn row(&self, place: usize) -> usize {
        self.order.map_or(place, |order| order[place] as usize)
    }

    /// Runs `each` on every segment of all batches, those of a task one after the other.
    pub(super) fn run<L: SegmentLoop>(&self, shape: Shape, schedule: Schedule, each: &L) {
        let outputs = shape.batches * self.len();
        let per_task = self.lists().outputs_per_task(shape.columns);
        schedule.run((0..outputs).step_by(per_task), |first| {
            let task = first..outputs.min(first + per_task);
            Isa::best().run(SegmentTask { task, segments: self.len(), each });
        });
    }

    /// Fills the rows of `x`, `[batches, rows, columns]`, that belong to no segment with zeros.
    pub(super) fn fill_outside<T: Pod>(&self, shape: Shape, x: &mut [T]) {
        let Shape { rows, columns, .. } = shape;
        let (first, last) = (self.offsets[0] as usize, self.offsets[self.len()] as usize);
        if (first == 0 && last == rows) || x.is_empty() {
            return;
        }
        for x in x.chunks_exact_mut(rows * columns) {
            x[..first * columns].fill(T::zeroed());
            x[last * columns..].fill(T::zeroed());
        }
    }

    /// # Panics
    /// If the segments are not those of `rows` rows.
    pub(super) fn assert_rows(&self, rows: usize) {
        assert!(self.offsets[self.len()] as usize <= rows, "the segments have more than {rows} rows");
        assert!(self.order.is_none_or(|order| order.len() == rows), "the order is not that of {rows} rows");
    }
}

/// Work on the rows of segments. `run` is marked `#[inline(always)]`, and so is all that it calls.
pub(super) trait SegmentLoop: Sync {
    /// Works on the next segments of all batches, at most `most`; how many they were.
    fn run(&self, next: Output, most: usize) -> usize;
}

/// A segment of a batch, counted without divisions: one takes as long as the sums of a short
/// segment.
#[derive(Clone, Copy)]
pub(super) struct Output {
    pub(super) batch: usize,
    pub(super) segment: usize,
    segments: usize,
}

impl Output {
    /// The output of this number, where a batch has `segments`.
    pub(super) fn new(number: usize, segments: usize) -> Self {
        Output { batch: number / segments, segment: number % segments, segments }
    }

    /// Goes to the next one.
    #[inline(always)]
    pub(super) fn step(&mut self) {
        self.segment += 1;
        if self.segment == self.segments {
            (self.batch, self.segment) = (self.batch + 1, 0);
        }
    }
}

/// Some of the segments of all batches.
struct SegmentTask<'a, L> {
    task: Range<usize>,
    segments: usize,
    each: &'a L,
}

impl<L: SegmentLoop> Loops for SegmentTask<'_, L> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let (mut at, mut rest) = (Output::new(self.task.start, self.segments), self.task.len());
        while rest > 0 {
            let done = self.each.run(at, rest);
            rest -= done;
            (0..done).for_each(|_| at.step());
        }
    }
}

/// One more than the greatest index; 0 where there are none, or only negative ones.
pub fn index_bound(index: &[i64]) -> usize {
    index.iter().copied().max().map_or(0, |greatest| greatest.saturating_add(1).max(0) as usize)
}

/// Writes the plan of rows in any order: row `r` belongs to segment `index[r]`, below `segments`.
///
/// # Errors
/// [`Error::IndexOutOfRange`] and [`Error::NegativeIndex`]; [`Error::TooMany`] for more than
/// 2³² − 2 rows and segments.
///
/// # Panics
/// If `plan` has not [`plan_len`] numbers.
pub fn plan_from_index(index: &[i64], segments: usize, plan: &mut [u32], schedule: Schedule) -> Result<()> {
    assert_eq!(plan.len(), plan_len(index.len(), segments), "the memory is not that of a plan");
    check_count(index.len(), segments)?;
    let keys: &[u64] = bytemuck::cast_slice(index);
    check_signed(index, segments)?;
    let (offsets, rest) = plan.split_at_mut(segments + 1);
    let (has_order, order) = rest.split_first_mut().expect("a plan has a number after its offsets");
    *has_order = u32::from(!index.is_sorted());
    if *has_order == 0 {
        offsets_of_sorted(index, offsets);
    } else if schedule == Schedule::CallingThread || index.len() < POOL_ROWS {
        sort_here(index, offsets, order);
    } else {
        let sorted: Sorted<u32> = sort(keys, segments);
        offsets.copy_from_slice(&sorted.offsets);
        order.copy_from_slice(&sorted.order);
    }
    Ok(())
}

/// Checks that rows lie in the order of their segments.
///
/// # Errors
/// [`Error::UnsortedIndex`].
pub fn check_sorted(index: &[i64]) -> Result<()> {
    let Some(before) = index.windows(2).position(|pair| pair[1] < pair[0]) else { return Ok(()) };
    Err(Error::UnsortedIndex { position: before + 1, found: index[before + 1], before: index[before] })
}

/// Writes the plan of rows that lie in the order of segments: segment `s` has the rows from
/// `offsets[s]` to before `offsets[s + 1]`. Rows before the first and after the last belong to
/// none.
///
/// # Errors
/// [`Error::NoOffsets`], [`Error::FirstOffset`], [`Error::DecreasingOffset`], [`Error::LastOffset`]
/// for offsets that leave the rows; [`Error::TooMany`] for more than 2³² − 2 rows and segments.
///
/// # Panics
/// If `plan` has less than `offsets.len() + 1` numbers.
pub fn plan_from_offsets(offsets: &[i64], rows: usize, plan: &mut [u32]) -> Result<()> {
    check_count(rows, offsets.len().saturating_sub(1))?;
    let (Some(&first), Some(&last)) = (offsets.first(), offsets.last()) else {
        return Err(Error::NoOffsets { array: "indptr", segments: 0 });
    };
    if first < 0 {
        return Err(Error::NegativeIndex { array: "indptr", position: 0, found: first });
    }
    if let Some(before) = offsets.windows(2).position(|pair| pair[1] < pair[0]) {
        let [before, found] = [offsets[before], offsets[before + 1].max(0)].map(|offset| offset as u64);
        let position = offsets.windows(2).position(|pair| pair[1] < pair[0]).expect("one is") + 1;
        return Err(Error::DecreasingOffset { array: "indptr", position, found, before });
    }
    if last as u64 > rows as u64 {
        return Err(Error::LastOffset { array: "indptr", found: last as u64, rows });
    }
    plan.iter_mut().zip(offsets).for_each(|(to, &offset)| *to = offset as u32);
    plan[offsets.len()] = 0;
    Ok(())
}

/// # Errors
/// [`Error::TooMany`] for more rows and segments than 32 bits count.
pub(crate) fn check_count(rows: usize, segments: usize) -> Result<()> {
    if (rows as u64).saturating_add(segments as u64) < u64::from(u32::MAX) {
        return Ok(());
    }
    let rows = rows as u64;
    Err(Error::TooMany { rows, segments, index_bits: 32, remedy: "divide them among several calls" })
}

fn check_signed(index: &[i64], segments: usize) -> Result<()> {
    // The least and the greatest are found many at a time.
    if index.iter().copied().min().is_some_and(|least| least < 0) {
        let position = index.iter().position(|&index| index < 0).expect("the least is one");
        return Err(Error::NegativeIndex { array: "index", position, found: index[position] });
    }
    check_indices("index", bytemuck::cast_slice::<i64, u64>(index), segments)
}

fn offsets_of_sorted(index: &[i64], offsets: &mut [u32]) {
    let mut next = 0;
    for (row, &segment) in index.iter().enumerate() {
        while next <= segment as usize {
            offsets[next] = row as u32;
            next += 1;
        }
    }
    offsets[next..].fill(index.len() as u32);
}

/// A stable counting sort on the calling thread.
fn sort_here(index: &[i64], offsets: &mut [u32], order: &mut [u32]) {
    offsets.fill(0);
    for &segment in index {
        offsets[segment as usize + 1] += 1;
    }
    for segment in 1..offsets.len() {
        offsets[segment] += offsets[segment - 1];
    }
    let mut places = offsets.to_vec();
    for (row, &segment) in index.iter().enumerate() {
        let place = &mut places[segment as usize];
        order[*place as usize] = row as u32;
        *place += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(index: &[i64], segments: usize) -> Result<Vec<u32>> {
        let mut plan = vec![7; plan_len(index.len(), segments)];
        plan_from_index(index, segments, &mut plan, Schedule::CallingThread).map(|()| plan)
    }

    #[test]
    fn an_index_becomes_offsets_and_an_order_where_it_is_unsorted() {
        assert_eq!(plan(&[0, 0, 2], 4).unwrap(), [0, 2, 2, 3, 3, 0, 7, 7, 7]);
        assert_eq!(plan(&[2, 0, 2], 3).unwrap(), [0, 1, 1, 3, 1, 1, 0, 2]);
        assert_eq!(plan(&[], 2).unwrap(), [0, 0, 0, 0]);
        assert_eq!(plan(&[], 0).unwrap(), [0, 0]);
        let plan = plan(&[2, 0, 2], 3).unwrap();
        let segments = Segments::new(&plan, 3);
        assert_eq!((segments.offsets(), segments.order()), (&[0, 1, 1, 3][..], Some(&[1, 0, 2][..])));
    }

    #[test]
    fn the_pool_changes_no_number() {
        let index: Vec<i64> = (0..100_000i64).map(|k| k.wrapping_mul(48_271) % 1024).collect();
        let mut shared = vec![7; plan_len(index.len(), 1024)];
        plan_from_index(&index, 1024, &mut shared, Schedule::Pool).unwrap();
        assert_eq!(shared, plan(&index, 1024).unwrap());
    }

    #[test]
    fn bad_indices_are_named() {
        let text = |index: &[i64]| plan(index, 3).unwrap_err().to_string();
        assert_eq!(text(&[0, 3]), "index[1] is 3, but indices go from 0 to below 3");
        assert_eq!(text(&[0, -1]), "index[1] is -1, and no index is negative");
        assert!(check_sorted(&[0, 1, 1]).is_ok());
        let text = check_sorted(&[0, 2, 1]).unwrap_err().to_string();
        assert!(text.starts_with("index[2] is 1, less than the 2 before it"), "{text}");
    }

    #[test]
    fn offsets_may_leave_rows_out() {
        let text = |offsets: &[i64], rows| {
            let mut plan = vec![7; plan_len(rows, offsets.len().max(1) - 1)];
            plan_from_offsets(offsets, rows, &mut plan).map(|()| plan).map_err(|error| error.to_string())
        };
        assert_eq!(text(&[1, 2, 2], 3), Ok(vec![1, 2, 2, 0, 7, 7, 7]));
        assert!(text(&[0, 2, 1], 3).unwrap_err().starts_with("indptr[2] is 1, less than the 2 before it"));
        assert!(text(&[2, 3, 1], 3).unwrap_err().starts_with("indptr[2] is 1, less than the 3 before it"));
        assert_eq!(text(&[0, 4], 3).unwrap_err(), "indptr ends with 4, but there are 3 to divide among the segments");
        assert_eq!(text(&[-1, 4], 3).unwrap_err(), "indptr[0] is -1, and no index is negative");
        assert!(text(&[], 3).unwrap_err().starts_with("indptr is empty"));
    }

    #[test]
    fn the_bound_is_one_more_than_the_greatest() {
        assert_eq!([index_bound(&[]), index_bound(&[-5]), index_bound(&[3, 1])], [0, 0, 4]);
    }
}
