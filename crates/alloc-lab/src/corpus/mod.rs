//! Traces of the patterns that fragment memory in the field, made by programs: the same seed gives
//! the same trace.

mod combs;
mod field_case;
mod growth;
mod random;
mod robson;
mod streams;
mod tape;
mod training;

use std::collections::HashMap;
use std::convert::Infallible;

use megabatch_gpu_core::recording::TraceEvent;

use crate::policy::{GRANULE_BYTES, Limits};
use crate::trace::TraceLine;
use random::Random;
use tape::Tape;

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;
const GIB: usize = 1 << 30;
/// Memory of the device of most patterns: enough that no allocator has to release cached memory.
const ROOMY_BYTES: usize = 80 * GIB;

pub use robson::robson_bound_bytes;

/// A pattern of the corpus.
#[derive(Clone, Copy)]
pub struct Pattern {
    /// Name on the command line.
    pub name: &'static str,
    /// Description in one line.
    pub about: &'static str,
    /// Memory of the device on which it is played.
    pub capacity_bytes: usize,
    /// PyTorch's `max_split_size_mb` in bytes, where the pattern is about it.
    pub max_split_bytes: Option<usize>,
    /// The largest block, where all are a power of two times the smallest and never move:
    /// [`robson_bound_bytes`] is about it then.
    pub largest_power_of_two_bytes: Option<usize>,
    make: fn(&mut Tape, &mut Random),
}

/// All patterns, in the order in which tables show them.
pub const PATTERNS: &[Pattern] = &[
    training::GROWING_SEQUENCES,
    training::TRAIN_AND_EVALUATE,
    training::GNN_BATCHES,
    training::REPEATED_STEPS,
    training::LONG_RUN,
    training::MIXED_SIZES,
    growth::RESERVED_GROWTH,
    streams::HALF_MEBIBYTES,
    streams::TWO_STREAMS,
    combs::COMB,
    combs::DOUBLING_COMB,
    combs::CHURN,
    combs::ODD_COMB,
    combs::NARROW_CHURN,
    robson::SMALL_BLOCKS,
    field_case::PATTERN,
];

/// The pattern of that name.
pub fn pattern(name: &str) -> Option<&'static Pattern> {
    PATTERNS.iter().find(|pattern| pattern.name == name)
}

impl Pattern {
    /// A pattern on a device of [`ROOMY_BYTES`] that is about no setting of PyTorch's.
    const fn roomy(name: &'static str, about: &'static str, make: fn(&mut Tape, &mut Random)) -> Self {
        Pattern {
            name,
            about,
            capacity_bytes: ROOMY_BYTES,
            max_split_bytes: None,
            largest_power_of_two_bytes: None,
            make,
        }
    }

    /// The trace for a seed. Patterns that leave nothing to chance are the same for every seed.
    pub fn events(&self, seed: u64) -> Vec<TraceEvent> {
        let mut tape = Tape::default();
        (self.make)(&mut tape, &mut Random::new(seed));
        tape.events
    }

    /// The trace for a seed as [`replay`](crate::replay) takes it, with the lines that it has in a
    /// file.
    pub fn lines(&self, seed: u64) -> impl Iterator<Item = Result<TraceLine, Infallible>> {
        (1..).zip(self.events(seed)).map(|(number, event)| Ok(TraceLine { number, event }))
    }

    /// The memory that it is played with.
    pub fn limits(&self) -> Limits {
        Limits { capacity_bytes: self.capacity_bytes, max_split_bytes: self.max_split_bytes }
    }
}

impl std::fmt::Debug for Pattern {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pattern").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Size of a trace, known without playing it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TraceSize {
    /// Events.
    pub events: u64,
    /// Steps.
    pub steps: u64,
    /// Largest sum of the sizes of live blocks.
    pub peak_live_bytes: usize,
    /// Smallest block; 0 without blocks.
    pub smallest_block_bytes: usize,
}

impl TraceSize {
    /// Measures a trace.
    ///
    /// # Panics
    /// If it frees what is not live.
    pub fn measure(events: &[TraceEvent]) -> Self {
        let (mut live, mut live_bytes) = (HashMap::new(), 0);
        let mut size = TraceSize { events: events.len() as u64, ..TraceSize::default() };
        for event in events {
            match *event {
                TraceEvent::Alloc { id, bytes, .. } => {
                    live.insert(id, bytes);
                    live_bytes += bytes;
                    size.peak_live_bytes = size.peak_live_bytes.max(live_bytes);
                    size.smallest_block_bytes = match size.smallest_block_bytes {
                        0 => bytes,
                        smallest => smallest.min(bytes),
                    };
                }
                TraceEvent::Free { id } => live_bytes -= live.remove(&id).expect("what is freed is live"),
                TraceEvent::Step => size.steps += 1,
            }
        }
        size
    }

    /// True if the pool aims to hold at most 1.02 times the live bytes at the peak: for traces
    /// above 1 GiB whose blocks are a granule or more.
    pub fn is_promised(&self) -> bool {
        self.peak_live_bytes > GIB && self.smallest_block_bytes >= GRANULE_BYTES
    }
}

#[cfg(test)]
mod tests;
