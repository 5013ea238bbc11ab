//! Rows of a tensor that several threads write, each row by one.

#![allow(unsafe_code, reason = "threads write rows of one tensor in the order of a list")]

use std::marker::PhantomData;

use bytemuck::Pod;

use super::parallel::{CACHE_LINE_BYTES, prefetch_line};
use super::{Segments, Shape};

/// A tensor `[batches, rows, columns]` whose rows are written by the tasks that have their
/// segments.
#[derive(Clone, Copy)]
pub(super) struct SharedRows<'a, T> {
    first: *mut T,
    rows: usize,
    columns: usize,
    tensor: PhantomData<&'a mut [T]>,
}

// SAFETY: `row` is the one way to the numbers, and its caller says that no other thread is at the
// row.
unsafe impl<T: Send> Send for SharedRows<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for SharedRows<'_, T> {}

impl<'a, T: Pod> SharedRows<'a, T> {
    /// The rows of `tensor`. Those that belong to no segment are filled with zeros.
    ///
    /// # Panics
    /// If `tensor` is not of `shape`, and if a row is in two segments.
    pub(super) fn new(segments: &Segments<'_>, shape: Shape, tensor: &'a mut [T]) -> Self {
        let Shape { batches, rows, columns } = shape;
        assert_eq!(tensor.len(), batches * rows * columns, "the tensor has not {rows} rows of {columns} numbers");
        segments.assert_rows(rows);
        assert!(is_partition(segments, rows), "a row is in two segments");
        segments.fill_outside(shape, tensor);
        SharedRows { first: tensor.as_mut_ptr(), rows: batches * rows, columns, tensor: PhantomData }
    }

    /// Prefetches a row that will be written.
    #[inline(always)]
    pub(super) fn prefetch(&self, row: usize) {
        for line in (0..self.columns * size_of::<T>()).step_by(CACHE_LINE_BYTES) {
            prefetch_line(self.first.cast::<u8>().wrapping_add(row * self.columns * size_of::<T>() + line));
        }
    }

    /// A row of those of all batches, to be written.
    ///
    /// # Safety
    /// The row is one of a segment that the calling task alone has, and the caller lets go of it
    /// before it asks for it again.
    ///
    /// # Panics
    /// If there is no such row.
    #[inline(always)]
    pub(super) unsafe fn row(&self, row: usize) -> &'a mut [T] {
        assert!(row < self.rows, "the tensor has no row {row}");
        // SAFETY: the row is within the tensor, which is borrowed for as long. No segment shares it
        // with another, and the caller keeps other tasks from its segment.
        unsafe { std::slice::from_raw_parts_mut(self.first.add(row * self.columns), self.columns) }
    }
}

/// True if no row is in two segments: the order has each row once. Segments that this crate has
/// written are such, but their memory has been a caller's since.
fn is_partition(segments: &Segments<'_>, rows: usize) -> bool {
    let Some(order) = segments.order() else { return true };
    let mut seen = vec![0u64; rows.div_ceil(64)];
    order.iter().all(|&row| {
        let (word, bit) = (row as usize / 64, 1 << (row % 64));
        let is_new = (row as usize) < rows && seen[word] & bit == 0;
        if is_new {
            seen[word] |= bit;
        }
        is_new
    })
}
