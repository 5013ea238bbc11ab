//! How the CPU's forms share their work: by outputs, so that no two threads write one number, and none waits for another.

#![forbid(unsafe_code)]

use std::ops::Range;

use rayon::prelude::*;

/// Numbers that a task reads: enough to be worth handing to a thread, few enough that all have some.
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

/// Calls `write` for every row of `to`, [rows, columns], with its number, its segment and the row itself.
pub(super) fn each_row(
    segment: &[u32],
    columns: usize,
    to: &mut [f32],
    write: impl Fn(usize, usize, &mut [f32]) + Sync,
) {
    if columns == 0 {
        return;
    }
    let rows = (TASK_NUMBERS / columns).max(1);
    to.par_chunks_mut(rows * columns).zip(segment.par_chunks(rows)).enumerate().for_each(|(task, (to, segment))| {
        for ((row, to), &segment) in (task * rows..).zip(to.chunks_exact_mut(columns)).zip(segment) {
            write(row, segment as usize, to);
        }
    });
}

/// Row `row` of `x`, [rows, columns].
pub(super) fn row(x: &[f32], row: usize, columns: usize) -> &[f32] {
    &x[row * columns..][..columns]
}
