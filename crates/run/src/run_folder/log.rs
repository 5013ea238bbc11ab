//! metrics.jsonl: the events of a run, line by line.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::PathBuf;
use std::time::Instant;

use megabatch_atomic_file as atomic_file;
use megabatch_trainer::StepEvent;
use serde::Serialize;
use serde_json::{Value, json};

use super::RunFolder;
use crate::error::{Context as _, Error, Result};

/// metrics.jsonl, one JSON object a line, in the order of the steps.
pub(crate) struct MetricsLog {
    path: PathBuf,
    file: File,
    /// When the line before was written.
    since: Instant,
    /// The line being written. Its memory is reused.
    line: Vec<u8>,
    /// False once a line could not be written: it may be cut short.
    is_whole: bool,
}

/// A step as its line has it.
#[derive(Serialize)]
#[serde(tag = "event", rename = "step")]
struct StepLine<'a> {
    #[serde(flatten)]
    step: &'a StepEvent,
}

/// Progress of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ResumePoint {
    /// Optimizer steps done.
    pub(crate) step: u64,
    /// Number of rollbacks.
    pub(crate) rollbacks: u32,
}

impl ResumePoint {
    /// True if the event of a line lies before this point. The end of a session does not: another
    /// one goes on.
    fn has(self, metric: &Value) -> bool {
        let number = |key: &str| metric[key].as_u64();
        match metric["event"].as_str() {
            Some(END) => false,
            // One that is counted stays, although a later one may have led further back; one that
            // is not is done again.
            Some("rollback") => number("rollbacks").is_some_and(|rollbacks| rollbacks <= u64::from(self.rollbacks)),
            _ => number("step").is_some_and(|step| step <= self.step),
        }
    }
}

/// Name of the event of a session's last line.
const END: &str = "end";

/// End of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SessionEnd {
    /// The run is trained and evaluated.
    Finished,
    /// The user ended it.
    Stopped,
    /// An error ended it.
    Failed,
}

impl SessionEnd {
    const ALL: [SessionEnd; 3] = [SessionEnd::Finished, SessionEnd::Stopped, SessionEnd::Failed];

    /// Its name in the log and in answers.
    pub(crate) fn name(self) -> &'static str {
        match self {
            SessionEnd::Finished => "finished",
            SessionEnd::Stopped => "stopped",
            SessionEnd::Failed => "failed",
        }
    }

    /// Its line after `step` steps, with the first line of the `error` that ended the session.
    pub(crate) fn metric(self, step: u64, error: Option<&Error>) -> Value {
        let mut metric = json!({ "event": END, "step": step, "how": self.name() });
        if let Some(error) = error {
            metric["error"] = error.to_string().lines().next().into();
        }
        metric
    }

    /// The end that a line of the log has; `None` for lines of other events.
    pub(crate) fn from_metric(metric: &Value) -> Option<Self> {
        SessionEnd::ALL.into_iter().find(|end| metric["event"] == END && metric["how"] == end.name())
    }
}

/// Name of the event of a checkpoint that was saved.
pub(super) const CHECKPOINT: &str = "checkpoint";

/// Events whose duration is the time since the line before, and its key.
const TIMED_EVENTS: [(&str, &str); 2] = [("validation", "validation_s"), (CHECKPOINT, "save_s")];

impl MetricsLog {
    /// Opens the log of `run` at `resume_point`. Later lines are dropped: a resumed run writes them
    /// again.
    pub(crate) fn open_at(run: &RunFolder, resume_point: ResumePoint) -> Result<Self> {
        let kept: String = run
            .metrics()?
            .iter()
            .filter(|metric| resume_point.has(metric))
            .map(|metric| format!("{metric}\n"))
            .collect();
        atomic_file::write(&run.metrics_file(), kept.as_bytes())?;
        MetricsLog::open_at_end(run)
    }

    /// Opens the log of `run` after its last line.
    pub(crate) fn open_at_end(run: &RunFolder) -> Result<Self> {
        let file = OpenOptions::new().append(true).open(run.metrics_file())?;
        Ok(MetricsLog { path: run.metrics_file(), file, since: Instant::now(), line: Vec::new(), is_whole: true })
    }

    /// Appends one line as soon as its event is over. Validations and checkpoints get the time
    /// since the line before.
    pub(crate) fn push(&mut self, metric: &Value) -> Result<()> {
        let seconds = self.since.elapsed().as_secs_f64();
        let mut line = metric.clone();
        if let Some((_, key)) = TIMED_EVENTS.iter().find(|(event, _)| metric["event"] == *event) {
            line[key] = seconds.into();
        }
        self.write(&line)
    }

    /// Appends the line of a step, without a JSON value in between: there are many.
    pub(crate) fn push_step(&mut self, step: &StepEvent) -> Result<()> {
        self.write(&StepLine { step })
    }

    /// Appends that `error` ended the session after `step` steps, if the log can be written.
    pub(crate) fn push_failure(&mut self, step: u64, error: &Error) {
        if self.is_whole {
            // The error that ended the session is the one to report.
            let _ = self.push(&SessionEnd::Failed.metric(step, Some(error)));
        }
    }

    fn write(&mut self, line: &impl Serialize) -> Result<()> {
        self.line.clear();
        serde_json::to_writer(&mut self.line, line)?;
        self.line.push(b'\n');
        // In one call, so that a line is cut short only where the system itself cuts it.
        let write = self.file.write_all(&self.line);
        self.is_whole &= write.is_ok();
        write.with_context(|| format!("{}: cannot write", self.path.display()))?;
        self.since = Instant::now();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_resumed_log_has_each_step_once() {
        let folder = tempfile::tempdir().unwrap();
        let run = RunFolder::new(folder.path()).unwrap();
        let mut log = MetricsLog::open_at(&run, ResumePoint::default()).unwrap();
        (1..=4).for_each(|step| log.push(&json!({ "step": step })).unwrap());
        write!(log.file, "{{\"step\": 5, \"lo").unwrap();
        let mut log = MetricsLog::open_at(&run, ResumePoint { step: 2, rollbacks: 0 }).unwrap();
        log.push(&json!({ "step": 3 })).unwrap();
        let steps: Vec<u64> = run.metrics().unwrap().iter().map(|metric| metric["step"].as_u64().unwrap()).collect();
        assert_eq!(steps, [1, 2, 3]);
    }

    #[test]
    fn the_end_of_a_session_is_told_until_another_goes_on() {
        let folder = tempfile::tempdir().unwrap();
        let run = RunFolder::new(folder.path()).unwrap();
        let mut log = MetricsLog::open_at(&run, ResumePoint::default()).unwrap();
        log.push(&json!({ "event": "step", "step": 1 })).unwrap();
        let failed = Error::data("the first line\nand more");
        for (end, error, line) in [
            (SessionEnd::Finished, None, json!({ "event": "end", "step": 1, "how": "finished" })),
            (SessionEnd::Stopped, None, json!({ "event": "end", "step": 1, "how": "stopped" })),
            (
                SessionEnd::Failed,
                Some(&failed),
                json!({ "event": "end", "step": 1, "how": "failed", "error": "the first line" }),
            ),
        ] {
            MetricsLog::open_at_end(&run).unwrap().push(&end.metric(1, error)).unwrap();
            assert_eq!(SessionEnd::from_metric(&line), Some(end));
            assert_eq!(run.metrics().unwrap()[1..], [line]);
            MetricsLog::open_at(&run, ResumePoint { step: 1, rollbacks: 0 }).unwrap();
            assert_eq!(run.metrics().unwrap().len(), 1);
        }
    }

    #[test]
    fn validations_and_checkpoints_tell_how_long_they_took() {
        let folder = tempfile::tempdir().unwrap();
        let run = RunFolder::new(folder.path()).unwrap();
        let mut log = MetricsLog::open_at(&run, ResumePoint::default()).unwrap();
        for event in ["step", "validation", "checkpoint"] {
            log.since -= std::time::Duration::from_secs(3);
            log.push(&json!({ "event": event, "step": 1 })).unwrap();
        }
        let lines = run.metrics().unwrap();
        assert_eq!(lines[0], json!({ "event": "step", "step": 1 }));
        for (line, key) in [(&lines[1], "validation_s"), (&lines[2], "save_s")] {
            let seconds = line[key].as_f64().unwrap();
            assert!((3.0..4.0).contains(&seconds), "{line}");
        }
    }

    #[test]
    fn a_log_that_goes_back_has_one_course_of_steps() {
        let folder = tempfile::tempdir().unwrap();
        let run = RunFolder::new(folder.path()).unwrap();
        let rollback = |rollbacks: u32| json!({ "event": "rollback", "step": 2, "rollbacks": rollbacks });
        let mut log = MetricsLog::open_at(&run, ResumePoint::default()).unwrap();
        (1..=3).for_each(|step| log.push(&json!({ "step": step })).unwrap());
        let at = |rollbacks| ResumePoint { step: 2, rollbacks };
        for rollbacks in [1, 2] {
            log = MetricsLog::open_at(&run, at(rollbacks)).unwrap();
            log.push(&rollback(rollbacks)).unwrap();
            log.push(&json!({ "step": 3 })).unwrap();
        }
        let kept = |resume_point| {
            MetricsLog::open_at(&run, resume_point).unwrap();
            run.metrics().unwrap()[2..].to_vec()
        };
        assert_eq!(kept(ResumePoint { step: 3, rollbacks: 2 }), [rollback(1), rollback(2), json!({ "step": 3 })]);
        // Killed before the second was saved: it is done, and told, again.
        assert_eq!(kept(at(1)), [rollback(1)]);
        assert_eq!(kept(at(0)), [] as [Value; 0]);
    }

    /// A run that "diverged again after rollback 10" had told of five.
    #[test]
    fn a_rollback_leaves_those_before_it_that_led_less_far_back() {
        let folder = tempfile::tempdir().unwrap();
        let run = RunFolder::new(folder.path()).unwrap();
        let rollback = |step: u64, rollbacks: u32| json!({ "event": "rollback", "step": step, "rollbacks": rollbacks });
        let mut log = MetricsLog::open_at(&run, ResumePoint::default()).unwrap();
        (1..=3).for_each(|step| log.push(&json!({ "step": step })).unwrap());
        for (step, rollbacks) in [(2, 1), (1, 2)] {
            log = MetricsLog::open_at(&run, ResumePoint { step, rollbacks }).unwrap();
            log.push(&rollback(step, rollbacks)).unwrap();
        }
        assert_eq!(run.metrics().unwrap(), [json!({ "step": 1 }), rollback(2, 1), rollback(1, 2)]);
    }
}
