//! One recurrence of few windows, shared by threads.
//!
//! ```text
//! member m, at each step:   gates and states of its units, from the states of all units before
//!                           publish these states
//!                           wait for the states of the others, and copy them
//! ```
//!
//! Each member has the hidden states of all units before each step, and W_hh of its own units in
//! its second-level cache. A unit's numbers do not depend on the member that computes them.
//!
//! The first member never depends on the others: where one is late, it computes all units itself
//! from that step on. It has the cell states of all units too, so that the others are not needed
//! any more. They end when they see that. So nothing waits for ever, whatever threads are there,
//! and a member that the operating system has put aside costs the first one a short wait, once.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::Dimensions;
use super::tasks::part;
use crate::compute::Purpose;
use crate::kernel::{PANEL, PanelStride};

/// Longest wait of the first member for one that computes a step.
const STEP_WAIT: Duration = Duration::from_micros(20);

/// Longest wait of the first member for one that begins: a thread that sleeps needs some time to
/// wake up.
const BEGIN_WAIT: Duration = Duration::from_micros(100);

/// Longest wait of another member for the first one, which may have to wait for a thread.
const OTHERS_WAIT: Duration = Duration::from_millis(2);

/// Polls between two checks of the deadline.
const LOOKS: usize = 128;

/// Fewest panels of units that a member computes: a step of fewer takes no longer than an exchange
/// of states.
const UNITS_MIN: usize = 2;

/// Members that share the recurrence of one timeframe: 1 where its windows are more than a few, or
/// bf16 pairs are multiplied.
pub(super) fn members(dims: Dimensions, purpose: Purpose) -> usize {
    let shares = purpose == Purpose::Prediction
        && dims.capacity == 1
        && !dims.is_dense()
        && dims.arithmetic.bf16_isa().is_none();
    if shares { dims.threads.clamp(1, (dims.unit_panels() / UNITS_MIN).max(1)) } else { 1 }
}

/// Barrier of the threads that share one recurrence: they exchange their states after every step.
#[derive(Debug)]
pub(super) struct StepBarrier {
    members: Vec<Published>,
    /// True once the first member computes all units.
    is_over: AtomicBool,
}

/// States of one member's units after its last two steps. Members' counters lie in different lines
/// of the caches.
#[derive(Debug)]
#[repr(align(128))]
struct Published {
    /// Steps that are published.
    steps: AtomicUsize,
    /// After even and odd steps: hidden states, then cell states if any, [S, own panels, windows,
    /// 16] as bits. A member is at most one step ahead of another, which may read the step before.
    states: [Vec<AtomicU32>; 2],
}

impl StepBarrier {
    /// A barrier for the members of one timeframe.
    pub(super) fn new(dims: Dimensions, members: usize) -> Self {
        let own =
            |member| dims.sizes.cell.states() * part(member, members, dims.unit_panels()).len() * dims.capacity * PANEL;
        let zeros = |len| (0..len).map(|_| AtomicU32::new(0)).collect();
        let published =
            |member| Published { steps: AtomicUsize::new(0), states: [zeros(own(member)), zeros(own(member))] };
        StepBarrier { members: (0..members).map(published).collect(), is_over: AtomicBool::new(false) }
    }

    /// Resets the barrier for the next pass. No member may be in a pass.
    fn begin(&self) {
        self.members.iter().for_each(|member| member.steps.store(0, Ordering::Relaxed));
        self.is_over.store(false, Ordering::Release);
    }

    /// True once member `other` has published `steps` steps; false where that takes longer than
    /// `longest`, or the barrier is abandoned.
    fn wait_for(&self, other: usize, steps: usize, longest: Duration) -> bool {
        let mut begin = None;
        loop {
            for look in 0..LOOKS {
                if self.members[other].steps.load(Ordering::Acquire) >= steps {
                    return true;
                }
                // A pause takes 140 cycles on Intel CPUs since Skylake. The first looks have none.
                if look >= LOOKS / 2 {
                    std::hint::spin_loop();
                }
            }
            let is_late = begin.get_or_insert_with(Instant::now).elapsed() > longest;
            if is_late || self.is_over.load(Ordering::Acquire) {
                return self.members[other].steps.load(Ordering::Acquire) >= steps;
            }
        }
    }
}

/// The units that one thread computes of a recurrence that several threads share.
#[derive(Debug)]
pub(super) struct UnitShare {
    barrier: Arc<StepBarrier>,
    member: usize,
}

impl UnitShare {
    /// The parts of all members of a pass that begins; the first member's is the first.
    pub(super) fn for_pass(barrier: &Arc<StepBarrier>) -> impl Iterator<Item = UnitShare> {
        barrier.begin();
        (0..barrier.members.len()).map(|member| UnitShare { barrier: barrier.clone(), member })
    }

    /// The panels of units, of `units` in all, that this member computes.
    pub(super) fn own_panels(&self, units: usize) -> Range<usize> {
        self.panels(self.member, units)
    }

    /// The panels of units that a member computes.
    fn panels(&self, member: usize, units: usize) -> Range<usize> {
        part(member, self.barrier.members.len(), units)
    }

    /// Publishes the own units' part of `states`, hidden and cell, after step `step` of the pass,
    /// and copies the others'.
    pub(super) fn meet(&self, step: usize, place: StepStates, states: &mut [&mut [f32]]) -> BarrierOutcome {
        let UnitShare { barrier, member } = self;
        let published = &barrier.members[*member];
        let own = place.ranges(states.len(), self.panels(*member, place.units));
        let slots = published.states[step % 2].chunks_exact(place.windows * PANEL);
        for ((kind, range), slots) in own.zip(slots) {
            let states = &states[kind][range];
            slots.iter().zip(states).for_each(|(slot, state)| slot.store(state.to_bits(), Ordering::Relaxed));
        }
        published.steps.store(step + 1, Ordering::Release);
        let longest = match (*member, step) {
            (0, 0) => BEGIN_WAIT,
            (0, _) => STEP_WAIT,
            _ => OTHERS_WAIT,
        };
        // Only the first member may have to go on with the cells of all units.
        let kinds = if *member == 0 { states.len() } else { 1 };
        for (other, published) in barrier.members.iter().enumerate().filter(|(other, _)| other != member) {
            if !barrier.wait_for(other, step + 1, longest) {
                barrier.is_over.store(true, Ordering::Release);
                return if *member == 0 { BarrierOutcome::TakenOver } else { BarrierOutcome::Abandoned };
            }
            let slots = published.states[step % 2].chunks_exact(place.windows * PANEL);
            for ((kind, range), slots) in place.ranges(kinds, self.panels(other, place.units)).zip(slots) {
                let states = &mut states[kind][range];
                slots.iter().zip(states).for_each(|(slot, state)| {
                    *state = f32::from_bits(slot.load(Ordering::Relaxed));
                });
            }
        }
        BarrierOutcome::Complete
    }
}

/// Layout of the states after a step; hidden and cell states have the same.
#[derive(Clone, Copy)]
pub(super) struct StepStates {
    pub(super) at: PanelStride,
    /// Number of panels of units.
    pub(super) units: usize,
    pub(super) windows: usize,
}

impl StepStates {
    /// The ranges of `panels` among hidden (0) and, of two `kinds`, then cell states (1).
    fn ranges(self, kinds: usize, panels: Range<usize>) -> impl Iterator<Item = (usize, Range<usize>)> {
        let range = move |panel| {
            let start = self.at.panel(panel).start;
            start..start + self.windows * PANEL
        };
        (0..kinds).flat_map(move |kind| panels.clone().map(move |panel| (kind, range(panel))))
    }
}

/// Outcome of an exchange of states at a barrier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BarrierOutcome {
    /// The states of all units are there.
    Complete,
    /// Another member is late: this one, the first, computes the step again with all units, and
    /// what follows.
    TakenOver,
    /// The first member does without this one.
    Abandoned,
}
