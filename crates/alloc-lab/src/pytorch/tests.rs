//! Every rule on a case small enough to be worked out by hand.

use proptest::prelude::*;

use super::*;

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

fn allocator(growth: GrowthMode, capacity_bytes: usize, max_split_bytes: Option<usize>) -> CachingAllocator {
    CachingAllocator::new(AllocatorSettings { growth, capacity_bytes, max_split_bytes })
}

fn plain(capacity_bytes: usize) -> CachingAllocator {
    allocator(GrowthMode::Segments, capacity_bytes, None)
}

fn expandable(capacity_bytes: usize) -> CachingAllocator {
    allocator(GrowthMode::Expandable, capacity_bytes, None)
}

impl CachingAllocator {
    fn get(&mut self, bytes: usize) -> BlockKey {
        self.allocate(bytes, StreamId(0)).expect("there is memory")
    }

    fn free_all(&mut self, keys: impl IntoIterator<Item = BlockKey>) {
        keys.into_iter().for_each(|key| self.free(key));
    }

    fn reserved(&self) -> usize {
        self.levels().reserved_bytes
    }

    fn address(&self, key: BlockKey) -> u64 {
        self.blocks[key].address
    }

    /// Walks every segment: blocks tile it, no two neighbours are free, lists and counters are what
    /// the blocks say.
    fn check(&self) {
        let (mut allocated, mut free, mut stuck) = (0, 0, 0);
        let listed: Vec<BlockKey> = self.pools.iter().flat_map(FreeLists::keys).collect();
        for &key in &listed {
            let block = &self.blocks[key];
            assert_eq!(block.state, State::Free);
            free += block.bytes;
            stuck += self.stuck_bytes(key);
            for neighbour in [block.previous, block.next].into_iter().flatten() {
                assert_ne!(self.blocks[neighbour].state, State::Free, "free neighbours merge");
            }
            if let Some(next) = block.next {
                assert_eq!(self.blocks[next].address, block.address + block.bytes as u64);
                assert_eq!(self.blocks[next].previous, Some(key));
            }
        }
        allocated += self.allocated_bytes;
        assert_eq!(allocated + free, self.device.used_bytes());
        assert_eq!(stuck, self.inactive_split_bytes);
        assert_eq!(
            self.levels().largest_free_bytes,
            listed.iter().map(|&key| self.blocks[key].bytes).max().unwrap_or(0)
        );
    }
}

#[test]
fn a_request_takes_a_segment_of_its_class() {
    for (bytes, segment_bytes, block_bytes) in [
        (1, 2 * MIB, 512),
        (512, 2 * MIB, 512),
        (513, 2 * MIB, KIB),
        (MIB, 2 * MIB, MIB),
        (MIB + 1, 20 * MIB, MIB + 512),
        (10 * MIB - 512, 20 * MIB, 10 * MIB - 512),
        // From here on a segment is made for the block alone, and less than 1 MiB beyond it stays
        // with it.
        (10 * MIB, 10 * MIB, 10 * MIB),
        (10 * MIB + 1, 12 * MIB, 10 * MIB + 512),
        (11 * MIB, 12 * MIB, 12 * MIB),
        (11 * MIB - 512, 12 * MIB, 11 * MIB - 512),
    ] {
        let mut allocator = plain(1 << 30);
        allocator.get(bytes);
        let levels = allocator.levels();
        assert_eq!((levels.reserved_bytes, levels.allocated_bytes), (segment_bytes, block_bytes), "{bytes}");
        assert_eq!(levels.driver_calls, 1, "{bytes}");
        allocator.check();
    }
}

#[test]
fn the_smallest_block_that_suffices_serves_and_the_lowest_of_equals() {
    let mut allocator = plain(1 << 30);
    let [large, low, high, small] = [40, 30, 30, 20].map(|size| allocator.get(size * MIB));
    let (low_address, high_address) = (allocator.address(low), allocator.address(high));
    allocator.free_all([large, high, small, low]);
    let [first, second] = [29 * MIB + 1, 29 * MIB + 1].map(|bytes| allocator.get(bytes));
    assert_eq!([first, second].map(|key| allocator.address(key)), [low_address, high_address]);
    assert_eq!(allocator.reserved(), 120 * MIB);
    // 1 MiB less 1 is left, which is not split off; a block takes the whole of it.
    assert_eq!(allocator.levels().allocated_bytes, 60 * MIB);
    allocator.check();
}

#[test]
fn what_is_left_of_a_large_block_is_split_off_above_a_mebibyte() {
    for (bytes, split_bytes) in [(31 * MIB, 0), (31 * MIB - 512, MIB + 512), (2 * MIB, 30 * MIB)] {
        let mut allocator = plain(1 << 30);
        let whole = allocator.get(32 * MIB);
        allocator.free(whole);
        allocator.get(bytes);
        let levels = allocator.levels();
        assert_eq!((levels.largest_free_bytes, levels.inactive_split_bytes), (split_bytes, split_bytes), "{bytes}");
        allocator.check();
    }
}

#[test]
fn blocks_of_a_mebibyte_and_less_are_split_to_512_bytes_and_never_leave_their_pool() {
    let mut allocator = plain(1 << 30);
    let blocks: Vec<BlockKey> = (0..4096).map(|_| allocator.get(512)).collect();
    assert_eq!(allocator.reserved(), 2 * MIB);
    let large = allocator.get(2 * MIB);
    assert_eq!(allocator.reserved(), 22 * MIB);
    allocator.free(large);
    allocator.get(512);
    assert_eq!(allocator.reserved(), 24 * MIB, "20 MiB are free in the large pool, and of no use to the small one");
    allocator.free_all(blocks);
    allocator.check();
}

#[test]
fn neighbours_merge_within_a_segment_only() {
    let mut allocator = plain(1 << 30);
    let [a, b, c, d] = [0; 4].map(|_| allocator.get(9 * MIB));
    assert_eq!(allocator.reserved(), 40 * MIB, "two blocks of 9 MiB a segment of 20");
    allocator.free(a);
    assert_eq!(allocator.levels().largest_free_bytes, 9 * MIB);
    allocator.free(b);
    assert_eq!(allocator.levels().largest_free_bytes, 20 * MIB);
    assert_eq!(allocator.levels().inactive_split_bytes, 2 * MIB, "behind the block d");
    allocator.free_all([c, d]);
    assert_eq!(allocator.levels().largest_free_bytes, 20 * MIB, "two segments never make 40");
    assert_eq!(allocator.levels().fragmentation(), 0.5);
    allocator.check();
}

#[test]
fn memory_stays_with_its_stream() {
    for growth in [GrowthMode::Segments, GrowthMode::Expandable] {
        let mut allocator = allocator(growth, 100 * MIB, None);
        let first = allocator.get(40 * MIB);
        allocator.free(first);
        allocator.allocate(40 * MIB, StreamId(1)).expect("the device has 60 MiB");
        assert_eq!(allocator.reserved(), 80 * MIB);
        allocator.allocate(20 * MIB, StreamId(1)).expect("the device has 20 MiB");
        allocator.allocate(40 * MIB, StreamId(1)).expect("what stream 0 had goes back to the device");
        assert_eq!(allocator.reserved(), 100 * MIB);
        allocator.check();
    }
}

#[test]
fn before_it_fails_it_releases_segments_without_a_live_block() {
    let mut allocator = plain(100 * MIB);
    let [a, b] = [40 * MIB, 40 * MIB].map(|bytes| allocator.get(bytes));
    allocator.free_all([a, b]);
    assert_eq!(allocator.levels().driver_calls, 2);
    let whole = allocator.get(100 * MIB);
    // One call that fails, two segments that go, one call that succeeds.
    assert_eq!((allocator.reserved(), allocator.levels().driver_calls), (100 * MIB, 6));
    allocator.free(whole);

    let small = allocator.get(30 * MIB);
    assert_eq!(allocator.levels().inactive_split_bytes, 70 * MIB);
    assert_eq!(allocator.allocate(80 * MIB, StreamId(0)), None, "30 MiB hold a segment of 100");
    assert_eq!((allocator.reserved(), allocator.levels().driver_calls), (100 * MIB, 8));
    allocator.free(small);
    allocator.get(80 * MIB);
    allocator.check();
}

#[test]
fn with_a_limit_large_blocks_are_neither_split_nor_wasted() {
    let mut allocator = allocator(GrowthMode::Segments, 1 << 30, Some(64 * MIB));
    let oversize = allocator.get(100 * MIB);
    allocator.free(oversize);
    let smaller = allocator.get(50 * MIB);
    assert_eq!(allocator.reserved(), 150 * MIB, "an oversize block serves no smaller request");
    let spare = allocator.get(80 * MIB);
    assert_eq!(allocator.reserved(), 230 * MIB, "20 MiB to spare are too many");
    let close = allocator.get(80 * MIB + 512);
    assert_eq!(allocator.reserved(), 230 * MIB);
    assert_eq!(allocator.levels().allocated_bytes, 230 * MIB, "it is not split");
    allocator.free_all([smaller, spare, close]);
    allocator.check();
}

#[test]
fn with_a_limit_oversize_blocks_go_first_and_no_more_than_needed() {
    let mut allocator = allocator(GrowthMode::Segments, 400 * MIB, Some(64 * MIB));
    let blocks = [70, 90, 120, 50].map(|size| allocator.get(size * MIB));
    allocator.free_all(blocks);
    allocator.get(66 * MIB);
    assert_eq!(allocator.reserved(), 330 * MIB, "the block of 70 MiB serves");
    let other = allocator.get(92 * MIB);
    assert_eq!(allocator.reserved(), 330 * MIB + 92 * MIB - 120 * MIB, "the block of 120 MiB alone goes back");
    allocator.free(other);
    // 92 and 90 MiB are free and oversize: neither suffices alone, both go; the block of 50 MiB
    // stays.
    allocator.get(180 * MIB);
    assert_eq!(allocator.reserved(), (70 + 50 + 180) * MIB);
    allocator.check();
}

#[test]
fn an_expandable_segment_grows_in_pages_and_leaves_no_hole_at_its_end() {
    let mut allocator = expandable(1 << 30);
    let [a, b, c] = [30, 25, 5].map(|size| allocator.get(size * MIB));
    // 30 takes two pages of 20 MiB, 25 one more than the 10 that are left, 5 what is left then.
    assert_eq!(allocator.reserved(), 60 * MIB);
    let base = allocator.address(a);
    assert_eq!([b, c].map(|key| (allocator.address(key) - base) as usize), [30 * MIB, 55 * MIB]);
    // Reserve, then twice create and map two and one page and set access.
    assert_eq!(allocator.levels().driver_calls, 1 + (2 + 2 + 1) + (1 + 1 + 1));
    allocator.get(MIB);
    assert_eq!(allocator.reserved(), 62 * MIB, "the small pool has pages of 2 MiB");
    allocator.check();
}

#[test]
fn an_expandable_segment_does_not_stitch_its_holes() {
    let mut allocator = expandable(1 << 30);
    let blocks: Vec<BlockKey> = (0..10).map(|_| allocator.get(20 * MIB)).collect();
    for &key in blocks.iter().step_by(2) {
        allocator.free(key);
    }
    assert_eq!(allocator.levels().largest_free_bytes, 20 * MIB);
    allocator.get(40 * MIB);
    assert_eq!(allocator.reserved(), 240 * MIB, "five holes of 20 MiB, and yet two pages more");
    allocator.check();
}

#[test]
fn whole_pages_go_back_from_the_middle_and_are_mapped_again_lowest_first() {
    let mut allocator = expandable(100 * MIB);
    let [a, b, c] = [30, 50, 20].map(|size| allocator.get(size * MIB));
    let base = allocator.address(a);
    allocator.free(b);
    // From 30 to 80 MiB there are the whole pages 40 to 80.
    assert_eq!(allocator.levels().inactive_split_bytes, 10 * MIB);
    let other = allocator.allocate(40 * MIB, StreamId(1)).expect("the pages of the other stream go back");
    assert_eq!(allocator.reserved(), 100 * MIB);
    assert_eq!(allocator.levels().largest_free_bytes, 10 * MIB);
    allocator.free(other);
    let again = allocator.get(45 * MIB);
    assert_eq!(allocator.address(again) - base, 30 * MIB as u64, "from the free rest through the hole");
    allocator.check();
    allocator.free_all([a, c, again]);
    assert!(allocator.allocate(120 * MIB, StreamId(0)).is_none());
    assert_eq!(allocator.reserved(), 0, "everything went back before it failed");
    allocator.check();
}

#[test]
fn a_block_that_can_grow_is_kept_for_what_grows() {
    let mut allocator = expandable(1 << 30);
    let [hole, wall, tail] = [25, 5, 30].map(|size| allocator.get(size * MIB));
    let base = allocator.address(hole);
    allocator.free_all([hole, tail]);
    let _ = wall;
    // The hole of 25 MiB is the best fit and cannot grow; the tail of 30 MiB has the rest of the
    // range behind it.
    let block = allocator.get(20 * MIB);
    assert_eq!(allocator.address(block), base);
    allocator.free(block);
    // A hole of 40 MiB would be a worse fit than the tail, but the tail counts for all that it can
    // become.
    let mut allocator = expandable(1 << 30);
    let [hole, wall, tail] = [40, 10, 30].map(|size| allocator.get(size * MIB));
    let base = allocator.address(hole);
    allocator.free_all([hole, tail]);
    let block = allocator.get(20 * MIB);
    assert_eq!(allocator.address(block), base);
    allocator.free(wall);
    allocator.check();
}

#[derive(Clone, Debug)]
enum Action {
    Allocate(usize, u32),
    Free(usize),
}

fn actions() -> impl Strategy<Value = Vec<Action>> {
    let bytes = prop_oneof![1..4 * KIB, 1..4 * MIB, 1..64 * MIB];
    let action = prop_oneof![
        3 => (bytes, 0..2_u32).prop_map(|(bytes, stream)| Action::Allocate(bytes, stream)),
        2 => any::<usize>().prop_map(Action::Free),
    ];
    prop::collection::vec(action, 1..200)
}

proptest! {
    #[test]
    fn what_is_held_adds_up(actions in actions(), is_expandable in any::<bool>(), limit in prop::sample::select(vec![None, Some(32 * MIB)])) {
        let growth = if is_expandable { GrowthMode::Expandable } else { GrowthMode::Segments };
        let mut allocator = allocator(growth, 256 * MIB, limit);
        let mut live: Vec<BlockKey> = Vec::new();
        for action in actions {
            match action {
                Action::Allocate(bytes, stream) => live.extend(allocator.allocate(bytes, StreamId(stream))),
                Action::Free(which) if !live.is_empty() => {
                    let key = live.swap_remove(which % live.len());
                    allocator.free(key);
                }
                Action::Free(_) => {}
            }
            allocator.check();
            prop_assert!(allocator.reserved() <= 256 * MIB);
            let mut ranges: Vec<(u64, u64)> =
                live.iter().map(|&key| &allocator.blocks[key]).map(|block| (block.address, block.address + block.bytes as u64)).collect();
            ranges.sort_unstable();
            prop_assert!(ranges.windows(2).all(|pair| pair[0].1 <= pair[1].0), "live blocks overlap");
        }
        live.into_iter().for_each(|key| allocator.free(key));
        allocator.release_cached();
        prop_assert_eq!(allocator.reserved(), 0);
    }
}
