use std::collections::BTreeSet;

use megabatch_gpu_core::source::StreamId;

use super::blocks::{Block, BlockKey, State};
use super::rules::RoundedRequest;

/// The blocks of a pool that are not live.
#[derive(Debug, Default)]
pub(super) struct FreeLists {
    /// Free blocks by stream, size, address.
    free: BTreeSet<(StreamId, usize, u64, BlockKey)>,
    /// Unmapped ranges by stream, address.
    unmapped: BTreeSet<(StreamId, u64, BlockKey)>,
    /// Sizes of the free blocks with their addresses, of all streams.
    sizes: BTreeSet<(usize, u64)>,
}

impl FreeLists {
    pub(super) fn insert(&mut self, block: &Block, key: BlockKey) {
        let Block { address, bytes, stream, state, .. } = *block;
        let is_new = match state {
            State::Free => {
                self.sizes.insert((bytes, address));
                self.free.insert((stream, bytes, address, key))
            }
            State::Unmapped => self.unmapped.insert((stream, address, key)),
            State::Live => unreachable!("a live block is in no list"),
        };
        assert!(is_new, "a block is listed once");
    }

    pub(super) fn remove(&mut self, block: &Block, key: BlockKey) {
        let Block { address, bytes, stream, state, .. } = *block;
        let was_listed = match state {
            State::Free => {
                self.sizes.remove(&(bytes, address));
                self.free.remove(&(stream, bytes, address, key))
            }
            State::Unmapped => self.unmapped.remove(&(stream, address, key)),
            State::Live => unreachable!("a live block is in no list"),
        };
        assert!(was_listed, "a block that is not live is listed as it is");
    }

    /// The smallest free block of the wish's stream that has its size, at the lowest address of
    /// equals.
    pub(super) fn best_fit(&self, wish: &RoundedRequest) -> Option<BlockKey> {
        self.at_least(wish.stream, wish.bytes).next()
    }

    /// The free blocks of a stream from a size on, the smallest first.
    pub(super) fn at_least(&self, stream: StreamId, bytes: usize) -> impl Iterator<Item = BlockKey> {
        let on_stream = move |&&(owner, ..): &&(StreamId, usize, u64, BlockKey)| owner == stream;
        self.free.range((stream, bytes, 0, BlockKey::FIRST)..).take_while(on_stream).map(|&(.., key)| key)
    }

    /// The free blocks of a stream from a size on, the largest first.
    pub(super) fn largest_first(&self, stream: StreamId, bytes: usize) -> Vec<BlockKey> {
        let mut keys: Vec<BlockKey> = self.at_least(stream, bytes).collect();
        keys.reverse();
        keys
    }

    /// The unmapped ranges of a stream, the lowest address first.
    pub(super) fn unmapped(&self, stream: StreamId) -> impl Iterator<Item = BlockKey> {
        let on_stream = move |&&(owner, ..): &&(StreamId, u64, BlockKey)| owner == stream;
        self.unmapped.range((stream, 0, BlockKey::FIRST)..).take_while(on_stream).map(|&(.., key)| key)
    }

    /// Every free block.
    pub(super) fn keys(&self) -> Vec<BlockKey> {
        self.free.iter().map(|&(.., key)| key).collect()
    }

    pub(super) fn largest_bytes(&self) -> usize {
        self.sizes.last().map_or(0, |&(bytes, _)| bytes)
    }
}
