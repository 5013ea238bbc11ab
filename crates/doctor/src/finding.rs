//! Faults, in words for someone who does not know CUDA, and the commands that fix them.

use serde::Serialize;

use crate::explain::Topic;

/// Severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Training on the GPU fails, or cannot begin.
    Problem,
    /// Training works, and is slower or less certain than it could be.
    Warning,
    /// Good to know.
    Note,
}

/// Something that was found.
#[derive(Clone, Debug, Serialize)]
pub struct Finding {
    /// Stable name for programs, such as `torch-without-cuda`.
    pub id: &'static str,
    /// Severity.
    pub severity: Severity,
    /// Observation, in a sentence.
    pub seen: String,
    /// Reason, and effect of the commands.
    pub why: String,
    /// Commands that fix it, in order; empty if none is known.
    pub commands: Vec<String>,
    /// Page with more on the subject.
    pub explain: Option<Topic>,
}

impl Finding {
    /// A finding without commands.
    pub(crate) fn new(id: &'static str, severity: Severity, seen: impl Into<String>, why: impl Into<String>) -> Self {
        Finding { id, severity, seen: seen.into(), why: why.into(), commands: Vec::new(), explain: None }
    }

    pub(crate) fn problem(id: &'static str, seen: impl Into<String>, why: impl Into<String>) -> Self {
        Finding::new(id, Severity::Problem, seen, why)
    }

    pub(crate) fn warning(id: &'static str, seen: impl Into<String>, why: impl Into<String>) -> Self {
        Finding::new(id, Severity::Warning, seen, why)
    }

    pub(crate) fn note(id: &'static str, seen: impl Into<String>, why: impl Into<String>) -> Self {
        Finding::new(id, Severity::Note, seen, why)
    }

    #[must_use]
    pub(crate) fn mended_by<C: Into<String>>(mut self, commands: impl IntoIterator<Item = C>) -> Self {
        self.commands.extend(commands.into_iter().map(Into::into));
        self
    }

    #[must_use]
    pub(crate) fn explained_by(mut self, topic: Topic) -> Self {
        self.explain = Some(topic);
        self
    }
}
