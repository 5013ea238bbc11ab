//! A pool in lockstep with a naive model: events drawn from a seed, compared after each.
//!
//! A failure prints its seed; `cargo xtask simulate --seed S --events N` repeats it, and runs many
//! more events than the ordinary tests have time for.

#[cfg(target_os = "linux")]
#[path = "../memfd/mod.rs"]
mod memfd;
mod memory;
mod model;
mod random;
mod script;
#[path = "../simulated/mod.rs"]
mod simulated;
mod world;

#[cfg(target_os = "linux")]
use megabatch_gpu_core::source::Anonymous;
use megabatch_gpu_core::source::{Plain, Refusal, Source};

use self::memory::Memory;
use self::script::{Allowed, Script, Trouble};
use self::simulated::{Completion, SimulatedDevice};
use self::world::World;

const GRANULE_BYTES: usize = 64 << 10;
const CAPACITY_BYTES: usize = 64 * GRANULE_BYTES;
/// Events after which a run ends and another begins with the next seed.
const RUN_EVENTS: u64 = 20_000;
/// Events of each setting in the ordinary tests.
const EVENTS: u64 = 20_000;
const SEED: u64 = 1;

/// Source of a run's memory, and its possible faults.
#[derive(Clone, Copy, Debug)]
enum Setting {
    /// A simulated device whose work is done at once.
    Calm,
    /// One with three streams whose work is pending.
    Streams,
    /// One with three streams, with other users, and with calls that are refused.
    Troubled,
    /// Memory that is stitched by the system.
    #[cfg(target_os = "linux")]
    Memfd,
    /// Memory in huge pages, with more addresses than memory.
    #[cfg(target_os = "linux")]
    Anonymous,
    /// Memory that cannot be stitched.
    Plain,
}

impl Setting {
    const ALL: &[Setting] = &[
        Setting::Calm,
        Setting::Streams,
        Setting::Troubled,
        #[cfg(target_os = "linux")]
        Setting::Memfd,
        #[cfg(target_os = "linux")]
        Setting::Anonymous,
        Setting::Plain,
    ];

    fn world(self) -> (World, Allowed) {
        let calm = Allowed { streams: 1, trouble: Trouble::None };
        let host = |source: Box<dyn Source>| World::new(source, Memory::Host);
        let simulated = |completion| {
            let device = SimulatedDevice::new(CAPACITY_BYTES, GRANULE_BYTES, completion);
            World::new(Box::new(device.clone()), Memory::Simulated(device))
        };
        match self {
            Setting::Calm => (simulated(Completion::Immediate), calm),
            Setting::Streams => (simulated(Completion::Manual), Allowed { streams: 3, ..calm }),
            Setting::Troubled => {
                (simulated(Completion::Manual), Allowed { streams: 3, trouble: Trouble::OthersAndFaults })
            }
            #[cfg(target_os = "linux")]
            Setting::Memfd => (host(Box::new(memfd::Memfd::new(CAPACITY_BYTES, GRANULE_BYTES))), calm),
            #[cfg(target_os = "linux")]
            Setting::Anonymous => (host(Box::new(Anonymous::new(CAPACITY_BYTES, GRANULE_BYTES))), calm),
            Setting::Plain => (host(Box::new(Plain::new(CAPACITY_BYTES, GRANULE_BYTES))), calm),
        }
    }
}

/// Says how to repeat what failed, when the thread panics.
struct Told {
    seed: u64,
    setting: Setting,
    event: u64,
}

impl Drop for Told {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("failed: seed {}, {:?}, event {}", self.seed, self.setting, self.event);
        }
    }
}

/// Runs of a setting, each with a seed of its own from `seed` on, until so many events have
/// happened.
fn simulate(setting: Setting, seed: u64, events: u64) {
    let mut told = Told { seed, setting, event: 0 };
    let mut left = events;
    while left > 0 {
        let (mut world, allowed) = setting.world();
        let mut script = Script::new(told.seed, allowed, CAPACITY_BYTES, GRANULE_BYTES);
        for event in 0..left.min(RUN_EVENTS) {
            told.event = event;
            world.happen(&script.next(world.live_bytes()));
        }
        world.end();
        left = left.saturating_sub(RUN_EVENTS);
        told.seed += 1;
    }
}

#[test]
fn calm() {
    simulate(Setting::Calm, SEED, EVENTS);
}

#[test]
fn streams() {
    simulate(Setting::Streams, SEED, EVENTS);
}

#[test]
fn troubled() {
    simulate(Setting::Troubled, SEED, EVENTS);
}

#[cfg(target_os = "linux")]
#[test]
fn memfd() {
    simulate(Setting::Memfd, SEED, EVENTS);
}

#[cfg(target_os = "linux")]
#[test]
fn anonymous() {
    simulate(Setting::Anonymous, SEED, EVENTS);
}

#[test]
fn plain() {
    simulate(Setting::Plain, SEED, EVENTS);
}

/// As many events as `cargo xtask simulate` asks for, shared among the settings; none in the
/// ordinary tests.
#[test]
fn as_long_as_asked() {
    let asked = |name: &str| std::env::var(name).ok().map(|value| value.parse::<u64>().expect("a number"));
    let Some(events) = asked("MEGABATCH_SIMULATION_EVENTS") else { return };
    let seed = asked("MEGABATCH_SIMULATION_SEED").unwrap_or(SEED);
    let settings = Setting::ALL;
    for &setting in settings {
        simulate(setting, seed, events.div_ceil(settings.len() as u64));
        println!("{setting:?}: seeds from {seed} on");
    }
    println!("simulated: {events} events from seed {seed} on");
}

/// Every call to the driver that a short run makes is refused once, each in a run of its own.
#[test]
fn each_call_is_refused_once() {
    const SHORT_EVENTS: u64 = 200;
    let (mut call, mut calls) = (1, 1);
    while call <= calls {
        let _told = Told { seed: SEED, setting: Setting::Streams, event: call };
        calls = calls.max(with_one_refusal(SEED, SHORT_EVENTS, call));
        call += 1;
    }
    assert!(calls > 50, "the run hardly calls the driver");
}

/// Runs with the call of this number refused; returns how many calls the run made.
fn with_one_refusal(seed: u64, events: u64, call: u64) -> u64 {
    let (mut world, allowed) = Setting::Streams.world();
    let mut script = Script::new(seed, allowed, CAPACITY_BYTES, GRANULE_BYTES);
    let refusal = if call.is_multiple_of(2) { Refusal::OutOfMemory } else { script::failed() };
    world.refuse_call(call, refusal);
    (0..events).for_each(|_| world.happen(&script.next(world.live_bytes())));
    let calls = world.pool.source().driver_calls();
    world.end();
    calls
}
