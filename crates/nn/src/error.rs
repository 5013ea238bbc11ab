use std::borrow::Cow;
use std::error::Error as StdError;
use std::fmt::Display;
use std::io;
use std::path::PathBuf;

use megabatch_atomic_file::WriteError;
use thiserror::Error;

/// `Result` with this crate's [`Error`](enum@Error).
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A setting's name in backticks; words for what no setting decides, or several, as they are.
pub fn quoted(setting: &str) -> Cow<'_, str> {
    if setting.contains(' ') { setting.into() } else { format!("`{setting}`").into() }
}

/// Errors of describing, computing and storing a model.
///
/// Texts have settings in backticks, so that an application can say where each of them is. The name
/// is that of the field, after the name of the field that it is in where it says too little alone,
/// such as `graph_heads`.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
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

    /// A setting that a GPU does not compute yet.
    #[error("{} is {value}, which is not supported on a GPU yet{}", quoted(setting), if together_with.is_empty() { String::new() } else { format!(" together with {together_with}") })]
    NotOnGpu {
        /// Its name, or words for what no setting decides.
        setting: &'static str,
        /// Its value.
        value: String,
        /// Another property of the run without which it is supported; empty for none.
        together_with: &'static str,
    },

    /// A setting of a task is out of range.
    #[error("{} is {value}: expected {expected}", quoted(setting))]
    Task {
        /// Its name, with the task's place in the list, from 0.
        setting: String,
        /// Its value.
        value: String,
        /// Allowed values.
        expected: String,
    },

    /// The weights of the tasks do not sum to 1.
    #[error("`tasks`: the sum of all weights is {sum}: expected 1")]
    TaskWeights {
        /// Sum of all weights.
        sum: f64,
    },

    /// The device has no room.
    #[error(transparent)]
    Memory(#[from] megabatch_gpu_core::Error),

    /// The operating system gave no threads for the pool.
    #[error("cannot start {threads} threads: {source}; ask for fewer")]
    Threads {
        /// Number of threads asked for.
        threads: usize,
        /// The system's answer.
        source: Box<dyn StdError + Send + Sync>,
    },

    /// A matrix of weights cannot be quantised.
    #[error("{tensor}: {source}")]
    Quantize {
        /// Name of the tensor.
        tensor: String,
        /// Fault.
        source: megabatch_amp::Error,
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

    /// An index lies past the end of the graphs.
    #[error("graph {graph} was asked for, but there are {len}")]
    GraphOutOfRange {
        /// Index asked for.
        graph: usize,
        /// Number of graphs.
        len: usize,
    },

    /// The source of graphs failed.
    #[error("reading graph {graph} failed: {source}")]
    Graph {
        /// Index asked for.
        graph: usize,
        /// Error of the source.
        source: Box<dyn StdError + Send + Sync>,
    },

    /// A graph is not what its source says of it.
    #[error("graph {graph} has {found}: expected {expected}")]
    GraphShape {
        /// Its index.
        graph: usize,
        /// Value found.
        found: String,
        /// Value by the source, and fix.
        expected: String,
    },

    /// A sample's window is not inside its series.
    #[error(
        "sample {sample}: a window of {steps} bars that ends at bar {end} of {timeframe} is not inside its {bars} bars; \
         build the samples anew from these series"
    )]
    WindowOutOfRange {
        /// The sample.
        sample: usize,
        /// Name of the timeframe.
        timeframe: String,
        /// Last bar of the window.
        end: i64,
        /// Bars in a window.
        steps: usize,
        /// Bars in the series.
        bars: usize,
    },

    /// A sample's window reaches over the start of a segment of its series.
    #[error(
        "sample {sample}: a window of {steps} bars that ends at bar {end} of {timeframe} reaches over the start of a segment at \
         bar {segment_start}; build the samples anew from these series"
    )]
    WindowAcrossSegments {
        /// The sample.
        sample: usize,
        /// Name of the timeframe.
        timeframe: String,
        /// Last bar of the window.
        end: i64,
        /// Bars in a window.
        steps: usize,
        /// First bar of the segment that the window ends in.
        segment_start: usize,
    },

    /// The segments of a series are not in order.
    #[error("{timeframe}: segment {segment} begins at bar {start}, but {expected}; build the series anew")]
    SegmentStart {
        /// Name of the timeframe.
        timeframe: String,
        /// The segment, counted from 0.
        segment: usize,
        /// Start.
        start: i64,
        /// The rule that it breaks.
        expected: &'static str,
    },

    /// Targets that the loss has no meaning for.
    #[error("{place}{found}: expected {expected}, or NaN where it is not known; {advice}")]
    Targets {
        /// The sample or the graph that has them, with a colon; empty where it is not known.
        place: String,
        /// The targets.
        found: String,
        /// The requirement of the loss ([`TargetNeeds`](crate::loss::TargetNeeds)).
        expected: String,
        /// Advice.
        advice: &'static str,
    },

    /// A weights file does not hold the tensors that the model needs.
    #[error("{}: the tensors are not those of this model:\n{}", path.display(), problems.join("\n"))]
    Weights {
        /// The file.
        path: PathBuf,
        /// One line for each tensor that is missing, not known, misshapen or of a type that cannot
        /// be read.
        problems: Vec<String>,
    },

    /// A weights file has numbers that no model computes with.
    #[error("{}: weights that are not finite; take those of before the fault:\n{}", path.display(), problems.join("\n"))]
    WeightsNotFinite {
        /// The file.
        path: PathBuf,
        /// One line for each tensor that has some.
        problems: Vec<String>,
    },

    /// A file is not in the safetensors format.
    #[error("{}: not a readable safetensors file: {reason}", path.display())]
    Safetensors {
        /// The file.
        path: PathBuf,
        /// Fault.
        reason: String,
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
}

impl From<WriteError> for Error {
    fn from(WriteError { path, action, source }: WriteError) -> Self {
        Error::File { path, action, source }
    }
}

impl Error {
    /// True if a device had too little memory, so that asking for less may help.
    pub fn is_shortage(&self) -> bool {
        let mut cause: Option<&(dyn StdError + 'static)> = match self {
            Error::Memory(error) => return error.is_shortage(),
            Error::Graph { source, .. } => Some(&**source),
            _ => None,
        };
        while let Some(error) = cause {
            if let Some(error) = error.downcast_ref::<megabatch_gpu_core::Error>() {
                return error.is_shortage();
            }
            cause = error.source();
        }
        false
    }

    /// Turns an I/O error into [`Error::File`], for use in `map_err`.
    pub fn file(path: impl Into<PathBuf>, action: &'static str) -> impl FnOnce(io::Error) -> Error {
        let path = path.into();
        move |source| Error::File { path, action, source }
    }

    /// A setting, by its name or in words, outside its range.
    pub fn setting(setting: &'static str, value: &dyn Display, expected: &'static str) -> Error {
        Error::Setting { setting, value: value.to_string(), expected }
    }
}
