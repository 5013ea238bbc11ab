//! The `megabatch` program: composes the libraries into commands. See `megabatch --help`.
#![forbid(unsafe_code)]

mod adapt;
mod answer;
mod commands;
mod config;
mod evaluation;
mod failure;
mod job;
mod plan;
mod progress;
mod report;
mod run;
mod synth;
mod trained;

use std::process::ExitCode;

use clap::Parser as _;

use crate::answer::Form;
use crate::commands::Cli;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let form = if cli.json { Form::Json } else { Form::Text };
    let outcome = commands::run(cli.command).and_then(|answer| Ok(answer.print(form)?));
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let (kind, message) = (failure::kind(&error), failure::message(&error));
            match form {
                Form::Text => eprintln!("megabatch: {message}"),
                Form::Json => eprintln!("{}", serde_json::json!({ "error": message, "exit_code": kind as u8 })),
            }
            ExitCode::from(kind as u8)
        }
    }
}
