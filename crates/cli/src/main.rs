//! The `megabatch` program: arguments, printing, progress and signals around `megabatch-run`. See
//! `megabatch --help`.
#![forbid(unsafe_code)]

mod answer;
mod commands;
mod exit;
mod host;
mod interruption;
mod progress;
mod standard_error;

use std::process::ExitCode;

use clap::Parser as _;
use megabatch_run::Kind;

use crate::answer::Form;
use crate::commands::Cli;
use crate::interruption::Interruption;
use crate::standard_error::tell;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) if error.use_stderr() && set_without_equals().is_some() => {
            let form = if host::asks_for_json() { Form::Json } else { Form::Text };
            return fail(form, Kind::Usage, &set_without_equals().unwrap_or_default());
        }
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

/// The correct form of `--set KEY VALUE`, which names no setting and leaves a word over.
fn set_without_equals() -> Option<String> {
    let words: Vec<String> = std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
    words.windows(3).find_map(|words| match words {
        [set, key, value] if set == "--set" && !key.contains('=') && !value.starts_with('-') => {
            Some(format!("--set {key} {value}: a setting and its value are one word; write --set {key}={value}"))
        }
        _ => None,
    })
}

fn fail(form: Form, kind: Kind, message: &str) -> ExitCode {
    let code = exit::code(kind);
    match form {
        Form::Text => tell(format_args!("megabatch: {message}")),
        Form::Json => tell(serde_json::json!({ "error": message, "exit_code": code })),
    }
    ExitCode::from(code)
}
