//! Arguments that several commands on a trained model have.

use clap::ValueEnum;
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
