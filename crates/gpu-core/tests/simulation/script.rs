use megabatch_gpu_core::source::{Refusal, StreamId};

use crate::random::Random;

/// One thing that happens to a pool.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    Allocate {
        bytes: usize,
        stream: StreamId,
    },
    /// The live block of this index, modulo their number.
    Free(usize),
    /// Work on a live block, chosen as for `Free`.
    Work(usize),
    Step,
    EmptyCache,
    /// Work submitted to a stream is done.
    Complete(StreamId),
    /// Others take memory of the device, or give it back.
    Others {
        bytes: usize,
    },
    /// One of the next calls to the driver is refused.
    Fault {
        call: u64,
        refusal: Refusal,
    },
}

/// Events that may happen besides allocations, frees, steps and emptied caches.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Allowed {
    pub(crate) streams: usize,
    /// Other users of the device and refused calls.
    pub(crate) trouble: Trouble,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    None,
    OthersAndFaults,
}

/// Draws events: phases of some hundreds of them, each with a habit of its own.
#[derive(Debug)]
pub(crate) struct Script {
    random: Random,
    allowed: Allowed,
    granule_bytes: usize,
    capacity_bytes: usize,
    phase: Phase,
    events_left: usize,
}

#[derive(Clone, Copy, Debug)]
struct Phase {
    sizes: Sizes,
    /// Part of the capacity in percent about which live memory varies.
    level: usize,
    /// Events between two steps, about.
    step_events: usize,
}

#[derive(Clone, Copy, Debug)]
enum Sizes {
    /// Below what a slab serves, mostly.
    Small,
    /// Around a granule, with odd ends.
    Granules,
    /// Three quarters of a granule: leaves holes that only stitching can use.
    Comb,
    /// Up to a quarter of the capacity.
    Large,
    /// Sizes of all magnitudes.
    Any,
}

impl Script {
    pub(crate) fn new(seed: u64, allowed: Allowed, capacity_bytes: usize, granule_bytes: usize) -> Self {
        let mut random = Random::new(seed);
        let phase = Phase::draw(&mut random);
        Script { random, allowed, granule_bytes, capacity_bytes, phase, events_left: 0 }
    }

    /// Next event, with so many bytes live.
    pub(crate) fn next(&mut self, live_bytes: usize) -> Event {
        if self.events_left == 0 {
            self.phase = Phase::draw(&mut self.random);
            self.events_left = 50 + self.random.below(500);
        }
        self.events_left -= 1;
        let random = &mut self.random;
        if random.one_in(self.phase.step_events) {
            return Event::Step;
        }
        match random.below(200) {
            0 => Event::EmptyCache,
            1..10 => Event::Work(random.below(usize::MAX)),
            10..20 => Event::Complete(StreamId(random.below(self.allowed.streams) as u32)),
            20..26 if self.allowed.trouble == Trouble::OthersAndFaults => self.trouble(),
            _ => self.exchange(live_bytes),
        }
    }

    fn trouble(&mut self) -> Event {
        let random = &mut self.random;
        match random.below(3) {
            0 if random.one_in(2) => Event::Others { bytes: 0 },
            0 => Event::Others { bytes: random.below(self.capacity_bytes / 2) },
            _ => {
                let refusal = if random.one_in(2) { failed() } else { Refusal::OutOfMemory };
                Event::Fault { call: random.magnitude(1, 16) as u64, refusal }
            }
        }
    }

    /// An allocation or a free, whichever brings live memory to the level of the phase, mostly.
    fn exchange(&mut self, live_bytes: usize) -> Event {
        let random = &mut self.random;
        let below_level = live_bytes * 100 < self.capacity_bytes * self.phase.level;
        if below_level == random.one_in(4) {
            return Event::Free(random.below(usize::MAX));
        }
        let bytes = self.phase.sizes.draw(random, self.capacity_bytes, self.granule_bytes);
        Event::Allocate { bytes, stream: StreamId(random.below(self.allowed.streams) as u32) }
    }
}

impl Phase {
    fn draw(random: &mut Random) -> Self {
        let sizes = [Sizes::Small, Sizes::Granules, Sizes::Comb, Sizes::Large, Sizes::Any];
        Phase {
            sizes: sizes[random.below(sizes.len())],
            level: [10, 50, 80, 95, 100][random.below(5)],
            step_events: [5, 30, 1000][random.below(3)],
        }
    }
}

impl Sizes {
    fn draw(self, random: &mut Random, capacity_bytes: usize, granule_bytes: usize) -> usize {
        match self {
            Sizes::Small => random.magnitude(1, granule_bytes / 8),
            Sizes::Granules if random.one_in(2) => granule_bytes * (1 + random.below(4)),
            Sizes::Granules => granule_bytes / 2 + random.below(4 * granule_bytes),
            Sizes::Comb if random.one_in(8) => 2 * granule_bytes,
            Sizes::Comb => granule_bytes / 4 * 3,
            Sizes::Large => granule_bytes + random.below(capacity_bytes / 4),
            Sizes::Any => random.magnitude(1, capacity_bytes / 2),
        }
    }
}

/// A refusal that freeing memory does not mend.
pub(crate) fn failed() -> Refusal {
    Refusal::Failed { call: "simulated", reason: "a fault of the simulation".to_owned() }
}
