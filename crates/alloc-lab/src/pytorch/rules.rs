//! Sizes: how requests are rounded, what is taken from the device, when a block is split.

use megabatch_gpu_core::source::StreamId;

use super::{AllocatorSettings, GrowthMode};

/// Every size is a multiple of it.
const MIN_BLOCK_BYTES: usize = 512;
/// Largest block of the small pool.
const SMALL_BYTES_MAX: usize = 1 << 20;
/// Segment, or page, of the small pool.
const SMALL_SEGMENT_BYTES: usize = 2 << 20;
/// Requests below this share segments.
const OWN_SEGMENT_BYTES_MIN: usize = 10 << 20;
/// Segment of requests that share one, or page, of the large pool.
pub(super) const LARGE_SEGMENT_BYTES: usize = 20 << 20;
/// A segment of its own is a multiple of it.
const LARGE_ROUNDING_BYTES: usize = 2 << 20;

/// The two pools of PyTorch's allocator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PoolKind {
    Small = 0,
    Large = 1,
}

impl PoolKind {
    /// Pages in which an expandable segment is mapped.
    pub(super) fn page_bytes(self) -> usize {
        match self {
            PoolKind::Small => SMALL_SEGMENT_BYTES,
            PoolKind::Large => LARGE_SEGMENT_BYTES,
        }
    }
}

/// A request, as the allocator understands it.
#[derive(Clone, Copy, Debug)]
pub(super) struct RoundedRequest {
    pub(super) bytes: usize,
    pub(super) stream: StreamId,
    pub(super) kind: PoolKind,
}

impl RoundedRequest {
    pub(super) fn new(bytes: usize, stream: StreamId) -> Self {
        let bytes = bytes.max(1).next_multiple_of(MIN_BLOCK_BYTES);
        RoundedRequest { bytes, stream, kind: if bytes <= SMALL_BYTES_MAX { PoolKind::Small } else { PoolKind::Large } }
    }

    /// Size of the segment that is made for it where no block is free.
    pub(super) fn segment_bytes(&self) -> usize {
        match self.bytes {
            bytes if bytes <= SMALL_BYTES_MAX => SMALL_SEGMENT_BYTES,
            bytes if bytes < OWN_SEGMENT_BYTES_MIN => LARGE_SEGMENT_BYTES,
            bytes => bytes.next_multiple_of(LARGE_ROUNDING_BYTES),
        }
    }
}

/// True if the rest of a block beyond `wish` becomes a block of its own.
pub(super) fn should_split(wish: &RoundedRequest, rest_bytes: usize, settings: &AllocatorSettings) -> bool {
    match (wish.kind, settings.growth) {
        (PoolKind::Large, GrowthMode::Segments) => {
            settings.max_split_bytes.is_none_or(|limit| wish.bytes < limit) && rest_bytes > SMALL_BYTES_MAX
        }
        _ => rest_bytes >= MIN_BLOCK_BYTES,
    }
}
