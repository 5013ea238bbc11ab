//! Memory in pages that are mapped into long ranges of addresses: `expandable_segments:True`.

use super::CachingAllocator;
use super::blocks::{Block, BlockKey, State};
use super::rules::RoundedRequest;

impl CachingAllocator {
    /// First of the free blocks from the best fit on that can grow to less than the one behind it
    /// in order of size.
    pub(super) fn best_expandable_fit(&self, best: BlockKey) -> BlockKey {
        let Block { stream, bytes, address, kind, .. } = self.blocks[best];
        let grown_bytes = |key: BlockKey| {
            let unmapped = self.blocks[key].next.filter(|&next| self.blocks[next].state == State::Unmapped);
            self.blocks[key].bytes + unmapped.map_or(0, |next| self.blocks[next].bytes)
        };
        let mut chosen = best;
        let before_best = |&key: &BlockKey| (self.blocks[key].bytes, self.blocks[key].address) <= (bytes, address);
        for next in self.pool(kind).at_least(stream, bytes).skip_while(before_best) {
            if grown_bytes(next) >= grown_bytes(chosen) {
                break;
            }
            chosen = next;
        }
        chosen
    }

    /// Maps memory until some free block has the size of `wish`; it is in no list then.
    pub(super) fn extend(&mut self, wish: &RoundedRequest) -> Option<BlockKey> {
        let mut candidate = self.expandable_range(wish);
        if self.blocks[candidate].state == State::Unmapped {
            self.map(candidate, wish.bytes.min(self.blocks[candidate].bytes))?;
        }
        while self.blocks[candidate].bytes < wish.bytes {
            let missing_bytes = wish.bytes - self.blocks[candidate].bytes;
            let next = self.blocks[candidate].next.expect("there are addresses for the whole of it");
            self.map(next, missing_bytes.min(self.blocks[next].bytes))?;
            candidate = next;
        }
        self.unlist(candidate);
        Some(candidate)
    }

    /// The first of neighbouring blocks, free and unmapped in turn, with addresses enough for
    /// `wish`: the lowest there are.
    fn expandable_range(&mut self, wish: &RoundedRequest) -> BlockKey {
        let is_usable = |key: &BlockKey| self.blocks[*key].state != State::Live;
        let has_room = |first: BlockKey| {
            let blocks = std::iter::successors(Some(first), |&key| self.blocks[key].next.filter(is_usable));
            let mut bytes = 0;
            blocks.into_iter().any(|key| {
                bytes += self.blocks[key].bytes;
                bytes >= wish.bytes
            })
        };
        let ranges = self.pool(wish.kind).unmapped(wish.stream);
        let from_free = |key: BlockKey| self.blocks[key].previous.filter(is_usable).unwrap_or(key);
        let found = ranges.map(from_free).find(|&key| has_room(key));
        found.unwrap_or_else(|| self.add_range(wish))
    }

    /// Reserves addresses for 1 1/8 times the memory of the device.
    fn add_range(&mut self, wish: &RoundedRequest) -> BlockKey {
        let RoundedRequest { stream, kind, .. } = *wish;
        let capacity_bytes = self.device.capacity_bytes();
        let bytes = (capacity_bytes + capacity_bytes / 8).max(wish.bytes).next_multiple_of(kind.page_bytes());
        self.device.called(1);
        let address = self.device.addresses(bytes, kind.page_bytes());
        let range = Block { address, bytes, stream, kind, state: State::Unmapped, previous: None, next: None };
        let key = self.blocks.insert(range);
        self.list(key);
        key
    }

    /// Maps pages for the first `bytes` of an unmapped range, which becomes free and merges with
    /// its free neighbours.
    fn map(&mut self, key: BlockKey, bytes: usize) -> Option<()> {
        let page_bytes = self.blocks[key].kind.page_bytes();
        let bytes = bytes.next_multiple_of(page_bytes);
        let pages = bytes / page_bytes;
        if !self.device.take(bytes) {
            // Pages are created one by one, and those that could be go back.
            let created = (self.device.capacity_bytes() - self.device.used_bytes()) / page_bytes;
            self.device.called(created + 1 + created);
            return None;
        }
        self.device.called(pages + pages + 1);
        self.unlist(key);
        if bytes < self.blocks[key].bytes {
            let rest = self.blocks.split(key, bytes);
            self.list(rest);
        }
        self.blocks[key].state = State::Free;
        self.merge_with_neighbours(key, State::Free);
        self.list(key);
        Some(())
    }

    /// Takes the whole pages inside the free block `key` away from it, and its range with them if
    /// nothing is left mapped there.
    pub(super) fn unmap(&mut self, key: BlockKey) {
        let (offset, bytes) = self.blocks[key].whole_pages();
        if bytes == 0 {
            return;
        }
        self.unlist(key);
        let middle = match offset {
            0 => key,
            _ => {
                let middle = self.blocks.split(key, offset);
                self.list(key);
                middle
            }
        };
        if bytes < self.blocks[middle].bytes {
            let remainder = self.blocks.split(middle, bytes);
            self.list(remainder);
        }
        let pages = bytes / self.blocks[middle].kind.page_bytes();
        self.device.called(1 + pages + pages);
        self.device.give_back(bytes);
        self.blocks[middle].state = State::Unmapped;
        self.merge_with_neighbours(middle, State::Unmapped);
        match self.blocks[middle].is_split() {
            true => self.list(middle),
            false => {
                self.device.called(1);
                self.blocks.remove(middle);
            }
        }
    }
}
