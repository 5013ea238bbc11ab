pub(crate) mod binning;
pub(crate) mod column_feature;
pub(crate) mod context;
pub(crate) mod feature;
pub(crate) mod feature_chunks;
pub(crate) mod feature_column;
pub(crate) mod feature_stream;
pub(crate) mod foresight;
pub(crate) mod function_stream;
pub(crate) mod functions;
pub(crate) mod instrument;
pub(crate) mod late_targets;
pub(crate) mod pair_sums;
pub(crate) mod panel;
pub(crate) mod rolling;
pub(crate) mod rounding;
pub(crate) mod scale;
pub(crate) mod scalers;
pub(crate) mod series_stream;
pub(crate) mod spec;
pub(crate) mod streamed;
pub(crate) mod target;
pub(crate) mod triple_barrier;
pub(crate) mod warnings;

use std::ops::Range;

/// Longest stretch of one instrument's bars without a hole that ends a segment, see
/// [`GapPolicy`](crate::GapPolicy).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The instrument, from 0.
    pub instrument: i32,
    /// Number of its base bars.
    pub bars: usize,
    /// When the first of them opens, in nanoseconds since 1970 UTC.
    pub open_time: i64,
    /// When the last of them closes.
    pub close_time: i64,
    /// The samples that stand in it.
    pub samples: Range<usize>,
}
