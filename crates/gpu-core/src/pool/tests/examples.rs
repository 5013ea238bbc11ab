//! Single cases, each with what it must come to.

use std::sync::{Arc, Mutex};

use super::*;

/// Eight blocks of one granule, those of even number freed.
fn comb(play: &mut Play) -> Vec<BlockId> {
    let blocks: Vec<BlockId> = (0..8).map(|_| play.allocate(Play::request(GRANULE, 0)).unwrap()).collect();
    blocks.iter().step_by(2).for_each(|&block| play.free_block(block));
    blocks
}

#[test]
fn scattered_granules_become_one_block_without_a_copy_or_a_new_granule() {
    let mut play = Play::new(8);
    let blocks = comb(&mut play);
    let live: Vec<u64> = blocks.iter().skip(1).step_by(2).map(|&block| play.pool.address(block)).collect();
    let large = play.allocate(Play::request(4 * GRANULE, 0)).unwrap();
    play.check();
    let stats = play.pool.stats();
    assert_eq!((stats.stitches_total, stats.stitched_granules_total), (1, 4));
    assert_eq!((stats.reserved_bytes.now, stats.inactive_split_bytes.now), (8 * GRANULE, 0));
    assert_eq!(live, blocks.iter().skip(1).step_by(2).map(|&block| play.pool.address(block)).collect::<Vec<_>>());

    // Freed and wanted again, it is there without a call.
    let (address, calls) = (play.pool.address(large), play.pool.stats().driver_calls_total);
    play.free_block(large);
    let again = play.allocate(Play::request(4 * GRANULE, 0)).unwrap();
    assert_eq!((play.pool.address(again), play.pool.stats().driver_calls_total), (address, calls));
    play.check();
}

#[test]
fn a_stitched_block_ends_or_begins_in_a_granule_that_is_in_use() {
    const HALF: usize = GRANULE / 2;
    for (freed, half) in [(1, "end"), (3, "beginning")] {
        let mut play = Play::new(4);
        let sizes = [HALF, HALF, GRANULE, HALF, HALF, GRANULE];
        let blocks = sizes.map(|bytes| play.allocate(Play::request(bytes, 0)).unwrap());
        [freed, 5].into_iter().for_each(|index| play.free_block(blocks[index]));
        assert!(play.allocate(Play::request(GRANULE + HALF, 0)).is_ok(), "with the free {half} of a granule");
        assert_eq!((play.pool.stats().stitches_total, play.pool.counts().free_bytes), (1, 0));
        play.check();
    }
}

#[test]
fn what_is_missing_is_created_and_no_more() {
    let mut play = Play::new(12);
    comb(&mut play);
    play.allocate(Play::request(6 * GRANULE, 0)).unwrap();
    assert_eq!(play.pool.stats().reserved_bytes.now, 10 * GRANULE);
    play.check();
    // Unmapped slots between blocks are filled where they are, not stitched.
    play.pool.empty_cache();
    let before = play.pool.stats().stitches_total;
    play.allocate(Play::request(2 * GRANULE, 0)).unwrap();
    assert_eq!((play.pool.stats().reserved_bytes.now, play.pool.stats().stitches_total), (12 * GRANULE, before));
    play.check();
}

/// Slabs of a few blocks held all granules, and no other block found a place.
#[test]
fn what_lies_behind_the_blocks_of_a_slab_is_for_any_block_where_there_is_nothing_else() {
    let mut play = Play::new(2);
    for round in 0..3 {
        let [small, other] = [1, 1000].map(|bytes| play.allocate(Play::request(bytes, 0)).unwrap());
        let slabs: Vec<u64> = [small, other].map(|block| play.pool.address(block)).into();
        assert_eq!(slabs[0] % GRANULE as u64 + slabs[1] % GRANULE as u64, 0, "a granule each");
        let third = play.allocate(Play::request(3000, 0)).unwrap();
        let large = play.allocate(Play::request(GRANULE / 2, 0)).unwrap();
        play.check();
        play.pool.segments();
        // The slabs are full now, and more of their blocks go into holes.
        let more: Vec<BlockId> = [1, 1000, 1].map(|bytes| play.allocate(Play::request(bytes, 0)).unwrap()).into();
        play.check();
        assert!(play.allocate(Play::request(2 * GRANULE, 0)).is_err(), "round {round}");
        [small, other, third, large].into_iter().chain(more).for_each(|block| play.free_block(block));
        play.check();
        let whole = play.allocate(Play::request(2 * GRANULE, 0)).unwrap();
        play.free_block(whole);
        play.pool.step();
    }
}

/// All slabs were cut for a request that fitted behind none.
#[test]
fn a_request_that_fits_behind_no_slab_leaves_all_as_they_are() {
    let mut play = Play::new(2);
    for bytes in [1, 1000] {
        play.allocate(Play::request(bytes, 0)).unwrap();
    }
    let slots = |play: &Play| -> Vec<usize> { play.pool.slabs.iter().map(|(_, slab)| slab.slots()).collect() };
    assert_eq!(slots(&play), [GRANULE / 512, GRANULE / 1024]);
    assert!(play.allocate(Play::request(GRANULE, 0)).is_err());
    assert_eq!(slots(&play), [GRANULE / 512, GRANULE / 1024]);
    play.check();
}

/// The slab of the lowest number was cut, which was another one in each step.
#[test]
fn a_block_behind_a_slab_has_the_same_address_in_each_step() {
    let mut play = Play::new(2);
    let mut step = || {
        let blocks = [1, 1000, 3000].map(|bytes| play.allocate(Play::request(bytes, 0)).unwrap());
        play.check();
        let addresses = play.addresses();
        blocks.into_iter().for_each(|block| play.free_block(block));
        play.pool.step();
        addresses
    };
    let first = step();
    (0..3).for_each(|_| assert_eq!(step(), first));
}

#[test]
fn memory_of_a_busy_stream_waits_for_it() {
    let mut play = Play::new(4);
    let block = play.allocate(Play::request(4 * GRANULE, 1)).unwrap();
    play.ground.state().busy.insert(StreamId(1));
    play.free_block(block);
    // Its own stream needs no order.
    let block = play.allocate(Play::request(4 * GRANULE, 1)).unwrap();
    assert_eq!(play.ground.state().orders, []);
    play.free_block(block);
    let block = play.allocate(Play::request(GRANULE, 2)).unwrap();
    assert_eq!(play.ground.state().orders, [(StreamId(2), StreamId(1))]);
    // All of it was taken over with one order; and an idle stream needs none.
    play.allocate(Play::request(GRANULE, 2)).unwrap();
    play.free_block(block);
    play.allocate(Play::request(3 * GRANULE, 3)).unwrap();
    assert_eq!(play.ground.state().orders.len(), 1);
    play.check();
}

#[test]
fn the_three_shortages() {
    let mut play = Play::new(4);
    assert_eq!(
        play.allocate(Play::request(4 * GRANULE + 1, 0)),
        Err(AllocationError::NeverFits { largest_bytes: 4 * GRANULE })
    );
    play.ground.state().held_by_others = 2;
    play.allocate(Play::request(GRANULE, 0)).unwrap();
    let Err(AllocationError::NotNow(counts)) = play.allocate(Play::request(2 * GRANULE, 0)) else {
        panic!("others hold it")
    };
    assert_eq!((counts.held_by_others_bytes, counts.allocated_bytes), (Some(2 * GRANULE), GRANULE));
    play.ground.state().fail_after = Some(0);
    assert!(matches!(play.allocate(Play::request(GRANULE, 0)), Err(AllocationError::Source(Refusal::Failed { .. }))));
    assert_eq!(play.pool.stats().shortages_total, 3);
    play.check();

    let tiny = Ground::new(1, GRANULE);
    let mut pool = Pool::new(Box::new(tiny), PoolSettings { capacity_bytes: Some(GRANULE - 1) });
    assert_eq!(pool.allocate(&Play::request(0, 0)), Err(AllocationError::NeverFits { largest_bytes: 0 }));
    pool.check();
}

#[test]
#[should_panic(expected = "a block is freed once")]
fn a_block_is_freed_once() {
    let mut play = Play::new(1);
    let block = play.allocate(Play::request(1, 0)).unwrap();
    play.pool.free(block);
    play.pool.free(block);
}

#[test]
fn events_tell_what_happens() {
    let mut play = Play::new(8);
    let told = Arc::new(Mutex::new(Vec::new()));
    let ear = Arc::clone(&told);
    comb(&mut play);
    play.pool.set_observer(Some(Box::new(move |event| ear.lock().unwrap().push(event.clone()))));
    let large = play.allocate(Play::request(4 * GRANULE, 0)).unwrap();
    play.pool.step();
    assert!(play.allocate(Play::request(GRANULE, 0)).is_err());
    play.free_block(large);
    play.pool.empty_cache();
    play.pool.set_observer(None);
    play.pool.step();
    let names: Vec<&str> = told
        .lock()
        .unwrap()
        .iter()
        .map(|event| match event {
            PoolEvent::Allocated { .. } => "allocated",
            PoolEvent::Freed { .. } => "freed",
            PoolEvent::Grown { .. } => "grown",
            PoolEvent::Released { .. } => "released",
            PoolEvent::Stitched { granules: 4, .. } => "stitched",
            PoolEvent::Step => "step",
            PoolEvent::Short { bytes: GRANULE, .. } => "short",
            _ => "other",
        })
        .collect();
    assert_eq!(
        names,
        ["stitched", "allocated", "step", "short", "freed", "released", "released", "released", "released"]
    );
}

#[test]
fn small_blocks_share_a_granule_by_size() {
    let mut play = Play::new(4);
    let small: Vec<BlockId> = (0..128).map(|_| play.allocate(Play::request(512, 0)).unwrap()).collect();
    assert_eq!(play.pool.stats().reserved_bytes.now, GRANULE);
    play.allocate(Play::request(1000, 0)).unwrap();
    assert_eq!(play.pool.stats().reserved_bytes.now, 2 * GRANULE);
    small.into_iter().for_each(|block| play.free_block(block));
    assert_eq!(play.pool.counts().whole_free_granules_bytes, GRANULE);
    play.check();
}

#[test]
fn views_without_use_are_dropped_before_they_are_too_many() {
    let mut play = Play::new(8);
    let mut blocks: Vec<BlockId> = (0..8).map(|_| play.allocate(Play::request(GRANULE, 0)).unwrap()).collect();
    for turn in 0..400usize {
        // Pairs of granules that are not neighbours, in ever other combinations.
        let pair = [turn % 8, (turn * 3 + 2 + turn / 8) % 8];
        if pair[0] == pair[1] {
            continue;
        }
        pair.iter().for_each(|&index| play.free_block(blocks[index]));
        let large = play.allocate(Play::request(2 * GRANULE, 0)).unwrap();
        play.free_block(large);
        pair.iter().for_each(|&index| blocks[index] = play.allocate(Play::request(GRANULE, 0)).unwrap());
        assert!(play.pool.views.mapped() <= 8 * 8);
        play.check();
    }
    assert!(play.pool.stats().stitches_total > 4 * 8, "more views were made than may stay");
}

#[test]
fn segments_show_every_byte_once_at_each_address() {
    let mut play = Play::new(8);
    comb(&mut play);
    play.allocate(Play::request(700, 0)).unwrap();
    play.allocate(Play::request(2 * GRANULE + 5000, 0)).unwrap();
    let segments = play.pool.segments();
    let [home, view] = &segments[..] else { panic!("{segments:?}") };
    assert_eq!(
        (home.kind, home.bytes, view.kind, view.bytes),
        (SegmentKind::Main, 8 * GRANULE, SegmentKind::View, 3 * GRANULE)
    );
    for segment in &segments {
        let mut address = segment.address;
        for block in &segment.blocks {
            assert_eq!(block.address, address);
            address += block.bytes as u64;
        }
        assert_eq!(address, segment.address + segment.bytes as u64);
    }
    let sum = |state: BlockState| {
        home.blocks.iter().filter(|block| block.state == state).map(|block| block.bytes).sum::<usize>()
    };
    assert_eq!(sum(BlockState::Lent), (2 * GRANULE + 5000).next_multiple_of(UNIT_BYTES));
    assert_eq!(sum(BlockState::Live), 4 * GRANULE + 1024);
    assert_eq!(view.blocks[0].requested_bytes, 2 * GRANULE + 5000);
}
