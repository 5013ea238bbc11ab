use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// Memory by owner over time, in bounded space. Time is cut into at most
/// [`MemoryTimeline::SPANS_MAX`] spans of equal length. The highest moment of each span is kept, so
/// no peak is lost.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MemoryTimeline {
    /// Owners of allocations, in the order of their first appearance.
    pub owners: Vec<Arc<str>>,
    /// Start in microseconds since 1970 UTC.
    pub start_us: u64,
    /// Length of a span in microseconds.
    pub span_us: u64,
    /// Spans in which something happened.
    pub spans: Vec<TimelineSpan>,
    /// Current level.
    pub now: MemoryLevel,
}

/// Summary of a span of time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TimelineSpan {
    /// Number of the span, from 0 at the start.
    pub index: u64,
    /// The level before its first event.
    pub entry: MemoryLevel,
    /// The level with the most allocated bytes. Its reserved bytes are the maximum of the span.
    pub peak: MemoryLevel,
}

/// Memory at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MemoryLevel {
    /// The moment, in microseconds since 1970 UTC.
    pub time_us: u64,
    /// Bytes of all live blocks.
    pub allocated_bytes: usize,
    /// Bytes of the granules that the pool holds.
    pub reserved_bytes: usize,
    /// Bytes of each owner's live blocks, in the order of [`MemoryTimeline::owners`]; owners that
    /// appeared later are left out.
    pub owners_bytes: Vec<usize>,
}

/// A span is a millisecond at first.
const SPAN_US: u64 = 1000;

impl MemoryTimeline {
    /// Spans that are kept at most; at one more, each two neighbours become one.
    pub const SPANS_MAX: u64 = 256;

    /// A timeline that begins at `time_us` with nothing allocated.
    pub(super) fn begin(time_us: u64, reserved_bytes: usize) -> Self {
        let now = MemoryLevel { time_us, reserved_bytes, ..MemoryLevel::default() };
        MemoryTimeline { start_us: time_us, span_us: SPAN_US, now, ..MemoryTimeline::default() }
    }

    pub(super) fn allocate(&mut self, time_us: u64, owner: &str, bytes: usize) {
        let place = self.place(owner);
        self.change(time_us, |now| {
            now.owners_bytes[place] += bytes;
            now.allocated_bytes += bytes;
        });
    }

    pub(super) fn free(&mut self, time_us: u64, owner: &str, bytes: usize) {
        let place = self.place(owner);
        self.change(time_us, |now| {
            now.owners_bytes[place] -= bytes;
            now.allocated_bytes -= bytes;
        });
    }

    pub(super) fn grow(&mut self, time_us: u64, bytes: usize) {
        self.change(time_us, |now| now.reserved_bytes += bytes);
    }

    pub(super) fn shrink(&mut self, time_us: u64, bytes: usize) {
        self.change(time_us, |now| now.reserved_bytes -= bytes);
    }

    /// Checks that every level fits the owners.
    pub(crate) fn check(&self) -> Result<(), String> {
        let levels = self.spans.iter().flat_map(|span| [&span.entry, &span.peak]).chain([&self.now]);
        for level in levels {
            if level.owners_bytes.len() > self.owners.len() {
                return Err(format!("{} numbers for {} owners", level.owners_bytes.len(), self.owners.len()));
            }
            let sum = level.owners_bytes.iter().try_fold(0usize, |sum, bytes| sum.checked_add(*bytes));
            if sum != Some(level.allocated_bytes) {
                return Err(format!("at {}: the owners' bytes are not those allocated", level.time_us));
            }
        }
        Ok(())
    }

    fn place(&mut self, owner: &str) -> usize {
        // Scopes are few: a look at each is as fast as a hash.
        let known = self.owners.iter().position(|known| **known == *owner);
        known.unwrap_or_else(|| {
            self.owners.push(owner.into());
            self.now.owners_bytes.push(0);
            self.owners.len() - 1
        })
    }

    fn change(&mut self, time_us: u64, change: impl FnOnce(&mut MemoryLevel)) {
        // A clock that is set back does not set back what was recorded.
        let time_us = time_us.max(self.now.time_us);
        let index = self.index(time_us);
        if self.spans.last().is_none_or(|span| span.index != index) {
            let entry = MemoryLevel { time_us, ..self.now.clone() };
            self.spans.push(TimelineSpan { index, peak: entry.clone(), entry });
        }
        change(&mut self.now);
        self.now.time_us = time_us;
        let peak = &mut self.spans.last_mut().expect("one was made").peak;
        let reserved_bytes = peak.reserved_bytes.max(self.now.reserved_bytes);
        if self.now.allocated_bytes > peak.allocated_bytes {
            peak.clone_from(&self.now);
        }
        peak.reserved_bytes = reserved_bytes;
    }

    /// The span of `time_us`; spans are made longer until it is one of the first
    /// [`MemoryTimeline::SPANS_MAX`].
    fn index(&mut self, time_us: u64) -> u64 {
        while (time_us - self.start_us) / self.span_us >= MemoryTimeline::SPANS_MAX {
            self.span_us *= 2;
            for span in std::mem::take(&mut self.spans) {
                self.push_halved(span);
            }
        }
        (time_us - self.start_us) / self.span_us
    }

    fn push_halved(&mut self, span: TimelineSpan) {
        let span = TimelineSpan { index: span.index / 2, ..span };
        match self.spans.last_mut() {
            Some(last) if last.index == span.index => {
                let reserved_bytes = last.peak.reserved_bytes.max(span.peak.reserved_bytes);
                if span.peak.allocated_bytes > last.peak.allocated_bytes {
                    last.peak = span.peak;
                }
                last.peak.reserved_bytes = reserved_bytes;
            }
            _ => self.spans.push(span),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_span_keeps_its_highest_moment_and_how_it_began() {
        let mut timeline = MemoryTimeline::begin(5_000, 64);
        timeline.allocate(5_000, "a", 10);
        timeline.allocate(5_900, "b", 7);
        timeline.free(5_950, "a", 10);
        timeline.grow(5_960, 36);
        timeline.allocate(9_100, "a", 1);
        let [first, second] = timeline.spans.as_slice() else { panic!("{timeline:?}") };
        assert_eq!((first.index, first.entry.allocated_bytes, first.entry.reserved_bytes), (0, 0, 64));
        assert_eq!(
            first.peak,
            MemoryLevel { time_us: 5_900, allocated_bytes: 17, reserved_bytes: 100, owners_bytes: vec![10, 7] }
        );
        assert_eq!((second.index, second.entry.time_us, second.entry.allocated_bytes), (4, 9_100, 7));
        assert_eq!(second.peak.owners_bytes, [1, 7]);
        assert_eq!(timeline.check(), Ok(()));
    }

    #[test]
    fn a_clock_that_is_set_back_does_no_harm() {
        let mut timeline = MemoryTimeline::begin(5_000, 0);
        timeline.allocate(1_000, "a", 10);
        timeline.allocate(9_000, "a", 10);
        timeline.allocate(2_000, "a", 10);
        assert_eq!(timeline.now.time_us, 9_000);
        assert_eq!(timeline.now.allocated_bytes, 30);
    }

    proptest! {
        /// However long it lasts, the room is bounded, the highest moment is kept, and every span's
        /// peak is one that there was.
        #[test]
        fn no_peak_is_lost(events in prop::collection::vec((0u64..100_000, 0usize..3, 1usize..100, any::<bool>()), 1..400)) {
            let mut timeline = MemoryTimeline::begin(0, 0);
            let (mut time_us, mut live, mut history) = (0, [0; 3], Vec::new());
            for (wait_us, owner, bytes, is_free) in events {
                time_us += wait_us;
                let name = ["a", "b", "c"][owner];
                if is_free {
                    let bytes = bytes.min(live[owner]);
                    live[owner] -= bytes;
                    timeline.free(time_us, name, bytes);
                } else {
                    live[owner] += bytes;
                    timeline.allocate(time_us, name, bytes);
                }
                history.push((time_us, live.iter().sum::<usize>()));
            }
            prop_assert!(timeline.spans.len() as u64 <= MemoryTimeline::SPANS_MAX);
            prop_assert!(timeline.spans.windows(2).all(|pair| pair[0].index < pair[1].index));
            prop_assert_eq!(timeline.check(), Ok(()));
            for span in &timeline.spans {
                let (start_us, end_us) = (span.index * timeline.span_us, (span.index + 1) * timeline.span_us);
                let inside = history.iter().filter(|(time_us, _)| (start_us..end_us).contains(time_us)).map(|(_, sum)| *sum);
                prop_assert_eq!(span.peak.allocated_bytes, inside.max().unwrap().max(span.entry.allocated_bytes));
            }
        }
    }
}
