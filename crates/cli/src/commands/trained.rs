//! Arguments that several commands on a trained model have.

use megabatch_run::evaluate::Part;
use megabatch_run::{ChangedData, CheckpointChoice, Instruments, Weights};

use crate::commands::choice;

choice! {
    /// Which checkpoint of a run is used.
    pub(super) enum CheckpointArg => CheckpointChoice {
        /// The one with the lowest validation loss; the last where nothing was validated
        Best => Best,
        /// The last one
        Last => Last,
    }
}

choice! {
    /// Part of the data, split as in training.
    pub(super) enum PartArg => Part {
        /// Samples that the model was trained on
        Train => Train,
        /// Samples that chose the best checkpoint
        Validation => Validation,
        /// Samples that influenced no choice
        Test => Test,
        /// Every sample of the file, including purged ones
        All => All,
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
