#![forbid(unsafe_code)]

use std::sync::Arc;

use super::BlockId;
use crate::source::StreamId;

/// A run of consecutive mapped addresses, tiled by blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentInfo {
    /// First address.
    pub address: u64,
    /// Bytes.
    pub bytes: usize,
    /// What the addresses are.
    pub kind: SegmentKind,
    /// The blocks in order of address; the sum of their bytes is the segment's.
    pub blocks: Vec<BlockInfo>,
}

/// What the addresses of a segment are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentKind {
    /// Where granules are mapped for as long as they exist. The bytes of all home segments are the reserved bytes.
    Home,
    /// A second address of granules, made by stitching: their bytes are lent at home, and count once.
    View,
}

/// A block of a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockInfo {
    /// First address.
    pub address: u64,
    /// Bytes.
    pub bytes: usize,
    /// What was asked for, in bytes; 0 unless live.
    pub requested_bytes: usize,
    /// Whether it is in use.
    pub state: BlockState,
    /// The stream that uses it, or used it last; 0 when no stream's work is outstanding on it.
    pub stream: StreamId,
    /// Whose it is, if live.
    pub owner: Option<Arc<str>>,
    /// The block's name, if live.
    pub id: Option<BlockId>,
}

/// Whether a block is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockState {
    /// Given to somebody.
    Live,
    /// Can be given.
    Free,
    /// Home of granules that are in use through a view.
    Lent,
}
