//! Properties of all offsets and indices that were checked.

#![forbid(unsafe_code)]

use crate::error::{Error, Result};
use crate::index::Index;

/// Numbers of `rows` rows, where there are as many: one offset a segment and the end of the last.
pub(crate) fn check_offsets<I: Index>(array: &'static str, offsets: &[I]) -> Result<()> {
    let Some(first) = offsets.first() else { return Err(Error::NoOffsets { array, segments: 0 }) };
    if first.wide() != 0 {
        return Err(Error::FirstOffset { array, found: first.wide() });
    }
    match offsets.windows(2).position(|pair| pair[1] < pair[0]) {
        None => Ok(()),
        Some(before) => Err(Error::DecreasingOffset {
            array,
            position: before + 1,
            found: offsets[before + 1].wide(),
            before: offsets[before].wide(),
        }),
    }
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
