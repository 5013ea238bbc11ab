//! trace.json: a timeline of the steps of a session and their phases, for Chrome's about:tracing
//! and Perfetto ("Trace Event Format", its array form, whose end may be missing).

use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use megabatch_trainer::{Event, StepEvent};
use serde_json::{Value, json};

use crate::error::{Context as _, Result};

/// A trace under way.
pub(super) struct Timeline {
    path: PathBuf,
    file: BufWriter<File>,
    /// Steps that it takes yet.
    steps_left: u64,
    /// When what was told last was over.
    since: Duration,
}

impl Timeline {
    /// A trace at `path` of up to `steps_max` steps of the run called `name`. It replaces that of
    /// an earlier session.
    pub(super) fn create(path: &Path, name: &str, steps_max: u64) -> Result<Self> {
        let file = File::create(path).with_context(|| format!("{}: cannot be written", path.display()))?;
        let (path, file) = (path.to_owned(), BufWriter::new(file));
        let mut timeline = Timeline { path, file, steps_left: steps_max, since: Duration::ZERO };
        let head = json!({ "name": "process_name", "ph": "M", "pid": 1, "args": { "name": name } });
        let written = write!(timeline.file, "[\n{head}");
        timeline.told(written)?;
        Ok(timeline)
    }

    /// Records `event`, which came `now` after the session began.
    pub(super) fn see(&mut self, event: &Event<'_>, now: Duration) -> Result<()> {
        let before = std::mem::replace(&mut self.since, now);
        if self.steps_left == 0 {
            return Ok(());
        }
        let written = match event {
            Event::Step(step) => self.step(step, before, now),
            Event::Validation(validation) => self.span("validation", before, now, &json!({ "loss": validation.loss })),
            Event::Checkpoint { step, .. } => self.span("save", before, now, &json!({ "step": step })),
            Event::Rollback(rollback) => self.instant("rollback", now, &json!({ "cause": rollback.cause })),
            Event::Shortage(shortage) => self.instant("shortage of memory", now, &json!({ "cause": shortage.cause })),
            _ => Ok(()),
        };
        self.told(written)
    }

    /// Ends the array and writes what is in memory still.
    pub(super) fn finish(mut self) -> Result<()> {
        let written = self.file.write_all(b"\n]\n").and_then(|()| self.file.flush());
        self.told(written)
    }

    /// Writes a step, which ended `now`, with its phases: waiting, forward and backward from its
    /// beginning on, the optimizer at its end. A phase is the sum over the batches of the step.
    fn step(&mut self, step: &StepEvent, before: Duration, now: Duration) -> io::Result<()> {
        self.steps_left -= 1;
        let whole = seconds(step.samples as f64 / step.samples_per_s);
        let begin = now.saturating_sub(whole).max(before);
        let mut args = json!({ "step": step.step, "epoch": step.epoch, "samples": step.samples, "loss": step.loss });
        if let Some(profile) = &step.profile {
            args["profile"] = serde_json::to_value(profile).unwrap_or_default();
        }
        self.span("step", begin, now, &args)?;
        let optimizer = now.saturating_sub(seconds(step.optimizer_s)).max(begin);
        let mut phase_begin = begin;
        for (name, duration_s) in
            [("data wait", step.data_wait_s), ("forward", step.forward_s), ("backward", step.backward_s)]
        {
            let end = (phase_begin + seconds(duration_s)).min(optimizer);
            self.span(name, phase_begin, end, &Value::Null)?;
            phase_begin = end;
        }
        self.span("optimizer", optimizer, now, &Value::Null)?;
        let (ts, allocated) = (Microseconds(now), step.allocated_bytes);
        write!(
            self.file,
            ",\n{{\"name\":\"allocated\",\"ph\":\"C\",\"pid\":1,\"ts\":{ts},\"args\":{{\"bytes\":{allocated}}}}}"
        )
    }

    /// A span of time; times count from the beginning of the session.
    fn span(&mut self, name: &str, begin: Duration, end: Duration, args: &Value) -> io::Result<()> {
        let (ts, dur) = (Microseconds(begin), Microseconds(end.saturating_sub(begin)));
        write!(self.file, ",\n{{\"name\":\"{name}\",\"ph\":\"X\",\"pid\":1,\"tid\":1,\"ts\":{ts},\"dur\":{dur}")?;
        if args.is_null() { self.file.write_all(b"}") } else { write!(self.file, ",\"args\":{args}}}") }
    }

    fn instant(&mut self, name: &str, time: Duration, args: &Value) -> io::Result<()> {
        let ts = Microseconds(time);
        write!(
            self.file,
            ",\n{{\"name\":\"{name}\",\"ph\":\"i\",\"s\":\"g\",\"pid\":1,\"tid\":1,\"ts\":{ts},\"args\":{args}}}"
        )
    }

    fn told(&self, result: io::Result<()>) -> Result<()> {
        result.with_context(|| format!("{}: cannot write", self.path.display()))
    }
}

/// A time in the format's unit, to the nanosecond: rounded, a phase could end after its step.
struct Microseconds(Duration);

impl std::fmt::Display for Microseconds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{:03}", self.0.as_micros(), self.0.subsec_nanos() % 1000)
    }
}

/// A measured time; zero where it is not finite or negative.
fn seconds(duration_s: f64) -> Duration {
    Duration::try_from_secs_f64(duration_s).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::fixtures;
    use super::*;

    /// The events of a trace whose session told of `events` at these times.
    fn trace(events: &[(Event<'_>, f64)], steps_max: u64) -> Vec<Value> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trace.json");
        let mut timeline = Timeline::create(&path, "a\"b", steps_max).unwrap();
        events.iter().for_each(|(event, at_s)| timeline.see(event, seconds(*at_s)).unwrap());
        timeline.finish().unwrap();
        serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap()
    }

    /// Beginning and end, in microseconds, of what is called `name`.
    fn spans(trace: &[Value], name: &str) -> Vec<(f64, f64)> {
        let found = trace.iter().filter(|event| event["name"] == name);
        let span = |event: &Value| {
            let ts = event["ts"].as_f64().unwrap();
            (ts, ts + event["dur"].as_f64().unwrap())
        };
        found.map(span).collect()
    }

    #[test]
    fn phases_lie_within_their_step_and_steps_do_not_overlap() {
        let step =
            StepEvent { data_wait_s: 0.2, forward_s: 0.3, backward_s: 0.1, optimizer_s: 0.05, ..fixtures::step(1) };
        let path = Path::new("x");
        let events = [
            (Event::Step(step.clone()), 1.5),
            (Event::Checkpoint { step: 1, path }, 1.75),
            // A step that says that it took longer than there was time.
            (Event::Step(StepEvent { step: 2, data_wait_s: 9.0, ..step }), 2.5),
        ];
        let trace = trace(&events, 10);
        assert_eq!((&trace[0]["args"]["name"], trace.len()), (&json!("a\"b"), 1 + 2 * 6 + 1));
        for (name, expected) in [
            ("step", [(0.5, 1.5), (1.75, 2.5)]),
            ("data wait", [(0.5, 0.7), (1.75, 2.45)]),
            ("forward", [(0.7, 1.0), (2.45, 2.45)]),
            ("backward", [(1.0, 1.1), (2.45, 2.45)]),
            ("optimizer", [(1.45, 1.5), (2.45, 2.5)]),
        ] {
            for (found, expected) in spans(&trace, name).into_iter().zip(expected) {
                let near = |a: f64, b: f64| (a - 1e6 * b).abs() < 0.01;
                assert!(near(found.0, expected.0) && near(found.1, expected.1), "{name}: {found:?}");
            }
        }
        assert_eq!(spans(&trace, "save"), [(1.5e6, 1.75e6)]);
        let counter = trace.iter().find(|event| event["ph"] == "C").unwrap();
        assert_eq!((&counter["ts"], &counter["args"]["bytes"]), (&json!(1.5e6), &json!(0)));
    }

    #[test]
    fn no_more_steps_are_traced_than_were_asked_for() {
        let events: Vec<_> = (1..=9).map(|at| (Event::Step(fixtures::step(at)), at as f64)).collect();
        assert_eq!(spans(&trace(&events, 3), "step").len(), 3);
        assert_eq!(trace(&[], 3).len(), 1);
    }

    #[test]
    fn a_loss_that_is_no_number_leaves_the_trace_readable() {
        let step = StepEvent { loss: f64::NAN, samples_per_s: 0.0, ..fixtures::step(1) };
        let trace = trace(&[(Event::Step(step), 1.0)], 3);
        assert_eq!(trace[1]["args"]["loss"], Value::Null);
    }
}
