use std::collections::HashMap;
use std::io::{self, Write};

use super::trace_event::{BLOCK_BYTES_MAX, TraceEvent};
use crate::pool::{BlockId, BlockState, PoolEvent, SegmentInfo};
use crate::source::StreamId;

/// Writes what is asked of a pool as the lines that `megabatch memory replay` reads:
/// `{"op":"alloc","id":7,"bytes":1048576,"stream":0}`, `{"op":"free","id":7}` and `{"op":"step"}`.
/// Bytes are those asked for, ids count from 0.
#[derive(Debug)]
pub struct TraceWriter<W: Write> {
    out: W,
    ids: HashMap<BlockId, u64>,
    ids_total: u64,
    /// The first failure to write; nothing is written after it.
    failure: Option<io::Error>,
}

impl<W: Write> TraceWriter<W> {
    /// A trace that begins with the blocks that are live in `segments`.
    pub fn begin(out: W, segments: &[SegmentInfo]) -> Self {
        let mut trace = TraceWriter { out, ids: HashMap::new(), ids_total: 0, failure: None };
        for block in segments.iter().flat_map(|segment| &segment.blocks) {
            if let (BlockState::Live, Some(id)) = (block.state, block.id) {
                trace.allocated(id, block.requested_bytes, block.stream);
            }
        }
        trace
    }

    /// Writes the line of `event`, if it has one.
    pub fn note(&mut self, event: &PoolEvent) {
        match event {
            PoolEvent::Allocated { id, requested_bytes, stream, .. } => self.allocated(*id, *requested_bytes, *stream),
            PoolEvent::Freed { id, .. } => {
                let id = self.ids.remove(id).expect("a block is allocated before it is freed");
                self.write(&TraceEvent::Free { id });
            }
            PoolEvent::Step => self.write(&TraceEvent::Step),
            // Whoever replays it asks too, and gives back at once what another policy may have.
            PoolEvent::Short { bytes, stream, .. } if *bytes <= BLOCK_BYTES_MAX => {
                let id = self.next_id();
                self.write(&TraceEvent::Alloc { id, bytes: *bytes, stream: *stream });
                self.write(&TraceEvent::Free { id });
            }
            _ => {}
        }
    }

    /// Flushes the trace.
    ///
    /// # Errors
    /// The first failure to write it.
    pub fn finish(mut self) -> io::Result<()> {
        match self.failure.take() {
            Some(failure) => Err(failure),
            None => self.out.flush(),
        }
    }

    fn allocated(&mut self, block: BlockId, bytes: usize, stream: StreamId) {
        let id = self.next_id();
        self.ids.insert(block, id);
        self.write(&TraceEvent::Alloc { id, bytes, stream });
    }

    fn next_id(&mut self) -> u64 {
        self.ids_total += 1;
        self.ids_total - 1
    }

    fn write(&mut self, event: &TraceEvent) {
        if self.failure.is_none() {
            self.failure = event.write_line(&mut self.out).err();
        }
    }
}
