//! The `megabatch` program: composes the libraries into commands. See `megabatch --help`.
#![forbid(unsafe_code)]

mod adapt;
mod advice;
mod answer;
mod attention;
mod byte_sizes;
mod cache;
mod commands;
mod computing;
mod config;
mod duration;
mod evaluation;
mod failure;
mod folds;
mod forecasts;
mod gpu;
mod int8;
mod interruption;
mod notes;
mod nouns;
mod onnx;
mod output;
mod plan;
mod progress;
mod provenance;
mod recipe;
mod report;
mod run;
mod settings;
mod streaming;
mod synth;
mod trained;
mod training_setup;
mod universe;
mod usage;

use std::process::ExitCode;

use clap::Parser as _;

use crate::answer::Form;
use crate::commands::Cli;
use crate::failure::Kind;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        // Help and the version come this way too, and a program that asks for JSON wants its
        // errors, not its help, as JSON.
        Err(error) if error.use_stderr() && std::env::args_os().any(|word| word == "--json") => {
            return fail(Form::Json, Kind::Usage, error.render().to_string().trim());
        }
        Err(error) => error.exit(),
    };
    let form = if cli.json { Form::Json } else { Form::Text };
    let printed = commands::run(cli.command, form).and_then(|answer| {
        answer.print(form)?;
        Ok(answer.exit_code())
    });
    match printed {
        Ok(exit_code) => exit_code,
        Err(error) => {
            let (kind, message) = (failure::kind(&error), failure::message(&error));
            // Of damaged data the exact length matters, of what does not fit its size.
            let message = if kind == Kind::Capacity { byte_sizes::with_readable_sizes(&message) } else { message };
            fail(form, kind, &message)
        }
    }
}

fn fail(form: Form, kind: Kind, message: &str) -> ExitCode {
    match form {
        Form::Text => eprintln!("megabatch: {message}"),
        Form::Json => eprintln!("{}", serde_json::json!({ "error": message, "exit_code": kind as u8 })),
    }
    ExitCode::from(kind as u8)
}
