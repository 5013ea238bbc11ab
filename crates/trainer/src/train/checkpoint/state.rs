use std::fs;
use std::path::Path;

use megabatch_amp::ScalerState;
use serde::{Deserialize, Serialize};

use super::checksums::Checksums;
use super::{Arithmetic, CARRIED, CONFIG, MODEL, OPTIMIZER, RunSettings, STATE};
use crate::config::divergence::DivergenceState;
use crate::config::early_stopping::EarlyStoppingState;
use crate::data::target_scales::TargetScales;
use crate::error::{Error, Result};

/// State of a checkpoint beside tensors, as JSON in `state.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct State {
    /// 2.
    pub format_version: u32,
    /// Optimizer steps done.
    pub step: u64,
    /// Epoch of the next step, from 0.
    pub epoch: u64,
    /// Samples of that epoch that are done.
    pub position_in_epoch: usize,
    /// Settings that the run was started with, or resumed with last.
    pub run: RunSettings,
    /// Arithmetic of the run.
    pub arithmetic: Arithmetic,
    /// The best validation so far.
    pub best: Option<Best>,
    /// For how long the validation loss has not improved, where early stopping watches it.
    #[serde(rename = "plateau")]
    pub early_stopping: EarlyStoppingState,
    /// Rollbacks so far, and the losses by which a divergence is told.
    #[serde(rename = "course")]
    pub divergence: DivergenceState,
    /// The scales of the targets; absent where they are not scaled. The head as it is trained is
    /// then in `optimizer.safetensors`, and `model.safetensors` has it for the targets' unit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_scales: Option<TargetScales>,
    /// The loss scale, for a run in fp16.
    pub scaler: Option<ScalerState>,
    /// True if what follows the last step, such as its validation, is still to be done: memory ran
    /// short for it.
    pub unfinished: bool,
    /// Steps that changed the weights, by which Adam corrects its moments: all but those that
    /// overflowed and those without a known target.
    pub updates: u64,
}

/// A validation that was better than all before it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Best {
    /// Optimizer steps done.
    pub step: u64,
    /// Validation loss.
    pub loss: f64,
}

/// Fields that every version of `state.json` has.
#[derive(Deserialize)]
struct Version {
    format_version: u32,
}

impl State {
    pub(crate) const VERSION: u32 = 2;

    /// The state of the checkpoint in the folder `path`, all of whose files are checked to be as
    /// they were written.
    ///
    /// # Errors
    /// [`Error::File`] when a file cannot be read; [`Error::Checkpoint`] when it is damaged or not
    /// what this build writes.
    pub fn load(path: &Path) -> Result<Self> {
        let (state, files) = Self::read(path)?;
        let carried = state.run.carry_state.then_some(CARRIED);
        [MODEL, OPTIMIZER, CONFIG].into_iter().chain(carried).try_for_each(|name| files.read(name).map(drop))?;
        Ok(state)
    }

    pub(super) fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec_pretty(self).expect("the state has no maps and no unusual numbers")
    }

    /// The state and the list through which the other files are read.
    pub(super) fn read(folder: &Path) -> Result<(Self, Checksums)> {
        let path = folder.join(STATE);
        check_version(&path)?;
        let files = Checksums::open(folder)?;
        let state = serde_json::from_slice(&files.read(STATE)?)
            .map_err(|error| Error::Checkpoint { path, reason: error.to_string() })?;
        Ok((state, files))
    }
}

/// Refuses another version, which may have other checksums or none. What cannot be understood is
/// left for them to judge.
fn check_version(path: &Path) -> Result<()> {
    let text = fs::read(path).map_err(Error::file(path, "read"))?;
    match serde_json::from_slice(&text) {
        Ok(Version { format_version }) if format_version != State::VERSION => {
            let reason = format!(
                "format_version {format_version}, but this build reads {}; go on with the program that wrote it, or start \
                 a new run from its {MODEL}",
                State::VERSION
            );
            Err(Error::Checkpoint { path: path.to_owned(), reason })
        }
        _ => Ok(()),
    }
}
