//! Snapshots for the tests of the pictures.

use std::sync::Arc;

use megabatch_gpu_core::snapshot::{
    Block, BlockState, FORMAT_VERSION, MemoryTimeline, PoolTotals, Reason, Segment, SegmentKind, Snapshot,
};

pub(super) const GRANULE: usize = 4096;

/// A segment by its address, its kind and its blocks: their bytes and their owners, of whom `-` is
/// nobody and `>` a view.
pub(super) type Sketch<'a> = (u64, SegmentKind, &'a [(usize, &'a str)]);

/// A snapshot of the segments sketched.
pub(super) fn snapshot(segments: &[Sketch<'_>]) -> Snapshot {
    let segments = segments.iter().map(|&(address, kind, blocks)| segment(address, kind, blocks)).collect();
    Snapshot {
        format_version: FORMAT_VERSION,
        device: "cpu".into(),
        reason: Reason::Peak,
        time_us: 0,
        granule_bytes: GRANULE,
        totals: PoolTotals::default(),
        shortage: None,
        segments,
        timeline: MemoryTimeline::default(),
        events: Vec::new(),
        events_dropped: 0,
    }
}

fn segment(address: u64, kind: SegmentKind, blocks: &[(usize, &str)]) -> Segment {
    let mut at = address;
    let mut block = |&(bytes, owner): &(usize, &str)| {
        let state = match owner {
            "-" => BlockState::Free,
            ">" => BlockState::Lent,
            _ => BlockState::Live,
        };
        let owner = (state == BlockState::Live).then(|| Arc::from(owner));
        let requested_bytes = if state == BlockState::Live { bytes } else { 0 };
        let block = Block { address: at, bytes, requested_bytes, state, stream: 0, owner };
        at += bytes as u64;
        block
    };
    let blocks: Vec<Block> = blocks.iter().map(&mut block).collect();
    Segment { address, bytes: (at - address) as usize, kind, blocks }
}
