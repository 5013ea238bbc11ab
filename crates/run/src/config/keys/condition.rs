//! Conditions of settings: data, models, devices and other settings beside which they act.

use std::fmt;

use super::Key;
use crate::config::Config;

/// A condition under which a setting acts.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Condition {
    /// A data file of bars or windows.
    OnSamples,
    /// A data file of graphs.
    OnGraphFiles,
    /// A data file of windows.
    OnWindows,
    /// A data file of windows, or graphs whose edges a GPU may keep.
    OnWindowsOrGpuGraphs,
    /// A data file of bars, as a series.
    OnSeries,
    /// Samples to validate.
    OnValidation,
    /// Graphs, from the data file or between instruments.
    WithGraphs,
    /// A model with layers of graph attention.
    WithGraphAttention,
    /// A model with LSTMs.
    WithLstms,
    /// Training in fp16.
    WithFp16,
    /// Training on a GPU.
    OnGpus,
    /// Another setting has one of these values.
    With {
        /// The other setting.
        key: &'static Key,
        /// Its values, as words.
        values: &'static [&'static str],
    },
    /// Another setting has any other value.
    Without {
        /// The other setting.
        key: &'static Key,
        /// Its value, a word.
        value: &'static str,
    },
    /// Nowhere: the setting is accepted because configurations have it.
    Never {
        /// Why it has no meaning here.
        because: &'static str,
    },
}

/// Traits of a job that decide which settings act.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RunTraits {
    /// True if the data file is one of graphs.
    pub(crate) is_graph_file: bool,
    /// True if the data file is one of windows.
    pub(crate) is_windows: bool,
    /// True if there are samples to validate.
    pub(crate) validates: bool,
    /// True if there are graphs.
    pub(crate) has_graphs: bool,
    /// True if the model has layers of graph attention.
    pub(crate) has_graph_attention: bool,
    /// True if the model has LSTMs.
    pub(crate) has_lstms: bool,
    /// True if training is in fp16.
    pub(crate) is_fp16: bool,
    /// True if training is on a GPU, here or on another machine.
    pub(crate) is_on_gpu: bool,
}

impl Condition {
    /// True if the condition holds.
    pub(crate) fn holds(self, run: &RunTraits, config: &Config) -> bool {
        match self {
            Condition::OnSamples => !run.is_graph_file,
            Condition::OnGraphFiles => run.is_graph_file,
            Condition::OnWindows => run.is_windows,
            Condition::OnWindowsOrGpuGraphs => run.is_windows || (run.has_graphs && run.is_on_gpu),
            Condition::OnSeries => !run.is_graph_file && !run.is_windows,
            Condition::OnValidation => run.validates,
            Condition::WithGraphs => run.has_graphs,
            Condition::WithGraphAttention => run.has_graph_attention,
            Condition::WithLstms => run.has_lstms,
            Condition::WithFp16 => run.is_fp16,
            Condition::OnGpus => run.is_on_gpu,
            Condition::With { key, values } => config.word(key).is_some_and(|word| values.contains(&word)),
            Condition::Without { key, value } => config.word(key) != Some(value),
            Condition::Never { .. } => false,
        }
    }

    /// True if the condition is about the kind of data, so that a setting that breaks it splits
    /// them otherwise than its user thinks.
    pub(crate) fn concerns_data_kind(self) -> bool {
        matches!(self, Condition::OnSamples | Condition::OnGraphFiles)
    }

    /// Reason why a setting does not act, to follow "has no effect".
    pub(crate) fn reason(self) -> String {
        match self {
            Condition::OnSamples => " on files of graphs".to_owned(),
            Condition::OnGraphFiles => " on bars and windows".to_owned(),
            Condition::OnWindows => " on series and files of graphs".to_owned(),
            Condition::OnWindowsOrGpuGraphs => " on series, nor on graphs on the CPU".to_owned(),
            Condition::OnSeries => " on windows and files of graphs".to_owned(),
            Condition::OnValidation => " without samples to validate".to_owned(),
            Condition::WithGraphs => " without graphs".to_owned(),
            Condition::WithGraphAttention => " without graph attention".to_owned(),
            Condition::WithLstms => " without LSTMs".to_owned(),
            Condition::WithFp16 => " without training.precision fp16".to_owned(),
            Condition::OnGpus => " on the CPU".to_owned(),
            Condition::With { key, values: ["none"] } => format!(" together with {}", key.path),
            Condition::With { key, values } => format!(" without {} {}", key.path, values.join(" or ")),
            Condition::Without { key, value: "none" } => format!(" without {}", key.path),
            Condition::Without { key, value } => format!(" with {} {value}", key.path),
            Condition::Never { because } => format!(": {because}"),
        }
    }
}

/// As the reference page has it.
impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Condition::OnSamples => f.write_str("bars and windows"),
            Condition::OnGraphFiles => f.write_str("files of graphs"),
            Condition::OnWindows => f.write_str("windows"),
            Condition::OnWindowsOrGpuGraphs => f.write_str("windows, or graphs on GPUs"),
            Condition::OnSeries => f.write_str("series"),
            Condition::OnValidation => f.write_str("samples to validate"),
            Condition::WithGraphs => f.write_str("graphs"),
            Condition::WithGraphAttention => f.write_str("graph attention"),
            Condition::WithLstms => f.write_str("LSTMs"),
            Condition::WithFp16 => f.write_str("fp16"),
            Condition::OnGpus => f.write_str("GPUs"),
            Condition::With { key, values: ["none"] } => write!(f, "no `{}`", key.path),
            Condition::With { key, values } => write!(f, "`{}` {}", key.path, values.join(" or ")),
            Condition::Without { key, value: "none" } => write!(f, "`{}`", key.path),
            Condition::Without { key, value } => write!(f, "`{}` other than {value}", key.path),
            Condition::Never { .. } => f.write_str("nothing"),
        }
    }
}
