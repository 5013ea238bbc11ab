//! Recorded requests, made again under a policy.

use std::collections::HashMap;

use megabatch_gpu_core::recording::TraceEvent;
use megabatch_gpu_core::source::{Simulated, StreamId};

use crate::allocator::Allocator;
use crate::outcome::{ReplayObserver, ReplayOutcome};
use crate::policy::{GRANULE_BYTES, Limits, Policy};
use crate::pooled::Pooled;
use crate::pytorch::{AllocatorSettings, CachingAllocator, GrowthMode};
use crate::trace::TraceLine;

/// Plays a trace under `policy`. The first request that cannot be met ends the replay; the rest of
/// the trace is still read, so that an error in it is told whatever the policy.
///
/// The device runs nothing: every stream is idle at any moment, so that memory which our pool takes
/// over from another stream needs no event. A block of zero bytes takes no memory.
///
/// # Errors
/// Errors of `trace`.
///
/// # Panics
/// If an id is allocated while it is live, or freed while it is not;
/// [`TraceReader`](crate::TraceReader) lets no such trace through.
pub fn replay<E>(
    trace: impl IntoIterator<Item = Result<TraceLine, E>>,
    policy: Policy,
    limits: &Limits,
) -> Result<ReplayOutcome, E> {
    let Limits { capacity_bytes, max_split_bytes } = *limits;
    let settings = |growth| AllocatorSettings { growth, capacity_bytes, max_split_bytes };
    match policy {
        Policy::Megabatch => play(trace, Pooled::new(Box::new(Simulated::new(capacity_bytes, GRANULE_BYTES)))),
        Policy::PyTorch => play(trace, CachingAllocator::new(settings(GrowthMode::Segments))),
        Policy::PyTorchExpandable => play(trace, CachingAllocator::new(settings(GrowthMode::Expandable))),
    }
}

fn play<A: Allocator, E>(
    trace: impl IntoIterator<Item = Result<TraceLine, E>>,
    allocator: A,
) -> Result<ReplayOutcome, E> {
    let mut player = Player { allocator, live: HashMap::new(), observer: ReplayObserver::default() };
    for line in trace {
        let line = line?;
        if !player.observer.has_ended() {
            player.play(line);
        }
    }
    Ok(player.observer.into_outcome())
}

struct Player<A: Allocator> {
    allocator: A,
    /// Bytes and block of each live id; no block for zero bytes.
    live: HashMap<u64, (usize, Option<A::Block>)>,
    observer: ReplayObserver,
}

impl<A: Allocator> Player<A> {
    fn play(&mut self, line: TraceLine) {
        match line.event {
            TraceEvent::Alloc { id, bytes, stream } => self.allocate(line.number, id, bytes, stream),
            TraceEvent::Free { id } => {
                let (bytes, block) = self.live.remove(&id).expect("what is freed is live");
                if let Some(block) = block {
                    self.allocator.free(block);
                }
                self.observer.freed(bytes, &self.allocator.levels());
            }
            TraceEvent::Step => {
                self.allocator.step();
                self.observer.stepped(&self.allocator.levels());
            }
        }
    }

    fn allocate(&mut self, line: u64, id: u64, bytes: usize, stream: StreamId) {
        let block = match bytes {
            0 => None,
            _ => match self.allocator.allocate(bytes, stream) {
                Some(block) => Some(block),
                None => return self.observer.ran_out(line, bytes, &self.allocator.levels()),
            },
        };
        let before = self.live.insert(id, (bytes, block));
        assert!(before.is_none(), "line {line}: block {id} is live already");
        self.observer.allocated(bytes, &self.allocator.levels());
    }
}
