//! Training: from a series to checkpoints, metrics and a report, all in the folder of the run.

use crate::error::Result;

mod data_stalls;
mod folds;
mod gpu;
#[cfg(test)]
mod made_up;
mod memory;
mod recordings;
mod scaling;
mod session;
mod tensorboard;
mod time_breakdown;
mod timeline;
mod watch;

use std::path::PathBuf;

use crate::config::SettingSources;
use crate::evaluate::Evaluation;
use crate::evaluate::folds::FoldPlan;
use crate::findings::Findings;
use crate::host::Host;
use session::Begin;

pub(crate) use memory::record;
pub(crate) use watch::Watch;

/// A run to train.
#[derive(Clone, Debug)]
pub struct TrainRequest {
    /// Where settings come from; of a run that is resumed, those of the run stand below them, and
    /// there is no file.
    pub settings: SettingSources,
    /// Data file; goes over `data.path`.
    pub data: Option<PathBuf>,
    /// Folder of the run; goes over `output.dir`.
    pub out: Option<PathBuf>,
    /// Weights to start from, with PyTorch's names.
    pub init: Option<PathBuf>,
    /// Where the run begins.
    pub start: Start,
    /// Optimizer steps after which it ends, whatever `training.epochs` says.
    pub max_steps: Option<u64>,
    /// `cpu`, `auto`, `cuda` or `cuda:N`.
    pub device: String,
}

/// Where a run begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Start {
    /// At its first step.
    #[default]
    Anew,
    /// At the last checkpoint in its folder, bit for bit as if it had not been interrupted.
    Resume,
}

impl Default for TrainRequest {
    fn default() -> Self {
        TrainRequest {
            settings: SettingSources::default(),
            data: None,
            out: None,
            init: None,
            start: Start::Anew,
            max_steps: None,
            device: "auto".to_owned(),
        }
    }
}

/// Result of training.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Training {
    /// Folder of the run.
    pub run: PathBuf,
    /// Optimizer steps done, of all folds together.
    pub steps: u64,
    /// False for a run that was cancelled, which can be resumed.
    pub is_finished: bool,
    /// The best validation; `None` where nothing was validated, and for a run of several folds.
    pub best_validation: Option<BestValidation>,
    /// Errors of the best weights on samples that the run did not train on; one a fold.
    pub evaluations: Vec<Evaluation>,
    /// All of it, for people and programs.
    pub findings: Findings,
}

/// The validation with the lowest loss.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BestValidation {
    /// Optimizer steps before it.
    pub step: u64,
    /// Its loss.
    pub loss: f64,
}

/// Trains a model, or one a fold; everything that the run leaves is in one folder.
///
/// # Errors
/// [`Kind::Capacity`](crate::Kind::Capacity) where the run does not fit into memory,
/// [`Kind::Numeric`](crate::Kind::Numeric) where it diverged, and those of its settings and data.
pub fn train(request: &TrainRequest, host: &Host<'_>) -> Result<Training> {
    let (folder, config) = match request.start {
        Start::Resume => session::reopen(request)?,
        Start::Anew => session::start(request, host)?,
    };
    if let Some(folds) = FoldPlan::of(&config)? {
        return folds::train_folds(request, &folder, config, folds, host);
    }
    let begin = match request.start {
        Start::Resume => Begin::AtTheLastCheckpoint,
        Start::Anew => Begin::Anew,
    };
    let root = folder.root().to_owned();
    Ok(session::train(request, folder, config, begin, host)?.into_training(&root))
}
