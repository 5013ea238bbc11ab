#![allow(unsafe_code, reason = "the interface is one of C")]

//! PyTorch's memory on a fake driver.
#![cfg(target_os = "linux")]

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::BufReader;

use flate2::read::GzDecoder;
use megabatch_alloc_lab::TraceReader;
use megabatch_gpu_core::recording::TraceEvent;
use megabatch_simt::driver::{FakeDriver, OUT_OF_MEMORY, Setting};
use megabatch_torch_pool::{Error, PoolSettings, TorchPool};
use proptest::prelude::*;

const MIB: usize = 1 << 20;

fn settings() -> PoolSettings {
    PoolSettings { stitching: true, budget_bytes: None, leave_bytes: 0 }
}

/// A block of device 0 for `stream`.
fn allocate(pool: &TorchPool, bytes: usize, stream: u64) -> Result<u64, Error> {
    // SAFETY: streams of the fake driver live until the test's end.
    unsafe { pool.allocate(bytes, 0, stream) }
}

/// Submits more work than the fake driver does while it is asked whether a stream is idle.
fn fill(driver: &FakeDriver, address: u64, value: u8, bytes: usize, stream: u64) {
    (0..8).for_each(|_| driver.fill(address, value, bytes, stream));
}

/// A GPU whose memory is one block of 8 MiB, and which works when somebody waits.
fn one_block() -> (FakeDriver, TorchPool) {
    let driver = FakeDriver::whole();
    driver.set(Setting::Deferred, 1);
    driver.set(Setting::TotalBytes, 8 * MIB as u64);
    (driver, TorchPool::new(settings()).unwrap())
}

/// Writes to `block` on `stream` alone, then has all work done: the block must have what was
/// written last.
fn assert_keeps(driver: &FakeDriver, block: u64, stream: u64) {
    driver.fill(block, 2, 8 * MIB, stream);
    driver.synchronize(stream);
    driver.synchronize_all();
    assert!(driver.peek(block, 8 * MIB).iter().all(|&byte| byte == 2));
}

fn is_shortage(error: &Error) -> bool {
    matches!(error, Error::Shortage(_))
}

fn record(pool: &TorchPool, address: u64, stream: u64) {
    // SAFETY: as above.
    unsafe { pool.record_stream(address, stream) }
}

#[test]
fn memory_in_pieces_serves_a_large_request() {
    let driver = FakeDriver::whole();
    driver.set(Setting::TotalBytes, 64 * MIB as u64);
    let pool = TorchPool::new(settings()).unwrap();
    let blocks: Vec<u64> = (0..16).map(|_| allocate(&pool, 4 * MIB, 0).unwrap()).collect();
    blocks.iter().step_by(2).for_each(|&block| pool.free(block, 0).unwrap());
    // Each free piece has 4 MiB.
    let large = allocate(&pool, 32 * MIB, 0).unwrap();
    let memory = pool.memory(0).unwrap();
    assert_eq!((memory.counts.allocated_bytes, memory.counts.reserved_bytes), (64 * MIB, 64 * MIB));
    assert_eq!(memory.stats.stitches_total, 1);
    let error = allocate(&pool, MIB, 0).unwrap_err();
    assert!(is_shortage(&error), "{error}");
    pool.free(large, 0).unwrap();
    assert!(allocate(&pool, MIB, 0).is_ok());
}

#[test]
fn without_stitching_no_granule_is_mapped_twice() {
    let driver = FakeDriver::whole();
    driver.set(Setting::TotalBytes, 64 * MIB as u64);
    let pool = TorchPool::new(PoolSettings { stitching: false, ..settings() }).unwrap();
    let blocks: Vec<u64> = (0..16).map(|_| allocate(&pool, 4 * MIB, 0).unwrap()).collect();
    blocks.iter().step_by(2).for_each(|&block| pool.free(block, 0).unwrap());
    let found = allocate(&pool, 32 * MIB, 0);
    assert_eq!(pool.memory(0).unwrap().stats.stitches_total, 0);
    let error = found.unwrap_err().to_string();
    assert!(
        error.contains("There is no room at consecutive addresses, and stitching is off. Owners: torch 32.00 MiB."),
        "{error}"
    );
}

#[test]
fn another_stream_waits_for_the_work_on_freed_memory() {
    let (driver, pool) = one_block();
    let first = allocate(&pool, 8 * MIB, 0).unwrap();
    let side = driver.external_stream();
    fill(&driver, first, 1, 8 * MIB, 0);
    pool.free(first, 0).unwrap();
    let second = allocate(&pool, 8 * MIB, side).unwrap();
    assert_eq!(second, first);
    assert_keeps(&driver, second, side);
}

#[test]
fn a_recorded_stream_is_waited_for() {
    let (driver, pool) = one_block();
    let first = allocate(&pool, 8 * MIB, 0).unwrap();
    let side = driver.external_stream();
    record(&pool, first, side);
    fill(&driver, first, 1, 8 * MIB, side);
    pool.free(first, 0).unwrap();
    assert_eq!(pool.memory(0).unwrap().counts.allocated_bytes, 8 * MIB, "the stream may work on it");
    let second = allocate(&pool, 8 * MIB, 0).unwrap();
    assert_keeps(&driver, second, 0);
}

#[test]
fn nobody_but_the_caller_changes_its_context() {
    let driver = FakeDriver::whole();
    driver.set(Setting::Devices, 2);
    let pool = TorchPool::new(settings()).unwrap();
    driver.synchronize_all();
    let before = driver.current_context();
    // SAFETY: 0 is the default stream.
    let block = unsafe { pool.allocate(100, 1, 0) }.unwrap();
    assert_eq!(driver.current_context(), before);
    pool.free(block, 1).unwrap();
    assert_eq!(driver.current_context(), before);
}

#[test]
fn bounds_are_kept() {
    let driver = FakeDriver::whole();
    driver.set(Setting::TotalBytes, 64 * MIB as u64);
    let settings = PoolSettings { budget_bytes: Some(20 * MIB), leave_bytes: 16 * MIB, ..settings() };
    let pool = TorchPool::new(settings).unwrap();
    let kept = allocate(&pool, 15 * MIB, 0).unwrap();
    assert_eq!(pool.memory(0).unwrap().counts.capacity_bytes, 48 * MIB, "16 MiB are left to others");
    let error = allocate(&pool, 6 * MIB, 0).unwrap_err();
    assert!(is_shortage(&error) && error.to_string().contains("budget of 20.00 MiB"), "{error}");
    pool.free(kept, 0).unwrap();
    pool.empty_cache().unwrap();
    pool.set_memory_fraction(0.125, 0).unwrap();
    let error = allocate(&pool, 9 * MIB, 0).unwrap_err();
    assert!(error.to_string().contains("never fits: 0 bytes are allocated"), "{error}");
    assert!(matches!(pool.set_memory_fraction(0.0, 0), Err(Error::Fraction { .. })));
    // SAFETY: no stream is looked up.
    assert!(matches!(unsafe { pool.allocate(1, -1, 0) }, Err(Error::NoSuchOrdinal { ordinal: -1 })));
    assert_eq!(allocate(&pool, 0, 0).unwrap(), 0);
}

#[test]
fn owners_have_books_and_growth_is_told() {
    let _driver = FakeDriver::whole();
    let pool = TorchPool::new(settings()).unwrap();
    let outside = allocate(&pool, 1000, 0).unwrap();
    pool.enter_scope("encoder");
    let mut kept = vec![allocate(&pool, MIB, 0).unwrap()];
    pool.leave_scope();
    pool.leave_scope();
    kept.push(allocate(&pool, 24, 0).unwrap());
    let owners: BTreeMap<_, _> = pool.memory(0).unwrap().owners.into_iter().collect();
    assert_eq!(owners["encoder"].allocated_bytes, MIB);
    assert_eq!(owners["torch"].allocated_bytes, 1024);
    pool.free(outside, 0).unwrap();
    let mut leaks = Vec::new();
    pool.enter_scope("validation");
    for _ in 0..6 {
        kept.push(allocate(&pool, 36 * MIB, 0).unwrap());
        leaks.extend(pool.epoch(0).unwrap());
    }
    assert_eq!(leaks.len(), 1, "{leaks:?}");
    assert_eq!(leaks[0].owners[0].owner, "validation");
}

#[test]
fn a_trace_and_a_snapshot_are_recorded() {
    let _driver = FakeDriver::whole();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.jsonl");
    let pool = TorchPool::new(settings()).unwrap();
    let early = allocate(&pool, 5000, 0).unwrap();
    assert!(pool.snapshot(0).unwrap().len() > 100, "without a recording there are no events, but blocks");
    pool.record(0, Some(&path)).unwrap();
    let block = allocate(&pool, MIB, 0).unwrap();
    pool.step();
    pool.free(block, 0).unwrap();
    pool.free(early, 0).unwrap();
    pool.finish_trace(0, &path).unwrap();
    let lines: Vec<String> = std::fs::read_to_string(&path).unwrap().lines().map(str::to_owned).collect();
    let count = |op: &str| lines.iter().filter(|line| line.contains(&format!("\"op\":\"{op}\""))).count();
    assert_eq!((count("alloc"), count("free"), count("step")), (2, 2, 1), "{lines:?}");
    let missing = pool.record(0, Some(&folder.path().join("none/trace.jsonl"))).unwrap_err();
    assert!(matches!(missing, Error::Trace { .. }), "{missing}");
}

/// A training of PyTorch, whose requests were recorded on a GPU.
#[test]
fn a_recorded_training_holds_little_more_than_it_asks_for() {
    let driver = FakeDriver::whole();
    driver.set(Setting::TotalBytes, 4 << 30);
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../alloc-lab/traces/gat.jsonl.gz");
    let trace = TraceReader::new(BufReader::new(GzDecoder::new(File::open(path).unwrap())));
    let pool = TorchPool::new(settings()).unwrap();
    let mut live = HashMap::new();
    for line in trace {
        match line.unwrap().event {
            TraceEvent::Alloc { id, bytes, .. } => drop(live.insert(id, allocate(&pool, bytes, 0).unwrap())),
            TraceEvent::Free { id } => pool.free(live.remove(&id).unwrap(), 0).unwrap(),
            TraceEvent::Step => pool.step(),
        }
    }
    let stats = pool.memory(0).unwrap().stats;
    let (requested, reserved) = (stats.requested_bytes.peak, stats.reserved_bytes.peak);
    assert!(requested > 1 << 30 && reserved as f64 <= 1.02 * requested as f64, "{reserved} for {requested}");
}

/// Whatever call to the driver fails, the request alone does, and the memory is there afterwards.
#[test]
fn a_failure_of_the_driver_leaves_the_pool_whole() {
    const CALLS: [&str; 8] = [
        "cuMemAddressReserve",
        "cuMemCreate",
        "cuMemMap",
        "cuMemSetAccess",
        "cuEventCreate",
        "cuEventRecord",
        "cuEventQuery",
        "cuStreamWaitEvent",
    ];
    for (call, nth) in CALLS.into_iter().flat_map(|call| (1..6).map(move |nth| (call, nth))) {
        let driver = FakeDriver::whole();
        driver.set(Setting::Deferred, 1);
        driver.set(Setting::TotalBytes, 32 * MIB as u64);
        let pool = TorchPool::new(settings()).unwrap();
        pool.reset_peak(0).unwrap();
        let side = driver.external_stream();
        driver.fail(call, nth, OUT_OF_MEMORY);
        let mut live: Vec<u64> = (0..8).filter_map(|_| allocate(&pool, 3 * MIB, 0).ok()).collect();
        let mut lost = 0;
        for block in live.drain(..).step_by(2) {
            record(&pool, block, side);
            driver.fill(block, 1, 3 * MIB, side);
            // A block whose free fails is never used again.
            lost += usize::from(pool.free(block, 0).is_err()) * 4 * MIB;
        }
        live.extend(allocate(&pool, 9 * MIB, side).ok());
        driver.synchronize_all();
        live.into_iter().for_each(|block| pool.free(block, 0).unwrap());
        let counts = pool.memory(0).unwrap().counts;
        let left = counts.whole_free_granules_bytes + counts.capacity_bytes - counts.reserved_bytes - lost;
        assert!(left >= 8 * MIB, "{call} {nth}");
        // The failure may come only now, once.
        let again = allocate(&pool, left, 0).or_else(|_| allocate(&pool, left, 0));
        again.unwrap_or_else(|error| panic!("{call} {nth}: {error}"));
    }
}

/// A call of PyTorch's, or work of its kernels.
#[derive(Clone, Debug)]
enum Call {
    Allocate {
        bytes: usize,
        stream: usize,
    },
    Free {
        block: usize,
    },
    /// Work of another stream, which was ordered after the block's own.
    Use {
        block: usize,
        stream: usize,
    },
    EmptyCache,
    Refuse {
        nth: u64,
    },
}

fn calls() -> impl Strategy<Value = Vec<Call>> {
    let bytes = prop_oneof![3 => 1usize..5000, 2 => 5000..3 * MIB, 2 => 3 * MIB..20 * MIB];
    let call = prop_oneof![
        8 => (bytes, 0usize..3).prop_map(|(bytes, stream)| Call::Allocate { bytes, stream }),
        7 => (0usize..40).prop_map(|block| Call::Free { block }),
        3 => (0usize..40, 0usize..3).prop_map(|(block, stream)| Call::Use { block, stream }),
        1 => Just(Call::EmptyCache),
        1 => (1u64..4).prop_map(|nth| Call::Refuse { nth }),
    ];
    prop::collection::vec(call, 1..120)
}

struct Live {
    address: u64,
    bytes: usize,
    value: u8,
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// No block is given twice, and each keeps what was written to it, whatever streams have still
    /// to do; the books agree with a model.
    #[test]
    fn blocks_keep_their_contents(calls in calls(), is_reversed in any::<bool>()) {
        let driver = FakeDriver::whole();
        driver.set(Setting::Deferred, 1);
        driver.set(Setting::TotalBytes, 64 * MIB as u64);
        let pool = TorchPool::new(settings()).unwrap();
        // Opens the GPU, without which there are no streams.
        pool.reset_peak(0).unwrap();
        let streams = [0, driver.external_stream(), driver.external_stream()];
        let mut live: Vec<Live> = Vec::new();
        let mut value = 0u8;
        for call in calls {
            value = value.wrapping_add(1);
            match call {
                Call::Allocate { bytes, stream } => match allocate(&pool, bytes, streams[stream]) {
                    Ok(address) => {
                        prop_assert_eq!(address % 512, 0);
                        fill(&driver, address, value, bytes, streams[stream]);
                        live.push(Live { address, bytes, value });
                    }
                    Err(error) => prop_assert!(is_shortage(&error), "{error}"),
                },
                Call::Free { block } if !live.is_empty() => {
                    let block = live.swap_remove(block % live.len());
                    pool.free(block.address, 0).unwrap();
                }
                Call::Use { block, stream } if !live.is_empty() => {
                    let at = block % live.len();
                    let block = &mut live[at];
                    driver.synchronize_all();
                    record(&pool, block.address, streams[stream]);
                    fill(&driver, block.address, value, block.bytes, streams[stream]);
                    block.value = value;
                }
                Call::EmptyCache => pool.empty_cache().unwrap(),
                Call::Refuse { nth } => driver.fail("cuMemCreate", nth, OUT_OF_MEMORY),
                Call::Free { .. } | Call::Use { .. } => {}
            }
        }
        // The work of one stream is done long before that of others.
        let mut order = streams;
        if is_reversed {
            order.reverse();
        }
        order.into_iter().for_each(|stream| driver.synchronize(stream));
        driver.synchronize_all();
        for Live { address, bytes, value } in &live {
            prop_assert!(driver.peek(*address, *bytes).iter().all(|byte| byte == value));
        }
        pool.empty_cache().unwrap();
        let requested: usize = live.iter().map(|block| block.bytes).sum();
        prop_assert_eq!(pool.memory(0).unwrap().stats.requested_bytes.now, requested);
        for block in live {
            pool.free(block.address, 0).unwrap();
        }
        pool.empty_cache().unwrap();
        prop_assert_eq!(pool.memory(0).unwrap().counts.reserved_bytes, 0);
    }
}
