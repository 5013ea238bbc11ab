use std::collections::VecDeque;

use megabatch_gpu_core::recording::TraceEvent;
use megabatch_gpu_core::source::StreamId;

/// A live block of a trace in the making. Not `Copy`: it is freed once.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct TracedBlock(u64);

/// A trace in the making.
#[derive(Debug, Default)]
pub(super) struct Tape {
    pub(super) events: Vec<TraceEvent>,
    blocks: u64,
    stream: StreamId,
}

impl Tape {
    /// Blocks are asked for on `stream` from now on.
    pub(super) fn use_stream(&mut self, stream: u32) {
        self.stream = StreamId(stream);
    }

    pub(super) fn alloc(&mut self, bytes: usize) -> TracedBlock {
        self.blocks += 1;
        self.events.push(TraceEvent::Alloc { id: self.blocks, bytes, stream: self.stream });
        TracedBlock(self.blocks)
    }

    pub(super) fn alloc_all(&mut self, sizes: impl IntoIterator<Item = usize>) -> Vec<TracedBlock> {
        sizes.into_iter().map(|bytes| self.alloc(bytes)).collect()
    }

    pub(super) fn free(&mut self, TracedBlock(id): TracedBlock) {
        self.events.push(TraceEvent::Free { id });
    }

    pub(super) fn free_all(&mut self, blocks: impl IntoIterator<Item = TracedBlock>) {
        blocks.into_iter().for_each(|block| self.free(block));
    }

    /// Keeps the last `count` blocks of a queue.
    pub(super) fn keep_last(&mut self, queue: &mut VecDeque<TracedBlock>, count: usize) {
        while queue.len() > count {
            let oldest = queue.pop_front().expect("it has more than none");
            self.free(oldest);
        }
    }

    pub(super) fn step(&mut self) {
        self.events.push(TraceEvent::Step);
    }
}
