//! The memory pool on a simulated device: its own time, without a driver's.

use std::sync::Arc;
use std::time::{Duration, Instant};

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use megabatch_gpu_core::pool::{AllocationRequest, BlockId, Pool, PoolSettings};
use megabatch_gpu_core::source::{Simulated, StreamId};

const GRANULE_BYTES: usize = 2 << 20;
const CAPACITY_BYTES: usize = 64 << 30;
const LIVE_BLOCKS: usize = 10_000;

/// SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((x ^ (x >> 31)) % end as u64) as usize
    }
}

#[derive(Clone, Copy)]
enum Mix {
    Small,
    Large,
    Both,
}

impl Mix {
    fn bytes(self, random: &mut Random) -> usize {
        match self {
            Mix::Small => 1 + random.below(32 << 10),
            Mix::Large => (64 << 10) + random.below(4 << 20),
            Mix::Both if random.below(2) == 0 => Mix::Small.bytes(random),
            Mix::Both => Mix::Large.bytes(random),
        }
    }
}

fn pool(capacity_bytes: usize) -> Pool {
    Pool::new(Box::new(Simulated::new(capacity_bytes, GRANULE_BYTES)), PoolSettings { capacity_bytes: None })
}

fn request(bytes: usize) -> AllocationRequest {
    AllocationRequest { bytes, stream: StreamId::default(), owner: Arc::from("bench") }
}

/// A pool in which 10,000 blocks live and as many have come and gone.
fn inhabited(mix: Mix, random: &mut Random) -> (Pool, Vec<BlockId>) {
    let mut pool = pool(CAPACITY_BYTES);
    let allocate = |pool: &mut Pool, random: &mut Random| {
        pool.allocate(&request(mix.bytes(random))).expect("the device is large enough")
    };
    let mut live: Vec<BlockId> = (0..LIVE_BLOCKS).map(|_| allocate(&mut pool, random)).collect();
    for _ in 0..LIVE_BLOCKS {
        let index = random.below(LIVE_BLOCKS);
        pool.free(live[index]);
        live[index] = allocate(&mut pool, random);
    }
    (pool, live)
}

/// Frees a block at random and allocates another: what is measured is both together.
fn hot_path(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("pool at 10,000 live blocks");
    for (name, mix) in [("small", Mix::Small), ("large", Mix::Large), ("small and large", Mix::Both)] {
        let mut random = Random(1);
        let (mut pool, mut live) = inhabited(mix, &mut random);
        let requests: Vec<AllocationRequest> = (0..4096).map(|_| request(mix.bytes(&mut random))).collect();
        let victims: Vec<usize> = (0..4096).map(|_| random.below(LIVE_BLOCKS)).collect();
        let mut turn = 0;
        group.bench_function(format!("free one, allocate another: {name}"), |bencher| {
            bencher.iter(|| {
                turn = (turn + 1) % 4096;
                pool.free(live[victims[turn]]);
                live[victims[turn]] = pool.allocate(&requests[turn]).expect("the device is large enough");
            });
        });
        group.bench_function(format!("allocate, free the same: {name}"), |bencher| {
            bencher.iter(|| {
                turn = (turn + 1) % 4096;
                let block = pool.allocate(&requests[turn]).expect("the device is large enough");
                pool.free(block);
            });
        });
    }
    group.finish();
}

/// A block of 64 granules from granules of which every second is free: mapping is free of cost on
/// the simulated device.
fn stitching(criterion: &mut Criterion) {
    const GRANULES: usize = 1024;
    let checkered = || {
        let mut pool = pool(GRANULES * GRANULE_BYTES);
        let block = request(GRANULE_BYTES);
        let blocks: Vec<BlockId> = (0..GRANULES).map(|_| pool.allocate(&block).expect("they fit")).collect();
        blocks.iter().step_by(2).for_each(|&block| pool.free(block));
        pool
    };
    let large = request(64 * GRANULE_BYTES);
    criterion.bench_function("pool: stitch 64 granules of 512 scattered", |bencher| {
        bencher.iter_batched_ref(checkered, |pool| pool.allocate(&large), BatchSize::LargeInput);
    });
    let mut pool = checkered();
    let block = pool.allocate(&large).expect("they are free");
    pool.free(block);
    criterion.bench_function("pool: stitch them again and free them", |bencher| {
        bencher.iter(|| {
            let block = pool.allocate(&large).expect("they are free");
            pool.free(block);
        });
    });
}

/// A million events of blocks of all sizes in little more memory than they need, with a step
/// boundary every thousand.
fn million_events(criterion: &mut Criterion) {
    const EVENTS: usize = 1_000_000;
    let mut group = criterion.benchmark_group("pool");
    group.throughput(Throughput::Elements(EVENTS as u64)).sample_size(10);
    group.bench_function("a million events in a tight pool", |bencher| {
        bencher.iter_custom(|rounds| {
            let mut spent = Duration::ZERO;
            for round in 0..rounds {
                let mut random = Random(round);
                let mut pool = pool(2 << 30);
                let mut live: Vec<BlockId> = Vec::new();
                let start = Instant::now();
                for event in 0..EVENTS {
                    if event % 1000 == 0 {
                        pool.step();
                    }
                    let block = if random.below(1000) < 520 {
                        pool.allocate(&request(Mix::Both.bytes(&mut random))).ok()
                    } else {
                        None
                    };
                    match block {
                        Some(block) => live.push(block),
                        None if live.is_empty() => {}
                        None => pool.free(live.swap_remove(random.below(live.len()))),
                    }
                }
                spent += start.elapsed();
            }
            spent
        });
    });
    group.finish();
}

criterion_group!(benches, hot_path, stitching, million_events);
criterion_main!(benches);
