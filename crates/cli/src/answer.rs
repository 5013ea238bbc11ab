//! Results of commands: text for people, JSON for programs. Commands return it; only `main` prints.

use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use serde::Serialize;
use serde_json::Value;

use crate::failure::{Failure, Kind};

/// The outcome of a command.
pub(crate) struct Answer {
    text: String,
    json: Value,
    verdict: Option<Kind>,
    /// True if standard output belongs to something else.
    is_aside: bool,
}

/// A path as text, for people and for JSON: bytes that are not UTF-8 are replaced. Files are opened
/// by the path itself.
pub(crate) fn shown(path: &Path) -> String {
    path.display().to_string()
}

/// [`shown`], for a derived `Serialize`.
pub(crate) fn serialize_shown<S: serde::Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&path.display())
}

/// `path` as text, to be kept in `holder`, which another process takes it from.
///
/// # Errors
/// A usage failure where the path is not UTF-8.
pub(crate) fn require_text<'p>(path: &'p Path, holder: &str) -> anyhow::Result<&'p str> {
    path.to_str().ok_or_else(|| {
        Failure::usage(format!(
            "{}: this path is not UTF-8, and {holder} can hold text only; rename it, or give another path to it",
            path.display()
        ))
    })
}

/// In which form answers and errors are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Text,
    Json,
}

impl Answer {
    /// An answer that reads `text` and, for programs, is `value`.
    pub(crate) fn new(text: impl Into<String>, value: &impl Serialize) -> Self {
        let json = serde_json::to_value(value).expect("answers have text keys and serialize without error");
        Answer { text: text.into(), json, verdict: None, is_aside: false }
    }

    /// The same answer, with which the program ends as on a failure of `kind`: it did what was
    /// asked, and what it found is bad.
    #[must_use]
    pub(crate) fn with_verdict(self, kind: Kind) -> Self {
        Answer { verdict: Some(kind), ..self }
    }

    /// The same answer, printed where progress goes: standard output has lines of its own.
    #[must_use]
    pub(crate) fn aside(self) -> Self {
        Answer { is_aside: true, ..self }
    }

    /// Exit code of the program after the answer is printed.
    pub(crate) fn exit_code(&self) -> ExitCode {
        self.verdict.map_or(ExitCode::SUCCESS, |kind| ExitCode::from(kind as u8))
    }

    /// Prints the text where progress goes, for a command that is a part of another.
    pub(crate) fn print_to_stderr(&self) {
        eprintln!("{}", self.text.trim_end());
    }

    /// Prints the answer. A reader that went away, as `head` does, is no error.
    pub(crate) fn print(&self, form: Form) -> io::Result<()> {
        let text = match form {
            Form::Text => self.text.trim_end().to_owned(),
            Form::Json => self.json.to_string(),
        };
        if self.is_aside {
            eprintln!("{text}");
            return Ok(());
        }
        let mut stdout = io::stdout().lock();
        match writeln!(stdout, "{text}").and_then(|()| stdout.flush()) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            result => result,
        }
    }
}
