//! A run under way: metrics.jsonl, recordings, the progress display, memory, and signals that end
//! it.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use megabatch_trainer::{Best, EarlyStopping, Event, RollbackEvent, ValidatingEvent, Waits};
use serde_json::Value;

use super::data_stalls::{SampleStorage, WaitWatch};
use super::gpu::GpuWatch;
use super::memory::MemoryWatch;
use super::recordings::Recordings;
use super::scaling::ScaleWatch;
use super::time_breakdown::LossWatch;
use crate::error::{Error, Result, with_keys};
use crate::host::{Host, Progress, Work};
use crate::report::Peaks;
use crate::run_folder::{MetricsLog, ResumePoint, RunFolder};
use crate::setup::TrainingSetup;
use crate::setup::settings::loss_name;
use crate::text::number::significant;
use crate::text::plural;
use crate::unit_names::{TargetKind, UnitNames};
use crate::usage::cpu_seconds;

/// Time limit of a step or a validation after a signal, before the process ends without a
/// checkpoint.
pub(super) const STEP_PATIENCE: Duration = Duration::from_secs(60);

/// Waiting of a session's steps for data.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Waited {
    pub(crate) seconds: f64,
    /// By cause, where data pass through memory.
    pub(crate) causes: Option<Waits>,
}

/// Measurements of a session.
pub(crate) struct Watched {
    /// Memory peaks of the epochs that were followed.
    pub(crate) peaks: Peaks,
    pub(crate) waited: Waited,
    /// Time of all validations.
    pub(crate) validation_s: f64,
}

/// The observer of a run.
pub(crate) struct Watch<'a> {
    folder: &'a RunFolder,
    log: MetricsLog,
    /// Name of the device that computes.
    device: String,
    /// Optimizer steps done.
    step: u64,
    recordings: Recordings,
    progress: Box<dyn Progress>,
    /// Display of the validation under way.
    validating: Option<Box<dyn Progress>>,
    /// Units of a validation, in the plural.
    unit: String,
    /// True if targets are moves of prices, which have a direction.
    has_directions: bool,
    /// The last validation that was the best so far: its step, and its epoch, counted from 1.
    best_seen: Option<(u64, u64)>,
    memory: MemoryWatch<'a>,
    waiting: WaitWatch,
    losses: LossWatch,
    /// Causes of lost time that the fold before has told.
    told_causes: Vec<String>,
    loss_name: &'static str,
    gpu: Option<GpuWatch>,
    /// When the session began.
    start: Instant,
    /// When the event before was seen.
    since: Instant,
    validation_s: f64,
    scaling: ScaleWatch,
    waited: Waited,
    /// True once a step without known targets was reported.
    told_of_unlabelled: bool,
    host: &'a Host<'a>,
    /// The first failure to write the log or a recording; it ends the run.
    failure: Option<Error>,
}

impl<'a> Watch<'a> {
    /// Watches the run in `folder` from `resume_point` on, out of `steps`.
    pub(crate) fn new(
        folder: &'a RunFolder,
        setup: &'a TrainingSetup,
        resume_point: ResumePoint,
        steps: u64,
        host: &'a Host<'a>,
    ) -> Result<Self> {
        host.cancel.watch(STEP_PATIENCE)?;
        let log = MetricsLog::open_at(folder, resume_point)?;
        let label = folder.fold_number().map_or_else(|| "train".to_owned(), |number| format!("fold {number} train"));
        let mut progress = host.observer.begin(Work { label: &label, total: steps, unit: "steps" });
        progress.begin_at(resume_point.step);
        let gpu = GpuWatch::begin(folder, setup, progress.as_ref())?;
        let unit_names = UnitNames::for_data(&setup.data);
        Ok(Watch {
            folder,
            log,
            device: setup.computes_on().to_string(),
            step: resume_point.step,
            recordings: Recordings::begin(folder, &setup.config, resume_point.step)?,
            progress,
            validating: None,
            unit: format!("{}s", unit_names.unit),
            has_directions: unit_names.targets == TargetKind::Moves,
            best_seen: None,
            memory: MemoryWatch::new(setup, resume_point.step),
            waiting: WaitWatch::new(SampleStorage::new(&setup.data)),
            losses: LossWatch::new(setup.training.threads, cpu_seconds),
            told_causes: lost_time_causes(folder.fold_before().as_ref())?,
            loss_name: loss_name(&setup.training),
            gpu,
            start: Instant::now(),
            since: Instant::now(),
            validation_s: 0.0,
            scaling: ScaleWatch::default(),
            waited: Waited::default(),
            told_of_unlabelled: false,
            host,
            failure: None,
        })
    }

    pub(crate) fn see(&mut self, event: &Event<'_>) -> ControlFlow<()> {
        if matches!(event, Event::Waiting) {
            return self.go_on();
        }
        if let Event::Validating(validating) = event {
            self.host.observer.event(event);
            return self.follow_validation(*validating);
        }
        let is_validation = self.validating.take().is_some() || matches!(event, Event::Validation(_));
        if let Event::Rollback(RollbackEvent { step, rollbacks, .. }) = *event {
            self.go_back(ResumePoint { step, rollbacks });
            self.step = step;
        }
        match event {
            Event::Step(step) if self.failure.is_none() => self.failure = self.log.push_step(step).err(),
            _ => {
                let mut metric = serde_json::to_value(event).expect("events serialize without error");
                if matches!(event, Event::Checkpoint { .. }) {
                    metric["device"] = self.device.as_str().into();
                }
                let directions = metric.pointer_mut("/metrics/direction_accuracy").and_then(Value::as_array_mut);
                if let Some(directions) = directions.filter(|_| !self.has_directions) {
                    directions.fill(Value::Null);
                }
                self.write(&metric);
            }
        }
        if self.failure.is_none() {
            self.failure = self.recordings.see(event).err();
        }
        self.host.observer.event(event);
        self.show(event);
        let passed_s = std::mem::replace(&mut self.since, Instant::now()).elapsed().as_secs_f64();
        if is_validation {
            self.validation_s += passed_s;
        }
        if let Event::Step(step) = event {
            self.step = step.step;
            self.waited.seconds += step.data_wait_s;
            step.data_waits.iter().for_each(|waits| *self.waited.causes.get_or_insert_default() += *waits);
        }
        for (metric, sentence) in self.warnings(event) {
            metric.iter().for_each(|metric| self.write(metric));
            sentence.iter().for_each(|sentence| self.progress.note(&format!("warning: {sentence}")));
        }
        self.go_on()
    }

    fn follow_validation(&mut self, ValidatingEvent { done, samples, .. }: ValidatingEvent) -> ControlFlow<()> {
        let work = Work { label: "validate", total: samples as u64, unit: &self.unit };
        let progress = self.validating.get_or_insert_with(|| self.host.observer.begin(work));
        progress.at(done as u64, "");
        self.go_on()
    }

    /// Breaks where the run is to end.
    fn go_on(&self) -> ControlFlow<()> {
        if self.failure.is_some() || self.host.cancel.is_requested() {
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    }

    /// Warnings after `event`: their lines in the log, and sentences for what is not told yet.
    fn warnings(&mut self, event: &Event<'_>) -> Vec<(Option<Value>, Option<String>)> {
        let now = self.start.elapsed();
        let warnings = [
            self.waiting.see(event).map(|long| (long.metric(), long.sentence())),
            self.scaling.see(event).map(|collapse| (collapse.metric(), collapse.sentence())),
            self.memory.see(event).map(|leak| (leak.metric(), leak.sentence())),
        ];
        let losses = self.losses.see(event, now).into_iter().map(|loss| {
            let is_told = self.told_causes.iter().any(|cause| cause == loss.cause.name());
            (Some(loss.metric()), (!is_told).then(|| loss.sentence()))
        });
        let losses: Vec<_> = losses.collect();
        let gpu = self.gpu.as_mut().and_then(|gpu| gpu.see(event, now));
        let gpu = gpu.map(|news| (news.metric(), Some(news.sentence())));
        let warnings = warnings.into_iter().flatten().map(|(metric, sentence)| (Some(metric), Some(sentence)));
        warnings.chain(losses).chain(gpu).collect()
    }

    /// Drops log lines after the point to which the run has gone back.
    fn go_back(&mut self, point: ResumePoint) {
        match MetricsLog::open_at(self.folder, point) {
            Ok(log) => self.log = log,
            Err(error) => self.failure = self.failure.take().or(Some(error)),
        }
    }

    /// A line cut short is the log's last one: what comes after it is not written.
    fn write(&mut self, metric: &Value) {
        if self.failure.is_none() {
            self.failure = self.log.push(metric).err();
        }
    }

    fn show(&mut self, event: &Event<'_>) {
        match event {
            Event::Step(step) => {
                let message = format!("loss {:.5}  {:.0} samples/s", step.loss, step.samples_per_s);
                self.progress.at(step.step, &message);
                if step.loss_terms == Some(0) && !std::mem::replace(&mut self.told_of_unlabelled, true) {
                    self.progress.note(&format!(
                        "warning: step {}: none of its targets is known, so that it changes no weight; metrics.jsonl has loss_terms 0 for \
                         such steps",
                        step.step
                    ));
                }
            }
            Event::Validation(validation) => {
                let best = if validation.best { ", the best so far" } else { "" };
                let (epoch, step) = (validation.epoch + 1, validation.step);
                if validation.best {
                    self.best_seen = Some((step, epoch));
                }
                self.progress.note(&format!(
                    "epoch {epoch}, step {step}: validation {} {}{best}",
                    self.loss_name,
                    significant(validation.loss, 4)
                ));
            }
            Event::Rollback(rollback) => {
                let RollbackEvent { step, cause, rollbacks, max_rollbacks, rate_factor, .. } = rollback;
                self.progress.note(&format!(
                    "{cause}; back to step {step}, and on with {rate_factor} of the learning rate (rollback {rollbacks} of {max_rollbacks})"
                ));
            }
            Event::Shortage(cut) => self.progress.note(&format!("warning: {}", self.memory.went_on(self.folder, cut))),
            Event::Reformed { step, world, world_before, cause, .. } => self.progress.note(&format!(
                "warning: {cause}; {world} of {world_before} processes go on from step {step}, to the same weights"
            )),
            Event::Note { text, .. } => self.progress.note(&format!("note: {}", with_keys(text))),
            Event::Checkpoint { .. } | Event::Epoch(_) => {}
            other => self.progress.note(&serde_json::to_string(other).unwrap_or_default()),
        }
    }

    /// Says that the run ended by `rule`, with `best`.
    pub(crate) fn stopped_early(&self, rule: EarlyStopping, best: Option<Best>) {
        let best = best_place(best, self.best_seen);
        let validations = plural(rule.patience as usize, "validation");
        self.progress
            .note(&format!("stopped early: no better validation {} for {validations} (best: {best})", self.loss_name));
    }

    /// Writes that the session failed.
    pub(crate) fn fail(&mut self, error: &Error) {
        self.log.push_failure(self.step, error);
    }

    /// The session's measurements. An error is written as the session's end.
    pub(crate) fn finish(self) -> Result<Watched> {
        let Watch { mut log, step, waited, validation_s, .. } = self;
        let answer = Watched { peaks: self.memory.into_peaks(), waited, validation_s };
        let watched = self.gpu.map_or(Ok(()), GpuWatch::finish);
        let recorded = self.recordings.finish().and(watched);
        let result = self.failure.map_or(recorded, Err);
        if let Err(error) = &result {
            log.push_failure(step, error);
        }
        result.map(|()| answer)
    }
}

/// Causes of lost time in the log of a fold.
fn lost_time_causes(fold: Option<&RunFolder>) -> Result<Vec<String>> {
    let metrics = fold.map_or(Ok(Vec::new()), RunFolder::metrics)?;
    let losses = metrics.iter().filter(|metric| metric["event"] == "lost_time");
    Ok(losses.filter_map(|metric| metric["cause"].as_str()).map(str::to_owned).collect())
}

/// Place of the `best` validation: its epoch where it was `seen`, at a step and in an epoch. A run
/// that went back to a checkpoint has a better one no longer.
fn best_place(best: Option<Best>, seen: Option<(u64, u64)>) -> String {
    match (best, seen) {
        (None, _) => "none".to_owned(),
        (Some(best), Some((step, epoch))) if step == best.step => format!("epoch {epoch}"),
        (Some(best), _) => format!("step {}", best.step),
    }
}

#[cfg(test)]
mod tests {
    use megabatch_trainer::StepEvent;
    use serde_json::json;

    use super::super::fixtures;
    use super::*;

    /// A walk-forward run warned of idle threads once a fold.
    #[test]
    fn a_fold_knows_what_the_fold_before_has_told() {
        let folder = tempfile::tempdir().unwrap();
        let run = RunFolder::new(folder.path()).unwrap();
        let [first, second, third] = [0, 1, 2].map(|fold| run.fold(fold));
        std::fs::create_dir(first.root()).unwrap();
        let lines = "{\"event\":\"step\",\"step\":1}\n{\"event\":\"lost_time\",\"step\":1,\"cause\":\"threads\"}\n";
        std::fs::write(first.metrics_file(), lines).unwrap();
        let told = |fold: &RunFolder| lost_time_causes(fold.fold_before().as_ref()).unwrap();
        assert_eq!(told(&second), ["threads"]);
        assert!([&run, &first, &third].into_iter().all(|fold| told(fold).is_empty()));
    }

    /// The line of a run that went back named the epoch of a validation that counts no longer.
    #[test]
    fn the_best_validation_is_that_of_the_run() {
        let best = |step| Some(Best { step, loss: 0.5 });
        assert_eq!(best_place(best(8), Some((8, 2))), "epoch 2");
        assert_eq!(best_place(best(4), Some((8, 2))), "step 4");
        assert_eq!((best_place(best(4), None), best_place(None, None)), ("step 4".to_owned(), "none".to_owned()));
    }

    #[test]
    fn a_step_is_written_as_its_event_is() {
        let folder = tempfile::tempdir().unwrap();
        let run = RunFolder::new(folder.path()).unwrap();
        let mut log = MetricsLog::open_at(&run, ResumePoint::default()).unwrap();
        let step = StepEvent { loss: f64::NAN, loss_scale: Some(0.5), ..fixtures::step(3) };
        log.push_step(&step).unwrap();
        log.push(&serde_json::to_value(Event::Step(step)).unwrap()).unwrap();
        let lines = run.metrics().unwrap();
        assert_eq!((lines.len(), &lines[0]), (2, &lines[1]));
        assert_eq!((&lines[0]["event"], &lines[0]["loss"]), (&json!("step"), &Value::Null));
    }
}
