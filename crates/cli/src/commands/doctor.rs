//! `megabatch doctor`: what is wrong with a GPU training set-up, and the command that mends it.

use std::path::PathBuf;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use megabatch_run::Result;
use megabatch_run::doctor::{Options, Topic, examine, explain};

use crate::answer::Answer;
use crate::host::host;

/// Find what is wrong with a GPU training set-up, and the command that mends it
///
/// Looks at the GPU, its driver, the way to it out of a container, environment variables,
/// megabatch's own kernels, and a Python environment: PyTorch and the packages that are built for
/// it, by running them. Nothing is changed. Exits with 0 where training on a GPU can begin, and
/// with 6 where a problem is in its way.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  megabatch doctor
  megabatch doctor --python ~/venv/bin/python --fix-script fix.sh
  megabatch doctor --explain arm")]
pub(crate) struct Args {
    /// The interpreter of the environment to look at; else the active one, or the first on the path
    #[arg(long, value_name = "PATH")]
    python: Option<PathBuf>,
    /// Write a script that mends the Python environment and proves it on the GPU; it is for you to
    /// read and run
    #[arg(long, value_name = "FILE")]
    fix_script: Option<PathBuf>,
    /// Print a page instead
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
