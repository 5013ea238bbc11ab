//! `megabatch compare`: several runs side by side.

use std::path::PathBuf;

use megabatch_run::Result;
use megabatch_run::compare::compare;

use crate::answer::Answer;
use crate::host::host;

/// Compare runs: settings that differ, and results
///
/// Shows settings that differ, best validation loss, errors beside baselines, speed, time by phase
/// and memory peaks; with --out, a self-contained page with learning curves. Unfinished runs are
/// shown as far as they got. Runs on different samples are marked.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  megabatch compare runs/first runs/second
  megabatch compare runs/* --out compare.html
  megabatch compare runs/first runs/second --json")]
pub(crate) struct Args {
    /// Folders of two or more runs
    #[arg(value_name = "RUN", required = true, num_args = 1..)]
    runs: Vec<PathBuf>,
    /// Write a page with all of it and the learning curves
    #[arg(long, value_name = "FILE.html")]
    out: Option<PathBuf>,
}

pub(crate) fn run(args: &Args) -> Result<Answer> {
    Ok(compare(&args.runs, args.out.as_deref(), &host())?.into())
}
