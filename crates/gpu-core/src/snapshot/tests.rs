//! Snapshots of made-up pools, and PyTorch's viewer as an oracle: `Viewer` does what its "Allocator
//! State History" does.

use std::io::Write as _;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use megabatch_test_support::{Requirement, skip};
use proptest::prelude::*;

use super::history::{HistoryLine, lines, shown};
use super::*;
use crate::error::Error;
use crate::pool::{AllocationRequest, BlockId, PoolSettings};
use crate::source::{Simulated, StreamId};

const GRANULE: usize = 2 << 20;

fn block(address: u64, bytes: usize, owner: Option<&str>) -> Block {
    let (state, requested_bytes) =
        if owner.is_some() { (BlockState::Live, bytes - 100) } else { (BlockState::Free, 0) };
    Block { address, bytes, requested_bytes, state, stream: 0, owner: owner.map(Arc::from) }
}

fn segment(kind: SegmentKind, blocks: Vec<Block>) -> Segment {
    Segment { address: blocks[0].address, bytes: blocks.iter().map(|block| block.bytes).sum(), kind, blocks }
}

/// Seven granules at home of which a block in a view uses one and a little of another, after a
/// history in which another view came and went.
fn stitched() -> Snapshot {
    let granule = GRANULE as u64;
    let (home, view, gone) = (0x7f00_0000_0000, 0x7e00_0000_0000, 0x7e00_0100_0000);
    let lent = |address, bytes| Block { state: BlockState::Lent, ..block(address, bytes, None) };
    let granule_at = |k: u64| home + k * granule;
    let event = |time_us, action| RecordedEvent { time_us, action };
    let allocated = |address, bytes, owner: &str| {
        let requested_bytes = bytes - 100;
        RecordedAction::Allocated { address, bytes, requested_bytes, stream: 0, owner: owner.into() }
    };
    let freed = |address, bytes, owner: &str| {
        let requested_bytes = bytes - 100;
        RecordedAction::Freed { address, bytes, requested_bytes, stream: 0, owner: owner.into() }
    };
    let actions = vec![
        RecordedAction::Grown { address: home, bytes: 8 * GRANULE },
        allocated(granule_at(0), GRANULE, "kept"),
        allocated(granule_at(1), GRANULE, "passing"),
        allocated(granule_at(2), GRANULE, "kept"),
        freed(granule_at(1), GRANULE, "passing"),
        RecordedAction::Stitched { address: gone, bytes: 2 * GRANULE },
        allocated(gone, 2 * GRANULE, "gone"),
        freed(gone, 2 * GRANULE, "gone"),
        RecordedAction::Step,
        RecordedAction::Short { requested_bytes: 1 << 40, stream: 0, owner: "greedy".into(), left_bytes: 5 << 20 },
        allocated(granule_at(4), GRANULE, "late"),
        RecordedAction::Stitched { address: view, bytes: 2 * GRANULE },
        allocated(view, GRANULE + 512, "stitched"),
        RecordedAction::Released { address: granule_at(7), bytes: GRANULE },
    ];
    Snapshot {
        format_version: FORMAT_VERSION,
        device: "cpu".into(),
        reason: Reason::Peak,
        time_us: 1_700_000_000_000_100,
        granule_bytes: GRANULE,
        totals: PoolTotals {
            capacity_bytes: 100 * GRANULE,
            reserved_bytes: 7 * GRANULE,
            allocated_bytes: 4 * GRANULE + 512,
            free_bytes: 3 * GRANULE - 512,
            largest_free_block_bytes: 2 * GRANULE,
            ..PoolTotals::default()
        },
        shortage: None,
        segments: vec![
            segment(
                SegmentKind::View,
                vec![block(view, GRANULE + 512, Some("stitched")), lent(view + granule + 512, GRANULE - 512)],
            ),
            segment(
                SegmentKind::Main,
                vec![
                    block(granule_at(0), GRANULE, Some("kept")),
                    lent(granule_at(1), GRANULE),
                    block(granule_at(2), GRANULE, Some("kept")),
                    lent(granule_at(3), 512),
                    block(granule_at(3) + 512, GRANULE - 512, None),
                    block(granule_at(4), GRANULE, Some("late")),
                    block(granule_at(5), 2 * GRANULE, None),
                ],
            ),
        ],
        timeline: MemoryTimeline::default(),
        events: actions
            .into_iter()
            .zip(1_700_000_000_000_000..)
            .map(|(action, time_us)| event(time_us, action))
            .collect(),
        events_dropped: 0,
    }
}

fn request(bytes: usize, owner: &str) -> AllocationRequest {
    AllocationRequest { bytes, stream: StreamId(0), owner: owner.into() }
}

/// A pool of 64 granules on which `steps` were done: an allocation of so many bytes, or a free of
/// one of the live blocks; recorded.
fn exercised(steps: &[(usize, bool)], events_max: usize) -> Snapshot {
    let source = Simulated::new(64 * GRANULE, GRANULE);
    let mut pool = Pool::new(Box::new(source), PoolSettings { capacity_bytes: None });
    let now_us = AtomicU64::new(1_000);
    let clock = Arc::new(move || now_us.fetch_add(700, Relaxed));
    let recorder = Arc::new(Mutex::new(EventRecorder::begin(events_max, clock(), &pool.segments(), 0)));
    let (observed, time) = (Arc::clone(&recorder), Arc::clone(&clock));
    pool.set_observer(Some(Box::new(move |event| observed.lock().unwrap().note(time(), event))));
    let mut live: Vec<BlockId> = Vec::new();
    for (k, &(bytes, is_free)) in steps.iter().enumerate() {
        match is_free && !live.is_empty() {
            true => pool.free(live.swap_remove(bytes % live.len())),
            false => live.extend(pool.allocate(&request(bytes, ["a", "b/c"][k % 2]))),
        }
        if k % 16 == 15 {
            pool.step();
        }
    }
    Snapshot::take(&pool, Reason::Asked, clock(), Some(&recorder.lock().unwrap()))
}

#[test]
fn a_snapshot_reads_back_as_it_was_written() {
    for snapshot in [stitched(), exercised(&[(5 << 20, false), (300, false), (0, true)], 100)] {
        assert_eq!(Snapshot::from_json(&snapshot.to_json()).unwrap(), snapshot);
    }
}

#[test]
fn contradictions_are_named_by_their_place() {
    let json: serde_json::Value = serde_json::from_str(&stitched().to_json()).unwrap();
    for (pointer, value, place) in [
        ("/format_version", serde_json::json!(2), "format_version"),
        ("/granule_bytes", serde_json::json!(3), "granule_bytes"),
        ("/segments/0/blocks/1/address", serde_json::json!(1), "segments[0].blocks[1]"),
        ("/segments/0/blocks/1/bytes", serde_json::json!(0), "segments[0].blocks[1]"),
        ("/segments/0/blocks/1/bytes", serde_json::json!(u64::MAX), "segments[0].blocks[1]"),
        ("/segments/0/blocks/0/requested_bytes", serde_json::json!(GRANULE * 2), "segments[0].blocks[0]"),
        ("/segments/0/bytes", serde_json::json!(1), "segments[0].blocks[2]"),
        ("/segments/0/bytes", serde_json::json!(u64::MAX), "segments[0]"),
        ("/segments/1/address", serde_json::json!(0), "segments[1]"),
        ("/segments/1/kind", serde_json::json!("house"), "the file"),
        ("/events/0/bytes", serde_json::json!(1u64 << 53), "events[0]"),
        ("/events/3/time_us", serde_json::json!(u64::MAX), "events[3]"),
        ("/time_us", serde_json::json!(u64::MAX), "time_us"),
        ("/timeline/now/owners_bytes", serde_json::json!([1]), "timeline"),
    ] {
        let mut json = json.clone();
        *json.pointer_mut(pointer).unwrap() = value;
        match Snapshot::from_json(&json.to_string()) {
            Err(Error::Snapshot { place: found, .. }) => assert_eq!(found, place, "{pointer}"),
            other => panic!("{pointer}: {other:?}"),
        }
    }
}

#[test]
fn a_summary_tells_who_holds_what() {
    let summary = Summary::new(&stitched());
    let owners: Vec<_> = summary.owners.iter().map(|owned| (owned.owner.as_str(), owned.bytes, owned.blocks)).collect();
    assert_eq!(owners, [("kept", 2 * GRANULE, 2), ("stitched", GRANULE + 512, 1), ("late", GRANULE, 1)]);
    assert_eq!(summary.free_blocks_bytes, [2 * GRANULE, GRANULE - 512]);
    assert_eq!((summary.home_segments, summary.view_segments, summary.lent_bytes), (1, 1, GRANULE + 512));
    assert!((summary.fragmentation - (1.0 - 2.0 * GRANULE as f64 / (3 * GRANULE - 512) as f64)).abs() < 1e-12);
}

/// `memory snapshot` said "the largest 497 kB: fragmentation 98.0 %" above a list that began with
/// 2.09 MB.
#[test]
fn the_largest_free_block_is_the_first_of_the_list() {
    let mut snapshot = stitched();
    snapshot.totals.largest_free_block_bytes = 512;
    let summary = Summary::new(&snapshot);
    assert_eq!(summary.totals.largest_free_block_bytes, summary.free_blocks_bytes[0]);
    assert_eq!(summary.fragmentation, Summary::new(&stitched()).fragmentation);
    // The rest of a slab is free, and nothing else is.
    let pool_snapshot = exercised(&[(100, false)], 16);
    let largest_free_block_bytes = pool_snapshot.totals.largest_free_block_bytes;
    assert!(largest_free_block_bytes > GRANULE / 2, "{largest_free_block_bytes}");
    assert_eq!(Summary::new(&pool_snapshot).free_blocks_bytes[0], largest_free_block_bytes);
}

#[test]
fn every_byte_is_shown_once_and_the_past_can_be_undone_line_by_line() {
    let snapshot = stitched();
    let mut viewer = Viewer::new(&snapshot);
    assert_eq!(viewer.segment_bytes(), snapshot.totals.reserved_bytes as u64);
    let lines = lines(&snapshot);
    viewer.undo_all(&lines);
    assert_eq!(viewer.segment_bytes(), 0, "{viewer:?}");
    assert!(viewer.blocks.is_empty(), "{viewer:?}");
    let actions: Vec<_> = lines.iter().map(|line| line.action).collect();
    assert_eq!(actions.iter().filter(|action| **action == "oom").count(), 1);
    let count = |action| actions.iter().filter(|found| **found == action).count();
    assert_eq!((count("alloc"), count("free_requested"), count("free_completed")), (6, 2, 2));
}

proptest! {
    /// Whatever a pool did, and however little of it was kept, the viewer finds each block in a
    /// segment.
    #[test]
    fn the_viewer_can_undo_what_was_recorded(
        steps in prop::collection::vec((1usize..9 << 20, any::<bool>()), 0..200),
        events_max in 0usize..300,
    ) {
        let snapshot = exercised(&steps, events_max);
        prop_assert!(snapshot.events.len() <= events_max);
        let mut viewer = Viewer::new(&snapshot);
        prop_assert_eq!(viewer.segment_bytes(), snapshot.totals.reserved_bytes as u64);
        viewer.undo_all(&lines(&snapshot));
        if snapshot.events_dropped == 0 {
            prop_assert!(viewer.blocks.is_empty(), "{viewer:x?}");
            prop_assert_eq!(viewer.segment_bytes(), 0, "{:x?}", viewer);
        }
        prop_assert_eq!(Snapshot::from_json(&snapshot.to_json()).unwrap(), snapshot);
    }
}

/// Reads a pickle with Python's own module, allows the viewer's operations only, and holds the
/// blocks against their segments.
const CHECK: &str = r#"
import json, pickle, pickletools, sys
blob = sys.stdin.buffer.read()
known = {"PROTO", "FRAME", "MEMOIZE", "STOP", "MARK", "EMPTY_DICT", "EMPTY_LIST", "EMPTY_TUPLE", "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3", "LIST", "DICT",
         "SETITEM", "SETITEMS", "APPEND", "APPENDS", "BINGET", "LONG_BINGET", "BINPUT", "LONG_BINPUT", "BININT", "BININT1", "BININT2", "LONG1",
         "SHORT_BINUNICODE", "BINUNICODE", "NEWTRUE", "NEWFALSE", "NONE", "BINFLOAT"}
unknown = {op.name for op, _, _ in pickletools.genops(blob)} - known
assert not unknown, unknown
data = pickle.loads(blob)
assert set(data) == {"segments", "device_traces", "allocator_settings", "external_annotations"}, set(data)
live = {}
for s in data["segments"]:
    at = s["address"]
    for b in s["blocks"]:
        assert b["address"] == at, (b, at)
        at += b["size"]
        if b["state"] == "active_allocated":
            live[b["address"]] = b["frames"][0]["name"]
    assert at == s["address"] + s["total_size"] < 2**53, s
for e in data["device_traces"][0]:
    assert ("device_free" if e["action"] == "oom" else "addr") in e, e
print(json.dumps(dict(segments=len(data["segments"]), trace=len(data["device_traces"][0]), live=sorted(live.values()),
                      steps=len(data["external_annotations"]))))
"#;

#[test]
fn python_reads_the_pickle() {
    let snapshot = stitched();
    let python = std::env::var("MEGABATCH_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let process = Command::new(&python).args(["-c", CHECK]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let Ok(mut process) = process else {
        skip(Requirement::Python, "reading the pickle");
        return;
    };
    process.stdin.take().unwrap().write_all(&snapshot.to_pickle()).unwrap();
    let output = process.wait_with_output().unwrap();
    assert!(output.status.success());
    let answer: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(answer["live"], serde_json::json!(["kept", "kept", "late", "stitched"]));
    assert_eq!(answer["segments"], 4, "the view, and home in three parts");
    assert_eq!(answer["trace"], lines(&snapshot).len() + 1);
    assert_eq!(answer["steps"], 1);
}

/// Replay of a trace as in PyTorch's viewer (torch/utils/viz/MemoryViz.js, `simulate_memory`), with
/// a panic where it would fail.
#[derive(Debug)]
struct Viewer {
    /// First address and bytes, in order.
    segments: Vec<(u64, u64)>,
    /// First address and bytes of live blocks.
    blocks: Vec<(u64, u64)>,
}

impl Viewer {
    fn new(snapshot: &Snapshot) -> Self {
        let live = snapshot.blocks().filter(|block| block.state == BlockState::Live);
        let viewer = Viewer {
            segments: shown(snapshot).iter().map(|range| (range.start, range.end - range.start)).collect(),
            blocks: live.map(|block| (block.address, block.requested_bytes as u64)).collect(),
        };
        viewer.check();
        viewer
    }

    fn segment_bytes(&self) -> u64 {
        self.segments.iter().map(|(_, bytes)| bytes).sum()
    }

    fn undo_all(&mut self, lines: &[HistoryLine]) {
        for line in lines.iter().rev() {
            let (address, bytes) = (line.address, line.bytes as u64);
            match line.action {
                "free_completed" => self.blocks.push((address, bytes)),
                "free_requested" => assert!(self.blocks.iter().any(|block| block.0 == address), "{line:?}"),
                "alloc" => {
                    let place = self.blocks.iter().position(|block| block.0 == address).expect("a block to take away");
                    self.blocks.remove(place);
                }
                "segment_unmap" => self.map(address, bytes),
                "segment_map" => self.unmap(address, bytes),
                "oom" => {}
                other => panic!("{other}"),
            }
            self.check();
        }
    }

    fn map(&mut self, address: u64, bytes: u64) {
        self.segments.push((address, bytes));
        self.segments.sort_unstable();
        let mut merged: Vec<(u64, u64)> = Vec::new();
        for &(start, bytes) in &self.segments {
            match merged.last_mut() {
                Some(last) if last.0 + last.1 == start => last.1 += bytes,
                Some(last) => {
                    assert!(last.0 + last.1 < start, "segments overlap at {start:#x}");
                    merged.push((start, bytes));
                }
                None => merged.push((start, bytes)),
            }
        }
        self.segments = merged;
    }

    fn unmap(&mut self, address: u64, bytes: u64) {
        let holds = |(start, whole): &(u64, u64)| *start <= address && address + bytes <= start + whole;
        let place = self.segments.iter().position(holds).expect("a segment to take away from");
        let (start, whole) = self.segments.remove(place);
        let rest = [(start, address - start), (address + bytes, start + whole - address - bytes)];
        self.segments.extend(rest.into_iter().filter(|(_, bytes)| *bytes > 0));
        self.segments.sort_unstable();
    }

    /// The viewer fails at a block that is in no segment.
    fn check(&self) {
        for &(address, bytes) in &self.blocks {
            let inside = |(start, whole): &(u64, u64)| *start <= address && address + bytes <= start + whole;
            assert!(self.segments.iter().any(inside), "{address:#x} is in no segment of {:x?}", self.segments);
        }
    }
}
