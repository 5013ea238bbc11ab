//! The past as PyTorch's viewer takes it. The viewer starts from the segments and blocks of the
//! snapshot and undoes one line after the other, the last first; every block that it puts back must
//! then lie inside a segment, and every segment that it takes away must be inside one that is
//! there. So the past is told backwards here too, from what is shown to what was.
//!
//! A byte is shown once, at the address at which it is used or free: home segments have gaps where
//! bytes are lent, and of a view its live blocks are there. Events do not say which granules a view
//! took; hence before the snapshot lent bytes may show at home too, and the sum of the segments is
//! exact at the snapshot only.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use super::event::{RecordedAction, RecordedEvent};
use super::intervals::Intervals;
use super::{BlockState, SegmentKind, Snapshot};

/// One line of a trace.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct HistoryLine {
    pub(super) time_us: u64,
    /// PyTorch's name of it.
    pub(super) action: &'static str,
    /// For a shortage, the bytes that the pool could still have taken from the device.
    pub(super) address: u64,
    pub(super) bytes: usize,
    pub(super) stream: u32,
    pub(super) owner: Option<Arc<str>>,
}

/// The addresses that are shown as segments at the moment of the snapshot.
pub(super) fn shown(snapshot: &Snapshot) -> Intervals {
    let mut shown = Intervals::default();
    for block in snapshot.blocks().filter(|block| block.state != BlockState::Lent) {
        shown.add(range(block.address, block.bytes));
    }
    shown
}

/// The lines of the snapshot's events, the oldest first.
pub(super) fn lines(snapshot: &Snapshot) -> Vec<HistoryLine> {
    let mut past = Past::new(snapshot);
    snapshot.events.iter().rev().for_each(|entry| past.undo(entry));
    past.lines.reverse();
    past.lines
}

fn range(address: u64, bytes: usize) -> Range<u64> {
    address..address + bytes as u64
}

/// A block that is live at the moment to which the past was told.
struct LiveRange {
    bytes: usize,
    requested_bytes: usize,
    stream: u32,
    owner: Arc<str>,
}

struct Past {
    granule_bytes: u64,
    shown: Intervals,
    live: BTreeMap<u64, LiveRange>,
    /// Every view of the past.
    views: Vec<Range<u64>>,
    /// The last first.
    lines: Vec<HistoryLine>,
}

impl Past {
    fn new(snapshot: &Snapshot) -> Self {
        let views = snapshot.segments.iter().filter(|segment| segment.kind == SegmentKind::View);
        let views = views.map(|segment| range(segment.address, segment.bytes));
        let stitched = snapshot.events.iter().filter_map(|entry| match entry.action {
            RecordedAction::Stitched { address, bytes } => Some(range(address, bytes)),
            _ => None,
        });
        let live = snapshot.blocks().filter(|block| block.state == BlockState::Live).map(|block| {
            let owner = block.owner.clone().unwrap_or_default();
            let (bytes, requested_bytes) = (block.bytes, block.requested_bytes);
            (block.address, LiveRange { bytes, requested_bytes, stream: block.stream, owner })
        });
        Past {
            granule_bytes: snapshot.granule_bytes.max(1) as u64,
            shown: shown(snapshot),
            live: live.collect(),
            views: views.chain(stitched).collect(),
            lines: Vec::new(),
        }
    }

    fn undo(&mut self, RecordedEvent { time_us, action }: &RecordedEvent) {
        let time_us = *time_us;
        match action {
            RecordedAction::Allocated { address, .. } => self.undo_allocated(time_us, *address),
            RecordedAction::Freed { address, bytes, requested_bytes, stream, owner } => {
                let owner = Arc::clone(owner);
                let live = LiveRange { bytes: *bytes, requested_bytes: *requested_bytes, stream: *stream, owner };
                self.undo_freed(time_us, *address, live);
            }
            RecordedAction::Grown { address, bytes } => {
                for part in self.shown.overlap(&range(*address, *bytes)) {
                    self.undo_mapped(time_us, &part);
                }
            }
            RecordedAction::Released { address, bytes } => self.show(time_us, &range(*address, *bytes)),
            RecordedAction::Short { requested_bytes, stream, owner, left_bytes } => self.lines.push(HistoryLine {
                time_us,
                action: "oom",
                address: *left_bytes as u64,
                bytes: *requested_bytes,
                stream: *stream,
                owner: Some(Arc::clone(owner)),
            }),
            RecordedAction::Stitched { .. } | RecordedAction::Step => {}
        }
    }

    fn undo_allocated(&mut self, time_us: u64, address: u64) {
        let Some(live) = self.live.remove(&address) else { return };
        self.push_block(time_us, "alloc", address, &live);
        let block = range(address, live.bytes);
        if self.is_in_view(&block) {
            self.undo_mapped(time_us, &block);
        }
    }

    fn undo_freed(&mut self, time_us: u64, address: u64, live: LiveRange) {
        let block = range(address, live.bytes);
        let granule = self.granule_bytes;
        let granules = block.start / granule * granule..block.end.next_multiple_of(granule);
        if !self.shown.missing(&block).is_empty() {
            self.show(time_us, if self.is_in_view(&block) { &block } else { &granules });
        }
        self.push_block(time_us, "free_completed", address, &live);
        self.push_block(time_us, "free_requested", address, &live);
        self.live.insert(address, live);
    }

    /// Shows again a range that is unmapped at this moment.
    fn show(&mut self, time_us: u64, range: &Range<u64>) {
        for gap in self.shown.missing(range) {
            self.push_segment(time_us, "segment_unmap", &gap);
            self.shown.add(gap);
        }
    }

    /// Hides a range that is mapped at this moment, unless it holds a live block.
    fn undo_mapped(&mut self, time_us: u64, range: &Range<u64>) {
        let before = self.live.range(..range.end).next_back();
        if before.is_some_and(|(address, live)| address + live.bytes as u64 > range.start) {
            return;
        }
        for part in self.shown.overlap(range) {
            self.push_segment(time_us, "segment_map", &part);
            self.shown.remove(&part);
        }
    }

    fn is_in_view(&self, block: &Range<u64>) -> bool {
        self.views.iter().any(|view| view.start <= block.start && block.end <= view.end)
    }

    fn push_block(&mut self, time_us: u64, action: &'static str, address: u64, live: &LiveRange) {
        let (bytes, stream, owner) = (live.requested_bytes, live.stream, Some(Arc::clone(&live.owner)));
        self.lines.push(HistoryLine { time_us, action, address, bytes, stream, owner });
    }

    fn push_segment(&mut self, time_us: u64, action: &'static str, range: &Range<u64>) {
        let bytes = (range.end - range.start) as usize;
        self.lines.push(HistoryLine { time_us, action, address: range.start, bytes, stream: 0, owner: None });
    }
}
