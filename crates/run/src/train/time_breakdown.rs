//! Time that a device loses outside computation: data, validation, saving, the host, idle threads.

use std::time::Duration;

use megabatch_trainer::{Event, StepEvent};
use serde_json::{Value, json};

/// Steps that are judged together, so that one slow read does not warn. An epoch's end may have
/// fewer, but more than a warm-up.
pub(super) const STEPS: u32 = 100;
pub(super) const STEPS_MIN: u32 = 10;
/// Share of the time above which a loss is told.
pub(super) const SHARE_MAX: f64 = 0.3;
/// Total loss below which there is no warning.
pub(super) const LOSS_MIN_S: f64 = 1.0;

/// Cause of lost time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    Data,
    Validation,
    Saving,
    /// Time of a step other than waiting, forward, backward and optimizer.
    Host,
    /// Threads that had nothing to compute.
    Threads,
}

/// Time of some steps and between them, by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct TimeTally {
    pub(super) steps: u32,
    step_s: f64,
    data_s: f64,
    computing_s: f64,
    validation_s: f64,
    saving_s: f64,
}

/// Sums of events, returned once there are enough of them to be judged.
#[derive(Clone, Debug, Default)]
pub(super) struct Tallies {
    tally: TimeTally,
    /// When the event before was seen.
    since: Duration,
}

impl Cause {
    /// As metrics.jsonl names it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Cause::Data => "data",
            Cause::Validation => "validation",
            Cause::Saving => "saving",
            Cause::Host => "host",
            Cause::Threads => "threads",
        }
    }

    /// Description, in a sentence.
    fn what(self) -> &'static str {
        match self {
            Cause::Data => "waiting for data",
            Cause::Validation => "validation",
            Cause::Saving => "saving checkpoints",
            Cause::Host => "work of the host between the parts of a step",
            Cause::Threads => "idle",
        }
    }

    /// Advice.
    fn advice(self) -> &'static str {
        match self {
            Cause::Data => {
                "`megabatch convert` windows to series, which stay in memory, or give more threads to decoding"
            }
            Cause::Validation => {
                "validate less often (training.validate_every_steps), or on less (training.validation_samples)"
            }
            Cause::Saving => {
                "each validation saves a checkpoint: validate less often (training.validate_every_steps), or write to a faster disk"
            }
            Cause::Host => "raise gpu_optimization.batch_size, so that a step has more to compute",
            Cause::Threads => {
                "each thread takes 32 samples, or one graph, at a time: raise gpu_optimization.batch_size, or lower training.threads \
                 if other programs use the processors"
            }
        }
    }
}

impl Tallies {
    /// Counts `event`, which came `now` after the session began. Returns the sums since they were
    /// last returned, once there are enough.
    pub(super) fn see(&mut self, event: &Event<'_>, now: Duration) -> Option<(u64, TimeTally)> {
        let passed_s = now.saturating_sub(std::mem::replace(&mut self.since, now)).as_secs_f64();
        let step = match event {
            Event::Step(step) => {
                self.tally.add(step);
                (self.tally.steps >= STEPS).then_some(step.step)?
            }
            Event::Validation(_) => {
                self.tally.validation_s += passed_s;
                return None;
            }
            Event::Checkpoint { .. } => {
                self.tally.saving_s += passed_s;
                return None;
            }
            Event::Epoch(epoch) if self.tally.steps >= STEPS_MIN => epoch.step,
            _ => return None,
        };
        Some((step, std::mem::take(&mut self.tally)))
    }
}

impl TimeTally {
    fn add(&mut self, step: &StepEvent) {
        self.steps += 1;
        // The time of a step is told by its rate alone.
        self.step_s += step.samples as f64 / step.samples_per_s;
        self.data_s += step.data_wait_s;
        self.computing_s += step.forward_s + step.backward_s + step.optimizer_s;
    }

    pub(super) fn total_s(&self) -> f64 {
        self.step_s + self.validation_s + self.saving_s
    }

    /// Time in which threads could have computed.
    pub(super) fn computable_s(&self) -> f64 {
        self.step_s - self.data_s + self.validation_s
    }

    /// Main cause of a GPU's idle time, and its time.
    pub(super) fn main_cause(&self) -> (Cause, f64) {
        let host_s = (self.step_s - self.data_s - self.computing_s).max(0.0);
        let causes = [
            (Cause::Data, self.data_s),
            (Cause::Validation, self.validation_s),
            (Cause::Saving, self.saving_s),
            (Cause::Host, host_s),
        ];
        causes.into_iter().max_by(|a, b| a.1.total_cmp(&b.1)).expect("there are four")
    }
}

/// Lost time, and the step at which it was found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Loss {
    pub(super) step: u64,
    /// Share of the time of steps and between them; for threads, of their time.
    pub(super) share: f64,
    pub(super) cause: Cause,
}

impl Loss {
    /// Its line in metrics.jsonl.
    pub(super) fn metric(&self) -> Value {
        json!({ "event": "lost_time", "step": self.step, "share": self.share, "cause": self.cause.name() })
    }

    /// Message for the user.
    pub(super) fn sentence(&self) -> String {
        let whole = if self.cause == Cause::Threads { "the threads' time" } else { "the time" };
        format!("{}: {} of {whole} is {}", self.cause.name(), percent(self.share), reason(self.cause))
    }
}

/// A cause with what to do about it.
pub(super) fn reason(cause: Cause) -> String {
    format!("{}; {}", cause.what(), cause.advice())
}

pub(super) fn percent(share: f64) -> String {
    format!("{:.0} %", 100.0 * share)
}

/// CPU time that this process has taken, in seconds; none where the system does not tell.
pub(super) type ProcessorClock = fn() -> Option<f64>;

/// Watches lost time, except for data, which [`WaitWatch`](super::data_stalls::WaitWatch) watches.
pub(super) struct LossWatch {
    tallies: Tallies,
    threads: usize,
    clock: ProcessorClock,
    /// CPU time when the sums were last handed out.
    processor_s: Option<f64>,
    /// A cause is told once.
    told: Vec<Cause>,
}

impl LossWatch {
    pub(super) fn new(threads: usize, clock: ProcessorClock) -> Self {
        LossWatch { tallies: Tallies::default(), threads, clock, processor_s: clock(), told: Vec::new() }
    }

    /// Counts `event`, which came `now` after the session began. Returns the losses to report, the
    /// larger first.
    pub(super) fn see(&mut self, event: &Event<'_>, now: Duration) -> Vec<Loss> {
        let Some((step, tally)) = self.tallies.see(event, now) else { return Vec::new() };
        let before = std::mem::replace(&mut self.processor_s, (self.clock)());
        let worked_s = self.processor_s.zip(before).map(|(now, before)| now - before);
        let could_s = self.threads as f64 * tally.computable_s();
        let candidates = [
            (Cause::Validation, tally.validation_s, tally.total_s()),
            (Cause::Saving, tally.saving_s, tally.total_s()),
            (Cause::Threads, worked_s.map_or(0.0, |worked_s| could_s - worked_s), could_s),
        ];
        let mut losses = Vec::new();
        for (cause, lost_s, whole_s) in candidates {
            let share = lost_s / whole_s;
            if share > SHARE_MAX && lost_s >= LOSS_MIN_S && !self.told.contains(&cause) {
                self.told.push(cause);
                losses.push(Loss { step, share, cause });
            }
        }
        losses.sort_by(|a, b| b.share.total_cmp(&a.share));
        losses
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::train::fixtures;

    /// Messages of `steps` steps of a second, each followed by a validation and a checkpoint that
    /// take so long.
    fn told(steps: u64, between_s: [f64; 2], threads: usize, clock: ProcessorClock) -> Vec<Loss> {
        let mut watch = LossWatch::new(threads, clock);
        let (mut now, mut losses) = (0.0, Vec::new());
        let mut see = |event: &Event<'_>, took_s: f64| {
            now += took_s;
            losses.extend(watch.see(event, Duration::from_secs_f64(now)));
        };
        for step in 1..=steps {
            see(&Event::Step(fixtures::step(step)), 1.0);
            see(&fixtures::validation(step), between_s[0]);
            see(&Event::Checkpoint { step, path: Path::new("x") }, between_s[1]);
        }
        see(&fixtures::epoch(0, steps), 0.0);
        losses
    }

    #[test]
    fn validation_and_saving_are_told_once_with_what_to_do() {
        let losses = told(450, [1.0, 0.5], 1, || None);
        let [Loss { step: 100, share, cause: Cause::Validation }] = losses[..] else { panic!("{losses:?}") };
        // The last step of the hundred is judged before what comes after it.
        assert!((share - 99.0 / (100.0 + 99.0 + 49.5)).abs() < 1e-9, "{share}");
        let sentence = losses[0].sentence();
        assert!(sentence.starts_with("validation: 40 % of the time is validation; validate less often"), "{sentence}");
        let losses = told(20, [0.0, 1.0], 1, || None);
        assert_eq!((losses.len(), losses[0].metric()["cause"].as_str()), (1, Some("saving")));
        assert_eq!(told(450, [0.1, 0.1], 1, || None), []);
        assert_eq!(told(9, [5.0, 5.0], 1, || None), [], "a warm-up is no reason");
    }

    #[test]
    fn threads_without_work_are_told() {
        // A clock that stands still: nothing was computed at all.
        let losses = told(100, [0.0, 0.0], 4, || Some(7.0));
        assert_eq!(losses, [Loss { step: 100, share: 1.0, cause: Cause::Threads }]);
        let sentence = losses[0].sentence();
        assert!(
            sentence.starts_with("threads: 100 % of the threads' time is idle; each thread takes 32 samples"),
            "{sentence}"
        );
        assert_eq!(told(100, [0.0, 0.0], 4, || None), [], "nothing is said where the system does not tell");
    }

    #[test]
    fn the_main_cause_is_what_takes_the_most() {
        let step =
            StepEvent { data_wait_s: 0.2, forward_s: 0.1, backward_s: 0.1, optimizer_s: 0.1, ..fixtures::step(1) };
        let mut tally = TimeTally::default();
        tally.add(&step);
        let (cause, host_s) = tally.main_cause();
        assert!(cause == Cause::Host && (host_s - 0.5).abs() < 1e-9, "{cause:?} {host_s}");
        assert_eq!(TimeTally { data_s: 0.6, ..tally }.main_cause().0, Cause::Data);
        assert_eq!(TimeTally { saving_s: 0.7, ..tally }.main_cause().0, Cause::Saving);
        assert_eq!(TimeTally { validation_s: 0.7, ..tally }.main_cause().0, Cause::Validation);
        assert!((tally.total_s() - 1.0).abs() < 1e-9 && (tally.computable_s() - 0.8).abs() < 1e-9);
    }
}
