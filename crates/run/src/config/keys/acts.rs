//! Conditions of settings: data, models, devices and other settings beside which they act.

use std::fmt;

use crate::config::Config;

/// A condition under which a setting acts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Acts {
    /// A data file of bars or windows.
    OnSamples,
    /// A data file of graphs.
    OnGraphFiles,
    /// A data file of windows.
    OnWindows,
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
        key: &'static str,
        /// Its values, as words.
        values: &'static [&'static str],
    },
    /// Another setting has any other value.
    Without {
        /// The other setting.
        key: &'static str,
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
pub(crate) struct JobTraits {
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

impl Acts {
    /// True if the condition holds.
    pub(crate) fn holds(self, job: &JobTraits, config: &Config) -> bool {
        match self {
            Acts::OnSamples => !job.is_graph_file,
            Acts::OnGraphFiles => job.is_graph_file,
            Acts::OnWindows => job.is_windows,
            Acts::OnSeries => !job.is_graph_file && !job.is_windows,
            Acts::OnValidation => job.validates,
            Acts::WithGraphs => job.has_graphs,
            Acts::WithGraphAttention => job.has_graph_attention,
            Acts::WithLstms => job.has_lstms,
            Acts::WithFp16 => job.is_fp16,
            Acts::OnGpus => job.is_on_gpu,
            Acts::With { key, values } => config.text(key).is_some_and(|word| values.contains(&word)),
            Acts::Without { key, value } => config.text(key) != Some(value),
            Acts::Never { .. } => false,
        }
    }

    /// True if the condition is about the kind of data, so that a setting that breaks it splits
    /// them otherwise than its user thinks.
    pub(crate) fn is_of_data(self) -> bool {
        matches!(self, Acts::OnSamples | Acts::OnGraphFiles)
    }

    /// Reason why a setting does not act, to follow "does nothing".
    pub(crate) fn reason(self) -> String {
        match self {
            Acts::OnSamples => " with a file of graphs".to_owned(),
            Acts::OnGraphFiles => " without a file of graphs as data".to_owned(),
            Acts::OnWindows => " with a series or a file of graphs".to_owned(),
            Acts::OnSeries => " without a series as data".to_owned(),
            Acts::OnValidation => " without samples to validate".to_owned(),
            Acts::WithGraphs => " without graphs".to_owned(),
            Acts::WithGraphAttention => " without graph attention".to_owned(),
            Acts::WithLstms => " without LSTMs".to_owned(),
            Acts::WithFp16 => " without training.precision fp16".to_owned(),
            Acts::OnGpus => " on the CPU".to_owned(),
            Acts::With { key, values: ["none"] } => format!(" beside {key}"),
            Acts::With { key, values } => format!(" without {key} {}", values.join(" or ")),
            Acts::Without { key, value: "none" } => format!(" without {key}"),
            Acts::Without { key, value } => format!(" with {key} {value}"),
            Acts::Never { because } => format!(": {because}"),
        }
    }
}

/// As the reference page has it.
impl fmt::Display for Acts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Acts::OnSamples => f.write_str("on bars and windows"),
            Acts::OnGraphFiles => f.write_str("on files of graphs"),
            Acts::OnWindows => f.write_str("on windows"),
            Acts::OnSeries => f.write_str("on series"),
            Acts::OnValidation => f.write_str("with samples to validate"),
            Acts::WithGraphs => f.write_str("with graphs"),
            Acts::WithGraphAttention => f.write_str("with graph attention"),
            Acts::WithLstms => f.write_str("with LSTMs"),
            Acts::WithFp16 => f.write_str("in fp16"),
            Acts::OnGpus => f.write_str("on GPUs"),
            Acts::With { key, values: ["none"] } => write!(f, "without `{key}`"),
            Acts::With { key, values } => write!(f, "with `{key}` {}", values.join(" or ")),
            Acts::Without { key, value: "none" } => write!(f, "with `{key}`"),
            Acts::Without { key, value } => write!(f, "with `{key}` other than {value}"),
            Acts::Never { .. } => f.write_str("never"),
        }
    }
}
