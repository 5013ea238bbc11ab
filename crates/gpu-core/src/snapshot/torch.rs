//! A snapshot for PyTorch's memory viewer (<https://pytorch.org/memory_viz>), as
//! `torch.cuda.memory._dump_snapshot` would write it. How a pool that maps memory twice is shown
//! there is told in `history.rs`.

use std::ops::Range;

use super::event::RecordedAction;
use super::history::{HistoryLine, lines, shown};
use super::pickle::{PickleValue, pickle};
use super::{Block, BlockState, Snapshot};

/// The device that the viewer files a snapshot under: one snapshot is of one device, and its first.
const DEVICE: i64 = 0;

impl Snapshot {
    /// The pickle that PyTorch's memory viewer opens. A scope takes the place of the call stack.
    /// The viewer does not know the time before the first event of the snapshot.
    pub fn to_pickle(&self) -> Vec<u8> {
        pickle(&value_of(self))
    }
}

fn value_of(snapshot: &Snapshot) -> PickleValue {
    let blocks: Vec<&Block> = snapshot.blocks().filter(|block| block.state != BlockState::Lent).collect();
    let segments = shown(snapshot).iter().map(|range| segment(&range, &blocks)).collect();
    let end = PickleValue::Dict(vec![
        ("action", text("snapshot")),
        ("addr", PickleValue::Int(0)),
        ("size", PickleValue::Int(0)),
        ("stream", PickleValue::Int(0)),
        ("time_us", whole(snapshot.time_us)),
        ("frames", PickleValue::List(Vec::new())),
    ]);
    let trace = lines(snapshot).iter().map(line).chain([end]).collect();
    PickleValue::Dict(vec![
        ("segments", PickleValue::List(segments)),
        ("device_traces", PickleValue::List(vec![PickleValue::List(trace)])),
        ("allocator_settings", PickleValue::Dict(vec![("expandable_segments", PickleValue::Bool(true))])),
        ("external_annotations", PickleValue::List(steps(snapshot))),
    ])
}

/// A segment at the addresses `range`, of which `blocks`, all in order of address, some lie in it.
fn segment(range: &Range<u64>, blocks: &[&Block]) -> PickleValue {
    let first = blocks.partition_point(|block| block.address < range.start);
    let end = blocks.partition_point(|block| block.address < range.end);
    let own = &blocks[first..end];
    let sum = |bytes: fn(&Block) -> usize| -> u64 { own.iter().map(|block| bytes(block) as u64).sum() };
    let live_bytes = sum(|block| if block.state == BlockState::Live { block.bytes } else { 0 });
    PickleValue::Dict(vec![
        ("device", PickleValue::Int(DEVICE)),
        ("address", whole(range.start)),
        ("total_size", whole(range.end - range.start)),
        ("allocated_size", whole(live_bytes)),
        ("active_size", whole(live_bytes)),
        ("requested_size", whole(sum(|block| block.requested_bytes))),
        ("stream", PickleValue::Int(0)),
        ("segment_type", text("large")),
        ("segment_pool_id", PickleValue::Pair(Box::new((PickleValue::Int(0), PickleValue::Int(0))))),
        ("is_expandable", PickleValue::Bool(true)),
        ("frames", PickleValue::List(Vec::new())),
        ("blocks", PickleValue::List(own.iter().map(|block| self::block(block)).collect())),
    ])
}

fn block(block: &Block) -> PickleValue {
    PickleValue::Dict(vec![
        ("address", whole(block.address)),
        ("size", whole(block.bytes as u64)),
        ("requested_size", whole(block.requested_bytes as u64)),
        ("state", text(if block.state == BlockState::Live { "active_allocated" } else { "inactive" })),
        ("frames", frames(block.owner.as_deref())),
    ])
}

fn line(line: &HistoryLine) -> PickleValue {
    // PyTorch gives a shortage no address, but what the device has left.
    let place = if line.action == "oom" { "device_free" } else { "addr" };
    PickleValue::Dict(vec![
        ("action", text(line.action)),
        (place, whole(line.address)),
        ("size", whole(line.bytes as u64)),
        ("stream", PickleValue::Int(line.stream.into())),
        ("time_us", whole(line.time_us)),
        ("frames", frames(line.owner.as_deref())),
    ])
}

/// The boundaries of steps.
fn steps(snapshot: &Snapshot) -> Vec<PickleValue> {
    let steps = snapshot.events.iter().filter(|entry| entry.action == RecordedAction::Step);
    let annotation = |time_us: u64| {
        PickleValue::Dict(vec![
            ("name", text("step")),
            ("stage", text("END")),
            ("device", PickleValue::Int(DEVICE)),
            ("time_us", whole(time_us)),
        ])
    };
    steps.map(|entry| annotation(entry.time_us)).collect()
}

fn frames(owner: Option<&str>) -> PickleValue {
    let frame = |owner: &str| {
        PickleValue::Dict(vec![
            ("name", text(owner)),
            ("filename", text("megabatch scope")),
            ("line", PickleValue::Int(0)),
        ])
    };
    PickleValue::List(owner.into_iter().map(frame).collect())
}

fn text(text: &str) -> PickleValue {
    PickleValue::Text(text.to_owned())
}

fn whole(number: u64) -> PickleValue {
    PickleValue::Int(i64::try_from(number).expect("addresses, sizes and times are below 2^53"))
}
