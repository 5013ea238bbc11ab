use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::*;
use crate::pool::{AllocationError, AllocationRequest, BlockId, PoolSettings};
use crate::snapshot::RecordedAction;
use crate::source::{Simulated, StreamId};

const GRANULE: usize = 2 << 20;

/// Output of a trace, to be read while the pool holds the writer.
#[derive(Clone, Default)]
struct Paper(Arc<Mutex<Vec<u8>>>);

impl Write for Paper {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn pool() -> Pool {
    Pool::new(Box::new(Simulated::new(8 * GRANULE, GRANULE)), PoolSettings { capacity_bytes: None })
}

fn allocate(pool: &mut Pool, granules: usize, owner: &str) -> Result<BlockId, AllocationError> {
    pool.allocate(&AllocationRequest { bytes: granules * GRANULE, stream: StreamId(3), owner: owner.into() })
}

fn begin(pool: &mut Pool, events_max: usize) -> Recording {
    let now_us = AtomicU64::new(0);
    let clock: Clock = Arc::new(move || now_us.fetch_add(1, Relaxed));
    Recording::begin(pool, RecordingSettings { events_max, clock })
}

#[test]
fn the_last_events_are_kept_and_the_others_counted() {
    for (events_max, kept) in [(0, 0), (1, 1), (3, 3), (100, 20)] {
        let mut pool = pool();
        let recording = begin(&mut pool, events_max);
        (0..20).for_each(|_| pool.step());
        let snapshot = recording.now(&pool);
        assert_eq!((snapshot.events.len(), snapshot.events_dropped), (kept, 20 - kept as u64));
        assert!(snapshot.events.iter().all(|entry| entry.action == RecordedAction::Step));
        assert!(snapshot.events.windows(2).all(|pair| pair[0].time_us < pair[1].time_us));
    }
}

#[test]
fn the_snapshot_of_the_peak_is_from_before_the_first_free_after_it() {
    let mut pool = pool();
    let mut recording = begin(&mut pool, 100);
    let blocks = [(3, "a"), (2, "b")].map(|(granules, owner)| allocate(&mut pool, granules, owner).unwrap());
    for block in blocks {
        recording.before_free(&pool);
        pool.free(block);
    }
    allocate(&mut pool, 1, "c").unwrap();
    let peak = recording.peak(&pool);
    assert_eq!((peak.reason, peak.totals.allocated_bytes), (Reason::Peak, 5 * GRANULE));
    let mut owners: Vec<_> = peak.blocks().filter_map(|block| block.owner.as_deref()).collect();
    owners.sort_unstable();
    assert_eq!(owners, ["a", "b"]);
    assert_eq!(peak.timeline.now.allocated_bytes, GRANULE, "the course goes on to the end");

    allocate(&mut pool, 6, "d").unwrap();
    assert_eq!(recording.peak(&pool).totals.allocated_bytes, 7 * GRANULE, "a peak that has not ended is one");
}

#[test]
fn what_was_live_before_the_recording_is_known_to_it() {
    let mut pool = pool();
    let old = allocate(&mut pool, 2, "old").unwrap();
    let paper = Paper::default();
    let mut recording = begin(&mut pool, 100);
    recording.write_trace(&pool, Box::new(paper.clone()));
    pool.free(old);
    assert_eq!(recording.now(&pool).timeline.now.allocated_bytes, 0);
    recording.finish_trace().unwrap();
    let lines = "{\"op\":\"alloc\",\"id\":0,\"bytes\":4194304,\"stream\":3}\n{\"op\":\"free\",\"id\":0}\n";
    assert_eq!(String::from_utf8(paper.0.lock().unwrap().clone()).unwrap(), lines);
}

#[test]
fn a_failure_is_kept_with_the_request_that_failed() {
    let mut pool = pool();
    let mut recording = begin(&mut pool, 100);
    allocate(&mut pool, 6, "a").unwrap();
    assert!(allocate(&mut pool, 3, "b").is_err());
    let shortage = FailedRequest { requested_bytes: 3 * GRANULE, owner: "b".into(), message: "no".into() };
    recording.failed(&pool, shortage.clone());
    let failure = recording.take_failure().unwrap();
    assert_eq!((failure.reason, failure.shortage), (Reason::Shortage, Some(shortage)));
    assert_eq!(failure.totals.allocated_bytes, 6 * GRANULE);
    assert_eq!(recording.take_failure(), None);
}

#[test]
fn a_trace_has_a_line_for_each_request() {
    let mut pool = pool();
    let paper = Paper::default();
    let mut recording = begin(&mut pool, 0);
    recording.write_trace(&pool, Box::new(paper.clone()));
    let blocks = [1, 2].map(|granules| allocate(&mut pool, granules, "a").unwrap());
    pool.step();
    pool.free(blocks[1]);
    let again = allocate(&mut pool, 1, "a").unwrap();
    pool.free(blocks[0]);
    pool.free(again);
    recording.finish_trace().unwrap();
    pool.step();
    let text = String::from_utf8(paper.0.lock().unwrap().clone()).unwrap();
    let expected = [
        r#"{"op":"alloc","id":0,"bytes":2097152,"stream":3}"#,
        r#"{"op":"alloc","id":1,"bytes":4194304,"stream":3}"#,
        r#"{"op":"step"}"#,
        r#"{"op":"free","id":1}"#,
        r#"{"op":"alloc","id":2,"bytes":2097152,"stream":3}"#,
        r#"{"op":"free","id":0}"#,
        r#"{"op":"free","id":2}"#,
    ];
    assert_eq!(text.lines().collect::<Vec<_>>(), expected);
}

#[test]
fn a_trace_that_cannot_be_written_says_so_at_the_end() {
    /// A disk that is full after so many bytes.
    struct Full(usize);
    impl Write for Full {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 = self.0.checked_sub(bytes.len()).ok_or(io::ErrorKind::StorageFull)?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut pool = pool();
    let mut recording = begin(&mut pool, 0);
    recording.write_trace(&pool, Box::new(Full(100)));
    (0..20).for_each(|_| pool.step());
    assert_eq!(recording.finish_trace().unwrap_err().kind(), io::ErrorKind::StorageFull);
    assert!(recording.finish_trace().is_ok(), "once");
}
