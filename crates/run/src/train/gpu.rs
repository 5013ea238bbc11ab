//! Utilisation of the GPU during training, and the cause of idle time.

use std::time::Duration;

use megabatch_trainer::Event;
use serde_json::{Value, json};

use super::time_breakdown::{Cause, Tallies, percent, reason};
use crate::adapters::management::GpuProbe;
use crate::config;
use crate::error::Result;
use crate::gpu::{Recorder, Sampler, When};
use crate::host::Progress;
use crate::run_folder::RunFolder;
use crate::setup::TrainingSetup;

/// A GPU that is less busy than this waits for something.
const BUSY_MIN: f64 = 0.7;
/// Interval of samples by default.
const INTERVAL: Duration = Duration::from_secs(1);

/// The statistics of a GPU under way.
pub(super) struct GpuWatch {
    recorder: Recorder,
    /// Batches between two samples; 0 for samples by time.
    every_batches: u64,
    /// Batches of a step.
    accumulation: u64,
    tallies: Tallies,
    /// A cause is told once.
    told: Vec<Cause>,
    /// True from the first step on: what was seen before it, while data were read, counts for no
    /// step.
    has_begun: bool,
    has_gone: bool,
}

/// A GPU that is not busy enough, and the step at which it was found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Idle {
    step: u64,
    /// Share of the time in which it was busy.
    busy_share: f64,
    cause: Cause,
    /// Share of the time of steps and between them.
    cause_share: f64,
}

/// Message about a GPU.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum GpuNotice {
    Idle(Idle),
    /// The GPU does not answer any more.
    Gone(String),
}

impl GpuWatch {
    /// Watches the GPU of `setup`; `None` on the CPU. Where NVIDIA's management library does not
    /// answer, a note says so.
    pub(super) fn begin(folder: &RunFolder, setup: &TrainingSetup, progress: &dyn Progress) -> Result<Option<Self>> {
        let Some(gpu) = setup.computes_on().gpu() else { return Ok(None) };
        match GpuProbe::open(&gpu.properties().pci_bus_id) {
            Ok(probe) => {
                let every_batches = setup.config.get(&config::gpu_optimization::LOG_GPU_STATS_EVERY_N_BATCHES);
                let accumulation = setup.training.gradient_accumulation_steps;
                GpuWatch::new(folder, Box::new(probe), every_batches as u64, accumulation as u64).map(Some)
            }
            Err(fault) => {
                progress.note(&format!("the GPU is not watched: {fault}"));
                Ok(None)
            }
        }
    }

    /// Watches by `sampler`. `every_batches` is 0 for samples by time. `accumulation` is the number
    /// of batches in a step.
    fn new(folder: &RunFolder, sampler: Box<dyn Sampler>, every_batches: u64, accumulation: u64) -> Result<Self> {
        let when = if every_batches == 0 { When::Every(INTERVAL) } else { When::Asked };
        Ok(GpuWatch {
            recorder: Recorder::begin(&folder.gpu_file(), sampler, when)?,
            every_batches,
            accumulation,
            tallies: Tallies::default(),
            told: Vec::new(),
            has_begun: false,
            has_gone: false,
        })
    }

    /// Counts `event`, which came `now` after the session began. Returns the notice that is due.
    pub(super) fn see(&mut self, event: &Event<'_>, now: Duration) -> Option<GpuNotice> {
        if let Event::Step(step) = event {
            if !std::mem::replace(&mut self.has_begun, true) {
                self.recorder.take();
            }
            self.recorder.at(step.step);
            let looks = |step: u64| (step * self.accumulation).checked_div(self.every_batches);
            if looks(step.step) != looks(step.step - 1) {
                self.recorder.ask();
            }
        }
        let (step, tally) = self.tallies.see(event, now)?;
        let seen = self.recorder.take();
        if let Some(fault) = seen.fault.as_ref().filter(|_| !std::mem::replace(&mut self.has_gone, true)) {
            return Some(GpuNotice::Gone(fault.clone()));
        }
        let busy_share = seen.busy_share().filter(|&share| share < BUSY_MIN)?;
        let (cause, cause_s) = tally.main_cause();
        if self.told.contains(&cause) {
            return None;
        }
        self.told.push(cause);
        Some(GpuNotice::Idle(Idle { step, busy_share, cause, cause_share: cause_s / tally.total_s() }))
    }

    /// Waits for the last look.
    pub(super) fn finish(self) -> Result<()> {
        self.recorder.finish()
    }
}

impl GpuNotice {
    /// Its line in metrics.jsonl, where it has one.
    pub(super) fn metric(&self) -> Option<Value> {
        let GpuNotice::Idle(Idle { step, busy_share, cause, cause_share }) = self else { return None };
        let cause = cause.name();
        Some(
            json!({ "event": "gpu_idle", "step": step, "busy": busy_share, "cause": cause, "cause_share": cause_share }),
        )
    }

    /// Message for the user.
    pub(super) fn sentence(&self) -> String {
        match self {
            GpuNotice::Gone(fault) => format!("the GPU is no longer watched: {fault}"),
            GpuNotice::Idle(Idle { busy_share, cause, cause_share, .. }) => format!(
                "gpu: busy for {} of the time, and {} are to be had; {} of the time is {}",
                percent(*busy_share),
                percent(BUSY_MIN),
                percent(*cause_share),
                reason(*cause)
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use megabatch_trainer::StepEvent;

    use super::*;
    use crate::gpu::{fixtures::FakeSampler, rows};
    use crate::train::fixtures;

    fn folder() -> (tempfile::TempDir, RunFolder) {
        let folder = tempfile::tempdir().unwrap();
        let run = RunFolder::new(folder.path()).unwrap();
        (folder, run)
    }

    /// A step of a second, of which the GPU's data take most.
    fn step(step: u64) -> Event<'static> {
        Event::Step(StepEvent { data_wait_s: 0.6, ..fixtures::step(step) })
    }

    #[test]
    fn the_gpu_is_looked_at_after_as_many_batches_as_the_configuration_says() {
        for (every, accumulation, expected) in [(4, 1, vec![4, 8]), (3, 2, vec![2, 3, 5, 6, 8, 9]), (100, 1, vec![])] {
            let (_folder, run) = folder();
            let mut watch = GpuWatch::new(&run, FakeSampler::busy(&[50.0; 20]), every, accumulation).unwrap();
            for at in 1..=9 {
                watch.see(&step(at), Duration::from_secs(at));
            }
            watch.finish().unwrap();
            assert_eq!(rows(&run.gpu_file()).unwrap().len(), expected.len(), "every {every} batches: {expected:?}");
        }
    }

    /// Messages after 20 steps at this utilisation.
    fn told(percents: &[f64]) -> Vec<GpuNotice> {
        let (_folder, run) = folder();
        let mut watch = GpuWatch::new(&run, FakeSampler::busy(percents), 1, 1).unwrap();
        let mut news = Vec::new();
        for epoch in 0..2 {
            for at in 1..=20 {
                news.extend(watch.see(&step(20 * epoch + at), Duration::from_secs(20 * epoch + at)));
            }
            // The thread has looked as often as it was asked, or has ended.
            while rows(&run.gpu_file()).unwrap().len() < percents.len().min(20 * (epoch as usize + 1)) {
                std::thread::yield_now();
            }
            while percents.len() < 40 && epoch == 1 && watch.recorder.is_looking() {
                std::thread::yield_now();
            }
            news.extend(watch.see(&fixtures::epoch(epoch, 20 * epoch + 20), Duration::from_secs(20 * epoch + 20)));
        }
        watch.finish().unwrap();
        news
    }

    #[test]
    fn a_gpu_that_has_too_little_to_do_is_told_once_with_the_cause() {
        let news = told(&[40.0; 40]);
        let [GpuNotice::Idle(idle)] = &news[..] else { panic!("{news:?}") };
        assert_eq!((idle.step, idle.busy_share, idle.cause), (20, 0.4, Cause::Data));
        assert!((idle.cause_share - 0.6).abs() < 1e-9, "{idle:?}");
        let sentence = news[0].sentence();
        assert!(
            sentence.starts_with(
                "gpu: busy for 40 % of the time, and 70 % are to be had; 60 % of the time is waiting for data; "
            ),
            "{sentence}"
        );
        assert_eq!(news[0].metric().unwrap()["cause"], "data");
        assert_eq!(told(&[71.0; 40]), []);
    }

    #[test]
    fn a_gpu_that_goes_is_told_once() {
        assert_eq!(told(&[90.0; 30]), [GpuNotice::Gone("GPU is lost".to_owned())]);
    }
}
