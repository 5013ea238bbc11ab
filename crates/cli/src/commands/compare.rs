//! `megabatch compare`: several runs side by side.

use std::path::PathBuf;

use megabatch_run::Result;
use megabatch_run::compare::compare;

use crate::answer::Answer;

/// Put several runs side by side: in what they differ, and what came of each
///
/// Settings that differ, best validation loss, errors beside baselines, speed and time by phase,
/// peaks of memory; with --out, also the learning curves, on one page that needs nothing else. Runs
/// that have not ended are shown as far as they got, and runs on other samples are told apart.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  megabatch compare runs/first runs/second
  megabatch compare runs/* --out compare.html
  megabatch compare runs/first runs/second --json")]
pub(crate) struct Args {
    /// Folders of two runs or more
    #[arg(value_name = "RUN", required = true, num_args = 1..)]
    runs: Vec<PathBuf>,
    /// Write a page with all of it and the learning curves
    #[arg(long, value_name = "FILE.html")]
    out: Option<PathBuf>,
}

pub(crate) fn run(args: &Args) -> Result<Answer> {
    Ok(compare(&args.runs, args.out.as_deref())?.into())
}
