//! `megabatch memory`: what a pool's memory looked like.

mod snapshot;

use anyhow::Result;
use clap::Subcommand;

use crate::answer::Answer;

/// Look into the memory of a run
#[derive(clap::Args)]
#[command(after_help = "Example:
  megabatch memory snapshot runs/first")]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    Snapshot(snapshot::Args),
}

pub(crate) fn run(args: &Args) -> Result<Answer> {
    match &args.what {
        What::Snapshot(args) => snapshot::run(args),
    }
}
