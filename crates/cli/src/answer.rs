//! Results of commands: text for people, JSON for programs. Commands return it; only the crate's
//! root prints.

use std::io::{self, Write};

use megabatch_run::{CommandReport, Kind};
use serde::Serialize;
use serde_json::Value;

use crate::exit;
use crate::standard_error::tell;

/// The outcome of a command.
pub(crate) struct Answer {
    text: String,
    json: Value,
    verdict: Option<Kind>,
    /// True if standard output has other contents.
    is_aside: bool,
}

/// Format of answers and errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Text,
    Json,
}

impl From<CommandReport> for Answer {
    fn from(report: CommandReport) -> Self {
        let CommandReport { text, json, verdict, .. } = report;
        Answer { text, json, verdict, is_aside: false }
    }
}

impl Answer {
    /// An answer that reads `text` and, for programs, is `value`.
    pub(crate) fn new(text: impl Into<String>, value: &impl Serialize) -> Self {
        let json = serde_json::to_value(value).expect("answers have text keys and serialize without error");
        Answer { text: text.into(), json, verdict: None, is_aside: false }
    }

    /// The same answer on standard error: standard output has other lines.
    #[must_use]
    pub(crate) fn aside(self) -> Self {
        Answer { is_aside: true, ..self }
    }

    /// Exit code of the program after the answer is printed.
    pub(crate) fn exit_code(&self) -> u8 {
        self.verdict.map_or(0, exit::code)
    }

    /// Prints the text on standard error, for a command that is a part of another.
    pub(crate) fn print_to_stderr(&self) {
        tell(self.text.trim_end());
    }

    /// Prints the answer. A closed pipe, as by `head`, is no error.
    pub(crate) fn print(&self, form: Form) -> io::Result<()> {
        // A process of a run that another one tells of has nothing to say.
        if self.text.is_empty() && self.json.is_null() {
            return Ok(());
        }
        let text = match form {
            Form::Text => self.text.trim_end().to_owned(),
            Form::Json => self.json.to_string(),
        };
        if self.is_aside {
            tell(text);
            return Ok(());
        }
        let mut stdout = io::stdout().lock();
        match writeln!(stdout, "{text}").and_then(|()| stdout.flush()) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            result => result,
        }
    }
}
