use std::error::Error as StdError;
use std::fmt::Display;
use std::io;
use std::ops::Range;
use std::path::PathBuf;

use megabatch_nn::quoted;
use thiserror::Error;

use crate::peers::PeerLost;

/// `Result` with this crate's [`Error`](enum@Error).
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Errors of training, saving and evaluating a model.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// The model, its computation or its weights.
    #[error(transparent)]
    Model(#[from] megabatch_nn::Error),

    /// A setting lies outside its range.
    #[error("{} is {value}: expected {expected}", quoted(setting))]
    Setting {
        /// Its name, or words for what no setting decides.
        setting: &'static str,
        /// Its value.
        value: String,
        /// Allowed values.
        expected: &'static str,
    },

    /// A setting that needs series, for samples that are stored as windows.
    #[error("{} is {value}: expected {expected}", quoted(setting))]
    NeedsSeries {
        /// Its name, or words for what no setting decides.
        setting: &'static str,
        /// Its value.
        value: &'static str,
        /// Allowed values, and the reason.
        expected: &'static str,
    },

    /// A readout of nodes if graphs have the targets, or the reverse.
    #[error("`readout` is {readout}: expected {expected}")]
    ReadoutLevel {
        /// The readout.
        readout: &'static str,
        /// Allowed values, and the reason.
        expected: &'static str,
    },

    /// A setting that a GPU does not compute yet.
    #[error("{} is {value}, which is not supported on a GPU yet{}", quoted(setting), if together_with.is_empty() { String::new() } else { format!(" together with {together_with}") })]
    NotOnGpu {
        /// Its name, or words for what no setting decides.
        setting: &'static str,
        /// Its value.
        value: String,
        /// Property of the run without which the setting is supported; empty for none.
        together_with: &'static str,
    },

    /// A setting of the loss scale is out of range.
    #[error("{} is {found}: expected {expected}", quoted(setting))]
    Scaling {
        /// Its name.
        setting: String,
        /// Its value.
        found: String,
        /// Allowed values.
        expected: &'static str,
    },

    /// The device has no room.
    #[error(transparent)]
    Memory(#[from] megabatch_gpu_core::Error),

    /// The order of samples is impossible.
    #[error(transparent)]
    Order(#[from] megabatch_order::Error),

    /// The source of samples failed.
    #[error("reading samples {first}..={last} ({count} of them) failed: {source}")]
    Gather {
        /// Smallest index asked for.
        first: usize,
        /// Largest index asked for.
        last: usize,
        /// Number of samples asked for.
        count: usize,
        /// Error of the source.
        source: Box<dyn StdError + Send + Sync>,
    },

    /// The source of samples failed to read bars that states are computed over.
    #[error("reading bars {}..{} of {timeframe} failed: {source}", rows.start, rows.end)]
    Bars {
        /// Name of the timeframe.
        timeframe: String,
        /// Rows of the bars, half-open from 0.
        rows: Range<usize>,
        /// Error of the source.
        source: Box<dyn StdError + Send + Sync>,
    },

    /// The source of samples failed to load what is ahead.
    #[error("loading samples ahead failed: {source}")]
    PrefetchingSource {
        /// Error of the source.
        source: Box<dyn StdError + Send + Sync>,
    },

    /// The samples have another shape than the model.
    #[error("the model takes {model}, but the samples are {samples}; use data made as the training data was")]
    SamplesShape {
        /// Shape that the model was built for.
        model: String,
        /// Shape of the samples given.
        samples: String,
    },

    /// An index lies past the end of the samples.
    #[error("sample {sample} was asked for, but there are {len}")]
    SampleOutOfRange {
        /// Index asked for.
        sample: usize,
        /// Number of samples.
        len: usize,
    },

    /// A weight of a sample is none.
    #[error("the weight of sample {sample} is {weight}: expected a finite number from 0 on; or `sample_weights`=none")]
    Weight {
        /// The sample.
        sample: usize,
        /// Its weight.
        weight: f32,
    },

    /// All weights of the training samples are 0.
    #[error("the weights of all {samples} training samples are 0; correct them, or `sample_weights`=none")]
    NoWeight {
        /// Number of training samples.
        samples: usize,
    },

    /// A part of a split, or of a run, has no samples.
    #[error("no samples are left for {part} ({before} before the purge, {after} after it); {advice}")]
    NothingLeft {
        /// `training`, `validation` or `test`.
        part: &'static str,
        /// Samples between the part's instants.
        before: usize,
        /// Samples left after the purge.
        after: usize,
        /// Advice.
        advice: &'static str,
    },

    /// A number that training depends on became infinite or NaN. Nothing was updated in the step
    /// named.
    #[error(
        "step {step}: the loss is {loss:.4e} and the first number that is not finite is element {index} of {tensor}; \
         check the data, lower the learning rate or clip gradients to a lower norm"
    )]
    NotFinite {
        /// The step, counted from 1, that was not completed.
        step: u64,
        /// The share of the step's loss in the batch that failed.
        loss: f64,
        /// First tensor, in the order of computation, that holds such a number.
        tensor: String,
        /// Index of the number in the tensor, row-major.
        index: usize,
    },

    /// The loss of a step is far above those before it. Nothing was updated in the step named.
    #[error(
        "step {step}: the loss is {loss:.4e}, more than {factor} times the median of the last steps, {median:.4e}; check the data, lower the \
         learning rate or clip gradients to a lower norm"
    )]
    LossSpike {
        /// The step, counted from 1, that was not completed.
        step: u64,
        /// Its loss.
        loss: f64,
        /// The median of the losses before it.
        median: f64,
        /// [`Divergence::loss_spike_factor`](crate::Divergence::loss_spike_factor).
        factor: f64,
    },

    /// A run diverged again after its last allowed rollback.
    #[error("diverged again after rollback {rollbacks}, the last one allowed (`max_rollbacks`): {source}")]
    Diverged {
        /// Number of rollbacks.
        rollbacks: u32,
        /// The last divergence.
        source: Box<Error>,
    },

    /// The device has too little memory even for the most reduced run.
    #[error(
        "step {step}: the device has less memory than planned, and there is nothing left to cut in batches of {batch_size}: {source}; what was \
         done is saved where the run keeps checkpoints"
    )]
    CannotReduceFurther {
        /// The step, counted from 1, that was not completed.
        step: u64,
        /// Smallest number of samples, or graphs, that was computed at once.
        batch_size: usize,
        /// Error of the last request.
        source: Box<Error>,
    },

    /// A file of a checkpoint cannot be understood.
    #[error("{}: {reason}", path.display())]
    Checkpoint {
        /// The file.
        path: PathBuf,
        /// Fault, and fix.
        reason: String,
    },

    /// A checkpoint belongs to a run with other settings.
    #[error("{}: made with {} {found}, but this run has {expected}; resume with the settings of the checkpoint", path.display(), quoted(setting))]
    OtherRun {
        /// The checkpoint's folder.
        path: PathBuf,
        /// Name of the setting that differs, or words.
        setting: &'static str,
        /// Its value in the checkpoint.
        found: String,
        /// Its value in this run.
        expected: String,
    },

    /// The file system refused.
    #[error("{}: cannot {action}: {source}", path.display())]
    File {
        /// The file or folder.
        path: PathBuf,
        /// Action that failed.
        action: &'static str,
        /// The system's answer.
        source: io::Error,
    },

    /// The observer ended the work.
    #[error("{work} was interrupted")]
    Interrupted {
        /// The work.
        work: &'static str,
    },

    /// Another rank of the run is lost.
    #[error(transparent)]
    Peer(#[from] PeerLost),

    /// Another rank of the run failed.
    #[error("rank {rank} failed: {message}")]
    OnRank {
        /// The rank.
        rank: usize,
        /// Its error.
        message: String,
        /// True if its device had too little memory.
        is_shortage: bool,
    },

    /// A setting that several ranks cannot train with yet.
    #[error("{} is {value}, which is not supported by several ranks yet", quoted(setting))]
    NotDistributed {
        /// Its name, or words for what no setting decides.
        setting: &'static str,
        /// Its value.
        value: String,
    },

    /// A step has fewer reduction blocks than there are ranks.
    #[error(
        "{ranks} ranks for steps of {blocks} reduction blocks: {} ranks would be idle; use {blocks} ranks, or steps of more samples (`batch_size`, \
         `gradient_accumulation_steps`)", ranks - blocks
    )]
    TooManyRanks {
        /// Number of ranks.
        ranks: usize,
        /// Blocks of a whole step.
        blocks: usize,
    },

    /// A rank differs from rank 0.
    #[error("rank {rank} has another {what} than rank 0: {here}, and {first} there")]
    RanksDiffer {
        /// The rank.
        rank: usize,
        /// Name of the difference: a field of [`Config`](crate::Config) in backticks, or a name
        /// that the application gave.
        what: String,
        /// The rank's.
        here: String,
        /// The value of rank 0.
        first: String,
    },

    /// The loss scale of a run in fp16 failed.
    #[error("{0}")]
    Scale(#[source] megabatch_amp::Error),
}

impl Error {
    /// True if a device had too little memory, so that asking for less may help.
    pub fn is_shortage(&self) -> bool {
        let mut cause: Option<&(dyn StdError + 'static)> = match self {
            Error::Memory(error) => Some(error),
            Error::CannotReduceFurther { .. } => return true,
            Error::OnRank { is_shortage, .. } => return *is_shortage,
            Error::Model(error) => return error.is_shortage(),
            Error::Gather { source, .. } | Error::Bars { source, .. } | Error::PrefetchingSource { source } => {
                Some(&**source)
            }
            _ => None,
        };
        while let Some(error) = cause {
            match (error.downcast_ref::<megabatch_gpu_core::Error>(), error.downcast_ref::<Error>()) {
                (Some(error), _) => return error.is_shortage(),
                (_, Some(error)) => return error.is_shortage(),
                _ => cause = error.source(),
            }
        }
        false
    }

    /// Turns an I/O error into [`Error::File`], for use in `map_err`.
    pub(crate) fn file(path: impl Into<PathBuf>, action: &'static str) -> impl FnOnce(io::Error) -> Error {
        let path = path.into();
        move |source| Error::File { path, action, source }
    }

    pub(crate) fn setting(setting: &'static str, value: &dyn Display, expected: &'static str) -> Error {
        Error::Setting { setting, value: value.to_string(), expected }
    }
}
