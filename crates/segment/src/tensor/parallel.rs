//! Parallel CPU forms: split by outputs, so that no two threads write one number, and none waits
//! for another.

#![deny(unsafe_code)]

use std::ops::Range;

use megabatch_gpu_core::isa::{Isa, Loops};
use rayon::prelude::*;

/// Numbers that a task reads: enough to be worth a thread, few enough to balance the load.
pub(crate) const TASK_NUMBERS: usize = 1 << 16;

/// The input rows of each output: `offsets` and, if the rows are not sorted, their order.
#[derive(Clone, Copy)]
pub(crate) struct RowLists<'a> {
    pub(crate) offsets: &'a [u32],
    pub(crate) order: Option<&'a [u32]>,
}

impl RowLists<'_> {
    /// Outputs of a task, by the mean number of their inputs.
    pub(crate) fn outputs_per_task(&self, columns: usize) -> usize {
        let outputs = self.offsets.len() - 1;
        let numbers = (self.offsets[outputs] as usize + outputs) * columns.max(1);
        (outputs * TASK_NUMBERS / numbers.max(1)).max(1)
    }

    /// The places of an output's inputs in the order.
    pub(crate) fn range(&self, output: usize) -> Range<usize> {
        self.offsets[output] as usize..self.offsets[output + 1] as usize
    }
}

/// The order in which rows are taken.
pub(crate) trait RowOrder: Copy {
    fn row(self, place: usize) -> usize;

    /// A row to prefetch, where the hardware prefetcher would not.
    #[inline(always)]
    fn later(self, place: usize) -> Option<usize> {
        self.row_after(place, PREFETCH_ROWS)
    }

    /// The row `distance` places later, where the hardware prefetcher would not fetch it.
    fn row_after(self, place: usize, distance: usize) -> Option<usize>;
}

/// Rows in memory order.
#[derive(Clone, Copy)]
pub(crate) struct Contiguous;

impl RowOrder for Contiguous {
    #[inline(always)]
    fn row(self, place: usize) -> usize {
        place
    }

    #[inline(always)]
    fn row_after(self, _place: usize, _distance: usize) -> Option<usize> {
        None
    }
}

/// Rows in the order of a list.
#[derive(Clone, Copy)]
pub(crate) struct Indexed<'a>(pub(crate) &'a [u32]);

impl RowOrder for Indexed<'_> {
    #[inline(always)]
    fn row(self, place: usize) -> usize {
        self.0[place] as usize
    }

    #[inline(always)]
    fn row_after(self, place: usize, distance: usize) -> Option<usize> {
        self.0.get(place + distance).map(|&row| row as usize)
    }
}

/// Rows of prefetching distance: time of a memory access, over the time of a row.
pub(crate) const PREFETCH_ROWS: usize = 12;

/// The columns of `x`, `[rows, columns]`, from `first` on.
#[derive(Clone, Copy)]
pub(crate) struct ColumnTile<'a, T> {
    pub(crate) x: &'a [T],
    pub(crate) columns: usize,
    pub(crate) first: usize,
}

impl<'a, T> ColumnTile<'a, T> {
    /// `WIDTH` columns of one row; prefetches those of a row that comes later.
    #[inline(always)]
    pub(crate) fn row<const WIDTH: usize>(self, order: impl RowOrder, place: usize) -> &'a [T] {
        if let Some(later) = order.later(place) {
            prefetch(&self.x[later * self.columns + self.first..][..WIDTH]);
        }
        &self.x[order.row(place) * self.columns + self.first..][..WIDTH]
    }
}

/// Calls `write` for every row of `to`, `[rows, columns]`, with its number, its segment and the row
/// itself. `write` takes the segment's row from `segment_arrays`, `[segments, columns]`; these rows
/// are prefetched.
pub(crate) fn each_row(
    segment: &[u32],
    columns: usize,
    segment_arrays: &[&[f32]],
    to: &mut [f32],
    write: impl Fn(usize, usize, &mut [f32]) + Sync,
) {
    if columns == 0 {
        return;
    }
    let rows = (TASK_NUMBERS / columns).max(1);
    let tasks = to.par_chunks_mut(rows * columns).zip(segment.par_chunks(rows)).enumerate();
    tasks.for_each(|(task, (to, segment))| {
        Isa::best().run(RowTask { first: task * rows, columns, segment, segment_arrays, to, write: &write });
    });
}

/// Some of the rows of [`each_row`].
struct RowTask<'a, W> {
    first: usize,
    columns: usize,
    segment: &'a [u32],
    segment_arrays: &'a [&'a [f32]],
    to: &'a mut [f32],
    write: &'a W,
}

impl<W: Fn(usize, usize, &mut [f32])> Loops for RowTask<'_, W> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let rows = self.to.chunks_exact_mut(self.columns).zip(self.segment);
        for (number, (to, &segment)) in rows.enumerate() {
            if let Some(&later) = self.segment.get(number + PREFETCH_ROWS) {
                self.segment_arrays.iter().for_each(|array| prefetch(row(array, later as usize, self.columns)));
            }
            (self.write)(self.first + number, segment as usize, to);
        }
    }
}

/// Row `row` of `x`, `[rows, columns]`.
#[inline(always)]
pub(crate) fn row(x: &[f32], row: usize, columns: usize) -> &[f32] {
    &x[row * columns..][..columns]
}

/// Prefetches `numbers` into the cache.
#[inline(always)]
pub(crate) fn prefetch<T>(numbers: &[T]) {
    for line in numbers.chunks(CACHE_LINE_BYTES / size_of::<T>()) {
        prefetch_line(line.as_ptr().cast());
    }
}

/// Prefetches the line of an address.
#[inline(always)]
#[allow(unsafe_code, reason = "the instruction is an intrinsic")]
pub(crate) fn prefetch_line(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: every CPU has the instruction, which touches no memory that the program sees.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

pub(crate) const CACHE_LINE_BYTES: usize = 64;
