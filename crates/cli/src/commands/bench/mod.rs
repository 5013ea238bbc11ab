//! `megabatch bench`: what this machine does, measured.

mod load;
mod predict;
mod series;
mod train;
mod watch;

use anyhow::Result;
use clap::Subcommand;

use crate::answer::Answer;

/// Measure what this machine does
#[derive(clap::Args)]
#[command(after_help = "Examples:
  megabatch bench train --model multi --batch 64 --features 128 --hidden 128 --threads 2
  megabatch bench load windows.h5 --batch 128 --shuffled")]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    Train(train::Args),
    Predict(predict::Args),
    Load(load::Args),
    Watch(watch::Args),
}

pub(crate) fn run(args: &Args) -> Result<Answer> {
    match &args.what {
        What::Train(args) => train::run(args),
        What::Predict(args) => predict::run(args),
        What::Load(args) => load::run(args),
        What::Watch(args) => watch::run(args),
    }
}
