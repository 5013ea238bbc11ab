//! Operations on tensors in memory that somebody else owns, PyTorch's for instance, on the CPU.
//!
//! `x` is `[batches, rows, columns]`, row-major, and `out` `[batches, segments, columns]`: the same
//! [`Segments`] hold for every batch. Numbers are of a [`TensorElement`]; 16-bit floats are
//! widened, reduced in f32 and rounded once.
//!
//! Arithmetic is in a fixed order: a segment's rows as they lie, up to 512 of them one after the
//! other; of a longer segment, each 512 rows give a row of intermediate results, and those are
//! reduced in the same way. So results do not depend on the number of threads, nor on whether the
//! rows came sorted.

mod element;
mod exp;
mod extremum;
mod fold;
mod gather;
mod levels;
mod operations;
mod parallel;
mod segments;
mod shared_rows;
mod softmax;
#[cfg(test)]
mod tests;

pub use element::{Element, ElementType, Float, Number};
pub use extremum::{Extremum, ExtremumOutput};
pub use fold::Fold;
pub use gather::{RowSegments, Share};
pub use operations::{
    FloatElement, TensorElement, extremum, extremum_backward, fold, gather, softmax, softmax_backward,
};
pub use segments::{Segments, check_sorted, index_bound, plan_from_index, plan_from_offsets, plan_len};
pub use softmax::Softmax;

pub(crate) use levels::PIECE;
pub(crate) use segments::check_count;

/// Sizes that an operation's tensors have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Numbers of the dimensions before that of the rows.
    pub batches: usize,
    /// Rows of a batch.
    pub rows: usize,
    /// Numbers of a row: those of the dimensions after that of the rows.
    pub columns: usize,
}

impl Shape {
    /// # Panics
    /// If rows and segments have not these sizes.
    fn assert(self, segments: &Segments<'_>, rows_len: usize, segments_len: usize) {
        let batch = self.batches * self.columns;
        assert_eq!(rows_len, batch * self.rows, "the tensor has not {} rows of {batch} numbers", self.rows);
        assert_eq!(segments_len, batch * segments.len(), "the tensor has not {} segments", segments.len());
        segments.assert_rows(self.rows);
    }
}

/// Threads that an operation runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Schedule {
    /// The one that calls, which needs no pool: small tensors, and processes that were forked.
    CallingThread,
    /// The rayon pool that it is called from.
    Pool,
}

impl Schedule {
    /// Runs `each` on every task.
    fn run<T: Send>(self, tasks: impl Iterator<Item = T>, each: impl Fn(T) + Send + Sync) {
        use rayon::prelude::*;
        match self {
            Schedule::CallingThread => tasks.for_each(each),
            Schedule::Pool => tasks.collect::<Vec<T>>().into_par_iter().for_each(each),
        }
    }
}
