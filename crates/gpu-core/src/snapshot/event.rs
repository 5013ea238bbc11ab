#![forbid(unsafe_code)]

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::pool::Event;

/// Event of a pool, and its time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Microseconds since 1970 UTC.
    pub time_us: u64,
    /// Kind of event.
    #[serde(flatten)]
    pub action: Action,
}

/// Event in a pool, as [`pool::Event`](crate::pool::Event) defines it; a file has no use for the
/// names of blocks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "action", rename_all = "snake_case")]
#[non_exhaustive]
#[allow(missing_docs, reason = "the fields are those of the pool's events")]
pub enum Action {
    Allocated { address: u64, bytes: usize, requested_bytes: usize, stream: u32, owner: Arc<str> },
    Freed { address: u64, bytes: usize, requested_bytes: usize, stream: u32, owner: Arc<str> },
    Grown { address: u64, bytes: usize },
    Released { address: u64, bytes: usize },
    Stitched { address: u64, bytes: usize },
    Moved { from: u64, to: u64, bytes: usize },
    Step,
    Short { requested_bytes: usize, stream: u32, owner: Arc<str>, left_bytes: usize },
}

impl From<&Event> for Action {
    fn from(event: &Event) -> Self {
        match event {
            Event::Allocated { address, bytes, requested_bytes, stream, owner, .. } => Action::Allocated {
                address: *address,
                bytes: *bytes,
                requested_bytes: *requested_bytes,
                stream: stream.0,
                owner: Arc::clone(owner),
            },
            Event::Freed { address, bytes, requested_bytes, stream, owner, .. } => Action::Freed {
                address: *address,
                bytes: *bytes,
                requested_bytes: *requested_bytes,
                stream: stream.0,
                owner: Arc::clone(owner),
            },
            Event::Grown { address, bytes } => Action::Grown { address: *address, bytes: *bytes },
            Event::Released { address, bytes } => Action::Released { address: *address, bytes: *bytes },
            Event::Stitched { address, bytes, .. } => Action::Stitched { address: *address, bytes: *bytes },
            Event::Moved { from, to, bytes, .. } => Action::Moved { from: *from, to: *to, bytes: *bytes },
            Event::Step => Action::Step,
            Event::Short { bytes, stream, owner, counts } => Action::Short {
                requested_bytes: *bytes,
                stream: stream.0,
                owner: Arc::clone(owner),
                left_bytes: counts.capacity_bytes.saturating_sub(counts.reserved_bytes),
            },
        }
    }
}
