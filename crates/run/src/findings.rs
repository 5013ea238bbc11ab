//! The outcome of a command: text for people, JSON for programs.

use std::fmt;

use serde::{Serialize, Serializer};
use serde_json::Value;

use crate::error::Kind;

/// What a command found or did. `Display` is the text, `Serialize` the JSON, whose keys are stable.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Findings {
    /// For people.
    pub text: String,
    /// For programs.
    pub json: Value,
    /// Kind of what is bad where the command did what was asked and found something bad.
    pub verdict: Option<Kind>,
}

impl Findings {
    /// Findings that read `text` and, for programs, are `value`.
    pub(crate) fn new(text: impl Into<String>, value: &impl Serialize) -> Self {
        let json = serde_json::to_value(value).expect("findings have text keys and serialize without error");
        Findings { text: text.into(), json, verdict: None }
    }

    /// Findings of a process whose run another process reports.
    pub(crate) fn of_peer() -> Self {
        Findings { text: String::new(), json: Value::Null, verdict: None }
    }

    /// The same findings, which are bad.
    #[must_use]
    pub(crate) fn with_verdict(self, kind: Kind) -> Self {
        Findings { verdict: Some(kind), ..self }
    }
}

impl fmt::Display for Findings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text.trim_end())
    }
}

impl Serialize for Findings {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.json.serialize(serializer)
    }
}
