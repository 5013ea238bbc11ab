//! Errors of a model beside those of baselines, as they are told.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::evaluate::metrics::{GraphCorrelations, Metrics};
use crate::evaluate::standard_error::StandardErrors;

/// A model's errors on some samples, beside those of the baselines.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Evaluation {
    /// Number of samples with a known target; of nodes and graphs, those whose targets are all
    /// known. It counts graphs if graphs are predicted.
    pub samples: usize,
    /// Mean loss; in training that of scaled targets, where they are scaled.
    pub loss: f64,
    /// The model's errors by horizon.
    #[serde(flatten)]
    pub metrics: Metrics,
    /// Each baseline's errors by horizon, by name: `no_change`, `mean`, `linear`; for classes
    /// `most_frequent`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub baselines: BTreeMap<&'static str, Metrics>,
    /// Standard errors, if the errors are estimates from some of a part's samples; several tasks
    /// have their own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub standard_errors: Option<StandardErrors>,
    /// Loss and errors of each task, for a model of several. The lists above have their horizons
    /// too, in the order of the targets.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tasks: Vec<TaskEvaluation>,
    /// Errors on the samples of each instrument, by name; empty if the source does not tell
    /// instruments apart.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub instruments: BTreeMap<String, InstrumentEvaluation>,
    /// The model's correlations within each graph, in the order of the graphs; empty if none are
    /// defined.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub graphs: Vec<GraphCorrelations>,
}

/// A model's errors on the samples of one instrument, beside those of the baselines.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct InstrumentEvaluation {
    /// Number of samples.
    pub samples: usize,
    /// The model's errors by horizon.
    #[serde(flatten)]
    pub metrics: Metrics,
    /// Each baseline's errors by horizon, by name. The baselines are the same for all instruments.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub baselines: BTreeMap<&'static str, Metrics>,
}

/// A model's errors on the targets of one task, beside those of its baselines.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TaskEvaluation {
    /// The first of its targets, and the one after the last.
    pub targets: [usize; 2],
    /// Name of the loss.
    pub objective: &'static str,
    /// The task's weight in the loss.
    pub weight: f64,
    /// Its mean loss over known targets; 0 if none is known.
    pub loss: f64,
    /// The model's errors by horizon, of these targets.
    #[serde(flatten)]
    pub metrics: Metrics,
    /// Each baseline's errors by horizon, by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub baselines: BTreeMap<&'static str, Metrics>,
    /// Standard errors of an estimate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub standard_errors: Option<StandardErrors>,
}
