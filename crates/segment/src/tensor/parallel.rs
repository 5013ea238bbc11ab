//! Parallel CPU forms: split by outputs, so that no two threads write one number, and none waits
//! for another.

use std::ops::Range;

/// Numbers that a task reads: enough to be worth a thread, few enough to balance the load.
pub(super) const TASK_NUMBERS: usize = 1 << 16;

/// The input rows of each output: `offsets` and, if the rows are not sorted, their order.
#[derive(Clone, Copy)]
pub(super) struct RowLists<'a> {
    pub(super) offsets: &'a [u32],
    pub(super) order: Option<&'a [u32]>,
}

impl RowLists<'_> {
    /// Outputs of a task, by the mean number of their inputs.
    pub(super) fn outputs_per_task(&self, columns: usize) -> usize {
        let outputs = self.offsets.len() - 1;
        let numbers = (self.offsets[outputs] as usize + outputs) * columns.max(1);
        (outputs * TASK_NUMBERS / numbers.max(1)).max(1)
    }

    /// The places of an output's inputs in the order.
    pub(super) fn range(&self, output: usize) -> Range<usize> {
        self.offsets[output] as usize..self.offsets[output + 1] as usize
    }
}

/// The order in which rows are taken.
pub(super) trait RowOrder: Copy {
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
pub(super) struct Contiguous;

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
pub(super) struct Indexed<'a>(pub(super) &'a [u32]);

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
pub(super) const PREFETCH_ROWS: usize = 12;

/// The columns of `x`, `[rows, columns]`, from `first` on.
#[derive(Clone, Copy)]
pub(super) struct ColumnTile<'a, T> {
    pub(super) x: &'a [T],
    pub(super) columns: usize,
    pub(super) first: usize,
}

impl<'a, T> ColumnTile<'a, T> {
    /// `WIDTH` columns of one row; prefetches those of a row that comes later.
    #[inline(always)]
    pub(super) fn row<const WIDTH: usize>(self, order: impl RowOrder, place: usize) -> &'a [T] {
        if let Some(later) = order.later(place) {
            prefetch(&self.x[later * self.columns + self.first..][..WIDTH]);
        }
        &self.x[order.row(place) * self.columns + self.first..][..WIDTH]
    }
}

/// Prefetches `numbers` into the cache.
#[inline(always)]
pub(super) fn prefetch<T>(numbers: &[T]) {
    for line in numbers.chunks(CACHE_LINE_BYTES / size_of::<T>()) {
        prefetch_line(line.as_ptr().cast());
    }
}

/// Prefetches the line of an address.
#[inline(always)]
#[allow(unsafe_code, reason = "the instruction is an intrinsic or assembly")]
pub(super) fn prefetch_line(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: every CPU has the instruction, which touches no memory that the program sees.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) };
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as above.
    unsafe {
        std::arch::asm!("prfm pldl1keep, [{}]", in(reg) address, options(readonly, nostack, preserves_flags));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let _ = address;
}

pub(super) const CACHE_LINE_BYTES: usize = 64;
