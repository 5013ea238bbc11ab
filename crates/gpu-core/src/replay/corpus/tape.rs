use std::collections::VecDeque;

use crate::replay::Event;
use crate::source::StreamId;

/// A live block of a trace in the making. Not `Copy`: it is freed once.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Block(u64);

/// A trace in the making.
#[derive(Debug, Default)]
pub(super) struct Tape {
    events: Vec<Event>,
    blocks: u64,
    stream: StreamId,
}

impl Tape {
    /// Blocks are asked for on `stream` from now on.
    pub(super) fn on(&mut self, stream: u32) {
        self.stream = StreamId(stream);
    }

    pub(super) fn alloc(&mut self, bytes: usize) -> Block {
        self.blocks += 1;
        self.events.push(Event::Alloc { id: self.blocks, bytes, stream: self.stream });
        Block(self.blocks)
    }

    pub(super) fn alloc_all(&mut self, sizes: impl IntoIterator<Item = usize>) -> Vec<Block> {
        sizes.into_iter().map(|bytes| self.alloc(bytes)).collect()
    }

    pub(super) fn free(&mut self, Block(id): Block) {
        self.events.push(Event::Free { id });
    }

    pub(super) fn free_all(&mut self, blocks: impl IntoIterator<Item = Block>) {
        blocks.into_iter().for_each(|block| self.free(block));
    }

    /// Keeps the last `count` blocks of a queue.
    pub(super) fn keep_last(&mut self, queue: &mut VecDeque<Block>, count: usize) {
        while queue.len() > count {
            let oldest = queue.pop_front().expect("it has more than none");
            self.free(oldest);
        }
    }

    pub(super) fn step(&mut self) {
        self.events.push(Event::Step);
    }

    pub(super) fn into_events(self) -> Vec<Event> {
        self.events
    }
}
