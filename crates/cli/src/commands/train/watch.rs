//! Following a run: metrics.jsonl, the progress display, memory, and the signals that end it.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context as _, Result};
use megabatch_trainer::{Event, Waits};
use serde_json::Value;

use super::memory::MemoryWatch;
use crate::job::Job;
use crate::progress::Progress;
use crate::report::Peaks;
use crate::run::{MetricsLog, RunFolder};

/// How long the steps of a session waited for data.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Waited {
    pub(super) seconds: f64,
    /// By cause, where data pass through memory.
    pub(super) causes: Option<Waits>,
}

/// The observer of a run.
pub(super) struct Watch<'a> {
    log: MetricsLog,
    progress: Progress,
    memory: MemoryWatch<'a>,
    waited: Waited,
    interrupted: Arc<AtomicBool>,
    /// The first failure to write the log; it ends the run.
    failure: Option<anyhow::Error>,
}

impl<'a> Watch<'a> {
    /// Goes on with the run in `folder` after `first_step` of its `steps`.
    pub(super) fn new(folder: &RunFolder, job: &'a Job, (first_step, steps): (u64, u64)) -> Result<Self> {
        let interrupted = Arc::new(AtomicBool::new(false));
        for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
            // The second signal ends the process at once, for a user who does not want to wait for the checkpoint.
            signal_hook::flag::register_conditional_shutdown(signal, 1, Arc::clone(&interrupted))?;
            signal_hook::flag::register(signal, Arc::clone(&interrupted)).context("cannot watch for signals")?;
        }
        let log = MetricsLog::open_after(folder, first_step)?;
        let mut progress = Progress::start("train", steps, "steps");
        progress.begin_at(first_step);
        Ok(Watch {
            log,
            progress,
            memory: MemoryWatch::new(job, first_step),
            waited: Waited::default(),
            interrupted,
            failure: None,
        })
    }

    pub(super) fn see(&mut self, event: &Event<'_>) -> ControlFlow<()> {
        let metric = serde_json::to_value(event).expect("events serialize without error");
        self.write(&metric);
        self.show(event, &metric);
        if let Event::Step(step) = event {
            self.waited.seconds += step.data_wait_s;
            step.data_waits.iter().for_each(|waits| *self.waited.causes.get_or_insert_default() += *waits);
        }
        if let Some(leak) = self.memory.see(event) {
            self.write(&leak.metric());
            self.progress.note(&format!("warning: {}", leak.sentence()));
        }
        if self.failure.is_some() || self.interrupted.load(Ordering::Relaxed) {
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    }

    /// A line cut short is the log's last one: what comes after it is not written.
    fn write(&mut self, metric: &Value) {
        if self.failure.is_none() {
            self.failure = self.log.push(metric).err();
        }
    }

    fn show(&mut self, event: &Event<'_>, metric: &Value) {
        match event {
            Event::Step(step) => {
                let message = format!("loss {:.5}  {:.0} samples/s", step.loss, step.samples_per_s);
                self.progress.at(step.step, &message);
            }
            Event::Validation(validation) => {
                let best = if validation.best { ", the best so far" } else { "" };
                let (epoch, step) = (validation.epoch + 1, validation.step);
                self.progress
                    .note(&format!("epoch {epoch}, step {step}: validation loss {:.6}{best}", validation.loss));
            }
            Event::Checkpoint { .. } | Event::Epoch(_) => {}
            _ => self.progress.note(&metric.to_string()),
        }
    }

    /// The peaks of the epochs that were followed, and what their steps waited.
    pub(super) fn finish(self) -> Result<(Peaks, Waited)> {
        let answer = (self.memory.into_peaks(), self.waited);
        self.failure.map_or(Ok(answer), Err)
    }
}
