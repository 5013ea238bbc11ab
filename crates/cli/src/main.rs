//! The `megabatch` program: arguments, printing, progress and signals around `megabatch-run`. See
//! `megabatch --help`.
#![forbid(unsafe_code)]

mod answer;
mod commands;
mod exit;
mod host;
mod interruption;
mod progress;

use std::process::ExitCode;

use clap::Parser as _;
use megabatch_run::Kind;

use crate::answer::Form;
use crate::commands::Cli;
use crate::host::tell;
use crate::interruption::Interruption;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        // Help and the version come this way too, and a program that asks for JSON wants its
        // errors, not its help, as JSON.
        Err(error) if error.use_stderr() && host::asks_for_json() => {
            return fail(Form::Json, Kind::Usage, error.render().to_string().trim());
        }
        Err(error) => error.exit(),
    };
    let form = if cli.json { Form::Json } else { Form::Text };
    let printed = Interruption::listen().and_then(|_| commands::run(cli.command, form)).and_then(|answer| {
        answer.print(form)?;
        Ok(answer.exit_code())
    });
    match printed {
        Ok(exit_code) => exit_code,
        Err(error) => fail(form, error.kind(), &error.to_string()),
    }
}

fn fail(form: Form, kind: Kind, message: &str) -> ExitCode {
    let code = exit::code(kind);
    match form {
        Form::Text => tell(format_args!("megabatch: {message}")),
        Form::Json => tell(serde_json::json!({ "error": message, "exit_code": code })),
    }
    ExitCode::from(code)
}
