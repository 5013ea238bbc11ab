//! The pool on a source that keeps the contents of memory, against a model that knows only which
//! blocks live.

mod examples;
mod ground;

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use ground::Ground;

const GRANULE: usize = 64 << 10;

/// A pool, the ground below it, and the blocks that live: their names, requests and marks.
struct Play {
    pool: Pool,
    ground: Ground,
    live: Vec<(BlockId, AllocationRequest, u64)>,
    marks: u64,
}

impl Play {
    fn new(granules: usize) -> Self {
        let ground = Ground::new(granules, GRANULE);
        let pool = Pool::new(Box::new(ground.clone()), PoolSettings { capacity_bytes: None });
        Play { pool, ground, live: Vec::new(), marks: 0 }
    }

    fn request(bytes: usize, stream: u32) -> AllocationRequest {
        AllocationRequest { bytes, stream: StreamId(stream), owner: "test".into() }
    }

    fn allocate(&mut self, request: AllocationRequest) -> Result<BlockId, AllocationError> {
        let block = self.pool.allocate(&request)?;
        self.marks += 1;
        self.ground.mark(self.pool.address(block), request.bytes, self.marks);
        self.live.push((block, request, self.marks));
        Ok(block)
    }

    fn free(&mut self, index: usize) {
        let (block, request, mark) = self.live.swap_remove(index);
        self.ground.assert_marked(self.pool.address(block), request.bytes, mark);
        self.pool.free(block);
    }

    fn free_block(&mut self, block: BlockId) {
        let index = self.live.iter().position(|(id, ..)| *id == block).unwrap();
        self.free(index);
    }

    /// Contents of all live blocks are as they were written, and the pool's invariants hold.
    fn check(&self) {
        for (block, request, mark) in &self.live {
            self.ground.assert_marked(self.pool.address(*block), request.bytes, *mark);
        }
        self.pool.check();
    }

    fn addresses(&self) -> Vec<u64> {
        self.live.iter().map(|(block, ..)| self.pool.address(*block)).collect()
    }

    /// Granules with a live byte, as the ground sees them.
    fn live_granules(&self) -> usize {
        let granules = |(block, request, _): &(BlockId, AllocationRequest, u64)| {
            self.ground.granules(self.pool.address(*block), request.bytes.max(1))
        };
        self.live.iter().flat_map(granules).collect::<BTreeSet<u64>>().len()
    }
}

/// Sizes in bytes: small blocks, blocks of parts of a granule, and of some granules.
fn sizes() -> impl Strategy<Value = usize> {
    prop_oneof![
        0..GRANULE / 32,
        GRANULE / 64..GRANULE,
        (1usize..160).prop_map(|eighths| eighths * GRANULE / 8),
        GRANULE..12 * GRANULE,
    ]
}

#[derive(Clone, Copy, Debug)]
enum Act {
    Allocate(usize, u32),
    Free(usize),
    Step,
    EmptyCache,
    /// A stream gets work to do, or is done.
    Work(u32, bool),
    /// The call after so many fails.
    Fail(u64),
}

fn acts(faults: bool) -> impl Strategy<Value = Vec<Act>> {
    let act = prop_oneof![
        12 => (sizes(), 0u32..3).prop_map(|(bytes, stream)| Act::Allocate(bytes, stream)),
        9 => (0usize..1000).prop_map(Act::Free),
        1 => Just(Act::Step),
        1 => Just(Act::EmptyCache),
        2 => (0u32..3, any::<bool>()).prop_map(|(stream, busy)| Act::Work(stream, busy)),
        2 * u32::from(faults) => (0u64..30).prop_map(Act::Fail),
    ];
    prop::collection::vec(act, 1..300)
}

/// Does what is asked; `true` if an allocation failed without need.
fn run(play: &mut Play, act: Act) -> bool {
    match act {
        Act::Allocate(bytes, stream) => {
            let before = (play.pool.stats(), play.pool.counts().allocated_bytes);
            let needed = play.live_granules() + bytes.max(1).div_ceil(GRANULE);
            if let Err(shortage) = play.allocate(Play::request(bytes, stream)) {
                let after = (play.pool.stats(), play.pool.counts().allocated_bytes);
                assert_eq!(
                    (before.0.requested_bytes, before.0.blocks, before.1),
                    (after.0.requested_bytes, after.0.blocks, after.1)
                );
                assert_eq!(before.0.shortages_total + 1, after.0.shortages_total);
                let fits = needed <= play.pool.counts().capacity_bytes / GRANULE;
                return fits || matches!(shortage, AllocationError::Source(_));
            }
        }
        Act::Free(_) if play.live.is_empty() => {}
        Act::Free(index) => play.free(index % play.live.len()),
        Act::Step => play.pool.step(),
        Act::EmptyCache => {
            let free = play.pool.counts().whole_free_granules_bytes;
            assert_eq!(play.pool.empty_cache(), free);
            assert_eq!(play.pool.counts().whole_free_granules_bytes, 0);
        }
        Act::Work(stream, true) => drop(play.ground.state().busy.insert(StreamId(stream))),
        Act::Work(stream, false) => drop(play.ground.state().busy.remove(&StreamId(stream))),
        Act::Fail(calls) => play.ground.state().fail_after = Some(calls),
    }
    false
}

proptest! {
    /// Whatever happens, contents of live blocks stay, invariants hold, and a request succeeds
    /// whenever its granules and those of the live blocks are within the capacity.
    #[test]
    fn what_fits_by_granules_succeeds(acts in acts(false)) {
        let mut play = Play::new(48);
        for (k, act) in acts.into_iter().enumerate() {
            prop_assert!(!run(&mut play, act), "{act:?} failed without need");
            prop_assert_eq!(play.pool.main.live_granules(), play.live_granules());
            if k % 16 == 0 {
                play.check();
            }
        }
        play.check();
    }

    /// A source that cannot map twice has the same contents and invariants; it merely finds less.
    #[test]
    fn without_aliasing_nothing_is_stitched(acts in acts(false), held_by_others in 0usize..40) {
        let mut play = Play::new(48);
        play.ground.state().can_alias = false;
        play.ground.state().held_by_others = held_by_others;
        for (k, act) in acts.into_iter().enumerate() {
            if !matches!(act, Act::EmptyCache) {
                run(&mut play, act);
            }
            if k % 16 == 0 {
                play.check();
            }
        }
        play.check();
        prop_assert_eq!(play.pool.stats().stitches_total, 0);
    }

    /// A failing source moves no block, spoils nothing, and what it failed at succeeds when it is
    /// asked again.
    #[test]
    fn a_failure_of_the_source_changes_nothing(acts in acts(true)) {
        let mut play = Play::new(48);
        for act in acts {
            let addresses = play.addresses();
            let blocks: Vec<BlockId> = play.live.iter().map(|(block, ..)| *block).collect();
            if matches!(act, Act::EmptyCache) {
                play.pool.empty_cache();
            } else if run(&mut play, act) {
                play.check();
                prop_assert_eq!(addresses, blocks.iter().map(|&block| play.pool.address(block)).collect::<Vec<_>>());
                play.ground.state().fail_after = None;
                prop_assert!(!run(&mut play, act), "it fails a second time");
            }
        }
        play.check();
    }
}

/// A step of a program: what it allocates and frees, in order. Numbers name blocks; what it does
/// not free itself stays.
#[derive(Clone, Debug)]
struct Program {
    acts: Vec<(usize, usize, bool)>,
    /// Blocks born in the first step that stay for ever.
    persistent: Vec<(usize, usize)>,
}

fn programs() -> impl Strategy<Value = Program> {
    let acts = prop::collection::vec((sizes(), 0usize..1000, prop::bool::weighted(0.4)), 1..120);
    let persistent = prop::collection::vec((0usize..120, 0..3 * GRANULE), 0..12);
    (acts, persistent).prop_map(|(acts, persistent)| Program { acts, persistent })
}

impl Program {
    /// One step on stream 0; `false` if memory ran out, which then is the same in each step.
    fn step(&self, play: &mut Play, first: bool) {
        let mut own: Vec<BlockId> = Vec::new();
        for (k, &(bytes, index, free)) in self.acts.iter().enumerate() {
            if free && !own.is_empty() {
                play.free_block(own.swap_remove(index % own.len()));
            } else if let Ok(block) = play.allocate(Play::request(bytes, 0)) {
                own.push(block);
            }
            for &(_, bytes) in self.persistent.iter().filter(|(position, _)| first && *position == k) {
                let _ = play.allocate(Play::request(bytes, 0));
            }
        }
        own.into_iter().for_each(|block| play.free_block(block));
        play.pool.step();
    }
}

proptest! {
    /// From its third repetition on, a step makes no call to the driver, and gives every block the
    /// address it had; also where memory is so tight that blocks are stitched.
    #[test]
    fn a_repeated_step_makes_no_call(program in programs()) {
        // As tight as the first step allows.
        let mut wide = Play::new(2000);
        program.step(&mut wide, true);
        let live_granules = wide.pool.stats().requested_bytes.peak.div_ceil(GRANULE);
        let mut play = Play::new(live_granules + 4);
        program.step(&mut play, true);
        program.step(&mut play, false);
        let (calls, shortages) = (play.pool.stats().driver_calls_total, play.pool.stats().shortages_total);
        for _ in 0..3 {
            program.step(&mut play, false);
        }
        // A request that failed asked the device how much is free, and that is a call.
        if shortages == 0 {
            prop_assert_eq!(play.pool.stats().driver_calls_total, calls);
        }
        play.check();
    }
}
