//! The types that indices are stored in.

#![forbid(unsafe_code)]

use std::fmt::Debug;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// A type that indices are stored in: u32 or u64.
pub trait Index: bytemuck::Pod + Ord + Debug + Send + Sync + private::Sealed {
    /// One that several threads may write through a shared reference.
    #[doc(hidden)]
    type Cell: Send + Sync;

    /// `position`, or `None` where the type does not reach so far.
    fn of(position: usize) -> Option<Self>;

    /// The position, or `None` where the machine's memory does not reach so far.
    fn position(self) -> Option<usize>;

    /// The number as it is.
    fn wide(self) -> u64;

    #[doc(hidden)]
    fn cell() -> Self::Cell;

    #[doc(hidden)]
    fn store(self, cell: &Self::Cell);

    #[doc(hidden)]
    fn take(cell: Self::Cell) -> Self;
}

mod private {
    pub trait Sealed {}
}

macro_rules! indices {
    ($($index:ty as $cell:ty),*) => {
        $(impl private::Sealed for $index {}

        impl Index for $index {
            type Cell = $cell;

            #[inline]
            fn of(position: usize) -> Option<Self> {
                Self::try_from(position).ok()
            }

            #[inline]
            fn position(self) -> Option<usize> {
                usize::try_from(self).ok()
            }

            #[inline]
            fn wide(self) -> u64 {
                self.into()
            }

            #[inline]
            fn cell() -> $cell {
                <$cell>::new(0)
            }

            #[inline]
            fn store(self, cell: &$cell) {
                cell.store(self, Ordering::Relaxed);
            }

            #[inline]
            fn take(cell: $cell) -> Self {
                cell.into_inner()
            }
        })*
    };
}

indices!(u32 as AtomicU32, u64 as AtomicU64);
