//! The `megabatch` program as a function: arguments, printing, progress and signals around
//! `megabatch-run`. See `megabatch --help`. The Python module has it too, and a wheel brings it.
mod answer;
mod command_line;
mod commands;
mod exit;
mod host;
mod interruption;
mod progress;
mod standard_error;

use std::ffi::OsString;
use std::io::Write as _;

use megabatch_run::{Error, Kind};

use crate::answer::Form;
use crate::commands::Cli;
use crate::interruption::Interruption;
use crate::standard_error::tell;

/// Does what the command line says, and returns the exit code of the process. The first word names
/// the program. Signals that ask the process to stop are listened for from now on.
pub fn run(command_line: impl IntoIterator<Item = OsString>) -> u8 {
    let words = command_line::remember(command_line);
    let code = match commands::parse(words) {
        Ok(cli) => answer(cli),
        Err(error) => refuse(&error, words),
    };
    // Rust's own `main` does this at its end; Python's does not.
    let _ = std::io::stdout().flush();
    code
}

fn answer(cli: Cli) -> u8 {
    let form = if cli.json { Form::Json } else { Form::Text };
    let printed = Interruption::listen().and_then(|_| commands::run(cli.command, form)).and_then(|answer| {
        answer.print(form)?;
        Ok(answer.exit_code())
    });
    printed.unwrap_or_else(|error: Error| fail(form, error.kind(), &error.to_string()))
}

/// Prints help, the version, or the fault of a command line.
fn refuse(error: &clap::Error, words: &[OsString]) -> u8 {
    let form = if command_line::asks_for_json() { Form::Json } else { Form::Text };
    // Help and the version come this way too, and a program that asks for JSON wants its errors,
    // not its help, as JSON.
    if error.use_stderr() {
        if let Some(message) = command_line::set_without_equals(words) {
            return fail(form, Kind::Usage, &message);
        }
        if form == Form::Json {
            return fail(form, Kind::Usage, error.render().to_string().trim());
        }
    }
    // A closed terminal is no error.
    let _ = error.print();
    error.exit_code() as u8
}

fn fail(form: Form, kind: Kind, message: &str) -> u8 {
    let code = exit::code(kind);
    match form {
        Form::Text => tell(format_args!("megabatch: {message}")),
        Form::Json => tell(serde_json::json!({ "error": message, "exit_code": code })),
    }
    code
}
