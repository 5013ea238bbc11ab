//! Blocks that tile segments, each linked to its neighbours.

use std::ops::{Index, IndexMut};

use megabatch_gpu_core::source::StreamId;

use super::rules::PoolKind;

/// Names a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct BlockKey(u32);

impl BlockKey {
    /// The least in order.
    pub(super) const FIRST: BlockKey = BlockKey(0);
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Live,
    Free,
    /// Addresses of an expandable segment with no memory behind them.
    Unmapped,
}

#[derive(Clone, Debug)]
pub(super) struct Block {
    pub(super) address: u64,
    pub(super) bytes: usize,
    pub(super) stream: StreamId,
    pub(super) kind: PoolKind,
    pub(super) state: State,
    /// The block before it in the segment.
    pub(super) previous: Option<BlockKey>,
    /// The block behind it in the segment.
    pub(super) next: Option<BlockKey>,
}

impl Block {
    /// True if it shares its segment with others.
    pub(super) fn is_split(&self) -> bool {
        self.previous.is_some() || self.next.is_some()
    }

    /// Offset and length in bytes of the whole pages in it.
    pub(super) fn whole_pages(&self) -> (usize, usize) {
        let page_bytes = self.kind.page_bytes();
        let offset = (self.address.next_multiple_of(page_bytes as u64) - self.address) as usize;
        (offset, self.bytes.saturating_sub(offset) / page_bytes * page_bytes)
    }
}

#[derive(Debug, Default)]
pub(super) struct Blocks {
    slots: Vec<Block>,
    vacant: Vec<BlockKey>,
}

impl Blocks {
    pub(super) fn insert(&mut self, block: Block) -> BlockKey {
        match self.vacant.pop() {
            Some(key) => {
                self[key] = block;
                key
            }
            None => {
                self.slots.push(block);
                BlockKey(u32::try_from(self.slots.len() - 1).expect("fewer than 2^32 blocks at a time"))
            }
        }
    }

    /// Forgets a block that is linked to no other.
    pub(super) fn remove(&mut self, key: BlockKey) {
        assert!(!self[key].is_split(), "what shares its segment stays in it");
        self.vacant.push(key);
    }

    /// Cuts a block behind its first `bytes`; the new block holds the rest and is like it in all
    /// else.
    pub(super) fn split(&mut self, key: BlockKey, bytes: usize) -> BlockKey {
        let block = &self[key];
        assert!(0 < bytes && bytes < block.bytes, "both parts hold something");
        let rest = Block {
            address: block.address + bytes as u64,
            bytes: block.bytes - bytes,
            previous: Some(key),
            ..block.clone()
        };
        let next = rest.next;
        let rest = self.insert(rest);
        self[key].bytes = bytes;
        self[key].next = Some(rest);
        if let Some(next) = next {
            self[next].previous = Some(rest);
        }
        rest
    }

    /// Adds a neighbour to a block; the neighbour is no more.
    pub(super) fn absorb(&mut self, key: BlockKey, neighbour: BlockKey) {
        let Block { address, bytes, previous, next, .. } = self[neighbour];
        if next == Some(key) {
            self[key].address = address;
            self[key].previous = previous;
            if let Some(previous) = previous {
                self[previous].next = Some(key);
            }
        } else {
            assert_eq!(previous, Some(key), "only neighbours merge");
            self[key].next = next;
            if let Some(next) = next {
                self[next].previous = Some(key);
            }
        }
        self[key].bytes += bytes;
        self.vacant.push(neighbour);
    }
}

impl Index<BlockKey> for Blocks {
    type Output = Block;

    fn index(&self, key: BlockKey) -> &Block {
        &self.slots[key.0 as usize]
    }
}

impl IndexMut<BlockKey> for Blocks {
    fn index_mut(&mut self, key: BlockKey) -> &mut Block {
        &mut self.slots[key.0 as usize]
    }
}
