//! `megabatch completions`: the shell's completion script.

use clap::CommandFactory as _;
use clap_complete::Shell;
use megabatch_run::Result;
use serde_json::json;

use super::Cli;
use crate::answer::Answer;

/// Print the completion script of a shell
#[derive(clap::Args)]
#[command(after_help = "Example:\n  megabatch completions bash > ~/.local/share/bash-completion/completions/megabatch")]
pub(crate) struct Args {
    /// The shell
    shell: Shell,
}

pub(crate) fn run(args: &Args) -> Result<Answer> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "megabatch", &mut script);
    let script = String::from_utf8_lossy(&script).into_owned();
    Ok(Answer::new(script.clone(), &json!({ "shell": args.shell.to_string(), "script": script })))
}
