//! The types that indices are stored in, and checks of offsets and indices.

use std::fmt::Debug;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::error::{Error, Result};

/// A type that indices are stored in: u32 or u64.
pub trait Index: bytemuck::Pod + Ord + Debug + Send + Sync + private::Sealed {
    /// One that several threads may write through a shared reference.
    #[doc(hidden)]
    type Cell: Send + Sync;

    /// `position`, or `None` where the type does not reach so far.
    fn from_position(position: usize) -> Option<Self>;

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
            fn from_position(position: usize) -> Option<Self> {
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

/// Checks offsets: they begin with 0 and do not decrease.
pub(crate) fn check_offsets<I: Index>(array: &'static str, offsets: &[I]) -> Result<()> {
    let Some(first) = offsets.first() else { return Err(Error::NoOffsets { array, segments: 0 }) };
    if first.wide() != 0 {
        return Err(Error::FirstOffset { array, found: first.wide() });
    }
    let Some(before) = offsets.windows(2).position(|pair| pair[1] < pair[0]) else { return Ok(()) };
    Err(Error::DecreasingOffset {
        array,
        position: before + 1,
        found: offsets[before + 1].wide(),
        before: offsets[before].wide(),
    })
}

/// Checks that every index is below `count`.
pub(crate) fn check_indices<I: Index>(array: &'static str, indices: &[I], count: usize) -> Result<()> {
    // The greatest is found many at a time; which one is too great is only asked for when one is.
    let greatest = indices.iter().copied().max();
    if greatest.is_none_or(|greatest| greatest.wide() < count as u64) {
        return Ok(());
    }
    let too_great = |index: &I| index.wide() >= count as u64;
    let position = indices.iter().position(too_great).expect("the greatest is one");
    Err(Error::IndexOutOfRange { array, position, found: indices[position].wide(), count })
}
