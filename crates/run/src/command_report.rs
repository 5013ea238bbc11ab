//! The outcome of a command: text for people, JSON for programs.

use std::fmt;

use serde::{Serialize, Serializer};
use serde_json::Value;

use crate::error::Kind;

/// Result of a command. `Display` is the text, `Serialize` the JSON, whose keys are stable.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct CommandReport {
    /// For people.
    pub text: String,
    /// For programs.
    pub json: Value,
    /// Kind of the fault that the command found, if it found one. The command itself succeeded.
    pub verdict: Option<Kind>,
}

impl CommandReport {
    /// A report that reads `text` and, for programs, is `value`.
    pub(crate) fn new(text: impl Into<String>, value: &impl Serialize) -> Self {
        let json = serde_json::to_value(value).expect("findings have text keys and serialize without error");
        CommandReport { text: text.into(), json, verdict: None }
    }

    /// The report of a process whose run another process reports.
    pub(crate) fn empty() -> Self {
        CommandReport { text: String::new(), json: Value::Null, verdict: None }
    }

    /// The same report with a bad verdict.
    #[must_use]
    pub(crate) fn with_verdict(self, kind: Kind) -> Self {
        CommandReport { verdict: Some(kind), ..self }
    }
}

impl fmt::Display for CommandReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text.trim_end())
    }
}

impl Serialize for CommandReport {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.json.serialize(serializer)
    }
}
