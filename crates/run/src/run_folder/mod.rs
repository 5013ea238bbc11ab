//! A run's folder: its paths, and the small files that the program writes there.

mod follow;
mod log;

use std::fs::{self, File, TryLockError};
use std::io::{self, BufRead, BufReader, ErrorKind};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use megabatch_atomic_file as atomic_file;
use megabatch_atomic_file::remove_stale_in;
use megabatch_gpu_core::snapshot::Snapshot;
use megabatch_trainer::Checkpoints;
use serde_json::Value;

use crate::config::{self, Config};
use crate::error::{Context as _, Error, Result};
use crate::plan::Plan;

pub(crate) use follow::{LogFollower, LogUpdate};
use log::CHECKPOINT;
pub(crate) use log::{MetricsLog, ResumePoint, SessionEnd};

/// Attempts to lock a folder that others only look at, and the pause between two.
const LOCK_ATTEMPTS: usize = 1000;
const LOCK_PAUSE: Duration = Duration::from_millis(1);

/// The folder that `train --out` names.
#[derive(Clone)]
pub(crate) struct RunFolder {
    root: PathBuf,
    /// True for a fold of a run of several, which reports for all.
    is_fold: bool,
}

impl RunFolder {
    /// A folder for a new run, which [`RunFolder::begin`] will make.
    ///
    /// # Errors
    /// A usage failure where a run is there already, which is never written over, or other files
    /// are.
    pub(crate) fn new(root: &Path) -> Result<Self> {
        let run = RunFolder { root: root.to_owned(), is_fold: false };
        let refuse = |reason: &str| Err(Error::usage(format!("{}: {reason}", root.display())));
        if run.walk_forward_file().exists() {
            return refuse(
                "holds a finished walk-forward run, whose errors are in walk-forward.json; name another folder",
            );
        }
        if run.cross_validation_file().exists() {
            return refuse(
                "holds a finished run of all folds, whose errors are in cross-validation.json; name another folder",
            );
        }
        if run.fold(0).has_begun() {
            return refuse(
                "holds a run of several folds that has not ended; --resume goes on with it, or name another folder",
            );
        }
        match (run.checkpoints().exists(), run.config_file().exists()) {
            (true, _) => refuse("holds a run already; --resume goes on with it, or name another folder"),
            (false, true) => refuse(
                "holds a run that ended before its first checkpoint; --resume starts it again, or name another folder",
            ),
            (false, false) => match run.other_file() {
                Some(name) => {
                    refuse(&format!("holds no run, but other files, such as {name}; name a new or an empty folder"))
                }
                None => Ok(run),
            },
        }
    }

    /// The first name in the folder that no run leaves there before its configuration. Hidden files
    /// and those of systems do not count.
    fn other_file(&self) -> Option<String> {
        const OF_SYSTEMS: [&str; 4] = ["lost+found", "@eaDir", "Thumbs.db", "desktop.ini"];
        let is_expected =
            |name: &str| name.starts_with("oom-") && name.ends_with(".json") || OF_SYSTEMS.contains(&name);
        let entries = self.root.read_dir().into_iter().flatten().flatten();
        let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
        names.filter(|name| !name.starts_with('.') && !is_expected(name)).min()
    }

    /// Locks the folder for this process until the lock is dropped. Makes it if it does not exist.
    ///
    /// # Errors
    /// A usage failure where another process trains in it.
    pub(crate) fn take(&self) -> Result<RunLock> {
        let root = self.root.display();
        fs::create_dir_all(&self.root)
            .map_err(|error| Error::usage(format!("{root}: cannot be written to: {error}")))?;
        // The folder itself is locked, so that nothing has to be written for it. Where the system
        // cannot, nothing is.
        let Ok(folder) = File::open(&self.root) else { return Ok(RunLock { _folder: None }) };
        for _ in 0..LOCK_ATTEMPTS {
            match folder.try_lock() {
                // A process that looks whether the folder is free has it for an instant.
                Err(TryLockError::WouldBlock) if self.is_free() => thread::sleep(LOCK_PAUSE),
                Err(TryLockError::WouldBlock) => break,
                _ => return Ok(RunLock { _folder: Some(folder) }),
            }
        }
        Err(Error::usage(format!("{root}: another process trains in this folder; wait for it, or name another folder")))
    }

    /// True if no process of this machine trains in the folder. False where the system cannot tell.
    pub(crate) fn is_free(&self) -> bool {
        // A lock of this kind cannot be asked for: it is held until the end of this line. It is a
        // shared one, so that those who look do not hinder each other, and `take` tells them from
        // a run.
        File::open(&self.root).is_ok_and(|folder| folder.try_lock_shared().is_ok())
    }

    /// Writes configuration and plan, before the first step.
    pub(crate) fn begin(&self, config: &Config, plan: &Plan) -> Result<()> {
        self.clean();
        atomic_file::write(&self.config_file(), config.to_yaml().as_bytes())?;
        Ok(atomic_file::write(&self.plan_file(), serde_json::to_string_pretty(plan)?.as_bytes())?)
    }

    /// Removes unfinished files of a process that was killed.
    fn clean(&self) {
        remove_stale_in(&self.root);
    }

    /// Adds advice to an `error` of a full disk.
    pub(crate) fn advise(&self, error: Error) -> Error {
        let is_full = |error: &io::Error| {
            matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge)
        };
        if !error.find().is_some_and(is_full) {
            return error;
        }
        let out = self.root.display();
        let begin = match (self.checkpoints().exists(), self.config_file().exists()) {
            (true, _) => {
                format!("what was saved before is whole, and `megabatch train --out {out} --resume` goes on from it")
            }
            (false, true) => format!("`megabatch train --out {out} --resume` starts it again"),
            (false, false) => "start it again".to_owned(),
        };
        error.context(format!("no room for the run: make room, and {begin}"))
    }

    /// The folder of the `fold`-th fold of this run, counted from 0, whether it is there or not.
    /// Its name counts from 1.
    pub(crate) fn fold(&self, fold: usize) -> RunFolder {
        RunFolder { root: self.root.join(format!("fold-{}", fold + 1)), is_fold: true }
    }

    /// The folders of the folds of this run that have begun, in order; none for a run of one model.
    pub(crate) fn begun_folds(&self) -> impl Iterator<Item = RunFolder> {
        (0..).map(|fold| self.fold(fold)).take_while(RunFolder::has_begun)
    }

    /// The folder of the fold before this one, whether it is there or not; `None` for the first
    /// fold, and for a run of one model.
    pub(crate) fn fold_before(&self) -> Option<RunFolder> {
        let before = self.fold_number()?.checked_sub(1).filter(|&before| before > 0)?;
        Some(RunFolder { root: self.root.with_file_name(format!("fold-{before}")), is_fold: true })
    }

    /// The number of the fold, from 1; `None` for a run of one model.
    pub(crate) fn fold_number(&self) -> Option<usize> {
        let number = self.root.file_name()?.to_str()?.strip_prefix("fold-")?.parse().ok()?;
        self.is_fold.then_some(number)
    }

    /// True if it is the folder of one of several folds that are trained together.
    pub(crate) fn is_fold(&self) -> bool {
        self.is_fold
    }

    /// True if a run has begun here.
    pub(crate) fn has_begun(&self) -> bool {
        self.config_file().is_file()
    }

    /// The folder of a run that exists.
    ///
    /// # Errors
    /// A usage failure where there is none.
    pub(crate) fn open(root: &Path) -> Result<Self> {
        let run = RunFolder { root: root.to_owned(), is_fold: false };
        if !run.has_begun() {
            return Err(Error::usage(format!(
                "{}: not a run folder: it has no config.yaml; `megabatch train --out` makes one",
                root.display()
            )));
        }
        Ok(run)
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    pub(crate) fn config_file(&self) -> PathBuf {
        self.root.join("config.yaml")
    }

    pub(crate) fn plan_file(&self) -> PathBuf {
        self.root.join("plan.json")
    }

    pub(crate) fn metrics_file(&self) -> PathBuf {
        self.root.join("metrics.jsonl")
    }

    pub(crate) fn evaluation_file(&self) -> PathBuf {
        self.root.join("evaluation.json")
    }

    /// The errors of all folds of a run that walks forward.
    pub(crate) fn walk_forward_file(&self) -> PathBuf {
        self.root.join("walk-forward.json")
    }

    /// The errors of all folds of a run that cross-validates.
    pub(crate) fn cross_validation_file(&self) -> PathBuf {
        self.root.join("cross-validation.json")
    }

    pub(crate) fn report_file(&self) -> PathBuf {
        self.root.join("report.html")
    }

    pub(crate) fn memory_file(&self) -> PathBuf {
        self.root.join("memory.json")
    }

    pub(crate) fn trace_file(&self) -> PathBuf {
        self.root.join("memory-trace.jsonl")
    }

    /// Folder of each session's events for TensorBoard.
    pub(crate) fn event_folder(&self) -> PathBuf {
        self.root.join("tb")
    }

    /// Trace of the session's steps, for Perfetto.
    pub(crate) fn timeline_file(&self) -> PathBuf {
        self.root.join("trace.json")
    }

    /// Samples of GPU utilisation.
    pub(crate) fn gpu_file(&self) -> PathBuf {
        self.root.join("gpu.csv")
    }

    /// Report on the `n`-th shortage of memory, n from 1.
    pub(crate) fn shortage_file(&self, n: usize) -> PathBuf {
        self.root.join(format!("oom-{n}.json"))
    }

    /// Writes the snapshot of a memory shortage beside earlier ones.
    pub(crate) fn keep_shortage(&self, snapshot: &Snapshot) -> Result<PathBuf> {
        fs::create_dir_all(&self.root)?;
        let free = (1..).map(|n| self.shortage_file(n)).find(|path| !path.exists()).expect("a number is free");
        atomic_file::write(&free, snapshot.to_json().as_bytes())?;
        Ok(free)
    }

    pub(crate) fn checkpoints(&self) -> PathBuf {
        self.root.join("checkpoints")
    }

    /// The run's checkpoints, each with `config` beside it.
    pub(crate) fn keep_checkpoints(&self, config: &Config) -> Checkpoints {
        Checkpoints {
            keep_last: config.get(&config::training::KEEP_CHECKPOINTS),
            keep_best: config.get(&config::training::KEEP_BEST_CHECKPOINT),
            every_steps: config.get(&config::training::CHECKPOINT_EVERY_STEPS),
            config_text: config.to_yaml(),
            ..Checkpoints::new(self.checkpoints())
        }
    }

    /// The configuration of the run, overridden by `arguments` of `--set`.
    pub(crate) fn config(&self, arguments: &[String]) -> Result<Config> {
        let file = self.config_file();
        let text = fs::read_to_string(&file).with_context(|| format!("{}: cannot be read", file.display()))?;
        Ok(Config::load_saved(&file, &text, arguments)?)
    }

    /// Content of plan.json; null where the file is absent or no plan.
    pub(crate) fn saved_plan(&self) -> Value {
        let text = fs::read_to_string(self.plan_file()).unwrap_or_default();
        serde_json::from_str(&text).unwrap_or_default()
    }

    /// The device that the last checkpoint of up to `step_max` steps was trained on, `cpu` or such
    /// as `cuda:0`. Where no checkpoint tells it, the device of the last session; `None` where none
    /// has begun to train. A run of several folds has that of the last one.
    pub(crate) fn trained_on(&self, step_max: u64) -> Option<String> {
        let has_trained = |folder: &RunFolder| folder.metrics_file().is_file();
        let folders = std::iter::once(self.clone()).chain(self.begun_folds()).filter(has_trained);
        let trained: Vec<RunFolder> = folders.collect();
        let saved = trained.iter().rev().find_map(|folder| folder.checkpoint_device(step_max));
        saved.or_else(|| {
            let plan = trained.last()?.saved_plan();
            (!plan.is_null()).then(|| plan["gpu"]["device"].as_str().unwrap_or("cpu").to_owned())
        })
    }

    /// The device in the line of the last checkpoint of up to `step_max` steps. Few of the lines,
    /// which are those of all steps, are parsed.
    fn checkpoint_device(&self, step_max: u64) -> Option<String> {
        let text = fs::read_to_string(self.metrics_file()).ok()?;
        let lines = text.lines().rev().filter(|line| line.contains(CHECKPOINT));
        let mut metrics = lines.filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let last = metrics.find(|metric| {
            metric["event"] == CHECKPOINT && metric["step"].as_u64().is_some_and(|step| step <= step_max)
        })?;
        last["device"].as_str().map(str::to_owned)
    }

    /// The lines of metrics.jsonl; none where the file is absent. A last line that a crash cut
    /// short is left out.
    pub(crate) fn metrics(&self) -> Result<Vec<Value>> {
        let Ok(file) = File::open(self.metrics_file()) else { return Ok(Vec::new()) };
        let mut metrics = Vec::new();
        for line in BufReader::new(file).lines() {
            match serde_json::from_str(&line?) {
                Ok(metric) => metrics.push(metric),
                Err(_) => break,
            }
        }
        Ok(metrics)
    }
}

/// Lock on a folder in which this process alone trains. It ends when it is dropped, or with the
/// process.
pub(crate) struct RunLock {
    _folder: Option<File>,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_device_of_a_run_is_known_once_it_trains() {
        let folder = tempfile::tempdir().unwrap();
        let run = RunFolder::new(folder.path()).unwrap();
        let write = |run: &RunFolder, file: PathBuf, text: &str| {
            fs::create_dir_all(run.root()).unwrap();
            fs::write(file, text).unwrap();
        };
        write(&run, run.plan_file(), "{\"seed\": 1}");
        let trained_on = |run: &RunFolder| run.trained_on(u64::MAX);
        // As of weights that were imported.
        assert_eq!(trained_on(&run), None);
        write(&run, run.metrics_file(), "");
        assert_eq!(trained_on(&run).as_deref(), Some("cpu"));
        write(&run, run.plan_file(), "{\"gpu\": {\"device\": \"cuda:1\"}}");
        assert_eq!(trained_on(&run).as_deref(), Some("cuda:1"));
        write(&run, run.plan_file(), "no plan");
        assert_eq!(trained_on(&run), None);

        let fold = run.fold(0);
        write(&fold, fold.config_file(), "");
        write(&fold, fold.metrics_file(), "");
        write(&fold, fold.plan_file(), "{\"gpu\": {\"device\": \"cuda:0\"}}");
        assert_eq!(trained_on(&run).as_deref(), Some("cuda:0"));
    }

    /// A resume that ended before its first checkpoint left its device to the resumes after it.
    #[test]
    fn the_device_of_a_run_is_that_of_its_last_checkpoint() {
        let folder = tempfile::tempdir().unwrap();
        let run = RunFolder::new(folder.path()).unwrap();
        fs::write(run.plan_file(), "{\"gpu\": {\"device\": \"cuda:0\"}}").unwrap();
        let line =
            |step: u64, device: &str| format!("{}\n", json!({"event": CHECKPOINT, "step": step, "device": device}));
        let lines = line(2, "cpu") + &line(4, "cuda:1") + "{\"event\":\"step\",\"step\":5}\n";
        fs::write(run.metrics_file(), lines).unwrap();
        for (step_max, device) in [(u64::MAX, "cuda:1"), (4, "cuda:1"), (3, "cpu"), (1, "cuda:0")] {
            assert_eq!(run.trained_on(step_max).as_deref(), Some(device), "{step_max}");
        }
        // As earlier versions wrote it.
        fs::write(run.metrics_file(), "{\"event\":\"checkpoint\",\"step\":2}\n").unwrap();
        assert_eq!(run.trained_on(u64::MAX).as_deref(), Some("cuda:0"));
    }

    #[test]
    fn a_run_is_never_written_over() {
        let folder = tempfile::tempdir().unwrap();
        let run = RunFolder::new(&folder.path().join("run")).unwrap();
        fs::create_dir_all(run.root()).unwrap();
        assert!(RunFolder::open(run.root()).is_err());
        atomic_file::write(&run.config_file(), b"").unwrap();
        assert!(RunFolder::open(run.root()).is_ok());
        let error = RunFolder::new(run.root()).err().unwrap().to_string();
        assert!(error.contains("before its first checkpoint; --resume"), "{error}");
        fs::create_dir(run.checkpoints()).unwrap();
        let error = RunFolder::new(run.root()).err().unwrap().to_string();
        assert!(error.contains("holds a run already; --resume"), "{error}");
    }

    /// `train --out` of a folder of somebody's files put a run among them.
    #[test]
    fn a_folder_of_other_files_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let run = || RunFolder::new(folder.path());
        fs::write(folder.path().join(".hidden"), "").unwrap();
        fs::write(run().unwrap().shortage_file(1), "").unwrap();
        assert!(run().is_ok());
        fs::write(folder.path().join("thesis.txt"), "").unwrap();
        let error = run().err().unwrap().to_string();
        assert!(error.contains("holds no run, but other files, such as thesis.txt; name a new"), "{error}");
    }

    #[test]
    fn a_folder_is_taken_by_one_at_a_time() {
        let folder = tempfile::tempdir().unwrap();
        let run = RunFolder::new(&folder.path().join("run")).unwrap();
        assert!(!run.is_free(), "it is not there");
        let taken = run.take().unwrap();
        assert!(!run.is_free());
        let error = run.take().err().unwrap().to_string();
        assert!(error.contains("run: another process trains in this folder"), "{error}");
        drop(taken);
        assert!(run.is_free());
        assert!(run.take().is_ok());
    }

    /// A run that began while another process looked whether its folder is free was refused.
    #[test]
    fn a_look_at_a_folder_hinders_nobody() {
        let folder = tempfile::tempdir().unwrap();
        let run = RunFolder::new(folder.path()).unwrap();
        let look = File::open(run.root()).unwrap();
        look.lock_shared().unwrap();
        assert!(run.is_free(), "another process looks at it");
        thread::scope(|scope| {
            let taken = scope.spawn(|| run.take().is_ok());
            thread::yield_now();
            look.unlock().unwrap();
            assert!(taken.join().unwrap());
        });
    }

    #[test]
    fn what_a_killed_process_was_writing_is_removed_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let run = RunFolder::new(folder.path()).unwrap();
        for name in [".plan.json.AbCdEf.tmp", ".hidden", "tmp", "notes.tmp"] {
            fs::write(folder.path().join(name), "").unwrap();
        }
        run.clean();
        let name = |entry: io::Result<fs::DirEntry>| entry.unwrap().file_name().into_string().unwrap();
        let mut left: Vec<String> = fs::read_dir(folder.path()).unwrap().map(name).collect();
        left.sort();
        assert_eq!(left, [".hidden", "notes.tmp", "tmp"]);
    }

    #[test]
    fn a_full_disk_is_told_what_to_do_about() {
        let folder = tempfile::tempdir().unwrap();
        let run = RunFolder::new(folder.path()).unwrap();
        let advise = |kind: ErrorKind| {
            let error = crate::error::Error::from(io::Error::from(kind)).context("x: cannot write");
            run.advise(error).exact_message()
        };
        assert!(advise(ErrorKind::PermissionDenied).starts_with("x: cannot write: "));
        for kind in [ErrorKind::StorageFull, ErrorKind::QuotaExceeded, ErrorKind::FileTooLarge] {
            let message = advise(kind);
            assert!(
                message.starts_with("no room for the run: make room, and start it again: x: cannot write"),
                "{message}"
            );
        }
        fs::create_dir(run.checkpoints()).unwrap();
        let message = advise(ErrorKind::StorageFull);
        assert!(message.contains("--resume` goes on from it: x: cannot write"), "{message}");
    }
}
