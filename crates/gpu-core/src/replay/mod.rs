//! Recorded allocations, replayed on a pool or on a model of another allocator.
//!
//! A *trace* is what a program asked of its allocator, in order: [`TraceEvent`]s. [`replay`] asks
//! the same of one [`Policy`] with a given amount of memory and tells what it took
//! ([`ReplayOutcome`]). The policies are this crate's [`Pool`](crate::pool::Pool) over a simulated
//! device, and two models of PyTorch's CUDA caching allocator ([`pytorch`]) to compare it with.
//! [`corpus`] makes traces of the patterns that fragment memory in the field.
//!
//! ```
//! use megabatch_gpu_core::replay::{Policy, corpus, replay};
//!
//! let comb = corpus::pattern("comb").expect("it is in the corpus");
//! let outcome = replay(comb.lines(0), Policy::PyTorch, &comb.limits())?;
//! assert!(outcome.out_of_memory.is_none());
//! assert!(outcome.overhead() > 1.4, "half of its memory is free, and of no use to it");
//! # Ok::<(), std::convert::Infallible>(())
//! ```

#![forbid(unsafe_code)]

mod allocator;
pub mod corpus;
mod outcome;
mod policy;
mod pooled;
pub mod pytorch;
mod trace;

use std::collections::HashMap;

pub use outcome::{OutOfMemory, ReplayOutcome};
pub use policy::{Limits, Policy};
pub use trace::{BLOCK_BYTES_MAX, TraceError, TraceEvent, TraceLine, TraceReader, write};

use crate::source::{Simulated, StreamId};
use allocator::Allocator;
use outcome::ReplayObserver;
use pooled::Pooled;
use pytorch::{AllocatorSettings, CachingAllocator, GrowthMode};

/// Granule of the simulated device in bytes: that of CUDA's devices.
pub const GRANULE_BYTES: usize = 2 << 20;

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
/// If an id is allocated while it is live, or freed while it is not; [`TraceReader`] lets no such
/// trace through.
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
