//! State of a pool at one moment: every segment with its blocks, the counters, and the events
//! before. A plain value that is written as JSON ([`Snapshot::to_json`]) or for PyTorch's memory
//! viewer ([`Snapshot::to_pickle`]).

mod event;
mod history;
mod intervals;
mod json;
mod pickle;
mod recorder;
mod summary;
#[cfg(test)]
mod tests;
mod timeline;
mod torch;

use std::sync::Arc;

use serde::{Deserialize, Serialize};

pub use event::{RecordedAction, RecordedEvent};
pub use recorder::EventRecorder;
pub use summary::{OwnerBytes, Summary};
pub use timeline::{MemoryLevel, MemoryTimeline, TimelineSpan};

pub use crate::pool::{BlockState, SegmentKind};

use crate::pool::{BlockInfo, Pool, SegmentInfo, Stats};

/// The version of the JSON form that this crate writes, and the only one that it reads.
pub const FORMAT_VERSION: u32 = 1;

/// A pool at one moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// [`FORMAT_VERSION`].
    pub format_version: u32,
    /// Device of the memory, such as `cpu` or `cuda:0`.
    pub device: String,
    /// Reason of the snapshot.
    pub reason: Reason,
    /// Time of the snapshot in microseconds since 1970 UTC.
    pub time_us: u64,
    /// Smallest unit of physical memory, in bytes.
    pub granule_bytes: usize,
    /// The counters.
    pub totals: PoolTotals,
    /// The request that failed, where that is the reason.
    pub shortage: Option<FailedRequest>,
    /// All mapped memory in order of address. Views without a live block are left out.
    pub segments: Vec<Segment>,
    /// Memory from the beginning of the recording to this moment; empty where nothing was recorded.
    pub timeline: MemoryTimeline,
    /// The last events before this moment, the oldest first.
    pub events: Vec<RecordedEvent>,
    /// Events before those, which were recorded and forgotten.
    pub events_dropped: u64,
}

/// Reasons of snapshots.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// Somebody asked for it.
    Asked,
    /// The largest allocation so far.
    Peak,
    /// A request failed.
    Shortage,
}

/// A request that failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedRequest {
    /// Requested bytes.
    pub requested_bytes: usize,
    /// Label of the scope that asked.
    pub owner: Arc<str>,
    /// Message of the error.
    pub message: String,
}

/// The counters of a pool in bytes, as [`Stats`] and [`MemoryCounts`](crate::pool::MemoryCounts)
/// define them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "each is documented where it is counted")]
pub struct PoolTotals {
    pub capacity_bytes: usize,
    pub requested_bytes: usize,
    pub requested_bytes_peak: usize,
    pub allocated_bytes: usize,
    pub allocated_bytes_peak: usize,
    pub reserved_bytes: usize,
    pub reserved_bytes_peak: usize,
    pub inactive_split_bytes: usize,
    pub inactive_split_bytes_peak: usize,
    pub free_bytes: usize,
    pub largest_free_block_bytes: usize,
    pub whole_free_granules_bytes: usize,
    pub held_by_others_bytes: Option<usize>,
    pub blocks: usize,
    pub allocations_total: u64,
    pub stitches_total: u64,
    pub driver_calls_total: u64,
    pub shortages_total: u64,
}

/// A run of consecutive mapped addresses, tiled by blocks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Segment {
    /// First address.
    pub address: u64,
    /// Bytes.
    pub bytes: usize,
    /// Kind of the addresses.
    pub kind: SegmentKind,
    /// The blocks in order of address; the sum of their bytes is the segment's.
    pub blocks: Vec<Block>,
}

/// A block of a segment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Block {
    /// First address.
    pub address: u64,
    /// Bytes.
    pub bytes: usize,
    /// Requested bytes; 0 unless live.
    pub requested_bytes: usize,
    /// State of the block.
    pub state: BlockState,
    /// The stream that uses it, or used it last.
    pub stream: u32,
    /// Label of its scope, if live.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub owner: Option<Arc<str>>,
}

impl Snapshot {
    /// `pool` at `time_us`, microseconds since 1970 UTC, with the events of `recorder`, if any.
    pub fn take(pool: &Pool, reason: Reason, time_us: u64, recorder: Option<&EventRecorder>) -> Self {
        let segments: Vec<Segment> = pool.segments().into_iter().map(Segment::from).collect();
        let totals =
            PoolTotals { largest_free_block_bytes: largest_free_block_bytes(&segments), ..PoolTotals::new(pool) };
        Snapshot {
            format_version: FORMAT_VERSION,
            device: pool.source().name(),
            reason,
            time_us,
            granule_bytes: pool.source().granule_bytes(),
            totals,
            shortage: None,
            segments,
            timeline: recorder.map(|recorder| recorder.timeline().clone()).unwrap_or_default(),
            events: recorder.map(EventRecorder::entries).unwrap_or_default(),
            events_dropped: recorder.map_or(0, EventRecorder::dropped_total),
        }
    }

    /// All blocks, segment by segment.
    pub fn blocks(&self) -> impl Iterator<Item = &Block> {
        self.segments.iter().flat_map(|segment| &segment.blocks)
    }
}

/// Bytes of the largest free block that the segments show, blocks in slabs included: the pool's own
/// counter leaves those out.
fn largest_free_block_bytes(segments: &[Segment]) -> usize {
    let blocks = segments.iter().flat_map(|segment| &segment.blocks);
    blocks.filter(|block| block.state == BlockState::Free).map(|block| block.bytes).max().unwrap_or(0)
}

impl PoolTotals {
    /// The counters of `pool`.
    pub fn new(pool: &Pool) -> Self {
        let (counts, stats) = (pool.counts(), pool.stats());
        let Stats { requested_bytes, allocated_bytes, reserved_bytes, inactive_split_bytes, .. } = stats;
        let mut totals = PoolTotals {
            capacity_bytes: counts.capacity_bytes,
            requested_bytes: requested_bytes.now,
            allocated_bytes: allocated_bytes.now,
            reserved_bytes: reserved_bytes.now,
            inactive_split_bytes: inactive_split_bytes.now,
            free_bytes: counts.free_bytes,
            largest_free_block_bytes: counts.largest_free_block_bytes,
            whole_free_granules_bytes: counts.whole_free_granules_bytes,
            held_by_others_bytes: counts.held_by_others_bytes,
            blocks: stats.blocks.now,
            allocations_total: stats.allocations_total,
            stitches_total: stats.stitches_total,
            driver_calls_total: stats.driver_calls_total,
            shortages_total: stats.shortages_total,
            ..PoolTotals::default()
        };
        totals.set_peaks(&stats);
        totals
    }

    /// Takes the peaks of `stats`.
    pub(crate) fn set_peaks(&mut self, stats: &Stats) {
        self.requested_bytes_peak = stats.requested_bytes.peak;
        self.allocated_bytes_peak = stats.allocated_bytes.peak;
        self.reserved_bytes_peak = stats.reserved_bytes.peak;
        self.inactive_split_bytes_peak = stats.inactive_split_bytes.peak;
    }

    /// 1 − largest free block / free bytes; 0 when nothing is free.
    pub fn fragmentation(&self) -> f64 {
        match self.free_bytes {
            0 => 0.0,
            free => 1.0 - self.largest_free_block_bytes as f64 / free as f64,
        }
    }
}

impl From<SegmentInfo> for Segment {
    fn from(segment: SegmentInfo) -> Self {
        Segment {
            address: segment.address,
            bytes: segment.bytes,
            kind: segment.kind,
            blocks: segment.blocks.into_iter().map(Block::from).collect(),
        }
    }
}

impl From<BlockInfo> for Block {
    fn from(block: BlockInfo) -> Self {
        Block {
            address: block.address,
            bytes: block.bytes,
            requested_bytes: block.requested_bytes,
            state: block.state,
            stream: block.stream.0,
            owner: block.owner,
        }
    }
}
