//! Arguments that several commands on a trained model have.

use clap::ValueEnum;
use megabatch_run::evaluate::Part;
use megabatch_run::{ChangedData, CheckpointChoice, Instruments, Weights};

/// Which checkpoint of a run is used.
#[derive(Clone, Copy, ValueEnum)]
pub(super) enum CheckpointArg {
    /// The one with the lowest validation loss; the last where nothing was validated
    Best,
    /// The last one
    Last,
}

impl From<CheckpointArg> for CheckpointChoice {
    fn from(checkpoint: CheckpointArg) -> Self {
        match checkpoint {
            CheckpointArg::Best => CheckpointChoice::Best,
            CheckpointArg::Last => CheckpointChoice::Last,
        }
    }
}

/// Part of the data, split as in training.
#[derive(Clone, Copy, ValueEnum)]
pub(super) enum PartArg {
    /// Samples that the model was trained on
    Train,
    /// Samples that chose the best checkpoint
    Validation,
    /// Samples that influenced no choice
    Test,
    /// Every sample of the file, including purged ones
    All,
}

impl From<PartArg> for Part {
    fn from(part: PartArg) -> Self {
        match part {
            PartArg::Train => Part::Train,
            PartArg::Validation => Part::Validation,
            PartArg::Test => Part::Test,
            PartArg::All => Part::All,
        }
    }
}

/// Treatment by `--allow-other-instruments`.
pub(super) fn instruments(allowed: bool) -> Instruments {
    if allowed { Instruments::Allowed } else { Instruments::Doubted }
}

/// Treatment by `--force`.
pub(super) fn changed_data(force: bool) -> ChangedData {
    if force { ChangedData::Accept } else { ChangedData::Refuse }
}

/// Arithmetic by `--int8`.
pub(super) fn weights(int8: bool) -> Weights {
    if int8 { Weights::Int8 } else { Weights::AsTrained }
}
