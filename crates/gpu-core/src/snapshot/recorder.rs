use std::collections::VecDeque;

use super::event::{RecordedAction, RecordedEvent};
use super::timeline::MemoryTimeline;
use crate::pool::{BlockState, PoolEvent, SegmentInfo};

/// The last events of a pool and the timeline of its memory, in bounded memory.
#[derive(Clone, Debug)]
pub struct EventRecorder {
    events_max: usize,
    events: VecDeque<RecordedEvent>,
    dropped_total: u64,
    timeline: MemoryTimeline,
}

impl EventRecorder {
    /// A recorder of at most `events_max` events that begins at `time_us`, when a pool has
    /// `segments` and as many reserved bytes.
    pub fn begin(events_max: usize, time_us: u64, segments: &[SegmentInfo], reserved_bytes: usize) -> Self {
        let mut timeline = MemoryTimeline::begin(time_us, reserved_bytes);
        let live = segments.iter().flat_map(|segment| &segment.blocks).filter(|block| block.state == BlockState::Live);
        for block in live {
            timeline.allocate(time_us, block.owner.as_deref().unwrap_or_default(), block.bytes);
        }
        EventRecorder { events_max, events: VecDeque::new(), dropped_total: 0, timeline }
    }

    /// Notes an event at `time_us`.
    pub fn note(&mut self, time_us: u64, event: &PoolEvent) {
        match event {
            PoolEvent::Allocated { bytes, owner, .. } => self.timeline.allocate(time_us, owner, *bytes),
            PoolEvent::Freed { bytes, owner, .. } => self.timeline.free(time_us, owner, *bytes),
            PoolEvent::Grown { bytes, .. } => self.timeline.grow(time_us, *bytes),
            PoolEvent::Released { bytes, .. } => self.timeline.shrink(time_us, *bytes),
            _ => {}
        }
        if self.events.len() >= self.events_max {
            self.events.pop_front();
            self.dropped_total += 1;
        }
        if self.events_max > 0 {
            self.events.push_back(RecordedEvent { time_us, action: RecordedAction::from(event) });
        }
    }

    /// The events that are kept, the oldest first.
    pub fn entries(&self) -> Vec<RecordedEvent> {
        self.events.iter().cloned().collect()
    }

    /// Events before those.
    pub fn dropped_total(&self) -> u64 {
        self.dropped_total
    }

    /// The timeline of memory from the beginning.
    pub fn timeline(&self) -> &MemoryTimeline {
        &self.timeline
    }
}
