use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::pool::PoolEvent;

/// Event of a pool, and its time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedEvent {
    /// Microseconds since 1970 UTC.
    pub time_us: u64,
    /// Kind of event.
    #[serde(flatten)]
    pub action: RecordedAction,
}

/// Event in a pool, as [`pool::PoolEvent`](crate::pool::PoolEvent) defines it; a file has no use
/// for the names of blocks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "action", rename_all = "snake_case")]
#[non_exhaustive]
#[allow(missing_docs, reason = "the fields are those of the pool's events")]
pub enum RecordedAction {
    Allocated { address: u64, bytes: usize, requested_bytes: usize, stream: u32, owner: Arc<str> },
    Freed { address: u64, bytes: usize, requested_bytes: usize, stream: u32, owner: Arc<str> },
    Grown { address: u64, bytes: usize },
    Released { address: u64, bytes: usize },
    Stitched { address: u64, bytes: usize },
    Step,
    Short { requested_bytes: usize, stream: u32, owner: Arc<str>, left_bytes: usize },
}

impl From<&PoolEvent> for RecordedAction {
    fn from(event: &PoolEvent) -> Self {
        match event {
            PoolEvent::Allocated { address, bytes, requested_bytes, stream, owner, .. } => RecordedAction::Allocated {
                address: *address,
                bytes: *bytes,
                requested_bytes: *requested_bytes,
                stream: stream.0,
                owner: Arc::clone(owner),
            },
            PoolEvent::Freed { address, bytes, requested_bytes, stream, owner, .. } => RecordedAction::Freed {
                address: *address,
                bytes: *bytes,
                requested_bytes: *requested_bytes,
                stream: stream.0,
                owner: Arc::clone(owner),
            },
            PoolEvent::Grown { address, bytes } => RecordedAction::Grown { address: *address, bytes: *bytes },
            PoolEvent::Released { address, bytes } => RecordedAction::Released { address: *address, bytes: *bytes },
            PoolEvent::Stitched { address, bytes, .. } => RecordedAction::Stitched { address: *address, bytes: *bytes },
            PoolEvent::Step => RecordedAction::Step,
            PoolEvent::Short { bytes, stream, owner, counts } => RecordedAction::Short {
                requested_bytes: *bytes,
                stream: stream.0,
                owner: Arc::clone(owner),
                left_bytes: counts.capacity_bytes.saturating_sub(counts.reserved_bytes),
            },
        }
    }
}
