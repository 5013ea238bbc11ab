//! Memory in segments of one `cudaMalloc` each: the default.

use super::CachingAllocator;
use super::GrowthMode;
use super::blocks::{Block, BlockKey, State};
use super::rules::RoundedRequest;

impl CachingAllocator {
    /// One more segment for `wish`, as one free block that is in no list.
    pub(super) fn add_segment(&mut self, wish: &RoundedRequest) -> Option<BlockKey> {
        let bytes = wish.segment_bytes();
        self.device.called(1);
        if !self.device.take(bytes) {
            return None;
        }
        let address = self.device.addresses(bytes, wish.kind.page_bytes());
        let RoundedRequest { stream, kind, .. } = *wish;
        Some(self.blocks.insert(Block { address, bytes, stream, kind, state: State::Free, previous: None, next: None }))
    }

    /// Gives a segment back if the free block `key` is the whole of it.
    pub(super) fn release_segment(&mut self, key: BlockKey) {
        if self.blocks[key].is_split() {
            return;
        }
        self.unlist(key);
        self.device.called(1);
        self.device.give_back(self.blocks[key].bytes);
        self.blocks.remove(key);
    }

    /// With `max_split_size`: gives free blocks back that are too large to be split, just as many
    /// as make room for `wish`. Whether they do.
    pub(super) fn release_oversize(&mut self, wish: &RoundedRequest) -> bool {
        let Some(limit) = self.settings.max_split_bytes else { return false };
        if self.settings.growth == GrowthMode::Expandable {
            return false;
        }
        let enough_bytes = wish.bytes.max(limit);
        let single = self.pool(wish.kind).at_least(wish.stream, enough_bytes).next();
        if let Some(single) = single {
            self.release_segment(single);
            return true;
        }
        let mut released_bytes = 0;
        for key in self.pool(wish.kind).largest_first(wish.stream, limit) {
            if released_bytes >= enough_bytes {
                break;
            }
            released_bytes += self.blocks[key].bytes;
            self.release_segment(key);
        }
        released_bytes >= enough_bytes
    }
}
