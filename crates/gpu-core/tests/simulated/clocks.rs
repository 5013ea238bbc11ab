use std::collections::BTreeMap;

use megabatch_gpu_core::source::StreamId;

/// A vector clock a stream: its completed work, and the work of other streams that it is ordered
/// after.
#[derive(Debug, Default)]
pub(super) struct StreamClocks {
    streams: BTreeMap<StreamId, StreamClock>,
}

#[derive(Debug, Default)]
struct StreamClock {
    /// Pieces of work submitted so far; the last one's ticket.
    submitted: u64,
    /// Pieces of work done: all up to this ticket.
    done: u64,
    /// The last ticket of each other stream after which work submitted from now on runs.
    after: BTreeMap<StreamId, u64>,
}

impl StreamClocks {
    /// Submits a piece of work; returns its ticket.
    pub(super) fn submit(&mut self, stream: StreamId) -> u64 {
        let stream = self.streams.entry(stream).or_default();
        stream.submitted += 1;
        stream.submitted
    }

    /// Orders later work of `waiting` after the work submitted to `awaited` so far. The
    /// wait itself is work on `waiting`: a driver does not call a stream idle that still waits.
    pub(super) fn order(&mut self, waiting: StreamId, awaited: StreamId) {
        let mut after = self.streams.get(&awaited).map(|stream| stream.after.clone()).unwrap_or_default();
        after.insert(awaited, self.submitted(awaited));
        let waiting = self.streams.entry(waiting).or_default();
        for (stream, ticket) in after {
            let last = waiting.after.entry(stream).or_insert(0);
            *last = ticket.max(*last);
        }
        waiting.submitted += 1;
    }

    /// Ends the work submitted to a stream, and with it the work that it waited for.
    pub(super) fn complete(&mut self, stream: StreamId) {
        let waited_for = self.streams.get(&stream).map(|stream| stream.after.clone()).unwrap_or_default();
        let itself = (stream, self.submitted(stream));
        for (stream, ticket) in waited_for.into_iter().chain([itself]) {
            let stream = self.streams.entry(stream).or_default();
            stream.done = stream.done.max(ticket);
        }
    }

    pub(super) fn complete_all(&mut self) {
        self.streams.values_mut().for_each(|stream| stream.done = stream.submitted);
    }

    pub(super) fn is_idle(&self, stream: StreamId) -> bool {
        self.streams.get(&stream).is_none_or(|stream| stream.done == stream.submitted)
    }

    /// True if work submitted now to `next` runs after the piece `ticket` of stream `before`.
    pub(super) fn runs_after(&self, next: StreamId, before: StreamId, ticket: u64) -> bool {
        let last_before = self.streams.get(&next).and_then(|stream| stream.after.get(&before));
        next == before || last_before.is_some_and(|&last| ticket <= last) || ticket <= self.streams[&before].done
    }

    fn submitted(&self, stream: StreamId) -> u64 {
        self.streams.get(&stream).map_or(0, |stream| stream.submitted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: StreamId = StreamId(0);
    const B: StreamId = StreamId(1);
    const C: StreamId = StreamId(2);

    #[test]
    fn order_is_transitive_and_holds_for_what_came_before_it() {
        let mut clocks = StreamClocks::default();
        let first = clocks.submit(A);
        clocks.order(B, A);
        clocks.order(C, B);
        let second = clocks.submit(A);
        assert!(clocks.runs_after(B, A, first) && clocks.runs_after(C, A, first));
        assert!(!clocks.runs_after(C, A, second) && clocks.runs_after(A, A, second));
    }

    #[test]
    fn work_ends_with_what_it_waited_for() {
        let mut clocks = StreamClocks::default();
        clocks.submit(A);
        clocks.order(B, A);
        let second = clocks.submit(A);
        assert!(!clocks.is_idle(B));
        clocks.complete(B);
        assert!(clocks.is_idle(B) && !clocks.is_idle(A));
        assert!(clocks.runs_after(C, A, 1) && !clocks.runs_after(C, A, second));
        clocks.complete_all();
        assert!(clocks.is_idle(A) && clocks.runs_after(C, A, second));
    }
}
