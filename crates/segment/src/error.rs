use thiserror::Error;

/// `Result` with this crate's [`Error`](enum@Error).
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Errors of segment arrays and of devices.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// There are no offsets at all.
    #[error("{array} is empty: {segments} segments have one offset more, and no segments have the offset 0")]
    NoOffsets {
        /// Name of the array.
        array: &'static str,
        /// Number of segments that would have these offsets.
        segments: usize,
    },

    /// The first offset is not 0.
    #[error("{array}[0] is {found}, and offsets begin with 0")]
    FirstOffset {
        /// Name of the array.
        array: &'static str,
        /// The first offset.
        found: u64,
    },

    /// A segment ends before it begins.
    #[error(
        "{array}[{position}] is {found}, less than the {before} before it: offsets never decrease; sort the rows by segment"
    )]
    DecreasingOffset {
        /// Name of the array.
        array: &'static str,
        /// The place of the offset that is less than the one before it.
        position: usize,
        /// The offset there.
        found: u64,
        /// The offset before it.
        before: u64,
    },

    /// The last offset is not the number of rows.
    #[error("{array} ends with {found}, but there are {rows} to divide among the segments")]
    LastOffset {
        /// Name of the array.
        array: &'static str,
        /// The last offset.
        found: u64,
        /// Number of rows (of edges, in a graph).
        rows: usize,
    },

    /// An index has no counterpart.
    #[error("{array}[{position}] is {found}, but indices go from 0 to below {count}")]
    IndexOutOfRange {
        /// Name of the array.
        array: &'static str,
        /// Position in the array.
        position: usize,
        /// The index there.
        found: u64,
        /// Number of things that indices count.
        count: usize,
    },

    /// An index is negative.
    #[error("{array}[{position}] is {found}, and no index is negative")]
    NegativeIndex {
        /// Name of the array.
        array: &'static str,
        /// Position in the array.
        position: usize,
        /// The index there.
        found: i64,
    },

    /// Rows do not lie in the order of their segments.
    #[error(
        "index[{position}] is {found}, less than the {before} before it: this operation takes sorted indices; sort the rows by segment, or take scatter, which needs no order"
    )]
    UnsortedIndex {
        /// The place of the index that is less than the one before it.
        position: usize,
        /// The index there.
        found: i64,
        /// The index before it.
        before: i64,
    },

    /// A kernel has found an index that is no segment's.
    #[error(
        "this call on a GPU or an earlier one: index[{position}] is {found}, which is none of its segments; the row was left out. CUDA_LAUNCH_BLOCKING=1 tells at the call itself"
    )]
    IndexWithoutSegment {
        /// Position in the index.
        position: usize,
        /// The index there, or the lowest 32 bits of it.
        found: i64,
    },

    /// A kernel has found rows that do not lie in the order of their segments.
    #[error(
        "this call on a GPU or an earlier one: index[{position}] is {found}, less than the one before it: that operation takes sorted indices; sort the rows by segment, or take scatter, which needs no order. CUDA_LAUNCH_BLOCKING=1 tells at the call itself"
    )]
    UnsortedOnGpu {
        /// The place of the index that is less than the one before it.
        position: usize,
        /// The index there, or the lowest 32 bits of it.
        found: i64,
    },

    /// A kernel has found offsets that leave the rows or decrease.
    #[error(
        "this call on a GPU or an earlier one: indptr[{position}] is {found}: offsets begin at 0, never decrease and end with the number of rows at most. CUDA_LAUNCH_BLOCKING=1 tells at the call itself"
    )]
    OffsetOnGpu {
        /// The place of the offset.
        position: usize,
        /// The offset there, or the lowest 32 bits of it.
        found: i64,
    },

    /// The two ends of the edges are not as many.
    #[error("{rows} edges have a row and {columns} a column: both arrays list the same edges")]
    UnequalEnds {
        /// Length of the array of rows.
        rows: usize,
        /// Length of the array of columns.
        columns: usize,
    },

    /// There is more than the index type can count.
    #[error("{rows} rows in {segments} segments are more than indices of {index_bits} bits count; {remedy}")]
    TooMany {
        /// Number of rows (of edges, in a graph).
        rows: u64,
        /// Number of segments.
        segments: usize,
        /// Width of an index.
        index_bits: u32,
        /// Fix.
        remedy: &'static str,
    },

    /// Error of the device.
    #[error(transparent)]
    Device(#[from] megabatch_gpu_core::Error),
}
