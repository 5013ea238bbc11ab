use crate::allocator::Levels;

/// Result of a policy on a trace.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct ReplayOutcome {
    /// The request that could not be met, if there was one. All other figures are then those until
    /// it.
    pub out_of_memory: Option<OutOfMemory>,
    /// Events that were played.
    pub events: u64,
    /// Step boundaries among them.
    pub steps: u64,
    /// Largest sum of the sizes of live blocks, as they were asked for.
    pub peak_live_bytes: usize,
    /// Most physical memory that was held.
    pub peak_reserved_bytes: usize,
    /// Most free bytes that shared their segment (PyTorch), page (expandable segments) or granule
    /// (ours) with live bytes.
    pub peak_inactive_split_bytes: usize,
    /// Largest value of 1 − largest free block / free bytes, looked at after every event.
    pub fragmentation_max: f64,
    /// Calls to the driver.
    pub driver_calls: u64,
    /// Calls to the driver in the last whole step.
    pub driver_calls_last_step: u64,
    /// Steps at the end, without interruption, in which the driver was not called and the memory
    /// held did not grow.
    pub quiet_steps: u64,
    /// Requests for which memory was mapped side by side.
    pub stitches: u64,
}

impl ReplayOutcome {
    /// Peak of the memory held ÷ peak of the memory asked for; 1 where nothing was.
    pub fn overhead(&self) -> f64 {
        match self.peak_live_bytes {
            0 => 1.0,
            live => self.peak_reserved_bytes as f64 / live as f64,
        }
    }
}

/// A request that failed, and the memory held then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OutOfMemory {
    /// Line of the trace, from 1.
    pub line: u64,
    /// Bytes that were asked for.
    pub requested_bytes: usize,
    /// Bytes of live blocks, as they were asked for.
    pub live_bytes: usize,
    /// Bytes of live blocks, as the policy rounds them.
    pub allocated_bytes: usize,
    /// Physical memory held.
    pub reserved_bytes: usize,
    /// Longest run of free bytes in it.
    pub largest_free_bytes: usize,
}

/// Watches a replay from event to event.
#[derive(Debug, Default)]
pub(crate) struct ReplayObserver {
    outcome: ReplayOutcome,
    live_bytes: usize,
    at_step: Levels,
}

impl ReplayObserver {
    pub(crate) fn has_ended(&self) -> bool {
        self.outcome.out_of_memory.is_some()
    }

    pub(crate) fn allocated(&mut self, bytes: usize, levels: &Levels) {
        self.live_bytes += bytes;
        self.outcome.peak_live_bytes = self.outcome.peak_live_bytes.max(self.live_bytes);
        self.look(levels);
    }

    pub(crate) fn freed(&mut self, bytes: usize, levels: &Levels) {
        self.live_bytes -= bytes;
        self.look(levels);
    }

    pub(crate) fn stepped(&mut self, levels: &Levels) {
        self.look(levels);
        let quiet = levels.driver_calls == self.at_step.driver_calls;
        self.outcome.steps += 1;
        self.outcome.driver_calls_last_step = levels.driver_calls - self.at_step.driver_calls;
        // Memory comes from the driver only, so that a step without a call has not grown either.
        self.outcome.quiet_steps = if quiet { self.outcome.quiet_steps + 1 } else { 0 };
        self.at_step = *levels;
    }

    /// The request of `bytes` on `line` was not met.
    pub(crate) fn ran_out(&mut self, line: u64, bytes: usize, levels: &Levels) {
        self.look(levels);
        self.outcome.out_of_memory = Some(OutOfMemory {
            line,
            requested_bytes: bytes,
            live_bytes: self.live_bytes,
            allocated_bytes: levels.allocated_bytes,
            reserved_bytes: levels.reserved_bytes,
            largest_free_bytes: levels.largest_free_bytes,
        });
    }

    pub(crate) fn into_outcome(self) -> ReplayOutcome {
        self.outcome
    }

    fn look(&mut self, levels: &Levels) {
        let outcome = &mut self.outcome;
        outcome.events += 1;
        outcome.peak_reserved_bytes = outcome.peak_reserved_bytes.max(levels.reserved_bytes);
        outcome.peak_inactive_split_bytes = outcome.peak_inactive_split_bytes.max(levels.inactive_split_bytes);
        outcome.fragmentation_max = outcome.fragmentation_max.max(levels.fragmentation());
        outcome.driver_calls = levels.driver_calls;
        outcome.stitches = levels.stitches;
    }
}
