//! The terminal around a run: environment, progress bars, remarks on standard error, signals.

use std::io::IsTerminal as _;
use std::time::Duration;

use megabatch_run::{Cancel, Host, Milestone, Observer, Progress, Result, Work, cache_folder};

use crate::command_line::asks_for_json;
use crate::interruption::Interruption;
use crate::progress::WorkDisplay;
use crate::standard_error::tell;

/// The host of every command.
pub(crate) fn host() -> Host<'static> {
    Host {
        environment: std::env::vars_os().collect(),
        cache_folder: cache_folder(|name| std::env::var_os(name)),
        observer: &StandardError,
        cancel: &Signals,
        functions: None,
    }
}

/// Everything goes to standard error; standard output is for the answer.
struct StandardError;

impl Observer for StandardError {
    fn begin(&self, work: Work<'_>) -> Box<dyn Progress> {
        Box::new(WorkDisplay::begin(work))
    }

    fn note(&self, text: &str) {
        tell(format_args!("megabatch: {text}"));
    }

    fn milestone(&self, milestone: &Milestone<'_>) {
        match milestone {
            Milestone::Planned(uses) if std::io::stderr().is_terminal() => {
                uses.iter().for_each(|line| tell(format_args!("after training: {line}")));
            }
            // A program finds them in the answer. Its standard error has nothing but errors.
            Milestone::Remarks { warnings, notes } if !asks_for_json() => {
                warnings.iter().for_each(|warning| self.note(&format!("warning: {warning}")));
                notes.iter().for_each(|note| self.note(&format!("note: {note}")));
            }
            Milestone::Fold { number, count } => tell(format_args!("fold {number} of {count}")),
            _ => {}
        }
    }
}

/// The signals of the process.
struct Signals;

impl Cancel for Signals {
    fn watch(&self, patience: Duration) -> Result<()> {
        Interruption::watch(patience)
    }

    fn is_requested(&self) -> bool {
        Interruption::current().is_some_and(Interruption::is_asked)
    }
}
