//! Segments of rows, prepared for all operations.

#![forbid(unsafe_code)]

use megabatch_gpu_core::{Buffer, Device, Scope};

use crate::error::{Error, Result};
use crate::index::{Index, check_indices};
use crate::sort::{Sorted, sort};

/// Rows that are reduced one after the other. A longer segment is cut into pieces of as many, and
/// the results of the pieces are the rows of another reduction: that is what several threads share,
/// and what rounding errors grow with.
pub(crate) const PIECE: u32 = 512;

/// The segment of each of `rows` rows, prepared once for any number of operations, forward and
/// backward.
///
/// The rows of a segment are always taken in the order in which they lie, so that results do not
/// depend on the number of threads, nor on whether the rows came sorted. Its memory, 4 bytes a row
/// and 4 a segment (4 a row more where the rows are not sorted), is on the scope that it was made
/// for.
#[derive(Debug)]
pub struct SegmentPlan {
    rows: usize,
    segments: usize,
    /// Starts of the rows of each segment in the order of segments: `[segments + 1]`.
    offsets: Buffer<u32>,
    /// Levels for segments that are too long for one piece each: the pieces' offsets, those of
    /// pieces of pieces, … and the segments' at last.
    levels: Vec<Buffer<u32>>,
    /// The rows in the order of segments; `None` where they lie so.
    order: Option<Buffer<u32>>,
    /// The segment of each row: `[rows]`.
    segment: Buffer<u32>,
}

/// One of the reductions, one after the other, that make an operation: output `k` is made of the
/// inputs from `offsets[k]` to before `offsets[k + 1]`, in `order` if there is one.
#[derive(Clone, Copy)]
pub(crate) struct ReductionLevel<'p> {
    pub(crate) offsets: &'p Buffer<u32>,
    pub(crate) order: Option<&'p Buffer<u32>>,
}

impl SegmentPlan {
    /// Plan of rows in any order: row `r` belongs to segment `index[r]`, below `segments`. They are
    /// sorted once, by counting.
    ///
    /// # Errors
    /// [`Error::IndexOutOfRange`]; [`Error::TooMany`] for more than 2³² − 2 rows and segments;
    /// [`Error::Device`] if there is no memory.
    pub fn from_index<I: Index>(scope: &Scope, index: &[I], segments: usize) -> Result<Self> {
        check_indices("index", index, segments)?;
        check_count(index.len() as u64, segments)?;
        let segment: Vec<u32> = index.iter().map(|segment| segment.wide() as u32).collect();
        let Sorted { offsets, order } = sort::<u32, u32>(&segment, segments);
        let is_sorted = segment.is_sorted();
        SegmentPlan::new(scope, index.len(), segments, &offsets, (!is_sorted).then_some(&order), &segment)
    }

    fn new(
        scope: &Scope,
        rows: usize,
        segments: usize,
        offsets: &[u32],
        order: Option<&Vec<u32>>,
        segment: &[u32],
    ) -> Result<Self> {
        let levels = levels(offsets);
        Ok(SegmentPlan {
            rows,
            segments,
            offsets: Buffer::from_slice(scope, offsets)?,
            levels: levels.iter().map(|level| Buffer::from_slice(scope, level)).collect::<Result<_, _>>()?,
            order: order.map(|order| Buffer::from_slice(scope, order)).transpose()?,
            segment: Buffer::from_slice(scope, segment)?,
        })
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Number of segments.
    pub fn segments(&self) -> usize {
        self.segments
    }

    /// The device that the plan is on, and whatever it is used with.
    pub fn device(&self) -> &Device {
        self.offsets.scope().device()
    }

    pub(crate) fn offsets(&self) -> &Buffer<u32> {
        &self.offsets
    }

    pub(crate) fn segment(&self) -> &Buffer<u32> {
        &self.segment
    }

    /// The reductions that lead from rows to segments, at least one.
    pub(crate) fn levels(&self) -> impl ExactSizeIterator<Item = ReductionLevel<'_>> {
        let offsets = if self.levels.is_empty() { std::slice::from_ref(&self.offsets) } else { &self.levels };
        offsets.iter().enumerate().map(|(depth, offsets)| ReductionLevel {
            offsets,
            // What one reduction leaves lies in the order of the next.
            order: self.order.as_ref().filter(|_| depth == 0),
        })
    }

    /// The columns of rows of which there are `row_len` numbers, and segments of which there are
    /// `segment_len`.
    ///
    /// # Panics
    /// If the two do not have the same number of columns.
    pub(crate) fn columns(&self, row_len: usize, segment_len: usize) -> usize {
        let (some_len, count) =
            if self.segments > 0 { (segment_len, self.segments) } else { (row_len, self.rows.max(1)) };
        let columns = some_len / count;
        assert!(
            columns * self.rows == row_len && columns * self.segments == segment_len,
            "{row_len} numbers in {} rows and {segment_len} in {} segments have no common number of columns",
            self.rows,
            self.segments
        );
        columns
    }
}

/// Pieces are counted in u32 as well, and there are at most as many as rows and segments.
fn check_count(rows: u64, segments: usize) -> Result<()> {
    if rows.saturating_add(segments as u64) < u64::from(u32::MAX) {
        return Ok(());
    }
    Err(Error::TooMany { rows, segments, index_bits: 32, remedy: "divide them among several plans" })
}

/// The offsets of each reduction, the last of which leaves one row a segment; none where no segment
/// is longer than a piece.
pub(crate) fn levels(offsets: &[u32]) -> Vec<Vec<u32>> {
    let has_long = |offsets: &[u32]| offsets.windows(2).any(|segment| segment[1] - segment[0] > PIECE);
    if !has_long(offsets) {
        return Vec::new();
    }
    let (mut levels, mut whole) = (Vec::new(), offsets.to_vec());
    while has_long(&whole) {
        let (pieces, segment_pieces) = pieces(&whole);
        levels.push(pieces);
        whole = segment_pieces;
    }
    levels.push(whole);
    levels
}

/// The offsets of the pieces, and of the segments in pieces. An empty segment has one, which is
/// empty.
fn pieces(offsets: &[u32]) -> (Vec<u32>, Vec<u32>) {
    let (mut pieces, mut segment_pieces) = (vec![offsets[0]], vec![0]);
    for segment in offsets.windows(2) {
        let ends = (segment[0]..segment[1]).step_by(PIECE as usize).skip(1);
        pieces.extend(ends.chain([segment[1]]));
        segment_pieces.push(pieces.len() as u32 - 1);
    }
    (pieces, segment_pieces)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_segments_are_cut_until_no_piece_is_long() {
        assert_eq!(levels(&[0]), Vec::<Vec<u32>>::new());
        assert_eq!(levels(&[0, 0, PIECE, 2 * PIECE]), Vec::<Vec<u32>>::new());
        assert_eq!(levels(&[0, PIECE + 1, PIECE + 1]), [vec![0, PIECE, PIECE + 1, PIECE + 1], vec![0, 2, 3]]);
        let deep = levels(&[0, PIECE * PIECE + 1]);
        assert_eq!(deep.iter().map(|level| level.len() - 1).collect::<Vec<_>>(), [PIECE as usize + 1, 2, 1]);
    }

    #[test]
    fn rows_and_segments_are_counted_by_32_bits() {
        assert!(check_count(1 << 31, (1 << 31) - 2).is_ok());
        assert_eq!(
            check_count(1 << 32, 1).unwrap_err().to_string(),
            "4294967296 rows in 1 segments are more than indices of 32 bits count; divide them among several plans"
        );
    }

    #[test]
    fn columns_are_those_of_rows_and_segments() {
        let scope = Device::cpu().scope("test");
        let plan = |index: &[u32], segments| SegmentPlan::from_index(&scope, index, segments).unwrap();
        assert_eq!(plan(&[0, 1, 1, 1], 2).columns(8, 4), 2);
        assert_eq!(plan(&[], 1).columns(0, 5), 5);
        assert_eq!(plan(&[], 0).columns(0, 0), 0);
        assert_eq!(plan(&[0], 1).columns(0, 0), 0);
        for (rows, segments) in [(8, 3), (7, 4), (8, 6), (12, 4)] {
            let refused = std::panic::catch_unwind(|| plan(&[0, 1, 1, 1], 2).columns(rows, segments));
            assert!(refused.is_err(), "{rows} {segments}");
        }
    }

    #[test]
    fn sorted_rows_need_no_order_and_memory_has_an_owner() {
        let scope = Device::cpu().scope("test");
        let plan = SegmentPlan::from_index(&scope, &[0u64, 0, 2], 3).unwrap();
        assert!(plan.order.is_none());
        assert_eq!(plan.offsets.as_slice(), [0, 2, 2, 3]);
        assert_eq!(scope.usage().allocated_bytes, 4 * (4 + 3));
        let plan = SegmentPlan::from_index(&scope, &[2u32, 0, 2], 3).unwrap();
        assert_eq!(plan.order.as_ref().unwrap().as_slice(), [1, 0, 2]);
        assert_eq!(plan.segment.as_slice(), [2, 0, 2]);
    }
}
