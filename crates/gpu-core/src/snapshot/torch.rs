#![forbid(unsafe_code)]

//! A snapshot for PyTorch's memory viewer (<https://pytorch.org/memory_viz>), as
//! `torch.cuda.memory._dump_snapshot` would write it. How a pool that maps memory twice is shown
//! there is told in `history.rs`.

use std::ops::Range;

use super::event::Action;
use super::history::{Line, lines, shown};
use super::pickle::{Value, pickle};
use super::{Block, Snapshot, State};

/// The device that the viewer files a snapshot under: one snapshot is of one device, and its first.
const DEVICE: i64 = 0;

impl Snapshot {
    /// The pickle that PyTorch's memory viewer opens. A scope stands where PyTorch has a stack of
    /// calls; what happened before the events that the snapshot holds is unknown to the viewer.
    pub fn to_pickle(&self) -> Vec<u8> {
        pickle(&value_of(self))
    }
}

fn value_of(snapshot: &Snapshot) -> Value {
    let blocks: Vec<&Block> = snapshot.blocks().filter(|block| block.state != State::Lent).collect();
    let segments = shown(snapshot).iter().map(|range| segment(&range, &blocks)).collect();
    let end = Value::Dict(vec![
        ("action", text("snapshot")),
        ("addr", Value::Int(0)),
        ("size", Value::Int(0)),
        ("stream", Value::Int(0)),
        ("time_us", whole(snapshot.time_us)),
        ("frames", Value::List(Vec::new())),
    ]);
    let trace = lines(snapshot).iter().map(line).chain([end]).collect();
    Value::Dict(vec![
        ("segments", Value::List(segments)),
        ("device_traces", Value::List(vec![Value::List(trace)])),
        ("allocator_settings", Value::Dict(vec![("expandable_segments", Value::Bool(true))])),
        ("external_annotations", Value::List(steps(snapshot))),
    ])
}

/// A segment at the addresses `range`, of which `blocks`, all in order of address, some lie in it.
fn segment(range: &Range<u64>, blocks: &[&Block]) -> Value {
    let from = blocks.partition_point(|block| block.address < range.start);
    let to = blocks.partition_point(|block| block.address < range.end);
    let own = &blocks[from..to];
    let sum = |bytes: fn(&Block) -> usize| -> u64 { own.iter().map(|block| bytes(block) as u64).sum() };
    let live_bytes = sum(|block| if block.state == State::Live { block.bytes } else { 0 });
    Value::Dict(vec![
        ("device", Value::Int(DEVICE)),
        ("address", whole(range.start)),
        ("total_size", whole(range.end - range.start)),
        ("allocated_size", whole(live_bytes)),
        ("active_size", whole(live_bytes)),
        ("requested_size", whole(sum(|block| block.requested_bytes))),
        ("stream", Value::Int(0)),
        ("segment_type", text("large")),
        ("segment_pool_id", Value::Pair(Box::new((Value::Int(0), Value::Int(0))))),
        ("is_expandable", Value::Bool(true)),
        ("frames", Value::List(Vec::new())),
        ("blocks", Value::List(own.iter().map(|block| self::block(block)).collect())),
    ])
}

fn block(block: &Block) -> Value {
    Value::Dict(vec![
        ("address", whole(block.address)),
        ("size", whole(block.bytes as u64)),
        ("requested_size", whole(block.requested_bytes as u64)),
        ("state", text(if block.state == State::Live { "active_allocated" } else { "inactive" })),
        ("frames", frames(block.owner.as_deref())),
    ])
}

fn line(line: &Line) -> Value {
    // PyTorch gives a shortage no address, but what the device has left.
    let place = if line.action == "oom" { "device_free" } else { "addr" };
    Value::Dict(vec![
        ("action", text(line.action)),
        (place, whole(line.address)),
        ("size", whole(line.bytes as u64)),
        ("stream", Value::Int(line.stream.into())),
        ("time_us", whole(line.time_us)),
        ("frames", frames(line.owner.as_deref())),
    ])
}

/// The boundaries of steps.
fn steps(snapshot: &Snapshot) -> Vec<Value> {
    let steps = snapshot.events.iter().filter(|entry| entry.action == Action::Step);
    let annotation = |time_us: u64| {
        Value::Dict(vec![
            ("name", text("step")),
            ("stage", text("END")),
            ("device", Value::Int(DEVICE)),
            ("time_us", whole(time_us)),
        ])
    };
    steps.map(|entry| annotation(entry.time_us)).collect()
}

fn frames(owner: Option<&str>) -> Value {
    let frame = |owner: &str| {
        Value::Dict(vec![("name", text(owner)), ("filename", text("megabatch scope")), ("line", Value::Int(0))])
    };
    Value::List(owner.into_iter().map(frame).collect())
}

fn text(text: &str) -> Value {
    Value::Text(text.to_owned())
}

fn whole(number: u64) -> Value {
    Value::Int(i64::try_from(number).expect("addresses, sizes and times are below 2^53"))
}
