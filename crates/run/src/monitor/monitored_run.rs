//! A run that is watched through the files in its folder.

use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime};

use serde_json::{Map, Value, json};

use super::run_status::{READINGS, RunStatus};
use crate::adapters::fold_plan::FoldPlan;
use crate::error::{Context as _, Result};
use crate::run_folder::{LogFollower, LogUpdate, RunFolder, SessionEnd};
use crate::text::number::{grouped, significant};

/// Age of the last line from which on the folder's lock is asked for: a run that writes is left
/// alone.
const PAUSE: Duration = Duration::from_secs(5);

/// A run and its status.
pub struct MonitoredRun {
    root: RunFolder,
    /// Number of folds of a run of several.
    folds: Option<usize>,
    /// The run itself, or its last fold.
    run: RunFolder,
    /// Number of the fold, from 1; 0 for the run itself.
    fold: usize,
    name: String,
    follower: LogFollower,
    /// Status by the last refresh.
    pub status: RunStatus,
}

impl MonitoredRun {
    /// The run in the folder `root`.
    ///
    /// # Errors
    /// A usage failure where there is none.
    pub fn open(root: &Path) -> Result<Self> {
        let root = RunFolder::open(root)?;
        let plan = root.config(&[]).and_then(|config| FoldPlan::from_config(&config));
        let run = root.clone();
        let mut monitored = MonitoredRun {
            name: run.root().display().to_string(),
            follower: LogFollower::new(run.metrics_file()),
            root,
            folds: plan.ok().flatten().map(|plan| plan.folds),
            run,
            fold: 0,
            status: RunStatus::default(),
        };
        monitored.refresh()?;
        Ok(monitored)
    }

    /// The folder that is shown.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Reads new lines and files of the run.
    pub fn refresh(&mut self) -> Result<()> {
        self.find_fold();
        let log = self.run.metrics_file();
        let news = self.follower.look().with_context(|| format!("{}: cannot be read", log.display()))?;
        let lines = match news {
            LogUpdate::More(lines) => lines,
            LogUpdate::Anew(lines) => {
                self.status = RunStatus::default();
                lines
            }
        };
        if self.status.available_bytes.is_none() {
            let plan = self.run.saved_plan();
            self.status.available_bytes = plan["memory"]["available_bytes"].as_f64();
            self.status.steps = plan["steps"].as_f64();
        }
        lines.iter().for_each(|line| self.status.see(line));
        self.see_files();
        let gpu = self.run.gpu_file();
        let last = crate::gpu::last(&gpu).with_context(|| format!("{}: cannot be read", gpu.display()))?;
        self.status.gpu = last.map(|row| row.sample);
        Ok(())
    }

    /// Goes on to the last fold that has begun.
    fn find_fold(&mut self) {
        let last = (1_usize..).zip(self.root.begun_folds()).last();
        let Some((number, last)) = last.filter(|(number, _)| *number != self.fold) else { return };
        self.fold = number;
        self.name = last.root().display().to_string();
        self.follower = LogFollower::new(last.metrics_file());
        self.run = last;
        self.status = RunStatus::default();
    }

    /// Status by the end of the log, and by the times of files where it has none: a run that was
    /// evaluated and then resumed has a log younger than its evaluation.
    fn see_files(&mut self) {
        let written = self.follower.written;
        let evaluated = fs::metadata(self.run.evaluation_file()).and_then(|found| found.modified()).ok();
        self.status.fold = self.folds.filter(|_| self.fold > 0).map(|folds| (self.fold, folds));
        let is_last = self.status.fold.is_none_or(|(number, folds)| number == folds);
        let is_finished = match self.status.end {
            Some(end) => end == SessionEnd::Finished,
            None => evaluated >= written,
        };
        self.status.has_ended = is_last && evaluated.is_some() && is_finished;
        self.status.silence = written.and_then(|written| SystemTime::now().duration_since(written).ok());
        let is_silent = self.status.silence.is_some_and(|silence| silence > PAUSE);
        let has_no_end = self.status.end.is_none() && !self.status.has_ended;
        self.status.was_killed = has_no_end && is_silent && self.root.is_free();
    }

    /// Line left on the terminal after the screen closes.
    pub fn sentence(&self) -> String {
        let Some(step) = self.status.get("step") else { return format!("{}: no step yet", self.name) };
        let steps = self.status.get("steps").map_or_else(String::new, |steps| format!(" of {}", grouped(steps as u64)));
        let loss = self.status.get("loss").map_or("-".to_owned(), |loss| significant(loss, 5));
        let left = self.status.remaining();
        format!("{}: step {}{steps}, loss {loss}, {left}", self.name, grouped(step as u64))
    }

    /// Every reading, null where it is not known, the last warnings, and the end of the session,
    /// `killed` for one that ended without a word.
    pub fn to_json(&self) -> Value {
        let readings = READINGS.iter().map(|reading| (reading.key.to_owned(), json!(self.status.get(reading.key))));
        let mut answer: Map<String, Value> =
            std::iter::once(("run".to_owned(), json!(self.name))).chain(readings).collect();
        let warnings = self.status.warnings.iter().map(|(step, text)| json!({ "step": step, "text": text }));
        answer.insert("warnings".to_owned(), warnings.collect());
        let killed = self.status.was_killed.then_some("killed");
        answer.insert("end".to_owned(), json!(self.status.end.map(SessionEnd::name).or(killed)));
        Value::Object(answer)
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::{epoch, step};
    use super::*;

    fn write(path: &Path, lines: &[Value]) {
        fs::create_dir_all(path).unwrap();
        fs::write(path.join("config.yaml"), "").unwrap();
        fs::write(path.join("plan.json"), r#"{"steps": 40, "memory": {"available_bytes": 1000000000}}"#).unwrap();
        fs::write(path.join("metrics.jsonl"), lines.iter().map(|line| format!("{line}\n")).collect::<String>())
            .unwrap();
    }

    #[test]
    fn a_run_is_followed_back_and_on() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        write(root, &[]);
        let mut monitored = MonitoredRun::open(root).unwrap();
        assert!(monitored.sentence().ends_with(": no step yet"));
        assert_eq!((&monitored.to_json()["steps"], &monitored.to_json()["loss"]), (&json!(40.0), &Value::Null));
        write(root, &[step(1, 9.0), epoch(1), step(2, 8.0), step(3, 7.0)]);
        monitored.refresh().unwrap();
        assert_eq!((monitored.status.losses.len(), monitored.status.get("free_bytes")), (3, Some(6e8)));
        let rollback = json!({ "event": "rollback", "step": 1, "failed_step": 4, "cause": "NaN", "rollbacks": 1, "rate_factor": 0.5 });
        write(root, &[step(1, 9.0), epoch(1), rollback, step(2, 6.0)]);
        monitored.refresh().unwrap();
        assert_eq!(monitored.status.losses, [(1.0, 9.0), (2.0, 6.0)]);
        assert_eq!(monitored.to_json()["gpu_busy_ratio"], Value::Null);
        let row = format!("{}\n1.000,2,97,3000000000,,351.5,61,1980,\n", crate::gpu::HEADER);
        fs::write(root.join("gpu.csv"), row).unwrap();
        monitored.refresh().unwrap();
        let json = monitored.to_json();
        assert_eq!((&json["gpu_busy_ratio"], &json["gpu_clock_hertz"]), (&json!(0.97), &json!(1.98e9)));
        assert_eq!((&json["rollbacks_total"], &json["warnings"][0]["step"]), (&json!(1.0), &json!(1)));
        assert!(monitored.sentence().contains(": step 2 of 10, loss 6.0000, 4.00 s left"), "{}", monitored.sentence());
    }

    #[test]
    fn a_run_has_ended_when_its_errors_are_younger_than_its_log() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), &[step(1, 9.0)]);
        fs::write(folder.path().join("evaluation.json"), "{}").unwrap();
        let mut monitored = MonitoredRun::open(folder.path()).unwrap();
        assert!(monitored.status.has_ended && monitored.sentence().ends_with("ended"));
        let log = fs::File::options().append(true).open(folder.path().join("metrics.jsonl")).unwrap();
        log.set_modified(SystemTime::now() + Duration::from_secs(60)).unwrap();
        monitored.refresh().unwrap();
        assert!(!monitored.status.has_ended);
        fs::remove_file(folder.path().join("evaluation.json")).unwrap();
        let _other = monitored.root.take().unwrap();
        log.set_modified(SystemTime::now() - Duration::from_secs(600)).unwrap();
        monitored.refresh().unwrap();
        assert!(monitored.sentence().ends_with("no longer running, or stalled"), "{}", monitored.sentence());
    }

    /// A run that was killed had a time left for five minutes.
    #[test]
    fn a_run_was_killed_where_no_process_has_its_folder() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), &[step(1, 9.0)]);
        let log = fs::File::options().append(true).open(folder.path().join("metrics.jsonl")).unwrap();
        log.set_modified(SystemTime::now() - Duration::from_secs(60)).unwrap();
        let mut monitored = MonitoredRun::open(folder.path()).unwrap();
        assert!(monitored.sentence().ends_with(", killed; --resume goes on"), "{}", monitored.sentence());
        let json = monitored.to_json();
        assert_eq!((&json["end"], &json["time_left_seconds"]), (&json!("killed"), &Value::Null));
        let _resumed = monitored.root.take().unwrap();
        monitored.refresh().unwrap();
        assert!(monitored.sentence().ends_with(" left"), "{}", monitored.sentence());
        assert_eq!(monitored.to_json()["end"], Value::Null);
    }

    /// The last line of a session is younger than its evaluation.
    #[test]
    fn a_run_has_ended_when_its_log_says_so() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("evaluation.json"), "{}").unwrap();
        let end = |how: &str| json!({ "event": "end", "step": 1, "how": how });
        for (how, said) in [("finished", "ended"), ("stopped", "stopped; --resume goes on")] {
            write(folder.path(), &[step(1, 9.0), end(how)]);
            let log = fs::File::options().append(true).open(folder.path().join("metrics.jsonl")).unwrap();
            log.set_modified(SystemTime::now() + Duration::from_secs(60)).unwrap();
            let monitored = MonitoredRun::open(folder.path()).unwrap();
            assert!(monitored.sentence().ends_with(said), "{}", monitored.sentence());
            assert_eq!(monitored.to_json()["end"], how);
        }
    }

    #[test]
    fn a_walk_forward_run_is_shown_by_its_last_fold() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("config.yaml"), "data:\n  walk_forward: 3\n").unwrap();
        let mut monitored = MonitoredRun::open(folder.path()).unwrap();
        assert_eq!(monitored.to_json()["folds"], Value::Null);
        for (number, fold, loss) in [(1, "fold-1", 3.0), (2, "fold-2", 4.0), (3, "fold-3", 5.0)] {
            write(&folder.path().join(fold), &[step(1, loss)]);
            monitored.refresh().unwrap();
            assert!(monitored.name().ends_with(fold), "{}", monitored.name());
            assert_eq!((monitored.status.get("loss"), monitored.status.losses.len()), (Some(loss), 1));
            assert_eq!(monitored.status.fold, Some((number, 3)));
            assert!(monitored.sentence().ends_with(" left of the fold"), "{}", monitored.sentence());
            // The run had ended after each of its folds.
            fs::write(folder.path().join(fold).join("evaluation.json"), "{}").unwrap();
            monitored.refresh().unwrap();
            let json = monitored.to_json();
            assert_eq!((&json["fold"], &json["finished"]), (&json!(number as f64), &json!(f64::from(number == 3))));
        }
    }
}
