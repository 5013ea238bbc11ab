//! `megabatch doctor`: faults of a GPU training set-up and the commands that mend them.

use std::path::PathBuf;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use megabatch_run::Result;
use megabatch_run::doctor::{Options, Topic, examine, explain};

use crate::answer::Answer;
use crate::host::host;

/// Find faults of a GPU set-up and the commands that fix them
///
/// Checks the GPU, its driver, containers, environment variables, megabatch's kernels, and a Python
/// environment by running PyTorch and its extensions. Changes nothing. Exits with 0 if training on
/// a GPU can begin, and with 6 if a problem prevents it.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  megabatch doctor
  megabatch doctor --python ~/venv/bin/python --fix-script fix.sh
  megabatch doctor --explain arm")]
pub(crate) struct Args {
    /// Python interpreter to examine [default: the active one, or the first on the path]
    #[arg(long, value_name = "PATH")]
    python: Option<PathBuf>,
    /// Write a script that fixes the Python environment and tests it on the GPU; read it before you
    /// run it
    #[arg(long, value_name = "FILE")]
    fix_script: Option<PathBuf>,
    /// Print an explanation instead
    #[arg(long, value_name = "TOPIC", value_parser = topics(), conflicts_with_all = ["python", "fix_script"])]
    explain: Option<Topic>,
}

fn topics() -> impl TypedValueParser<Value = Topic> {
    let names = Topic::ALL.map(|topic| PossibleValue::new(topic.name()).help(topic.about()));
    PossibleValuesParser::new(names).try_map(|name| name.parse::<Topic>())
}

pub(crate) fn run(args: &Args) -> Result<Answer> {
    if let Some(topic) = args.explain {
        return Ok(explain(topic).into());
    }
    let options = Options { python: args.python.clone(), fix_script: args.fix_script.clone() };
    Ok(examine(&options, &host())?.into())
}
