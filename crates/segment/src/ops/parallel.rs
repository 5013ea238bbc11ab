//! Parallel CPU forms: split by outputs, so that no two threads write one number, and none waits
//! for another.

#![forbid(unsafe_code)]

use std::ops::Range;

use megabatch_gpu_core::isa::{Isa, Loops};
use rayon::prelude::*;

use super::prefetch::prefetch;

/// Numbers that a task reads: enough to be worth handing to a thread, few enough that all have
/// some.
const TASK_NUMBERS: usize = 1 << 16;

/// The inputs of each output, on the CPU.
#[derive(Clone, Copy)]
pub(super) struct Inputs<'a> {
    pub(super) offsets: &'a [u32],
    pub(super) order: Option<&'a [u32]>,
}

impl Inputs<'_> {
    /// Outputs that make a task, by the mean number of their inputs.
    pub(super) fn outputs_per_task(&self, columns: usize) -> usize {
        let outputs = self.offsets.len() - 1;
        let numbers = (self.offsets[outputs] as usize + outputs) * columns.max(1);
        (outputs * TASK_NUMBERS / numbers.max(1)).max(1)
    }

    /// The places of an output's inputs in the order.
    pub(super) fn of(&self, output: usize) -> Range<usize> {
        self.offsets[output] as usize..self.offsets[output + 1] as usize
    }
}

/// The order in which rows are taken.
pub(super) trait Order: Copy {
    fn row(self, place: usize) -> usize;

    /// A row that is taken soon after, where the CPU would not foresee it.
    fn later(self, place: usize) -> Option<usize>;
}

/// As they lie.
#[derive(Clone, Copy)]
pub(super) struct AsTheyLie;

impl Order for AsTheyLie {
    #[inline(always)]
    fn row(self, place: usize) -> usize {
        place
    }

    #[inline(always)]
    fn later(self, _place: usize) -> Option<usize> {
        None
    }
}

/// As the list says.
#[derive(Clone, Copy)]
pub(super) struct Listed<'a>(pub(super) &'a [u32]);

impl Order for Listed<'_> {
    #[inline(always)]
    fn row(self, place: usize) -> usize {
        self.0[place] as usize
    }

    #[inline(always)]
    fn later(self, place: usize) -> Option<usize> {
        self.0.get(place + AHEAD).map(|&row| row as usize)
    }
}

/// Rows of prefetching distance: time of a memory access, over the time of a row.
const AHEAD: usize = 12;

/// The columns from `first` on of `row`, and a word to memory about those of one that comes later.
#[inline(always)]
pub(super) fn tile_of<const WIDTH: usize>(
    order: impl Order,
    place: usize,
    x: &[f32],
    columns: usize,
    first: usize,
) -> &[f32] {
    if let Some(later) = order.later(place) {
        prefetch(&x[later * columns + first..][..WIDTH]);
    }
    &x[order.row(place) * columns + first..][..WIDTH]
}

/// Calls `write` for every row of `to`, `[rows, columns]`, with its number, its segment and the row
/// itself. `of_segments`, `[segments, columns]`, are the arrays from which it takes the row of the
/// segment.
pub(super) fn each_row(
    segment: &[u32],
    columns: usize,
    of_segments: &[&[f32]],
    to: &mut [f32],
    write: impl Fn(usize, usize, &mut [f32]) + Sync,
) {
    if columns == 0 {
        return;
    }
    let rows = (TASK_NUMBERS / columns).max(1);
    let tasks = to.par_chunks_mut(rows * columns).zip(segment.par_chunks(rows)).enumerate();
    tasks.for_each(|(task, (to, segment))| {
        Isa::best().run(Rows { first: task * rows, columns, segment, of_segments, to, write: &write });
    });
}

/// Some of the rows of [`each_row`].
struct Rows<'a, W> {
    first: usize,
    columns: usize,
    segment: &'a [u32],
    of_segments: &'a [&'a [f32]],
    to: &'a mut [f32],
    write: &'a W,
}

impl<W: Fn(usize, usize, &mut [f32])> Loops for Rows<'_, W> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let rows = self.to.chunks_exact_mut(self.columns).zip(self.segment);
        for (number, (to, &segment)) in rows.enumerate() {
            if let Some(&later) = self.segment.get(number + AHEAD) {
                self.of_segments.iter().for_each(|array| prefetch(row(array, later as usize, self.columns)));
            }
            (self.write)(self.first + number, segment as usize, to);
        }
    }
}

/// Row `row` of `x`, `[rows, columns]`.
#[inline(always)]
pub(super) fn row(x: &[f32], row: usize, columns: usize) -> &[f32] {
    &x[row * columns..][..columns]
}
