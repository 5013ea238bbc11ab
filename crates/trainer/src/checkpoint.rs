#![forbid(unsafe_code)]

//! Checkpoints: folders `step-NNNNNNNN` that appear whole or not at all.
//!
//! A folder holds `model.safetensors`, `optimizer.safetensors` (`exp_avg.<name>` and `exp_avg_sq.<name>`; empty for an optimizer without
//! moments), `state.json` ([`State`]) and the caller's `config.yaml`. It is written under another name beside its place, every
//! file and the folder are flushed to the disk, and then it is renamed: what has the right name is complete.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::file::{sync_folder, unfinished_folder};
use crate::optimizer::{Optimizer, OptimizerKind};
use crate::scalar::Scalar;
use crate::tensor::TensorSet;
use crate::weights::{TensorFile, encode};

const FORMAT_VERSION: u32 = 1;
const PREFIX: &str = "step-";
/// Names of folders that are being written; those of a run that was killed stay behind and are removed by the next one.
const UNFINISHED: &str = ".unfinished-";

/// Where checkpoints are kept and which.
#[derive(Clone, Debug)]
pub struct Checkpoints {
    /// The folder that holds them, made when the first one is saved.
    pub folder: PathBuf,
    /// How many of the newest are kept, beside the one with the best validation loss.
    pub keep_last: usize,
    /// Optimizer steps between checkpoints, beside those at each epoch's end and at the end of training.
    pub every_steps: Option<u64>,
    /// Text saved as `config.yaml` in each.
    pub config_text: String,
}

/// What a checkpoint remembers beside tensors, as JSON in `state.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct State {
    /// 1.
    pub format_version: u32,
    /// Optimizer steps done.
    pub step: u64,
    /// Epoch of the next step, from 0.
    pub epoch: u64,
    /// Samples of that epoch that are done.
    pub position_in_epoch: usize,
    /// What the run was started with.
    pub run: RunSettings,
    /// The best validation so far.
    pub best: Option<Best>,
}

/// The settings without which a run could not go on bit for bit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunSettings {
    /// Number of training samples.
    pub train_samples: usize,
    /// Seed of weights and order.
    pub seed: u64,
    /// Samples computed at once.
    pub batch_size: usize,
    /// Batches of an optimizer step.
    pub accumulation_steps: usize,
    /// Samples in a run.
    pub run_length: usize,
    /// Optimizer steps of an epoch.
    pub steps_per_epoch: u64,
    /// The optimizer's rule.
    pub optimizer: OptimizerKind,
}

/// A validation that was better than all before it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Best {
    /// Optimizer steps done.
    pub step: u64,
    /// Validation loss.
    pub loss: f64,
}

/// What resuming found.
#[derive(Debug)]
pub struct Resumed {
    /// The checkpoint that was loaded.
    pub path: PathBuf,
    /// Its state.
    pub state: State,
    /// Newer checkpoints that could not be read, and why.
    pub skipped: Vec<Error>,
}

impl Checkpoints {
    /// Checkpoints in `folder`: the last three and the best, at epochs' ends.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Checkpoints { folder: folder.into(), keep_last: 3, every_steps: None, config_text: String::new() }
    }

    /// Saves a checkpoint, then removes those that are no longer kept.
    pub(crate) fn save<S: Scalar>(
        &self,
        state: &State,
        parameters: &TensorSet<S>,
        optimizer: &Optimizer<S>,
    ) -> Result<PathBuf> {
        fs::create_dir_all(&self.folder).map_err(Error::file(&self.folder, "make the folder"))?;
        let unfinished = unfinished_folder(&self.folder, UNFINISHED)?;
        let write = |name: &str, bytes: &[u8]| write_durably(&unfinished.path().join(name), bytes);
        let moments =
            optimizer.moments().map(|moments| [(EXP_AVG, &moments.exp_avg), (EXP_AVG_SQ, &moments.exp_avg_sq)]);
        let json = serde_json::to_vec_pretty(state).expect("the state has no maps and no unusual numbers");
        write(MODEL, &encode(&self.folder, &[("", parameters)])?)?;
        write(OPTIMIZER, &encode(&self.folder, moments.as_ref().map_or(&[], |sets| sets))?)?;
        write(STATE, &json)?;
        write("config.yaml", self.config_text.as_bytes())?;
        sync_folder(unfinished.path())?;

        let path = self.folder.join(format!("{PREFIX}{:08}", state.step));
        self.make_way(&path)?;
        fs::rename(unfinished.path(), &path).map_err(Error::file(&path, "rename into place"))?;
        sync_folder(&self.folder)?;
        self.prune(state)?;
        Ok(path)
    }

    /// Moves away a checkpoint of the same step: one that could not be read when the run was resumed from before it.
    fn make_way(&self, path: &Path) -> Result<()> {
        if path.exists() {
            let aside = unfinished_folder(&self.folder, UNFINISHED)?;
            fs::rename(path, aside.path().join("replaced")).map_err(Error::file(path, "move aside"))?;
        }
        Ok(())
    }

    /// Removes all but the last `keep_last` and the best.
    fn prune(&self, state: &State) -> Result<()> {
        let best = state.best.map(|best| best.step);
        let all = self.list()?;
        let older = &all[..all.len().saturating_sub(self.keep_last.max(1))];
        for (_, path) in older.iter().filter(|(step, _)| Some(*step) != best) {
            // Renamed first, so that a removal that is interrupted leaves no half checkpoint under a good name.
            let aside = self.folder.join(format!("{UNFINISHED}{}", file_name(path)));
            fs::rename(path, &aside).map_err(Error::file(path, "rename before its removal"))?;
            fs::remove_dir_all(&aside).map_err(Error::file(&aside, "remove"))?;
        }
        Ok(())
    }

    /// The complete checkpoints, oldest first: number of steps and folder. None where the folder does not exist.
    ///
    /// # Errors
    /// [`Error::File`] when the folder cannot be read.
    pub fn list(&self) -> Result<Vec<(u64, PathBuf)>> {
        let mut found = Vec::new();
        for path in self.entries()? {
            let step = file_name(&path).strip_prefix(PREFIX).and_then(|digits| digits.parse().ok());
            found.extend(step.map(|step| (step, path)));
        }
        found.sort();
        Ok(found)
    }

    /// Removes what a killed run left unfinished.
    pub(crate) fn clean(&self) -> Result<()> {
        for path in self.entries()?.into_iter().filter(|path| file_name(path).starts_with(UNFINISHED)) {
            fs::remove_dir_all(&path).map_err(Error::file(&path, "remove"))?;
        }
        Ok(())
    }

    fn entries(&self) -> Result<Vec<PathBuf>> {
        if !self.folder.exists() {
            return Ok(Vec::new());
        }
        let failed = || Error::file(&self.folder, "list the folder");
        let entries = fs::read_dir(&self.folder).map_err(failed())?;
        entries.map(|entry| entry.map(|entry| entry.path()).map_err(failed())).collect()
    }

    /// Loads the latest checkpoint that can be read; `None` when there is no checkpoint at all.
    pub(crate) fn load_latest<S: Scalar>(
        &self,
        run: &RunSettings,
        (parameters, optimizer): (&mut TensorSet<S>, &mut Optimizer<S>),
    ) -> Result<Option<Resumed>> {
        self.clean()?;
        let mut skipped = Vec::new();
        for (_, path) in self.list()?.into_iter().rev() {
            match load(&path, run, (parameters, optimizer)) {
                Ok(state) => return Ok(Some(Resumed { path, state, skipped })),
                // The settings are at fault and not the checkpoint: an older one would be no better.
                Err(error @ Error::OtherRun { .. }) => return Err(error),
                Err(error) => skipped.push(error),
            }
        }
        match skipped.into_iter().next() {
            Some(newest) => Err(newest),
            None => Ok(None),
        }
    }
}

const MODEL: &str = "model.safetensors";
const OPTIMIZER: &str = "optimizer.safetensors";
const STATE: &str = "state.json";
const EXP_AVG: &str = "exp_avg.";
const EXP_AVG_SQ: &str = "exp_avg_sq.";

/// Loads one checkpoint. Everything is read and checked before anything is changed.
fn load<S: Scalar>(
    path: &Path,
    run: &RunSettings,
    (parameters, optimizer): (&mut TensorSet<S>, &mut Optimizer<S>),
) -> Result<State> {
    let state = read_state(&path.join(STATE))?;
    check_run(path, &state.run, run)?;
    let model = TensorFile::open(&path.join(MODEL))?;
    model.check(&[("", parameters.layout())])?;
    let moments = TensorFile::open(&path.join(OPTIMIZER))?;
    let layout = parameters.layout().as_ref();
    let expected = [(EXP_AVG, layout), (EXP_AVG_SQ, layout)];
    moments.check(if optimizer.moments().is_some() { &expected } else { &[] })?;

    model.copy("", parameters);
    let (to, steps) = optimizer.state_mut();
    *steps = state.step;
    if let Some(to) = to {
        moments.copy(EXP_AVG, &mut to.exp_avg);
        moments.copy(EXP_AVG_SQ, &mut to.exp_avg_sq);
    }
    Ok(state)
}

fn read_state(path: &Path) -> Result<State> {
    let text = fs::read(path).map_err(Error::file(path, "read"))?;
    let invalid = |reason: String| Error::Checkpoint { path: path.to_owned(), reason };
    let state: State = serde_json::from_slice(&text).map_err(|error| invalid(error.to_string()))?;
    if state.format_version != FORMAT_VERSION {
        let version = state.format_version;
        return Err(invalid(format!("format_version {version}, but this build reads {FORMAT_VERSION}")));
    }
    Ok(state)
}

fn check_run(path: &Path, found: &RunSettings, expected: &RunSettings) -> Result<()> {
    let pairs = |run: &RunSettings| {
        [
            ("data: training samples", run.train_samples.to_string()),
            ("training.seed", run.seed.to_string()),
            ("training.batch_size", run.batch_size.to_string()),
            ("training.gradient_accumulation_steps", run.accumulation_steps.to_string()),
            ("training.run_length", run.run_length.to_string()),
            ("steps per epoch", run.steps_per_epoch.to_string()),
            ("training.optimizer", format!("{:?}", run.optimizer).to_lowercase()),
        ]
    };
    match pairs(found).into_iter().zip(pairs(expected)).find(|(found, expected)| found != expected) {
        Some(((setting, found), (_, expected))) => {
            Err(Error::OtherRun { path: path.to_owned(), setting, found, expected })
        }
        None => Ok(()),
    }
}

impl State {
    /// The state of the checkpoint in the folder `path`.
    ///
    /// # Errors
    /// [`Error::File`] when it cannot be read; [`Error::Checkpoint`] when it is not what this build writes.
    pub fn of_checkpoint(path: &Path) -> Result<Self> {
        read_state(&path.join(STATE))
    }

    pub(crate) const VERSION: u32 = FORMAT_VERSION;
}

fn write_durably(path: &Path, bytes: &[u8]) -> Result<()> {
    let write = |mut file: File| file.write_all(bytes).and_then(|()| file.sync_all());
    File::create(path).and_then(write).map_err(Error::file(path, "write"))
}

fn file_name(path: &Path) -> &str {
    path.file_name().and_then(|name| name.to_str()).unwrap_or_default()
}
